"""Figures: one number each, with its source, date, kind and the vendor's words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from dse import units
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import did_you_mean
from dse.schema.plausible import unusual
from dse.schema.reader import UNDATED, Date, Field, Listed, Place, Table, Text, Word, brief

Kind = Literal["spec", "measured", "claimed", "estimated", "assumed", "fitted", "derived"]
KINDS: tuple[str, ...] = get_args(Kind)
OWN_SOURCE = "the user's own file"
REASON = "given by the user's own file, which names no source"


@record
class Figure:
    """One number with where it comes from.

    `value` is SI in the dimension `unit` and `text` what the file says. A figure that is a word
    (unit "text", a topology) has value NaN.
    """

    name: str
    value: float
    unit: str
    text: str
    source: str
    date: str
    kind: str
    quote: str | None
    note: str | None
    alternatives: tuple[Figure, ...]

    def named(self, name: str) -> Figure:
        """The same under another name, its alternatives too."""
        return replace(
            self, name=name, alternatives=tuple(one.named(name) for one in self.alternatives)
        )


def reasons(figures: tuple[Figure, ...]) -> tuple[str, ...]:
    """The assumed figures, each as "name: reason"."""
    return tuple(f"{f.name}: {f.note}" for f in figures if f.kind == "assumed")


@record
class Value:
    """(SI value, text) of a figure, or (NaN, text) of a word. Times may be zero, everything else
    is above it."""

    dimension: str
    words: tuple[str, ...] = ()
    whole: bool = False
    least: float = 0.0
    most: float = math.inf
    accepted: str = ""  # with `most`, in other words
    zero: bool = True  # of a time
    usual: tuple[float, float] = (0.0, math.inf)  # doubted outside

    def read(self, written: Any, at: Place) -> tuple[float, str] | None:
        text = Text().read(written, at)
        if text is None:
            return None
        if self.dimension == "text":
            if self.words and text not in self.words:
                hint = did_you_mean(text, self.words)
                return at.wrong(f"read {text!r}{hint}", ", ".join(self.words))
            return math.nan, text
        try:
            value = units.parse(text, self.dimension)
        except InputError as error:
            return at.wrong(error.message, error.accepted)
        if value == 0 and not (self.dimension == "s" and self.zero):
            return at.wrong(f"read {text!r}: zero", "more than zero")
        if self.whole and value != int(value):
            return at.wrong(f"read {text!r}", "a whole number")
        if not self.least <= value <= self.most:
            ends = [units.format(end, self.dimension) for end in (self.least, self.most)]
            message = " to ".join(ends) if self.least else f"at most {ends[1]}"
            return at.wrong(f"read {text!r}", self.accepted or message)
        if message := unusual(value, self.usual, lambda one: units.format(one, self.dimension)):
            at.doubt(f"read {text!r}{message}")
        return value, text


def sourced(value: Value, *further: Field) -> Table[dict[str, Any]]:
    """The table of a value with its source."""
    return Table(
        Field("value", value, meaning="a number with its unit"),
        Field("kind", Word(KINDS), meaning="how far the number can be trusted"),
        Field("source", Text(1), meaning="where it is published"),
        Field("date", Date(), meaning="when", example="2026-11"),
        Field("quote", Text(), None, meaning="the vendor's words"),
        Field("note", Text(), None, meaning="what else is to know; why, where it is assumed"),
        *further,
    )


class Figured:
    """Reads a figure with its source and, unless `alone`, the conflicting values of other sources.

    `further` are fields beside those of a figure: `make` takes the figure and their values by name.
    `bare` is the source of a value that stands alone in a file of the user's own, None where that
    is refused.
    """

    def __init__(
        self,
        value: Value | str,
        *further: Field,
        name: str = "",
        alone: bool = False,
        bare: str | None = None,
        make: Callable[..., Any] | None = None,
    ) -> None:
        self.value = Value(value) if isinstance(value, str) else value
        self.name, self.bare, self.make = name, bare, make
        more = ()
        if not alone:
            more = (Field("alternatives", Listed(Figured(self.value, alone=True)), ()),)
        self.table = sourced(self.value, *more, *further)
        self.further = tuple(field.to or field.name for field in further)

    def read(self, written: Any, at: Place) -> Any:
        name = self.name or next((str(p) for p in reversed(at.path) if isinstance(p, str)), "")
        if self.bare is not None and not isinstance(written, Mapping):
            return self._bare(written, at, name)
        found = self.table.read(written, at)
        if found is None:
            return None
        if found["kind"] == "assumed" and not found["note"]:
            message = f"read {brief(written)}: an assumed figure without its reason"
            return at.wrong(message, "a `note` that says why")
        (value, text), rest = found.pop("value"), {n: found.pop(n) for n in self.further}
        others = tuple(one.named(name) for one in found.pop("alternatives", ()))
        figure = Figure(name, value, self.value.dimension, text, **found, alternatives=others)
        return figure if self.make is None else self.make(figure, **rest)

    def _bare(self, written: Any, at: Place, name: str) -> Figure | None:
        if isinstance(written, bool) or not isinstance(written, str | int | float):
            accepted = f"{units.example(self.value.dimension)}, or a mapping with value, kind, "
            return at.wrong("nothing that can be read", f"{accepted}source and date")
        found = self.value.read(written, at)
        if found is None:
            return None
        (value, text), about = found, (UNDATED, "assumed", None, REASON, ())
        return Figure(name, value, self.value.dimension, text, self.bare or "", *about)
