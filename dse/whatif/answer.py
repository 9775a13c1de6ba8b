"""The document of `dse whatif --json`: every question that was asked, with the sentences that
answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.specs.calibration import KINDS
from dse.specs.metrics import METRICS
from dse.study.estimate import assumptions
from dse.study.loads import load_row
from dse.study.numbers import number
from dse.study.physics import on_terms
from dse.study.shapes import model_at
from dse.study.sources import price_rows
from dse.whatif import equal as iso
from dse.whatif.breakeven import break_even
from dse.whatif.change import Scenario, Sweep, best, scenario_row, sweep_rows
from dse.whatif.inputs import Change, Input, apply, inputs_of, show
from dse.whatif.sensitivity import sensitivities, sensitivity_inputs, shadow_prices
from dse.whatif.solve import (
    Points,
    Progress,
    Solved,
    all_points,
    describe,
    near,
    require_winner,
    searched,
    solve,
)
from dse.whatif.subject import Asked

# Evaluations that a question may spend on points far from the winner.
MOST_EVALUATIONS = 4_000_000


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked. `equal` are kinds of `dse.whatif.equal`, `at` the amount of the only one."""

    scenarios: Sequence[Scenario] = ()
    sweeps: Sequence[Sweep] = ()
    fixed: tuple[Change, ...] = ()  # of the sweeps
    sensitivities: bool = False
    break_even: bool = False
    equal: Sequence[str] = ()
    at: str | None = None
    rack_w: float = iso.RACK_W


def answer(
    asked: Asked, questions: Questions, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """Raises NothingFeasible where the study as it is has no feasible point, InputError for what
    cannot be asked of it."""
    subject, objective = asked.subject, asked.objective
    problem = subject.problem
    points = all_points(problem, asked.engine, asked.seed, progress)
    for changes in [one.changes for one in questions.scenarios]:
        points = searched(apply(subject, changes), points, asked.seed)
    for sweep in questions.sweeps:
        for step in (sweep.steps[0], sweep.steps[-1]):
            changed = apply(subject, [*questions.fixed, step])
            points = searched(changed, points, asked.seed)
    before = solve(problem, points, objective)
    winner_id = require_winner(before)
    winner = describe(problem, np.array([winner_id]))[0]
    study = problem.study
    document: dict[str, Any] = {
        "title": asked.title,
        "space": study.name,
        "size": problem.space.size,
        "price_basis": study.price_basis,
        "costs": study.costs and study.costs.as_json(),
        "workloads": [load_row(share) for share in problem.mix],
        "limits": [limit.text for limit in problem.limits],
        "objective": objective,
        "how": points.how,
        "enumerated": points.enumerated,
        "seed": asked.seed,
        "notes": list(asked.notes),
        "winner": winner,
        "front_size": len(before.ids),
        "feasible": before.feasible,
        "inputs": [_input_row(one) for one in inputs_of(subject).values()],
        "scenarios": [],
        "sweeps": [],
        "sensitivities": None,
        "shadow_prices": None,
        "break_even": None,
        "equal": [],
    }  # fmt: skip
    for scenario in questions.scenarios:
        progress(f"what if {scenario.name}")
        document["scenarios"].append(scenario_row(subject, scenario, points, before, objective))
    for sweep in questions.sweeps:
        document["sweeps"].append(
            sweep_rows(subject, sweep, points, objective, questions.fixed, progress)
        )
    if questions.sensitivities:
        document |= _sensitivities(asked, points, before, winner["chip"], progress)
    if questions.break_even:
        document["break_even"] = break_even(subject, points)
    for kind in questions.equal:
        at = iso.read_level(kind, questions.at)
        found = iso.equal(subject, points, before, kind, at, questions.rack_w)
        document["equal"].append(found)
    document["assumed"] = _rests_on(asked, _first_choices(document))
    if questions.break_even:
        document["assumed"] += _owning_rests_on(document["break_even"]["owning"])
    return document


def _first_choices(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The points that the answer recommends: winners, and the first of each comparison."""
    found = [document["winner"]]
    found += [row["winner"] for row in document["scenarios"]]
    found += [step["winner"] for row in document["sweeps"] for step in row["rows"]]
    found += [row["rows"][0]["point"] for row in document["equal"]]
    if document["break_even"]:
        found += [row["point"] for row in document["break_even"]["chips"][:2]]
    return [point for point in found if point is not None]


def _rests_on(asked: Asked, chosen: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the recommended points rest on beyond sourced figures, and the prices of their chips,
    each sentence once."""
    subject = asked.subject
    problem, catalog = subject.problem, on_terms(subject.catalog, subject.problem.study)
    basis = problem.study.price_basis
    sentences = []
    for row in price_rows(catalog, problem):
        if row["chip"] in [point["chip"] for point in chosen]:
            known = [row["rule"], row["note"]]
            known += [row["date"]] * (row["date"] not in row["rule"])
            sentences.append(
                f"price of {row['chip']}: ${row['usd_per_chip_hour']:.2f} per chip-hour on basis "
                f"{basis} ({'; '.join(filter(None, known))})"
            )
    by_chip = {point["chip"]: point for point in reversed(chosen)}
    for point in by_chip.values():
        index = problem.space.unrank(np.array([point["id"]]))
        batch = problem.batch(index)
        model = problem.model or model_at(batch, 0, "the winner", None)
        kind = KINDS.index(point["provenance"])
        sentences += assumptions(
            catalog, model, point["deployment"], problem.mix, kind, basis, problem.study.rack
        )
    return list(dict.fromkeys(sentences))


def _owning_rests_on(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the owned hours rest on: price and power of each chip, and every cost."""
    lines = [
        (one["of"], f"{row['chip']} " if one["of"] == "chip" else "", one)
        for row in rows
        for one in row["price"]["inputs"]
        if one["name"] != "utilisation"  # an answer here, no input
    ]
    return list(
        dict.fromkeys(
            f"owning: {whose}{one['name'].replace('_', ' ')} {one['text']} "
            f"({', '.join(filter(None, (one['kind'], one['date'])))}; {one['source']})"
            for _, whose, one in sorted(lines, key=lambda line: line[0])
        )
    )


def _sensitivities(
    asked: Asked, points: Points, before: Solved, chip: str, progress: Progress
) -> dict[str, Any]:
    """Of all points where they are few, else of those that a small change can make the winner."""
    subject, objective = asked.subject, asked.objective
    passes = 5 * len(sensitivity_inputs(subject, chip))
    looked = points
    words = "the optimum was found again among all points"
    if len(points.ids) * passes > MOST_EVALUATIONS:
        value = best(before, objective)
        assert value is not None
        sign = 1.0 if METRICS[objective].direction == "minimize" else -1.0
        looked = near(subject.problem, points, sign * value, objective)
        words = (
            f"the optimum was found again among the {len(looked.ids):,} points within 60% of the "
            "winner and 40% of the limits"
        )
    return {
        "sensitivities": sensitivities(subject, looked, before, objective, chip, progress),
        "shadow_prices": shadow_prices(subject, looked, before, objective, chip, progress),
        "sensitivities_how": words,
    }


def _input_row(one: Input) -> dict[str, Any]:
    return {
        "input": one.name,
        "now": None if one.now is None else number(one.now),
        "unit": one.dimension,
        "words": show(one, one.now),
    }
