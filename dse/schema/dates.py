"""Dates as files write them: a year, a quarter, a month or a day."""

from __future__ import annotations

import datetime
import re
from calendar import monthrange
from functools import cache

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
