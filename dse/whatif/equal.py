"""Iso-questions: at equal cost, power, chips, racks, quality or latency, which chip wins and by
how much.

A budget (dollars per hour, watts, chips, racks) buys whole deployments: as many as it pays for, at
their full rate. Of each chip the deployment counts that serves most output tokens per second within
the budget and the limits. At equal quality or latency, each chip's cheapest deployment that is at
least as good counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse import units
from dse.errors import InputError
from dse.specs.catalog import Catalog
from dse.specs.metrics import METRICS, parse_limit
from dse.whatif.breakeven import COST, Best, keep_better
from dse.whatif.demand import Demanded
from dse.whatif.inputs import Subject, show_limit
from dse.whatif.solve import Points, Solved, chunks, describe

RATE = "output_tokens_per_s"
# What an hour or a rack is counted in, and what a person writes.
BUDGETS = {"cost": "usd/h", "power": "W", "chips": "count", "racks": "count"}
LEVELS = {"quality": "predicted_loss", "latency": "tpot_s"}
KINDS = (*BUDGETS, *LEVELS)
RACK_W = 40e3
LARGEST_RACK = 144  # chips; a larger domain is joined by a network between racks
RACK_NOTE = (
    "a rack is taken to carry 40 kW (assumed: a common air-cooled limit; --rack-power changes it), "
    "and a scale-up domain of more than 8 chips is a rack of its own, whatever it draws"
)


@dataclass(frozen=True, slots=True)
class Costs:
    """What one chip takes of a budget, (chips,) in the order of the machines; NaN: not known."""

    per_chip: np.ndarray
    words: str
    assumed: tuple[str, ...]


def all_in_w(catalog: Catalog, chip: str) -> tuple[float, bool]:
    """(watts of a chip with its share of the server, whether somebody states them): without such
    a figure, its rated power alone. NaN where neither is known."""
    spec = catalog.chip(chip)
    if spec.system_w_per_chip is not None:
        return spec.system_w_per_chip, True
    return (math.nan if spec.tdp_w is None else spec.tdp_w), False


def costs_of(subject: Subject, kind: str, rack_w: float) -> Costs:
    """What one chip takes of a budget of `kind`."""
    machines, catalog = subject.problem.machines, subject.catalog
    if kind == "cost":
        return Costs(machines.usd_per_chip_hour, "USD per hour", ())
    if kind == "chips":
        return Costs(np.ones(len(machines.ids)), "chips", ())
    found = [all_in_w(catalog, chip) for chip in machines.ids]
    watts = np.array([one for one, _ in found])
    bare = [chip for chip, (_, known) in zip(machines.ids, found, strict=True) if not known]
    notes = ["power is that of the chip with its share of the server, at its rating, no cooling"]
    if bare:
        notes.append(f"{', '.join(bare)}: the server's share is not known, the rated power counts")
    if kind == "power":
        return Costs(watts, "W", tuple(notes))
    per_rack = []
    for chip, one in zip(machines.ids, watts, strict=True):
        domain = catalog.systems[catalog.chip(chip).system].levels[0].size or 1
        whole = math.floor(rack_w / one / 8) * 8 if one > 0 else math.nan
        per_rack.append(domain if 8 < domain <= LARGEST_RACK else whole)
    racks = np.array([1.0 / one if one > 0 else math.nan for one in per_rack])
    return Costs(racks, "racks", (*notes, RACK_NOTE))


def read_level(kind: str, text: str | None) -> float | None:
    """The budget or level that `--at` gives. Raises InputError."""
    if text is None:
        return None
    if kind == "quality":
        value = parse_limit(text, METRICS["predicted_loss"].dimension)
    else:
        dimension = {**BUDGETS, "latency": "s"}[kind]
        try:
            value = units.parse(text, dimension)
        except InputError as error:
            raise InputError(error.message, field="--at", accepted=error.accepted) from None
    if value <= 0.0:
        raise InputError(f"read {text!r}", field="--at", accepted="more than 0")
    return value


def equal(
    subject: Subject,
    points: Points,
    before: Solved,
    kind: str,
    at: float | None = None,
    rack_w: float = RACK_W,
) -> dict[str, Any]:
    """The chips at an equal amount of `kind`; without `at`, at that of the winner.

    Raises InputError for a budget that buys no deployment of any chip, and for a quality that is
    not known.
    """
    if kind in LEVELS:
        return _at_level(subject.problem, points, before, kind, at)
    return _at_budget(subject, points, before, kind, at, rack_w)


def _at_budget(
    subject: Subject, points: Points, before: Solved, kind: str, at: float | None, rack_w: float
) -> dict[str, Any]:
    problem = subject.problem
    costs = costs_of(subject, kind, rack_w)
    default = at is None
    budget = at if at is not None else _budget_of(problem, before, costs)
    best: Best = {}
    smallest = math.inf
    for ids, metrics, judged in chunks(problem, points.ids):
        batch = problem.batch(problem.space.unrank(ids))
        needed = batch.chips * costs.per_chip[batch.chip]
        feasible = (judged.G <= 0.0).all(axis=1) & np.isfinite(needed)
        if kind == "racks":
            many = _in_racks(budget, needed)
        else:
            many = np.floor(budget * (1.0 + 1e-9) / needed)
        if feasible.any():
            smallest = min(smallest, float(needed[feasible].min()))
        rate = np.where(feasible & (many >= 1.0), many * metrics.values[RATE], 0.0)
        keep_better(best, problem, ids, -rate)
    rows = []
    for code, (value, point) in best.items():
        if value < 0.0:
            one = describe(problem, np.array([point]), (RATE, COST))[0]
            rate = one["metrics"][RATE]
            rows.append(
                {
                    "chip": problem.machines.ids[code],
                    "value": -value,
                    "deployments": round(-value / rate) if rate else 0,
                    "chips": round(-value / rate) * one["deployment"]["chips"] if rate else 0,
                    "point": one,
                }
            )
    if not rows:
        least = f"{smallest:,.4g}" if math.isfinite(smallest) else "another limit"
        raise InputError(
            f"{budget:,.4g} {costs.words} buy no deployment that keeps the limits",
            field="--at", accepted=f"at least {least} {costs.words}",
        )  # fmt: skip
    return _document(problem, kind, budget, costs.words, default, RATE, rows, list(costs.assumed))


def _in_racks(budget: float, needed: np.ndarray) -> np.ndarray:
    """Deployments in so many racks: several in one, or one over several whole racks."""
    per_rack = np.floor(1.0 / needed * (1.0 + 1e-9))
    over = np.ceil(needed * (1.0 - 1e-9))
    return np.where(per_rack >= 1.0, budget * per_rack, np.floor(budget / over))


def _budget_of(problem: Demanded, before: Solved, costs: Costs) -> float:
    """What ten of the winner's deployments take: enough that whole deployments compare fairly."""
    assert before.winner_id is not None
    batch = problem.batch(problem.space.unrank(np.array([before.winner_id])))
    found = float(batch.chips[0] * costs.per_chip[batch.chip[0]])
    if not math.isfinite(found):
        chip = problem.machines.ids[batch.chip[0]]
        raise InputError(
            f"how much {chip} takes is not known", field="--equal", accepted="--at AMOUNT"
        )
    return math.ceil(10.0 * found) if costs.words == "racks" else 10.0 * found


def _at_level(
    problem: Demanded, points: Points, before: Solved, kind: str, at: float | None
) -> dict[str, Any]:
    metric = LEVELS[kind]
    default = at is None
    if at is None:
        assert before.winner_id is not None
        one = describe(problem, np.array([before.winner_id]), (metric,))[0]
        at = one["metrics"][metric]
        if at is None:
            raise InputError(
                f"the winner has no {metric}", field="--equal", accepted="--training-tokens, or "
                "a space of shapes",
            )  # fmt: skip
    best: Best = {}
    for ids, metrics, judged in chunks(problem, points.ids):
        good = metrics.values[metric] <= at * (1.0 + 1e-12)
        feasible = (judged.G <= 0.0).all(axis=1) & good
        keep_better(best, problem, ids, np.where(feasible, metrics.values[COST], np.inf))
    rows = [
        {
            "chip": problem.machines.ids[code],
            "value": value,
            "deployments": None,
            "chips": None,
            "point": describe(problem, np.array([point]), (metric, COST))[0],
        }
        for code, (value, point) in best.items()
    ]
    if not rows:
        raise InputError(
            f"no chip keeps the limits at {metric} <= {show_limit(metric, at)}",
            field="--at", accepted="a looser one",
        )  # fmt: skip
    return _document(problem, kind, at, metric, default, COST, rows, [])


def _document(
    problem: Demanded,
    kind: str,
    level: float,
    unit: str,
    default: bool,
    metric: str,
    rows: list[dict[str, Any]],
    assumed: list[str],
) -> dict[str, Any]:
    """Rows in order, the best first, each with what it falls short of the best by."""
    more = metric == RATE
    rows.sort(key=lambda row: (-row["value"] if more else row["value"], row["chip"]))
    first = rows[0]["value"]
    for row in rows:
        row["over_best"] = row["value"] / first - 1.0
    seen = [row["chip"] for row in rows]
    return {
        "kind": kind,
        "level": level,
        "unit": unit,
        "level_is_the_winners": default,
        "metric": metric,
        "rows": rows,
        "without": [chip for chip in problem.machines.ids if chip not in seen],
        "assumed": assumed,
    }


def level_words(row: Mapping[str, Any]) -> str:
    """`40 kW`, `10 chips`, `tpot_s <= 30 ms`."""
    kind, level = row["kind"], row["level"]
    if kind in LEVELS:
        return f"{LEVELS[kind]} <= {show_limit(LEVELS[kind], level)}"
    if kind == "power":
        return units.format(level, "W", 4)
    return f"{level:,.4g} {row['unit']}"
