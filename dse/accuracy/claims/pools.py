"""Prefill and decode on pools of their own."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.claims.engine import Given, Measured, Rows, share
from dse.accuracy.claims.points import Point, batch_at, measured_rows
from dse.accuracy.rows import INFERENCEX, RANGE_RATIO
from dse.catalog import load_catalog
from dse.physics.disaggregated import predict_disaggregated
from dse.physics.machines import compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate

CHIPS = 32.0
TTFT_LIMIT_S = 5.0
LIMITS_S = (0.015, 0.025, 0.05)
LOADS = {
    "chat": (1000.0, 1000.0),
    "long prompts": (8000.0, 1000.0),
    "summaries": (8000.0, 200.0),
    "long answers": (1000.0, 8000.0),
}
CONCURRENCY = tuple(float(round(2 ** (k / 2))) for k in range(4, 29))
# Groups of one worker, (tp, dp, ep).
GROUPS = {
    "llama-3-70b": ((2, 1, 1), (4, 1, 1), (8, 1, 1)),
    "deepseek-v3": ((8, 1, 8), (1, 8, 8), (1, 16, 16), (16, 1, 16)),
}
CASES = (("llama-3-70b", "h100_sxm"), ("deepseek-v3", "h200_sxm"))


def one_pool(model: str, chip: str, load: Workload) -> pd.DataFrame:
    """Every group and concurrency on CHIPS chips; `ttft_s, tpot_s, rate` (output tokens per second
    and chip), feasible ones alone."""
    points = [
        Point(model, chip, tp, 1.0, dp, ep, CHIPS / (tp * dp), concurrency, "fp8", "fp8")
        for tp, dp, ep in GROUPS[model]
        for concurrency in CONCURRENCY
    ]
    machines = compile_machines(load_catalog(), [chip], "rental_3yr")
    metrics = evaluate(batch_at(points, [chip]), load, machines)
    table = pd.DataFrame({name: metrics.values[name] for name in ("ttft_s", "tpot_s")})
    table["rate"] = metrics.values["output_tokens_per_s_per_chip"]
    table["usd_per_hour"] = CHIPS * machines.usd_per_chip_hour[0]
    return table[metrics.feasible]


def two_pools(
    model: str, chip: str, load: Workload, prefill_chip: str | None = None
) -> pd.DataFrame:
    """The same of every split of CHIPS chips into prefill and decode workers."""
    chips = (prefill_chip or chip, chip)
    first, second, shares = [], [], []
    for a in GROUPS[model]:
        for b in GROUPS[model]:
            for workers in range(1, int(CHIPS)):
                left = CHIPS - workers * a[0] * a[1]
                if left <= 0 or left % (b[0] * b[1]):
                    continue
                for concurrency in CONCURRENCY:
                    first.append(_worker(model, chips[0], a, workers, 1.0))
                    second.append(_worker(model, chips[1], b, left / (b[0] * b[1]), concurrency))
                    shares.append(workers * a[0] * a[1] / CHIPS)
    machines = [compile_machines(load_catalog(), [name], "rental_3yr") for name in chips]
    batches = [batch_at(p, [name]) for p, name in zip((first, second), chips, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(batches[0], batches[1], load, machines[0], machines[1])
    feasible = np.ones(len(first), dtype=bool)
    for batch, machine in zip(batches, machines, strict=True):
        feasible &= evaluate(batch, load, machine).feasible
    share = np.array(shares)
    price = [machine.usd_per_chip_hour[0] for machine in machines]
    table = pd.DataFrame({"ttft_s": found.ttft_s, "tpot_s": found.tpot_s})
    table["rate"] = found.output_tokens_per_s / CHIPS
    table["usd_per_hour"] = CHIPS * (share * price[0] + (1.0 - share) * price[1])
    table["prefill_share"] = share
    return table[feasible]


def _worker(model: str, chip: str, group: tuple[int, int, int], workers: float, n: float) -> Point:
    tp, dp, ep = group
    return Point(model, chip, tp, 1.0, dp, ep, workers, n, "fp8", "fp8")


def best(table: pd.DataFrame, limit_s: float, by: str = "rate") -> pd.Series | None:
    """The row of the largest `by` within the limits; None where none is."""
    within = table[(table["tpot_s"] <= limit_s) & (table["ttft_s"] <= TTFT_LIMIT_S)]
    return None if within.empty else within.iloc[int(within[by].to_numpy().argmax())]


def _load(prompt: float, output: float) -> Workload:
    return Workload.of(prompt, output, "continuous", load_catalog().backends["generic"])


def find(given: Given) -> Measured:
    ratios, rows, helps = [], [], given["helps"]
    for model, chip in CASES:
        for name, (prompt, output) in LOADS.items():
            load = _load(prompt, output)
            one, two = one_pool(model, chip, load), two_pools(model, chip, load)
            for limit in LIMITS_S:
                a, b = best(one, limit), best(two, limit)
                ratio = None if a is None or b is None else float(b["rate"] / a["rate"])
                ratios += [] if ratio is None else [ratio]
                at = (f"{model}, {chip}", f"{name}, {prompt:g}/{output:g}", limit * 1e3)
                rates = (None if row is None else row["rate"] for row in (a, b))
                prefill = None if b is None else b["prefill_share"]
                rows.append((*at, *rates, ratio, prefill))
    mixed, mixed_table = _mixed()
    measured, measured_table = _measured()
    figures = {
        "cells": float(len(ratios)),
        "cells_helped": float(sum(r >= helps for r in ratios)),
        "cells_hurt": float(sum(r <= 1.0 / helps for r in ratios)),
        "median_ratio": float(np.median(ratios)),
        "best_ratio": max(ratios),
        "worst_ratio": min(ratios),
        "mixed_chips_best_ratio": mixed,
        "measured_best_ratio": max(measured, default=None),
        "measured_worst_ratio": min(measured, default=None),
    }
    helped = share(r >= helps for r in ratios)
    return Measured(figures, (rows, mixed_table, measured_table), {"helped": helped})


def _mixed() -> tuple[float | None, Rows]:
    """Prefill on H100, decode on H200: output tokens per dollar of 3-year rental, and the most by
    which that beats the better of the two alone."""
    pairs = (("h100_sxm", "h100_sxm"), ("h200_sxm", "h200_sxm"), ("h100_sxm", "h200_sxm"))
    rows, ratios = [], []
    for name in ("chat", "long prompts", "summaries"):
        load, cells = _load(*LOADS[name]), []
        for prefill, decode in pairs:
            table = two_pools("llama-3-70b", decode, load, prefill)
            if prefill == decode:
                table = pd.concat([table, one_pool("llama-3-70b", decode, load)])
            table["per_usd"] = table["rate"] * CHIPS * 3600.0 / table["usd_per_hour"]
            found = best(table, LIMITS_S[1], "per_usd")
            cells.append(None if found is None else float(found["per_usd"]))
        alike = [cell for cell in cells[:2] if cell is not None]
        ratio = cells[2] / max(alike) if alike and cells[2] is not None else None
        ratios += [] if ratio is None else [ratio]
        rows.append((name, *(cell and cell / 1e6 for cell in cells), ratio))
    return max(ratios, default=None), rows


# Of a measured row, what does not tell configurations apart.
OF_ROW = ("id", "metric", "statistic", "value", "quality", "date", "source")


def _by_configuration() -> pd.DataFrame:
    """Measured configurations of deepseek-v3 on h200_sxm with both latencies: `pools, prompt,
    output, chips, concurrency, tpot_s, ttft_s, rate`."""
    two = measurements.scored_rows(measurements.shipped()[1]).assign(pools=2, notes="")
    one = measured_rows()
    one = one[one["serving"] == "continuous"].assign(pools=1)
    found = []
    for table in (one, two):
        mine = table[(table["model"] == "deepseek-v3") & (table["chip"] == "h200_sxm")]
        keys = [name for name in mine.columns if name not in OF_ROW]
        wide = mine.assign(value=mine["value"].astype(float)).pivot_table(
            index=keys, columns="metric", values="value", aggfunc="first"
        )
        found.append(wide.reset_index().dropna(subset=["ttft_s", "tpot_s"]))
    table = pd.concat(found, ignore_index=True)
    for name in ("prompt_tokens", "output_tokens", "n_chips", "concurrency"):
        table[name] = table[name].astype(float)
    drawn = table["notes"].str.contains(INFERENCEX) & (table["prompt_tokens"] % 1.0 == 0.0)
    scale = np.where(drawn, (1 + RANGE_RATIO) / 2, 1.0)
    for name in ("prompt_tokens", "output_tokens"):
        table[name] = np.round(table[name] * scale, 1)
    seconds = table["ttft_s"] + (table["output_tokens"] - 1.0) * table["tpot_s"]
    table["rate"] = table["concurrency"] * table["output_tokens"] / seconds / table["n_chips"]
    return table


def _measured() -> tuple[list[float], Rows]:
    """By load and limit, what two pools reach over what one does, and the same as rows."""
    rows, ratios = [], []
    for (prompt, output), part in _by_configuration().groupby(["prompt_tokens", "output_tokens"]):
        if part["pools"].nunique() < 2:
            continue
        for limit in LIMITS_S:
            fast = part[part["tpot_s"] <= limit]
            tops = [fast[fast["pools"] == n]["rate"] for n in (1, 2)]
            rates = [float(top.max()) if len(top) else None for top in tops]
            ratio = rates[1] / rates[0] if rates[0] and rates[1] else None
            ratios += [] if ratio is None else [ratio]
            at = (f"{prompt:g}/{output:g}", limit * 1e3)
            rows.append((*at, *map(len, tops), *rates, ratio))
    return ratios, rows
