"""Claim 9: capacity without bandwidth."""

from __future__ import annotations

from typing import Any

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
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
MAGNITUDE, STARVED = (3.0, 30.0), 0.5


def judge(bandwidth: list[float], capacity: list[float], kept: float) -> str:
    """Bandwidth of device memory over DRAM and capacity of DRAM over device memory, by chip; the
    speed that is left with all weights in DRAM, over that with none."""
    if kept >= STARVED or min(bandwidth) < 1.0:
        return CONTRADICTED
    low, high = MAGNITUDE
    about = all(low <= ratio <= high for ratio in bandwidth) and min(capacity) > 1.0
    return CONFIRMED if about else QUALIFIED


def find() -> Finding:
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
                name, digits(chip.capacity_bytes / 1e9), digits(host.bytes / 1e9),
                times(capacity[-1]), digits(chip.memories[0].bytes_per_s / 1e9),
                digits(host.bytes_per_s / 1e9), times(bandwidth[-1]),
            )
        )  # fmt: skip
    rows, kept = [], []
    for requests, tp in LOADS:
        found = [_estimate(share, requests, tp) for share in SHARES]
        for share, values in zip(SHARES, found, strict=True):
            rows.append(
                (
                    f"{requests:g}", percent(share), in_ms(values["tpot_s"]),
                    digits(values["output_tokens_per_s"]), percent(values["mbu"]),
                    percent(values["mfu"]),
                )
            )  # fmt: skip
        kept.append(found[-1]["output_tokens_per_s"] / found[0]["output_tokens_per_s"])
    figures = {
        "bandwidth_ratio_least": min(bandwidth),
        "bandwidth_ratio_most": max(bandwidth),
        "capacity_ratio_least": min(capacity),
        "speed_left_1_request": kept[0],
        "speed_left_64_requests": kept[1],
    }
    head = (
        "requests",
        "weights in DRAM",
        "per token",
        "tokens/s",
        "of device bandwidth",
        "prefill MFU",
    )
    return Finding(
        judge(bandwidth, capacity, max(kept)),
        f"host DRAM has {times(min(capacity))} to {times(max(capacity))} the capacity at "
        f"1/{digits(min(bandwidth))} to 1/{digits(max(bandwidth))} of the bandwidth; {MODEL} with "
        f"all weights there keeps {percent(kept[0])} of its speed at 1 request, {percent(kept[1])} "
        "at 64",
        figures,
        f"{MODEL} in bf16 on {LOADS[0][1]:g} {CHIP}, prompt {PROMPT:g}, output {OUTPUT:g}; weights "
        "of the next layer are fetched while one computes.",
        (
            Table(
                "Memory behind a chip",
                ("chip", "device, GB", "host, GB", "more", "device, GB/s", "host, GB/s", "slower"),
                tuple(tiers),
            ),
            Table(f"{MODEL} with a share of its weights in host DRAM", head, tuple(rows)),
        ),
        "Predicted. Capacity and bandwidth of host memory per chip are assumed where no source has "
        "them (hardware/tiers.yaml says which); kernels are fitted.",
        "DRAM is as slow as its channels or the link to the host, whichever is less: on a chip of "
        "its own, as device memory, it would be nearer. Several chips that share one host's DRAM "
        "at once are not slowed by each other; layers that the host's processor computes are not "
        "modelled.",
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


CLAIMS = (
    Claim(
        9,
        "Commodity DRAM holds more bits at an order of magnitude less bandwidth: capacity without "
        "bandwidth starves the compute.",
        (
            "dse claims 9",
            "dse estimate --model llama-3-70b --chip h100_sxm --tp 4 --concurrency 64 "
            "--weights-offload 0.5 --offload-tier host",
        ),
        "Contradicted where half of the speed is left with all weights in DRAM, or DRAM is as "
        "fast; confirmed where, for every chip, it holds more and is about ten times slower "
        f"({MAGNITUDE[0]:g} to {MAGNITUDE[1]:g}); else qualified.",
        find,
    ),
)
