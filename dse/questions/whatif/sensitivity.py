"""Elasticities, shadow prices and the tornado: how the winner's cost moves with each input.

An elasticity is d ln y / d ln x by central differences of a step of 1% on either side:
(ln y(x (1 + h)) - ln y(x (1 - h))) / (ln(1 + h) - ln(1 - h)), from x itself on the side on which
the input has no other value (a share of 100%). It is given of the winner as it is
deployed, and of the optimum that is found again at either side: the envelope, never above the
winner's own. A shadow price is what a finite step of a limit or a memory is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.labels import label
from dse.answer.numbers import dollars, number, tenths
from dse.answer.plots import BLUE, VERMILION, bars, hatch, names_axis, plain
from dse.errors import InputError
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.inputs import (
    COSTS,
    DEMAND,
    FIGURES,
    PEAK,
    PRICE,
    Change,
    Input,
    apply,
    checked,
    inputs_of,
    show_limit,
)
from dse.questions.whatif.solve import SLACK, Progress, Stand, metrics_at, reach_of
from dse.questions.whatif.subject import Subject
from dse.questions.whatif.words import Json, named
from dse.schema.costs import CHIP_RULES, RULES
from dse.schema.metrics import METRICS

STEP = 0.01
TORNADO = 0.10
TPOT = "tpot_s"
# The step of a limit whose shadow price is asked, SI; of other limits it is a tenth.
STEPS = {"tpot_s": 5e-3, "ttft_s": 0.1, "e2e_s": 1.0, "predicted_loss": 0.01}
GIGABYTES = 10e9
# Evaluations that may be spent on points far from the winner.
MOST_EVALUATIONS = 4_000_000
ELASTICITIES = ("elasticity", "elasticity_tpot", "elasticity_optimum")
ENDS = ("at_10_percent_less", "at_10_percent_more")


def found_of(stand: Stand, progress: Progress = lambda text: None) -> dict[str, Any]:
    """What it adds to the document: of all points where they are few, else of those that a small
    change can make the winner."""
    passes = 5 * len(sensitivity_inputs(stand.subject, stand.winner["chip"]))
    words = "the optimum was found again among all points"
    if len(stand.points.ids) * passes > MOST_EVALUATIONS:
        stand = stand.near()
        words = (
            f"the optimum was found again among the {len(stand.points.ids):,} points within "
            f"{reach_of(stand.problem) - 1.0:.0%} of the winner and {SLACK:.0%} of the limits"
        )
    return {
        "sensitivities": sensitivities(stand, progress),
        "shadow_prices": shadow_prices(stand, progress),
        "sensitivities_how": words,
    }


def sensitivity_inputs(subject: Subject, chip: str) -> list[Input]:
    """The inputs of the winner that have a value above zero: of its chip, of the workloads, the
    demand, and the costs of owning."""
    known = inputs_of(subject)
    names = [f"chip.{chip}.{figure}" for figure in (PRICE, *FIGURES)]
    several = len(subject.problem.mix) > 1
    names += [
        name for name in known if name.startswith("workload.") and (name.count(".") == 2) == several
    ]
    demand = subject.problem.demand is not None  # which takes the place of a utilisation
    names += [DEMAND, PEAK] if demand else []
    names += [f"{COSTS}{name}" for name in RULES if not (demand and name == "utilisation")]
    names += [f"{COSTS}{chip}.{name}" for name in CHIP_RULES]
    return [known[name] for name in names if name in known and (known[name].now or 0.0) > 0.0]


def elasticity(
    y_low: float | None, y_high: float | None, low: float = 1.0 - STEP, high: float = 1.0 + STEP
) -> float | None:
    """d ln y / d ln x of y at x times `low` and `high`; None where y is not known at both."""
    if not (y_low and y_high and y_low > 0.0 and y_high > 0.0) or low == high:
        return None
    return (math.log(y_high) - math.log(y_low)) / (math.log(high) - math.log(low)) + 0.0


def sensitivities(stand: Stand, progress: Progress = lambda text: None) -> list[dict[str, Any]]:
    """A row of each input, strongest first: elasticities of the winner's objective and time per
    output token, that of the optimum found again, and the objective at 10% less and more."""
    base, rows = stand.now.value, []
    assert base is not None
    for one in sensitivity_inputs(stand.subject, stand.winner["chip"]):
        progress(f"sensitivity to {one.name}")
        near = [_at(stand, one, 1.0 + step) or (1.0, stand.problem) for step in (-STEP, STEP)]
        (low, _), (high, _) = near
        own = [_fixed(stand, problem) for _, problem in near]
        again = [stand.solve(problem).value for _, problem in near]
        far = [_at(stand, one, 1.0 + step) for step in (-TORNADO, TORNADO)]
        wide = [None if end is None else stand.solve(end[1]).value for end in far]
        rows.append(
            {
                "input": one.name,
                "now": one.now,
                "words": one.show(one.now or 0.0),
                "unit": one.dimension,
                "elasticity": elasticity(own[0][0], own[1][0], low, high),
                "elasticity_tpot": elasticity(own[0][1], own[1][1], low, high),
                "elasticity_optimum": elasticity(again[0], again[1], low, high),
                "at_10_percent_less": None if wide[0] is None else wide[0] / base - 1.0,
                "at_10_percent_more": None if wide[1] is None else wide[1] / base - 1.0,
            }
        )
    return sorted(rows, key=lambda row: max(abs(row[end] or 0.0) for end in ENDS), reverse=True)


def _at(stand: Stand, one: Input, factor: float) -> tuple[float, Demanded] | None:
    """(factor, the study with one input times it); None where it cannot have that value."""
    try:
        change = checked(Change(one, factor, None, f"{factor:g}x"), one.name)
        return factor, apply(stand.subject, [change])
    except InputError:
        return None


def _fixed(stand: Stand, problem: Demanded) -> list[float | None]:
    """[objective, time per output token] of the winner as it is deployed, feasible or not."""
    values = metrics_at(problem, np.array([stand.now.winner_id])).values
    return [number(values[name][0]) for name in (stand.objective, TPOT)]


def shadow_prices(stand: Stand, progress: Progress = lambda text: None) -> list[dict[str, Any]]:
    """What a step of each limit, and of the memory of the winner's chip, is worth: the objective of
    the optimum found again, and, of the memory, the dollars per chip-hour that it may cost more
    before nothing is gained."""
    problem, chip = stand.problem, stand.winner["chip"]
    base, price = (
        stand.now.value,
        float(problem.machines.usd_per_chip_hour[problem.machines.code(chip)]),
    )
    assert base is not None
    known = inputs_of(stand.subject)
    asked: list[tuple[str, Change, str]] = []
    capacity = known[f"chip.{chip}.memory_capacity"]
    if capacity.now is not None:
        change = Change(capacity, (capacity.now + GIGABYTES) / capacity.now)
        asked.append(("memory", change, "10 GB more memory"))
    for limit in problem.limits:
        prefix = f"limit.{limit.workload}." if limit.workload else "limit."
        step = STEPS.get(limit.metric, 0.1 * abs(limit.limit))
        if METRICS[limit.metric].dimension == "count":
            step = float(max(round(step), 1))
        change = Change(known[f"{prefix}{limit.metric}"], 1.0, limit.limit + limit.sign * step)
        more = "more" if limit.sign > 0 else "less"
        asked.append(
            ("limit", change, f"{show_limit(limit.metric, step)} {more} of {limit.metric}")
        )
    sign = 1.0 if METRICS[stand.objective].direction == "minimize" else -1.0
    rows = []
    for kind, change, words in asked:
        progress(f"shadow price of {change.input.name}")
        found = stand.under(change).value
        gain = None if found is None else sign * (1.0 - found / base) + 0.0
        worth = None
        if (
            kind == "memory"
            and found
            and stand.objective.startswith("usd_")
            and math.isfinite(price)
        ):
            worth = price * (base / found - 1.0) + 0.0
        rows.append(
            {
                "kind": kind,
                "input": change.input.name,
                "step": words,
                "now": change.input.now,
                "after": change.after,
                "gain": gain,
                "usd_per_chip_hour": worth,
                "binds": bool(gain is not None and gain > 0.0),
            }
        )
    return rows


def sentences(document: Json) -> list[str]:
    shadows = [_shadow(row) for row in document["shadow_prices"] if row["gain"] is not None]
    return [_moves(document), *shadows]


def blocks(document: Json) -> list[Block]:
    return [_tornado(document), _table(document), _shadow_table(document["shadow_prices"])]


def _moves(document: Json) -> str:
    rows, metric = document["sensitivities"], named(document["objective"])
    few = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in [row for row in rows if row["elasticity_optimum"] is not None][:4]
        if abs(row["elasticity_optimum"]) >= 0.005
    ]
    said = f"No input moves the {metric} near where it stands"
    if few:
        said = f"One percent more of an input moves the {metric}, deployed anew, by: "
        said += ", ".join(few)
    for row in rows:  # a tenth of the demand buys or saves a whole deployment or none
        less, more = (row[end] for end in ENDS)
        if row["input"] == DEMAND and None not in (less, more):
            ends = f"10% less {tenths(less, sign=True)}, 10% more {tenths(more, sign=True)}"
            said += f"; of demand, since deployments are whole, {ends}"
    return f"{said}."


def _shadow(row: Json) -> str:
    worth, of, step, gain = row["usd_per_chip_hour"], "the limit", row["step"], tenths(row["gain"])
    if row["kind"] == "memory":
        of, step = "memory", f"{step} on {row['input'].split('.')[1]}"
        if row["binds"] and worth is not None:
            return f"{step} is worth {dollars(worth)} per chip-hour here ({gain} of the cost)."
    elif row["binds"]:
        return f"{step} is worth {gain}."
    return f"{step} is worth nothing here: {of} does not bind."


def _table(document: Json) -> Table:
    shown = [row for row in document["sensitivities"] if _moves_at_all(row)]
    still = [row["input"] for row in document["sensitivities"] if not _moves_at_all(row)]
    notes = [
        "Percent for one percent of the input, by central differences of 1%. winner: deployed as "
        "it is; optimum: deployed anew on either side, the envelope."
    ]
    if any(_bends(row) for row in shown):
        notes.append(
            "~ a step, or a bend, lies near: over 10% on either side, it moves by another half or "
            "more."
        )
    if still:
        notes.append(
            f"Less than 0.5% within 10%, and elasticities below 0.005: {', '.join(still)}."
        )
    how = document["sensitivities_how"]
    return Table(
        "sensitivities",
        f"Elasticities of the {named(document['objective'])}, strongest first",
        (
            Column("input", "input", first=True),
            Column("words", "now", right=True, first=True),
            Column("elasticity", "winner", "signed"),
            Column("elasticity_tpot", "its tpot", "signed"),
            Column("elasticity_optimum", "optimum", "signed"),
            Column("bends", ""),
            Column("at_10_percent_less", "10% less", "change", first=True),
            Column("at_10_percent_more", "10% more", "change", first=True),
        ),
        [{**row, "bends": "~" if _bends(row) else ""} for row in shown],
        (*notes, f"{how[0].upper()}{how[1:]}."),
    )


def _moves_at_all(row: Json) -> bool:
    moved = any(abs(row[key] or 0.0) >= 5e-3 for key in (*ELASTICITIES, *ENDS))
    return moved or row["elasticity"] is None


def _bends(row: Json) -> bool:
    """Whether 10% on either side say otherwise than 1% do."""
    less, more, near = (row[key] for key in (*ENDS, "elasticity_optimum"))
    if None in (less, more, near) or min(less, more) <= -1.0:
        return False
    wide = (math.log1p(more) - math.log1p(less)) / math.log(1.1 / 0.9)
    return abs(wide - near) > 0.05 + 0.5 * min(abs(wide), abs(near))


def _shadow_table(rows: Sequence[Json]) -> Table:
    return Table(
        "shadow prices",
        "Shadow prices: what a step of a limit is worth, deployed anew",
        (
            Column("step", "step"),
            Column("gain", "gain", "tenths"),
            Column("usd_per_chip_hour", "worth per chip-hour", "dollars"),
            Column("binds", "binds"),
        ),
        rows,
    )


def _tornado(document: Json) -> Figure:
    """Bars of the change of the optimum, strongest on top; inputs without effect are left out."""
    rows = [
        row
        for row in document["sensitivities"]
        if any(abs(row[key] or 0.0) >= 5e-4 for key in ENDS)
    ][::-1]
    names = [plain(row["input"]) for row in rows]
    traces = []
    for key, name, colour, shape in zip(
        ENDS, ("input 10% less", "input 10% more"), (BLUE, VERMILION), ("", "/"), strict=True
    ):
        values = [None if row[key] is None else 100.0 * row[key] for row in rows]
        trace = bars(name, values, names, colour)
        trace["marker"]["pattern"] = hatch(shape)
        traces.append(trace | {"hoverinfo": "x+name"})
    objective = label(document["objective"]).text
    layout = {
        "height": 120 + 44 * max(len(rows), 1),
        "barmode": "group",
        "bargap": 0.35,
        "xaxis": {"title": {"text": plain(f"change of {objective} (%)")}, "zeroline": True},
        "yaxis": names_axis(names),
    }
    return Figure(
        "tornado",
        f"What moves {objective}: each input 10% less and 10% more",
        {"data": traces, "layout": layout},
        f"For each input, by how many percent the {objective} changes where it is 10% less and "
        "10% more, deployed anew.",
    )
