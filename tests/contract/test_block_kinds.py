"""Every kind of block has all of its parts, and they agree with each other."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest

import dse
from dse import blocks
from dse.blocks import FEED_FORWARD, KINDS, MIXERS, OPTIONAL_SIZES
from dse.errors import InputError
from dse.physics import gemms
from dse.physics.deployed import Deployed
from dse.physics.machines import OPERATORS, Machines
from dse.physics.parameters import Whole, parameters
from dse.physics.step import weight_bytes_per_chip
from dse.physics.training.evaluate import law_kind
from dse.physics.training.passes import Pass, TrainingDeployed, elements_of
from dse.physics.training.plan import TrainingBatch
from dse.problem.evaluate import worst_kind
from dse.questions.export import export_arguments, export_config
from dse.schema.backend import KINDS as PROVENANCE
from dse.schema.model import BlockSpec, Model, config_of, layers_in_short, layers_in_words
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import Block, CandidateBatch
from tests.helpers import CHIPS, machines
from tests.helpers_models import gqa, mlp, model, moe
from tests.helpers_training import PLAIN

HIDDEN, VOCABULARY = 512, 1024
TOKENS = 4096.0
# Laws that are measured of every chip.
COMMON = {"gemm", "prefill_attention", "decode_attention"}


class Sample(NamedTuple):
    """Layers of a kind; `outside`: weights of one that no product multiplies, by hand."""

    block: BlockSpec
    outside: float = 0.0


INDEXER = {"index_heads": 4, "index_head_dim": 32, "index_topk": 256}
MLA = {
    "heads": 8,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}
COMPRESSED = {
    "heads": 8,
    "head_dim": 64,
    "q_lora_rank": 96,
    "output_groups": 4,
    "output_rank": 48,
    "window": 128,
    "ratio": 4,
    **INDEXER,
}
DELTA = {
    "key_heads": 4,
    "key_head_dim": 32,
    "value_heads": 8,
    "value_head_dim": 32,
    "conv_width": 4,
    "gates_per_head": 1,
    "decay_rank": 16,
    "output_gate_rank": 24,
}
MAMBA_2 = {
    "inner_size": 1024,
    "heads": 16,
    "groups": 2,
    "state_size": 64,
    "conv_width": 4,
    "dt_rank": 0,
}
MAMBA_1 = {**MAMBA_2, "heads": 0, "groups": 0, "dt_rank": 32}
# Of every kind, one sample or more.
SAMPLES = {
    "gqa": Sample(gqa(2, 8, 2, 64)),
    "gqa with its options": Sample(
        gqa(2, 8, 2, 64, output_gate=1, relative_positions=1, values_from_keys=1, **INDEXER),
        HIDDEN * 8 * 64,  # positions are projected once, not in every step
    ),
    "gqa of an encoder": Sample(gqa(2, 8, 8, 64, bidirectional=1)),
    "mla": Sample(BlockSpec("mla", 2, MLA)),
    "mla with its options": Sample(BlockSpec("mla", 2, {**MLA, "output_gate": 1, **INDEXER})),
    "compressed": Sample(
        # Columns of the hidden state that stand for no weight of the products: none.
        BlockSpec("compressed", 2, COMPRESSED)
    ),
    "delta_net": Sample(BlockSpec("delta_net", 2, DELTA), 4 * (2 * 4 * 32 + 8 * 32)),
    "mamba": Sample(BlockSpec("mamba", 2, MAMBA_2), 4 * (1024 + 2 * 2 * 64)),
    "mamba 1": Sample(BlockSpec("mamba", 2, MAMBA_1), 4 * 1024 + 1024 * 64),
    "mlp": Sample(mlp(2, 1024)),
    "moe": Sample(moe(2, 16, 4, 256, 512)),
    "moe on a latent": Sample(
        replace(moe(2, 16, 4, 256), sizes={**moe(2, 16, 4, 256).sizes, "expert_hidden_size": 128})
    ),
    "moe with biases": Sample(
        replace(moe(2, 16, 4, 256), sizes={**moe(2, 16, 4, 256).sizes, "expert_bias": 1})
    ),
    "positions": Sample(BlockSpec("positions", 1, {"rows": 2048}), 2048 * HIDDEN),
}


def kind_of(name: str):
    return KINDS[SAMPLES[name].block.kind]


def whole_model(name: str) -> Model:
    """The layers, with plain ones that make a model of them."""
    block = SAMPLES[name].block
    partners = []
    if block.kind not in MIXERS:
        partners.append(gqa(2, 8, 2, 64))
    if block.kind not in FEED_FORWARD:
        partners.append(mlp(2, 1024))
    return model(*partners, block, hidden=HIDDEN, vocab=VOCABULARY)


def on_chip(shape: Model, **axes: float) -> CandidateBatch:
    deployment = {name: np.array([axes.get(name, 1.0)]) for name in DEPLOYMENT_AXES}
    codes = np.array([CHIPS.index("h100_sxm")], dtype=np.intp)
    return batch_of([shape], codes, ["bf16"], ["bf16"], deployment)


def alone(batch: CandidateBatch, name: str) -> CandidateBatch:
    """The batch with the blocks of the sample only."""
    kind = SAMPLES[name].block.kind
    return replace(batch, blocks=tuple(b for b in batch.blocks if b.kind == kind))


def sample(name: str, **axes: float) -> tuple[CandidateBatch, Block]:
    batch = alone(on_chip(whole_model(name), **axes), name)
    (block,) = batch.blocks
    return batch, block


def training(batch: CandidateBatch) -> TrainingDeployed:
    runs = TrainingBatch.of(batch, TOKENS, TOKENS)
    return TrainingDeployed(runs, machines(), PLAIN)


def everything(batch: CandidateBatch) -> float:
    """Parameters of the blocks, norms and the two tables left out."""
    found = parameters(batch)
    parts = found.attention + found.mlp + found.experts + found.router + found.positions
    return float(parts[0])


def test_every_kind_is_sampled_and_every_file_is_a_kind():
    assert {sampled.block.kind for sampled in SAMPLES.values()} == set(KINDS)
    names = {module.name for module in pkgutil.iter_modules(blocks.__path__)}
    with_kind = {n for n in names if hasattr(import_module(f"dse.blocks.{n}"), "KIND")}
    assert with_kind == set(KINDS), "a kind needs its sizes in dse.blocks"


def test_samples_name_every_optional_size():
    for kind, names in OPTIONAL_SIZES.items():
        named = {n for s in SAMPLES.values() if s.block.kind == kind for n in s.block.sizes}
        missing = set(names) - named
        assert missing <= {"chunk", "reuses_kv"}, f"{kind}: no sample has {missing}"


@pytest.mark.parametrize("name", SAMPLES)
def test_parameters_are_those_of_the_products_of_a_step(name):
    batch, block = sample(name)
    noted = gemms.prefill(Deployed(batch, machines()), TOKENS, TOKENS)
    products = sum(
        float((g.count * g.out * g.inner * g.groups)[0])
        for g in noted.gemms
        if g.role.name != "HEAD"
    )
    outside = SAMPLES[name].outside * float(block.count[0])
    assert everything(batch) > 0.0
    assert everything(batch) == products + outside


@pytest.mark.parametrize("name", SAMPLES)
def test_a_step_of_serving_reads_the_weights(name):
    """So many tokens that no expert is left out, so that every product reads its whole weight."""
    batch, block = sample(name)
    step = gemms.prefill(Deployed(batch, machines()), 1e6, TOKENS)
    head = 2.0 * VOCABULARY * HIDDEN
    outside = SAMPLES[name].outside * float(block.count[0])
    read = float(step.ledger.touched_bytes[0])
    assert read - head == pytest.approx(2.0 * (everything(batch) - outside), rel=1e-4)


@pytest.mark.parametrize("name", SAMPLES)
def test_training_holds_the_weights_and_moves_their_bytes(name):
    batch, block = sample(name)
    batch = replace(batch, blocks=on_chip(whole_model(name)).blocks)  # layers to divide by
    deployed = training(batch)
    found, all_ = elements_of(deployed), parameters(batch)
    layers = float(batch.layers[0])
    held = float(((found.dense + found.experts) * layers + found.positions)[0])
    assert held == pytest.approx(everything(batch) + float((all_.norms - batch.hidden_size)[0]))

    step = Pass(training(alone(batch, name)))
    moved = step.layers.forward_bytes + step.ends.forward_bytes
    outside = SAMPLES[name].outside * float(block.count[0])
    assert moved[0] >= 2.0 * (everything(alone(batch, name)) - outside) * 0.99  # of experts, chance
    kept = sum(float((k.residual + k.droppable_residual)[0]) for k in step.kept.values())
    assert (kept > 0.0) == (name != "positions")


def test_the_output_of_compressed_attention_is_kept_once():
    """As attention's; of what follows, the latents of queries (for queries and for the indexer) and
    the halves of the output that groups leave, 16 bits each."""
    kept = Pass(training(sample("compressed")[0])).kept["mixer"]
    latents, halves = 2 * COMPRESSED["q_lora_rank"], COMPRESSED["output_groups"] * 48
    assert kept.droppable_sharded[0] == 2 * TOKENS * 2 * (latents + halves)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_forward_pass_has_the_arithmetic_of_a_prompt(name):
    """Without padding and imbalance, in seconds at the dense peak; the output head apart."""
    batch, _ = sample(name)
    batch = replace(batch, routing_skew=np.zeros(1))
    step = gemms.prefill(Deployed(batch, machines()), TOKENS, TOKENS)
    head = 2.0 * VOCABULARY * HIDDEN * step.deployed.law("gemm", "embedding").s_per_flop
    head *= step.deployed.law("gemm", "embedding").floor_of_compute
    served = float((step.ledger.floor_compute_s - head)[0])
    trained = float(Pass(training(batch)).layers.forward_peak[0])
    assert trained == pytest.approx(served, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_request_keeps_is_cache_and_state(name):
    """At a length of whole pages, beyond every window."""
    batch, block = sample(name)
    kind, whole, tokens = kind_of(name), Whole(batch), np.array([TOKENS])
    grows = kind.kv_elements_per_token(block) * whole.kv_bytes + kind.index_bytes_per_token(block)
    kept = kind.kv_bytes_per_request(whole, block, tokens)
    assert kept == grows * tokens + kind.state_bytes(whole, block)
    reads_only = SAMPLES[name].block.sizes.get("bidirectional", 0)
    assert (kept[0] > 0.0) == (block.kind in MIXERS and not reads_only)
    passed = kind.passed_bytes(whole, block, tokens, np.ones(1))
    assert (passed is not None) == (block.kind in MIXERS)


@pytest.mark.parametrize("name", SAMPLES)
def test_ranks_divide_the_weights_and_lose_none(name):
    one = weight_bytes_per_chip(Deployed(sample(name)[0], machines()))
    split = sample(name, tensor_parallel=2.0, expert_parallel=2.0)[0]
    two = weight_bytes_per_chip(Deployed(split, machines()))
    assert set(one) == set(two)
    for part, bytes_ in one.items():
        assert bytes_ / 2.0 <= two[part] <= bytes_


@pytest.mark.parametrize("name", SAMPLES)
def test_laws_that_few_kinds_use_are_named_or_borrowed(name, monkeypatch):
    asked: set[str] = set()
    law = Deployed.law

    def listen(self: Deployed, operator: str, part: str):
        asked.add(operator)
        return law(self, operator, part)

    monkeypatch.setattr(Deployed, "law", listen)
    batch, block = sample(name)
    gemms.prefill(Deployed(batch, machines()), TOKENS, TOKENS)
    gemms.decode(Deployed(batch, machines()), 8.0, TOKENS)
    kind = kind_of(name)
    assert asked <= set(OPERATORS)
    borrowed = kind.borrows(block)
    if borrowed is None or not borrowed.all():
        assert asked - COMMON == set(kind.laws)


@pytest.mark.parametrize("name", SAMPLES)
def test_provenance_knows_the_kind_when_serving_and_when_training(name):
    batch, block = sample(name)
    on: Machines = machines()
    borrowed = kind_of(name).borrows(block)
    expected = "fitted" if borrowed is None else "derived"
    assert PROVENANCE[worst_kind(batch, on)[0]] == expected
    assert PROVENANCE[law_kind(TrainingBatch.of(batch, TOKENS, TOKENS), on)[0]] == expected
    for law in kind_of(name).laws:  # of a chip that was measured here, which has none of these
        unknown = {law: np.full_like(on.law_kind, PROVENANCE.index("assumed"))}
        here = replace(on, block_law_kind=unknown)
        assert PROVENANCE[worst_kind(batch, here)[0]] == "assumed"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_model_of_the_kind_is_estimated_trained_and_put_into_words(name):
    config = config_of(whole_model(name))
    if kind_of(name).recomputed_as == "mixer" and name != "gqa":
        assert layers_in_words(config)
        assert layers_in_short(config)
    assert dse.estimate(config, "h100_sxm").to_text()
    assert dse.train(config, "h100_sxm", chips=8, tokens="1B").to_text()


@pytest.mark.parametrize(
    "write",
    [
        export_config,
        lambda shape: export_arguments(
            shape, {"tensor": 1, "pipeline": 1, "expert": 1, "data": 1}, 4096
        ),
    ],
)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_kind_is_exported_or_refused_by_name(name, write):
    refused = ""
    try:
        made = write(whole_model(name)).files
    except InputError as refusal:
        made, refused = {}, str(refusal)
    assert made or re.search(r"(this shape|Megatron-LM arguments): .{10,} \(accepted: ", refused)
