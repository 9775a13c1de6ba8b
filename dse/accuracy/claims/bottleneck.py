"""What binds, by year and size, and what more of each thing would be worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from dse.accuracy.claims.engine import Fact, Given, Measured, Rows, share
from dse.accuracy.claims.points import (
    PARTS,
    Point,
    billions,
    models,
    predict,
    smallest,
    usable_chips,
)
from dse.answer.numbers import digits
from dse.catalog import Catalog, load_catalog
from dse.schema.catalog import with_own_chips
from dse.schema.derive import derive

BATCH = 32.0
PROMPT, OUTPUT = 2048.0, 512.0
YEARS = ((2017, 2021), (2022, 2023), (2024, 2024), (2025, 2026))
SIZES = ((0.0, 10e9), (10e9, 50e9), (50e9, 150e9), (150e9, np.inf))
STEP = 0.1
LIMIT_S = 0.05
CHIPS = ("h100_sxm", "b200_sxm")
CASES = (("llama-3-8b", 1), ("llama-3-70b", 8), ("llama-3.1-405b", 8), ("deepseek-v3", 16))
LIMITS = {
    "memory": ("memory bandwidth", "memory capacity"),
    "interconnect": ("link bandwidth", "network bandwidth"),
    "power": ("power",),
}
# By figure, its name in `dse.schema.derive`.
RAISED = {
    "memory bandwidth": "hbm_bandwidth",
    "memory capacity": "capacity",
    "FLOP/s": "flops",
    "link bandwidth": "link_bandwidth",
    "network bandwidth": "network_bandwidth",
}
FIGURES = (*RAISED, "power")
CONCURRENCY = tuple(float(round(2 ** (k / 4))) for k in range(8, 49))


def first_facts(cases: Sequence[Mapping[str, float]]) -> dict[str, Fact]:
    """Of the elasticities of each case to each of FIGURES: `flops_first`, the share of cases in
    which that to FLOP/s is the largest; `every_limit`, the share of LIMITS that are the largest in
    some case."""
    first = [largest(case) for case in cases]
    return {
        "flops_first": share(figure == "FLOP/s" for figure in first),
        "every_limit": share(any(f in first for f in figures) for figures in LIMITS.values()),
    }


def largest(case: Mapping[str, float]) -> str:
    """The figure of the largest single elasticity."""
    return max(case, key=lambda figure: case[figure])


def find(given: Given) -> Measured:
    shares, by_year = _years()
    cases, prices = _shadow_prices()
    found = list(cases.values())
    mean = {figure: float(np.mean([case[figure] for case in found])) for figure in FIGURES}
    first = [largest(case) for case in found]
    figures = shares | {
        f"elasticity_{name.replace(' ', '_').replace('/', '_per_')}": mean[name] for name in FIGURES
    }
    figures |= {
        "cases": float(len(cases)),
        "cases_of_flops": float(first.count("FLOP/s")),
        "throughput_at_half_power": float(np.mean([capped(*at, 0.5) for at in cases])),
    }
    facts = {
        "said": ", ".join(f"{digits(mean[name], 2)} {name}" for name in FIGURES),
        "counted": ", ".join(f"{first.count(name)} {name}" for name in FIGURES if name in first),
        "mean_largest": largest(mean),
    }
    return Measured(figures, (*by_year, prices), first_facts(found) | facts)


def _years() -> tuple[dict[str, float], tuple[Rows, ...]]:
    chips = load_catalog().chips
    points = smallest(list(models()), usable_chips(), PROMPT, OUTPUT, concurrency=BATCH)
    answer = predict(points, PROMPT, OUTPUT, serving="static")
    year = np.array([chips[point.chip].year or 0 for point in points])
    size, group = answer["total_parameters"], np.array([point.tp for point in points])
    total = np.add.reduce([answer.decode[part] for part in PARTS])
    causes, means = [], []
    for first, last in YEARS:
        name = f"{first}" if first == last else f"{first} to {last}"
        of_years = (year >= first) & (year <= last)
        means.append((name, *((answer.decode[p] / total)[of_years].mean() for p in PARTS)))
        for low, high in ((0.0, np.inf), *SIZES):
            inside = of_years & (size >= low) & (size < high)
            cells = (None,) * 5
            if inside.any():
                cells = (*answer.largest_shares("decode", inside), np.median(group[inside]))
            every = (low, high) == (0.0, np.inf)
            where = (name, "all") if every else ("", billions(low, high))
            causes.append((*where, inside.sum(), *cells))
    network, fixed = PARTS.index("network") + 1, PARTS.index("fixed") + 1
    figures = {
        "decode_compute_largest": float((answer.largest("decode") == "compute").mean()),
        "network_share_oldest": float(means[0][network]),
        "network_share_newest": float(means[-1][network]),
        "fixed_share_oldest": float(means[0][fixed]),
        "fixed_share_newest": float(means[-1][fixed]),
    }
    return figures, (causes, means)


@cache
def raised(chip: str, figure: str | None) -> tuple[Catalog, str]:
    """A catalog with the chip and one figure of it raised by STEP, and that chip's name; None
    raises nothing. It keeps its kernel laws as shares of its own figures."""
    catalog = load_catalog()
    if figure is None:
        return catalog, chip
    own = derive(catalog, chip, [f"{RAISED[figure]}=+{STEP:.0%}"])
    return with_own_chips(catalog, [own]), own.chip.id


def throughput(
    model: str,
    chip: str,
    chips: int,
    figure: str | None = None,
    power_cap_w: float | None = None,
) -> float:
    """Best output tokens per second and chip within LIMIT_S, over parallelism and concurrency, with
    one figure of the chip raised."""
    catalog, chip = raised(chip, figure)
    groups = [(chips, 1, chips if model == "deepseek-v3" else 1)]
    if model == "deepseek-v3":
        groups.append((1, chips, chips))
    points = [
        Point(model, chip, tp, 1.0, dp, ep, 1.0, concurrency, "fp8", "fp8")
        for tp, dp, ep in groups
        for concurrency in CONCURRENCY
    ]
    answer = predict(points, PROMPT, OUTPUT, catalog=catalog, power_cap_w=power_cap_w)
    tpot, each = answer["tpot_s"], answer["output_tokens_per_s_per_chip"]
    rate = np.where(answer.feasible & (tpot <= LIMIT_S), each, 0.0)
    best = int(np.argmax(rate))
    if best + 1 == len(rate) or rate[best + 1] <= 0.0 or tpot[best + 1] <= LIMIT_S:
        return float(rate[best])
    # Between the last load within the limit and the first beyond it.
    part = (LIMIT_S - tpot[best]) / (tpot[best + 1] - tpot[best])
    return float(rate[best] + part * (each[best + 1] - rate[best]))


@cache
def elasticities(model: str, chip: str, chips: int) -> dict[str, float]:
    """d ln(throughput) / d ln(figure) by a step of STEP, up from the chip's figure, of power up to
    it; NaN where nothing meets the limit."""
    base = throughput(model, chip, chips)
    if base == 0.0:
        return dict.fromkeys(FIGURES, math.nan)

    def gain(figure: str) -> float:
        if figure == "power":
            return 1.0 / capped(model, chip, chips, 1.0 / (1.0 + STEP))
        return throughput(model, chip, chips, figure) / base

    return {figure: math.log(gain(figure)) / math.log(1.0 + STEP) for figure in FIGURES}


@cache
def capped(model: str, chip: str, chips: int, part: float) -> float:
    """Throughput under a cap of `part` of the rated power, over that without a cap."""
    rated_w = load_catalog().chips[chip].tdp_w
    if rated_w is None:
        raise ValueError(f"{chip} has no rated power")
    cap_w = part * rated_w
    return throughput(model, chip, chips, power_cap_w=cap_w) / throughput(model, chip, chips)


def _shadow_prices() -> tuple[dict[tuple[str, str, int], dict[str, float]], Rows]:
    """The elasticities by model, chip and chips of every case that fits, and all as a table."""
    prices = load_catalog().prices.select("rental_3yr")
    rows, found = [], {}
    for chip in CHIPS:
        for model, chips in CASES:
            values = elasticities(model, chip, chips)
            at = (model, f"{chips} x {chip}")
            if not np.isfinite(list(values.values())).all():
                rows.append((*at, *("does not fit",) * len(FIGURES), None))
                continue
            found[model, chip, chips] = values
            worth = STEP * values["memory bandwidth"] * prices[chip].usd_per_chip_hour
            rows.append((*at, *(values[f] for f in FIGURES), worth))
    return found, rows
