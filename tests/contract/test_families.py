"""Every Hugging Face family: one map, read and, where it has an export, written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from dse.errors import InputError
from dse.schema.architectures import config_of_family
from dse.schema.families import CLASSES, COMMON, FAMILIES, MODEL_TYPES, Family
from dse.schema.families.config import Cannot, merged
from dse.schema.huggingface import from_config
from dse.schema.model import Model

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
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
    blocks = sorted((b.kind, b.count, sorted(b.sizes.items())) for b in merged(model))
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


def test_a_shape_that_a_family_has_no_keys_for_is_refused():
    model = from_config(PUBLISHED["deepseek-v3"], "deepseek-v3", "config.json")
    with pytest.raises(Cannot, match="latent attention"):
        config_of_family("llama", model)
