"""The comparator of recordings finds what differs, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.same_numbers.__main__ import differences

ROWS = [{"chip": "a", "tpot_s": 1.0}, {"chip": "b", "n": 3}]
BEFORE = {"usd": 1.5, "fits": True, "rows": ROWS}


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (BEFORE, []),
        (BEFORE | {"usd": 1.5 + 1e-13, "seconds": 3}, []),
        (BEFORE | {"rows": ROWS[::-1]}, []),
        (BEFORE | {"usd": 1.51}, ["differs usd"]),
        (BEFORE | {"fits": 1}, ["differs fits"]),
        (BEFORE | {"new": 1}, ["new     new"]),
        ({"usd": 1.5, "rows": ROWS}, ["gone    fits"]),
        (BEFORE | {"rows": ROWS[:1]}, ["gone    rows[b].chip", "gone    rows[b].n"]),
    ],
)
def test_what_differs_is_named(after: dict[str, Any], found: list[str]) -> None:
    lines, _ = differences(BEFORE, after, {})
    assert [line.partition(":")[0] for line in lines] == found


def test_what_is_declared_may_differ() -> None:
    after = {"usd": 2.0, "fits": True, "table": ROWS, "more": 1}
    declared = {
        "changed": {"usd": "a reason"},
        "new": {"more": "a reason"},
        "renamed": {"rows[": {"to": "table[", "reason": "a reason"}},
    }
    assert differences(BEFORE, after, declared) == ([], 6)
