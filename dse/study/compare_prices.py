"""Two studies that differ in prices: which prices changed, and what that moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def price_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each chip whose price differs, or that only one of the studies has a price of. None
    where a study did not write its prices down."""
    first, second = _prices(a), _prices(b)
    rows = []
    for chip in dict.fromkeys([*first, *second]):
        one, other = first.get(chip, {}), second.get(chip, {})
        before, after = one.get("usd_per_chip_hour"), other.get("usd_per_chip_hour")
        if before != after:
            rows.append(
                {
                    "chip": chip,
                    "a": before,
                    "b": after,
                    "ratio": after / before if before and after else None,
                    "date_a": one.get("date") or None,
                    "date_b": other.get("date") or None,
                }
            )
    return rows


def cost_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each cost of owning that differs, as its file says it: of every chip, and of single
    chips as `h100_sxm price`."""
    first, second = (_costs(study.get("costs")) for study in (a, b))
    return [
        {"name": name, "a": first.get(name), "b": second.get(name)}
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def chosen_changes(
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    objectives: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """What became of each chosen point that both fronts have: its design and its objectives."""
    first, second = (
        {name: item for item in items for name in item.get("names", ())} for items in (a, b)
    )
    return [
        {
            "name": name,
            "a": _design(first[name]),
            "b": _design(second[name]),
            "same_design": all(
                first[name][key] == second[name][key] for key in ("deployment", "model")
            ),
            "metrics": {
                o["metric"]: {
                    "a": first[name]["metrics"][o["metric"]],
                    "b": second[name]["metrics"][o["metric"]],
                }
                for o in objectives
            },
        }
        for name in first
        if name in second
    ]


def _costs(costs: Mapping[str, Any] | None) -> dict[str, str]:
    if not costs:
        return {}
    own = {
        f"{chip} {name}": one["text"]
        for chip, lines in costs["chips"].items()
        for name, one in lines.items()
    }
    return {name: one["text"] for name, one in costs["inputs"].items()} | own


def _prices(study: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["chip"]: row for row in (study.get("price") or {}).get("rows", ())}


def _design(item: Mapping[str, Any]) -> str:
    """`8 x h100_sxm TP 4, 64 in flight`."""
    d = item["deployment"]
    return (
        f"{d['chips']:g} x {d['chip']} TP {d['tensor_parallel']:g}, {d['concurrency']:g} in flight"
    )
