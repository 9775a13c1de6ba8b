"""The document of `dse whatif --json`: every question that was asked, with the sentences that
answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.economics.priced import inputs_words
from dse.economics.tco import usd_per_chip_hour
from dse.physics.workload import POISSON
from dse.problem.loads import load_row
from dse.problem.objective import on_terms
from dse.problem.shapes import model_at
from dse.questions.estimate.point import assumptions
from dse.questions.whatif import equal as iso
from dse.questions.whatif.breakeven import break_even
from dse.questions.whatif.change import Scenario, Sweep, best, scenario_row, sweep_rows
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.inputs import DEMAND, PEAK, Change, Input, Subject, apply, inputs_of, show
from dse.questions.whatif.sensitivity import sensitivities, sensitivity_inputs, shadow_prices
from dse.questions.whatif.solve import (
    SLACK,
    Points,
    Progress,
    Solved,
    all_points,
    describe,
    near,
    reach_of,
    require_winner,
    searched,
    solve,
)
from dse.questions.whatif.subject import Asked
from dse.schema.calibration import KINDS
from dse.schema.costs import BASIS as OWNED
from dse.schema.load import demand_words
from dse.schema.metrics import METRICS
from dse.study.sources import price_rows

# Evaluations that a question may spend on points far from the winner.
MOST_EVALUATIONS = 4_000_000


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked. `equal` are kinds of `dse.questions.whatif.equal`, `at` the amount of the only
    one."""

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
        "demand": _demand(subject, winner, questions.rack_w),
        "limits": [limit.text for limit in problem.limits],
        "objective": objective,
        "how": points.how,
        "enumerated": points.enumerated,
        "seed": asked.seed,
        "notes": [*asked.notes, *_of_demand(subject, questions, objective)],
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
    }
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
    chosen = _first_choices(document)
    document["assumed"] = _rests_on(asked, chosen)
    document["prices"] = _prices(subject, chosen)
    if document["prices"]:
        document["assumed"] += inputs_words(document["prices"])
    elif document["break_even"]:  # in which utilisation is an answer, no input
        owning = [row["price"] for row in document["break_even"]["owning"]]
        document["assumed"] += inputs_words(owning, but="utilisation")
    return document


def _prices(subject: Subject, chosen: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The prices of the recommended chips by their parts, where they are owned."""
    study = subject.problem.study
    if study.price_basis != OWNED:
        return []
    chips = dict.fromkeys(point["chip"] for point in chosen)
    return [
        usd_per_chip_hour(subject.catalog, chip, OWNED, study.costs).as_json() for chip in chips
    ]


def _demand(subject: Subject, winner: Mapping[str, Any], rack_w: float) -> dict[str, Any] | None:
    """The demand, and the racks that the winner takes for it."""
    demand = subject.problem.demand
    if demand is None:
        return None
    racks = iso.racks_held(subject, winner, rack_w)
    return {**asdict(demand), "words": demand_words(demand), "racks": racks, "rack_w": rack_w}


def _tie(problem: Demanded, objective: str) -> str:
    """What tells points of the same objective apart."""
    others = [named for one in problem.objectives if (named := one.metric) != objective]
    return others[0] if others else "nothing else, by its number"


def _of_demand(subject: Subject, questions: Questions, objective: str) -> list[str]:
    """What a reader must know of prices with and without a demand."""
    problem, notes = subject.problem, []
    arrive = any(share.workload.serving == POISSON for share in problem.mix)
    changes = [one for scenario in questions.scenarios for one in scenario.changes]
    changes += [sweep.steps[0] for sweep in questions.sweeps]
    asked = any(one.input.name in (DEMAND, PEAK) for one in changes)
    if problem.demand is None and arrive and asked:
        notes.append(
            "requests arrive at random: demand is the rate at which they arrive at one deployment "
            "with its replicas; --demand TOKENS/TIME buys as many deployments as a demand takes"
        )
    elif problem.demand is None and asked:
        notes.append(
            "as things stand there is no demand: its prices are those of a deployment that is "
            "always busy, and the change is what a demand adds to them"
        )
    if problem.demand is not None:
        notes.append(
            "deployments are bought until the peak of the demand is served, and paid around the "
            "clock; prices of tokens are dollars paid over the tokens of the average; whole "
            f"deployments may cost the same: the better one in {_tie(problem, objective)} is first"
        )
        notes.append(_servers(problem))
        if problem.study.price_basis == OWNED:
            notes.append("of owned chips that wait, the electricity that depends on load is saved")
    if set(questions.equal) & {"power", "chips", "racks"}:
        notes.append(
            "--equal counts chips as deployments take them; dse fleet counts the servers and racks "
            "that are bought and rented whole"
        )
    if problem.demand is not None and arrive:
        notes.append("each deployment is given the arrivals of the study, and no more at the peak")
    return notes


def _servers(problem: Demanded) -> str:
    """How the chips of a demand are had."""
    if (problem.server == 1.0).all():
        return (
            "chips are paid one by one; --whole-servers and dse fleet pay whole servers, which is "
            "more where a demand takes few chips, and may move the winner"
        )
    sizes: dict[int, list[str]] = {}
    for chip, size in zip(problem.machines.ids, problem.server, strict=True):
        sizes.setdefault(int(size), []).append(chip)
    each = [f"{size} ({', '.join(chips)})" for size, chips in sizes.items()]
    return f"chips are had and paid in whole servers of {', '.join(each)} (scale-up domains)"


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
        tokens = number(problem.metrics(index).values["training_tokens"][0])
        model = problem.model or model_at(batch, 0, "the winner", tokens)
        kind = KINDS.index(point["provenance"])
        sentences += assumptions(
            catalog, model, point["deployment"], problem.mix, kind, basis, problem.study.rack
        )
    return list(dict.fromkeys(sentences))


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
            f"the optimum was found again among the {len(looked.ids):,} points within "
            f"{reach_of(subject.problem) - 1.0:.0%} of the winner and {SLACK:.0%} of the limits"
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
