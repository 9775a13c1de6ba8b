"""The document of `dse whatif --json`: every question that was asked, with the sentences that
answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.economics.priced import inputs_words, price_documents
from dse.physics.workload import POISSON
from dse.problem.loads import load_row
from dse.problem.objective import on_terms
from dse.problem.shapes import model_at
from dse.questions.estimate.point import assumptions
from dse.questions.whatif import sensitivity
from dse.questions.whatif.breakeven import break_even
from dse.questions.whatif.change import Scenario, Sweep, scenario_row, sweep_rows
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.equal import RACK_W, equal, racks_held, read_level
from dse.questions.whatif.inputs import DEMAND, PEAK, Change, inputs_of
from dse.questions.whatif.solve import Progress, stand_of
from dse.questions.whatif.subject import Subject
from dse.schema.calibration import KINDS
from dse.schema.costs import BASIS as OWNED
from dse.schema.load import demand_words
from dse.study.prices import price_evidence, price_rows


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
    rack_w: float = RACK_W


def answer(
    subject: Subject, questions: Questions, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """Raises NothingFeasible where the study as it is has no feasible point, InputError for what
    cannot be asked of it."""
    ends = [(*questions.fixed, sweep.steps[k]) for sweep in questions.sweeps for k in (0, -1)]
    changes = [one.changes for one in questions.scenarios]
    stand = stand_of(subject, [*changes, *ends], progress)
    problem, study, winner = subject.problem, subject.problem.study, stand.winner
    inputs = [
        {
            "input": one.name,
            "now": None if one.now is None else number(one.now),
            "unit": one.dimension,
            "words": "–" if one.now is None else one.show(one.now),
        }
        for one in inputs_of(subject).values()
    ]
    document: dict[str, Any] = {
        "title": subject.title,
        "space": study.name,
        "size": problem.space.size,
        "price_basis": study.price_basis,
        "costs": study.costs and study.costs.as_json(),
        "workloads": [load_row(share) for share in problem.mix],
        "demand": _demand(subject, winner, questions.rack_w),
        "limits": [limit.text for limit in problem.limits],
        "objective": subject.objective,
        "how": stand.points.how,
        "enumerated": stand.points.enumerated,
        "seed": subject.seed,
        "notes": [*subject.notes, *_of_demand(subject, questions)],
        "winner": winner,
        "front_size": len(stand.now.ids),
        "feasible": stand.now.feasible,
        "feasible_pools": None if problem.pools is None else stand.now.apart,
        "inputs": inputs,
        "scenarios": [],
        "sweeps": [],
        "sensitivities": None,
        "shadow_prices": None,
        "break_even": None,
        "equal": [],
    }
    for scenario in questions.scenarios:
        progress(f"what if {scenario.name}")
        document["scenarios"].append(scenario_row(stand, scenario))
    for sweep in questions.sweeps:
        document["sweeps"].append(sweep_rows(stand, sweep, questions.fixed, progress))
    if questions.sensitivities:
        document |= sensitivity.found_of(stand, progress)
    if questions.break_even:
        document["break_even"] = break_even(stand)
    for kind in questions.equal:
        at = read_level(kind, questions.at)
        document["equal"].append(equal(stand, kind, at, questions.rack_w))
    chosen = _first_choices(document)
    document["assumed"] = _rests_on(subject, chosen)
    chips = dict.fromkeys(point["chip"] for point in chosen)
    catalog = on_terms(subject.catalog, study)
    document["price_evidence"] = price_evidence(catalog, problem)
    document["prices"] = price_documents(catalog, chips, study.price_basis)
    if document["prices"]:
        document["assumed"] += inputs_words(document["prices"])
    elif document["break_even"]:  # in which utilisation is an answer, no input
        owning = [row["price"] for row in document["break_even"]["owning"]]
        document["assumed"] += inputs_words(owning, but="utilisation")
    return document


def _demand(subject: Subject, winner: Mapping[str, Any], rack_w: float) -> dict[str, Any] | None:
    """The demand, and the racks that the winner takes for it."""
    demand = subject.problem.demand
    if demand is None:
        return None
    racks = racks_held(subject, winner, rack_w)
    return {**asdict(demand), "words": demand_words(demand), "racks": racks, "rack_w": rack_w}


def _of_demand(subject: Subject, questions: Questions) -> list[str]:
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
        others = [one.metric for one in problem.objectives if one.metric != subject.objective]
        tie = others[0] if others else "nothing else, by its number"
        notes.append(
            "deployments are bought until the peak of the demand is served, and paid around the "
            "clock; prices of tokens are dollars paid over the tokens of the average; whole "
            f"deployments may cost the same: the better one in {tie} is first"
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


def _rests_on(subject: Subject, chosen: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the recommended points rest on beyond sourced figures, and the prices of their chips,
    each sentence once."""
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
