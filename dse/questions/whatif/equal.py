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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dse import units
from dse.catalog import Catalog
from dse.errors import InputError
from dse.questions.whatif.breakeven import COST, Best, keep_better
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.inputs import Subject, show_limit
from dse.questions.whatif.solve import Points, Solved, chunks, describe
from dse.schema.costs import Cost, Costs
from dse.schema.metrics import METRICS, parse_limit
from dse.schema.owning import lacks_power, power_at_meter

RATE = "output_tokens_per_s"
# What an hour or a rack is counted in, and what a person writes.
BUDGETS = {"cost": "usd/h", "power": "W", "chips": "count", "racks": "count"}
LEVELS = {"quality": "predicted_loss", "latency": "tpot_s"}
KINDS = (*BUDGETS, *LEVELS)
RACK_W = 40e3
LARGEST_RACK = 144  # chips; a larger domain is joined by a network between racks
RACK_NOTE = (
    "a rack is taken to carry 40 kW (assumed: a common air-cooled limit; --rack-power changes it) "
    "in whole servers of 8 chips; a scale-up domain of more than 8 is a rack of its own, whatever "
    "it draws"
)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one chip takes of a budget, (chips,) in the order of the machines; NaN: not known.
    `draws` says of power and racks what each chip's watts rest on, by chip."""

    per_chip: np.ndarray
    words: str
    assumed: tuple[str, ...] = ()
    draws: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draw:
    """Watts of a chip with its share of the server: `watts` at the server or at the meter, as
    `figure` (of a chip file, or a cost) times `factors`, or over them; `of` is what the figure
    counts."""

    watts: float
    figure: Cost
    of: str
    factors: tuple[Cost, ...] = ()
    over: bool = False


def draw(catalog: Catalog, chip: str, costs: Costs, at_meter: bool) -> Draw | None:
    """What a chip draws at the meter or at the server, and from which figure that follows; None
    where no power of it is known."""
    if lacks_power(catalog, chip, costs) is not None:
        return None
    figure, server_w, meter_w = power_at_meter(catalog, chip, costs)
    facility, server = costs.inputs["facility_factor"], costs.inputs["server_power_factor"]
    if figure.value == meter_w:
        of = "all in, at the meter"
        return (
            Draw(meter_w, figure, of)
            if at_meter
            else Draw(server_w, figure, of, (facility,), over=True)
        )
    of, factors = "the chip with its share of the server", ()
    if figure.value != server_w:
        of, factors = "the chip alone, as rated", (server,)
    if at_meter:
        return Draw(meter_w, figure, of, (*factors, facility))
    return Draw(server_w, figure, of, factors)


def budget_of(subject: Subject, kind: str, rack_w: float) -> Budget:
    """What one chip takes of a budget of `kind`."""
    problem, catalog = subject.problem, subject.catalog
    machines, costs = problem.machines, problem.study.costs or catalog.costs
    if kind == "cost":
        return Budget(machines.usd_per_chip_hour, "USD per hour")
    if kind == "chips":
        return Budget(np.ones(len(machines.ids)), "chips")
    found = {chip: draw(catalog, chip, costs, kind == "power") for chip in machines.ids}
    watts = np.array([math.nan if one is None else one.watts for one in found.values()])
    draws = {chip: one for chip, one in found.items() if one is not None}
    used = dict.fromkeys(factor for one in draws.values() for factor in one.factors)
    notes = [f"{factor.name}: {_factor_words(factor)}" for factor in used]
    if missing := [chip for chip, one in found.items() if one is None]:
        notes.append(f"no power is known of {', '.join(missing)}")
    if kind == "power":
        where = "power is that at the meter: the chip with its share of server, network and cooling"
        return Budget(watts, "W", (where, *notes), draws)
    where = "a rack holds the power of its servers; cooling is outside it"
    racks = np.array(
        [
            1.0 / _chips_of_rack(catalog, chip, one, rack_w)
            for chip, one in zip(machines.ids, watts, strict=True)
        ]
    )
    return Budget(racks, "racks", (where, *notes, RACK_NOTE), draws)


def _factor_words(cost: Cost) -> str:
    """`1.36, estimated: power at the meter over that of the servers ...`."""
    return f"{cost.text}, {cost.kind}" + (f": {cost.note}" if cost.note else "")


def _chips_of_rack(catalog: Catalog, chip: str, watts: float, rack_w: float) -> float:
    """Chips that a rack holds: those of a scale-up domain that is a rack, else whole servers; NaN
    where it holds none, or what one draws is not known."""
    domain = catalog.systems[catalog.chip(chip).system].levels[0].size or 1
    if 8 < domain <= LARGEST_RACK:
        return float(domain)
    whole = math.floor(rack_w / watts / 8) * 8 if watts > 0 else 0
    return float(whole) if whole else math.nan


def racks_held(subject: Subject, point: Mapping[str, Any], rack_w: float) -> float | None:
    """Racks of the deployments that a demand takes; None where that is not known."""
    load, problem = point["at_average_load"], subject.problem
    if load is None or load["deployments"] is None:
        return None
    each = budget_of(subject, "racks", rack_w).per_chip[problem.machines.code(point["chip"])]
    needed = point["deployment"]["chips"] * each
    if not math.isfinite(needed):
        return None
    return _racks_of(load["deployments"], needed)


def _racks_of(deployments: int, needed: float) -> int:
    """Racks of so many deployments, each of which needs `needed` of one: several in one rack, or
    one over several whole ones."""
    in_one = math.floor(1.0 / needed * (1.0 + 1e-9))
    if in_one:
        return math.ceil(deployments / in_one)
    return deployments * math.ceil(needed * (1.0 - 1e-9))


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
    costs = budget_of(subject, kind, rack_w)
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
                    "draw": _draw_row(costs.draws.get(problem.machines.ids[code])),
                }
            )
    if not rows:
        known = math.isfinite(smallest)
        accepted = f"at least {_counted(smallest, costs.words)}" if known else "another limit"
        raise InputError(
            f"{_counted(budget, costs.words)}: too little for any deployment that keeps the limits",
            field="--at",
            accepted=accepted,
        )
    return _document(problem, kind, budget, costs.words, default, RATE, rows, list(costs.assumed))


def _draw_row(one: Draw | None) -> dict[str, Any] | None:
    return one and {
        "watts_per_chip": one.watts,
        "published": not one.factors,
        "figure": one.figure.name,
        "figure_w": one.figure.value,
        "of": one.of,
        "kind": one.figure.kind,
        "factors": {factor.name: factor.value for factor in one.factors},
        "over": one.over,
        "source": one.figure.source,
    }


def _in_racks(budget: float, needed: np.ndarray) -> np.ndarray:
    """Deployments in so many racks: several in one, or one over several whole racks."""
    per_rack = np.floor(1.0 / needed * (1.0 + 1e-9))
    over = np.ceil(needed * (1.0 - 1e-9))
    return np.where(per_rack >= 1.0, budget * per_rack, np.floor(budget / over))


def _budget_of(problem: Demanded, before: Solved, costs: Budget) -> float:
    """What the winner's deployments take for the demand; without one, ten of them: enough that
    whole deployments compare fairly."""
    assert before.winner_id is not None
    batch = problem.batch(problem.space.unrank(np.array([before.winner_id])))
    found = float(batch.chips[0] * costs.per_chip[batch.chip[0]])
    if not math.isfinite(found):
        chip = problem.machines.ids[batch.chip[0]]
        raise InputError(
            f"how much {chip} takes is not known", field="--equal", accepted="--at AMOUNT"
        )
    load = describe(problem, np.array([before.winner_id]))[0]["at_average_load"]
    held = 10 if load is None or load["deployments"] is None else load["deployments"]
    return _racks_of(held, found) if costs.words == "racks" else held * found


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
                f"the winner has no {metric}",
                field="--equal",
                accepted="--training-tokens, or a space of shapes",
            )
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
            "draw": None,
        }
        for code, (value, point) in best.items()
    ]
    if not rows:
        raise InputError(
            f"no chip keeps the limits at {metric} <= {show_limit(metric, at)}",
            field="--at",
            accepted="a looser one",
        )
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
    return _counted(level, row["unit"])


def _counted(amount: float, unit: str) -> str:
    """`1 rack`, `10 chips`, `23 USD per hour`, `40 kW`."""
    if unit == "W":
        return units.format(amount, "W", 4)
    if amount == 1.0 and unit in ("racks", "chips"):
        unit = unit.removesuffix("s")
    return f"{amount:,.4g} {unit}"
