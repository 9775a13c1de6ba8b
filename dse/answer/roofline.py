"""Operators under the roof of their chip (Williams, Waterman and Patterson, Communications of the
ACM 52, 2009): attainable FLOP/s = min(peak, intensity * bandwidth)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Phase, the key of its times in a breakdown, its mark.
PHASES = (("prefill", "prefill_s", "circle"), ("decode", "decode_s", "diamond"))


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator in one phase: `intensity` in FLOP per byte, rates in FLOP/s, `share` of the
    phase's time."""

    name: str
    phase: str
    bound: str
    seconds: float
    share: float
    intensity: float
    achieved: float
    attainable: float


def operators_of(detail: Mapping[str, Any]) -> list[Operator]:
    """Every operator that computes, in both phases, of `breakdown` and `hbm_bytes_per_s`; empty
    where these hold no flops."""
    bandwidth = detail.get("hbm_bytes_per_s")
    if not bandwidth:
        return []
    found = []
    for phase, key, _ in PHASES:
        total = sum(row[key] or 0.0 for row in detail["breakdown"])
        for row in detail["breakdown"]:
            flops, moved = row.get(f"{phase}_flops"), row.get(f"{phase}_bytes")
            if not (flops and moved and row[key]):
                continue
            intensity = flops / moved
            bound = row.get("prefill_bound", row["bound"]) if phase == "prefill" else row["bound"]
            found.append(
                Operator(
                    name=row["operator"],
                    phase=phase,
                    bound=bound,
                    seconds=row[key],
                    share=row[key] / total,
                    intensity=intensity,
                    achieved=flops / row[key],
                    attainable=min(row[f"{phase}_peak_flops_per_s"], intensity * bandwidth),
                )
            )
    return found


def layout(low: float, high: float, height: int) -> dict[str, Any]:
    """Of any roofline picture, for intensities from `low` to `high`; `height` in pixels."""
    return {
        "height": height,
        "xaxis": {
            "type": "log",
            "title": {"text": "arithmetic intensity (FLOP per byte)"},
            "dtick": 1,
            "range": [math.log10(low), math.log10(high)],
        },
        "yaxis": {"type": "log", "title": {"text": "TFLOP/s of one chip"}, "dtick": 1},
        "hovermode": "closest",
    }
