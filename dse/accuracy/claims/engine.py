"""A claim is data: a question, what is computed for it, thresholds, and the sentence of the answer.

A file of search_spaces/claims/ names the `measure`, a function of this package. It takes the
thresholds that are `given` and returns what it computed. `contradicted` and `confirmed` are lists
of conditions; each line may join several with "and", and a line that holds is enough. What is
neither is qualified. Texts may hold `{name}` or `{name:format}` of a figure, a fact or a threshold.
"""

from __future__ import annotations

import importlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from dse.answer.numbers import NONE, digits, in_ms, percent, times
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.schema.loader import load_yaml
from dse.schema.reader import ByName, Field, Listed, Number, Text, Whole, read
from dse.schema.reader import Table as Fields

CONFIRMED, QUALIFIED, CONTRADICTED = "confirmed", "qualified", "contradicted"
VERDICTS = (CONFIRMED, QUALIFIED, CONTRADICTED)

Fact = float | str | None
# Several values of one cell are said by a template of its column.
Cell = Fact | tuple[Fact, ...]
Rows = Sequence[Sequence[Cell]]
Given = Mapping[str, float]

# How texts and columns print a number; else as Python formats it.
FORMATS: Mapping[str, Callable[[float], str]] = {
    "percent": percent,
    "times": times,
    "digits": digits,
    **{f"digits{count}": partial(digits, count=count) for count in (2, 4, 5)},
    "ms": in_ms,
    "billions": lambda value: digits(value / 1e9),
}
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FIELD = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measure computed. `figures` are printed by name; `tables` hold the rows of each table
    of the claim; `facts` are further values that the verdict and the texts need."""

    figures: Mapping[str, float | None]
    tables: Sequence[Rows]
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """A few rows of evidence, every cell a text."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """`verdict` is one of VERDICTS; `number` says the main figures in one line; `conditions`:
    chips, models, loads that they hold for; `kinds`: which of them are measured, fitted, derived,
    assumed; `unknown`: what nobody published or nothing here models. A figure that does not apply
    is None."""

    verdict: str
    number: str
    figures: Mapping[str, float | None]
    conditions: str
    tables: tuple[Table, ...]
    kinds: str
    unknown: str


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Each column is `title`, or `title | how` as `shown` takes it."""

    title: str
    columns: tuple[str, ...]

    def filled(self, rows: Rows, facts: Mapping[str, Fact]) -> Table:
        parts = [column.partition(" | ") for column in self.columns]
        head = tuple(fill(title, facts) for title, _, _ in parts)
        cells = (
            tuple(shown(cell, how) for cell, (_, _, how) in zip(row, parts, strict=True))
            for row in rows
        )
        return Table(fill(self.title, facts), head, tuple(cells))


@dataclass(frozen=True, slots=True)
class Claim:
    """`text` is the claim; `commands` show it, the first all of it; `rule` says in words how the
    verdict follows from the numbers."""

    claim: int
    text: str
    commands: tuple[str, ...]
    measure: str
    contradicted: tuple[str, ...]
    confirmed: tuple[str, ...]
    rule: str
    sentence: str
    conditions: str
    kinds: str
    unknown: str
    tables: tuple[TableSpec, ...]
    given: Mapping[str, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.claim

    def judge(self, facts: Mapping[str, Fact]) -> str:
        """The verdict of these figures and facts. Raises KeyError where one is missing."""
        known = {**self.given, **facts}
        if _any_holds(self.contradicted, known):
            return CONTRADICTED
        return CONFIRMED if _any_holds(self.confirmed, known) else QUALIFIED

    def found(self) -> Finding:
        """Computes the claim."""
        module, _, name = self.measure.partition(".")
        measure = getattr(importlib.import_module(f"dse.accuracy.claims.{module}"), name)
        measured: Measured = measure(self.given)
        facts: dict[str, Fact] = {**self.given, **measured.figures, **measured.facts}
        return Finding(
            verdict=self.judge(facts),
            number=fill(self.sentence, facts),
            figures=measured.figures,
            conditions=fill(self.conditions, facts),
            tables=tuple(
                spec.filled(rows, facts)
                for spec, rows in zip(self.tables, measured.tables, strict=True)
            ),
            kinds=fill(self.kinds, facts),
            unknown=fill(self.unknown, facts),
        )


CLAIM = Fields(
    Field("claim", Whole()),
    *(Field(name, Text()) for name in ("text", "measure", "rule", "sentence", "conditions")),
    *(Field(name, Text()) for name in ("kinds", "unknown")),
    *(Field(name, Listed(Text())) for name in ("commands", "contradicted", "confirmed")),
    Field("given", ByName(Number()), {}),
    Field(
        "tables",
        Listed(Fields(Field("title", Text()), Field("columns", Listed(Text())), make=TableSpec)),
    ),
    make=Claim,
)


@cache
def claims() -> dict[int, Path]:
    """The file of each claim by its number, which its name starts with."""
    files = sorted((search_spaces_dir() / "claims").glob("*.yaml"))
    return {int(file.name.partition("-")[0]): file for file in files}


def claim(number: int) -> Claim:
    """Raises InputError for a number that is none."""
    files = claims()
    if number not in files:
        raise InputError(
            f"no claim {number}", field="N", accepted=f"one of {min(files)} to {max(files)}"
        )
    one: Claim = read(CLAIM, load_yaml(files[number]))
    return replace(one, rule=fill(one.rule, one.given))


def fill(text: str, facts: Mapping[str, Fact]) -> str:
    """The text with its names replaced. Raises KeyError for a name that is no fact."""
    return FIELD.sub(lambda found: shown(facts[found[1]], found[2] or ""), text)


def shown(value: Cell, how: str = "") -> str:
    """A text as it is, None as a dash, a number in one of FORMATS or as Python formats it. `how`
    may be a template of the value, `{0:billions} GB`, or of several."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if "{" in how:
        values = value if isinstance(value, tuple) else (value,)
        return fill(how, {str(k): one for k, one in enumerate(values)})
    if isinstance(value, tuple):
        raise TypeError(f"several values without a template: {value}")
    return FORMATS[how](value) if how in FORMATS else format(value, how or "g")


def ends(name: str, values: Iterable[float]) -> dict[str, float | None]:
    """The least and the most of `values` as figures; None where there is none."""
    known = list(values)
    if not known:
        return {f"{name}_least": None, f"{name}_most": None}
    return {f"{name}_least": float(min(known)), f"{name}_most": float(max(known))}


def share(truths: Iterable[bool]) -> float:
    """The share of those that are true."""
    known = list(truths)
    return sum(known) / len(known)


def _any_holds(lines: Sequence[str], facts: Mapping[str, Fact]) -> bool:
    return any(all(_holds(part, facts) for part in line.split(" and ")) for line in lines)


def _holds(condition: str, facts: Mapping[str, Fact]) -> bool:
    """Of "a < b": names are looked up; a value that does not apply holds in no comparison."""
    left, compare, right = condition.split()
    first, second = (facts[side] if side.isidentifier() else float(side) for side in (left, right))
    if not isinstance(first, float | int) or not isinstance(second, float | int):
        return False
    return COMPARE[compare](first, second)
