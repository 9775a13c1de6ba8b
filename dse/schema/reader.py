"""One reader for every mapping that a person writes.

A kind reads one value: text, a number in a range, a quantity with its unit, a word of a list, a
list, further fields. A file, or a part of one, is a class whose fields say what may stand in it:

    class Overlap(Schema):
        tokens: int = field(Whole(above=0), default=2048)
        wait_s: float = field(Quantity("s"), written="wait")

    Overlap.load("overlap.yaml").wait_s

What the fields of a class mean, and examples of their values, are rows of fields.csv.
Where fields follow from other data, a `Table` of them reads a mapping. Every mistake is noted with
its file, line and field, what was read, and what is accepted.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field as made_anew
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, dataclass_transform

from dse import units
from dse.data import is_shipped, rows_beside
from dse.errors import Doubt, InputError, InputErrors
from dse.record import record
from dse.schema.loader import Document, KeyPath, csv_rows, did_you_mean, load_yaml, nearest
from dse.schema.plausible import unusual
from dse.units import DATES, days, in_future, last_year

T = TypeVar("T")
UNDATED = "undated"  # the date of a figure that the user's own file gives without one
# A number of a text, in the digits of ASCII; 010 is a mistake, or eight.
_NUMBER = re.compile(r"\s*[-+]?(?:(?:0|[1-9][0-9]*)\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
_PERCENT = re.compile(r"\s*([-+]?[0-9]*\.?[0-9]+)\s*%\s*")


class Refused(InputError):
    """What a check refuses; `path` is where, as seen from the value that is checked. `{}` in the
    message is the text that stands there."""

    def __init__(self, message: str, accepted: str, *path: str | int) -> None:
        super().__init__(message, accepted=accepted)
        self.path = path


class Mistakes:
    """Collects what is wrong with one document while its parts are read one after another."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[InputError] = []

    def add(self, path: KeyPath, message: str, accepted: str | None = None) -> None:
        self.errors.append(self.document.error(path, message, accepted))

    def place(self, path: KeyPath, error: InputError) -> None:
        """Notes the error of a helper that knows neither this file nor the line. Where it read
        another file, that file, its line and its field stay in the message."""
        for one in each(error):
            there = InputError(one.message, file=one.file, line=one.line, field=one.field)
            self.add(path, str(there) if one.file else one.message, one.accepted)

    def attempt(self, read: Callable[[], T], at: KeyPath | None = None) -> T | None:
        """What `read` gives; None where it raises, its mistakes noted as they are or `at` a place
        of this document."""
        try:
            return read()
        except InputError as error:
            if at is None:
                self.errors += each(error)
            else:
                self.place(at, error)
            return None

    def finish(self) -> None:
        """Raises InputError where there was a mistake."""
        if self.errors:
            raise together(self.errors)


@record
class Place:
    """Where a value stands, and where its mistakes are noted."""

    mistakes: Mistakes
    path: KeyPath = ()

    def at(self, *parts: str | int) -> Place:
        return Place(self.mistakes, (*self.path, *parts))

    def wrong(self, message: str, accepted: str | None = None) -> None:
        self.mistakes.add(self.path, message, accepted)

    def doubt(self, message: str) -> None:
        """Warns of what is read and hardly meant."""
        warnings.warn(str(self.mistakes.document.error(self.path, message)), Doubt, stacklevel=2)

    def refuse(self, written: object, accepted: str, hint: str = "") -> None:
        self.wrong(f"read {brief(written)}{hint}", accepted)

    def call(self, check: Callable[[], T]) -> T | None:
        """What `check` gives; None where it refuses, at the place that it names."""
        try:
            return check()
        except Refused as error:
            path = (*self.path, *error.path)
            written = self.mistakes.document.written(path) if "{}" in error.message else None
            message = error.message.replace("{}", repr(str(written)))
            self.mistakes.add(path, message, error.accepted)
        except InputError as error:
            self.mistakes.place((*self.path, *([error.field] if error.field else ())), error)
        return None


class Kind(Protocol):
    """Reads one value. What is wrong is noted at its place, and the value is then None."""

    def read(self, written: Any, at: Place) -> Any: ...


_MEANINGS = {(row.pop("of"), row.pop("field")): row for row in rows_beside(__file__, "fields.csv")}
REQUIRED: Any = object()
OPTIONAL: Any = object()  # no value where the field is left out
ALIKE: Any = object()


@record
class Field:
    """One field of a mapping: `to` is the name of its value (its own), `default` the value where it
    is left out, REQUIRED or OPTIONAL; one whose default is None, or that is `null`, may be
    null. Fields that are `gathered` are values by name of one mapping `to`, without those that are
    None."""

    name: str
    kind: Kind
    default: Any = REQUIRED
    to: str = ""
    meaning: str = ""
    example: str = ""
    gathered: bool = False
    null: bool = False


class Table(Generic[T]):
    """A mapping of these fields. `make` builds the object from the values by name, and may refuse
    them together (`Refused`, or an InputError whose field is one of the table). `elsewhere` has
    fields of the language that do not stand here, with the reason."""

    def __init__(
        self,
        *fields: Field,
        make: Callable[..., T] = dict,
        says: str = "",
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.fields, self.elsewhere = fields, elsewhere or {}
        self.names = tuple(field.name for field in fields)
        self.make = make
        self.says = says or f"a mapping with {', '.join(self.names)}"

    def read(self, written: Any, at: Place) -> T | None:
        if not isinstance(written, Mapping):
            return at.refuse(written, self.says)
        noted = at.mistakes.errors
        before = len(noted)
        unknown = [str(key) for key in written if key not in self.names]
        known = ", ".join(self.names)
        for name in unknown:
            why = self.elsewhere.get(name)
            hint = did_you_mean(name, self.names)
            at.at(name).wrong(f"{name!r} {why}" if why else f"unknown field {name!r}{hint}", known)
        values: dict[str, Any] = {one.to: {} for one in self.fields if one.gathered}
        for field in self.fields:
            name = field.name
            if name not in written or (written[name] is None and field.default is REQUIRED):
                value = field.default
                # An unknown field that is near says it all.
                near = (name in nearest(other, self.names) for other in unknown)
                if value is REQUIRED and not any(near):
                    at.at(name).wrong("missing field", f"{name!r}, among {known}")
                if value is REQUIRED or value is OPTIONAL:
                    continue
            elif written[name] is None and (field.null or field.default is None):
                value = field.default
            else:
                value = field.kind.read(written[name], at.at(name))
            if not field.gathered:
                values[field.to or name] = value
            elif value is not None:
                values[field.to][name] = value
        if len(noted) > before:
            return None
        return at.call(lambda: self.make(**values))

    def of(self, written: Mapping[str, Any]) -> T:
        return read(self, Document("", written, {}))


def field(
    kind: Kind,
    *,
    default: Any = REQUIRED,
    left_out: Any = ALIKE,
    null: bool = False,
    written: str = "",
) -> Any:
    """A field of a `Schema`; `written` is its name in the file, where that is not its own. The
    `default` is that of a program and of a file; a file that leaves it out has `left_out`, where
    that is given. One that is `null` may be null, as one whose default is None."""
    in_file = default if left_out is ALIKE else left_out
    return Given(Field(written, kind, in_file, null=null), default)


@record
class Given:
    """What `field` says of an attribute."""

    field: Field
    default: Any


@record
class Gathered:
    """What `gathered` says of an attribute."""

    fields: tuple[Field, ...]
    default: Mapping[str, Any]


def gathered(*fields: Field, default: Mapping[str, Any]) -> Any:
    """Fields of the file whose values by name are one mapping; in a program it is `default`."""
    return Gathered(fields, default)


@dataclass_transform(frozen_default=True, field_specifiers=(field, gathered))
class Schema:
    """A mapping that a person writes, and the record of what it says. Each `field` is read from the
    file; other annotated attributes are not, and a program fills them in. `says` is what a value
    that is no mapping should be, `elsewhere` has fields that do not stand here, with the reason.
    `kw_only` is for type checkers: a field that is needed follows one that is not."""

    table: ClassVar[Table[Any]]
    says: ClassVar[str] = ""
    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        fields = {one.name: one for one in cls.table.fields} if hasattr(cls, "table") else {}
        for name in cls.__annotations__:
            given = vars(cls).get(name)
            if isinstance(given, Gathered):
                fields |= {one.name: replace(one, to=name, gathered=True) for one in given.fields}
                setattr(cls, name, made_anew(default_factory=partial(dict, given.default)))
            elif isinstance(given, Given):
                written, default = given.field.name or name, given.default
                said = _MEANINGS.get((cls.__name__, written), {})
                fields[written] = replace(given.field, name=written, to=name, **said)
                if default is REQUIRED:
                    delattr(cls, name)
                elif isinstance(default, dict):
                    setattr(cls, name, made_anew(default_factory=dict))
                else:
                    setattr(cls, name, None if default is OPTIONAL else default)
        record(cls)
        cls.table = Table(*fields.values(), make=cls._made, says=cls.says, elsewhere=cls.elsewhere)

    @classmethod
    def _made(cls, **values: Any) -> Self:
        made = cls(**values)
        return made.check() or made

    def check(self) -> Self | None:
        """Raises Refused, or an InputError with the field, for values that do not go together; may
        give the object that is meant in place of this one."""

    @classmethod
    def read(cls, written: Any, at: Place) -> Self | None:
        """What a mapping says; None where something is wrong, which is noted."""
        return cls.table.read(written, at)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Self:
        """Of a mapping that stands in no file. Raises InputError with the field."""
        return read(cls, Document("", written, {}))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Of a YAML file. Raises InputError with the line and field of every mistake."""
        return read(cls, load_yaml(path))


def read(kind: Kind, document: Document, path: KeyPath = (), written: Any = REQUIRED) -> Any:
    """The value of a document, or of its part at `path`. Raises InputError, or InputErrors for
    several mistakes, in the order of their lines."""
    mistakes = Mistakes(document)
    value = kind.read(document.data if written is REQUIRED else written, Place(mistakes, path))
    mistakes.finish()
    return value


def csv_table(
    table: Table[T], path: Path, needed: Callable[[Sequence[str]], Iterable[str]]
) -> list[tuple[int, T]]:
    """(line, what it says) of the rows of a CSV file, whose header has columns of the table in any
    order, those `needed` among them. An empty cell is a field that is left out. Raises InputError
    for a wrong header, else with every mistake."""
    file, rows = str(path), csv_rows(path)
    header, known = [name.strip() for name in next(rows, [])], table.names
    wrong = [name for name in header if name not in known]
    twice = [name for name in header if header.count(name) > 1]
    missing = [name for name in needed(header) if name not in header]
    message, field = "", next(iter([*wrong, *twice, *missing]), None)
    if not header:
        message, field = "empty", None
    elif wrong:
        message = f"unknown column {field!r}{did_you_mean(field, known)}"
    elif twice:
        message = "a column that is there twice"
    elif missing:
        message = f"no column {field!r}"
    if message:
        raise InputError(message, file=file, line=1, field=field, accepted=", ".join(known))
    found, errors = [], []
    for line, cells in enumerate(rows, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        mistakes = Mistakes(Document(file, {}, {(): line}))
        if len(cells) != len(header):
            mistakes.add((), f"read {len(cells)} cells", f"{len(header)} cells")
        named = zip(header, cells, strict=False)
        written = {name: cell.strip() for name, cell in named if cell.strip()}
        row = None if mistakes.errors else table.read(written, Place(mistakes))
        errors += mistakes.errors
        found += [] if row is None else [(line, row)]
    if errors:
        raise together(errors)
    return found


def each(error: InputError) -> list[InputError]:
    """The mistakes that an error reports."""
    return error.errors if isinstance(error, InputErrors) else [error]


def together(errors: Sequence[InputError]) -> InputError:
    """The mistakes of a file as one error, in the order of its lines."""
    errors = sorted(errors, key=lambda error: error.line or 0)
    return errors[0] if len(errors) == 1 else InputErrors(errors)


def brief(value: object) -> str:
    """A value that was read, as a message shows it."""
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} fields"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)} items"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def words(names: Iterable[object]) -> str:
    """'a', 'b' or 'c'."""
    *first, last = [repr(name) for name in names]
    return f"{', '.join(first)} or {last}" if first else last


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(written: Any) -> float:
    """The number that is written, as one or as a text (YAML reads 1e12 as a text); NaN for what is
    none."""
    if not _number(written) and not (isinstance(written, str) and _NUMBER.fullmatch(written)):
        return math.nan
    try:
        return float(written)
    except OverflowError:
        return math.nan


@record
class Raw:
    """Anything: someone else reads it."""

    def read(self, written: Any, at: Place) -> Any:
        return written


@record
class Text:
    """Text of `least` to `most` characters, and in the form of `pattern`, which `says` tells; a
    number is the text that was written."""

    least: int = 0
    most: int = 1_000_000
    pattern: str = ""
    says: str = ""

    def read(self, written: Any, at: Place) -> str | None:
        text = str(written) if _number(written) else written
        if not isinstance(text, str):
            return at.refuse(written, "a valid string")
        if self.pattern and not re.fullmatch(self.pattern, text):
            return at.refuse(written, self.says)
        if self.least <= len(text) <= self.most:
            return text
        most = f" to {self.most}" if self.most < 1_000_000 else " or more"
        return at.refuse(written, f"a text of {self.least}{most} characters")


# What commands and other files call a thing.
ID = Text(
    *(1, 200),
    pattern=r"[A-Za-z][A-Za-z0-9_.+-]*",
    says="a letter, then letters, digits and _ . + -, such as h100_sxm",
)


@record
class Date:
    """A year, a quarter, a month or a day that exists. One that is still to come is doubted. Of a
    price (`priced`) it may be two years (2025-2026), and what reads prices tells of the future."""

    priced: bool = False

    def read(self, written: Any, at: Place) -> str | None:
        text = str(written)
        if text == UNDATED and not self.priced:
            return text
        if days(last_year(text) if self.priced else text) is None:
            return at.refuse(written, DATES, ": not a date")
        # A clock that is behind makes no shipped file doubtful.
        shipped = is_shipped(at.mistakes.document.file)
        if in_future(text) and not (self.priced or shipped):
            at.doubt(f"read {text!r}: a date that is still to come")
        return text


@record
class Flag:
    def read(self, written: Any, at: Place) -> bool | None:
        return written if isinstance(written, bool) else at.refuse(written, "true or false")


@record
class Number:
    """A finite number within bounds; `above` and `below` are not reached themselves. Outside
    `usual` it is doubted."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    says: str = ""  # what is accepted, in other words
    usual: tuple[float, float] = (0.0, math.inf)

    def read(self, written: Any, at: Place) -> float | None:
        value = number(written)
        if not (math.isfinite(value) and self.allows(value)):
            return at.refuse(written, self.accepted)
        self.doubt(value, written, at)
        return value

    def doubt(self, value: float, written: Any, at: Place) -> None:
        """Says where a value is unusual."""
        if message := unusual(value, self.usual, "{:g}".format):
            at.doubt(f"read {brief(written)}{message}")

    def allows(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def accepted(self) -> str:
        if self.says:
            return self.says
        bounds = (
            ("greater than", self.above),
            ("greater than or equal to", self.least),
            ("less than", self.below),
            ("less than or equal to", self.most),
        )
        message = [f"{how} {bound:,g}" for how, bound in bounds if bound is not None]
        return " ".join([self.noun, *([" and ".join(message)] if message else [])])

    @property
    def noun(self) -> str:
        return "a valid number"


class Whole(Number):
    """A whole number within bounds."""

    def read(self, written: Any, at: Place) -> Any:
        whole = isinstance(written, int) or (isinstance(written, float) and written.is_integer())
        if whole and not isinstance(written, bool) and self.allows(written):
            self.doubt(float(written), written, at)
            return int(written)
        return at.refuse(written, self.accepted)

    @property
    def noun(self) -> str:
        return "a valid integer"


@record
class Share:
    """A number within bounds that may be written in percent."""

    least: float
    most: float

    def read(self, written: Any, at: Place) -> float | None:
        found = _PERCENT.fullmatch(str(written))
        value = float(found[1]) * 1e-2 if found else number(written)
        if self.least <= value <= self.most:
            return value
        return at.refuse(written, f"a number, {self.least:g} to {self.most:g}")


@record
class Percent:
    """A percentage as a fraction; the sign % must be written."""

    least: float = 0.0
    most: float = 10.0

    def read(self, written: Any, at: Place) -> float | None:
        found = _PERCENT.fullmatch(str(written))
        value = float(found[1]) / 100.0 if found else math.nan
        if self.least <= value <= self.most:
            return value
        accepted = f"a percentage from {self.least:.0%} to {self.most:.0%}, such as 8 %"
        return at.refuse(written, accepted)


@record
class Quantity:
    """SI value of a number with its unit; where `accepted` says which, it is above zero and from
    `least` to `most`. Outside `usual` it is doubted."""

    dimension: str
    accepted: str = ""
    least: float = 0.0
    most: float = math.inf
    usual: tuple[float, float] = (0.0, math.inf)

    def read(self, written: Any, at: Place) -> float | None:
        text = str(written) if _number(written) else written
        value = at.call(lambda: units.parse(text, self.dimension))
        if value is None:
            return None
        if self.accepted and not (value > 0.0 and self.least <= value <= self.most):
            return at.refuse(text, self.accepted)
        if message := unusual(value, self.usual, lambda one: units.format(one, self.dimension)):
            at.doubt(f"read {text!r}{message}")
        return value


@record
class WithText:
    """(value, text as written) of a kind, for messages."""

    kind: Kind

    def read(self, written: Any, at: Place) -> tuple[Any, str]:
        return self.kind.read(written, at), str(written)


@record
class Word:
    """One of some words."""

    names: tuple[str, ...]

    def read(self, written: Any, at: Place) -> str | None:
        if isinstance(written, str) and written in self.names:
            return written
        hint = did_you_mean(written, self.names) if isinstance(written, str) else ""
        return at.refuse(written, words(self.names), hint)


@record
class Listed:
    """A list of one kind as a tuple; with `one`, a single value is a list of it."""

    kind: Kind
    least: int = 0
    most: int = 1_000_000
    one: bool = False
    says: str = ""  # what is accepted, in other words

    def read(self, written: Any, at: Place) -> tuple[Any, ...] | None:
        if not isinstance(written, list | tuple):
            if self.one:
                return (self.kind.read(written, at),)
            return at.refuse(written, self.says or "a valid list")
        if not self.least <= len(written) <= self.most:
            most = f" to {self.most}" if self.most < 1_000_000 else " or more"
            return at.refuse(written, self.says or f"a list of {self.least}{most} items")
        return tuple(self.kind.read(item, at.at(k)) for k, item in enumerate(written))


@record
class ByName:
    """A mapping from names to values of one kind; `known` are the names that may stand, each a
    `noun`, where not any that `names` reads. A null (`~`) is no name."""

    kind: Kind
    known: tuple[str, ...] = ()
    noun: str = "field"
    says: str = "a mapping from names to values"
    names: Kind = Text(1)

    def read(self, written: Any, at: Place) -> dict[str, Any] | None:
        if not isinstance(written, Mapping):
            return at.refuse(written, self.says)
        found = {}
        for key, value in written.items():
            name = str(key)
            if self.known and name not in self.known:
                message = f"{name!r} is no {self.noun}{did_you_mean(name, self.known)}"
                at.at(name).wrong(message, ", ".join(self.known))
                continue
            if self.names.read(key, at.at(name)) is None:
                continue
            found[name] = self.kind.read(value, at.at(name))
        return found


@record
class Then:
    """A kind, and a function of its value that may refuse it."""

    kind: Kind
    make: Callable[[Any], Any]

    def read(self, written: Any, at: Place) -> Any:
        before = len(at.mistakes.errors)
        value = self.kind.read(written, at)
        if len(at.mistakes.errors) > before:
            return None
        return at.call(lambda: self.make(value))


# Tokens that a model may be trained on.
TRAINING_TOKENS = Then(
    WithText(Quantity("tokens", "more than zero")), lambda read: units.check_training_tokens(*read)
)
