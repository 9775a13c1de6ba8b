"""What `dse whatif` answers as numbers for a spreadsheet: a sheet for each question, and all of
them in one CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
Rows = list[dict[str, Any]]


def questions(document: Json) -> dict[str, Rows]:
    """{question: rows of equal keys}, SI and dollars, those that were asked; `document` is that of
    `dse whatif --json`."""
    even: Json = document["break_even"] or {"chips": [], "concurrency": None, "owning": []}
    together: Json = even["concurrency"] or {"rows": []}
    made = {
        "Winner": [] if document["winner"] is None else [_point(document["winner"])],
        "Scenarios": [_scenario(row) for row in document["scenarios"]],
        "Sweeps": [
            {"input": sweep["input"], "value": row["value"], "factor": row["factor"],
             "unit": sweep["unit"], "objective": row["objective"], **_point(row["winner"])}
            for sweep in document["sweeps"]
            for row in sweep["rows"]
        ],
        "Sensitivities": [dict(row) for row in document["sensitivities"] or ()],
        "Shadow prices": [dict(row) for row in document["shadow_prices"] or ()],
        "Break-even": [_without(row, "point") | _point(row["point"]) for row in even["chips"]],
        "Requests in flight": [
            {"concurrency": row["concurrency"], together["a"]: row["cost_a"],
             together["b"]: row["cost_b"]}
            for row in together["rows"]
        ],
        "Owning": [
            _without(row, "price", "curve") | {"priced": row["price"]["date"]}
            for row in even["owning"]
        ],
        "Owning by utilisation": [
            {"chip": row["chip"], **one} for row in even["owning"] for one in row["curve"]
        ],
        "Equal": [
            {"equal": one["kind"], "level": one["level"], "unit": one["unit"],
             "metric": one["metric"], "value": row["value"], "over best": row["over_best"],
             "deployments": row["deployments"], "chips held": row["chips"], **_point(row["point"])}
            for one in document["equal"]
            for row in one["rows"]
        ],
        "Inputs": [_without(row) for row in document["inputs"]],
    }  # fmt: skip
    return {name: _squared(rows) for name, rows in made.items() if rows}


def _squared(rows: Rows) -> Rows:
    """Every row with the keys of all."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def long_rows(document: Json) -> Iterator[dict[str, Any]]:
    """A row for every number: question, which row of it, what, value."""
    for question, rows in questions(document).items():
        for k, row in enumerate(rows, 1):
            for quantity, value in row.items():
                if value is not None:
                    yield {"question": question, "row": k, "quantity": quantity, "value": value}


def _scenario(row: Json) -> dict[str, Any]:
    front = row["front"]
    return {
        "scenario": row["name"], "change": row["change"], "same winner": row["same_winner"],
        "front before": front["size_before"], "front after": front["size"],
        "entered": front["entered"]["count"], "left": front["left"]["count"],
        **_point(row["winner"]),
    }  # fmt: skip


def _point(point: Json | None) -> dict[str, Any]:
    """A deployment in words, its metrics, and what it is paid under a demand; nothing where nothing
    is feasible."""
    if point is None:
        return {}
    held = {f"at the demand: {name}": value for name, value in
            _without(point["at_average_load"] or {}).items()}  # fmt: skip
    return {"winner": point["words"], "known as": point["provenance"], **point["metrics"], **held}


def _without(row: Json, *names: str) -> dict[str, Any]:
    """A row without `names` and without objects inside it."""
    return {
        name: value
        for name, value in row.items()
        if name not in names and not isinstance(value, (dict, list))
    }
