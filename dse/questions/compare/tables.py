"""The Answer of two studies side by side: its tables and the rows of every design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Cell, Column, Table, table_of
from dse.answer.glossary import GLOSSARY
from dse.answer.sentences import Sources
from dse.economics.priced import price_parts
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHAPE_KEY, SHORT, show
from dse.questions.compare.pictures import study_figures
from dse.questions.compare.prices import change, price_table
from dse.questions.compare.studies import Compared
from dse.questions.compare.words import changed_answer, facts, lead

Json = Mapping[str, Any]
Row = dict[str, Cell]
# Terms of this question, and common ones that designs are told in.
WORDS = {
    "digest": "a fingerprint of the hardware data: the same digest, the same figures",
    "additive epsilon": "how far one front must be shifted, in scaled objectives, to be as good "
    "everywhere as the other",
    "KV heads": GLOSSARY["KV heads"],
}


def studies_answer(found: Compared, command: str = "") -> Answer:
    """What changed from one study to the other."""
    return changed_answer(
        {**found.document, "answer": lead(found)},
        [*study_figures(found), *tables(found)],
        facts(found),
        table_of("designs", design_rows(found)),
        WORDS,
        command,
    )


def tables(found: Compared) -> list[Table]:
    """Chosen designs, designs by chip, those that tell most of what changed, prices; none where
    nothing changed."""
    document = found.document
    made = [
        _chosen_table(found),
        *([_chip_table(document)] if document["entered"] or document["left"] else []),
        _telling_table(found, "left"),
        _telling_table(found, "entered"),
        *_price_tables(document),
        *_part_tables(found),
    ]
    return [table for table in made if table.rows]


def _apart(row: Json) -> bool:
    """Whether a price, its date or its source is another on the two sides."""
    return any(row[f"{key}_a"] != row[f"{key}_b"] for key in ("date", "source")) or (
        row["a"] != row["b"]
    )


def _metrics(found: Compared) -> list[str]:
    return [o["metric"] for o in found.objectives]


def _metric_columns(found: Compared) -> list[Column]:
    return [Column(name, SHORT.get(name, name), name) for name in _metrics(found)]


def _price_tables(document: Json) -> list[Table]:
    """The prices of both sides; none where nothing of them differs."""
    pairs, names = document["all_prices"], document["names"]
    if not any(map(_apart, pairs)):
        return []
    sources, caption = Sources(), f"Prices, USD per chip-hour ({document['price_basis']})"
    table = price_table("prices", caption, pairs, list(names.values()), sources)
    return [replace(table, notes=sources)]


def _part_tables(found: Compared) -> list[Table]:
    """The parts of prices that changed, where chips are owned on both sides."""
    changed = [row["chip"] for row in found.document["prices"] if row["ratio"]]
    sides = [
        {one["chip"]: one for one in side.study["price"].get("breakdowns") or ()}
        for side in (found.a, found.b)
        if changed
    ]
    if not sides or not all(chip in side for side in sides for chip in changed):
        return []
    pair = [price_parts([side[chip] for chip in changed]) for side in sides]
    rows = [
        {**row, "chip": row["chip"] if side == "a" else "", "in": found.document["names"][side]}
        for both in zip(*(one.rows for one in pair), strict=True)
        for side, row in zip("ab", both, strict=True)
    ]
    chip, *columns = pair[0].columns
    caption = "What changed of the prices, by parts (USD per chip-hour)"
    return [Table("parts", caption, (chip, Column("in", "in"), *columns), rows)]


def _chosen_table(found: Compared) -> Table:
    document, rows = found.document, list[Row]()
    for row in document["chosen"]:
        for side in "ab":
            cells: Row = {"name": row["name"] if side == "a" else ""}
            cells["in"] = document["names"][side]
            for metric, ends in row["metrics"].items():
                moved = side == "b" and ends["a"] and ends["b"] != ends["a"]
                by = f" ({change(ends['b'] / ends['a'])})" if moved else ""
                cells[metric] = f"{show(metric, ends[side])}{by}"
            same = side == "b" and row["same_design"]
            rows.append(cells | {"design": "the same" if same else row[side]})
    columns = (
        Column("name", ""),
        Column("in", "in"),
        *_metric_columns(found),
        Column("design", "design"),
    )
    key = f"{f'{SHAPE_KEY}; ' * found.shaped}{DEPLOYMENT_KEY}{HELD_KEY}"
    caption = "The chosen designs, before and after"
    return Table("chosen", caption, columns, rows, (f"Designs: {key}.",))


def _chip_table(document: Json) -> Table:
    names = document["names"]
    columns = (
        Column("chip", "chip"),
        Column("a", f"in {names['a']}", "count"),
        Column("left", "left", "count"),
        Column("entered", "entered", "count"),
        Column("b", f"in {names['b']}", "count"),
    )
    return Table("chips", "Designs on the front, by chip", columns, document["chips"])


def _telling_table(found: Compared, what: str) -> Table:
    """What entered or left: at the other side's prices, who beats it there."""
    document = found.document
    of, other = (found.b, found.a) if what == "entered" else (found.a, found.b)
    rows = []
    for row in document["telling"][what]:
        cells: Row = {"point": row["point"], "design": row["design"]}
        cells["there"] = _why(row, other.name)
        for metric, value in row["metrics"].items():
            repriced = (row["repriced"] or {}).get(metric)
            there = "" if repriced is None else f" ({show(metric, repriced)})"
            cells[metric] = f"{show(metric, value)}{there}"
        rows.append(cells)
    count = len(document[what])
    shown = f", {len(rows)} of {count:,}" if count > len(rows) else ""
    columns = (
        Column("point", "point", "count"),
        *_metric_columns(found),
        Column("there", "there"),
        Column("design", "design"),
    )
    note = f"Points are those of {of.name}; in brackets the cost at the prices of {other.name}."
    caption = "On the front only now" if what == "entered" else "No longer on the front"
    return Table(what, f"{caption}{shown}", columns, rows, (note,))


def _why(row: Json, other: str) -> str:
    if row["beaten_by"] is not None:
        return f"beaten by point {row['beaten_by']} of {other}"
    if row["repriced"] is not None:
        return f"no gain over a design of {other} at its resolution, or not found"
    return f"no price in {other}" if row["unpriced"] else f"not compared with {other}"


def design_rows(found: Compared) -> list[Json]:
    """A row for each design of either front: what became of it, its points and objectives."""
    rows = []
    for key, item in {**found.a.items, **found.b.items}.items():
        ends = (("a", found.a.items.get(key)), ("b", found.b.items.get(key)))
        row: dict[str, Cell] = {"status": found.status(key)}
        row |= {f"point_{s}": None if end is None else end["point"] for s, end in ends}
        row |= {f"names_{s}": " ".join(end["names"]) if end else "" for s, end in ends}
        row |= {"chip": item["deployment"]["chip"], "design": found.words(item)}
        for metric in _metrics(found):
            row |= {
                f"{metric}_{s}": None if end is None else end["metrics"][metric] for s, end in ends
            }
        rows.append(row)
    return rows
