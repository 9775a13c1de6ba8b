"""Horizontal bars of the shares of a whole, for any question."""

from __future__ import annotations

from collections.abc import Mapping

from dse.answer.answer import Figure
from dse.answer.numbers import share
from dse.answer.palette import plain


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
