"""Quantities at the edge: "3.35 TB/s" -> 3.35e12 and back. Inside there are SI floats only.

Prefixes are decimal (GB = 1e9 bytes) unless written binary (GiB = 2**30 bytes); a small b is a bit.
"""

from __future__ import annotations

import datetime
import math
import re
from calendar import monthrange
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

from dse.data import rows_beside
from dse.errors import InputError

_ROWS = {row["dimension"]: row for row in rows_beside(__file__, "dimensions.csv")}
DIMENSIONS = tuple(_ROWS)
# Factor of every unit that is read, by dimension: the rows of units.csv.
_READ: dict[str, dict[str, Decimal]] = {dimension: {} for dimension in DIMENSIONS}
for _row in rows_beside(__file__, "units.csv"):
    _READ[_row["dimension"]][_row["unit"]] = Decimal(_row["factor"])
# Units that are printed, smallest first.
_PRINTED = {name: tuple(row["printed"].split("|")) for name, row in _ROWS.items()}
_NOUN = {name: row["noun"] for name, row in _ROWS.items()}
_EXAMPLE = {name: row["example"] for name, row in _ROWS.items()}
# No figure of the field is as large, in SI units, or as small; products of a few stay numbers.
LARGEST, SMALLEST = 1e36, 1e-36

_QUANTITY = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(.*?)\s*")
_DOLLARS = re.compile(r"\s*\$\s*([0-9.eE+-]+)\s*(/h)?\s*")


def parse(text: str | float, dimension: str, *, field: str | None = None) -> float:
    """SI value of a written quantity.

    A bare number is refused where the dimension has a unit (zero included). Raises InputError for
    anything else than a finite number of at least zero with a unit of the dimension.
    """

    def refuse(reason: str) -> InputError:
        accepted = f"{_NOUN[dimension]}, such as {_EXAMPLE[dimension]}"
        return InputError(f"read {text!r}: {reason}", field=field, accepted=accepted)

    written = str(text)
    if dollars := _DOLLARS.fullmatch(written):
        written = f"{dollars[1]} USD{dollars[2] or ''}"
    match = _QUANTITY.fullmatch(written)
    if match is None or isinstance(text, bool):
        raise refuse("not a finite number with a unit")
    number, unit = match[1], match[2]
    units = _READ[dimension]
    if unit not in units:
        raise refuse(_why(unit, dimension))
    value = float(number)  # an exponent that float rounds to 0 or inf is beyond Decimal too
    if 0 < abs(value) < math.inf:
        value = float(Decimal(number) * units[unit])
    if math.isinf(value):
        raise refuse("not a finite number")
    if value < 0:
        raise refuse("negative")
    if value > LARGEST or 0.0 < value < SMALLEST:
        raise refuse("beyond every figure of the field")
    return value + 0.0


def example(dimension: str) -> str:
    """How a quantity of the dimension is written."""
    return _EXAMPLE[dimension]


FEWEST_TRAINING_TOKENS, MOST_TRAINING_TOKENS = 1e6, 1e18
TRAINING_TOKENS = "1M to 1e18 tokens, such as 15T"


def check_training_tokens(tokens: float, text: object, *, field: str | None = None) -> float:
    """`tokens`, read as `text`. Raises InputError where no model is trained on so few or so many;
    a bare 15 is most likely 15T."""
    if FEWEST_TRAINING_TOKENS <= tokens <= MOST_TRAINING_TOKENS:
        return tokens
    hint = ""
    if 0.0 < tokens < 1000.0:
        hint = f", which is {tokens:g} tokens; did you mean {tokens:g}T?"
    raise InputError(f"read {str(text)!r}{hint}", field=field, accepted=TRAINING_TOKENS)


def _why(unit: str, dimension: str) -> str:
    """Why `unit` is not one of `dimension`."""
    if not unit:
        return "a bare number, its unit is missing"
    for other, units in _READ.items():
        if unit in units and other != dimension:
            return f"{_NOUN[other]}, not {_NOUN[dimension]}"
    import difflib  # noqa: PLC0415 - for mistakes alone

    near = difflib.get_close_matches(unit, _READ[dimension], n=1)
    return f"unknown unit {unit!r}" + (f"; did you mean {near[0]}?" if near else "")


def format(value: float, dimension: str, digits: int = 3) -> str:
    """The quantity as text that `parse` reads back, to `digits` significant digits.

    Counts are printed in full.
    """
    if dimension == "count":
        return f"{value:.15g}"
    number, unit = scaled(value, dimension, digits=digits)
    separator = "" if dimension == "tokens" else " "
    return f"{number:.{digits}g}{separator}{unit}"


def scaled(
    value: float, dimension: str, names: Sequence[str] = (), digits: int = 3
) -> tuple[float, str]:
    """(number, unit): the value in the largest of the units `names`, smallest first, that leaves
    at least 1 once it is rounded to `digits`; in the smallest where none does."""
    names = names or _PRINTED[dimension]
    factors = [_READ[dimension][name] for name in names]
    size = abs(Decimal(f"{value:.{digits - 1}e}")) or Decimal(1)
    index = max((i for i, f in enumerate(factors) if f <= size), default=0)
    return float(Decimal(repr(float(value))) / factors[index]), names[index]


# Dates as files write them: a year, a quarter, a month or a day.

DATES = "2025, 2025-Q2, 2025-06 or 2025-06-30"
_DATE = re.compile(r"((?:19|2[0-9])[0-9]{2})(?:-(?:Q([1-4])|([0-9]{2})(?:-([0-9]{2}))?))?")
_YEARS = re.compile(r"[0-9]{4}-([0-9]{4})")


@cache
def days(text: str) -> tuple[str, str] | None:
    """The first and the last day that a date may mean, 2026-Q4 -> 2026-10-01 and 2026-12-31; None
    for what is no date."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, quarter, month, day = (int(part or 0) for part in found.groups())
    first = 3 * quarter - 2 if quarter else month or 1
    last = 3 * quarter if quarter else month or 12
    if (found[3] and not 1 <= month <= 12) or (
        found[4] and not 1 <= day <= monthrange(year, month)[1]
    ):
        return None
    ends = monthrange(year, last)[1]
    return f"{year}-{first:02d}-{day or 1:02d}", f"{year}-{last:02d}-{day or ends:02d}"


def last_year(text: str) -> str:
    """2025-2026 -> 2026; other dates as they are."""
    years = _YEARS.fullmatch(text)
    return years[1] if years else text


def today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def in_future(text: str) -> bool:
    """Whether a date is later than today, whatever of its days is meant."""
    found = days(last_year(text))
    return found is not None and found[0] > today()
