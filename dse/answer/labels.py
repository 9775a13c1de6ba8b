"""What metrics are called, the unit they are shown in, the layers of a model in words, and the
words that a reader may not know."""

from __future__ import annotations

from dataclasses import dataclass

from dse.answer.numbers import kind_of
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


# Unit and scale of an axis by the kind of its metric.
_AXES = {
    "time": ("ms", 1e3),
    "s": ("s", 1.0),
    "bytes": ("GB", 1e-9),
    "kB": ("kB", 1e-3),
    "dollars": ("USD", 1.0),
    "usd/h": ("USD per hour", 1.0),
    "share": ("%", 100.0),
    "change": ("%", 100.0),
    "parameters": ("B", 1e-9),
    "tokens": ("B", 1e-9),
    "power": ("W", 1.0),
    "energy": ("J", 1.0),
    "kwh": ("kWh", 1.0),
    "days": ("days", 1.0),
    "flop": ("FLOP", 1.0),
    "tera": ("TFLOP/s", 1e-12),
    "nats": ("nats per token", 1.0),
    "tokens/s": ("tokens/s", 1.0),
    "tokens/J": ("tokens/J", 1.0),
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
