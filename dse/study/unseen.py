"""What a space searches that no quality law sees: said wherever its predicted losses are shown.

`unseen.csv` has a row for each such choice: the `axes` that make it, `what` it is, what is
`published` on it, and a `limit` that bounds it. The published comparisons are quoted, never turned
into a coefficient: models of other sizes, data and benchmarks.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dse.schema.axes import Axis


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The file; several axes of a row have spaces between."""
    with Path(__file__).with_name("unseen.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def unseen(axes: Sequence[Axis]) -> tuple[str, ...]:
    """A sentence for everything that the axes search and no law sees."""
    searched = {axis.name for axis in axes if len(axis.values) > 1}
    found = []
    for row in rows():
        names = [name for name in row["axes"].split() if name in searched]
        if names:
            found.append(
                f"Searched here, and no law sees it: {row['what']} ({', '.join(names)}). Losses "
                f"differ by parameters alone. Published: {row['published']} "
                f"To bound it: {row['limit']}."
            )
    return tuple(found)
