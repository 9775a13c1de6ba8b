"""config.json files: published models read exactly, everything else refused or reported by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.blocks import WEIGHT_PARTS
from dse.errors import InputError
from dse.physics.parameters import parameters
from dse.schema.families import CLASSES, COMMON, FAMILIES, MODEL_TYPES, Family
from dse.schema.huggingface import config_of_family, from_config, load_config
from dse.schema.model import Model, check
from dse.schema.model_catalog import load_models, resolve_model
from tests.helpers_models import batch_of_models

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))
# Published configurations that the catalog does not have, or not alike.
APART = {
    "kimi-linear-48b-a3b": "not in the catalog",
    "granite-4.0-h-small": "not in the catalog",
    "bert-large": "an encoder, not in the catalog",
    "phi-3.5-moe": "the catalog leaves biases and the window, as long as the context, out",
}
LISTED = [name for name in NAMES if name not in APART]


def config(name: str) -> dict:
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


def read(base: str, /, *without: str, **changes: object) -> Model:
    kept = {key: value for key, value in config(base).items() if key not in without}
    return from_config({**kept, **changes}, base, f"{base}.json")


def blocks(model: Model) -> list[tuple[str, int]]:
    return [(block.kind, block.count) for block in model.blocks]


def windows(model: Model) -> list[tuple[int, float]]:
    return [(b.count, b.sizes["window"]) for b in model.blocks if b.kind == "gqa"]


def test_every_family_has_a_published_configuration():
    read_types = {config(name)["architectures"][0] for name in NAMES}
    named = {name: {f.architecture, *f.others} for name, f in FAMILIES.items()}
    assert [name for name, own in named.items() if not own & read_types] == []


@pytest.mark.parametrize("name", LISTED)
def test_the_file_and_the_catalog_agree(name):
    ours, listed = load_config(CONFIGS / f"{name}.json"), resolve_model(name)
    for field in ("hidden_size", "vocab_size", "tied_embeddings", "blocks", "weight_dtypes"):
        assert getattr(ours, field) == getattr(listed, field), field
    assert ours.unknown_keys == ()
    if name == listed.id:  # an alias may be the same shape in another class's words
        assert ours.architecture == listed.architecture


def test_configurations_apart_from_the_catalog():
    found = parameters(batch_of_models(load_config(CONFIGS / "kimi-linear-48b-a3b.json")))
    # arXiv 2510.26692: 48B and 3B
    assert found.total[0] == pytest.approx(48e9, rel=0.03)
    assert found.active_non_embedding[0] == pytest.approx(3e9, rel=0.1)
    granite = load_config(CONFIGS / "granite-4.0-h-small.json")
    assert blocks(granite) == [("gqa", 4), ("mamba", 36), ("moe", 40)]
    found = parameters(batch_of_models(granite))
    # Its model card: 32B and 9B
    assert found.total[0] == pytest.approx(32.2e9, rel=0.01)
    assert found.active[0] == pytest.approx(9e9, rel=0.05)
    moe = load_config(CONFIGS / "phi-3.5-moe.json"), resolve_model("phi-3.5-moe")
    totals = parameters(batch_of_models(*moe)).total
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)


def test_a_folder_and_its_name(tmp_path):
    folder = tmp_path / "Some-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config("llama-3-8b")))
    for path in (folder, folder / "config.json"):
        model = resolve_model(str(path))
        assert (model.id, model.name) == ("some-model", "Some-Model")
        assert model.blocks == load_models()["llama-3-8b"].blocks


def test_unknown_keys_are_reported():
    assert read("llama-3-8b", rope_freqs=1, num_experts=4).unknown_keys == (
        "num_experts",
        "rope_freqs",
    )


# What a file leaves out: the family's own default, and a sentence that says so.


@pytest.mark.parametrize(
    ("name", "key", "sentence"),
    [
        ("llama-3-8b", "tie_word_embeddings", "tie_word_embeddings absent: false"),
        ("llama-3-8b", "attention_bias", "attention_bias absent: false"),
        ("mistral-7b-v0.1", "sliding_window", "sliding_window absent: 4096"),
        ("mistral-7b-v0.1", "num_key_value_heads", "num_key_value_heads absent: 8"),
        ("qwen2.5-7b", "use_sliding_window", "use_sliding_window absent: false"),
        ("qwen3-32b", "head_dim", "head_dim absent: 128"),
        ("qwen3-30b-a3b", "decoder_sparse_step", "decoder_sparse_step absent: 1"),
        ("qwen3-30b-a3b", "num_key_value_heads", "num_key_value_heads absent: 4"),
        ("mixtral-8x7b", "num_local_experts", "num_local_experts absent: 8"),
        ("deepseek-v3", "kv_lora_rank", "kv_lora_rank absent: 512"),
        ("deepseek-v3", "first_k_dense_replace", "first_k_dense_replace absent: 3"),
        ("gpt-oss-20b", "head_dim", "head_dim absent: 64"),
        ("gpt-oss-20b", "layer_types", "layer_types absent: 12 of 24 layers slide"),
        ("gpt-oss-20b", "attention_bias", "attention_bias absent: true"),
        ("llama-3-8b", "torch_dtype", "torch_dtype absent: weights at 16 bits"),
    ],
)
def test_defaults_are_noted(name, key, sentence):
    model = read(name, key)
    assert any(note.startswith(sentence) for note in model.assumed), model.assumed
    assert model.blocks == load_models()[name].blocks


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_sizes_without_a_safe_default_are_required(key):
    with pytest.raises(InputError, match=rf"llama-3-8b\.json: {key}: missing"):
        read("llama-3-8b", key)


# Windows.


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("mistral-7b-v0.1", {"sliding_window": None}, [(32, 0)]),
        ("qwen2.5-7b", {"use_sliding_window": True}, [(28, 0)]),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "max_window_layers": 20},
            [(20, 0), (8, 131072)],
        ),
        ("qwen2.5-7b", {"use_sliding_window": True, "sliding_window": None}, [(28, 0)]),
        (
            "qwen3-32b",
            {
                "layer_types": ["full_attention"] * 60 + ["sliding_attention"] * 4,
                "sliding_window": 512,
            },
            [(60, 0), (4, 512)],
        ),
        ("qwen3-30b-a3b", {"use_sliding_window": True, "sliding_window": 64}, [(48, 64)]),
        ("qwen1.5-moe-a2.7b", {"use_sliding_window": True}, [(13, 0), (11, 32768)]),
        ("gpt-oss-20b", {"sliding_window": 256}, [(12, 0), (12, 256)]),
    ],
)
def test_windows(name, changes, expected):
    assert windows(read(name, **changes)) == expected


# Which layers are sparse.


@pytest.mark.parametrize(
    ("name", "changes", "dense", "sparse"),
    [
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, 24, 24),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0, 47]}, 2, 46),
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2, "mlp_only_layers": [0, 1]}, 25, 23),
        ("deepseek-v3", {"first_k_dense_replace": 0}, 0, 61),
        ("deepseek-v3", {"moe_layer_freq": 2}, 32, 29),  # layers 4, 6, ... 60
        ("deepseek-v3", {"first_k_dense_replace": 61}, 61, 0),
    ],
)
def test_sparse_layers(name, changes, dense, sparse):
    counts = dict(blocks(read(name, **changes)))
    assert (counts.get("mlp", 0), counts.get("moe", 0)) == (dense, sparse)


def test_shared_experts_have_their_width_together():
    assert read("deepseek-v2-lite").blocks[-1].sizes["shared_intermediate_size"] == 2 * 1408
    assert (
        read("deepseek-v2-lite", n_shared_experts=None).blocks[-1].sizes["shared_intermediate_size"]
        == 0
    )
    assert read("qwen1.5-moe-a2.7b").blocks[-1].sizes["shared_intermediate_size"] == 5632


def test_other_names_of_a_key():
    model = read("mixtral-8x7b", "num_local_experts", num_experts=16)
    assert model.blocks[-1].sizes["experts"] == 16
    with pytest.raises(InputError, match="num_experts: 16, but num_local_experts is 8"):
        read("mixtral-8x7b", num_experts=16)


# Layers that are no plain attention.


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("qwen3-next-80b-a3b", {"full_attention_interval": 6}, [("gqa", 8), ("delta_net", 40)]),
        ("qwen3-next-80b-a3b", {"full_attention_interval": 1}, [("gqa", 48)]),
        ("jamba-v0.1", {"attn_layer_period": 16}, [("gqa", 2), ("mamba", 30)]),
        ("minimax-text-01", {"attn_type_list": [1] * 80}, [("gqa", 80)]),
        ("deepseek-v4-flash", {"compress_ratios": [128] * 44}, [("compressed", 43)]),
        ("glm-5", {"indexer_types": ["full", "shared"] * 39}, [("mla", 39), ("mla", 39)]),
        ("hunyuan-large", {"cla_share_factor": 4}, [("gqa", 16), ("gqa", 48)]),
        ("llama-4-maverick", {"no_rope_layer_interval": 2}, [("gqa", 24), ("gqa", 24)]),
        ("mimo-v2-flash", {"hybrid_layer_pattern": None}, [("gqa", 9), ("gqa", 39)]),
        (
            "nemotron-h-56b",
            {"hybrid_override_pattern": None, "layers_block_type": ["mamba", "mlp"] * 59},
            [("mamba", 59)],
        ),
    ],
)
def test_mixed_layers(name, changes, expected):
    model = read(name, **changes)
    assert [b for b in blocks(model) if b[0] not in ("mlp", "moe")] == expected
    parameters(batch_of_models(model))


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("nemotron-h-56b", {"hybrid_override_pattern": "MX" * 59}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M-"}, "hybrid_override_pattern"),
        (
            "nemotron-h-56b",
            {"hybrid_override_pattern": None, "layers_block_type": ["mamba3"] * 118},
            "layers_block_type",
        ),
        ("qwen3-next-80b-a3b", {"layer_types": ["retention"] * 48}, "layer_types"),
        ("qwen3-next-80b-a3b", {"layer_types": ["sliding_attention"] * 48}, "layer_types"),
        ("deepseek-v3.2", {"layer_types": ["sliding_attention"] * 61}, "layer_types"),
        ("deepseek-v4-flash", {"compress_ratios": [64] * 43}, "compress_ratios"),
        ("deepseek-v4-flash", {"layer_types": ["full_attention"] * 43}, "layer_types"),
        ("minimax-text-01", {"attn_type_list": [2] * 80}, "attn_type_list"),
        ("minimax-text-01", {"attn_type_list": [1]}, "attn_type_list"),
        ("glm-5", {"indexer_types": ["none"] * 78}, "indexer_types"),
        ("step-3.5-flash", {"moe_layers_enum": "3,x"}, "moe_layers_enum"),
        ("hunyuan-a13b", {"moe_topk": [8, 4]}, "moe_topk"),
        ("gemma-4-26b-a4b", {"text_config": 1}, "text_config"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types"),
        ("gpt-oss-20b", {"sliding_window": None}, "sliding_window"),
        ("llama-3-8b", {"layer_types": ["sliding_attention"] * 32}, "layer_types"),
        ("deepseek-v3", {"layer_types": ["sliding_attention"] * 61}, "layer_types"),
        ("llama-3-8b", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("llama-3-8b", {"num_attention_heads": 31}, "head_dim"),
        ("llama-3-8b", {"num_hidden_layers": 10**8}, "num_hidden_layers"),
        ("llama-3-8b", {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"mlp_only_layers": ["0"]}, "mlp_only_layers"),
        ("deepseek-v3", {"moe_layer_freq": 0}, "moe_layer_freq"),
        ("deepseek-v3", {"n_routed_experts": None}, "n_routed_experts"),
    ],
)
def test_what_makes_no_model_is_refused_at_its_key(name, changes, field):
    with pytest.raises(InputError) as caught:
        read(name, **changes)
    assert caught.value.field == field


def test_what_is_inside_text_config_is_the_model():
    whole = config("gemma-4-26b-a4b")
    inner = {"architectures": ["Gemma4ForCausalLM"], **whole["text_config"]}
    alone = from_config(inner, "alone", "config.json")
    assert alone.blocks == read("gemma-4-26b-a4b").blocks
    assert any("vision_config" in note for note in read("gemma-4-26b-a4b").assumed)
    small = {**whole, "text_config": {**whole["text_config"], "hidden_size_per_layer_input": 256}}
    with pytest.raises(InputError, match="hidden_size_per_layer_input"):
        from_config(small, "small", "config.json")


# Number formats of the checkpoint.

FP8_GROUP = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
INT4_GROUP = {
    "weights": {"num_bits": 4, "type": "int", "group_size": 32},
    "targets": ["Linear"],
}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("name", "quantization", "attention", "mlp", "experts"),
    [
        ("deepseek-v2-lite", {"quant_method": "awq", "bits": 4}, "int4", "int4", "int4"),
        ("deepseek-v2-lite", {"quant_method": "gptq", "bits": 8}, "int8", "int8", "int8"),
        ("deepseek-v2-lite", MODELOPT, "nvfp4", "nvfp4", "nvfp4"),
        (
            "deepseek-v2-lite",
            {**MODELOPT, "ignore": ["lm_head", "model.layers.*.self_attn*"]},
            *("bf16", "nvfp4", "nvfp4"),
        ),
        (
            "deepseek-v2-lite",
            {**MODELOPT, "ignore": [f"model.layers.{i}.self_attn*" for i in range(27)]},
            *("bf16", "nvfp4", "nvfp4"),
        ),
        ("gpt-oss-20b", {"quant_method": "mxfp4"}, "bf16", "bf16", "mxfp4"),
        (
            "deepseek-v2-lite",
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": FP8_GROUP}},
            *("fp8", "fp8", "fp8"),
        ),
        (  # as a checkpoint with 4-bit experts alone is published
            "deepseek-v2-lite",
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": INT4_GROUP},
                "ignore": [
                    "lm_head",
                    r"re:.*self_attn.*",
                    r"re:.*shared_experts.*",
                    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
                ],
            },
            *("bf16", "bf16", "int4"),
        ),
        (
            "mixtral-8x7b",
            {
                "quant_method": "fp8",
                "modules_to_not_convert": ["lm_head"]
                + [f"model.layers.{i}.block_sparse_moe.gate" for i in range(32)]
                + [f"model.layers.{i}.self_attn.{p}_proj" for i in range(32) for p in "qkvo"],
            },
            *("bf16", "fp8", "fp8"),
        ),
    ],
)
def test_formats_by_part(name, quantization, attention, mlp, experts):
    model = read(name, quantization_config=quantization)
    assert [model.weight_dtypes[part] for part in WEIGHT_PARTS] == [attention, mlp, experts, "bf16"]


def test_a_piece_left_at_16_bits_is_noted():
    ignore = [f"model.layers.{i}.self_attn.kv_b_proj" for i in range(27)]
    model = read("deepseek-v2-lite", quantization_config={**MODELOPT, "ignore": ignore})
    assert model.weight_dtypes["attention"] == "nvfp4"
    assert any("piece of the attention weights" in note for note in model.assumed)


def test_routers_left_at_16_bits_are_no_part():
    ignore = ["re:.*mlp.gate$", "lm_head", "model.layers.0.mlp.router", "re:.*norm.*"]
    model = read("deepseek-v3", quantization_config={**MODELOPT, "ignore": ignore})
    assert set(model.weight_dtypes.values()) == {"nvfp4", "bf16"}
    assert not any("piece" in note for note in model.assumed)


def test_modelopt_file_beside_the_configuration(tmp_path):
    plain = {k: v for k, v in config("qwen3-32b").items() if k != "quantization_config"}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    }
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": quantization}))
    model = load_config(tmp_path)
    assert model.weight_dtypes["mlp"] == "nvfp4"
    assert model.kv_dtype == "fp8"


@pytest.mark.parametrize(
    ("cache", "dtype", "notes"),
    [
        ({}, None, 0),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", 0),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, None, 1),
        ({"kv_cache_quant_algo": "NVFP4"}, None, 1),
    ],
)
def test_format_of_the_cache(cache, dtype, notes):
    model = read("qwen3-32b", quantization_config={**MODELOPT, **cache})
    assert model.kv_dtype == dtype
    assert sum("KV cache" in note for note in model.assumed) == notes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"quantization_config": {"quant_method": "bitnet"}}, "quantization_config.quant_method"),
        ({"quantization_config": {}}, "quantization_config.quant_method"),
        ({"quantization_config": [1]}, "quantization_config"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "quantization_config.bits"),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
            "quantization_config.quant_algo",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors"}},
            "quantization_config.config_groups",
        ),
        ({"torch_dtype": "float8_e5m2"}, "torch_dtype"),
    ],
)
def test_formats_that_are_not_covered(changes, field):
    with pytest.raises(InputError) as caught:
        read("llama-3-8b", **changes)
    assert caught.value.field == field


# Refusals.


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["MambaForCausalLM"]},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"architectures": [["LlamaForCausalLM"]]},
        {"architectures": ["ZayaForCausalLM"]},
        {"architectures": ["Zamba2ForCausalLM"]},
        {"architectures": None, "model_type": "zamba2"},
        {"architectures": None, "model_type": None},
        {"architectures": {}, "model_type": ["llama"]},
    ],
)
def test_unsupported_architectures_are_refused_by_name(changes):
    with pytest.raises(InputError, match="deepseek_v3") as caught:
        read("llama-3-8b", **changes)
    name = (changes["architectures"] or [changes.get("model_type")])[0]
    if isinstance(name, str):
        assert name in str(caught.value)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_model_type_alone_is_enough(name):
    family = FAMILIES[name]
    own = {family.architecture, *family.others}
    base = next(n for n in NAMES if config(n)["architectures"][0] in own)
    expected = load_config(CONFIGS / f"{base}.json").blocks
    assert read(base, "architectures", model_type=name).blocks == expected
    assert read(base, "architectures").blocks == expected


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 4096.0, "4096", True, [], {}, None, float("inf"), 2 * 10**9, 10**400]
)
def test_sizes_that_are_none(value):
    with pytest.raises(InputError, match=r"llama-3-8b\.json: hidden_size: "):
        read("llama-3-8b", hidden_size=value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"llama"',
        "{",
        '{"hidden_size": NaN}',
        '{"hidden_size": 1, "hidden_size": 2}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"hidden_size": 1' + "0" * 5000 + "}",
        "__import__('os').system('true')",
        b"\xff\xfe\x00",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_files_that_are_no_configuration(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"config\.json"):
        load_config(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_config(tmp_path / "missing.json")
    with pytest.raises(InputError, match="no such file"):
        load_config(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.filterwarnings("ignore::dse.errors.Doubt")  # a note is an answer in words, too
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_of_any_key_is_read_or_refused(data):
    name = data.draw(st.sampled_from(NAMES))
    base = config(name)
    keys = data.draw(st.lists(st.sampled_from(sorted(base)), min_size=1, max_size=3))
    changed = {**base, **{key: data.draw(JSON) for key in keys}}
    try:
        model = from_config(changed, name, "config.json")
    except InputError:
        return
    check(model)


# Every Hugging Face family: one map, read and, where it has an export, written.


PUBLISHED = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in CONFIGS.glob("*.json")
}
# What a file says of a model beside its layers and formats.
NOTES = ("id", "name", "source", "assumed", "unknown_keys", "architecture", "blocks", "kv_dtype")
# Keys that are read and not written, and what says the same in what is written.
SAID_OTHERWISE = {
    "max_window_layers": "layer_types, or no window at all",
    "sliding_window": "layer_types without a window",
    "sliding_window_pattern": "layer_types",
    "no_rope_layer_interval": "layer_types",
    "full_attention_interval": "layer_types",
    "attn_type_list": "layer_types",
    "indexer_types": "every layer has an indexer where there are none",
    "hybrid_override_pattern": "layers_block_type",
    "interleave_moe_layer_step": "moe_layers",
    "moe_layer_freq": "first_k_dense_replace",
    "multi_query": "new_decoder_architecture",
    "linear_attn_config.use_full_rank_gate": "the class has a gate of low rank",
    "head_dim": "the class divides the hidden size by its heads",
    "intermediate_size": "moe_intermediate_size",
}
# Keys whose other value says nothing new, and what the size is read from.
READ_FROM = {
    "num_key_value_heads": "latent attention has a cache that heads do not divide",
    "query_pre_attn_scalar": "head_dim",
    "intermediate_size": "no layer is dense",
    "use_sliding_window": "a window of null is none",
    "moe_layer_freq": "first_k_dense_replace",
    "use_residual": "parallel_attn_mlp_res",
    "multi_query": "new_decoder_architecture",
    "compress_ratios": "layer_types",
    "moe_layer_end_index": "no layer lies beyond the last",
    "parallel_attn_mlp_res": "use_residual",
}


def family_of(config: Mapping[str, object]) -> str:
    named = config["architectures"]
    assert isinstance(named, list)
    return CLASSES[named[0]]


WRITTEN = sorted(name for name in PUBLISHED if FAMILIES[family_of(PUBLISHED[name])].export)


def facts(model: Model) -> dict[str, object]:
    found = {f.name: getattr(model, f.name) for f in fields(Model) if f.name not in NOTES}
    blocks: dict[tuple[object, ...], int] = {}
    for one in model.blocks:
        key = (one.kind, *sorted(one.sizes.items()))
        blocks[key] = blocks.get(key, 0) + one.count
    return {**found, "blocks": blocks}


def again(model: Model, family: str) -> Model:
    text = json.dumps(config_of_family(family, model))
    return from_config(json.loads(text), "again", "config.json")


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_read_is_written_and_read_alike(name: str):
    model = from_config(PUBLISHED[name], name, "config.json")
    family = family_of(PUBLISHED[name])
    read = again(model, family)
    assert facts(read) == facts(model)
    assert read.unknown_keys == ()
    assert read.architecture == FAMILIES[family].class_name


def flat(config: Mapping[str, object], family: Family) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of the family's map that stand in a configuration, each with its path."""
    for key, value in config.items():
        inside = value if isinstance(value, dict) else {}
        for path in ((key,), *((key, inner) for inner in inside)):
            name = family.aliases.get(".".join(path), ".".join(path))
            if name in family.defaults:
                yield name, path


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].export])
def test_every_key_is_read_and_written(name: str):
    """What a family declares, it writes for one of its published models; the exceptions are said
    above."""
    family = FAMILIES[name]
    own = [config for config in PUBLISHED.values() if family_of(config) == name]
    written = {
        key
        for config in own
        for key, _ in flat(config_of_family(name, from_config(config, "x", "x")), family)
    }
    sizes = [size for section in family.sections for size in section.sizes.values()]
    only_read = {key for size in sizes if not size.written for key in size.known}
    only_read |= {guard.key for stack in family.stacks for guard in stack.guards}
    missing = set(family.defaults) - written - only_read - set(family.passed) - set(COMMON)
    assert missing - {family.prediction} <= set(SAID_OTHERWISE)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_no_key_is_passed_over_in_silence(name: str):
    """Another value of a key that is written is another model, refused, or noted."""
    family, config = family_of(PUBLISHED[name]), PUBLISHED[name]
    passed = FAMILIES[family].passed
    if FAMILIES[family].export:
        config = config_of_family(family, from_config(config, name, "config.json"))
    model = from_config(config, name, "config.json")
    for key, path in flat(config, FAMILIES[family]):
        changed = json.loads(json.dumps(config))
        holder = changed
        for outer in path[:-1]:
            holder = holder[outer]
        holder[path[-1]] = other(holder[path[-1]])
        try:
            read = from_config(changed, name, "config.json")
        except InputError:
            continue
        same = facts(read) == facts(model) and read.assumed == model.assumed
        assert not same or holder[path[-1]] is None or key in (*READ_FROM, *passed), key


def other(value: object) -> object:
    """Another value of the same sort; None where there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 or 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, list) and value:
        return [other(one) for one in value] if len({*map(str, value)}) == 1 else value[:-1]
    return None


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("granite-4.0-h-small", {"mamba_d_head": 32}, "mamba_d_head"),
        ("gemma-4-26b-a4b", {"use_double_wide_mlp": True}, "use_double_wide_mlp"),
        ("granite-3.0-8b", {"mlp_bias": "all"}, "mlp_bias"),
    ],
)
def test_a_key_that_changes_sizes_is_refused(name: str, changes: dict[str, object], field: str):
    config = {**PUBLISHED[name], **PUBLISHED[name].get("text_config", {}), **changes}
    config.pop("text_config", None)
    with pytest.raises(InputError) as caught:
        from_config(config, name, "config.json")
    assert caught.value.field == field


def test_linear_layers_that_are_not_the_others_are_refused():
    config = json.loads(json.dumps(PUBLISHED["kimi-linear-48b-a3b"]))
    config["linear_attn_config"]["kda_layers"].pop()
    with pytest.raises(InputError, match="kda_layers"):
        from_config(config, "kimi", "config.json")


def test_names_of_classes_and_model_types_are_one_family_each():
    classes = [name for f in FAMILIES.values() for name in (f.architecture, *f.others)]
    types = [name for family, f in FAMILIES.items() for name in (family, *f.model_types)]
    assert len(set(classes)) == len(classes) == len(CLASSES)
    assert len(set(types)) == len(types) == len(MODEL_TYPES)
    for family in FAMILIES.values():
        assert family.class_name in (family.architecture, *family.others)
        assert set(family.aliases.values()) <= set(family.defaults)
