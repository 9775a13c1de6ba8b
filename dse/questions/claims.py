"""`dse.claims`: what people claim of models and hardware, judged by what `dse` answers.

A claim is a file (search_spaces/claims/, or one's own): a statement, its parts, and for each part a
rule and the question behind it.

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

A part that holds in every case is confirmed, one that holds in none is contradicted as worded, one
that holds in some is true if these; `enough` is a smaller share of the cases that confirms ("nearly
every"). A case may have a `take` of its own and, under `over`, arguments of its denominator; an
`over` with an `ask` of its own takes of a case only the arguments that its call has. `each` lists
values whose combinations are cases. `among` lists arguments of which the `choose` (smallest,
largest) answer counts that is feasible and keeps the limits of `within`; what does not fit has no
number but of its memory. With `trend` each case is judged against the one before it. A part with
`undecided` has numbers and no verdict; the text says what would decide it. `show` is how numbers
are printed; they are multiplied by `scale` (a unit) first.
"""

from __future__ import annotations

import inspect
import json
import operator
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any

from dse.answer.answer import Answer, Commands
from dse.answer.frames import of_rows, share_bars
from dse.answer.numbers import KINDS, show_as
from dse.catalog import Catalog, load_catalog
from dse.data import search_spaces_dir
from dse.errors import InputError, NothingFeasible
from dse.options import Opt
from dse.record import record
from dse.schema.catalog import is_chip_file
from dse.schema.loader import did_you_mean
from dse.schema.model_catalog import load_model
from dse.schema.reader import (
    ByName,
    Field,
    Flag,
    Kind,
    Listed,
    Number,
    Raw,
    Refused,
    Schema,
    Share,
    Table,
    Text,
    Then,
    Whole,
    Word,
    each,
    field,
)

CONFIRMED, TRUE_IF = "confirmed", "true if"
CONTRADICTED, UNDECIDED = "contradicted as worded", "not decidable here"
COUNTS = {
    CONFIRMED: "confirmed",
    TRUE_IF: "true_if",
    CONTRADICTED: "contradicted",
    UNDECIDED: "undecided",
}
SHOWN = ("claim", "claim_part", "verdict", "claim_number", "claim_rule")  # columns of the verdicts
# The questions that a part may ask, each the place of its function.
EVIDENCE = "dse.accuracy.validate"
ASKED: Mapping[str, tuple[str, str]] = {
    "check": ("dse.questions.check.check", "check"),
    "chip": ("dse.questions.catalog.hardware", "show_chip"),
    "estimate": ("dse.questions.estimate.estimate", "estimate"),
    "fewest_chips": ("dse.questions.fewest_chips", "fewest_chips"),
    "rack_bounds": ("dse.questions.catalog.hardware", "show_rack"),
    "scale": ("dse.questions.scale", "scale"),
    "train": ("dse.questions.train", "train"),
    "whatif": ("dse.questions.whatif.whatif", "whatif"),
    **{name: (EVIDENCE, name) for name in ("energy", "measured", "pairs", "reached")},
}
# How a command asks the same where that is not `dse NAME --ARGUMENT VALUE`.
VERBS = {
    "chip": "catalog chips show",
    "fewest_chips": "estimate --fit",
    "rack_bounds": "catalog racks show",
}
FLAGS = {"settings": "--set"}
POSITIONAL = {
    "train": "model",
    "check": "model",
    "chip": "chip",
    "rack_bounds": "rack",
}
OF_CASE = ("take", "over")  # what a case may say beside its arguments
SIDES: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
NUMBER = r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
HOLDS = re.compile(rf"(>=|<=|>|<)\s*({NUMBER})|({NUMBER})\s*to\s*({NUMBER})")
CONSOLE_CASES = 20
Arguments = Mapping[str, Any]
Ask = Callable[[str, Arguments], Any]


def claims(
    names: Annotated[
        tuple[str | Path, ...],
        Opt("Shipped claims by number, or files.", metavar="[CLAIM]...", positional=True),
    ] = (),
    *,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Judge what people claim of models and hardware, and what you do.

    A claim is a file: a statement, its parts, for each part a rule and the question behind it. A
    part is confirmed, true if a condition holds, contradicted as worded, or not decidable here.
    Without names all shipped claims are judged.

        dse.claims(("3",)).document["parts"][0]["verdict"]

    Raises InputError for a claim that there is not, and for what a file may not say.
    """
    ask = asker(catalog or load_catalog())
    read = [load_claim(name) for name in names or shipped()]
    return answer([judged(claim, ask, progress) for claim in read])


def bounds(text: str) -> tuple[tuple[str, float], ...]:
    """Those of `>= 2` or `0.5 to 2`. Raises InputError for what is none."""
    found = HOLDS.fullmatch(text.strip())
    if not found:
        raise InputError(f"read {text!r}", accepted="a threshold such as '>= 2' or '0.5 to 2'")
    side, bound, least, most = found.groups()
    return ((side, float(bound)),) if side else ((">=", float(least)), ("<=", float(most)))


def _products(lists: Arguments) -> tuple[Arguments, ...]:
    """Every combination of the values listed by argument."""
    values = (value if isinstance(value, list) else [value] for value in lists.values())
    return tuple(dict(zip(lists, chosen, strict=True)) for chosen in product(*values))


def _among(written: Any) -> tuple[Arguments, ...]:
    lists = [written] if isinstance(written, Mapping) else written
    if isinstance(lists, list) and all(isinstance(one, Mapping) for one in lists):
        return tuple(chosen for one in lists for chosen in _products(one))
    raise InputError("read no arguments", accepted="lists by argument, or a list of such mappings")


def _chip(name: str) -> None:
    if not is_chip_file(name):
        load_catalog().chip(name)


@record
class _Named:
    """Names of the catalog; `find` raises InputError where it has none."""

    find: Callable[[str], object]

    def read(self, written: Any, at: Any) -> Any:
        for name in written if isinstance(written, list) else [written]:
            if isinstance(name, int | float):
                return at.refuse(name, "a text")
            if isinstance(name, str):
                at.call(lambda name=name: self.find(name))
        return written


# The arguments that name something of the catalog, and what those of a type admit.
NAMED: Mapping[str, Kind] = {
    "model": _Named(load_model),
    **dict.fromkeys(("chip", "prefill_chip", "before", "after"), _Named(_chip)),
}
KIND_OF: Mapping[str, Kind] = {
    "int": Whole(),
    "float": Number(),
    "str": Text(),
    "bool": Flag(),
    "Tokens": Whole(),
    **dict.fromkeys(("Dtype", "KvDtype", "Backend", "Serving"), Text()),
    "Mapping[str, Any]": ByName(Raw()),
}


@record
class Question:
    """A call that a part may ask: its arguments, and which of them are fields of a file."""

    call: Callable[..., Any]
    fields: Table[Any]
    settings: Sequence[str]


@cache
def question(name: str) -> Question:
    """Arguments behind `**` are the SETTINGS of its module."""
    place, function = ASKED[name]
    module = import_module(place)
    call, settings = getattr(module, function), getattr(module, "SETTINGS", Table())
    types: dict[str, str] = {}
    for key, parameter in inspect.signature(call).parameters.items():
        words = str(parameter.annotation)
        if parameter.kind is not parameter.VAR_KEYWORD:
            types[key] = words.removeprefix("Annotated[").split(", Opt(")[0]
    kinds = {
        **{field.name: field.kind for field in settings.fields},
        **{key: KIND_OF.get(of.removesuffix(" | None"), Raw()) for key, of in types.items()},
    }
    fields = [Field(key, NAMED.get(key, kind), None) for key, kind in kinds.items()]
    return Question(call, Table(*fields), [name for name in settings.names if name not in types])


class Query(Schema, kw_only=True):
    """One number: `take` of the answer to `ask`; of those with the arguments of `among`, where it
    has any, the `choose` one that is feasible and keeps `within` (most by place in the answer)."""

    ask: str = field(Word(tuple(ASKED)))
    arguments: Arguments = field(ByName(Raw()), default={}, written="with")
    take: str = field(Text(1))
    among: Sequence[Arguments] = field(Then(Raw(), _among), default=())
    choose: str = field(Word(("smallest", "largest")), default="smallest")
    within: Mapping[str, float] = field(ByName(Number()), default={})


@record
class Case:
    """A number of a part: `query` over `below`, a constant where it has none; `command` asks for
    the first."""

    name: str
    query: Query
    below: Query | float
    command: str


class _Over:
    """A constant, or the fields of the query that differ."""

    table = Table(*(replace(one, default=None) for one in Query.table.fields))

    def read(self, written: Any, at: Any) -> Any:
        return (self.table if isinstance(written, Mapping) else Number()).read(written, at)


class Part(Query, kw_only=True):
    """`holds` is what the number must keep, as it is written (`bounds`); `cases` by name become
    those of every combination of `each`."""

    text: str = field(Text(1), written="says")
    rule: str = field(Text(1))
    holds: str = field(Then(Text(), lambda text: bounds(text) and text))
    over: Any = field(_Over(), default=1.0)
    cases: Any = field(ByName(ByName(Raw())), default={})
    each: Sequence[Arguments] = field(Then(ByName(Raw()), _products), default=({},))
    enough: float = field(Share(0.0, 1.0), default=1.0)
    show: str = field(Word(tuple(KINDS)), default="ratio")
    scale: float = field(Number(above=0), default=1.0)
    trend: bool = field(Flag(), default=False)
    undecided: str = field(Text(), default="")

    def keeps(self, value: float) -> bool:
        return all(SIDES[side](value, bound) for side, bound in bounds(self.holds))

    def check(self) -> Part:
        """With its cases. Refuses arguments that a call has not."""
        for ask, arguments, path in self._written():
            try:
                question(ask).fields.of(arguments)
            except InputError as error:
                one = each(error)[0]
                raise Refused(one.message, one.accepted or "", *path, one.field or "") from None
        cases = [
            self._case(", ".join(filter(None, (name, *map(_word, more.items())))), {**case, **more})
            for name, case in (self.cases or {"": {}}).items()
            for more in self.each
        ]
        if all(case.query == case.below for case in cases):
            raise Refused("asks what the part asks", "an argument that differs", "over")
        return replace(self, cases=cases)

    @property
    def _below(self) -> Mapping[str, Any]:
        """What differs of the denominator; nothing where it is a constant."""
        return self.over if isinstance(self.over, Mapping) else {}

    def _written(self) -> Iterator[tuple[str, Arguments, Sequence[Any]]]:
        """(call, its arguments, their place) of everything that a part, or its `over`, says."""
        over = self._below
        yield self.ask, self.arguments, ("with",)
        for name in ("each", "among"):
            for arguments in getattr(self, name):
                yield self.ask, arguments, (name,)
        below = over.get("ask") or self.ask
        for name, case in self.cases.items():
            yield self.ask, {k: v for k, v in case.items() if k not in OF_CASE}, ("cases", name)
            yield below, case.get("over", {}), ("cases", name, "over")
        yield below, over.get("arguments") or {}, ("over", "with")
        for arguments in over.get("among") or ():
            yield below, arguments, ("over", "among")

    def _case(self, name: str, case: Arguments) -> Case:
        given, over = self.arguments, self._below
        own = {key: value for key, value in case.items() if key not in OF_CASE}
        kept = {key: getattr(self, key) for key in ("ask", "take", "among", "choose", "within")}
        query = Query(**{**kept, "take": case.get("take", self.take)}, arguments={**given, **own})
        line = command(self.ask, {**given, **(query.among[0] if query.among else {}), **own})
        if not over:
            return Case(name, query, self.over, line)
        if over["ask"]:
            names = question(over["ask"]).fields.names
            given, own = {}, {key: value for key, value in own.items() if key in names}
        differs = {**given, **own, **(over["arguments"] or {}), **case.get("over", {})}
        changed = kept | {key: over[key] for key in kept if over[key] is not None}
        if over["take"] in (None, self.take):
            changed["take"] = query.take
        return Case(name, query, Query(**changed, arguments=differs), line)


def _word(argument: tuple[str, Any]) -> str:
    """How an argument of `each` is named: a text is enough, a number needs its name."""
    name, value = argument
    return value if isinstance(value, str) else f"{name.replace('_', ' ')} {value}"


class Claim(Schema, kw_only=True):
    """`title` is a few words for the list of verdicts; `about` says what the numbers rest on and
    what is left out. `name` is its number or the name of its file."""

    title: str = field(Text(1))
    statement: str = field(Text(1))
    about: str = field(Text(), default="")
    parts: Sequence[Part] = field(Listed(Part, least=1))
    name: str = ""


@cache
def shipped() -> dict[str, Path]:
    """The file of each shipped claim by the number that its name starts with."""
    files = sorted((search_spaces_dir() / "claims").glob("*.yaml"))
    return {file.name.partition("-")[0].lstrip("0"): file for file in files}


def load_claim(name: str | int | Path) -> Claim:
    """A shipped claim by its number, or that of a file. Raises InputError for what cannot be
    read."""
    files, name = shipped(), str(name)
    if name.isdigit() and name not in files:
        accepted = f"1 to {len(files)}, or the path of a file"
        raise InputError(f"no claim {name}", field="CLAIM", accepted=accepted)
    file = files.get(name, Path(name))
    return replace(Claim.load(file), name=name if name in files else file.stem)


def command(name: str, arguments: Arguments) -> str:
    """The command line that asks the same; empty where there is none."""
    if ASKED[name][0] == EVIDENCE:
        return ""
    words = ["dse", *VERBS.get(name, name).split()]
    for key, value in sorted(arguments.items(), key=lambda item: item[0] != POSITIONAL.get(name)):
        key_flag = "--chip" if (name, key) == ("whatif", "chips") else FLAGS.get(key)
        flags = [key_flag or f"--{key.replace('_', '-')}"]
        for item in value if isinstance(value, list) else (value,):
            if key == POSITIONAL.get(name):
                words.append(str(item))
            elif key in question(name).settings:
                words += ["--set", f"{key}={item}"]
            elif item is not None and item is not False:
                words += flags if item is True else [*flags, str(item)]
    return shlex.join(words)


def asker(catalog: Catalog) -> Ask:
    """Gives the document of a call, and asks each question once. Raises InputError for arguments
    that the call lacks, and for what it refuses."""
    known: dict[str, Any] = {}

    def ask(name: str, arguments: Arguments) -> Any:
        key = f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"
        if key not in known:
            asked = question(name)
            given = {key: value for key, value in arguments.items() if value is not None}
            if "catalog" in asked.fields.names:
                given["catalog"] = catalog
            try:
                inspect.signature(asked.call).bind(**given)
            except TypeError as error:
                accepted = ", ".join(asked.fields.names)
                raise InputError(f"{name}: {error}", field="with", accepted=accepted) from None
            answered = asked.call(**given)
            known[key] = getattr(answered, "document", answered)
        return known[key]

    return ask


def at(document: Any, path: str) -> Any:
    """The value at a place of a document: keys with dots between, a number for an item of a list,
    `key=value` (several with & between) for the first item that has it. None where there is
    none."""

    def same(value: Any, written: str) -> bool:
        number = isinstance(value, int | float) and written.replace(".", "", 1).isdigit()
        return value == float(written) if number else str(value) == written

    for step in path.split("."):
        if isinstance(document, Mapping):
            document = document.get(step)
        elif not isinstance(document, list | tuple):
            return None
        elif "=" in step:
            wanted = [pair.split("=", 1) for pair in step.split("&")]
            fits = (one for one in document if all(same(one.get(k), v) for k, v in wanted))
            document = next(fits, None)
        else:
            place = int(step) if step.lstrip("-").isdigit() else len(document)
            document = document[place] if place < len(document) else None
    return document


class NoNumber(Exception):
    """An answer without the number."""


def number_of(query: Query, ask: Ask) -> float:
    """Raises NoNumber where no answer has it, InputError where every one is refused."""
    if not query.among:
        return _taken(query, ask(query.ask, query.arguments))
    found, refused = [], None
    for more in query.among:
        try:
            found.append(_taken(query, ask(query.ask, {**query.arguments, **more})))
        except (InputError, NothingFeasible) as error:
            refused = error
        except NoNumber:
            continue
    if found:
        return min(found) if query.choose == "smallest" else max(found)
    raise refused or NoNumber("nothing feasible within the limits")


def _taken(query: Query, document: Any) -> float:
    value = at(document, query.take)
    for place, most in query.within.items():
        other = at(document, place)
        if other is None or other > most:
            raise NoNumber(f"{place} beyond {most:g}")
    refused = isinstance(document, Mapping) and document.get("feasible") is False
    if refused and not query.take.startswith(("feasible", "memory")):
        words = [f"{one['constraint']} ({one['found']})" for one in document.get("violations", ())]
        raise NoNumber(f"not feasible: {', '.join(words)}")
    if value is None or isinstance(value, str | dict | list):
        near = did_you_mean(query.take, document) if isinstance(document, Mapping) else ""
        raise NoNumber(f"no number at {query.take}{near}")
    return float(value)


def judged(
    claim: Claim, ask: Ask, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """The claim as `dse claims check --json` prints it: the verdict of each part, and the number of
    each case, or why it has none."""
    document = {key: getattr(claim, key) for key in ("title", "statement", "about")}
    parts = []
    for part in claim.parts:
        progress(f"claim {claim.name}: {part.text}")
        parts.append(_judged(part, ask))
    return {"claim": claim.name, **document, "parts": parts}


def _judged(part: Part, ask: Ask) -> dict[str, Any]:
    numbers: list[tuple[float | None, str]] = []
    for case in part.cases:
        try:
            value, below = number_of(case.query, ask), case.below
            below = number_of(below, ask) if isinstance(below, Query) else below
            if below == 0.0:
                raise NoNumber("a ratio to nothing")
            numbers.append((value * (part.scale / below), ""))
        except InputError as error:
            numbers.append((None, error.message))
        except (NoNumber, NothingFeasible) as error:
            numbers.append((None, str(error)))
    if part.trend:
        numbers = [
            (None, before[1] or after[1])
            if before[0] is None or after[0] is None
            else (after[0] / before[0], "")
            for before, after in pairwise(numbers)
        ]
    rows = [
        {
            "name": case.name,
            "value": value,
            "holds": None if value is None else part.keeps(value),
            "why": why or None,
            "command": case.command or None,
        }
        for case, (value, why) in zip(part.cases[int(part.trend) :], numbers, strict=True)
    ]
    verdict, condition = _verdict(part, rows)
    values = [value for value, _ in numbers if value is not None]
    ends = [show_as(part.show, end) for end in (min(values), max(values))] if values else []
    return {
        "says": part.text,
        "rule": part.rule,
        "holds": part.holds,
        "verdict": verdict,
        "condition": condition or None,
        "number": " to ".join(dict.fromkeys(ends)) or "–",
        "show": part.show,
        "cases": rows,
    }


def _verdict(part: Part, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """One of COUNTS, and for which cases the part holds or what would decide it."""
    held, failed, none = ([r["name"] for r in rows if r["holds"] is x] for x in (True, False, None))
    if part.undecided or not held + failed:
        return UNDECIDED, part.undecided or next((r["why"] for r in rows if r["why"]), "no number")
    few = len(held) <= len(failed) + 1
    verdict, words = TRUE_IF, "; ".join(held) if few else f"not {'; '.join(failed)}"
    if len(held) >= part.enough * len(held + failed):
        verdict, words = CONFIRMED, f"all but {'; '.join(failed)}" if failed else ""
    elif not held:
        verdict, words = CONTRADICTED, ""
    missing = f"no number for {', '.join(none)}" if none else ""
    return verdict, "; ".join(filter(None, (words, missing)))


def verdict_words(part: Mapping[str, Any]) -> str:
    """The verdict of a judged part with its condition."""
    joint = " " if part["verdict"] == TRUE_IF else ": "
    return joint.join(filter(None, (part["verdict"], part["condition"])))


def answer(judgements: Sequence[Mapping[str, Any]]) -> Answer:
    """The verdicts of judged claims, and the numbers of their cases."""
    parts = [claim | part for claim in judgements for part in claim["parts"]]
    rows = [part | {"words": verdict_words(part)} for part in parts]
    cases = [
        part
        | {"bounds": part["holds"], **case, "name": case["name"] or None}
        | {"number": show_as(part["show"], case["value"])}
        for part in parts
        for case in part["cases"]
    ]
    alone, first = len(judgements) == 1, judgements[0]
    counts = Counter(part["verdict"] for part in parts)
    tally = {verdict: counts[verdict] for verdict in COUNTS if counts[verdict]}
    counted = ", ".join(f"{n} {v}{' a condition holds' * (v == TRUE_IF)}" for v, n in tally.items())
    of_claim = [
        claim | {COUNTS[v]: n for v, n in Counter(p["verdict"] for p in claim["parts"]).items()}
        for claim in ({**dict.fromkeys(COUNTS.values()), **claim} for claim in judgements)
    ]
    keys = f"claim claim_title=title {' '.join(COUNTS.values())}"
    overview = of_rows("claims", "Parts of each claim by verdict", of_claim, keys)
    keys = "claim claim_title=title claim_part=says verdict=words claim_number=number "
    verdicts = of_rows(
        "parts",
        "Verdicts",
        rows,
        f"{keys}claim_rule=rule",
        shown=SHOWN[alone:],
        on_console=len(rows) <= CONSOLE_CASES,
    )
    numbers = of_rows(
        "cases",
        "Cases",
        cases,
        "claim claim_part=says claim_case=name claim_number=number claim_bounds=bounds holds "
        "reason=why command",
        shown=("claim_part", "claim_case", "claim_number", "claim_bounds", "holds", "reason"),
        on_console=alone and len(cases) <= CONSOLE_CASES,
    )
    commands = dict.fromkeys(part["cases"][0]["command"] for part in parts if part["cases"])
    of = f"claim {first['claim']}" if alone else f"{len(judgements)} claims"
    shares = {verdict: count / len(rows) for verdict, count in tally.items()}
    return Answer(
        question="claim" if alone else "claims",
        title=f"Claim {first['claim']}: {first['title']}" if alone else "Claims",
        asked=first["statement"] if alone else "",
        headline=f"Of {len(rows)} parts of {of}: {counted}.",
        sentences=[first["about"]] if alone and first["about"] else [],
        blocks=[
            share_bars("verdicts", "Parts of claims by verdict", "the parts", shares),
            *([verdicts, numbers] if alone else [overview, verdicts]),
            *([Commands("Commands", [line for line in commands if line])] if alone else []),
        ],
        data=(verdicts, numbers),
        document=first if alone else list(judgements),
    )
