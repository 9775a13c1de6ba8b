"""A small space as a mapping, which a test changes where it matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOAD = {"prompt_tokens": 1024, "output_tokens": 256, "serving": "continuous"}


def space(deployment: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Llama 3 8B on one H100, with other axes of the deployment and other sections."""
    one = {
        "chip": "h100_sxm",
        "replicas": 1,
        "tensor_parallel": 1,
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "concurrency": [8, 64],
    }
    frame = {
        "name": "mine",
        "workload": LOAD,
        "price_basis": "rental_3yr",
        "model": "llama-3-8b",
        "objectives": {"usd_per_million_total_tokens": "minimize", "tpot_s": "minimize"},
    }
    return {**frame, **sections, "deployment": {**one, **deployment}}
