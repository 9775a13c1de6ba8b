"""The number formats of a checkpoint: `torch_dtype` and `quantization_config`, read and written.

Covered methods, as Hugging Face transformers and vLLM name them: fp8 (DeepSeek's 128 x 128 blocks
included), mxfp4, compressed-tensors, modelopt, awq and gptq. The tables (input embedding and
output head) stay at 16 bits in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dse.errors import InputError
from dse.schema.blocks import FEED_FORWARD, MIXERS, WEIGHT_PARTS
from dse.schema.families.reader import ConfigReader
from dse.schema.families.shape import Config, Shape
from dse.schema.model import BlockSpec, Model

QUANTIZED = ("attention", "mlp", "experts")
METHODS = ("fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq")
SIXTEEN_BITS = ("bfloat16", "float16")

# Words of a module pattern: those that name a part, and pairs of projections that, left alone
# together, leave the whole layer's part alone.
_PART_WORDS = {
    "attention": {"self_attn"},
    "mlp": {"mlp", "shared_expert", "shared_experts"},
    "experts": {"mlp", "experts"},
}
_PROJECTIONS = {
    "attention": ({"q", "q_a", "q_b", "qkv"}, {"o"}),
    "mlp": ({"up", "gate_up"}, {"down"}),
    "experts": ({"up", "gate_up"}, {"down"}),
}
_ROUTER = {"gate", "router", "shared_expert_gate"}


def weight_dtypes(
    reader: ConfigReader, config: Mapping[str, object], blocks: list[BlockSpec]
) -> dict[str, str]:
    """The dtype of each of `candidates.WEIGHT_PARTS`."""
    dtypes: dict[str, str] = dict.fromkeys(WEIGHT_PARTS, _stored(reader, config))
    quantization = quantization_of(reader, config)
    if quantization is None:
        return dtypes
    method = str(quantization.get("quant_method", "")).replace("_", "-").lower()
    method = "modelopt" if method == "modelopt-fp4" else method
    if method not in METHODS:
        raise reader.refuse(
            "quantization_config.quant_method", f"{method!r} is not covered", ", ".join(METHODS)
        )
    if method == "mxfp4":  # the format exists for expert weights alone
        return {**dtypes, "experts": "mxfp4"}
    dtypes |= _formats(reader, quantization, method)
    if config.get("expert_dtype") == "fp4":  # DeepSeek-V4: blocks of 32 with a power of two
        dtypes["experts"] = "mxfp4"
    kept = _strings(quantization, "ignore", "modules_to_not_convert", "exclude_modules")
    for part in QUANTIZED:
        if _left_alone(reader, part, kept, blocks):
            dtypes[part] = "bf16"
    return dtypes


def kv_dtype(reader: ConfigReader, config: Mapping[str, object]) -> str | None:
    """fp8 where the checkpoint carries scales for the KV cache, else None."""
    quantization = quantization_of(reader, config) or {}
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "fp8"
    algorithm = quantization.get("kv_cache_quant_algo")
    if str(algorithm).upper() == "FP8":
        return "fp8"
    if scheme is not None or algorithm is not None:
        reader.assume(
            "quantization_config asks for a KV cache format that is not covered: left out"
        )
    return None


def quantization_of(
    reader: ConfigReader, config: Mapping[str, object]
) -> Mapping[str, object] | None:
    value = config.get("quantization_config")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise reader.refuse("quantization_config", f"{value!r}", "an object")
    return value


def _stored(reader: ConfigReader, config: Mapping[str, object]) -> str:
    key = "dtype" if "dtype" in config else "torch_dtype"
    value = config.get(key)
    if value is None or value == "auto":
        reader.assume("torch_dtype absent: weights at 16 bits")
    elif value == "float32":
        reader.assume("torch_dtype float32: weights served at 16 bits")
    elif value not in SIXTEEN_BITS:
        raise reader.refuse(key, f"{value!r}", "bfloat16, float16, float32")
    return "bf16"


def _formats(
    reader: ConfigReader, quantization: Mapping[str, object], method: str
) -> dict[str, str]:
    """The dtype of each part that the method's Linear layers reach."""
    if method == "fp8":
        blocks = quantization.get("weight_block_size") is not None
        return dict.fromkeys(QUANTIZED, "fp8_block" if blocks else "fp8")
    if method in ("awq", "gptq"):
        bits = quantization.get("bits", quantization.get("w_bit"))
        return dict.fromkeys(QUANTIZED, _integer_format(reader, bits, "quantization_config.bits"))
    if method == "modelopt" and "quant_algo" in quantization:
        if quantization["quant_algo"] is None:
            return {}
        algorithm = str(quantization["quant_algo"]).upper()
        found = next((d for d in ("NVFP4", "MXFP4", "FP8", "W4A16", "W4A8") if d in algorithm), "")
        dtype = {"W4A16": "int4", "W4A8": "int4"}.get(found, found.lower())
        if not dtype:
            raise reader.refuse(
                "quantization_config.quant_algo", f"{algorithm!r} is not covered", "NVFP4, FP8"
            )
        return dict.fromkeys(QUANTIZED, dtype)
    return _groups(reader, quantization)


def _groups(reader: ConfigReader, quantization: Mapping[str, object]) -> dict[str, str]:
    """compressed-tensors: each group has a weight format and the modules that it targets."""
    field = "quantization_config.config_groups"
    groups = quantization.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise reader.refuse(field, "missing or no object", "groups of weights and targets")
    formats: dict[str, str] = {}
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise reader.refuse(f"{field}.{name}.weights", "missing or no object")
        dtype = _group_format(reader, weights, f"{field}.{name}.weights")
        targets = _strings(group, "targets")
        if not targets or "Linear" in targets:
            formats = {**dict.fromkeys(QUANTIZED, dtype), **formats}
        else:
            formats |= {part: dtype for part in QUANTIZED if _named(part, targets)}
    return formats


def _group_format(reader: ConfigReader, weights: Mapping[str, object], field: str) -> str:
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if kind not in ("float", "int"):
        raise reader.refuse(f"{field}.type", f"{kind!r}", "float or int")
    if kind == "float" and bits == 8:
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    if kind == "float" and bits == 4:
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    return _integer_format(reader, bits, f"{field}.num_bits")


def _integer_format(reader: ConfigReader, bits: object, field: str) -> str:
    if bits not in (4, 8):
        raise reader.refuse(field, f"{bits!r}", "4 or 8")
    return f"int{bits}"


def _strings(holder: Mapping[str, object], *keys: str) -> list[str]:
    found: list[str] = []
    for key in keys:
        value = holder.get(key)
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, str)]
    return found


def _words(pattern: str) -> set[str]:
    """The names in a pattern over modules, be it a path, a glob or a regular expression."""
    words = re.split(r"[^a-z_]+", pattern.replace("\\", " "))
    return {word if word == "gate_proj" else word.removesuffix("_proj") for word in words}


def _named(part: str, patterns: list[str]) -> list[str]:
    """The patterns that reach weights of the part; routers and norms have none of their own."""
    others = {"experts", "shared_expert", "shared_experts"} - _PART_WORDS[part]
    found = []
    for pattern in patterns:
        words = _words(pattern)
        projection = "_proj" in pattern
        if "norm" in pattern or words & others or (words & _ROUTER and not projection):
            continue
        # `mlp.*` holds the experts below it, `mlp.up_proj` is a dense layer's own.
        dense_only = part == "experts" and projection and "experts" not in words
        if words & _PART_WORDS[part] and not dense_only:
            found.append(pattern)
    return found


def _left_alone(
    reader: ConfigReader, part: str, patterns: list[str], blocks: list[BlockSpec]
) -> bool:
    """Whether the patterns keep all of a part at 16 bits; a piece of it is only noted."""
    first, last = _PROJECTIONS[part]
    by_layer: dict[int | None, set[str]] = {}
    for pattern in _named(part, patterns):
        number = re.search(r"layers\.(\d{1,5})\.", pattern.replace("\\", ""))
        layer = int(number[1]) if number else None
        if layer is None or layer < reader.layers:  # later ones predict further tokens
            words = _words(pattern) if "_proj" in pattern else first | last
            by_layer.setdefault(layer, set()).update(words)
    covered = [layer for layer, words in by_layer.items() if words & first and words & last]
    if None in covered or len(covered) >= max(1, _layers(part, blocks)):
        return True
    if by_layer:
        reader.assume(
            f"quantization_config keeps a piece of the {part} weights at 16 bits: "
            "not counted, all of them have the quantized format"
        )
    return False


def _layers(part: str, blocks: list[BlockSpec]) -> int:
    """Layers that hold weights of the part."""
    kinds = {"attention": MIXERS, "mlp": FEED_FORWARD, "experts": ("moe",)}[part]
    return sum(
        block.count
        for block in blocks
        if block.kind in kinds
        and (part != "mlp" or block.sizes.get("shared_intermediate_size", 1) > 0)
    )


# Writing.

_GROUPS: dict[str, Config] = {
    "fp8": {"num_bits": 8, "type": "float", "strategy": "channel"},
    "int8": {"num_bits": 8, "type": "int", "strategy": "channel"},
    "int4": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    "nvfp4": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    "mxfp4": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
}
_BLOCKS = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}


def formats(shape: Shape) -> Config:
    """Keys that give the model's weight formats back. Raises InputError for formats that no method
    which is read here has together."""
    model = shape.model
    own = {part: model.weight_dtypes[part] for part in QUANTIZED}
    used = {own[part] for part in QUANTIZED if part != "experts" or shape.of("moe")}
    config: Config = {"dtype": "bfloat16"}
    if model.weight_dtypes["embedding"] != "bf16":
        raise _refuse(model)
    if used == {"bf16"}:
        return config
    method: Config
    if used == {"fp8_block"}:
        method = dict(_BLOCKS)
    elif own == {"attention": "bf16", "mlp": "bf16", "experts": "mxfp4"}:
        return {**config, "quantization_config": {"quant_method": "mxfp4"}}
    elif own == {"attention": "fp8_block", "mlp": "fp8_block", "experts": "mxfp4"}:
        return {**config, "quantization_config": dict(_BLOCKS), "expert_dtype": "fp4"}
    elif len(used) == 1 and (weights := _GROUPS.get(next(iter(used)))) is not None:
        groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
        method = {"quant_method": "compressed-tensors", "config_groups": groups}
    else:
        raise _refuse(model)
    if model.kv_dtype == "fp8" and method["quant_method"] == "compressed-tensors":
        method["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
    return {**config, "quantization_config": method}


def _refuse(model: Model) -> InputError:
    said = ", ".join(f"{part} {dtype}" for part, dtype in model.weight_dtypes.items())
    return InputError(
        f"{model.name}: no checkpoint format here holds {said}",
        field="weight_dtypes",
        accepted="one format of all matrices, or mxfp4 experts beside bf16 or fp8 blocks",
    )
