"""The file of a claim: a statement, its parts, and for each part a rule and the question behind it.

    statement: Pipeline stages give inference no lower latency.
    parts:
      - says: no lower latency
        rule: the time per token with eight stages is at least 0.98 of that with one
        holds: ">= 0.98"
        ask: estimate                       # any call of ASKED, by its name in the library
        with: {model: llama-3-70b, chip: h100_sxm, tp: 4, pp: 8}
        take: tpot_s                        # the number, by its place in the answer's document
        over: {with: {pp: 1}}               # divided by the same with other arguments
        cases:
          one request: {concurrency: 1}
          128 requests: {concurrency: 128}

What holds in every case is confirmed, what holds in none is contradicted as worded, what holds in
some is true if these; `enough` is a smaller share of the cases that confirms ("nearly every"). A
case may have a `take` of its own and, under `over`, arguments of its denominator; an `over` with an
`ask` of its own takes of a case only the arguments that its call has. `each` lists values whose
combinations are cases. `among` lists arguments of which the `choose` (smallest, largest) answer
that is feasible and keeps the limits of `within` counts; what does not fit has no number but of its
memory. With `trend` each case is judged against the one before it. A part with `undecided` has
numbers and no verdict; the text says what would decide it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any

from dse.accuracy.claims.asked import ASKED, FINDS, misfit, parameters
from dse.answer.numbers import KINDS
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import did_you_mean, load_yaml
from dse.schema.reader import (
    ByName,
    Field,
    Flag,
    Listed,
    Number,
    Raw,
    Refused,
    Share,
    Table,
    Text,
    Then,
    Word,
    brief,
)
from dse.schema.reader import read as read_fields

Arguments = Mapping[str, Any]
OF_CASE = ("take", "over")  # what a case may say beside its arguments
SIDES: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
_ONE_SIDE = re.compile(rf"(>=|<=|>|<)\s*({_NUMBER})")
_BETWEEN = re.compile(rf"({_NUMBER})\s*to\s*({_NUMBER})")


@record
class Threshold:
    """Bounds that a number must keep, as (side, bound); `text` is how they were written."""

    text: str
    bounds: tuple[tuple[str, float], ...]

    def holds(self, value: float) -> bool:
        return all(SIDES[side](value, bound) for side, bound in self.bounds)


def threshold(text: str) -> Threshold:
    """Raises InputError for what is none."""
    if found := _ONE_SIDE.fullmatch(text.strip()):
        return Threshold(text, ((found[1], float(found[2])),))
    if found := _BETWEEN.fullmatch(text.strip()):
        return Threshold(text, ((">=", float(found[1])), ("<=", float(found[2]))))
    raise InputError(f"read {text!r}", accepted="a threshold such as '>= 2' or '0.5 to 2'")


@record
class Query:
    """One number: `take` of the answer to `ask` with the arguments `given`, those of the case
    (where `alone` those that the call has), and those of `last`; of those of `among`, the `choose`
    one that is feasible and keeps `within` (most by place in the answer)."""

    ask: str
    given: Arguments
    take: str
    among: tuple[Arguments, ...] = ()
    choose: str = "smallest"
    within: Mapping[str, float] = field(default_factory=dict)
    last: Arguments = field(default_factory=dict)
    alone: bool = False


@record
class Part:
    """`over` divides the number: a query or a constant. `cases` are arguments by name. `show` is
    how numbers are printed; they are multiplied by `scale` (a unit) first. `trend`: each number is
    divided by that of the case before, and the first case has none."""

    says: str
    rule: str
    holds: Threshold
    query: Query
    over: Query | float
    cases: Mapping[str, Arguments]
    enough: float
    show: str
    scale: float
    trend: bool
    undecided: str


@record
class Claim:
    """`title` is a few words for the list of verdicts; `about` says what the numbers rest on and
    what is left out. `name` is its number or the name of its file."""

    name: str
    title: str
    statement: str
    parts: tuple[Part, ...]
    about: str


def _products(lists: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Every combination of the values listed by argument."""
    found: list[dict[str, Any]] = [{}]
    for name, values in lists.items():
        values = values if isinstance(values, list) else [values]
        found = [{**one, name: value} for one in found for value in values]
    return tuple(found)


def _word(argument: tuple[str, Any]) -> str:
    """How an argument of `each` is named: a text is enough, a number needs its name."""
    name, value = argument
    return value if isinstance(value, str) else f"{name.replace('_', ' ')} {value}"


def _among(written: Any) -> tuple[Arguments, ...]:
    if isinstance(written, Mapping):
        return _products(written)
    if isinstance(written, list) and all(isinstance(one, Mapping) for one in written):
        return tuple(one for item in written for one in _products(item))
    raise InputError("read no arguments", accepted="lists by argument, or a list of such mappings")


_ARGUMENTS = ByName(Raw())
_QUERY = (
    Field("ask", Word(tuple(ASKED))),
    Field("with", _ARGUMENTS, {}),
    Field("take", Text(1)),
    Field("among", Then(Raw(), _among), ()),
    Field("choose", Word(("smallest", "largest")), "smallest"),
    Field("within", ByName(Number()), {}),
)
_OVER = Table(*(Field(one.name, one.kind, None) for one in _QUERY))


def _query(values: Mapping[str, Any]) -> Query:
    names = ("ask", "take", "among", "choose", "within")
    return Query(given=values["with"], **{name: values[name] for name in names})


def _part(**values: Any) -> Part:
    _named(values, values["ask"])
    query, over = _query(values), values["over"]
    if isinstance(over, Mapping):
        own = {name: value for name, value in over.items() if value is not None}
        last, alone = own.pop("with", {}), "ask" in own
        given = {} if alone else query.given
        over = replace(query, given=given, last=last, alone=alone, **own)
        named = {*values["each"], *(name for case in values["cases"].values() for name in case)}
        named |= {name for one in query.among for name in one}
        if not named & {*OF_CASE, *last} and _same(query, over):
            raise Refused("asks what the part asks", "an argument that differs", "over")
    cases = values["cases"] or {"": {}}
    each = _products(values["each"])
    cases = {
        ", ".join(filter(None, (name, *map(_word, more.items())))): {**arguments, **more}
        for name, arguments in cases.items()
        for more in each
    }
    names = ("says", "rule", "holds", "enough", "show", "scale", "trend", "undecided")
    return Part(query=query, over=over, cases=cases, **{name: values[name] for name in names})


def _same(query: Query, over: Query) -> bool:
    """Whether a denominator is the number itself, so that the ratio is 1 whatever is answered."""
    asked = {**over.given, **over.last}
    return replace(over, given=query.given, last={}, alone=False) == query and asked == query.given


def _named(values: Mapping[str, Any], ask: str) -> None:
    """Raises Refused, with the place, for an argument that the call does not have and for a model
    or a chip that there is not."""
    _refuse_unknown(ask, values["with"] or {}, "with")
    for name, case in values.get("cases", {}).items():
        own = {key: value for key, value in case.items() if key not in OF_CASE}
        _refuse_unknown(ask, own, "cases", name)
        below = values["over"] if isinstance(values["over"], Mapping) else {}
        _refuse_unknown(below.get("ask") or ask, case.get("over", {}), "cases", name, "over")
    _refuse_unknown(ask, values.get("each", {}), "each")
    for k, one in enumerate(values["among"] or ()):
        _refuse_unknown(ask, one, "among", *((k,) if len(values["among"]) < 2 else ()))
    over = values.get("over")
    if isinstance(over, Mapping):
        try:
            _named(over, over["ask"] or ask)
        except Refused as error:
            raise Refused(error.message, error.accepted or "", "over", *error.path) from None


def _refuse_unknown(ask: str, arguments: Mapping[str, Any], *path: str | int) -> None:
    known = parameters(ask)
    for name, written in arguments.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise Refused(f"{ask} has no argument {name!r}{hint}", ", ".join(known), *path, name)
        find = FINDS.get(name)
        for one in written if isinstance(written, list) else (written,):
            number = find is not None and isinstance(one, int | float)  # no name
            if accepted := "a text" if number else misfit(ask, name, one):
                raise Refused(f"read {brief(one)}", accepted, *path, name)
            try:
                if find and isinstance(one, str):
                    find(one)
            except InputError as error:
                raise Refused(error.message, error.accepted or "", *path, name) from None


class _Over:
    """A constant, or the fields of the query that differ."""

    def read(self, written: Any, at: Any) -> Any:
        return (_OVER if isinstance(written, Mapping) else Number()).read(written, at)


CLAIM = Table(
    Field("title", Text(1)),
    Field("statement", Text(1)),
    Field("about", Text(), ""),
    Field(
        "parts",
        Listed(
            Table(
                Field("says", Text(1)),
                Field("rule", Text(1)),
                Field("holds", Then(Text(), threshold)),
                *_QUERY,
                Field("over", _Over(), 1.0),
                Field("cases", ByName(_ARGUMENTS), {}),
                Field("each", _ARGUMENTS, {}),
                Field("enough", Share(0.0, 1.0), 1.0),
                Field("show", Word(tuple(KINDS)), "ratio"),
                Field("scale", Number(above=0), 1.0),
                Field("trend", Flag(), False),
                Field("undecided", Text(), ""),
                make=_part,
            ),
            least=1,
        ),
    ),
)


@cache
def shipped() -> dict[str, Path]:
    """The file of each shipped claim by the number that its name starts with."""
    files = sorted((search_spaces_dir() / "claims").glob("*.yaml"))
    return {file.name.partition("-")[0].lstrip("0"): file for file in files}


def load_claim(claim: str | int | Path) -> Claim:
    """A shipped claim by its number, or that of a file. Raises InputError for what cannot be
    read."""
    files, name = shipped(), str(claim)
    if name.isdigit() and name not in files:
        accepted = f"1 to {len(files)}, or the path of a file"
        raise InputError(f"no claim {name}", field="CLAIM", accepted=accepted)
    file = files.get(name, Path(name))
    return Claim(name=name if name in files else file.stem, **read_fields(CLAIM, load_yaml(file)))
