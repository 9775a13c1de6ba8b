"""A solved plan as an Answer."""

from __future__ import annotations

from dse.answer.answer import Answer, table_of
from dse.questions.fleet.answer import Solution
from dse.questions.fleet.document import document
from dse.questions.fleet.figures import figures
from dse.questions.fleet.tables import data_table, tables
from dse.questions.fleet.words import WORDS, asked_words, assumptions, lead


def fleet_answer(found: Solution, command: str = "") -> Answer:
    sentences, rests = lead(found), assumptions(found)
    made = document(found, sentences, rests)
    # The options that were weighed are for the workbook alone.
    return Answer(
        question="fleet",
        title=f"Fleet: {found.plan.title}",
        asked=asked_words(found.plan),
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*figures(found, made), *tables(found, made)),
        rests=rests,
        command=command,
        document=made,
        data=(data_table(found), table_of("options", made["options"])),
        words=WORDS,
    )
