"""Two studies side by side, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Answer, Block, Notes, Table
from dse.answer.numbers import priced
from dse.answer.sentences import listed
from dse.problem.words import show, spans
from dse.questions.compare.prices import SAME, by_how_much, moves_words
from dse.questions.compare.studies import Compared, cost_metric

Json = Mapping[str, Any]
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
    command: str,
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
        command=command,
        document=document,
        data=(data,),
        words=words,
    )
