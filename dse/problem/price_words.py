"""What a chip costs by the hour, part by part, and at the average of a load, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Cell, Column, Table
from dse.answer.numbers import NONE, dollars, plain, share


def price_tables(price: Mapping[str, Any]) -> list[Table]:
    """The parts of a price (`dse.economics.tco.Breakdown.as_json`), and every input with its kind
    and date; sources by number in the notes."""
    total = price["usd_per_chip_hour"]
    parts: list[dict[str, Cell]] = [
        {**part, "share": part["usd_per_chip_hour"] / total} for part in price["parts"]
    ]
    sources = list(dict.fromkeys(one["source"] for one in price["inputs"]))
    inputs: list[dict[str, Cell]] = [
        {
            **{name: one[name] for name in ("name", "text", "kind")},
            "date": one["date"] or NONE,
            "source": f"[{sources.index(one['source']) + 1}]",
        }
        for one in price["inputs"]
    ]
    return [
        Table(
            "price",
            f"{price['chip']}, {price['basis']}, dollars for each hour that it is held",
            (
                Column("name", "part"),
                Column("usd_per_chip_hour", "$/chip-hour", "chip_usd_per_hour"),
                Column("share", "share", "share"),
                Column("rule", "from"),
            ),
            [*parts, {"name": "total", "usd_per_chip_hour": total, "share": 1.0}],
        ),
        Table(
            "price inputs",
            "What that price is computed from",
            (
                Column("name", "input"),
                Column("text", "value", right=True),
                Column("kind", "kind"),
                Column("date", "date"),
                Column("source", "source"),
            ),
            inputs,
            notes=[f"[{k}] {source}" for k, source in enumerate(sources, 1)],
        ),
    ]


def average_load_words(load: Mapping[str, Any]) -> str:
    """What a demand costs at its average."""
    each = ", ".join(
        f"{dollars(load[f'usd_per_million_{name}_tokens'])} {name}"
        for name in ("input", "output", "total")
    )
    held = "sized for the peak"
    if load["deployments"] is not None:
        one = load["deployments"] == 1
        some, hold = ("deployment", "holds") if one else ("deployments", "hold")
        held = (
            f"{load['deployments']:,} {some} ({load['chips']:,.0f} chips, "
            f"{dollars(load['usd_per_hour'])} an hour) {hold} the peak"
        )
    return (
        f"At average load, a peak of {plain(load['peak_over_average'])} times the average: {held}, "
        f"{share(load['busy_share'])} busy; per million tokens {each}. The prices in the table are "
        "those of a busy deployment."
    )
