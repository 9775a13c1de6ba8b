"""Two fleets of `dse fleet --out` side by side: prices, what to order, what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.answer.answer import Answer, Block, Column, Table, table_of
from dse.answer.numbers import significant
from dse.questions.compare.pictures import chips_figure, price_figure
from dse.questions.compare.prices import by_how_much, moved, moves_words, pair_columns, price_pairs
from dse.questions.compare.studies import side_names
from dse.questions.compare.tables import changed_answer, unlike
from dse.study.folder import FLEET, STUDY, read_json

Json = Mapping[str, Any]
ALIKE = 1e-6  # relative: tokens of two plans that ask the same
WORDS = {"offer": "a way to get a chip, and its price: rented by the hour, or bought"}


def is_fleet(folder: Path) -> bool:
    """Whether a folder holds a fleet, and no study."""
    return (folder / FLEET).is_file() and not (folder / STUDY).is_file()


def compare_fleets(a: Path | Answer, b: Path | Answer) -> dict[str, Any]:
    """The document of `dse compare A B --json` of two folders with a fleet.json, or of what
    `dse.fleet` returned. Raises InputError for a folder without one, StorageError for one that is
    damaged."""
    first, second = (
        one.document if isinstance(one, Answer) else read_json(one, FLEET) for one in (a, b)
    )
    a, b = (Path(one.document["plan"]) if isinstance(one, Answer) else one for one in (a, b))
    names = dict(zip("ab", side_names(a, b), strict=True))
    pairs = [
        {**row, "per": _per(row["chip"], first, second)}
        for row in price_pairs(_offers(first), _offers(second))
    ]
    document: dict[str, Any] = {
        "a": str(a),
        "b": str(b),
        "names": names,
        "as_of": {"a": None, "b": None},
        "title": second["title"],
        "quarters": second["quarters"],
        **{
            f"{key}_{side}": fleet[key]
            for key in ("feasible", "usd", "usd_undiscounted", "usd_per_million_tokens")
            for side, fleet in (("a", first), ("b", second))
        },
        "ratio": _ratio(first["usd_undiscounted"], second["usd_undiscounted"]),
        "orders": _orders(first, second),
        "by_quarter": _chips(first, second),
        "prices": moved(pairs),
        "all_prices": pairs,
        "comparable": _alike(first, second),
    }
    return {**document, "answer": lead(document)}


def _offers(fleet: Json) -> list[dict[str, Any]]:
    return [
        {"chip": row["offer"], "usd_per_chip_hour": row["usd"], "rule": row["price"]}
        for row in fleet["prices"]
    ]


def _per(offer: str, *fleets: Json) -> str:
    return next(row["per"] for one in fleets for row in one["prices"] if row["offer"] == offer)


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _orders(a: Json, b: Json) -> list[dict[str, Any]]:
    """Chips ordered by quarter and offer, on both sides."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for side, fleet in (("a", a), ("b", b)):
        for order in fleet["orders"]:
            key = (order["order_quarter"], order["offer"])
            row = rows.setdefault(
                key,
                {"quarter": key[0], "offer": key[1]}
                | {"way": order["way"], "chip": order["chip"], "a": 0, "b": 0},
            )
            row[side] += order["chips"]
    return [rows[key] for key in sorted(rows)]


def _chips(a: Json, b: Json) -> list[dict[str, Any]]:
    """Chips that are held by quarter and chip, rented and owned, on both sides."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for side, fleet in (("a", a), ("b", b)):
        for quarter in fleet["by_quarter"]:
            for chip, held in quarter["chips"].items():
                key = (quarter["quarter"], chip)
                row = rows.setdefault(
                    key,
                    {"quarter": key[0], "chip": chip}
                    | dict.fromkeys(("rented_a", "rented_b", "owned_a", "owned_b"), 0),
                )
                for way in ("rented", "owned"):
                    row[f"{way}_{side}"] = held[way]
    return [rows[key] for key in sorted(rows)]


def _alike(a: Json, b: Json) -> list[dict[str, Any]]:
    """`{what, same, words}`: plan, horizon, demand and basis."""
    rows = []
    for what, key in (("plan", "plan"), ("quarters", "quarters"), ("price basis", "price_basis")):
        same = a[key] == b[key]
        rows.append((what, same, str(b[key]) if same else f"{a[key]} and {b[key]}"))
    ours, theirs = _tokens(a), _tokens(b)
    if ours and theirs:
        same = math.isclose(ours, theirs, rel_tol=ALIKE)
        each = [f"{significant(tokens / 1e9)}B" for tokens in (ours, theirs)]
        of = f"{each[0]} tokens" if same else f"{each[0]} and {each[1]} tokens"
        rows.append(("demand", same, f"{of} over the horizon"))
    return [{"what": what, "same": same, "words": words} for what, same, words in rows]


def _tokens(fleet: Json) -> float | None:
    usd, each = fleet["usd_undiscounted"], fleet["usd_per_million_tokens"]
    return usd / each * 1e6 if usd and each else None


def lead(document: Json) -> list[str]:
    """What to order now against then, what it costs, and which prices changed."""
    names = document["names"]
    start = f"From {names['a']} to {names['b']}"
    bad = [names[side] for side in "ab" if not document[f"feasible_{side}"]]
    if bad:
        sentences = [f"{start}: nothing keeps the plan of {' and '.join(bad)}."]
    else:
        sentences = [f"{start}, {_order_words(document)}; {_cost_words(document)}."]
    pairs, changed = document["all_prices"], document["prices"]
    sentences.append(
        f"Prices of {len(changed)} of {len(pairs)} offers changed"
        + (f": {moves_words(pairs)}." if changed else ".")
    )
    each = [document[f"usd_per_million_tokens_{side}"] for side in "ab"]
    if all(each):
        sentences.append(
            f"Per million tokens: ${significant(each[1])}, before ${significant(each[0])}."
        )
    return sentences + unlike(document)


def _order_words(document: Json) -> str:
    before, after = (_ordered(document["orders"], side) for side in "ab")
    if before == after:
        return f"the orders stay: {after}"
    return f"order {after} instead of {before}"


def _ordered(orders: Sequence[Json], side: str) -> str:
    """`24 h100_sxm (rent, quarter 1) and 8 h200_sxm (buy, quarter 2)`."""
    words = [
        f"{row[side]:,} {row['chip']} ({row['way']}, quarter {row['quarter']})"
        for row in orders
        if row[side]
    ]
    return " and ".join(words) or "nothing"


def _cost_words(document: Json) -> str:
    after, before = document["usd_undiscounted_b"], document["usd_undiscounted_a"]
    over = f"over {document['quarters']} quarters"
    if (moved := by_how_much(document["ratio"], "more", "less")) is None:
        return f"the fleet costs the same ${after:,.0f} {over}"
    return f"the fleet costs {moved} (${after:,.0f} {over}, before ${before:,.0f})"


def fleets_answer(document: dict[str, Any]) -> Answer:
    """What changed from one fleet to the other."""
    blocks: list[Block] = []
    for per, title in (("chip-hour", "Rents"), ("chip", "Prices of chips that are bought")):
        if rows := [row for row in document["all_prices"] if row["per"] == per]:
            blocks.append(price_figure(per, title, rows, document, per))
    if document["by_quarter"]:
        blocks.append(chips_figure(document))
    by_quarter = table_of("by quarter", document["by_quarter"])
    return changed_answer(document, [*blocks, *tables(document)], (), by_quarter, WORDS)


def tables(document: Json) -> list[Table]:
    """Prices of the offers, orders, and chips by quarter."""
    names = list(document["names"].values())
    offers = (
        Column("chip", "offer"),
        Column("per", "per"),
        *pair_columns(names),
        Column("rule", "stated", of=lambda row: row["rule_b"] or row["rule_a"] or ""),
    )
    orders = (
        Column("quarter", "quarter", "count"),
        Column("offer", "offer"),
        *(Column(side, name, "count") for side, name in zip("ab", names, strict=True)),
    )
    held = (
        Column("quarter", "quarter", "count"),
        Column("chip", "chip"),
        *(
            Column(f"{way}_{side}", f"{way}, {name}", "count")
            for way in ("rented", "owned")
            for side, name in zip("ab", names, strict=True)
        ),
    )
    made = [
        Table.of("prices", "Prices of the offers, USD", document["all_prices"], offers),
        Table("orders", "Chips to order", orders, document["orders"]),
        Table("chips", "Chips by quarter", held, document["by_quarter"]),
    ]
    return [table for table in made if table.rows]
