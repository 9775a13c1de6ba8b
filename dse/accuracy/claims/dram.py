"""Capacity without bandwidth."""

from __future__ import annotations

from typing import Any

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.points import models
from dse.answer.numbers import digits, in_ms, percent, times
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.schema.tiers import tiers_of

MODEL, CHIP, PROMPT, OUTPUT = "llama-3-70b", "h100_sxm", 2048.0, 512.0
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
LOADS = ((1.0, 4.0), (64.0, 4.0))  # requests in flight, tensor parallelism
TIERS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "mi300x", "gh200_96")


def find(given: Given) -> Measured:
    catalog, tiers, bandwidth, capacity = load_catalog(), [], [], []
    for name in TIERS:
        chip = catalog.chips[name]
        host = tiers_of(chip, catalog.tiers).get("host")
        if host is None:
            continue
        bandwidth.append(chip.memories[0].bytes_per_s / host.bytes_per_s)
        capacity.append(host.bytes / chip.capacity_bytes)
        tiers.append(
            (
                name,
                digits(chip.capacity_bytes / 1e9),
                digits(host.bytes / 1e9),
                times(capacity[-1]),
                digits(chip.memories[0].bytes_per_s / 1e9),
                digits(host.bytes_per_s / 1e9),
                times(bandwidth[-1]),
            )
        )
    rows, kept = [], []
    for requests, tp in LOADS:
        found = [_estimate(share, requests, tp) for share in SHARES]
        for share, values in zip(SHARES, found, strict=True):
            rows.append(
                (
                    f"{requests:g}",
                    percent(share),
                    in_ms(values["tpot_s"]),
                    digits(values["output_tokens_per_s"]),
                    percent(values["mbu"]),
                    percent(values["mfu"]),
                )
            )
        kept.append(found[-1]["output_tokens_per_s"] / found[0]["output_tokens_per_s"])
    figures = {
        "bandwidth_ratio_least": min(bandwidth),
        "bandwidth_ratio_most": max(bandwidth),
        "capacity_ratio_least": min(capacity),
        "speed_left_1_request": kept[0],
        "speed_left_64_requests": kept[1],
    }
    return Measured(
        figures,
        (tuple(tiers), rows),
        {"kept_most": max(kept), "capacity_ratio_most": max(capacity)},
    )


def _estimate(share: float, requests: float, tp: float) -> dict[str, float]:
    catalog = load_catalog()
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends["generic"])
    deployment: dict[str, Any] = {"tensor_parallel": tp, "concurrency": requests}
    if share:
        deployment |= {"weights_offloaded": share, "kv_offloaded": 0.0, "offload_tier": "host"}
    found = estimate(catalog, models()[MODEL], CHIP, load, deployment, weight_dtype="bf16")
    names = ("tpot_s", "output_tokens_per_s", "mbu", "mfu")
    return {name: float(found.metrics.values[name][0]) for name in names}
