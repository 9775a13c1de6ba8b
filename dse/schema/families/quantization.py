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
from dse.schema.model import BlockSpec

METHODS = ("fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq")
SIXTEEN_BITS = ("bfloat16", "float16")

# Of each part that a method may reach: the words of a module pattern that name it, the pairs of
# projections that, left alone together, leave the whole layer's part alone, and the kinds of blocks
# that hold weights of it.
_UP, _DOWN = {"up", "gate_up"}, {"down"}
_PARTS: Mapping[str, tuple[set[str], set[str], set[str], tuple[str, ...]]] = {
    "attention": ({"self_attn"}, {"q", "q_a", "q_b", "qkv"}, {"o"}, MIXERS),
    "mlp": ({"mlp", "shared_expert", "shared_experts"}, _UP, _DOWN, FEED_FORWARD),
    "experts": ({"mlp", "experts"}, _UP, _DOWN, ("moe",)),
}
QUANTIZED = tuple(_PARTS)
_ROUTER = {"gate", "router", "shared_expert_gate"}
# Of ModelOpt's algorithms, by what stands in their name.
_ALGORITHMS = {"NVFP4": "nvfp4", "MXFP4": "mxfp4", "FP8": "fp8", "W4A16": "int4", "W4A8": "int4"}
# A format as compressed-tensors says it, whose groups of weights each name a format.
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
# Formats of attention, dense and expert weights that have a method of their own; DeepSeek-V4's
# experts are in blocks of 32 with a power of two.
_TOGETHER: dict[tuple[str, ...], Config] = {
    ("bf16", "bf16", "mxfp4"): {"quantization_config": {"quant_method": "mxfp4"}},
    ("fp8_block", "fp8_block", "mxfp4"): {"quantization_config": _BLOCKS, "expert_dtype": "fp4"},
}
# A format and the patterns of the modules that it reaches; all Linear layers without any.
Group = tuple[str, list[str]]


def weight_dtypes(
    reader: ConfigReader, config: Mapping[str, object], blocks: list[BlockSpec]
) -> dict[str, str]:
    """The dtype of each of `candidates.WEIGHT_PARTS`."""
    key = "dtype" if "dtype" in config else "torch_dtype"
    stored = config.get(key)
    if stored is None or stored == "auto":
        reader.assume("torch_dtype absent: weights at 16 bits")
    elif stored == "float32":
        reader.assume("torch_dtype float32: weights served at 16 bits")
    elif stored not in SIXTEEN_BITS:
        raise reader.refuse(key, f"{stored!r}", "bfloat16, float16, float32")
    dtypes: dict[str, str] = dict.fromkeys(WEIGHT_PARTS, "bf16")
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
    reached: dict[str, str] = {}
    for dtype, targets in _groups(reader, quantization, method):
        if targets:
            reached |= {part: dtype for part in QUANTIZED if _named(part, targets)}
        else:
            reached = {**dict.fromkeys(QUANTIZED, dtype), **reached}
    dtypes |= reached
    if config.get("expert_dtype") == "fp4":
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


def _groups(reader: ConfigReader, quantization: Mapping[str, object], method: str) -> list[Group]:
    """What a method gives to which modules."""
    if method == "fp8":
        blocks = quantization.get("weight_block_size") is not None
        return [("fp8_block" if blocks else "fp8", [])]
    if method in ("awq", "gptq"):
        bits = quantization.get("bits", quantization.get("w_bit"))
        return [(_integer_format(reader, bits, "quantization_config.bits"), [])]
    if method == "modelopt" and "quant_algo" in quantization:
        if quantization["quant_algo"] is None:
            return []
        algorithm = str(quantization["quant_algo"]).upper()
        for word, dtype in _ALGORITHMS.items():
            if word in algorithm:
                return [(dtype, [])]
        raise reader.refuse(
            "quantization_config.quant_algo", f"{algorithm!r} is not covered", "NVFP4, FP8"
        )
    field = "quantization_config.config_groups"
    written = quantization.get("config_groups")
    if not isinstance(written, dict) or not written:
        raise reader.refuse(field, "missing or no object", "groups of weights and targets")
    groups: list[Group] = []
    for name, group in written.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise reader.refuse(f"{field}.{name}.weights", "missing or no object")
        targets = _strings(group, "targets")
        dtype = _group_format(reader, weights, f"{field}.{name}.weights")
        groups.append((dtype, [] if "Linear" in targets else targets))
    return groups


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
    lists = [value for key in keys if isinstance(value := holder.get(key), list)]
    return [item for value in lists for item in value if isinstance(item, str)]


def _words(pattern: str) -> set[str]:
    """The names in a pattern over modules, be it a path, a glob or a regular expression."""
    words = re.split(r"[^a-z_]+", pattern.replace("\\", " "))
    return {word if word == "gate_proj" else word.removesuffix("_proj") for word in words}


def _named(part: str, patterns: list[str]) -> list[str]:
    """The patterns that reach weights of the part; routers and norms have none of their own."""
    own = _PARTS[part][0]
    others = {"experts", "shared_expert", "shared_experts"} - own
    found = []
    for pattern in patterns:
        words = _words(pattern)
        projection = "_proj" in pattern
        if "norm" in pattern or words & others or (words & _ROUTER and not projection):
            continue
        # `mlp.*` holds the experts below it, `mlp.up_proj` is a dense layer's own.
        dense_only = part == "experts" and projection and "experts" not in words
        if words & own and not dense_only:
            found.append(pattern)
    return found


def _left_alone(
    reader: ConfigReader, part: str, patterns: list[str], blocks: list[BlockSpec]
) -> bool:
    """Whether the patterns keep all of a part at 16 bits; a piece of it is only noted."""
    _, first, last, kinds = _PARTS[part]
    by_layer: dict[int | None, set[str]] = {}
    for pattern in _named(part, patterns):
        number = re.search(r"layers\.(\d{1,5})\.", pattern.replace("\\", ""))
        layer = int(number[1]) if number else None
        if layer is None or layer < reader.layers:  # later ones predict further tokens
            words = _words(pattern) if "_proj" in pattern else first | last
            by_layer.setdefault(layer, set()).update(words)
    covered = [layer for layer, words in by_layer.items() if words & first and words & last]
    layers = sum(
        block.count
        for block in blocks
        if block.kind in kinds
        and (part != "mlp" or block.sizes.get("shared_intermediate_size", 1) > 0)
    )
    if None in covered or len(covered) >= max(1, layers):
        return True
    if by_layer:
        reader.assume(
            f"quantization_config keeps a piece of the {part} weights at 16 bits: "
            "not counted, all of them have the quantized format"
        )
    return False


def formats(shape: Shape) -> Config:
    """Keys that give the model's weight formats back. Raises InputError for formats that no method
    which is read here has together."""
    model = shape.model
    own = tuple(model.weight_dtypes[part] for part in QUANTIZED)
    used = {*own} if shape.of("moe") else {*own[:2]}
    config: Config = {"dtype": "bfloat16"}
    if model.weight_dtypes["embedding"] == "bf16":
        if used == {"bf16"}:
            return config
        if used == {"fp8_block"}:
            return {**config, "quantization_config": dict(_BLOCKS)}
        if own in _TOGETHER:
            return {**config, **_TOGETHER[own]}
        if len(used) == 1 and own[0] in _GROUPS:
            groups = {"group_0": {"targets": ["Linear"], "weights": _GROUPS[own[0]]}}
            method: Config = {"quant_method": "compressed-tensors", "config_groups": groups}
            if model.kv_dtype == "fp8":
                method["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
            return {**config, "quantization_config": method}
    said = ", ".join(f"{part} {dtype}" for part, dtype in model.weight_dtypes.items())
    raise InputError(
        f"{model.name}: no checkpoint format here holds {said}",
        field="weight_dtypes",
        accepted="one format of all matrices, or mxfp4 experts beside bf16 or fp8 blocks",
    )
