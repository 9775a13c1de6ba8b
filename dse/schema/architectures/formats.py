"""The number formats of a checkpoint as `quantization_config`, the inverse of
`dse.schema.families.quantization`."""

from __future__ import annotations

from dse.errors import InputError
from dse.schema.architectures.shape import Config, Shape
from dse.schema.families.quantization import QUANTIZED
from dse.schema.model import Model

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
