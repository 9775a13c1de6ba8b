"""`dse.whatif`, what changes when an input does, and `dse.require`, what a chip lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer, Block, Column, Notes, Section, Table, long_table
from dse.catalog import Catalog, load_catalog
from dse.economics.evidence import evidence_words
from dse.economics.priced import price_parts
from dse.errors import InputError
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY
from dse.questions.whatif import breakeven, change, equal, sensitivity
from dse.questions.whatif.answer import Questions, answer
from dse.questions.whatif.change import from_file, from_flags, read_sweep
from dse.questions.whatif.equal import KINDS
from dse.questions.whatif.inputs import ARRIVALS, inputs_of
from dse.questions.whatif.require import require_answer, required
from dse.questions.whatif.subject import Subject, of_study, under
from dse.questions.whatif.subject import whole_servers as in_whole_servers
from dse.questions.whatif.words import WORDS, Json, asked_words, demand_words, in_full, winner_words
from dse.schema.loader import did_you_mean


def whatif(
    study: Any,
    changes: Mapping[str, str] | None = None,
    *,
    scenario: str | None = None,
    sweeps: Sequence[str] = (),
    sensitivities: bool = False,
    break_even: bool = False,
    equal: Sequence[str] = (),
    at: str | None = None,
    rack_power: str = "40kW",
    demand: str | None = None,
    peak_over_average: str | None = None,
    whole_servers: bool = False,
    limits: Sequence[str] = (),
    objective: str | None = None,
    settings: Sequence[str] = (),
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """What enters and leaves the front, who wins and by how much, where inputs change.

        dse.whatif("tiny", {"chip.h100_sxm.price": "-20%"}).to_html("whatif.html")

    `study` is what `dse.run` returned, its folder, a shipped space, the path of a space file, or a
    dict such as that of `dse.space_of_model`. `changes` are inputs and what becomes of them;
    `settings` are the same as `--set` takes them. The other arguments are the options of
    `dse whatif`.

    Raises InputError for what cannot be read, NothingFeasible where no point keeps the limits.
    """
    subject = of_study(_space(study), catalog or load_catalog(), limits, objective)
    if demand is not None or peak_over_average is not None:
        subject = under(subject, demand, peak_over_average)
    if whole_servers:
        subject = in_whole_servers(subject)
    known = inputs_of(subject)
    made = [*settings, *(f"{name}={to}" for name, to in (changes or {}).items())]
    scenarios = from_flags(made, known)
    fixed = scenarios[0].changes if scenarios else ()
    questions = Questions(
        scenarios=[*scenarios, *(from_file(scenario, known) if scenario else [])],
        sweeps=[read_sweep(text, known) for text in sweeps],
        fixed=fixed,
        sensitivities=sensitivities,
        break_even=break_even or _ranks(subject, made, scenario, sweeps, sensitivities, equal),
        equal=list(dict.fromkeys(equal)),
        at=at,
        rack_w=_rack_power(rack_power),
    )
    _check(questions)
    made = whatif_answer(answer(subject, questions, progress))
    return replace(made, names=subject.catalog.names)


def _ranks(subject: Subject, *asked: Any) -> bool:
    """Whether nothing else is asked of a model on several chips: these are then ranked."""
    problem = subject.problem
    return not any(asked) and problem.model is not None and len(problem.machines.ids) > 1


def require(
    study: Any,
    chip: str,
    *,
    space: str | None = None,
    catalog: Catalog | None = None,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Answer:
    """What bandwidth, capacity, FLOP/s, link, domain, price or power a chip must have to enter the
    front of a finished study.

        dse.require("studies/llama", "mi300x").headline

    `chip` is an id or the path of a chip file; each figure is changed alone; `space` is the
    study's space file, where that has moved. Raises InputError.
    """
    known, name = (catalog or load_catalog()).with_chip(chip)
    folder = Path(_space(study))
    found = required(folder, name, known, space=space, progress=progress)
    return replace(require_answer(found), names=known.names)


def _space(study: Any) -> Any:
    return study if isinstance(study, Mapping) else getattr(study, "folder", study)


def _check(asked: Questions) -> None:
    """Raises InputError for questions that do not go together."""
    for kind in asked.equal:
        if kind not in KINDS:
            message = f"unknown kind {kind!r}{did_you_mean(kind, KINDS)}"
            raise InputError(message, field="--equal", accepted=", ".join(KINDS))
    if asked.at and len(asked.equal) != 1:
        raise InputError("--at needs one --equal", accepted="--equal power --at 100kW")
    changed = [change.input.name for change in asked.fixed]
    for sweep in asked.sweeps:
        if sweep.input.name in changed:
            raise InputError(
                f"{sweep.input.name} is set and swept", field="--sweep", accepted="one of the two"
            )
    of_today = {
        "sensitivities": asked.sensitivities,
        "break-even": asked.break_even,
        "equal": asked.equal,
    }
    other = [name for name, given in of_today.items() if given]
    if other and changed:
        raise InputError(
            f"--{other[0]} is asked of the study as it stands",
            field="--set",
            accepted="one of the two; --sweep goes with --set",
        )


def _rack_power(text: str) -> float:
    rack_w = units.parse(text, "W", field="--rack-power")
    if rack_w <= 0.0:
        raise InputError(f"read {text!r}", field="--rack-power", accepted="a power above 0")
    return rack_w


def whatif_answer(document: Mapping[str, Any]) -> Answer:
    """`document` is that of `answer.answer`; the sentences join it under `answer`."""
    said = sentences(document)
    how = [document["how"], *document["notes"], f"{DEPLOYMENT_KEY}{HELD_KEY}"]
    found = Notes("How it was found", [f"{text[0].upper()}{text[1:]}." for text in how])
    made = Answer(
        question="whatif",
        title=f"What if: {document['title']}",
        asked=asked_words(document),
        headline=said[0],
        sentences=said[1:],
        blocks=(*_sections(document), found),
        rests=document["assumed"],
        document={**document, "answer": said},
        data=(long_table("data", _parts(document)),),
        words=WORDS,
    )
    first = made.first_screen
    return (
        made if first is None else replace(made, opening=replace(first, headline=_lead(document)))
    )


def _lead(document: Json) -> str:
    """The winner and the first answer, deployments in words."""
    found = in_full(document)
    even = found["break_even"]
    answers = [*change.sentences(found, brief=True), *(breakeven.sentences(even) if even else [])]
    answers += [equal.sentence(row) for row in found["equal"]]
    return " ".join((winner_words(found), *answers[:1]))


def sentences(document: Json) -> list[str]:
    """The winner as things stand first, then the answers in the order of the questions, then what
    is to be checked of the winner's price."""
    chip = document["winner"]["chip"]
    priced = [row for row in document["price_evidence"] if row["chip"] == chip]
    found = [winner_words(document)]
    if document["feasible_pools"] == 0:
        found.append("No prefill and decode on pools of their own keep the rules and the limits.")
    found += [*demand_words(document), *change.sentences(document)]
    if document["sensitivities"] is not None:
        found += sensitivity.sentences(document)
    if document["break_even"] is not None:
        found += breakeven.sentences(document["break_even"])
    found += [equal.sentence(row) for row in document["equal"]]
    return [*found, *evidence_words(priced)]


def _sections(document: Json) -> list[Block]:
    """A section for each kind of question; where nothing is changed, what may be."""
    even, equals = document["break_even"], document["equal"]
    moves = [] if document["sensitivities"] is None else sensitivity.blocks(document)
    made = {
        "What changes": change.blocks(document),
        "What moves it": moves,
        "Where choices cost the same": breakeven.blocks(even) if even else [],
        "On equal footing": [
            block for row in equals for block in equal.blocks(row, document["winner"])
        ],
    }
    found: list[Block] = [Section(title, blocks) for title, blocks in made.items() if blocks]
    if not any(document[name] for name in ("scenarios", "sweeps", "sensitivities", "equal")):
        found.append(_inputs_table(document["inputs"], document["demand"]))
    if document["prices"] and not (even and even["owning"]):
        found.append(price_parts(document["prices"]))
    return found


def _inputs_table(inputs: list[Json], demand: Json | None) -> Table:
    """The inputs that have a value, for a question that changes none."""
    notes = ["Also limit.METRIC of any metric, chip.all.FIGURE of every chip."]
    if any(row["unit"] == ARRIVALS for row in inputs):
        notes.append(
            "demand is the rate at which requests arrive at one deployment with its replicas; "
            "--demand 1B/day buys as many deployments as a demand takes."
        )
    elif demand is None:
        notes.append("Also demand=1B/day, input and output tokens, and peak_over_average.")
    return Table(
        "inputs",
        "What may be changed with --set and --sweep, and its value now",
        (Column("input", "input", code=True), Column("words", "now", right=True)),
        [row for row in inputs if row["now"] is not None],
        notes,
    )


def _parts(document: Json) -> dict[str, list[Json]]:
    """The rows of every question, as whatif.csv holds them."""
    even = document["break_even"] or {}
    together = even.get("concurrency") or {}
    return {
        "winner": [document["winner"]],
        "scenarios": [_without(row, "old_winner", "picture") for row in document["scenarios"]],
        "sweeps": [
            {"input": sweep["input"], "unit": sweep["unit"], **row}
            for sweep in document["sweeps"]
            for row in sweep["rows"]
        ],
        "sensitivities": document["sensitivities"] or [],
        "shadow_prices": document["shadow_prices"] or [],
        "break_even": even.get("chips", []),
        "concurrency": [
            {"a": together["a"], "b": together["b"], **row} for row in together.get("rows", [])
        ],
        "owning": even.get("owning", []),
        "owning_by_utilisation": [
            {"chip": row["chip"], **one} for row in even.get("owning", []) for one in row["curve"]
        ],
        "equal": [
            {"kind": one["kind"], "level": one["level"], "unit": one["unit"], **row}
            for one in document["equal"]
            for row in one["rows"]
        ],
        "inputs": document["inputs"],
    }


def _without(row: Json, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
