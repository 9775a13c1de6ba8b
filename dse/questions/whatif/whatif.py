"""`dse.whatif`: what changes when an input does, how sure the winner is, and what a chip lacks.

Twice a figure of a chip is asked of training, of a token of one user and of a served token under
load. The change is t(2 x) / t(x) - 1, the elasticity ln(t(2 x) / t(x)) / ln 2, of a time t in
chip-hours; of power it is taken from half of the rated power up to it. Plans of training are
searched again, serving keeps its chips; loads are searched again within the limit of latency. Twice
the figure pays for a price per chip-hour of t(x) / t(2 x) times today's: what is above today's is
its worth.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dse import units
from dse.answer.answer import Answer, Block, Table, long_table
from dse.answer.frames import bar_chart, document
from dse.answer.numbers import dollars, number, percent, priced, share, show
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.economics.prices import evidence_words, price_documents, price_parts, rests_on
from dse.economics.tco import with_basis
from dse.errors import Doubt, InputError, NothingFeasible, of_field
from dse.options import CHIP, MODEL, Opt
from dse.problem.mix import load_row
from dse.problem.objective import Demanded, demanded, in_servers, on_terms, pose
from dse.problem.shapes import model_at
from dse.problem.words import deployment_words, short_deployment
from dse.questions.estimate.estimate import estimate
from dse.questions.estimate.point import assumptions
from dse.questions.train import train
from dse.questions.whatif.chips import EQUAL, break_even, equal, how_sure
from dse.questions.whatif.inputs import (
    Change,
    Input,
    Stand,
    Subject,
    between,
    change_to,
    changes_of,
    inputs_of,
    points,
    random_arrivals,
    scenarios_of,
    stand_of,
)
from dse.questions.whatif.moves import (
    Told,
    counted,
    required,
    scenarios,
    sensitivities,
    sweeps,
    table,
)
from dse.schema.backend import KINDS
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.loader import did_you_mean
from dse.schema.metrics import Limit, parse_constraint
from dse.schema.model_catalog import load_model
from dse.schema.reader import Field, Flag, Number, Text, Whole
from dse.schema.reader import Table as Fields
from dse.schema.study import Space, load_study
from dse.schema.traffic import Demand, demand_words, read_demand
from dse.schema.workloads import CHOICE_FIELDS, PREFILL_FIELDS, load_words
from dse.study.definition import reopened
from dse.study.document import price_evidence, price_rows
from dse.study.folder import STUDY
from dse.study.model_space import space_of_model

Json = Mapping[str, Any]
DEGREE, LOAD_FIELD = Whole(1, 100_000), Whole(1, 100_000_000)
# What `--set` takes beside inputs: of a model in place of a study, of training it, of a demand, of
# --uncertain and of --require.
_MODEL = (
    *(Field(name, DEGREE, None) for name in ("tp", "pp", "dp", "ep", "replicas")),
    *(Field(name, LOAD_FIELD, None) for name in ("concurrency", "prompt_tokens", "output_tokens")),
    Field("requests_per_second", Number(1e-9, 1e9), None),
    *CHOICE_FIELDS,
    Field("disaggregated", Flag(), None),
    *PREFILL_FIELDS,
)
MOST_STEPS = 101  # of a sweep
SETTINGS = Fields(
    *_MODEL,
    Field("training_chips", Whole(1, 1_000_000), None),
    Field("tpot_limit", Text(), None),
    Field("whole_servers", Flag(), None),
    Field("draws", Whole(1_000, 1_000_000), None),
    Field("seed", Whole(0, 2**63 - 1), None),
    Field("price_interval", Number(0, 10), None),
    Field("space", Text(), None),
)
MODEL_SETTINGS = tuple(one.name for one in _MODEL)
# Arguments of a model, and those of other questions than changes.
OF_MODEL = {"model", "chips", "price_basis", "training_chips", "tpot_limit", *MODEL_SETTINGS}
DRAWN = {"point", "draws", "seed", "price_interval"}
OF_UNCERTAIN = {*DRAWN, *OF_MODEL, "uncertain", "limits", "objective", "demand"}
PASSED = ("study", "catalog", "progress", "fields")
FLAGS = {"changes": "set", "chips": "chip", "sweeps": "sweep", "limits": "limit"}


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
    point: str | None = None,
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
    space = study
    if study is None:
        own = {name: fields[name] for name in MODEL_SETTINGS if fields.get(name) is not None}
        own |= {"price_basis": price_basis or "rental_3yr", "limits": limits}
        space = space_of_model(model, chips, **own, objective=objective, catalog=catalog)
        limits = ()
    if uncertain:
        return how_sure(subject_of(space, catalog, {"limits": limits}), space, given)
    subject = subject_of(space, catalog, given | {"limits": limits})
    try:
        return _answer(subject, given)
    except NothingFeasible:
        if study is not None or not sensitivities:
            raise
    return _of_chips(given, catalog, _trained(given))


def _refuse(given: Json, study: Any) -> None:
    """Raises InputError for what does not go with the question or with a STUDY."""
    require, uncertain = given["require"], given["uncertain"]
    question = "--uncertain" if uncertain else "a question without --require and --uncertain"
    takes = OF_UNCERTAIN if uncertain else {*given} - {*DRAWN, "space"}
    if require:
        question, takes = "--require", {"require", "space"}
    for name, value in given.items():
        if name in PASSED or value is None or value is False or value in ((), {}):
            continue
        flag = f"--{FLAGS.get(name, name.replace('_', '-'))}"
        flag = f"--set {name}" if name in SETTINGS.names else flag
        said = study is not None and name in OF_MODEL
        if said or name not in takes:
            other = "a STUDY, which says it itself" if said else question
            raise InputError(f"{flag} does not go with {other}", accepted="one of the two")
        if name in ("sensitivities", "break_even", "equal") and given["changes"]:
            raise InputError(
                f"{flag} is asked of the study as it stands",
                field="--set",
                accepted="one of the two; --sweep goes with --set",
            )
    if require and (study is None or isinstance(study, Mapping)):
        raise InputError("--require needs a STUDY", accepted="the folder of a finished study")
    for kind in given["equal"]:
        if kind not in EQUAL:
            message = f"unknown kind {kind!r}{did_you_mean(kind, EQUAL)}"
            raise InputError(message, field="--equal", accepted=", ".join(EQUAL))
    if given["at"] and len(given["equal"]) != 1:
        raise InputError("--at needs one --equal", accepted="--equal power --at 100kW")


def _trained(given: Json) -> dict[str, int]:
    """The model that is asked for, and the chips that train it."""
    return {str(given["model"]): given.get("training_chips") or TRAINERS}


def subject_of(space: Space, catalog: Catalog, asked: Json) -> Subject:
    """A finished study folder, a shipped space, the path of a space file or what such a file says,
    with further `limits`, judged by an `objective`, under a `demand` and `peak_over_average` that
    take the place of the space's, served on `whole_servers`, each where it is asked for. What a
    study was made with stands beneath the catalog.

    Raises InputError for what is neither, for a study whose space file has changed since, or one
    that was evaluated by a function of the user, and for whole servers of no demand of tokens.
    """
    folder, notes, found = None, [], {}
    if not isinstance(space, Mapping):
        folder = Path(str(space))
    if folder and (folder / STUDY).is_file():
        before = reopened(folder, catalog)
        document, study = before.document, before.study
        if "--evaluator" in document.get("command", ""):
            message = f"{folder} was evaluated by a function of your own"
            raise InputError(message, field="STUDY", accepted="a study of the built-in model")
        if catalog.source.has_prices:
            notes.append(f"prices and costs as this command gives them, not those of {folder}")
        elif document.get("data_digest") != catalog.source.made_with(document).digest():
            notes.append(
                f"the hardware data have changed since {folder}: before and after are both today's"
            )
        catalog = before.catalog
        found = {"seed": document["seed"], "engine": document["engine"]}
    elif folder and folder.is_dir():
        accepted = "a folder that `dse run` wrote"
        raise InputError(f"{folder} is no finished study", field="STUDY", accepted=accepted)
    else:
        study = load_study(space, catalog)
        if not folder and study.description:
            notes.append(study.description)
    more: list[Limit] = []
    for text in asked.get("limits", ()):
        with of_field("--limit"):
            more.append(parse_constraint(text))
        if said := more[-1].unusual:
            warnings.warn(f"--limit: {said}", Doubt, stacklevel=2)
    study = replace(study, constraints=(*study.constraints, *more))
    catalog = catalog.with_files(study.chip_files)
    problem = demanded(pose(study, catalog), catalog, study.demand)
    names = [one.metric for one in problem.objectives]
    if (objective := asked.get("objective")) and objective not in names:
        message, accepted = f"{objective} is no objective of {study.name}", ", ".join(names)
        raise InputError(message, field="--objective", accepted=accepted)
    objective = objective or next((name for name in names if name.startswith("usd_")), names[0])
    demand, ratio = asked.get("demand"), asked.get("peak_over_average")
    if demand is not None or ratio is not None:
        now = problem.demand or Demand(None, 1.0)
        ratio = now.peak_over_average if ratio is None else ratio
        with of_field({"average": "--demand", "peak_over_average": "--peak-over-average"}):
            given = read_demand(demand, ratio)
        if demand is None:
            given = replace(given, average_tokens_per_s=now.average_tokens_per_s)
        problem = replace(problem, demand=given)
    if asked.get("whole_servers"):
        if problem.demand is None or problem.demand.average_tokens_per_s is None:
            raise InputError(
                "whole servers of no demand",
                field="--set whole_servers",
                accepted="--demand TOKENS/TIME, too",
            )
        problem = in_servers(problem, catalog)
    title = study.title or study.name
    return Subject(problem, catalog, title, objective, notes=tuple(notes), **found)


def _answer(subject: Subject, given: Json) -> Answer:
    """Every question of a subject in one answer."""
    known = inputs_of(subject)
    fixed = changes_of(given["changes"] or {}, known)
    named = {", ".join(map(_short, fixed)): fixed} if fixed else {}
    named |= scenarios_of(given["scenario"], known) if given["scenario"] else {}
    swept = [sweep_of(text, known) for text in given["sweeps"]]
    for steps in swept:
        if steps[0].input in [change.input for change in fixed]:
            message = f"{steps[0].input.name} is set and swept"
            raise InputError(message, field="--sweep", accepted="one of the two")
    ends = [(*fixed, steps[k]) for steps in swept for k in (0, -1)]
    stand = stand_of(subject, [*named.values(), *ends], given["progress"])
    problem, study, winner = stand.problem, stand.problem.study, stand.winner
    several = problem.model is not None and len(problem.machines.ids) > 1
    asked = [named, swept, given["sensitivities"], given["equal"]]
    parts = []
    if named:
        parts.append(scenarios(stand, named))
    if swept:
        parts.append(sweeps(stand, swept, fixed))
    parts += [equal(stand, kind, given["at"]) for kind in dict.fromkeys(given["equal"])]
    if given["sensitivities"]:
        parts.append(sensitivities(stand))
    if given["break_even"] or (several and not any(asked)):
        parts.append(break_even(stand))
    if given["sensitivities"] and given["chips"] and given["model"]:
        chips = problem.machines.ids
        parts.append(doubled(given, subject.catalog, chips, _trained(given)))
    said = [text for sentences, _, _ in parts for text in sentences]
    blocks = [block for _, made, _ in parts for block in made]
    rests = [text for _, _, texts in parts for text in texts]
    notes = [*subject.notes, *_notes(problem)]
    frames = [block for block in blocks if isinstance(block, Table)]
    by_chip = {winner["chip"]: winner["id"]}
    for one in frames:
        rows = one.rows if one.name in ("scenarios", "sweep") else one.rows[:2]
        by_chip |= {row["chip"]: row["id"] for row in rows if row.get("id") is not None}
    catalog = on_terms(subject.catalog, study)
    prices = price_documents(catalog, by_chip, study.price_basis)
    assumed = [*_rests_on(problem, catalog, [*by_chip.values()]), *rests_on(prices), *rests]
    evidence = price_evidence(catalog, problem)
    answer = [_winner_words(stand), *_demand_words(problem, winner)]
    if problem.pools is not None and not stand.now.apart:
        answer.append("No prefill and decode on pools of their own keep the rules and the limits.")
    answer += said[:4]
    answer += evidence_words([row for row in evidence if row["chip"] == winner["chip"]])
    if prices and not any(one.name == "parts" for one in frames):
        blocks.append(price_parts(prices))
    inputs = [
        {"input": one.name, "now": one.now, "words": one.rule.show(one.now)}
        for one in known.values()
        if one.now is not None and math.isfinite(one.now)
    ]
    caption = "What may be changed with --set and --sweep, and its value now"
    blocks.append(table("inputs", caption, inputs, ("input", "words"), on_console=False))
    frames = [block for block in blocks if isinstance(block, Table)]
    demand = problem.demand
    loads = [load_row(share) for share in problem.mix]
    limits = [limit.text for limit in problem.limits]
    facts = {
        "title": subject.title,
        "space": study.name,
        "size": problem.space.size,
        "price_basis": study.price_basis,
        "workloads": loads,
        "demand": demand and {**asdict(demand), "words": demand_words(demand)},
        "limits": limits,
        "objective": subject.objective,
        "how": stand.how,
        "enumerated": stand.enumerated,
        "seed": subject.seed,
        "winner": winner,
        "front_size": len(stand.now.ids),
        "feasible": stand.now.feasible,
        "feasible_pools": None if problem.pools is None else stand.now.apart,
        "notes": notes,
        "assumed": assumed,
        "price_evidence": evidence,
        "prices": prices,
        "answer": answer,
    }
    words = "; ".join(map(load_words, loads))
    words += f"; demand: {demand_words(demand)}" if demand else ""
    words += f"; {', '.join(limits) or 'no limit'}; prices: {study.price_basis}"
    made = Answer(
        question="whatif",
        title=f"What if: {subject.title}",
        asked=f"{subject.title}: {words}",
        headline=answer[0],
        sentences=answer[1:],
        blocks=blocks,
        rests=[stand.how, *notes, *assumed],
        document=document(facts, frames),
        data=[long_table("data", {one.name: one.rows for one in frames})],
        names=subject.catalog.names,
    )
    if (first := made.first_screen) is None:
        return made
    held = not random_arrivals(problem)
    short, full = (of(winner["deployment"], held) for of in (short_deployment, deployment_words))
    said = [answer[0].replace(short, full), *said[:1]]
    return replace(made, opening=replace(first, headline=" ".join(said)))


def _short(change: Change) -> str:
    """`workload prompt tokens 2x`, which a narrow column can wrap; ids and metrics as they are."""
    of, _, last = change.input.name.rpartition(".")
    name = last if of == "limit" else last.replace("_", " ")
    of = of.removeprefix("chip.").removeprefix("costs").replace(".", " ")
    return f"{of} {name} {change.written}".strip()


def _winner_words(stand: Stand) -> str:
    """The winner as things stand, and how sure its objective is."""
    metric, winner = stand.objective, stand.winner
    who, best = winner["deployed"], "is best"
    if metric.startswith("usd_per_million"):
        best = "is cheapest"
        if many := winner.get("deployments"):
            who = f"{counted(many, 'deployment')} of {who}"
            best = f"{'is' if many == 1 else 'are'} cheapest for the demand"
    sure = f"kernel laws {winner['known']}"
    if f"{metric}.low" in winner:
        low, high = (show(metric, winner[f"{metric}.{end}"]) for end in ("low", "high"))
        sure = f"80% interval {low} to {high}, {sure}"
    return f"As things stand, {who} {best}: {priced(metric, winner[metric])} ({sure})."


def _demand_words(problem: Demanded, winner: Json) -> list[str]:
    """What the demand takes of the winner; nothing without a demand."""
    if problem.demand is None:
        return []
    said, load = demand_words(problem.demand), winner["at_average_load"]
    said = f"{said[0].upper()}{said[1:]}"
    busy = (
        f"each is busy {percent(load['busy_share'])} on average, where one that never waits would "
        f"cost {dollars(load['busy_usd_per_million_total_tokens'])} per million tokens"
    )
    if load["deployments"] is None:
        return [f"{said}: deployments of any size; {busy}."]
    low, high = load["deployments_interval"] or (0, 0)
    between = "" if low == high else f" (80% interval {low:,} to {high:,})"
    takes = f"{counted(load['deployments'], 'deployment')}{between}, "
    takes += f"{counted(load['chips'], 'chip')} in total"
    if load["meter_w"] is not None:
        takes += f", {units.format(load['meter_w'], 'W', 3)} at the meter"
    paid = f"{dollars(load['usd_per_hour'])} an hour, {dollars(load['usd_per_year'])} a year"
    return [f"{said}, takes {takes}: {paid}; {busy}."]


def _notes(problem: Demanded) -> list[str]:
    """How the chips of a demand are paid, and which arrivals each deployment gets."""
    if problem.demand is None:
        return []
    servers = zip(problem.machines.ids, problem.server.tolist(), strict=True)
    each = ", ".join(f"{size:.0f} {chip}" for chip, size in servers if size > 1.0)
    one = "one by one; --set whole_servers=true and dse fleet pay whole servers"
    whole = f"in whole servers (scale-up domains): {each}"
    notes = [f"chips of a demand are paid {whole if each else one}"]
    if random_arrivals(problem):
        notes.append("each deployment gets the arrivals of the study, and no more at the peak")
    return notes


def _rests_on(problem: Demanded, catalog: Catalog, ids: Sequence[int]) -> list[str]:
    """What the recommended points rest on beyond sourced figures, and the prices of their chips,
    each sentence once."""
    basis, rack, said = problem.study.price_basis, problem.study.rack, []
    found = points(problem, ids)
    for row in price_rows(catalog, problem):
        if row["chip"] in [point["chip"] for point in found]:
            known = [row["rule"], row["note"]]
            known += [row["date"]] * (row["date"] not in row["rule"])
            said.append(
                f"price of {row['chip']}: ${row['usd_per_chip_hour']:.2f} per chip-hour on basis "
                f"{basis} ({'; '.join(filter(None, known))})"
            )
    for point in found:
        index = problem.space.unrank(np.array([point["id"]]))
        tokens = number(problem.metrics(index).values["training_tokens"][0])
        model = problem.model or model_at(problem.batch(index), 0, "the winner", tokens)
        kind = KINDS.index(point["known"])
        said += assumptions(catalog, model, point["deployment"], problem.mix, kind, basis, rack)
    return list(dict.fromkeys(said))


# What twice a figure of a chip does.

# By figure, its name in `dse.schema.derive`; power is a cap.
DOUBLED = {
    "FLOP/s": "flops",
    "memory bandwidth": "bandwidth",
    "memory capacity": "capacity",
    "link bandwidth": "link_bandwidth",
    "network bandwidth": "network_bandwidth",
    "power": "",
}
TRAINING, ONE_USER, LOAD = "training", "one user's token", "served under load"
TRAINERS = 1024  # chips that train a model which is asked for
# Model and the chips that train it where no model is asked for: small and large, dense and sparse.
MODELS = {"llama-3-8b": 1024, "llama-3.1-405b": 16_384, "gpt-oss-20b": 512, "deepseek-v3": 2048}
TOKENS, WEIGHTS = "15T", "fp8"
# A chip of a catalog, and what its power is capped to.
Device = tuple[Catalog, str, str | None]
GROUPS = (1, 2, 4, 8, 16, 32, 64)
LOADS = tuple(round(2 ** (k / 2)) for k in range(0, 23))  # requests in flight a chip


def _of_chips(given: Json, catalog: Catalog, models: Mapping[str, int]) -> Answer:
    """Twice each figure of chips, for models that are trained and served."""
    catalog, chips = catalog.with_chips(given["chips"])
    said, blocks, _ = doubled(given, catalog, chips, models)
    return Answer(
        question="whatif",
        title=f"What binds training and serving: {', '.join(chips)}",
        asked=f"{', '.join(chips)}; {', '.join(models)}",
        headline=said[0],
        sentences=said[1:],
        blocks=blocks,
        document=document({}, [block for block in blocks if isinstance(block, Table)]),
        names=catalog.names,
    )


def doubled(given: Json, catalog: Catalog, chips: Sequence[str], models: Mapping[str, int]) -> Told:
    """Each task of each of `models`, by the chips that train it, and each figure of `chips`; the
    mean over the models; and dollars per unit of the figures of every chip with a price. Tasks that
    a chip cannot do are left out. Raises InputError for a limit of latency that is none."""
    text = given.get("tpot_limit") or "50ms"
    limit_s = units.parse(text, "s", field="--set tpot_limit")
    if not limit_s > 0.0:
        accepted = "above 0 s, such as 50ms"
        raise InputError(f"read {text!r}", field="--set tpot_limit", accepted=accepted)
    load = {"prompt_tokens": 2048, "output_tokens": 512}
    load = {name: given.get(name) or tokens for name, tokens in load.items()}
    catalog = with_basis(catalog, OWNED)
    prices = catalog.prices.select(given["price_basis"] or "rental_3yr")
    rows: list[dict[str, Any]] = []
    means: list[dict[str, Any]] = []
    said = []
    for chip in chips:
        price = prices[chip].usd_per_chip_hour if chip in prices else math.nan
        changed = {figure: _twice(catalog, chip, figure) for figure in DOUBLED}
        by_task: dict[str, dict[str, list[float]]] = {}
        for model, trainers in models.items():
            given["progress"](f"{chip}: {model}")
            own = (catalog, chip, None)
            group = next((n for n in GROUPS if _served(own, model, load, n, 1)), 0)
            about = (model, trainers, load, group, limit_s)
            now = _times(own, *about)
            for figure, to in changed.items():
                then = {} if to is None else _times(to, *about)
                for task, seconds in now.items():
                    count = trainers if task == TRAINING else group
                    row = {"chip": chip, "task": task, "model": model, "chips": count}
                    row |= {"figure": figure, "seconds": seconds}
                    after = then.get(task, math.nan)
                    ratio = seconds / after if figure == "power" else after / seconds
                    worth = math.nan if figure == "power" else price * (1.0 / ratio - 1.0)
                    row["change"] = number(ratio - 1.0)
                    row["elasticity"] = number(math.log(ratio) / math.log(2.0) + 0.0)
                    rows.append(row | {"worth_usd_per_chip_hour": number(worth)})
                    known = by_task.setdefault(task, {}).setdefault(figure, [])
                    known += [ratio - 1.0] if math.isfinite(ratio) else []
        gains = []
        for task, by_figure in by_task.items():
            mean = {name: sum(of) / len(of) if of else None for name, of in by_figure.items()}
            for name, change in mean.items():
                means.append({"chip": chip, "task": task, "figure": name, "change": change})
            first = min(mean, key=lambda name: mean[name] or 0.0)
            gains.append(f"{task} most by {first} ({share(mean[first] or 0.0)})")
        gain = f"Twice a figure of {chip} shortens {', '.join(gains)}."
        said.append(gain if gains else f"Nothing fits on {chip}.")
    names = list(dict.fromkeys(f"{row['chip']}, {row['task']}: {row['model']}" for row in rows))
    bars = {name: [row["elasticity"] for row in rows if row["figure"] == name] for name in DOUBLED}
    across = "elasticity of time: -1 halves it with twice the figure"
    shows = "Bars of how far the time of each task falls with each figure of the chip."
    keys = ("chip", "task", "model", "chips", "figure", "change", "worth_usd_per_chip_hour")
    caption = "Change of chip-seconds with twice a figure"
    blocks: list[Block] = [
        bar_chart("doubled", "What each figure does", names, bars, across, shows),
        table("doubled_mean", f"{caption}, mean", means, keys),
        table("doubled", caption, rows, keys, on_console=len(names) < 4),
        _unit_prices(catalog),
    ]
    return said, blocks, []


def _twice(catalog: Catalog, chip: str, figure: str) -> Device | None:
    """The device with twice the figure; of power, with half of it. None where the chip has no such
    figure."""
    if figure == "power":
        watts = catalog.chip(chip).tdp_w
        return None if watts is None else (catalog, chip, f"{watts / 2:g} W")
    try:
        own = derive(catalog, chip, [f"{DOUBLED[figure]}=2x"])
    except InputError:
        return None
    return with_own_chips(catalog, [own]), own.chip.id, None


def _served(device: Device, model: str, load: Json, group: int, flight: int) -> Json | None:
    """The estimate of `flight` requests on `group` chips; None where that cannot be."""
    catalog, chip, cap = device
    own: Any = {"tp": group, "ep": group if load_model(model).experts else 1, "concurrency": flight}
    own |= {**load, "weight_dtype": WEIGHTS, "power_cap": cap}
    try:
        found = estimate(model, chip, **own, catalog=catalog).document
    except (InputError, NothingFeasible):
        return None
    return found if found["feasible"] else None


def _times(
    device: Device, model: str, trainers: int, load: Json, group: int, tpot_limit_s: float
) -> dict[str, float]:
    """Chip-seconds of each task that the chip can do: a token of training on the best plan, a token
    of one user on `group` chips, and an output token at the load that reaches the limit, between
    the last one that keeps it and the next. A power cap is of serving alone."""
    found: dict[str, float] = {}
    catalog, chip, cap = device
    if cap is None:
        plan = train(model, chip, trainers, tokens=TOKENS, catalog=catalog).document
        if plan["feasible"]:
            found[TRAINING] = trainers / plan["tokens_per_s"]
    if group and (one := _served(device, model, load, group, 1)) is not None:
        found[ONE_USER] = float(one["tpot_s"])
    last_s = last = 0.0
    for flight in LOADS if group else ():
        if (one := _served(device, model, load, group, flight * group)) is None:
            break
        tpot_s, cost = one["tpot_s"], 1.0 / one["output_tokens_per_s_per_chip"]
        if tpot_s > tpot_limit_s:
            if last:
                part = (tpot_limit_s - last_s) / (tpot_s - last_s)
                found[LOAD] = last + part * (cost - last)
            break
        found[LOAD] = cost
        last_s, last = tpot_s, cost
    return found


def _unit_prices(catalog: Catalog) -> Table:
    """Dollars a chip-hour over its dense 16-bit PFLOP/s, TB/s of memory and 100 GB, by chip and
    price basis, the oldest first."""
    rows = []
    for basis in catalog.prices.bases():
        for chip, price in catalog.prices.select(basis).items():
            if (spec := catalog.chips.get(chip)) is None:
                continue
            hour, peak = price.usd_per_chip_hour, spec.peak_flops_per_s.get("bf16")
            bandwidth = spec.memories[0].bytes_per_s
            row = {"chip": chip, "year": spec.year, "basis": basis, "usd_per_chip_hour": hour}
            row["usd_per_pflop"] = hour / (peak / 1e15) if peak else None
            row["usd_per_tb_per_s"] = hour / (bandwidth / 1e12) if bandwidth else None
            rows.append(row | {"usd_per_100_gb": hour / (spec.capacity_bytes / 1e11)})
    rows.sort(key=lambda row: (row["basis"], row["year"] or 0, row["chip"]))
    caption = "Dollars per chip-hour for each PFLOP/s (dense, 16 bits), TB/s and 100 GB"
    return table("unit_prices", caption, rows, (), on_console=False)


def sweep_of(written: str, known: Mapping[str, Input]) -> tuple[Change, ...]:
    """`chip.all.price=0.5x..2x:7`: so many changes, evenly spaced. Raises InputError."""
    field = f"--sweep {written}"
    name, equals, rest = written.partition("=")
    ends, colon, count = rest.rpartition(":")
    first, dots, last = ends.partition("..")
    if not (equals and colon and dots):
        form = "INPUT=FROM..TO:STEPS, such as chip.h100_sxm.price=1USD/h..4USD/h:7"
        raise InputError(f"read {written!r}", field="--sweep", accepted=form)
    a, b = change_to(name, first, known, field), change_to(name, last, known, field)
    if count.strip() == "1" or (a.factor, a.value) == (b.factor, b.value):
        accepted = f"2 to {MOST_STEPS} steps between two ends that differ"
        raise InputError("a sweep of one point", field=field, accepted=accepted)
    if not count.strip().isdigit() or not 2 <= int(count) <= MOST_STEPS:
        accepted = f"2 to {MOST_STEPS} steps"
        raise InputError(f"read {count!r} steps", field=field, accepted=accepted)
    if (a.value is None) != (b.value is None):
        raise InputError("one end is a factor", field=field, accepted="two factors or two values")
    return tuple(between(a, b, x) for x in np.linspace(0.0, 1.0, int(count)).tolist())
