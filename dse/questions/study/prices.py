"""What the prices of a study are made of, and what its points cost at the average of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.answer.answer import Column, Table, table_of_texts
from dse.economics.priced import price_parts
from dse.questions.study.folder import StudyFolder


def owned_tables(study: Mapping[str, Any]) -> list[Table]:
    """What an hour of each chip is made of, and the inputs; none where chips are rented."""
    found = study["price"].get("breakdowns") or []
    if not found:
        return []
    seen: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in found:
        for row in one["inputs"]:
            name = f"{one['chip']} {row['name']}" if row["of"] == "chip" else row["name"]
            rest = (row[key] or "" for key in ("text", "kind", "date", "note", "source"))
            seen[name, row["text"]] = (name, *rest)
    head = ("input", "value", "kind", "date", "note", "source")
    return [
        replace(price_parts(found, "What an hour of a chip costs, by parts"), name="price-parts"),
        table_of_texts("price-inputs", "What it rests on", [head, *seen.values()], range(6)),
    ]


def load_tables(folder: StudyFolder) -> list[Table]:
    """A row for each chosen point that was priced at an average load; none without a demand."""
    each = ("input", "output", "total")
    rows = []
    for chosen in folder.chosen:
        load = chosen.item.get("at_average_load")
        if load is not None:
            of_none = {} if load["deployments"] is not None else {"chips": None}
            point = f"{chosen.label} ({chosen.item['point']})"
            rows.append({**load, **of_none, "point": point})
    columns = (
        Column("point", "point"),
        Column("busy_share", "busy", "share"),
        Column("deployments", "deployments", "count"),
        Column("chips", "chips", "count"),
        Column("usd_per_hour", "an hour", "dollars"),
        *(
            Column(f"usd_per_million_{name}_tokens", f"per million {name}", "dollars")
            for name in each
        ),
    )
    return [Table("load", load_sentence(folder.study), columns, rows)] if rows else []


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
