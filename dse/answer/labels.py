"""What metrics are called, the unit they are shown in, the layers of a model in words, and the
words that a reader may not know."""

from __future__ import annotations

from dataclasses import dataclass

from dse.answer.numbers import SHOWN_AS, kind_of
from dse.data import rows_beside
from dse.vocabulary import find


@dataclass(frozen=True, slots=True)
class Label:
    """A metric on a page: `unit` and `scale` in tables and axes (shown = SI * scale)."""

    text: str
    kind: str
    unit: str = ""
    scale: float = 1.0
    meaning: str = ""
    short: str = ""


# Unit and scale of an axis by the kind of its metric, its dimension or its own name.
_AXES = {
    name: (row["axis_unit"], float(row["axis_scale"]))
    for name, row in SHOWN_AS.items()
    if row["axis_scale"]
}


BASES = {
    "rental_3yr": "chips rented on a three-year contract",
    "on_demand": "chips rented by the hour, without commitment",
    "owned_tco": "chips owned: server, network, capital, upkeep and power over their life",
}

BOUNDS = {
    "compute": "the chips' arithmetic is the limit",
    "memory bandwidth": "chips wait for weights and KV cache to come from their memory",
    "network": "chips wait for each other's results",
    "memory tier": "chips wait for weights and KV cache to come from a slower memory behind theirs",
    "power cap": "the clock is slowed so that the chip stays within its power cap",
    "fixed overhead": "launching kernels and scheduling on the host take the time, not the work",
}


def label(metric: str) -> Label:
    """The label of a metric; one without a row is shown under its own name."""
    row, kind = find(metric), kind_of(metric)
    if row is None:
        text = metric.replace("_", " ")
        if kind == "dollars":
            text = text.removeprefix("usd ").join(("USD ", ""))
        text = text.removesuffix(" s") if kind == "time" else text
        return Label(text, kind, *_axis(kind), short=text)
    names = (row.axis, row.dimension, kind)
    found = next((name for name in names if name in _AXES and name != "s"), kind)
    return Label(
        row.title, row.dimension, *_axis("s" if row.axis == "s" else found), row.meaning, row.short
    )


def _axis(name: str) -> tuple[str, float]:
    return _AXES.get(name, ("", 1.0))


def axis_title(metric: str, direction: str | None = None) -> str:
    """`cost per million tokens (USD), lower is better`."""
    known = label(metric)
    title = f"{known.text} ({known.unit})" if known.unit else known.text
    if direction is None:
        return title
    return f"{title}, {'lower' if direction == 'minimize' else 'higher'} is better"


# The words that a reader may not know, each explained once: the rows of glossary.csv.

GLOSSARY = {row["term"]: row["meaning"] for row in rows_beside(__file__, "glossary.csv")}
