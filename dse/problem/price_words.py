"""What a chip costs by the hour, part by part, and at the average of a load, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Column, Table
from dse.answer.numbers import dollars, plain, share


def price_tables(price: Mapping[str, Any]) -> list[Table]:
    """The parts of a price (`dse.economics.tco.Breakdown.as_json`), and every input with its kind
    and date; sources by number in the notes."""
    total = price["usd_per_chip_hour"]
    sources = list(dict.fromkeys(one["source"] for one in price["inputs"]))
    return [
        Table.of(
            "price",
            f"{price['chip']}, {price['basis']}, dollars for each hour that it is held",
            [*price["parts"], {"name": "total", "usd_per_chip_hour": total}],
            (
                Column("name", "part"),
                Column("usd_per_chip_hour", "$/chip-hour", "chip_usd_per_hour"),
                Column("share", "share", "share", of=lambda one: one["usd_per_chip_hour"] / total),
                Column("rule", "from"),
            ),
        ),
        Table.of(
            "price inputs",
            "What that price is computed from",
            price["inputs"],
            (
                Column("name", "input"),
                Column("text", "value", right=True),
                Column("kind", "kind"),
                Column("date", "date", of=lambda one: one["date"] or None),
                Column("source", "source", of=lambda one: f"[{sources.index(one['source']) + 1}]"),
            ),
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
