"""Parameter counts: matrices counted by hand, laws that every shape obeys, published caches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.physics.parameters import (
    Parameters,
    parameters,
)
from dse.schema.model import BlockSpec, Model
from tests.helpers_models import batch_of_models, gqa, mlp, model, moe


def count(shape: Model) -> Parameters:
    return parameters(batch_of_models(shape))


def sizes_of(matrices: list[tuple[int, int]]) -> int:
    return sum(math.prod(matrix) for matrix in matrices)


def test_dense_model_by_its_matrices():
    found = count(model(gqa(2, heads=4, kv_heads=2, head_dim=8), mlp(2, 96), hidden=64, vocab=100))
    assert found.attention == 2 * sizes_of([(64, 32), (64, 16), (64, 16), (32, 64)])
    assert found.mlp == 2 * sizes_of([(64, 96), (64, 96), (96, 64)])
    assert found.norms == 2 * 2 * 64 + 64
    assert found.embedding == found.head == 100 * 64
    assert found.experts == found.router == found.active_experts == 0


def test_plain_feed_forward_has_two_matrices():
    found = count(model(gqa(1, 4, 4, 16), mlp(1, 256, matrices=2)))
    assert found.mlp == sizes_of([(64, 256), (256, 64)])


def test_biases_of_query_key_value_count_as_vectors():
    plain = count(model(gqa(3, 4, 2, 8), mlp(3, 96)))
    biased = count(model(gqa(3, 4, 2, 8, qkv_bias=1), mlp(3, 96)))
    assert biased.norms - plain.norms == 3 * (4 + 2 + 2) * 8
    assert biased.attention == plain.attention


def test_sparse_model_by_its_matrices():
    blocks = (gqa(3, 4, 2, 8), mlp(1, 96), moe(2, experts=10, per_token=3, width=16, shared=32))
    found = count(model(*blocks))
    expert = sizes_of([(64, 16), (64, 16), (16, 64)])
    assert found.experts == 2 * 10 * expert
    assert found.active_experts == 2 * 3 * expert
    assert found.router == 2 * 64 * 10
    assert found.mlp == 3 * 64 * 96 + 2 * 3 * 64 * 32  # the dense layer, and the shared experts


LATENT = {
    "heads": 4, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 6, "v_head_dim": 10,
}  # fmt: skip
LATENT_MATRICES = [(64, 12 + 6), (12, 4 * (8 + 10)), (4 * 10, 64)]
DELTA = {
    "key_heads": 2, "key_head_dim": 8, "value_heads": 4, "value_head_dim": 16, "conv_width": 4,
    "gates_per_head": 2, "decay_rank": 0, "output_gate_rank": 0,
}  # fmt: skip
DELTA_MATRICES = [(64, 16), (64, 16), (64, 64), (64, 64), (64, 4), (64, 4), (64, 64), (96, 4)]
KIMI = DELTA | {"key_heads": 4, "value_head_dim": 8, "gates_per_head": 1, "decay_rank": 6}
KIMI_MATRICES = [*[(64, 32)] * 3, (64, 4), (64, 6), (6, 32), (3 * 32, 4), (32, 64)]
MAMBA = {
    "inner_size": 128, "heads": 0, "groups": 0, "state_size": 16, "conv_width": 4, "dt_rank": 5,
}  # fmt: skip
CHANNELS = 128 + 2 * 2 * 16  # of Mamba 2
INDEXER = {"index_heads": 3, "index_head_dim": 16, "index_topk": 32}
COMPRESSED = dict.fromkeys(INDEXER, 0) | {
    "heads": 4, "head_dim": 16, "q_lora_rank": 24, "output_groups": 2, "output_rank": 6,
    "window": 8, "ratio": 4,
}  # fmt: skip
COMPRESSED_MATRICES = [(64, 24), (24, 64), (64, 16), (2 * 16, 6), (2 * 16, 6), (2 * 6, 64)]


@pytest.mark.parametrize(
    ("kind", "sizes", "matrices"),
    [
        ("mla", LATENT, [*LATENT_MATRICES, (64, 24), (24, 4 * 14)]),
        ("mla", LATENT | {"q_lora_rank": 0}, [*LATENT_MATRICES, (64, 4 * 14)]),
        ("delta_net", DELTA, DELTA_MATRICES),
        ("delta_net", KIMI, [*KIMI_MATRICES, (64, 32)]),
        ("delta_net", KIMI | {"output_gate_rank": 12}, [*KIMI_MATRICES, (64, 12), (12, 32)]),
        ("mamba", MAMBA, [(64, 256), (128, 4), (128, 5 + 32), (5, 128), (128, 16), (128, 64)]),
        ("mamba", MAMBA | {"heads": 8, "groups": 2, "dt_rank": 0},
         [(64, 128 + CHANNELS + 8), (CHANNELS, 4), (128, 64)]),
        ("compressed", COMPRESSED | INDEXER,
         [*COMPRESSED_MATRICES, *[(64, 2 * 16)] * 4, (24, 3 * 16), (64, 3)]),
        ("compressed", COMPRESSED | {"ratio": 128}, [*COMPRESSED_MATRICES, (64, 16), (64, 16)]),
        ("compressed", COMPRESSED | {"ratio": 0}, COMPRESSED_MATRICES),
    ],
)  # fmt: skip
def test_a_mixer_by_its_matrices(kind, sizes, matrices):
    assert count(model(BlockSpec(kind, 1, sizes), mlp(1, 96))).attention == sizes_of(matrices)


@pytest.mark.parametrize(
    ("kind", "sizes", "vectors"),
    [
        ("mla", LATENT, 24 + 12),
        ("mla", LATENT | {"q_lora_rank": 0}, 12),
        ("delta_net", DELTA, 4 + 4 + 16),  # decay, time step, gated norm
        ("mamba", MAMBA, 3 * 128),  # convolution bias, time step bias, skip
        ("mamba", MAMBA | {"heads": 8, "groups": 2, "dt_rank": 0}, CHANNELS + 3 * 8 + 128),
    ],
)
def test_a_mixer_has_vectors_beside_three_norms(kind, sizes, vectors):
    assert count(model(BlockSpec(kind, 1, sizes), mlp(1, 96))).norms == 3 * 64 + vectors


GROUPED = gqa(1, 4, 2, 8).sizes


@pytest.mark.parametrize(
    ("kind", "sizes", "extra", "difference"),
    [
        ("mla", LATENT, INDEXER, 24 * 3 * 16 + 64 * 16 + 64 * 3),
        ("mla", LATENT, {"index_topk": 32}, 0),  # reuses the choice of another layer
        ("mla", LATENT, {"output_gate": 1}, 64 * 4 * 10),
        ("gqa", GROUPED, {"output_gate": 1}, 64 * 4 * 8),
        ("gqa", GROUPED, {"values_from_keys": 1}, -64 * 2 * 8),
        ("gqa", GROUPED, {"reuses_kv": 1}, -64 * 2 * 2 * 8),
        ("gqa", GROUPED, {"relative_positions": 1}, 64 * 4 * 8),
        ("gqa", GROUPED, {"chunk": 128}, 0),
        ("gqa", GROUPED, INDEXER, 64 * (3 * 16 + 16 + 3)),
    ],
)
def test_additions_to_attention(kind, sizes, extra, difference):
    plain = count(model(BlockSpec(kind, 3, sizes), mlp(3, 96)))
    found = count(model(BlockSpec(kind, 3, {**sizes, **extra}), mlp(3, 96)))
    assert found.attention - plain.attention == 3 * difference


def test_experts_on_a_latent_by_their_matrices():
    block = moe(2, experts=10, per_token=3, width=16, shared=32)
    narrow = BlockSpec("moe", 2, {**block.sizes, "expert_hidden_size": 20})
    found = count(model(gqa(2, 4, 2, 8), narrow))
    assert found.experts == 2 * 10 * 3 * 20 * 16
    assert found.active_experts == 2 * 3 * 3 * 20 * 16
    assert found.mlp == 2 * (3 * 64 * 32 + 2 * 64 * 20)
    assert found.router == 2 * 64 * 10


def test_learned_positions_count_in_the_total_alone():
    plain = count(model(gqa(1, 4, 4, 16), mlp(1, 96)))
    found = count(model(gqa(1, 4, 4, 16), mlp(1, 96), BlockSpec("positions", 1, {"rows": 50})))
    assert found.total - plain.total == found.positions == 50 * 64
    assert found.active == plain.active


def test_tied_table_is_counted_once_and_serves_as_head():
    untied = count(model(gqa(1, 4, 4, 16), mlp(1, 96)))
    tied = count(model(gqa(1, 4, 4, 16), mlp(1, 96), tied=True))
    assert tied.head == 0
    assert untied.total - tied.total == 100 * 64
    assert tied.active == untied.active
    assert tied.non_embedding == untied.non_embedding


@given(
    heads=st.integers(1, 64),
    group=st.integers(1, 8),
    head_dim=st.sampled_from([64, 80, 128]),
    layers=st.integers(1, 100),
    experts=st.integers(1, 256),
    width=st.integers(1, 4096),
    shared=st.integers(0, 4096),
    tied=st.booleans(),
    data=st.data(),
)
def test_laws_of_every_shape(*, heads, group, head_dim, layers, experts, width, shared, tied, data):
    per_token = data.draw(st.integers(1, experts))
    attention = gqa(layers, heads * group, heads, head_dim)

    def of(routed: int, chosen: int) -> Parameters:
        block = moe(layers, routed, chosen, width, shared)
        return count(model(attention, block, hidden=512, vocab=1000, tied=tied))

    found = of(experts, per_token)
    assert 0 < found.active <= found.total
    assert found.total == found.non_embedding + found.embedding + found.head
    # More experts to choose from cost the token nothing but the router.
    more = of(2 * experts, per_token)
    assert more.active - more.router == found.active - found.router
    assert more.experts == 2 * found.experts
    # With every expert chosen, all that is not the input table is active.
    whole = of(experts, experts)
    assert whole.active_non_embedding == whole.non_embedding
