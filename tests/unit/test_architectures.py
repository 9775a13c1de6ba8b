"""A model written as the configuration of a class of transformers and read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import InputError
from dse.problem.evaluate import evaluate
from dse.problem.shapes import model_at
from dse.schema.huggingface import ARCHITECTURES, TRANSFORMERS, Written, from_config, write_config
from dse.schema.model import BlockSpec, Model
from dse.schema.model_catalog import load_models, resolve_model
from dse.schema.study import load_study, shipped_spaces
from dse.space.batches import batch_of, batch_of_values
from dse.space.candidates import CandidateBatch
from dse.space.space import Space
from tests.helpers import CHIPS, machines, workload

# Published models that no class has, and a word of why.
REFUSED = {
    "gopher-280b": "relative positions",
    "chinchilla-70b": "relative positions",
    "deepseek-v4-flash": "compressed cache",
    "deepseek-v4-pro": "compressed cache",
    "kimi-k3": "output gate",
    "minimax-m3": "fewer sorts",
    "hunyuan-large": "fewer sorts",
    "mimo-v2-flash": "num_key_value_heads, and the shape 4 and 8",
    "step-3.5-flash": "num_attention_heads, and the shape 64 and 96",
}
EXPORTED = [name for name in load_models() if name not in REFUSED]
# Spaces all of whose shapes a class has.
EVERY_POINT = ("tiny", "quickstart", "shape-for-edge", "shape-for-nvl72")
SHAPES = {
    name: study
    for name in shipped_spaces()
    if (study := load_study(shipped_spaces()[name])).model is None
}


def again(written: Written) -> Model:
    """Read back from the text of the file."""
    return from_config(json.loads(json.dumps(written.config)), "again", "config.json")


def served(models: Sequence[Model]) -> CandidateBatch:
    """Each on eight H200, tensor parallel where heads divide and by experts where there are any."""
    n = len(models)
    axes = {"tensor_parallel": np.full(n, 4.0), "concurrency": np.full(n, 16.0)}
    chip = np.full(n, CHIPS.index("h200_sxm"), dtype=np.intp)
    return batch_of(models, chip, [None] * n, ["bf16"] * n, axes)


def predictions(models: Sequence[Model]) -> dict[str, np.ndarray]:
    """Every metric of the models, trained alike: a configuration has no training tokens."""
    trained = [replace(model, training_tokens=1e12) for model in models]
    return dict(evaluate(served(trained), workload(1000, 200), machines()).values)


def assert_equal_predictions(own: Sequence[Model], read: Sequence[Model]) -> None:
    first, second = predictions(own), predictions(read)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


def test_published_models_come_back():
    models = [resolve_model(name) for name in EXPORTED]
    assert_equal_predictions(models, [again(write_config(model)) for model in models])


@pytest.mark.parametrize(("name", "word"), REFUSED.items())
def test_what_no_class_has_is_refused_with_the_reason(name: str, word: str):
    with pytest.raises(InputError, match=word):
        write_config(resolve_model(name))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("llama-3-70b", "LlamaForCausalLM"),
        ("qwen2.5-7b", "Qwen2ForCausalLM"),
        ("mistral-7b-v0.1", "MistralForCausalLM"),
        ("mixtral-8x7b", "MixtralForCausalLM"),
        ("deepseek-v3", "DeepseekV3ForCausalLM"),
        ("deepseek-v2-lite", "DeepseekV3ForCausalLM"),
        ("deepseek-v3.2", "DeepseekV32ForCausalLM"),
        ("glm-4.5", "Glm4MoeForCausalLM"),
        ("gpt-oss-120b", "GptOssForCausalLM"),
        ("qwen3-next-80b-a3b", "Qwen3NextForCausalLM"),
        ("qwen3.5-27b", "Qwen3_5ForCausalLM"),
        ("llama-4-maverick", "Llama4ForCausalLM"),
        ("nemotron-h-56b", "NemotronHForCausalLM"),
        ("jamba-v0.1", "JambaForCausalLM"),
        ("minimax-text-01", "MiniMaxForCausalLM"),
        ("gemma-4-26b-a4b", "Gemma4ForCausalLM"),
    ],
)
def test_the_class_follows_from_the_shape(name: str, architecture: str):
    assert write_config(resolve_model(name)).architecture == architecture


def test_published_configurations_come_back():
    """Sizes as their publishers wrote them (config.json of the repositories named)."""
    deepseek = write_config(resolve_model("deepseek-v3")).config
    published = {
        "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
        "intermediate_size": 18432, "vocab_size": 129280,
    }  # fmt: skip
    assert deepseek | published == deepseek
    assert deepseek["quantization_config"]["weight_block_size"] == [128, 128]
    gemma = write_config(resolve_model("gemma-3-27b"), architecture="gemma3_text").config
    assert gemma["layer_types"][:7] == ["sliding_attention"] * 5 + ["full_attention"] + [
        "sliding_attention"
    ]
    assert gemma["layer_types"].count("full_attention") == 10
    oss = write_config(resolve_model("gpt-oss-120b")).config
    assert oss["layer_types"][:2] == ["sliding_attention", "full_attention"]
    assert oss["quantization_config"] == {"quant_method": "mxfp4"}


def test_parameters_beyond_the_count_are_published_ones():
    """gpt-oss-120b: 116.83B parameters in all (model card, table 1); 20b: 20.91B."""
    for name, billions in (("gpt-oss-120b", 116.83), ("gpt-oss-20b", 20.91)):
        model = resolve_model(name)
        total = counted(model) + write_config(model).parameters_beyond
        assert total / 1e9 == pytest.approx(billions, abs=0.005)


def counted(model: Model) -> int:
    return int(predictions([model])["total_parameters"][0])


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_a_shipped_space_comes_back(name: str, seed: int):
    """Random points of the spaces that search shapes: exported, read back, predicted bit for bit
    alike. A space over kinds of attention may have points that no class has, with the reason."""
    space = Space.of(SHAPES[name])
    batch = batch_of_values(space.values(space.sample(np.random.default_rng(seed), 25)))
    own = [model_at(batch, i, f"shape-{i}", 1e12) for i in range(len(batch))]
    if name not in EVERY_POINT:
        own = [model for model in own if not refusal(model)]
    assert_equal_predictions(own, [again(write_config(model)) for model in own])


def refusal(model: Model) -> str:
    """Why no class has the shape; empty where one has."""
    try:
        write_config(model)
    except InputError as error:
        return str(error).partition("this shape: ")[2]
    return ""


def shape(*blocks: BlockSpec, **other: Any) -> Model:
    return replace(resolve_model("llama-3-8b"), blocks=blocks, **other)


def gqa(count: int, **sizes: int) -> BlockSpec:
    own = {"heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128, "window": 0}
    return BlockSpec("gqa", count, {**own, "qkv_bias": 0, **sizes})


def moe(count: int, **sizes: int) -> BlockSpec:
    own = {"experts": 64, "experts_per_token": 4, "expert_intermediate_size": 1024}
    return BlockSpec("moe", count, {**own, "shared_intermediate_size": 0, "matrices": 3, **sizes})


MLP = BlockSpec("mlp", 8, {"intermediate_size": 8192, "matrices": 3})


def test_two_sorts_of_shared_experts_have_two_classes():
    whole = write_config(shape(gqa(8), moe(8, shared_intermediate_size=2048)))
    assert (whole.architecture, whole.beyond) == ("Glm4MoeForCausalLM", {})
    odd = write_config(shape(gqa(8), moe(8, shared_intermediate_size=1500)))
    assert odd.architecture == "Qwen2MoeForCausalLM"
    assert odd.beyond == {"gates of shared experts": 8 * 4096}


def test_windows_of_a_sparse_model_with_shared_experts():
    blocks = (gqa(2), gqa(6, window=512), moe(8, shared_intermediate_size=1024))
    written = write_config(shape(*blocks))
    assert written.architecture == "Dots1ForCausalLM"
    assert written.config["layer_types"].count("sliding_attention") == 6


def test_equal_blocks_are_one_and_empty_ones_none():
    split = shape(gqa(3), gqa(5), MLP, moe(0))
    assert write_config(split).config == write_config(shape(gqa(8), MLP)).config


def test_a_class_asked_for_is_written_or_refused_by_name():
    model = shape(gqa(8), MLP)
    best = write_config(model)
    having = {best.architecture, *best.others}
    assert having == {"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"}
    for name in having:
        written = write_config(model, architecture=name)
        assert (written.architecture, written.others) == (name, ())
        assert_equal_predictions([model], [again(written)])
    for name in set(ARCHITECTURES) - having:
        with pytest.raises(InputError, match=name):
            write_config(model, architecture=name)


@pytest.mark.parametrize(
    "dtypes",
    [
        dict.fromkeys(("attention", "mlp", "experts"), dtype)
        for dtype in ("bf16", "fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4")
    ]
    + [{"attention": "bf16", "mlp": "bf16", "experts": "mxfp4"}],
)
def test_formats_come_back(dtypes: dict[str, str]):
    model = shape(gqa(8), moe(8), weight_dtypes={**dtypes, "embedding": "bf16"})
    assert again(write_config(model)).weight_dtypes == model.weight_dtypes


def test_formats_that_nothing_holds_are_refused():
    dtypes = {"attention": "int4", "mlp": "bf16", "experts": "nvfp4", "embedding": "bf16"}
    with pytest.raises(InputError, match="experts nvfp4"):
        write_config(shape(gqa(8), moe(8), weight_dtypes=dtypes))


def test_the_format_of_the_cache_comes_back_or_is_refused():
    dtypes = {"attention": "fp8", "mlp": "fp8", "experts": "fp8", "embedding": "bf16"}
    model = shape(gqa(8), MLP, weight_dtypes=dtypes, kv_dtype="fp8")
    assert again(write_config(model)).kv_dtype == "fp8"
    with pytest.raises(InputError, match="kv_dtype"):
        write_config(replace(model, weight_dtypes=dict.fromkeys(dtypes, "bf16")))


def test_the_context_is_written():
    written = write_config(shape(gqa(8), MLP), context=12345)
    assert written.config["max_position_embeddings"] == 12345


def test_the_page_names_every_class_and_every_refusal():
    page = (Path(__file__).resolve().parents[2] / "docs" / "export.md").read_text("utf-8")
    for name in (*ARCHITECTURES, *REFUSED):
        assert f"`{name.removesuffix('ForCausalLM')}`" in page, name
    assert f"{len(load_models())} models {len(EXPORTED)} come back" in page
    assert f"transformers {TRANSFORMERS}" in page


LATENT = BlockSpec(
    "mla",
    2,
    {
        "heads": 32, "q_lora_rank": 0, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
)  # fmt: skip
LINEAR = {
    "key_heads": 32, "key_head_dim": 128, "value_heads": 32, "value_head_dim": 128,
    "conv_width": 4, "gates_per_head": 1, "decay_rank": 128, "output_gate_rank": 128,
}  # fmt: skip
GATED_DELTA = {**LINEAR, "key_heads": 16, "gates_per_head": 2, "decay_rank": 0,
               "output_gate_rank": 0}  # fmt: skip
MAMBA2 = {
    "inner_size": 8192, "heads": 128, "groups": 8, "state_size": 128, "conv_width": 4, "dt_rank": 0,
}  # fmt: skip
SHARED = moe(8, shared_intermediate_size=1024)
GATED = (gqa(2, output_gate=1), BlockSpec("delta_net", 6, GATED_DELTA))


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("KimiLinearForCausalLM", (LATENT, BlockSpec("delta_net", 6, LINEAR), SHARED)),
        ("Qwen3NextForCausalLM", (*GATED, replace(MLP, count=1), replace(SHARED, count=7))),
        ("Qwen3_5ForCausalLM", (*GATED, MLP)),
        ("GraniteMoeHybridForCausalLM", (gqa(2), BlockSpec("mamba", 6, MAMBA2), MLP)),
        ("GraniteMoeHybridForCausalLM", (gqa(2), BlockSpec("mamba", 6, MAMBA2), SHARED)),
        ("Llama4ForCausalLM", (gqa(2), gqa(6, chunk=8192), MLP)),
        ("DeepseekV3ForCausalLM",
         (replace(LATENT, count=8), replace(MLP, count=3), replace(SHARED, count=5))),
    ],
)  # fmt: skip
def test_layers_that_a_space_may_mix_come_back(name: str, blocks: tuple[BlockSpec, ...]):
    model = shape(*blocks)
    written = write_config(model)
    assert written.architecture == name
    assert written.beyond == {} or "Granite" not in name
    assert_equal_predictions([model], [again(written)])


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ((gqa(2), BlockSpec("delta_net", 6, GATED_DELTA), MLP), "attn_output_gate"),
        ((gqa(2), gqa(6, window=128, heads=16), MLP), "the shape 32 and 16"),
        ((gqa(2, window=64), gqa(6, window=128), MLP), "fewer sorts"),
        ((gqa(8, v_head_dim=64), MLP), "v head dim .* would read 128, not 64"),
        (
            (LATENT, BlockSpec("delta_net", 6, {**LINEAR, "decay_rank": 64}), SHARED),
            "decay rank .* would read 128, not 64",
        ),
        ((gqa(2, window=64), BlockSpec("mamba", 6, MAMBA2), MLP), "window .* would read 0, not 64"),
        ((LATENT, gqa(6), MLP), "none has latent attention and grouped-query attention"),
    ],
)
def test_shapes_of_no_class_are_refused_with_the_reason(blocks: tuple[BlockSpec, ...], reason: str):
    with pytest.raises(InputError, match=reason):
        write_config(shape(*blocks))
