"""Printing of what a chip costs by the hour, part by part, and at the average of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dse.cli.printing import print_table, say


def print_price(price: Mapping[str, Any]) -> None:
    """The parts of a price and every input with its kind and date; sources by number."""
    total = price["usd_per_chip_hour"]
    click.echo(f"{price['chip']}, {price['basis']}, dollars an hour that it is held:")
    rows = [
        (p["name"], f"{p['usd_per_chip_hour']:.3f}", f"{p['usd_per_chip_hour'] / total:.0%}",
         p["rule"])
        for p in price["parts"]
    ]  # fmt: skip
    print_table(
        ("part", "$/chip-hour", "share", "from"),
        [*rows, ("total", f"{total:.3f}", "100%", "")],
        right=(1, 2),
    )
    sources = list(dict.fromkeys(one["source"] for one in price["inputs"]))
    print_table(
        ("input", "value", "kind", "date", "source"),
        [
            (
                one["name"],
                one["text"],
                one["kind"],
                one["date"] or "-",
                f"[{sources.index(one['source']) + 1}]",
            )
            for one in price["inputs"]
        ],
        right=(1,),
    )
    for k, source in enumerate(sources, 1):
        say(f"[{k}] {source}", "    ")


def load_words(load: Mapping[str, Any]) -> str:
    """What a demand costs at its average."""
    each = ", ".join(
        f"${load[f'usd_per_million_{name}_tokens']:.3g} {name}"
        for name in ("input", "output", "total")
    )
    held = "sized for the peak"
    if load["deployments"] is not None:
        one = load["deployments"] == 1
        some, hold = ("deployment", "holds") if one else ("deployments", "hold")
        held = (
            f"{load['deployments']:,} {some} ({load['chips']:,.0f} chips, "
            f"${load['usd_per_hour']:,.2f} an hour) {hold} the peak"
        )
    return (
        f"At average load, a peak of {load['peak_over_average']:g} times the average: {held}, "
        f"{load['busy_share']:.1%} busy; per million tokens {each}. The prices above are those of "
        "a busy deployment."
    )
