"""Two studies side by side, in sentences, tables and rows, for the console, the page and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.numbers import priced
from dse.answer.text_table import Table
from dse.economics.priced import parts_table
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHAPE_KEY, SHORT, show, spans
from dse.questions.compare.prices import change, moves_words
from dse.questions.compare.studies import Compared, cost_metric

Json = Mapping[str, Any]
MOST_NUMBERS = 40  # of points that are listed
SAME = 5e-4  # a share below which two costs are said to be the same


def lead(found: Compared) -> list[str]:
    """The answer: what became of the cheapest design, which prices moved, what that changed."""
    document = found.document
    unlike = [row for row in document["comparable"] if not row["same"] and row["what"] != "search"]
    sentences = [_cheapest(found)]
    sentences += [f"Not by prices alone: {row['what']}: {row['words']}." for row in unlike]
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
    ratio = after / before
    if abs(ratio - 1.0) < SAME:
        return f", at the same {_usd(metric, after)}"
    word = "dearer" if ratio > 1.0 else "cheaper"
    share = change(ratio).strip("+-")
    was = _usd(metric, before).split()[0]
    return f", {share} {word} ({_usd(metric, after)}, before {was})"


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
        f"the {_listed(names)} {words if len(names) == 1 else words.replace('s ', ' ', 1)}"
        for words, names in moves.items()
    ]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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


def tables(found: Compared) -> list[Table]:
    """Chosen designs, designs by chip, those that tell most of what changed, prices; none where
    nothing changed."""
    document = found.document
    made = [
        _chosen_table(found),
        *([_chip_table(document)] if document["entered"] or document["left"] else []),
        _telling_table(found, "left"),
        _telling_table(found, "entered"),
        *([_price_table(document)] if any(map(_apart, document["all_prices"])) else []),
        _part_table(found),
    ]
    return [table for table in made if table.rows]


def _apart(row: Json) -> bool:
    """Whether a price, its date or its source is another on the two sides."""
    return any(row[f"{key}_a"] != row[f"{key}_b"] for key in ("date", "source")) or (
        row["a"] != row["b"]
    )


def _metrics(found: Compared) -> list[str]:
    return [o["metric"] for o in found.objectives]


def _price_table(document: Json) -> Table:
    names = document["names"]
    texts = [row[f"source_{side}"] for row in document["all_prices"] for side in "ab"]
    sources = list(dict.fromkeys(one for text in texts if text for one in text.split("; ")))

    def numbers(row: Json) -> str:
        named = [one for side in "ab" for one in (row[f"source_{side}"] or "").split("; ") if one]
        return " ".join(f"[{sources.index(one) + 1}]" for one in dict.fromkeys(named))

    return Table(
        f"Prices, USD per chip-hour ({document['price_basis']})",
        (
            "chip", names["a"], names["b"], "change", f"newest, {names['a']}",
            f"newest, {names['b']}", "sources",
        ),
        [
            (
                row["chip"],
                *("-" if row[side] is None else f"{row[side]:.3f}" for side in "ab"),
                _moved(row["ratio"]),
                row["date_a"] or "-",
                row["date_b"] or "-",
                numbers(row),
            )
            for row in document["all_prices"]
        ],
        (1, 2, 3),
        tuple(f"[{k}] {one}" for k, one in enumerate(sources, 1)),
    )  # fmt: skip


def _part_table(found: Compared) -> Table:
    """The parts of prices that changed, where chips are owned on both sides."""
    caption = "What changed of the prices, by parts (USD per chip-hour)"
    changed = [row["chip"] for row in found.document["prices"] if row["ratio"]]
    priced = [
        {one["chip"]: one for one in side.study["price"].get("breakdowns") or ()}
        for side in (found.a, found.b)
        if changed
    ]
    if not priced or not all(chip in side for side in priced for chip in changed):
        return Table(caption, (), [])
    tables = [parts_table([side[chip] for chip in changed]) for side in priced]
    titles = tables[0].titles
    rows = [
        (cells[0] if k == 0 else "", found.document["names"]["ab"[k]], *cells[1:])
        for pair in zip(*(table.rows for table in tables), strict=True)
        for k, cells in enumerate(pair)
    ]
    return Table(caption, ("chip", "in", *titles[1:]), rows, tuple(range(2, 1 + len(titles))))


def _moved(ratio: float | None) -> str:
    return "-" if ratio is None else "0" if ratio == 1.0 else change(ratio)


def _chosen_table(found: Compared) -> Table:
    document, metrics = found.document, _metrics(found)
    rows = []
    for row in document["chosen"]:
        for side in "ab":
            cells = []
            for metric in metrics:
                before, after = row["metrics"][metric]["a"], row["metrics"][metric]["b"]
                moved = side == "b" and before and after != before
                cells.append(
                    show(metric, row["metrics"][metric][side])
                    + (f" ({change(after / before)})" if moved else "")
                )
            design = "the same" if side == "b" and row["same_design"] else row[side]
            name = row["name"] if side == "a" else ""
            rows.append((name, document["names"][side], *cells, design))
    titles = ("", "in", *(SHORT.get(metric, metric) for metric in metrics), "design")
    key = f"{f'{SHAPE_KEY}; ' * found.shaped}{DEPLOYMENT_KEY}{HELD_KEY}"
    return Table("The chosen designs, before and after", titles, rows,
                 tuple(range(2, 2 + len(metrics))), (f"Designs: {key}.",))  # fmt: skip


def _chip_table(document: Json) -> Table:
    names = document["names"]
    rows = [
        (row["chip"], *(f"{row[key]:,}" for key in ("a", "left", "entered", "b")))
        for row in document["chips"]
    ]
    titles = ("chip", f"in {names['a']}", "left", "entered", f"in {names['b']}")
    return Table("Designs on the front, by chip", titles, rows, (1, 2, 3, 4))


def _telling_table(found: Compared, what: str) -> Table:
    """What entered or left: at the other side's prices, who beats it there."""
    document, metrics = found.document, _metrics(found)
    of, other = (found.b, found.a) if what == "entered" else (found.a, found.b)
    count = len(document[what])
    rows = []
    for row in document["telling"][what]:
        repriced = row["repriced"] or {}
        cells = [
            show(metric, row["metrics"][metric])
            + (f" ({show(metric, repriced[metric])})" if metric in repriced else "")
            for metric in metrics
        ]
        rows.append((str(row["point"]), *cells, _why(row, other.name), row["design"]))
    shown = f", {len(rows)} of {count:,}" if count > len(rows) else ""
    titles = ("point", *(SHORT.get(metric, metric) for metric in metrics), "there", "design")
    note = f"Points are those of {of.name}; in brackets the cost at the prices of {other.name}."
    caption = "On the front only now" if what == "entered" else "No longer on the front"
    return Table(f"{caption}{shown}", titles, rows, tuple(range(1 + len(metrics))), (note,))


def _why(row: Json, other: str) -> str:
    if row["beaten_by"] is not None:
        return f"beaten by point {row['beaten_by']} of {other}"
    if row["repriced"] is not None:
        return f"not found by {other}"
    return f"no price in {other}" if row["unpriced"] else f"not compared with {other}"


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
        listed = spans(points[:MOST_NUMBERS])
        more = f" and {len(points) - MOST_NUMBERS:,} more" if len(points) > MOST_NUMBERS else ""
        numbers = f": points {listed}{more} of {names[side]}" if points else ""
        said.append(f"{len(points):,} {what} the front{numbers}.")
    return said


def alike(document: Json) -> list[str]:
    """What the two share, and what not, a sentence each."""
    return [
        f"{row['what']}: {row['words']}{'' if row['same'] else ' (not alike)'}."
        for row in document["comparable"]
    ]


def design_rows(found: Compared) -> list[dict[str, Any]]:
    """A row for each design of either front: what became of it, its points and objectives."""
    rows = []
    for key, item in {**found.a.items, **found.b.items}.items():
        one, other = found.a.items.get(key), found.b.items.get(key)
        ends = (("a", one), ("b", other))
        rows.append(
            {
                "status": found.status(key),
                **{f"point_{s}": None if end is None else end["point"] for s, end in ends},
                **{f"names_{s}": " ".join(end["names"]) if end else "" for s, end in ends},
                "chip": item["deployment"]["chip"],
                "design": found.words(item),
                **{
                    f"{o['metric']}_{s}": None if end is None else end["metrics"][o["metric"]]
                    for o in found.objectives
                    for s, end in ends
                },
            }
        )
    return rows
