"""Capacity without bandwidth."""

from __future__ import annotations

from typing import Any

from dse.accuracy.claims.engine import Given, Measured, ends
from dse.accuracy.claims.points import models
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.schema.tiers import tiers_of

MODEL, CHIP, PROMPT, OUTPUT = "llama-3-70b", "h100_sxm", 2048.0, 512.0
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
LOADS = ((1.0, 4.0), (64.0, 4.0))  # requests in flight, tensor parallelism
TIERS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "mi300x", "gh200_96")
METRICS = ("tpot_s", "output_tokens_per_s", "mbu", "mfu")


def find(given: Given) -> Measured:
    catalog, tiers = load_catalog(), []
    for name in TIERS:
        chip = catalog.chips[name]
        host = tiers_of(chip, catalog.tiers).get("host")
        if host is not None:
            sizes = (chip.capacity_bytes, host.bytes, host.bytes / chip.capacity_bytes)
            device = chip.memories[0].bytes_per_s
            tiers.append((name, *sizes, device, host.bytes_per_s, device / host.bytes_per_s))
    capacity, bandwidth = ([row[k] for row in tiers] for k in (3, 6))
    rows, kept = [], []
    for requests, tp in LOADS:
        found = [(requests, share, *_estimate(share, requests, tp)) for share in SHARES]
        rows += found
        kept.append(found[-1][3] / found[0][3])
    figures = {
        **ends("bandwidth_ratio", bandwidth),
        "capacity_ratio_least": min(capacity),
        "speed_left_1_request": kept[0],
        "speed_left_64_requests": kept[1],
    }
    facts = {"kept_most": max(kept), "capacity_ratio_most": max(capacity)}
    return Measured(figures, (tiers, rows), facts)


def _estimate(share: float, requests: float, tp: float) -> list[float]:
    """METRICS with a share of the weights in the memory of the host."""
    catalog = load_catalog()
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends["generic"])
    deployment: dict[str, Any] = {"tensor_parallel": tp, "concurrency": requests}
    if share:
        deployment |= {"weights_offloaded": share, "kv_offloaded": 0.0, "offload_tier": "host"}
    found = estimate(catalog, models()[MODEL], CHIP, load, deployment, weight_dtype="bf16")
    return [float(found.metrics.values[name][0]) for name in METRICS]
