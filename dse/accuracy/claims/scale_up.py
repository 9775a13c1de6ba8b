"""Larger instances, and where they end."""

from __future__ import annotations

from functools import cache

from dse.accuracy.claims.engine import Given, Measured, Rows, ends, share
from dse.accuracy.claims.points import Point, is_sparse, models, predict
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.problem.instances import Subject, subject_of
from dse.questions.scale.sizes import (
    Size,
    ceiling,
    instance_sizes,
    replica_size,
    replication,
)

PROMPT, OUTPUT = 2048.0, 512.0
CHIPS_UP_TO, DEMAND = 512, 512
SUBJECTS = (
    ("llama-3-8b", "h100_sxm"),
    ("llama-3-70b", "h100_sxm"),
    ("llama-3.1-405b", "h200_sxm"),
    ("deepseek-v3", "h200_sxm"),
    ("llama-3-70b", "gb200_nvl72"),
    ("llama-3.1-405b", "gb200_nvl72"),
    ("qwen3-235b-a22b", "gb200_nvl72"),
    ("deepseek-v3", "gb200_nvl72"),
)
LARGE = ("llama-3-70b", "llama-3.1-405b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2")
LARGE_CHIP, FROM, TO, REQUESTS = "gb200_nvl72", 8.0, 64.0, 256.0


@cache
def subject(model: str, chip: str) -> Subject:
    catalog = load_catalog()
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends["generic"])
    return subject_of(catalog, models()[model], chip, load, weight_dtype="fp8")


@cache
def sizes(model: str, chip: str) -> tuple[Size, ...]:
    return tuple(instance_sizes(subject(model, chip), chips_up_to=CHIPS_UP_TO))


def find_latency(given: Given) -> Measured:
    alone, rows = [], []
    for model, chip in SUBJECTS:
        domain = subject(model, chip).domain
        runs = [
            (size, one)
            for size in sizes(model, chip)
            if size.chips <= domain and (one := size.single) is not None
        ]
        if len(runs) < 2:
            held = f"{runs[0][0].chips} alone" if runs else "no group of it"
            rows.append((model, chip, domain, held, *(None,) * 4))
            continue
        (first, slow), (best, fast) = runs[0], min(runs, key=lambda run: run[1].tpot_s)
        alone.append(slow.tpot_s / fast.tpot_s)
        span = f"{first.chips} to {best.chips}"
        cells = (slow.tpot_s, fast.tpot_s, alone[-1], fast.network_share)
        rows.append((model, chip, domain, span, *cells))
    loaded, equal, steps = _loaded()

    def of(ratios: dict[str, float], sparse: bool) -> list[float]:
        return [ratio for model, ratio in ratios.items() if is_sparse(model) == sparse]

    matters = given["matters"]
    figures = {
        **ends("alone", alone),
        **ends("loaded_sparse", of(loaded, True)),
        **ends("loaded_dense", of(loaded, False)),
        "equal_load_sparse_least": min(of(equal, True)),
        "equal_load_dense_most": max(of(equal, False)),
    }
    facts = {
        "faster": share(ratio >= matters for ratio in (*alone, *loaded.values())),
        "equal_load_sparse_most": max(of(equal, True)),
        "equal_load_dense_least": min(of(equal, False)),
    }
    return Measured(figures, (rows, steps), facts)


def _loaded() -> tuple[dict[str, float], dict[str, float], Rows]:
    """By model, how much faster a step is on TO chips than on FROM: with the same requests in all,
    and with the same on every chip."""
    points = []
    for model in LARGE:
        for chips, requests in ((FROM, REQUESTS), (TO, REQUESTS), (TO, REQUESTS * TO / FROM)):
            tp, dp = (1.0, chips) if is_sparse(model) else (chips, 1.0)
            points.append(Point(model, LARGE_CHIP, tp, 1.0, dp, dp, 1.0, requests, "fp8", "fp8"))
    answer = predict(points, PROMPT, OUTPUT, serving="static")
    found, equal, rows = {}, {}, []
    for k, model in enumerate(LARGE):
        kind = "sparse" if is_sparse(model) else "dense"
        few, many, full = (float(answer["decode_step_s"][3 * k + j]) for j in range(3))
        if not answer.feasible[3 * k]:
            rows.append((model, kind, "does not fit", *(None,) * 5))
            continue
        found[model], equal[model] = few / many, few / full
        network = answer.decode["network"][3 * k + 1] / many
        rows.append((model, kind, few, many, few / many, network, full, few / full))
    return found, equal, rows


def find_ceiling(given: Given) -> Measured:
    ceilings, replicas, largest, rows = [], [], [], []
    for model, chip in SUBJECTS:
        found, one = sizes(model, chip), subject(model, chip)
        top, size = ceiling(found), replica_size(found)
        last = replication(one, found, DEMAND)[-1]
        ceilings.append(top.chips)
        replicas.append(size)
        largest.append(last.of_best)
        network = (top.network_share, top.bound)
        split = f"{last.replicas} x {last.chips}"
        cells = (top.chips or None, top.tpot_s, network, size or None, split, last.of_best)
        rows.append((model, chip, one.domain, *cells))
    figures = {
        **ends("ceiling", (value for value in ceilings if value is not None)),
        **ends("replica", (value for value in replicas if value is not None)),
        **ends("largest_instance_of_best", largest),
    }
    known = share(value is not None for value in (*ceilings, *replicas))
    return Measured(figures, (rows,), {"known": known})
