"""The Answer of `dse whatif`: the winner, then a section for each question that was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Block, Column, Notes, Section, Table, long_table
from dse.economics.evidence import evidence_words
from dse.economics.priced import price_parts
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY
from dse.questions.whatif import breakeven, change, equal, sensitivity
from dse.questions.whatif.inputs import ARRIVALS
from dse.questions.whatif.words import (
    WORDS,
    Json,
    asked_words,
    demand_words,
    in_full,
    winner_words,
)


def whatif_answer(document: Mapping[str, Any], command: str = "") -> Answer:
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
        command=command,
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
