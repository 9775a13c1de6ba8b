"""The answer of `dse scale`: its sentences, pictures and tables, for one chip or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dse.answer.answer import Answer, Cell, Column, Table
from dse.questions.scale.answer import Scaled, document
from dse.questions.scale.figures import figures
from dse.questions.scale.tables import stage_table, tables
from dse.questions.scale.words import WORDS, asked_words, lead

COLUMNS = (
    "tpot_s",
    "ttft_s",
    "output_tokens_per_s_per_chip",
    "usd_per_million_total_tokens",
    "network_share",
    "bound",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "redundant_experts",
    "concurrency",
    "kind",
)


def scale_answer(
    answers: Sequence[Scaled], *, with_stages: bool = False, command: str = ""
) -> Answer:
    """One answer for the chips of `answers`. `with_stages` prints the table of pipeline stages,
    which the page always has."""
    sentences = lead(answers)
    found = document(answers, sentences)
    shown: list[Table] = []
    for answer in answers:
        stages = replace(stage_table(answer), on_console=with_stages)
        shown += [*tables(answer), stages]
    return Answer(
        question="scale",
        title=f"Scale up or scale out: {found['model']}",
        asked=f"{found['model']}, {asked_words(found)}",
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*figures(answers), *shown),
        rests=tuple(dict.fromkeys(text for answer in answers for text in answer.assumed)),
        command=command,
        document=found,
        data=(size_data(answers),),
        words=WORDS,
    )


def size_data(answers: Sequence[Scaled]) -> Table:
    """scale.csv: a line for each chip and size, empty where it does not run."""
    loads = ("single", "within")
    rows = []
    for answer in answers:
        for row in answer.sizes:
            cells: dict[str, Cell] = {
                "chip": answer.subject.chip,
                "chips": row.chips,
                "crosses_domain": row.crosses_domain,
                "choices": row.choices,
                "reason": row.reason or "",
            }
            for load in loads:
                point = getattr(row, load)
                cells |= {
                    f"{load}_{name}": None if point is None else getattr(point, name)
                    for name in COLUMNS
                }
            rows.append(cells)
    keys = ("chip", "chips", "crosses_domain", "choices", "reason")
    keys += tuple(f"{load}_{name}" for load in loads for name in COLUMNS)
    return Table("data", "Every size", [Column(key, key) for key in keys], rows)
