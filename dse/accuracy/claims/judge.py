"""The verdicts of a claim: each part by its rule, from the numbers of its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dse.accuracy.claims.asked import Asker, at, command
from dse.accuracy.claims.claim import OF_CASE, Claim, Part, Query
from dse.answer.numbers import show_as
from dse.errors import InputError, NothingFeasible
from dse.record import record
from dse.schema.loader import did_you_mean

CONFIRMED = "confirmed"
TRUE_IF = "true if"
CONTRADICTED = "contradicted as worded"
UNDECIDED = "not decidable here"
VERDICTS = (CONFIRMED, TRUE_IF, CONTRADICTED, UNDECIDED)


@record
class Case:
    """One number: None where there is none, and then why. `command` asks for it."""

    name: str
    value: float | None
    holds: bool | None
    why: str
    command: str


@record
class Finding:
    """What a part comes to: `verdict` is one of VERDICTS; `condition` says for which cases it
    holds, or what would decide it."""

    part: Part
    verdict: str
    condition: str
    cases: tuple[Case, ...]

    @property
    def words(self) -> str:
        """The verdict with its condition."""
        if not self.condition:
            return self.verdict
        joint = " " if self.verdict == TRUE_IF else ": "
        return f"{self.verdict}{joint}{self.condition}"

    @property
    def number(self) -> str:
        """The numbers in one: the least and the most."""
        known = [one.value for one in self.cases if one.value is not None]
        ends = (
            [show_as(self.part.show, value) for value in (min(known), max(known))] if known else []
        )
        return " to ".join(dict.fromkeys(ends)) or "–"


def judged(
    claim: Claim, asker: Asker | None = None, progress: Callable[[str], None] = lambda _: None
) -> tuple[Finding, ...]:
    """The finding of each part. A case whose question is refused has no number, and says why."""
    asker = asker or Asker()
    found = []
    for part in claim.parts:
        progress(f"claim {claim.name}: {part.says}")
        cases = [_case(part, *one, asker) for one in part.cases.items()]
        found.append(_finding(part, tuple(_trend(part, cases) if part.trend else cases)))
    return tuple(found)


def _finding(part: Part, cases: tuple[Case, ...]) -> Finding:
    known = [one for one in cases if one.holds is not None]
    if part.undecided or not known:
        why = part.undecided or next((one.why for one in cases if one.why), "no number")
        return Finding(part, UNDECIDED, why, cases)
    held = [one.name for one in known if one.holds]
    failed = [one.name for one in known if not one.holds]
    verdict, words = TRUE_IF, _condition(held, failed)
    if len(held) >= part.enough * len(known):
        verdict, words = CONFIRMED, f"all but {'; '.join(failed)}" if failed else ""
    elif not held:
        verdict, words = CONTRADICTED, ""
    none = [one.name for one in cases if one.holds is None]
    words = "; ".join(filter(None, (words, f"no number for {', '.join(none)}" if none else "")))
    return Finding(part, verdict, words, cases)


def _trend(part: Part, cases: Sequence[Case]) -> Iterator[Case]:
    """Each case but the first, its number over that of the one before."""
    for before, one in pairwise(cases):
        if before.value is None or one.value is None:
            yield replace(one, value=None, holds=None, why=before.why or one.why)
        else:
            value = one.value / before.value
            yield replace(one, value=value, holds=part.holds.holds(value))


def _condition(held: list[str], failed: list[str]) -> str:
    """The cases that hold; where they are many, those that do not."""
    if len(held) <= len(failed) + 1:
        return "; ".join(held)
    return f"not {'; '.join(failed)}"


def _case(part: Part, name: str, arguments: Mapping[str, Any], asker: Asker) -> Case:
    query, over, take = part.query, part.over, arguments.get("take", part.query.take)
    if isinstance(over, Query):
        own = take if over.take == query.take else over.take
        over = replace(over, take=own, last={**over.last, **arguments.get("over", {})})
    query = replace(query, take=take)
    arguments = {key: value for key, value in arguments.items() if key not in OF_CASE}
    first = query.among[0] if query.among else {}
    line = command(query.ask, {**query.given, **first, **arguments})
    try:
        value = _number(query, arguments, asker)
        below = _number(over, arguments, asker) if isinstance(over, Query) else over
        if below == 0.0:
            raise _NoNumber("a ratio to nothing")
        value *= part.scale / below
    except (_NoNumber, NothingFeasible) as error:
        return Case(name, None, None, str(error), line)
    except InputError as error:
        return Case(name, None, None, error.message, line)
    return Case(name, value, part.holds.holds(value), "", line)


class _NoNumber(Exception):
    """An answer without the number."""


def _number(query: Query, arguments: Mapping[str, Any], asker: Asker) -> float:
    """Raises _NoNumber where no answer has it, InputError where every one is refused."""
    arguments = asker.known(query.ask, arguments) if query.alone else arguments
    given = {**query.given, **arguments, **query.last}
    if not query.among:
        return _taken(query, asker.document(query.ask, given))
    found, refused = [], None
    for more in query.among:
        try:
            found.append(_taken(query, asker.document(query.ask, {**given, **more})))
        except (InputError, NothingFeasible) as error:
            refused = error
        except _NoNumber:
            continue
    if found:
        return min(found) if query.choose == "smallest" else max(found)
    raise refused or _NoNumber("nothing feasible within the limits")


def _taken(query: Query, document: Any) -> float:
    value = at(document, query.take)
    for place, most in query.within.items():
        other = at(document, place)
        if other is None or other > most:
            raise _NoNumber(f"{place} beyond {most:g}")
    if _refused(document) and not query.take.startswith(("feasible", "memory")):
        words = [f"{one['constraint']} ({one['found']})" for one in document.get("violations", ())]
        raise _NoNumber(f"not feasible: {', '.join(words)}")
    if value is None or isinstance(value, str | dict | list):
        near = did_you_mean(query.take, document) if isinstance(document, Mapping) else ""
        raise _NoNumber(f"no number at {query.take}{near}")
    return float(value)


def _refused(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("feasible") is False
