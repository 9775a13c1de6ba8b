"""Two fleets of `dse fleet` side by side: prices, what to order, what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.answer.answer import Answer
from dse.answer.frames import document, of_rows, stacked_bars
from dse.answer.numbers import dollars, significant, tenths
from dse.study.folder import FLEET, read_json

Json = Mapping[str, Any]
ALIKE = 1e-6  # relative: tokens of two plans that ask the same
SAME = 5e-4  # a share below which two costs are said to be the same
# Frames of both: the caption, the keys of a row, and what it has of either side.
PAIRS = {
    "prices": ("Prices of the offers", ("offer", "per"), ("price_usd",)),
    "orders": ("Chips to order", ("order_quarter", "way", "chip", "offer"), ("chips",)),
    "chips": ("Chips by quarter", ("quarter", "chip"), ("rented_chips", "owned_chips")),
}
SIDES = ("before", "after")
WORDS = {"offer": "a way to get a chip, and its price: rented by the hour, or bought"}


def compare_fleets(a: Path | Answer, b: Path | Answer) -> Answer:
    """What changed from one fleet to the other, of two folders with a fleet.json, or of what
    `dse.fleet` returned. Raises InputError for a folder without one, StorageError for one that is
    damaged."""
    first, second = (
        one.document if isinstance(one, Answer) else read_json(one, FLEET) for one in (a, b)
    )
    folders = [Path(one.document["plan"]) if isinstance(one, Answer) else one for one in (a, b)]
    before, after = (folder.resolve().name for folder in folders)
    if before == after:
        before, after = f"A ({folders[0]})", f"B ({folders[1]})"
    rows = {name: _pairs(first[name], second[name], by, of) for name, (_, by, of) in PAIRS.items()}
    for row in (prices := rows["prices"]):
        one, other = row["price_usd.before"], row["price_usd.after"]
        row["change"] = other / one - 1.0 if one and other else None
    moved = [row for row in prices if row["price_usd.before"] != row["price_usd.after"]]
    frames = [of_rows(n, PAIRS[n][0], made, tuple(made[0])) for n, made in rows.items() if made]
    costs = [one["usd_undiscounted"] for one in (first, second)]
    ratio = costs[1] / costs[0] if costs[0] and costs[1] else None
    infeasible = [n for n, one in ((before, first), (after, second)) if not one["feasible"]]
    if infeasible:
        headline = f"nothing keeps the plan of {' and '.join(infeasible)}."
    else:
        over = f"over {second['quarters']} quarters"
        cost = f"the fleet costs the same {dollars(costs[1])} {over}"
        if ratio is not None and abs(ratio - 1.0) >= SAME:
            much = f"{tenths(abs(ratio - 1.0))} {'more' if ratio > 1.0 else 'less'}"
            cost = (
                f"the fleet costs {much} ({dollars(costs[1])} {over}, before {dollars(costs[0])})"
            )
        headline = f"{_order_words(first, second)}; {cost}."
    sentences = [f"From {before} to {after}, {headline}", _moves(moved, len(prices))]
    each = [one["usd_per_million_tokens"] for one in (first, second)]
    if all(each):
        sentences.append(f"Per million tokens: {dollars(each[1])}, before {dollars(each[0])}.")
    sentences += _unlike(first, second)
    facts: dict[str, Any] = {
        "a": str(folders[0]),
        "b": str(folders[1]),
        "names": {"a": before, "b": after},
        "title": second["title"],
        "quarters": second["quarters"],
        **{
            f"{key}_{side}": one[key]
            for key in ("feasible", "usd", "usd_undiscounted", "usd_per_million_tokens")
            for side, one in (("a", first), ("b", second))
        },
        "ratio": ratio,
        "answer": sentences,
    }
    series: dict[str, list[float]] = {}
    last = max((int(row["quarter"]) for row in rows["chips"]), default=0)
    for row in rows["chips"]:
        for k, side in enumerate(SIDES):
            for way in PAIRS["chips"][2]:
                if value := row[f"{way}.{side}"]:
                    name = f"{row['chip']}, {way.removesuffix('_chips')}"
                    bars = series.setdefault(name, [0.0] * 2 * last)
                    bars[2 * int(row["quarter"]) - 2 + k] = value
    at = [f"Q{q + 1}<br>{name}" for q in range(last) for name in (before, after)]
    shows = "Chips that are held by quarter, before and after, stacked by chip."
    chart = stacked_bars("chips", "Chips by quarter", series, "chips", shows, at=at)
    return Answer(
        question="compare",
        title=f"{second['title']}: what changed",
        asked=f"{second['title']}: from {before} to {after}",
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*((chart,) if series else ()), *frames),
        document=document(facts, frames),
        data=frames[-1:],
        words=WORDS,
    )


def _pairs(
    a: Sequence[Json], b: Sequence[Json], by: Sequence[str], of: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each that one of two frames has, called `by` its keys, with the values `of` both;
    those that stand in several rows are summed, and those of one alone are None in the other."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for side, rows in zip(SIDES, (a, b), strict=True):
        for row in rows:
            key = tuple(row[name] for name in by)
            empty = {f"{name}.{end}": None for name in of for end in SIDES}
            one = found.setdefault(key, {**dict(zip(by, key, strict=True)), **empty})
            for name in of:
                one[f"{name}.{side}"] = (one[f"{name}.{side}"] or 0) + (row[name] or 0)
    return [found[key] for key in sorted(found, key=lambda key: tuple(map(str, key)))]


def _order_words(a: Json, b: Json) -> str:
    """`order 24 h100_sxm (rent, quarter 1) instead of 8 h200_sxm (buy, quarter 2)`."""
    before, after = (
        " and ".join(
            f"{row['chips']:,} {row['chip']} ({row['way']}, quarter {row['order_quarter']})"
            for row in one["orders"]
            if row["chips"]
        )
        or "nothing"
        for one in (a, b)
    )
    return f"the orders stay: {after}" if before == after else f"order {after} instead of {before}"


def _moves(moved: Sequence[Json], offers: int) -> str:
    """How many prices changed, and the largest change of one that both have."""
    said = f"Prices of {len(moved)} of {offers} offers changed"
    known = [row for row in moved if row["change"] is not None]
    if not known:
        return f"{said}."
    row = max(known, key=lambda row: abs(math.log1p(row["change"])))
    one, other = (significant(row[f"price_usd.{end}"]) for end in SIDES)
    return (
        f"{said}, most {row['offer']} from ${one} to ${other} ({tenths(row['change'], sign=True)})."
    )


def _unlike(a: Json, b: Json) -> list[str]:
    """What else differs, so that prices alone do not explain the change."""
    found = []
    for what, key in (("plan", "plan"), ("quarters", "quarters"), ("price basis", "price_basis")):
        if a[key] != b[key]:
            found.append(f"{what}: {a[key]} and {b[key]}")
    costs = [(one["usd_undiscounted"], one["usd_per_million_tokens"]) for one in (a, b)]
    tokens = [usd / each * 1e6 for usd, each in costs if usd and each]
    if len(tokens) == 2 and not math.isclose(*tokens, rel_tol=ALIKE):
        ours, theirs = (f"{significant(one / 1e9)}B" for one in tokens)
        found.append(f"demand: {ours} and {theirs} tokens over the horizon")
    return [f"Not by prices alone: {text}." for text in found]
