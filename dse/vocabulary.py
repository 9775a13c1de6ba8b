"""The vocabulary: every quantity of an input or an output has one row in vocabulary.csv.

Its key is the name of a column, an axis, a JSON key, a header of a CSV file and a field of
`--set`. A row says what people call the quantity, how its numbers are printed, which direction is
better, and what it means. The class of a file kind owns ranges and defaults, and nothing else.

A key may end in a qualifier, itself a row whose key starts with a dot: `tpot_s.low` is the low end
of the interval of `tpot_s`, `ttft_s.at_limits` the time to first token within the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from dse.data import rows_beside
from dse.record import record

Direction = Literal["minimize", "maximize"]
FILE = "vocabulary.csv"


@record
class Quantity:
    """One row. `title` is the name in a sentence and on an axis, `short` the title of a column.

    `kind` is how `dse.answer.numbers` prints it (empty: words, or as `dimension` says), `digits`
    the significant digits. `direction` is the better one. The rest matters to metrics alone:
    `dimension` is one of `dse.units`, or a unit that only metrics have ("tokens/s", "usd/Mtoken",
    "tokens/J", "nats", "fraction", "days", "kWh", "chip-h"); `log` scales the metric by logarithm
    in the hypervolume; `axis` is the unit of an axis where that is not usual for the dimension;
    objectives and limits may name those that are `searched`.
    """

    key: str
    title: str
    short: str
    kind: str
    direction: Direction
    digits: int
    dimension: str
    log: bool
    axis: str
    searched: bool
    meaning: str


@cache
def quantities() -> Mapping[str, Quantity]:
    """Every row by its key, in the order of the file."""
    return {
        row["key"]: Quantity(
            key=row["key"],
            title=row["title"],
            short=row["short"],
            kind=row["kind"],
            direction="minimize" if row["direction"] == "lower" else "maximize",
            digits=int(row["digits"] or 3),
            dimension=row["dimension"],
            log=row["scale"] == "log",
            axis=row["axis"],
            searched=row["searched"] == "yes",
            meaning=row["meaning"],
        )
        for row in rows_beside(__file__, FILE)
    }


def find(key: str) -> Quantity | None:
    """The row of a key; None for one that the vocabulary lacks.

    That of a key with a qualifier is its row with the qualifier's words: the short title of
    `tpot_s.low` is `per token, low`.
    """
    rows = quantities()
    stem, dot, qualifier = key.rpartition(".")
    if key in rows or not dot:
        return rows.get(key)
    whole, part = find(stem), rows.get(dot + qualifier)
    if whole is None or part is None:
        return None
    return replace(
        whole,
        key=key,
        title=f"{whole.title}, {part.title}",
        short=f"{whole.short}, {part.short}",
        kind=part.kind or whole.kind,
        dimension="" if part.kind else whole.dimension,
        searched=False,
        meaning=f"{whole.meaning}: {part.meaning}",
    )


def quantity(key: str) -> Quantity:
    """The same. Raises KeyError for a key that the vocabulary lacks."""
    if (row := find(key)) is None:
        raise KeyError(f"{key} has no row in {FILE}")
    return row
