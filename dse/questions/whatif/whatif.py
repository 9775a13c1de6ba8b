"""`dse.whatif`: what changes when an input does, how sure the winner is, and what a chip lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Table, long_table
from dse.answer.frames import of_rows
from dse.answer.numbers import dollars, number, percent, priced, show
from dse.catalog import Catalog, load_catalog
from dse.economics.prices import evidence_words, price_documents, price_parts, rests_on
from dse.errors import InputError, NothingFeasible
from dse.options import CHIP, MODEL, Opt
from dse.physics.workload import POISSON
from dse.problem.mix import load_row
from dse.problem.objective import on_terms
from dse.problem.shapes import model_at
from dse.problem.words import deployment_words
from dse.questions.estimate.point import assumptions
from dse.questions.whatif.figures import MODELS, doubled, required
from dse.questions.whatif.inputs import (
    DEMAND,
    PEAK,
    Change,
    Subject,
    changes_of,
    inputs_of,
    scenarios_of,
    subject_of,
    sweep_of,
)
from dse.questions.whatif.moves import scenario, scenarios, sensitivities, sweep
from dse.questions.whatif.solve import Part, counted, load_of, stand_of, words
from dse.questions.whatif.ties import KINDS, break_even, equal, racks_held, read_level
from dse.questions.whatif.uncertain import uncertain_answer
from dse.schema.backend import KINDS as KNOWN
from dse.schema.loader import did_you_mean
from dse.schema.reader import Field, Flag, Number, Text, Whole
from dse.schema.reader import Table as Fields
from dse.schema.traffic import demand_words
from dse.schema.workloads import CHOICE_FIELDS, PREFILL_FIELDS, load_words
from dse.study.document import price_evidence, price_rows
from dse.study.model_space import space_of_model

Json = Mapping[str, Any]
DEGREE, LOAD = Whole(1, 100_000), Whole(1, 100_000_000)
# What `--set` takes beside inputs: of a model in place of a study, of training it, of a demand, of
# --equal, of --uncertain and of --require.
_MODEL = (
    *(Field(name, DEGREE, None) for name in ("tp", "pp", "dp", "ep", "replicas")),
    Field("concurrency", LOAD, None),
    Field("prompt_tokens", LOAD, None),
    Field("output_tokens", LOAD, None),
    Field("requests_per_second", Number(1e-9, 1e9), None),
    *CHOICE_FIELDS,
    Field("disaggregated", Flag(), None),
    *PREFILL_FIELDS,
)
SETTINGS = Fields(
    *_MODEL,
    Field("training_chips", Whole(1, 1_000_000), None),
    Field("tpot_limit", Text(), None),
    Field("whole_servers", Flag(), None),
    Field("rack_power", Text(), None),
    Field("draws", Whole(1_000, 1_000_000), None),
    Field("seed", Whole(0, 2**63 - 1), None),
    Field("price_interval", Number(0, 10), None),
    Field("space", Text(), None),
)
MODEL_SETTINGS = tuple(one.name for one in _MODEL)
# Arguments of a model, and those of other questions than changes.
OF_MODEL = {"model", "chips", "price_basis", "training_chips", "tpot_limit", *MODEL_SETTINGS}
DRAWN = {"points", "draws", "seed", "price_interval"}
OF_UNCERTAIN = {*DRAWN, "limits", "objective", "demand"}
NOT_OF_CHANGES = {*DRAWN, "space"}
TRAINERS = 1024  # chips that train a model which is asked for
PASSED = ("study", "catalog", "progress", "fields")
FLAGS = {"changes": "set", "chips": "chip", "sweeps": "sweep", "limits": "limit", "points": "point"}
WORDS = {
    "winner": "the point that is best in the objective among all that keep the limits",
    "elasticity": "percent that the objective moves by for one percent of an input",
    "shadow price": "what one step of a limit is worth: the gain where it is looser by that much",
    "break-even": "where two choices cost the same",
    "deployment": "one instance of the model with its replicas; a demand takes several",
    "deployed anew": "with degrees, formats and load chosen again after the change",
    "regret": "what a choice costs over what the best choice of the same draw costs, less 1",
    "draw": "one guess of all that is not known: prices, errors of the model, demand",
}


def whatif(
    study: Annotated[Any, Opt(positional=True)] = None,
    changes: Mapping[str, str] | None = None,
    *,
    model: Annotated[str | Path | None, MODEL] = None,
    chips: Annotated[tuple[str, ...], CHIP] = (),
    scenario: str | None = None,
    sweeps: tuple[str, ...] = (),
    sensitivities: bool = False,
    break_even: bool = False,
    equal: tuple[str, ...] = (),
    at: str | None = None,
    demand: str | None = None,
    peak_over_average: str | None = None,
    limits: tuple[str, ...] = (),
    objective: str | None = None,
    uncertain: bool = False,
    points: tuple[str, ...] = (),
    require: str | None = None,
    price_basis: str | None = None,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Answer:
    """What if a price, a figure, the demand or a limit changes: who wins then and by how much.

    Also what enters and leaves the front, how sure the winner is, and what another chip would need.

        dse.whatif("tiny", {"chip.h100_sxm.price": "-20%"}).to_html("whatif.html")

    `study` is what `dse.run` returned, its folder, a shipped space, the path of a space file, or
    what such a file says; in its place a `model` and `chips`. `changes` are inputs and what becomes
    of them, `fields` are SETTINGS; `--set` takes both. Several chips without a question are ranked.
    `uncertain` draws prices, efficiency and demand from their intervals; `require` changes each
    figure of a chip alone, until a deployment keeps the limits and no point of the front beats it.
    Chips with `sensitivities` and no model take four models that are trained and served.

    Raises InputError for what cannot be read, NothingFeasible where no point keeps the limits.
    """
    chips = (chips,) if isinstance(chips, str) else chips
    given = {**locals(), **fields}
    for name in fields:
        if name not in SETTINGS.names:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    study = study if isinstance(study, Mapping) else getattr(study, "folder", study)
    _refuse(given, study)
    catalog = catalog or load_catalog()
    if require is not None:
        return required(Path(study), require, catalog, fields.get("space"), progress)
    if model is None and sensitivities and chips:
        return _of_chips(given, catalog, MODELS)
    space, own = study, {name: fields.get(name) for name in MODEL_SETTINGS}
    if study is None:
        own = {name: value for name, value in own.items() if value is not None}
        own |= {"price_basis": price_basis or "rental_3yr", "limits": limits}
        space = space_of_model(model, chips, **own, objective=objective, catalog=catalog)
        limits = ()
    if uncertain:
        subject = subject_of(space, catalog, limits)
        drawn = {name: fields.get(name) for name in ("draws", "seed", "price_interval")}
        return uncertain_answer(
            subject, space, points, objective=objective, demand=demand, progress=progress, **drawn
        )
    whole = bool(fields.get("whole_servers"))
    subject = subject_of(space, catalog, limits, objective, demand, peak_over_average, whole)
    try:
        return _answer(subject, given, progress)
    except NothingFeasible:
        if study is not None or not sensitivities:
            raise
    return _of_chips(given, catalog, {str(model): fields.get("training_chips") or TRAINERS})


def _refuse(given: Json, study: Any) -> None:
    """Raises InputError for what does not go with the question or with a STUDY."""
    require, uncertain = given["require"], given["uncertain"]
    reason, takes = "a question without --require and --uncertain", set(given) - NOT_OF_CHANGES
    if require:
        reason, takes = "--require", {"require", "space"}
    elif uncertain:
        reason, takes = "--uncertain", OF_UNCERTAIN | {"uncertain", *OF_MODEL}
    for name, value in given.items():
        if name in PASSED or value is None or value is False or value in ((), {}):
            continue
        named = FLAGS.get(name, name.replace("_", "-"))
        flag = f"--set {name}" if name in SETTINGS.names else f"--{named}"
        if study is not None and name in OF_MODEL:
            reason, takes = "a STUDY, which says it itself", set()
        if name not in takes:
            raise InputError(f"{flag} does not go with {reason}", accepted="one of the two")
    if require and (study is None or isinstance(study, Mapping)):
        raise InputError("--require needs a STUDY", accepted="the folder of a finished study")
    for kind in given["equal"]:
        if kind not in KINDS:
            message = f"unknown kind {kind!r}{did_you_mean(kind, KINDS)}"
            raise InputError(message, field="--equal", accepted=", ".join(KINDS))
    if given["at"] and len(given["equal"]) != 1:
        raise InputError("--at needs one --equal", accepted="--equal power --at 100kW")
    today = [name for name in ("sensitivities", "break_even", "equal") if given[name]]
    if today and given["changes"]:
        raise InputError(
            f"--{today[0].replace('_', '-')} is asked of the study as it stands",
            field="--set",
            accepted="one of the two; --sweep goes with --set",
        )


def _of_chips(given: Json, catalog: Catalog, models: Mapping[str, int]) -> Answer:
    """Twice each figure of chips, for models that are trained and served."""
    catalog, chips = catalog.with_chips(given["chips"])
    made = _doubled(given, catalog, chips, models)
    return Answer(
        question="whatif",
        title=f"What binds training and serving: {', '.join(chips)}",
        asked=f"{', '.join(chips)}; {', '.join(models)}",
        headline=made.sentences[0],
        sentences=made.sentences[1:],
        blocks=made.blocks,
        document=made.facts,
        names=catalog.names,
    )


def _doubled(
    given: Json, catalog: Catalog, chips: Sequence[str], models: Mapping[str, int]
) -> Part:
    text = given.get("tpot_limit") or "50ms"
    limit_s = units.parse(text, "s", field="--set tpot_limit")
    if not limit_s > 0.0:
        accepted = "above 0 s, such as 50ms"
        raise InputError(f"read {text!r}", field="--set tpot_limit", accepted=accepted)
    load = {"prompt_tokens": 2048, "output_tokens": 512}
    load = {name: given.get(name) or tokens for name, tokens in load.items()}
    basis = given["price_basis"] or "rental_3yr"
    return doubled(catalog, chips, models, load, limit_s, basis, given["progress"])


def _answer(subject: Subject, given: Json, progress: Callable[[str], None]) -> Answer:
    """Every question of a subject in one answer."""
    known, changes = inputs_of(subject), given["changes"] or {}
    fixed = changes_of(changes, known)
    named = {", ".join(map(_short, fixed)): fixed} if fixed else {}
    named |= scenarios_of(given["scenario"], known) if given["scenario"] else {}
    sweeps = [sweep_of(text, known) for text in given["sweeps"]]
    for steps in sweeps:
        if steps[0].input in [change.input for change in fixed]:
            message = f"{steps[0].input.name} is set and swept"
            raise InputError(message, field="--sweep", accepted="one of the two")
    text = given.get("rack_power") or "40kW"
    rack_w = units.parse(text, "W", field="--set rack_power")
    if rack_w <= 0.0:
        raise InputError(f"read {text!r}", field="--set rack_power", accepted="a power above 0")
    ends = [(*fixed, steps[k]) for steps in sweeps for k in (0, -1)]
    stand = stand_of(subject, [*named.values(), *ends], progress)
    winner, problem, study = stand.winner, stand.problem, subject.problem.study
    parts: list[Part] = []
    if named:
        parts.append(scenarios(stand, [scenario(stand, *one) for one in named.items()]))
    swept = [sweep(stand, steps, fixed, progress) for steps in sweeps]
    if given["sensitivities"]:
        parts.append(sensitivities(stand, progress))
    several = problem.model is not None and len(problem.machines.ids) > 1
    nothing = not any((named, sweeps, given["sensitivities"], given["equal"]))
    if given["break_even"] or (nothing and several):
        parts.append(break_even(stand))
    kinds = dict.fromkeys(given["equal"])
    level = {kind: read_level(kind, given["at"]) for kind in kinds}
    alike = [equal(stand, kind, level[kind], rack_w) for kind in kinds]
    document: dict[str, Any] = {
        "title": subject.title,
        "space": study.name,
        "size": problem.space.size,
        "price_basis": study.price_basis,
        "costs": study.costs and study.costs.as_json(),
        "workloads": [load_row(share) for share in problem.mix],
        "demand": _demand(subject, winner, rack_w),
        "limits": [limit.text for limit in problem.limits],
        "objective": subject.objective,
        "how": stand.points.how,
        "enumerated": stand.points.enumerated,
        "seed": subject.seed,
        "winner": winner,
        "front_size": len(stand.now.ids),
        "feasible": stand.now.feasible,
        "feasible_pools": None if problem.pools is None else stand.now.apart,
        "inputs": [
            {
                "input": one.name,
                "now": None if one.now is None else number(one.now),
                "unit": one.dimension,
                "words": None if one.now is None else one.show(one.now),
            }
            for one in known.values()
        ],
        **{key: value for part in parts for key, value in part.facts.items()},
        "sweeps": [part.facts for part in swept],
        "equal": [part.facts for part in alike],
    }
    changed = [change for some in named.values() for change in some]
    changed += [steps[0] for steps in sweeps]
    document["notes"] = [*subject.notes, *_notes(subject, changed)]
    chosen = _recommended(document)
    document["assumed"] = _rests_on(subject, chosen)
    catalog, chips = on_terms(subject.catalog, study), dict.fromkeys(p["chip"] for p in chosen)
    document["price_evidence"] = price_evidence(catalog, problem)
    document["prices"] = price_documents(catalog, chips, study.price_basis)
    owned = [row["price"] for row in document.get("owning", ())]
    if document["prices"]:
        document["assumed"] += rests_on(document["prices"])
    elif owned:  # in which utilisation is an answer, no input
        document["assumed"] += rests_on(owned, but="utilisation")
    if given["sensitivities"] and given["chips"] and given["model"]:
        trained = {str(given["model"]): given.get("training_chips") or TRAINERS}
        more = _doubled(given, catalog, problem.machines.ids, trained)
        document |= more.facts
        parts.append(more)
    every = [*parts[:1], *swept, *alike, *parts[1:]]
    evidence = [row for row in document["price_evidence"] if row["chip"] == winner["chip"]]
    said = [_winner_words(document), *_demand_words(document)]
    if document["feasible_pools"] == 0:
        said.append("No prefill and decode on pools of their own keep the rules and the limits.")
    said += [text for part in every for text in part.sentences][:4]
    document["answer"] = said = [*said, *evidence_words(evidence)]
    blocks = [block for part in every for block in part.blocks]
    if document["prices"] and not owned:
        blocks.append(price_parts(document["prices"]))
    rows = [row for row in document["inputs"] if row["now"] is not None]
    caption = "What may be changed with --set and --sweep, and its value now"
    blocks.append(of_rows("inputs", caption, rows, ("input", "words"), on_console=False))
    tables = [block for block in blocks if isinstance(block, Table)]
    made = Answer(
        question="whatif",
        title=f"What if: {subject.title}",
        asked=_asked(document),
        headline=said[0],
        sentences=said[1:],
        blocks=blocks,
        rests=[document["how"], *document["notes"], *document["assumed"]],
        document=document,
        data=(long_table("data", {one.name: one.rows for one in tables}),),
        words=WORDS,
        names=subject.catalog.names,
    )
    if (first := made.first_screen) is None:
        return made
    held = all(share.workload.serving != POISSON for share in problem.mix)
    full = said[0].replace(winner["words"], deployment_words(winner["deployment"], held))
    answers = [text for part in every for text in part.sentences][:1]
    return replace(made, opening=replace(first, headline=" ".join((full, *answers))))


def _short(change: Change) -> str:
    """`workload prompt tokens 2x`, which a narrow column can wrap; ids and metrics as they are."""
    of, _, last = change.input.name.rpartition(".")
    name = last if of == "limit" else last.replace("_", " ")
    of = of.removeprefix("chip.").removeprefix("costs").replace(".", " ")
    return f"{of} {name} {change.written}".strip()


def _asked(document: Json) -> str:
    """What is asked of what, in a line."""
    loads = "; ".join(load_words(load) for load in document["workloads"])
    limits = ", ".join(document["limits"]) or "no limit"
    demand = f"demand: {document['demand']['words']}; " if document["demand"] else ""
    return f"{document['title']}: {loads}; {demand}{limits}; prices: {document['price_basis']}"


def _winner_words(document: Json) -> str:
    """The winner as things stand, and how sure its objective is."""
    metric, winner = document["objective"], document["winner"]
    who, best, load = words(winner), "is best", load_of(winner)
    if metric.startswith("usd_per_million"):
        best = "is cheapest"
        if load:
            many = load["deployments"]
            who = f"{counted(many, 'deployment')} of {who}"
            best = f"{'is' if many == 1 else 'are'} cheapest for the demand"
    sure = f"kernel laws {winner['provenance']}"
    if ends := winner["intervals"].get(metric):
        low, high = (show(metric, end) for end in ends)
        sure = f"80% interval {low} to {high}, {sure}"
    value = priced(metric, winner["metrics"][metric])
    return f"As things stand, {who} {best}: {value} ({sure})."


def _demand(subject: Subject, winner: Json, rack_w: float) -> dict[str, Any] | None:
    """The demand, and the racks that the winner takes for it."""
    if (demand := subject.problem.demand) is None:
        return None
    racks = racks_held(subject, winner, rack_w)
    return {**asdict(demand), "words": demand_words(demand), "racks": racks, "rack_w": rack_w}


def _demand_words(document: Json) -> list[str]:
    """What the demand takes of the winner; nothing without a demand."""
    demand, load = document["demand"], document["winner"]["at_average_load"]
    if demand is None:
        return []
    said = f"{demand['words'][0].upper()}{demand['words'][1:]}"
    busy = (
        f"each is busy {percent(load['busy_share'])} on average, where one that never waits would "
        f"cost {dollars(load['busy_usd_per_million_total_tokens'])} per million tokens"
    )
    if load["deployments"] is None:
        return [f"{said}: deployments of any size; {busy}."]
    low, high = load["deployments_interval"] or (0, 0)
    between = "" if low == high else f" (80% interval {low:,} to {high:,})"
    takes = [f"{counted(load['deployments'], 'deployment')}{between}"]
    takes.append(f"{counted(load['chips'], 'chip')} in total")
    if load["meter_w"] is not None:
        takes.append(f"{units.format(load['meter_w'], 'W', 3)} at the meter")
    if demand["racks"] is not None:
        takes.append(f"{counted(demand['racks'], 'rack')} of {demand['rack_w'] / 1e3:.3g} kW")
    paid = f"{dollars(load['usd_per_hour'])} an hour, {dollars(load['usd_per_year'])} a year"
    return [f"{said}, takes {', '.join(takes)}: {paid}; {busy}."]


def _notes(subject: Subject, changed: Sequence[Change]) -> list[str]:
    """What a reader must know of prices with and without a demand."""
    problem, notes = subject.problem, []
    arrive = any(share.workload.serving == POISSON for share in problem.mix)
    asked = any(change.input.name in (DEMAND, PEAK) for change in changed)
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
    elif problem.demand is not None:
        servers = dict(zip(problem.machines.ids, problem.server.tolist(), strict=True))
        each = ", ".join(f"{size:.0f} {chip}" for chip, size in servers.items())
        said = f"in whole servers (scale-up domains): {each}"
        if set(servers.values()) == {1.0}:
            said = "one by one; --set whole_servers=true and dse fleet pay whole servers"
        notes.append(f"chips of a demand are paid {said}")
        if arrive:
            notes.append("each deployment gets the arrivals of the study, and no more at the peak")
    return notes


def _recommended(document: Json) -> list[Json]:
    """The points that the answer recommends: winners, and the first of each comparison."""
    found = [document["winner"], *(row["winner"] for row in document.get("scenarios", ()))]
    found += [step["winner"] for row in document["sweeps"] for step in row["rows"]]
    found += [row["rows"][0]["point"] for row in document["equal"]]
    found += [row["point"] for row in document.get("break_even", ())[:2]]
    return [point for point in found if point is not None]


def _rests_on(subject: Subject, chosen: Sequence[Json]) -> list[str]:
    """What the recommended points rest on beyond sourced figures, and the prices of their chips,
    each sentence once."""
    problem, catalog = subject.problem, on_terms(subject.catalog, subject.problem.study)
    basis, said = problem.study.price_basis, []
    by_chip = {point["chip"]: point for point in reversed(chosen)}
    for row in price_rows(catalog, problem):
        if row["chip"] in by_chip:
            known = [row["rule"], row["note"]]
            known += [row["date"]] * (row["date"] not in row["rule"])
            said.append(
                f"price of {row['chip']}: ${row['usd_per_chip_hour']:.2f} per chip-hour on basis "
                f"{basis} ({'; '.join(filter(None, known))})"
            )
    for point in by_chip.values():
        index = problem.space.unrank(np.array([point["id"]]))
        batch = problem.batch(index)
        tokens = number(problem.metrics(index).values["training_tokens"][0])
        model = problem.model or model_at(batch, 0, "the winner", tokens)
        kind, rack = KNOWN.index(point["provenance"]), problem.study.rack
        said += assumptions(catalog, model, point["deployment"], problem.mix, kind, basis, rack)
    return list(dict.fromkeys(said))
