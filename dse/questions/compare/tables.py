"""The Answer of two studies side by side: its sentences, tables and the rows of every design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Block, Cell, Column, Notes, Table, table_of
from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import priced
from dse.answer.sentences import Sources, listed
from dse.economics.prices import price_parts
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHAPE_KEY, SHORT, show, spans
from dse.questions.compare.pictures import study_figures
from dse.questions.compare.prices import SAME, by_how_much, change, moves_words, price_table
from dse.questions.compare.studies import Compared, cost_metric

Json = Mapping[str, Any]
Row = dict[str, Cell]
# Terms of this question, and common ones that designs are told in.
WORDS = {
    "digest": "a fingerprint of the hardware data: the same digest, the same figures",
    "additive epsilon": "how far one front must be shifted, in scaled objectives, to be as good "
    "everywhere as the other",
    "KV heads": GLOSSARY["KV heads"],
}


def studies_answer(found: Compared) -> Answer:
    """What changed from one study to the other."""
    return changed_answer(
        {**found.document, "answer": lead(found)},
        [*study_figures(found), *tables(found)],
        facts(found),
        table_of("designs", design_rows(found)),
        WORDS,
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


MOST_NUMBERS = 40  # of points that are listed


def lead(found: Compared) -> list[str]:
    """The answer: what became of the cheapest design, which prices moved, what that changed."""
    document = found.document
    sentences = [_cheapest(found), *unlike(document)]
    if document["prices"]:
        moves = moves_words(document["all_prices"])
        sentences.append(f"Prices on {document['price_basis']}, USD per chip-hour: {moves}.")
    if document["kept"] and document["kept"]["over"] > SAME:
        kept, names = document["kept"], document["names"]
        sentences.append(
            f"The cheapest design of {names['a']} costs {_usd(kept['metric'], kept['value'])} at "
            f"the prices of {names['b']}, {kept['over']:.1%} more than the cheapest now."
        )
    if others := [row for row in document["chosen"] if row["name"] != "cheapest"]:
        sentences.append(_others(others))
    return [*sentences, _fronts(document)]


def _cheapest(found: Compared) -> str:
    document = found.document
    metric = cost_metric(found.objectives)
    rows = {row["name"]: row for row in document["chosen"]}
    row = rows.get("cheapest") or next(iter(rows.values()), None)
    start = f"From {_named(document, 'a')} to {_named(document, 'b')}"
    counted = _counted(document)
    if row is None:
        return f"{start}, {counted}."
    return f"{start}, the {row['name']} design {_moves(row)}{_by(row, metric)}; {counted}."


def unlike(document: Json) -> list[str]:
    """What else differs, so that prices alone do not explain the change."""
    return [
        f"Not by prices alone: {row['what']}: {row['words']}."
        for row in document["comparable"]
        if not row["same"] and row["what"] != "search"
    ]


def _named(document: Json, side: str) -> str:
    name, as_of = document["names"][side], document["as_of"][side]
    return f"{name} (prices as of {as_of})" if as_of and as_of != name else name


def _counted(document: Json) -> str:
    chips, moved = len(document["all_prices"]), len(document["prices"])
    if not chips:
        return "no prices were written down"
    if not moved:
        one = "its one chip" if chips == 1 else f"{chips} chips"
        return f"no price of {one} changed"
    return f"prices of {moved} of {chips} chip{'s' * (chips > 1)} changed"


def _moves(row: Json) -> str:
    if row["same_design"]:
        return f"stays {row['b']}"
    if row["chip_a"] != row["chip_b"]:
        return f"moves from {row['chip_a']} to {row['chip_b']}"
    return f"stays on {row['chip_b']}, as another design"


def _by(row: Json, metric: str | None) -> str:
    if metric is None:
        return ""
    before, after = row["metrics"][metric]["a"], row["metrics"][metric]["b"]
    if (moved := by_how_much(after / before, "dearer", "cheaper")) is None:
        return f", at the same {_usd(metric, after)}"
    return f", {moved} ({_usd(metric, after)}, before {_usd(metric, before).split()[0]})"


def _usd(metric: str, value: float) -> str:
    """`$0.0194 per million tokens`."""
    return priced(metric, value) if metric.startswith("usd") else show(metric, value)


def _others(rows: list[Any]) -> str:
    """Whether the fastest, best and knee are the same designs."""
    moves: dict[str, list[str]] = {}
    for row in rows:
        words = "stays the same design" if row["same_design"] else _moves(row)
        moves.setdefault(words, []).append(row["name"])
    said = [
        f"the {listed(names)} {words if len(names) == 1 else words.replace('s ', ' ', 1)}"
        for words, names in moves.items()
    ]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _fronts(document: Json) -> str:
    entered, left = len(document["entered"]), len(document["left"])
    if not entered and not left:
        return f"The front holds the same {document['front_b']:,} designs."
    chips = [
        f"{row['chip']} {row['a']:,} to {row['b']:,}"
        for row in document["chips"]
        if row["entered"] or row["left"]
    ]
    return (
        f"{left:,} of {document['front_a']:,} designs left the front and {entered:,} of now "
        f"{document['front_b']:,} are new on it; designs by chip: {', '.join(chips)}."
    )


def facts(found: Compared) -> list[str]:
    """How the fronts compare as wholes, and the numbers of the points that changed."""
    document = found.document
    names, ratio = document["names"], document["ratio"]
    said = [
        f"{names['b']} has {'no measure of' if ratio is None else f'{ratio:.4%} of'} "
        f"{names['a']}'s hypervolume, the share of objective space that a front beats "
        f"({document['hypervolume_b']:.6f} against {document['hypervolume_a']:.6f}; scaled by the "
        f"front of: {document['reference_front']}; reference point 1.1). Additive epsilon of "
        f"{names['b']} against {names['a']}, the worst step by which it falls short: "
        f"{document['epsilon']:.5f}."
    ]
    if document["true_hypervolume_share"] is not None:
        said.append(f"Share of the true hypervolume: {document['true_hypervolume_share']:.4%}.")
    for what, side in (("entered", "b"), ("left", "a")):
        points = document[what]
        more = f" and {len(points) - MOST_NUMBERS:,} more" if len(points) > MOST_NUMBERS else ""
        numbers = (
            f": points {spans(points[:MOST_NUMBERS])}{more} of {names[side]}" if points else ""
        )
        said.append(f"{len(points):,} {what} the front{numbers}.")
    return said


def alike(document: Json) -> list[str]:
    """What the two share, and what not, a sentence each."""
    return [
        f"{row['what']}: {row['words']}{'' if row['same'] else ' (not alike)'}."
        for row in document["comparable"]
    ]


def changed_answer(
    document: dict[str, Any],
    blocks: Sequence[Block],
    notes: Sequence[str],
    data: Table,
    words: Mapping[str, str],
) -> Answer:
    """What changed from one study or fleet to the other; `document` holds the sentences too."""

    def end(side: str) -> str:
        name, where, as_of = document["names"][side], document[side], document["as_of"][side]
        said = [where] * (where != name) + [f"prices as of {as_of}"] * bool(as_of)
        return f"{name} ({', '.join(said)})" if said else name

    first, *rest = document["answer"]
    return Answer(
        question="compare",
        title=f"{document['title']}: what changed",
        asked=f"{document['title']}: from {end('a')} to {end('b')}",
        headline=first,
        sentences=rest,
        blocks=(*blocks, Notes("How the two compare", [*notes, *alike(document)])),
        document=document,
        data=(data,),
        words=words,
    )
