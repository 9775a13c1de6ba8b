"""The parts of a whole, for any question: bars of their shares, and a table of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dse.answer.answer import Column, Figure, Table
from dse.answer.numbers import share
from dse.answer.plots import plain


def share_bars(name: str, title: str, of: str, shares: Mapping[str, float]) -> Figure:
    """A bar for each key of `shares`, the first on top; `of` names the whole."""
    longest = max(shares, key=lambda key: shares[key])
    return Figure(
        name,
        title,
        {
            "data": [
                {
                    "type": "bar",
                    "orientation": "h",
                    "x": list(shares.values())[::-1],
                    "y": [plain(key) for key in shares][::-1],
                }
            ],
            "layout": {
                "xaxis": {"title": {"text": f"share of {of}"}, "tickformat": ".0%"},
                "yaxis": {"automargin": True},
            },
        },
        f"A bar for each part, as a share of {of}. The longest is {longest}, "
        f"{share(shares[longest])}.",
    )


def memory_parts(
    parts: Mapping[str, float], capacity: float, caption: str, of: str, notes: Sequence[str] = ()
) -> Table:
    """Bytes of each part, and their share of a capacity, which is the last row."""
    return Table.of(
        "memory",
        caption,
        [*parts.items(), ("capacity", capacity)],
        (
            Column("part", of, of=lambda row: row[0]),
            Column("bytes", "memory", "bytes", of=lambda row: row[1]),
            Column("share", "of capacity", "share", of=lambda row: row[1] / capacity),
        ),
        notes,
    )
