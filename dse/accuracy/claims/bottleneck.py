"""What binds, by year and size, and what more of each thing would be worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from dse.accuracy.claims.engine import Fact, Given, Measured, Rows
from dse.accuracy.claims.points import PARTS, Point, models, predict, smallest, usable_chips
from dse.answer.numbers import digits, percent
from dse.catalog import Catalog, load_catalog
from dse.schema.chip import Chip
from dse.schema.system import System

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
FIGURES = (
    "memory bandwidth",
    "memory capacity",
    "FLOP/s",
    "link bandwidth",
    "network bandwidth",
    "power",
)
CONCURRENCY = tuple(float(round(2 ** (k / 4))) for k in range(8, 49))


def first_facts(cases: Sequence[Mapping[str, float]]) -> dict[str, Fact]:
    """Of the elasticities of each case to each of FIGURES: `flops_first`, the share of cases in
    which that to FLOP/s is the largest; `every_limit`, the share of LIMITS that are the largest in
    some case."""
    first = [largest(case) for case in cases]
    reached = [any(figure in first for figure in figures) for figures in LIMITS.values()]
    return {
        "flops_first": first.count("FLOP/s") / len(first),
        "every_limit": sum(reached) / len(reached),
    }


def largest(case: Mapping[str, float]) -> str:
    """The figure of the largest single elasticity."""
    return max(case, key=lambda figure: case[figure])


def find(given: Given) -> Measured:
    shares, by_year = _years()
    places, cases, prices = _shadow_prices()
    mean = {figure: float(np.mean([case[figure] for case in cases])) for figure in FIGURES}
    first = [largest(case) for case in cases]
    figures = shares | {
        f"elasticity_{name.replace(' ', '_').replace('/', '_per_')}": mean[name] for name in FIGURES
    }
    figures |= {
        "cases": float(len(cases)),
        "cases_of_flops": float(first.count("FLOP/s")),
        "throughput_at_half_power": float(np.mean([capped(*at, 0.5) for at in places])),
    }
    said = ", ".join(f"{digits(mean[name], 2)} {name}" for name in FIGURES)
    counted = ", ".join(f"{first.count(name)} {name}" for name in FIGURES if name in first)
    return Measured(
        figures,
        (*by_year, prices),
        first_facts(cases) | {"said": said, "counted": counted, "mean_largest": largest(mean)},
    )


def _years() -> tuple[dict[str, float], tuple[Rows, ...]]:
    chips = load_catalog().chips
    points = smallest(list(models()), usable_chips(), PROMPT, OUTPUT, concurrency=BATCH)
    answer = predict(points, PROMPT, OUTPUT, serving="static")
    year = np.array([chips[point.chip].year or 0 for point in points])
    size, group = answer["total_parameters"], np.array([point.tp for point in points])
    largest = answer.largest("decode")
    total = np.add.reduce([answer.decode[part] for part in PARTS])
    share = {part: answer.decode[part] / total for part in PARTS}
    rows, network = [], []
    for low, high in YEARS:
        inside = (year >= low) & (year <= high)
        network.append(float(share["network"][inside].mean()))
        rows += [_cell(_years_of(low, high), largest, group, inside, None)]
        rows += [
            _cell("", largest, group, inside & _within(size, bounds), bounds) for bounds in SIZES
        ]
    table = rows
    means = tuple(
        (
            _years_of(low, high),
            *(percent(float(share[part][(year >= low) & (year <= high)].mean())) for part in PARTS),
        )
        for low, high in YEARS
    )
    parts = means
    newest = (year >= YEARS[-1][0]) & (year <= YEARS[-1][1])
    oldest = (year >= YEARS[0][0]) & (year <= YEARS[0][1])
    figures = {
        "decode_compute_largest": float((largest == "compute").mean()),
        "network_share_oldest": network[0],
        "network_share_newest": network[-1],
        "fixed_share_oldest": float(share["fixed"][oldest].mean()),
        "fixed_share_newest": float(share["fixed"][newest].mean()),
    }
    return figures, (table, parts)


def _years_of(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _within(size: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    return (size >= bounds[0]) & (size < bounds[1])


def _cell(
    name: str, largest: np.ndarray, group: np.ndarray, inside: np.ndarray, bounds
) -> tuple[str, ...]:
    size = "all"
    if bounds is not None:
        low, high = bounds[0] / 1e9, bounds[1] / 1e9
        size = f"{low:g} to {high:g}" if np.isfinite(high) else f"from {low:g}"
    if not inside.any():
        return (name, size, "0", *("–",) * 5)
    shares = (percent(float((largest[inside] == part).mean())) for part in PARTS)
    return (name, size, f"{inside.sum():,}", *shares, f"{np.median(group[inside]):g}")


def raised(catalog: Catalog, chip: str, figure: str | None) -> Catalog:
    """The catalog with one figure of a chip raised by STEP; None raises nothing. The chip keeps its
    kernel laws as shares of its own figures, as a derived chip does."""
    spec = catalog.chips[chip]
    laws, up = catalog.efficiencies[spec.efficiency], 1.0 + STEP
    lent = replace(laws, id=f"{laws.id.partition(':')[0]}:{chip} raised")
    system = catalog.systems[spec.system]
    spec = replace(spec, efficiency=lent.id)
    if figure == "memory bandwidth":
        spec = _memory(spec, bandwidth=up)
    elif figure == "memory capacity":
        spec = _memory(spec, capacity=up)
    elif figure == "FLOP/s":
        peaks = {name: up * value for name, value in spec.peak_flops_per_s.items()}
        spec = replace(spec, peak_flops_per_s=peaks)
    elif figure in ("link bandwidth", "network bandwidth"):
        system = _faster(system, 0 if figure == "link bandwidth" else -1, up)
    return replace(
        catalog,
        chips={**catalog.chips, chip: spec},
        efficiencies={**catalog.efficiencies, lent.id: lent},
        systems={**catalog.systems, spec.system: system},
    )


def _memory(chip: Chip, bandwidth: float = 1.0, capacity: float = 1.0) -> Chip:
    first = chip.memories[0]
    more = replace(first, bytes=first.bytes * capacity, bytes_per_s=first.bytes_per_s * bandwidth)
    memories = (more, *chip.memories[1:])
    return replace(chip, memories=memories, capacity_bytes=chip.capacity_bytes * capacity)


def _faster(system: System, level: int, up: float) -> System:
    levels = list(system.levels)
    one = levels[level]
    pair = one.bytes_per_s_per_pair
    levels[level] = replace(
        one,
        bytes_per_s_per_direction=one.bytes_per_s_per_direction * up,
        bytes_per_s_per_pair=None if pair is None else pair * up,
    )
    return replace(system, levels=tuple(levels))


def throughput(
    model: str, chip: str, chips: int, catalog: Catalog, power_cap_w: float | None = None
) -> float:
    """Best output tokens per second and chip within LIMIT_S, over parallelism and concurrency."""
    groups = [(chips, 1, chips if model == "deepseek-v3" else 1)]
    if model == "deepseek-v3":
        groups.append((1, chips, chips))
    points = [
        Point(model, chip, tp, 1.0, dp, ep, 1.0, concurrency, "fp8", "fp8")
        for tp, dp, ep in groups
        for concurrency in CONCURRENCY
    ]
    answer = predict(points, PROMPT, OUTPUT, catalog=catalog, power_cap_w=power_cap_w)
    rate = np.where(
        answer.feasible & (answer["tpot_s"] <= LIMIT_S), answer["output_tokens_per_s_per_chip"], 0.0
    )
    best = int(np.argmax(rate))
    if best + 1 == len(rate) or rate[best + 1] <= 0.0 or answer["tpot_s"][best + 1] <= LIMIT_S:
        return float(rate[best])
    # Between the last load within the limit and the first beyond it.
    share = (LIMIT_S - answer["tpot_s"][best]) / (
        answer["tpot_s"][best + 1] - answer["tpot_s"][best]
    )
    return float(
        rate[best] + share * (answer["output_tokens_per_s_per_chip"][best + 1] - rate[best])
    )


@cache
def elasticities(model: str, chip: str, chips: int) -> dict[str, float]:
    """d ln(throughput) / d ln(figure) by a step of STEP, up from the chip's figure, of power up to
    it; NaN where nothing meets the limit."""
    catalog = load_catalog()
    base = throughput(model, chip, chips, raised(catalog, chip, None))

    def gain(figure: str) -> float:
        if figure == "power":
            return 1.0 / capped(model, chip, chips, 1.0 / (1.0 + STEP))
        return throughput(model, chip, chips, raised(catalog, chip, figure)) / base

    if base == 0.0:
        return dict.fromkeys(FIGURES, math.nan)
    return {figure: math.log(gain(figure)) / math.log(1.0 + STEP) for figure in FIGURES}


@cache
def capped(model: str, chip: str, chips: int, share: float) -> float:
    """Throughput under a cap of `share` of the rated power, over that without a cap."""
    catalog = raised(load_catalog(), chip, None)
    rated_w = catalog.chips[chip].tdp_w
    if rated_w is None:
        raise ValueError(f"{chip} has no rated power")
    full = throughput(model, chip, chips, catalog)
    return throughput(model, chip, chips, catalog, share * rated_w) / full


def _shadow_prices() -> tuple[list[tuple[str, str, int]], list[dict[str, float]], Rows]:
    """Model, chip and chips of every case that fits, its elasticities, and all as a table."""
    prices = load_catalog().prices.select("rental_3yr")
    rows, places, found = [], [], []
    for chip in CHIPS:
        for model, chips in CASES:
            values = elasticities(model, chip, chips)
            if not np.isfinite(list(values.values())).all():
                rows.append((model, f"{chips} x {chip}", *("does not fit",) * len(FIGURES), "–"))
                continue
            places.append((model, chip, chips))
            found.append(values)
            worth = STEP * values["memory bandwidth"] * prices[chip].usd_per_chip_hour
            rows.append(
                (
                    model,
                    f"{chips} x {chip}",
                    *(digits(values[f], 2) for f in FIGURES),
                    f"${worth:.3f}",
                )
            )
    return (places, found, rows)
