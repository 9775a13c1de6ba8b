"""Larger instances, and where they end."""

from __future__ import annotations

from functools import cache

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import Point, is_sparse, models, predict
from dse.answer.numbers import in_ms, percent, times
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


def _of_kind(ratios: dict[str, tuple[bool, float]], sparse: bool) -> list[float]:
    return [ratio for kind, ratio in ratios.values() if kind == sparse]


def find_latency(given: Given) -> Measured:
    alone, rows = {}, []
    for model, chip in SUBJECTS:
        domain = subject(model, chip).domain
        runs = [row for row in sizes(model, chip) if row.single and row.chips <= domain]
        if len(runs) < 2:
            held = f"{runs[0].chips} alone" if runs else "no group of it"
            rows.append((model, chip, str(domain), held, *("–",) * 4))
            continue
        best = min(runs, key=lambda row: row.single.tpot_s if row.single else 0.0)
        first, last = runs[0].single, best.single
        assert first is not None
        assert last is not None
        alone[f"{model} {chip}"] = first.tpot_s / last.tpot_s
        rows.append(
            (
                model,
                chip,
                str(domain),
                f"{runs[0].chips} to {best.chips}",
                in_ms(first.tpot_s),
                in_ms(last.tpot_s),
                times(first.tpot_s / last.tpot_s),
                percent(last.network_share),
            )
        )
    loaded, equal, steps = _loaded()
    sparse, dense = _of_kind(loaded, True), _of_kind(loaded, False)
    figures: dict[str, float | None] = {
        "alone_least": min(alone.values()),
        "alone_most": max(alone.values()),
        "loaded_sparse_least": min(sparse),
        "loaded_sparse_most": max(sparse),
        "loaded_dense_least": min(dense),
        "loaded_dense_most": max(dense),
        "equal_load_sparse_least": min(_of_kind(equal, True)),
        "equal_load_dense_most": max(_of_kind(equal, False)),
    }
    return Measured(
        figures,
        (rows, steps),
        {
            "faster": float(
                np.mean(
                    [
                        ratio >= given["matters"]
                        for ratio in (*alone.values(), *(one for _, one in loaded.values()))
                    ]
                )
            ),
            "equal_load_sparse_most": max(_of_kind(equal, True)),
            "equal_load_dense_least": min(_of_kind(equal, False)),
        },
    )


def _loaded() -> tuple[dict[str, tuple[bool, float]], dict[str, tuple[bool, float]], Rows]:
    """By model, (sparse, how much faster a step is on TO chips than on FROM): with the same
    requests in all, and with the same on every chip."""
    points = []
    for model in LARGE:
        for chips, requests in ((FROM, REQUESTS), (TO, REQUESTS), (TO, REQUESTS * TO / FROM)):
            tp, dp = (1.0, chips) if is_sparse(model) else (chips, 1.0)
            points.append(Point(model, LARGE_CHIP, tp, 1.0, dp, dp, 1.0, requests, "fp8", "fp8"))
    answer = predict(points, PROMPT, OUTPUT, serving="static")
    found, equal, rows = {}, {}, []
    for k, model in enumerate(LARGE):
        few, many, full = (float(answer["decode_step_s"][3 * k + j]) for j in range(3))
        if not answer.feasible[3 * k]:
            rows.append((model, _kind(model), "does not fit", *("–",) * 5))
            continue
        found[model], equal[model] = (is_sparse(model), few / many), (is_sparse(model), few / full)
        network = answer.decode["network"][3 * k + 1] / many
        rows.append(
            (
                model,
                _kind(model),
                in_ms(few),
                in_ms(many),
                times(few / many),
                percent(float(network)),
                in_ms(full),
                times(few / full),
            )
        )
    return (found, equal, rows)


def _kind(model: str) -> str:
    return "sparse" if is_sparse(model) else "dense"


def find_ceiling(given: Given) -> Measured:
    ceilings, replicas, largest, rows = [], [], [], []
    for model, chip in SUBJECTS:
        found = sizes(model, chip)
        top, size = ceiling(found), replica_size(found)
        split = replication(subject(model, chip), found, DEMAND)
        ceilings.append(top.chips)
        replicas.append(size)
        last = split[-1]
        largest.append(last.of_best)
        rows.append(
            (
                model,
                chip,
                str(subject(model, chip).domain),
                str(top.chips or "–"),
                in_ms(top.tpot_s),
                f"{percent(top.network_share)} {top.bound}",
                str(size or "–"),
                f"{last.replicas} x {last.chips}",
                percent(last.of_best),
            )
        )
    known = [value for value in ceilings if value is not None]
    sized = [value for value in replicas if value is not None]
    figures: dict[str, float | None] = {
        "ceiling_least": float(min(known)) if known else None,
        "ceiling_most": float(max(known)) if known else None,
        "replica_least": float(min(sized)) if sized else None,
        "replica_most": float(max(sized)) if sized else None,
        "largest_instance_of_best_least": min(largest),
        "largest_instance_of_best_most": max(largest),
    }
    return Measured(
        figures,
        (rows,),
        {"known": float(np.mean([value is not None for value in (*ceilings, *replicas)]))},
    )
