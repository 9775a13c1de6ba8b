"""What the prices of a study are made of, and what its points cost at the average of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.economics.priced import price_parts
from dse.render.folder import StudyFolder


def part_rows(study: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A head and a row for each chip whose price is computed by parts; none where chips are
    rented."""
    found = study["price"].get("breakdowns") or []
    if not found:
        return []
    table = price_parts(found)
    return [tuple(table.titles), *map(tuple, table.texts())]


def input_rows(study: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A head and a row for each input of these prices: name, value, kind, date, note, source."""
    seen: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in study["price"].get("breakdowns") or []:
        for row in one["inputs"]:
            name = f"{one['chip']} {row['name']}" if row["of"] == "chip" else row["name"]
            rest = (row[key] or "" for key in ("text", "kind", "date", "note", "source"))
            seen[name, row["text"]] = (name, *rest)
    if not seen:
        return []
    return [("input", "value", "kind", "date", "note", "source"), *seen.values()]


def load_rows(folder: StudyFolder) -> list[tuple[str, ...]]:
    """A head and a row for each chosen point that was priced at an average load."""
    rows = []
    for chosen in folder.chosen:
        load = chosen.item.get("at_average_load")
        if load is None:
            continue
        count, cost = load["deployments"], load["usd_per_hour"]
        each = (load[f"usd_per_million_{name}_tokens"] for name in ("input", "output", "total"))
        rows.append(
            (
                f"{chosen.label} ({chosen.item['point']})",
                f"{load['busy_share']:.1%}",
                "–" if count is None else f"{count:,}",
                "–" if count is None else f"{load['chips']:,.0f}",
                "–" if cost is None else f"${cost:,.2f}",
                *(f"${usd:.3g}" for usd in each),
            )
        )
    head = (
        "point",
        "busy",
        "deployments",
        "chips",
        "an hour",
        "$/M input",
        "$/M output",
        "$/M total",
    )
    return [head, *rows] if rows else []


def load_sentence(study: Mapping[str, Any]) -> str:
    """What the demand is; empty without one."""
    demand = study.get("demand")
    if not demand:
        return ""
    average = demand["average_tokens_per_s"]
    of = "" if average is None else f" of {average:,.0f} tokens a second, input and output together"
    return (
        f"Sized for a peak of {demand['peak_over_average']:g} times the average{of}, and paid "
        "around the clock: the prices of a token at average load. All other prices of this report "
        "are those of a busy deployment."
    )
