"""Elasticities, shadow prices and the tornado: how the winner's cost moves with each input.

An elasticity is d ln y / d ln x by central differences of a step of 1% on either side:
(ln y(x (1 + h)) - ln y(x (1 - h))) / (ln(1 + h) - ln(1 - h)), from x itself on the side on which
the input has no other value (a share of 100%). It is given of the winner as it is
deployed, and of the optimum that is found again at either side: the envelope, never above the
winner's own. A shadow price is what a finite step of a limit or a memory is worth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.questions.whatif.change import best
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.inputs import (
    COSTS,
    DEMAND,
    FIGURES,
    PEAK,
    PRICE,
    Change,
    Input,
    Subject,
    apply,
    checked,
    inputs_of,
    show,
    show_limit,
)
from dse.questions.whatif.solve import Points, Progress, Solved, metrics_at, solve
from dse.schema.costs import CHIP_RULES, RULES
from dse.schema.metrics import METRICS

STEP = 0.01
TORNADO = 0.10
TPOT = "tpot_s"
# The step of a limit whose shadow price is asked, SI; of other limits it is a tenth.
STEPS = {"tpot_s": 5e-3, "ttft_s": 0.1, "e2e_s": 1.0, "predicted_loss": 0.01}
GIGABYTES = 10e9


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


def sensitivities(
    subject: Subject,
    points: Points,
    before: Solved,
    objective: str,
    chip: str,
    progress: Progress = lambda text: None,
) -> list[dict[str, Any]]:
    """A row of each input, strongest first: elasticities of the winner's objective and time per
    output token, that of the optimum found again, and the objective at 10% less and more."""
    assert before.winner_id is not None
    rows = []
    for one in sensitivity_inputs(subject, chip):
        progress(f"sensitivity to {one.name}")
        ends = [_end(subject, one, 1.0 + step) for step in (-STEP, STEP)]
        low, high = (factor for factor, _ in ends)
        own = [_fixed(problem, before.winner_id, objective) for _, problem in ends]
        again = [best(solve(problem, points, objective), objective) for _, problem in ends]
        wide = [_optimum(subject, points, one, 1.0 + f, objective) for f in (-TORNADO, TORNADO)]
        base = best(before, objective)
        assert base is not None
        rows.append(
            {
                "input": one.name,
                "now": one.now,
                "words": show(one, one.now),
                "unit": one.dimension,
                "elasticity": elasticity(own[0][0], own[1][0], low, high),
                "elasticity_tpot": elasticity(own[0][1], own[1][1], low, high),
                "elasticity_optimum": elasticity(again[0], again[1], low, high),
                "at_10_percent_less": None if wide[0] is None else wide[0] / base - 1.0,
                "at_10_percent_more": None if wide[1] is None else wide[1] / base - 1.0,
            }
        )
    return sorted(rows, key=_strength, reverse=True)


def _strength(row: dict[str, Any]) -> float:
    ends = (row["at_10_percent_less"], row["at_10_percent_more"])
    return max((abs(end) for end in ends if end is not None), default=0.0)


def _at(subject: Subject, one: Input, factor: float) -> Demanded | None:
    """The study with one input times a factor; None where the input cannot have that value."""
    try:
        return apply(subject, [_multiplied(one, factor)])
    except InputError:
        return None


def _end(subject: Subject, one: Input, factor: float) -> tuple[float, Demanded]:
    """(factor, the study with one input times it), (1, the study) where it cannot have that."""
    problem = _at(subject, one, factor)
    return (1.0, subject.problem) if problem is None else (factor, problem)


def _multiplied(one: Input, factor: float) -> Change:
    return checked(Change(one, factor, None, f"{factor:g}x"), one.name)


def _fixed(problem: Demanded, point: int, objective: str) -> tuple[float | None, float | None]:
    """(objective, time per output token) of a deployment that stays, feasible or not."""
    values = metrics_at(problem, np.array([point])).values
    found = [float(values[name][0]) for name in (objective, TPOT)]
    return (
        found[0] if math.isfinite(found[0]) else None,
        found[1] if math.isfinite(found[1]) else None,
    )


def _optimum(
    subject: Subject, points: Points, one: Input, factor: float, objective: str
) -> float | None:
    problem = _at(subject, one, factor)
    return None if problem is None else best(solve(problem, points, objective), objective)


def shadow_prices(
    subject: Subject,
    points: Points,
    before: Solved,
    objective: str,
    chip: str,
    progress: Progress = lambda text: None,
) -> list[dict[str, Any]]:
    """What a step of each limit, and of the memory of the winner's chip, is worth: the objective of
    the optimum found again, and, of the memory, the dollars per chip-hour that it may cost more
    before nothing is gained."""
    base = best(before, objective)
    price = float(subject.problem.machines.usd_per_chip_hour[subject.problem.machines.code(chip)])
    assert base is not None
    known = inputs_of(subject)
    rows = []
    asked: list[tuple[str, Input, Change, str]] = []
    capacity = known[f"chip.{chip}.memory_capacity"]
    if capacity.now is not None:
        change = Change(capacity, (capacity.now + GIGABYTES) / capacity.now)
        asked.append(("memory", capacity, change, "10 GB more memory"))
    for limit in subject.problem.limits:
        prefix = f"limit.{limit.workload}." if limit.workload else "limit."
        one = known[f"{prefix}{limit.metric}"]
        step = STEPS.get(limit.metric, 0.1 * abs(limit.limit))
        if METRICS[limit.metric].dimension == "count":
            step = float(max(round(step), 1))
        after = limit.limit + limit.sign * step
        more = "more" if limit.sign > 0 else "less"
        words = f"{show_limit(limit.metric, step)} {more} of {limit.metric}"
        asked.append(("limit", one, Change(one, 1.0, after), words))
    sign = 1.0 if METRICS[objective].direction == "minimize" else -1.0
    for kind, one, change, words in asked:
        progress(f"shadow price of {one.name}")
        problem = apply(subject, [change])
        found = best(solve(problem, points, objective), objective)
        gain = None if found is None else sign * (1.0 - found / base) + 0.0
        worth = None
        if kind == "memory" and found and objective.startswith("usd_") and math.isfinite(price):
            worth = price * (base / found - 1.0) + 0.0
        rows.append(
            {
                "kind": kind,
                "input": one.name,
                "step": words,
                "now": one.now,
                "after": change.after,
                "gain": gain,
                "usd_per_chip_hour": worth,
                "binds": bool(gain is not None and gain > 0.0),
            }
        )
    return rows
