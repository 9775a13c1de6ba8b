"""The laws with what laws.csv says of each: title, sources, where it was fitted, what it does not
see, coefficients. A row stands for every law that it names, `*` for all; of the sources, `depth`,
`quantisation` and `repeats` stand for those of the terms that laws share."""

from __future__ import annotations

from typing import Any

from dse.data import rows_beside
from dse.quality import quantisation
from dse.quality.law import (
    DEPTH_SOURCE,
    REPEATS_SOURCE,
    Coefficient,
    Law,
)

_TERMS = {"depth": DEPTH_SOURCE, "quantisation": quantisation.SOURCE, "repeats": REPEATS_SOURCE}
_ROWS = rows_beside(__file__, "laws.csv")


def law_of(name: str, **own: Any) -> Law:
    """The law of laws.csv under a name; `own` are the other fields of `Law`."""
    rows = [row for row in _ROWS if {name, "*"} & {*row["laws"].split()}]

    def texts(part: str) -> tuple[str, ...]:
        found = (row["text"] for row in rows if row["part"] == part)
        return tuple(_TERMS.get(text, text) for text in found)

    return Law(
        name=name,
        title=texts("title")[0],
        sources=texts("source"),
        fit_range=texts("fitted on"),
        not_seen=texts("not seen"),
        coefficients=tuple(
            Coefficient(*(row[key] for key in ("text", "value", "source", "date", "kind")))
            for row in rows
            if row["part"] == "coefficient"
        ),
        **own,
    )
