"""Prices on one basis at two times, and two studies that differ in them: what changed, and what
that moved."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.numbers import significant
from dse.answer.sentences import Sources

Item = Mapping[str, Any]
SAME = 5e-4  # a share below which two costs are said to be the same
Prices = Sequence[Mapping[str, Any]]  # of `price.rows` in study.json: a row for each chip


def price_pairs(a: Prices, b: Prices) -> list[dict[str, Any]]:
    """A row for each chip that one of the two prices, with dates, sources and rules of both."""
    first, second = ({row["chip"]: row for row in rows} for rows in (a, b))
    rows = []
    for chip in dict.fromkeys([*first, *second]):
        one, other = first.get(chip, {}), second.get(chip, {})
        before, after = one.get("usd_per_chip_hour"), other.get("usd_per_chip_hour")
        rows.append(
            {
                "chip": chip,
                "a": before,
                "b": after,
                "ratio": after / before if before and after else None,
                **{
                    f"{key}_{side}": row.get(key) or None
                    for side, row in (("a", one), ("b", other))
                    for key in ("date", "rule", "source")
                },
            }
        )
    return rows


def pair_columns(sides: Sequence[str]) -> tuple[Column, ...]:
    """Both prices of a pair, and the change."""

    def changed(row: Mapping[str, Any]) -> float | str:
        return row["ratio"] - 1.0 if row["ratio"] else "gone" if row["a"] else "new"

    a, b = sides
    change = Column("change", "change", "change", of=changed)
    return (Column("a", a, "dollars"), Column("b", b, "dollars"), change)


def price_table(
    name: str, caption: str, pairs: Prices, sides: Sequence[str], sources: Sources
) -> Table:
    """Pairs of chip-hours with the dates and the `sources` of both, by number; the texts of these
    are the caller's to note."""

    def cited(row: Mapping[str, Any]) -> str:
        return sources(*(one for side in "ab" for one in (row[f"source_{side}"] or "").split("; ")))

    columns = (
        Column("chip", "chip"),
        *pair_columns(sides),
        *(Column(f"date_{k}", f"newest, {side}") for k, side in zip("ab", sides, strict=True)),
        Column("sources", "sources", of=cited),
    )
    return Table.of(name, caption, pairs, columns)


def moved(pairs: Prices) -> list[Mapping[str, Any]]:
    """The rows whose price is another, or that only one side has."""
    return [row for row in pairs if row["a"] != row["b"]]


def moves_words(pairs: Prices, most: int = 4) -> str:
    """`h200_sxm 10.0 to 7.20 (-28%), b300_sxm new at 7.87`, the largest move first."""
    rows = sorted(moved(pairs), key=lambda row: -abs(math.log(row["ratio"] or 1.0)))
    words = [
        f"{row['chip']} {significant(row['a'])} to {significant(row['b'])} ({change(row['ratio'])})"
        if row["ratio"]
        else f"{row['chip']} new at {significant(row['b'])}"
        if row["b"]
        else f"{row['chip']}, {significant(row['a'])} before, without a price"
        for row in rows
    ]
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return ", ".join([*words[:most], *more])


def change(ratio: float) -> str:
    """`+14%`, `-0.2%`, of a ratio."""
    return f"{ratio - 1.0:+.0%}" if abs(ratio - 1.0) >= 0.095 else f"{ratio - 1.0:+.1%}"


def by_how_much(ratio: float | None, more: str, less: str) -> str | None:
    """`14% dearer`, of a ratio; None where the two costs are the same."""
    if ratio is None or abs(ratio - 1.0) < SAME:
        return None
    return f"{change(ratio).strip('+-')} {more if ratio > 1.0 else less}"


def chosen_changes(
    a: Sequence[Item], b: Sequence[Item], metrics: Sequence[str], words: Callable[[Item], str]
) -> list[dict[str, Any]]:
    """What became of each chosen point that both fronts have: its design, in `words`, and its
    `metrics`."""
    first, second = (
        {name: item for item in items for name in item.get("names", ())} for items in (a, b)
    )
    rows = []
    for name in (name for name in first if name in second):
        one, other = first[name], second[name]
        rows.append(
            {
                "name": name,
                "a": words(one),
                "b": words(other),
                **{
                    f"{key}_{side}": value
                    for side, item in (("a", one), ("b", other))
                    for key, value in (
                        ("point", item["point"]),
                        ("chip", item["deployment"]["chip"]),
                    )
                },
                "same_design": design_key(one) == design_key(other),
                "metrics": {
                    name: {"a": one["metrics"][name], "b": other["metrics"][name]}
                    for name in metrics
                },
            }
        )
    return rows


def design_key(item: Item) -> str:
    """Shape and deployment of a point, whatever its number: the same of the same design."""
    model = {key: value for key, value in item["model"].items() if key != "name"}
    return json.dumps([model, item["deployment"]], sort_keys=True)


def prices_of(study: Mapping[str, Any]) -> Prices:
    """None where a study did not write its prices down."""
    return (study.get("price") or {}).get("rows", ())
