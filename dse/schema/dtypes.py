"""Number formats: bytes a stored element costs, and the arithmetic that runs on it.

Codes index the dtype axis of every efficiency and peak table.
"""

from __future__ import annotations

from typing import Any

from dse.errors import InputError

# Stored bits per element, block scales included. nvfp4: 4 + 8/16 bits; mxfp4: 4 + 8/32 bits
# (OCP Microscaling Formats v1.0, section 5; NVIDIA NVFP4: one fp8 scale per 16 elements);
# fp8: one scale a tensor; fp8_block: one fp32 scale per 128 x 128 block (DeepSeek-V3, Qwen3-FP8);
# int4: one 16-bit scale per group of 128 (AWQ, GPTQ). Of llama.cpp: q4_0 and q8_0 have a 16-bit
# scale per 32 elements (18 and 34 bytes), q4_k_m keeps some tensors in 6 bits: 4.84, 4.83 and 4.80
# bits a weight in Llama 2 7B, 13B and 70B (llama.cpp examples/quantize/README.md). MLX's 4 bits
# have a 16-bit scale and a bias per 64: those of q4_0.
BITS = {
    "bf16": 16.0,
    "fp8": 8.0,
    "fp8_block": 8.0 + 32 / 128**2,
    "int8": 8.0,
    "int4": 4.0 + 16 / 128,
    "nvfp4": 4.5,
    "mxfp4": 4.25,
    "q4_0": 4.5,
    "q4_k_m": 4.83,
    "q8_0": 8.5,
}
# Formats of llama.cpp's files, which hold every weight of a model, embedding and head among them.
GGUF = ("q4_0", "q4_k_m", "q8_0")
DTYPES = tuple(BITS)
CODE = {name: code for code, name in enumerate(DTYPES)}
ALIASES = {
    "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16", "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8", "awq": "int4", "gptq": "int4", "w4a16": "int4", "mlx_4bit": "q4_0",
}  # fmt: skip

# Formats that shapes can be trained in (`dse.quality.quantisation`); int4 at the end alone.
TRAINABLE = ("bf16", "fp8", "nvfp4", "mxfp4", "int4")

# Weight formats whose arithmetic exists as its own peak. int4 is weight-only: it computes at the
# activation format's peak on every chip.
ARITHMETIC = ("bf16", "fp8", "int8", "nvfp4", "mxfp4")


def arithmetic(dtype: str) -> str:
    """The format whose peak weights of `dtype` are multiplied at."""
    return "fp8" if dtype == "fp8_block" else dtype


def known_dtypes(flags: dict[str, Any]) -> None:
    """Puts the formats of the flags in their own spelling. Raises InputError for an unknown one."""
    for name in ("weight_dtype", "kv_dtype"):
        value = flags[name]
        if value is not None:
            value = ALIASES.get(value.lower(), value.lower())
            if value not in DTYPES:
                raise InputError(
                    f"unknown dtype {flags[name]!r}",
                    field=f"--{name.replace('_', '-')}",
                    accepted=", ".join(DTYPES),
                )
            flags[name] = value
