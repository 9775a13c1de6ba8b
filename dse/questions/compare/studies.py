"""Two studies side by side: what changed in prices, what that moved, and whether they compare.
Several studies as one front: which study each point comes from, and what each study adds.

Notation: F_a and F_b are the fronts in the objectives (rows are designs, all minimised), each at
the prices of its own study. Where only prices differ, a design costs r times as much at the other
prices, r the ratio of its chip's prices: that is how a design of one front is judged on the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import document, frame, lines, of_rows
from dse.answer.labels import axis_title, label
from dse.answer.numbers import percent, priced, show, tenths
from dse.answer.sentences import Sources, listed
from dse.economics.prices import moved, price_pairs
from dse.errors import InputError
from dse.pareto import REFERENCE, Scale, additive_epsilon, hypervolume, non_dominated
from dse.problem.mix import held, loads_of
from dse.problem.words import DEPLOYMENT_KEY, SHAPE_KEY, short_deployment, short_shape
from dse.record import record
from dse.schema.workloads import DETAILS
from dse.study.definition import differences
from dse.study.folder import read_study

PROPORTIONAL = "usd_per_million"  # metrics that begin so are proportional to the price of the chip
TELLING = 5  # designs that are told of those that entered, and that left
SHOWN = 40  # points of a merged front on the page; merged.csv has all
SAME = 5e-4  # a share below which two costs are said to be the same
MOST = 4  # figures that are named
LOAD = ("weight", "prompt_tokens", "output_tokens", "serving", "backend", *DETAILS)
WORDS = {
    "digest": "a fingerprint of the hardware data: the same digest, the same figures",
    "hypervolume": "the share of objective space that a front beats, scaled by the reference "
    "front; reference point 1.1 on each objective",
}
Json = Mapping[str, Any]
Words = Callable[[Json], str]


@record
class Side:
    """One of the studies: study.json, and the items of front.json by design."""

    folder: Path
    name: str
    study: Json
    items: Mapping[str, Json]

    @property
    def metrics(self) -> list[str]:
        return [row["metric"] for row in self.study["objectives"]]

    @property
    def cost(self) -> str | None:
        """The price among the objectives."""
        return next((metric for metric in self.metrics if "usd" in metric), None)

    @property
    def F(self) -> np.ndarray:
        """(n, m) objectives of the items, all minimised."""
        signs = [1.0 if o["direction"] == "minimize" else -1.0 for o in self.study["objectives"]]
        rows = [[item["metrics"][name] for name in self.metrics] for item in self.items.values()]
        return np.array(signs) * np.array(rows, dtype=float)

    @property
    def scale(self) -> tuple[bool, ...]:
        """Which objectives are scaled by logarithm."""
        return tuple(row["log"] for row in self.study["objectives"])

    @property
    def prices(self) -> Sequence[Json]:
        """A row for each chip; none where the study did not write its prices down."""
        return (self.study.get("price") or {}).get("rows", ())

    def named(self, name: str) -> Json | None:
        """A chosen point: cheapest, fastest, ..."""
        return next((one for one in self.items.values() if name in one.get("names", ())), None)


def _words(sides: Sequence[Side]) -> tuple[Words, str]:
    """What a design is called beside others, with its shape where there are several and requests in
    flight where these are held: `h4096 L32 kv8 f14336 on 8 h100_sxm TP4 fp8/fp8 c64`; and what the
    letters mean."""
    shaped = len({_shape(item) for side in sides for item in side.items.values()}) > 1
    loaded = all(held(loads_of(side.study)) for side in sides)

    def words(item: Json) -> str:
        shape = f"{_shape(item)} on " if shaped else ""
        return f"{shape}{short_deployment(item['deployment'], loaded)}"

    return words, f"Designs: {f'{SHAPE_KEY}; ' * shaped}{DEPLOYMENT_KEY}."


def _shape(item: Json) -> str:
    model = item["model"]
    return short_shape(model) if "hidden_size" in model else str(model.get("name"))


def _sides(folders: Sequence[Path], names: Sequence[str]) -> list[Side]:
    """The studies of some folders. Raises InputError for other objectives or price bases than those
    of the first, StorageError for a study that is damaged."""
    sides = []
    for folder, name in zip(folders, names, strict=True):
        study, items = read_study(folder)
        side = Side(folder, name, study, {_design(item): item for item in items})
        sides.append(side)
        first = sides[0].study
        if study["objectives"] != first["objectives"]:
            message = f"{folders[0]} and {folder} have different objectives"
            raise InputError(message, accepted="two studies of the same objectives")
        bases = first["price_basis"], study["price_basis"]
        if bases[0] != bases[1]:
            raise InputError(
                f"{folders[0]} has prices on basis {bases[0]}, {folder} on {bases[1]}: they do not "
                "compare",
                accepted="two studies of one price basis",
            )
    return sides


def _design(item: Json) -> str:
    """Shape and deployment of a point, whatever its number: the same of the same design."""
    model = {key: value for key, value in item["model"].items() if key != "name"}
    return json.dumps([model, item["deployment"]], sort_keys=True)


@record
class Pair:
    """Studies A and B. `called` is said in place of the folders."""

    a: Side
    b: Side
    called: tuple[str, str]
    words: Words
    key: str

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    @cached_property
    def prices(self) -> list[dict[str, Any]]:
        return price_pairs(self.a.prices, self.b.prices)

    @cached_property
    def same_workload(self) -> bool:
        return same_workload(self.a.study, self.b.study)

    @cached_property
    def same_law(self) -> bool:
        return same_law(self.a.study, self.b.study)

    @cached_property
    def same_hardware(self) -> bool:
        """Whether no figure differs, and designs of both fronts have the same objectives on both,
        cost apart: fronts hold what the model says, in full precision. Taken for granted of other
        workloads or laws."""
        if changed_figures(self.a.study, self.b.study):
            return False
        metrics = [metric for metric in self.a.metrics if "usd" not in metric]
        if not self.same_workload or not self.same_law or not metrics:
            return True
        shared = [key for key in self.b.items if key in self.a.items]
        values = [
            [[side.items[key]["metrics"][metric] for metric in metrics] for key in shared]
            for side in self.sides
        ]
        return bool(np.allclose(values[0], values[1], rtol=1e-9, atol=0.0))

    @cached_property
    def ratios(self) -> dict[str, float] | None:
        """Price of each chip at B's prices over that at A's. None where more than prices differs,
        so that a design of one study cannot be judged by the prices of the other."""
        alike = self.same_workload and self.same_hardware and self.same_law
        costs = [metric for metric in self.a.metrics if "usd" in metric]
        if not alike or not all(name.startswith(PROPORTIONAL) for name in costs):
            return None
        return {row["chip"]: row["ratio"] for row in self.prices if row["ratio"]}

    @property
    def whole(self) -> int | None:
        """Which of two studies of one space, at the same prices, saw all of it; None where neither
        did."""
        if moved(self.prices) or self.a.study["fingerprint"] != self.b.study["fingerprint"]:
            return None
        return next((k for k, side in enumerate(self.sides) if _saw_all(side.study)), None)


def compare_studies(a: Path, b: Path, called: tuple[str, str] | None = None) -> Answer:
    """What changed from one study to the other. `called` is said in place of the folders.

    Both fronts are scaled by the enumerated front where one of the studies enumerated its space,
    and their prices are the same, else by the front of their union. `entered` and `left` are points
    of B and A that the other does not have.

    Raises InputError for studies of different objectives or price bases.
    """
    names = a.resolve().name, b.resolve().name
    if names[0] == names[1]:
        names = f"A ({a})", f"B ({b})"
    sides = _sides((a, b), names)
    pair = Pair(sides[0], sides[1], called or (str(a), str(b)), *_words(sides))
    first, second, whole = *pair.sides, pair.whole
    fronts = first.F, second.F
    union = np.concatenate(fronts)
    reference = union[non_dominated(union)] if whole is None else fronts[whole]
    scale = Scale.of(reference, first.scale)
    volumes = [hypervolume(front, scale) for front in fronts]
    ratio = volumes[1] / volumes[0] if volumes[0] > 0 else None
    entered, left = (
        sorted(item["point"] for key, item in one.items.items() if key not in other.items)
        for one, other in ((second, first), (first, second))
    )
    kept = _kept(pair)
    frames = [
        _chosen(pair),
        _by_chip(pair),
        _changed(pair, fronts, scale),
        _prices(pair),
        _comparable(pair),
    ]
    unlike = [
        f"{row['what']}: {row['note']}"
        for row in frames[-1].rows
        if not row["alike"] and row["what"] != "search"
    ]
    sentences = [_cheapest(pair)]
    if unlike:
        sentences.append(f"Not by prices alone: {'; '.join(unlike)}.")
    if kept is not None and kept["over"] > SAME:
        sentences.append(
            f"The cheapest design of {first.name} costs {priced(kept['metric'], kept['value'])} at "
            f"the prices of {second.name}, {kept['over']:.1%} more than the cheapest now."
        )
    volume = "" if ratio is None else f"; it has {ratio:.4%} of the hypervolume of {first.name}"
    sentences.append(
        f"{len(left):,} of {len(first.items):,} designs left the front and {len(entered):,} of now "
        f"{len(second.items):,} are new on it{volume}."
        if entered or left
        else f"The front holds the same {len(second.items):,} designs."
    )
    as_of = [(side.study.get("own_prices") or {}).get("as_of") for side in pair.sides]
    facts = {
        "a": pair.called[0],
        "b": pair.called[1],
        "names": {"a": first.name, "b": second.name},
        "title": second.study.get("title") or second.study["space"],
        "as_of": dict(zip("ab", as_of, strict=True)),
        "price_basis": second.study["price_basis"],
        "hypervolume_a": volumes[0],
        "hypervolume_b": volumes[1],
        "ratio": ratio,
        "epsilon": additive_epsilon(fronts[1], fronts[0], scale),
        "reference_point": [REFERENCE] * len(first.metrics),
        "reference_front": "union of both" if whole is None else f"all of {pair.called[whole]}",
        "true_hypervolume_share": None if whole is None else volumes[1 - whole] / volumes[whole],
        "front_a": len(first.items),
        "front_b": len(second.items),
        "entered": entered,
        "left": left,
        "kept": kept,
        "answer": sentences,
    }
    return Answer(
        question="compare",
        title=f"{facts['title']}: what changed",
        asked=f"{facts['title']}: from {pair.called[0]} to {pair.called[1]}",
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*_pictures(pair.sides, pair.words), *(one for one in frames if one.rows)),
        document=document(facts, frames),
        data=(_designs(pair),),
        words=WORDS,
    )


def _status(pair: Pair, key: str) -> str:
    here, there = key in pair.a.items, key in pair.b.items
    return "stays" if here and there else "left" if here else "entered"


def _chosen(pair: Pair) -> Table:
    """What became of each chosen point that both fronts have."""
    names = [name for item in pair.a.items.values() for name in item.get("names", ())]
    rows = []
    for name in names:
        ends = [item for side in pair.sides if (item := side.named(name))]
        if len(ends) < 2:
            continue
        same = _design(ends[0]) == _design(ends[1])
        for side, item in zip(pair.sides, ends, strict=True):
            rows.append({"which": name, **_row(pair.words, side, item), "same_design": same})
    keys = ("which", "study", "point", "chip", "same_design", *pair.a.metrics, "design")
    shown = ("which", "study", *pair.a.metrics, "design") if rows else ()
    caption = "The chosen designs, before and after"
    return of_rows("chosen", caption, rows, keys, pair.key, shown=shown)


def _row(words: Words, side: Side, item: Json) -> dict[str, Any]:
    """A point of a study under keys of the vocabulary."""
    return {
        "study": side.name,
        "point": item["point"],
        "chip": item["deployment"]["chip"],
        "design": words(item),
        **{name: item["metrics"][name] for name in side.metrics},
    }


def _designs(pair: Pair) -> Table:
    """Every design of both fronts, as it stands in each."""
    rows = [
        {"became": _status(pair, key), "names": " ".join(item["names"])}
        | _row(pair.words, side, item)
        for side in pair.sides
        for key, item in side.items.items()
    ]
    keys = ("became", "study", "point", "names", "chip", *pair.a.metrics, "design")
    return of_rows("designs", "The designs of both fronts", rows, keys)


def _by_chip(pair: Pair) -> Table:
    """How many designs of each chip were on the front, left it, entered, and are on it."""
    counts: dict[str, dict[str, int]] = {}
    keys = ("designs.before", "left", "entered", "designs.after")
    for key, item in {**pair.a.items, **pair.b.items}.items():
        count = counts.setdefault(item["deployment"]["chip"], dict.fromkeys(keys, 0))
        count["designs.before"] += key in pair.a.items
        count["designs.after"] += key in pair.b.items
        if (status := _status(pair, key)) != "stays":
            count[status] += 1
    rows = [{"chip": chip, **count} for chip, count in counts.items()]
    rows.sort(key=lambda row: (-row["designs.after"], -row["designs.before"], row["chip"]))
    return of_rows("chips", "Designs on the front, by chip", rows, ("chip", *keys))


def _changed(pair: Pair, fronts: Sequence[np.ndarray], scale: Scale) -> Table:
    """Of the designs that only one front has, those that are farthest from the other at its prices:
    the point there that beats them by most, and the margin in the scaled objective in which that is
    least (0 or more). A chip without a price there comes first."""
    metrics, found = pair.a.metrics, []
    costs = np.array(["usd" in name for name in metrics])
    elsewhere = [f"{name}.elsewhere" for name in metrics if "usd" in name]
    unpriced = {row["chip"] for row in pair.prices if row["ratio"] is None}
    for status, k, power in (("entered", 1, -1.0), ("left", 0, 1.0)):
        side, other = pair.sides[k], pair.sides[1 - k]
        there, points = scale(fronts[1 - k]), [item["point"] for item in other.items.values()]
        rows: list[dict[str, Any]] = []
        for i, (key, item) in enumerate(side.items.items()):
            if key in other.items:
                continue
            row = {"became": status, **_row(pair.words, side, item), "margin": None}
            row["reason"] = f"not compared with {other.name}"
            if row["chip"] in unpriced:
                row["reason"] = f"no price in {other.name}"
            elif (ratio := (pair.ratios or {}).get(row["chip"])) is not None:
                value = np.where(costs, fronts[k][i] * ratio**power, fronts[k][i])
                margins = (scale(value[None]) - there).min(axis=1)
                best = int(np.argmax(margins))
                row |= dict(zip(elsewhere, value[costs].tolist(), strict=True))
                row["reason"] = f"no gain over a design of {other.name}, or not found"
                if margins[best] >= 0.0:
                    row |= {"beaten_by": points[best], "margin": float(margins[best])}
                    row["reason"] = f"beaten by point {points[best]} of {other.name}"
            rows.append(row)
        rows.sort(key=lambda row: (row["chip"] not in unpriced, -(row["margin"] or 0.0)))
        found += rows[:TELLING]
    keys = ("became", "study", "point", "chip", *metrics, *elsewhere, "beaten_by", "margin")
    shown = ("became", "point", *metrics, "reason", "design") if found else ()
    caption = "Designs that only one front has"
    return of_rows("changed", caption, found, (*keys, "reason", "design"), shown=shown)


def _prices(pair: Pair) -> Table:
    """The prices of both sides; none where no price, date or source differs."""
    sources = Sources()
    rows = [
        {
            "chip": row["chip"],
            "usd_per_chip_hour.before": row["a"],
            "usd_per_chip_hour.after": row["b"],
            "change": row["ratio"] and row["ratio"] - 1.0,
            "date.before": row["date_a"],
            "date.after": row["date_b"],
            "source": sources(
                *(text for side in "ab" for text in (row[f"source_{side}"] or "").split("; "))
            ),
        }
        for row in pair.prices
    ]
    same = all(r["date_a"] == r["date_b"] and r["source_a"] == r["source_b"] for r in pair.prices)
    rows = [] if same and not moved(pair.prices) else rows
    caption = f"Prices, USD per chip-hour ({pair.b.study['price_basis']})"
    keys = ("chip", "usd_per_chip_hour.before", "usd_per_chip_hour.after", "change")
    keys = (*keys, "date.before", "date.after", "source")
    return of_rows("prices", caption, rows, keys, *sources)


def _kept(pair: Pair) -> dict[str, Any] | None:
    """What A's cheapest design costs at B's prices, and how much more than B's cheapest that is."""
    metric, (one, other) = pair.a.cost, (side.named("cheapest") for side in pair.sides)
    ratio = None if one is None else (pair.ratios or {}).get(one["deployment"]["chip"])
    if metric is None or one is None or other is None or ratio is None:
        return None
    cost = one["metrics"][metric] * ratio
    return {"metric": metric, "value": cost, "over": cost / other["metrics"][metric] - 1.0}


def _cheapest(pair: Pair) -> str:
    """What became of the cheapest design, and how many prices changed."""
    start = f"From {pair.a.name} to {pair.b.name}"
    chips, changed = len(pair.prices), len(moved(pair.prices))
    counted = f"prices of {changed} of {chips} chip{'s' * (chips > 1)} changed"
    if not chips:
        counted = "no prices were written down"
    names = [n for item in pair.a.items.values() for n in item.get("names", ()) if pair.b.named(n)]
    name = "cheapest" if "cheapest" in names else next(iter(names), None)
    if name is None:
        return f"{start}, {counted}."
    before, after = (one for side in pair.sides if (one := side.named(name)))
    chip, now = (item["deployment"]["chip"] for item in (before, after))
    moves = f"moves from {chip} to {now}" if chip != now else f"stays on {now}, as another design"
    if _design(before) == _design(after):
        moves = f"stays {pair.words(after)}"
    if (cost := pair.a.cost) is not None:
        was, new = (item["metrics"][cost] for item in (before, after))
        paid = priced(cost, new) if cost.startswith("usd") else show(cost, new)
        if abs(new / was - 1.0) < SAME:
            moves += f", at the same {paid}"
        else:
            word = "dearer" if new > was else "cheaper"
            much = tenths(abs(new / was - 1.0))
            moves += f", {much} {word} ({paid}, before {show(cost, was)})"
    return f"{start}, the {name} design {moves}; {counted}."


def same_workload(a: Json, b: Json, *, software: bool = True) -> bool:
    """Whether the workloads ask the same, whatever they are called and, unless `software`, whatever
    serves them."""
    keys = [key for key in LOAD if software or key != "backend"]
    one, other = ([[load.get(key) for key in keys] for load in loads_of(s)] for s in (a, b))
    return one == other


def same_law(a: Json, b: Json) -> bool:
    """Whether one quality law predicts the loss, from as much text."""

    def law(study: Json) -> tuple[Any, ...]:
        runs = study.get("loss_runs")
        digest = None if runs is None else runs["digest"]
        return study.get("quality_law"), digest, study.get("unique_tokens")

    return law(a) == law(b)


def changed_figures(a: Json, b: Json) -> list[str]:
    """Figures of chips and sources of kernel laws that both studies used and that differ."""
    one, other = ({}, {})
    for found, study in ((one, a), (other, b)):
        for row in study.get("sources") or ():
            name, _, text = str(row.get("figure")).partition(":")
            found[name] = text or str(row.get("source"))
    return [name for name, said in one.items() if other.get(name, said) != said]


def _comparable(pair: Pair) -> Table:
    """Everything that two answers must share to differ by price alone."""
    a, b = pair.a.study, pair.b.study
    same_space, space = a["fingerprint"] == b["fingerprint"], "the same space"
    if not same_space and (prices := _prices_alone(pair)):
        same_space, space = True, f"the same space, but for {prices}"
    elif not same_space:
        said = differences(a.get("definition"), b.get("definition") or {})
        space = f"they searched different spaces{f': {said}' if said else ''}"
    figures = changed_figures(a, b)
    own = set(a.get("efficiency_files") or ()) ^ set(b.get("efficiency_files") or ())
    hardware = "the same figures of chips and systems and the same kernel laws"
    if figures:
        more = f" and {len(figures) - MOST} more" if len(figures) > MOST else ""
        hardware = f"figures that differ: {', '.join(figures[:MOST])}{more}"
    elif own:
        hardware = f"kernel laws of one's own in one of them: {', '.join(sorted(own))}"
    elif not pair.same_hardware:
        hardware = (
            "designs of both fronts perform otherwise, though no figure differs: the model of one "
            "is older"
        )
    elif a["data_digest"] != b["data_digest"]:
        hardware += "; the digests differ by prices, or by chips that neither uses"
    digests = ", ".join(f"{side.name} {side.study['data_digest'][:12]}" for side in pair.sides)
    load = "the same workload" if pair.same_workload else "they serve different workloads"
    laws = " and ".join(dict.fromkeys(str(study.get("quality_law")) for study in (a, b)))
    saw = [_saw_all(study) for study in (a, b)]
    search = f"both saw every point of their space: {a['size']:,} and {b['size']:,}"
    if not all(saw):
        parts = [
            f"{side.name} saw {'every point' if all_ else _seen(side.study)}"
            for side, all_ in zip(pair.sides, saw, strict=True)
        ]
        parts.append("what is on one front alone may only not have been looked at by the other")
        search = "; ".join(parts)
    rows = (
        ("space", same_space, space),
        ("workload", pair.same_workload, load),
        ("hardware data", pair.same_hardware, f"{hardware} (data digest: {digests})"),
        ("quality law", pair.same_law, laws),
        ("search", all(saw), search),
    )
    what, alike, note = zip(*rows, strict=True)
    columns = {"what": what, "alike": alike, "note": note}
    return frame("comparable", "What the two share", columns, on_console=False)


def _prices_alone(pair: Pair) -> str:
    """What differs between two spaces where that is costs of owning, or chips that only one of the
    studies has a price of; empty where anything else differs."""
    defined = [dict(side.study.get("definition") or {}) for side in pair.sides]
    chips = [set(map(str, one.pop("axis chip", ()))) for one in defined]
    costs = [
        {line: one.pop(line) for line in list(one) if line.startswith("cost ")} for one in defined
    ]
    unpriced = [row["chip"] for row in pair.prices if row["ratio"] is None]
    if not defined[0] or defined[0] != defined[1] or chips[0] ^ chips[1] != set(unpriced):
        return ""
    once = [f"chips with a price on one side only: {', '.join(unpriced)}"] if unpriced else []
    return "; ".join([*once, *filter(None, [differences(*costs)])])


def _saw_all(study: Json) -> bool:
    """Whether a front is that of the whole space: searched, or enumerated afterwards and added."""
    proof = study.get("proof") or {}
    return study["true_hypervolume_share"] == 1.0 or ("enumerated" in proof and "added" in proof)


def _seen(study: Json) -> str:
    size = study.get("size")
    of = f" of {size:,} points ({percent(study['evaluations'] / size)})" if size else " points"
    return f"{study['evaluations']:,}{of} by {study['engine']}"


def _pictures(sides: Sequence[Side], words: Words) -> list[Figure]:
    """The cost over each of two other objectives: of every front the designs that no other of it
    beats in both."""
    first = sides[0]
    y = first.cost or first.metrics[0]
    made = []
    for x in [metric for metric in first.metrics if metric != y][:2]:
        columns = [first.metrics.index(x), first.metrics.index(y)]
        rows = []
        for side in sides:
            items = list(side.items.values())
            best = [items[i] for i in np.flatnonzero(non_dominated(side.F[:, columns]))]
            best.sort(key=lambda item: item["metrics"][x])
            rows += [_row(words, side, item) for item in best]
        table = of_rows(f"best-{x}", "", rows, f"study point chip design {x} {y}")
        title = f"{label(y).text} against {label(x).text}"
        shows = "Of each front the designs that no other of it beats in these two."
        across = "" if first.scale[first.metrics.index(x)] else axis_title(x)
        hover = ("chip", "point", "design")
        drawn = lines(f"front-{x}", title, table, x, y, "study", shows, hover=hover, across=across)
        made.append(drawn)
    return made


def merged_studies(folders: Sequence[Path]) -> Answer:
    """Several studies as one front.

    `front` are the points of any study that no point of another, or of its own, beats: of equal
    ones that of the first study. `share` is a study's part of the hypervolume of the merged front,
    `adds` what that would lose without the study, as a share of it.

    Raises InputError for studies that cannot stand on one front: of other objectives, price bases,
    workloads or quality laws.
    """
    names = [folder.resolve().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    sides = _sides(folders, names)
    first = sides[0]
    for side in sides[1:]:
        _refuse_unlike(first, side)
    (words, key), metrics = _words(sides), first.metrics
    union = np.concatenate([side.F for side in sides])
    owner = np.repeat(np.arange(len(sides)), [len(side.items) for side in sides])
    kept = np.flatnonzero(non_dominated(union))
    scale = Scale.of(union[kept], first.scale)
    whole = hypervolume(union[kept], scale)
    items = [item for side in sides for item in side.items.values()]
    points = [
        {**_row(words, sides[owner[i]], items[i]), "command": items[i].get("command")} for i in kept
    ]
    points.sort(key=lambda row: row[first.cost or metrics[0]])
    keys = ("study", "point", "chip", *metrics, "design", "command")
    front = of_rows("front", "The merged front", points, keys, key, on_console=False)
    best = []
    for row in first.study["objectives"]:
        choose = min if row["direction"] == "minimize" else max
        point = choose(points, key=lambda one, metric=row["metric"]: one[metric])
        best.append({"best_in": label(row["metric"]).text, **point})
    volumes = [hypervolume(side.F, scale) for side in sides]
    without = [
        hypervolume(union[owner != k], scale) if (owner != k).any() else 0.0
        for k in range(len(sides))
    ]
    counts = np.bincount(owner[kept], minlength=len(sides)).tolist()
    studies = frame(
        "studies",
        "What each study adds",
        {
            "study": names,
            "chips_of": [
                ", ".join(sorted({item["deployment"]["chip"] for item in side.items.values()}))
                for side in sides
            ],
            "designs": [len(side.items) for side in sides],
            "on_front": counts,
            "hypervolume": volumes,
            "share": [volume / whole if whole > 0.0 else math.nan for volume in volumes],
            "adds": [1.0 - less / whole if whole > 0.0 else math.nan for less in without],
        },
        shown=("study", "chips_of", "designs", "on_front", "share", "adds"),
    )
    counted = ", ".join(f"{n:,} from {name}" for n, name in zip(counts, names, strict=True))
    sentences = [f"The merged front has {len(points):,} points: {counted}."]
    if idle := [name for n, name in zip(counts, names, strict=True) if not n]:
        sentences.append(f"Nothing of {listed(idle)} is on it: other studies beat every point.")
    if unlike := _not_alike(sides):
        sentences.append(f"What else differs: {'; '.join(unlike)}.")
    frames = [
        studies,
        of_rows("chosen", "The ends of the merged front", best, ("best_in", *keys[:-1])),
        front,
    ]
    spread = np.unique(np.linspace(0, len(points) - 1, min(len(points), SHOWN)).round().astype(int))
    few = replace(
        front, rows=[front.rows[i] for i in spread], shown=(*keys[:2], *metrics, keys[-2])
    )
    facts = {
        "title": f"{listed(names)}: one front",
        "objectives": first.study["objectives"],
        "price_basis": first.study["price_basis"],
        "hypervolume": whole,
        "reference_point": [REFERENCE] * len(metrics),
        "folders": [str(folder) for folder in folders],
        "answer": sentences,
    }
    return Answer(
        question="compare",
        title=facts["title"],
        headline=sentences[0],
        sentences=sentences[1:],
        asked=f"{len(sides)} studies; prices: {facts['price_basis']}",
        blocks=(*frames[:2], *_pictures(sides, words), few),
        document=document(facts, frames),
        data=(replace(front, name="merged"),),
        words=WORDS,
    )


def _refuse_unlike(one: Side, other: Side) -> None:
    """Raises InputError where a point of one could not be compared with one of the other."""
    a, b = one.folder, other.folder
    if not same_workload(one.study, other.study, software=False):
        message = f"{a} and {b} serve different workloads"
        raise InputError(message, accepted="studies of one workload")
    of_loss = "predicted_loss" in one.metrics
    models = [dict(side.study.get("definition") or {}).get("model") for side in (one, other)]
    if models[0] != models[1] and not of_loss:
        message = f"{a} serves {models[0] or 'searched shapes'}, {b} {models[1] or 'others'}"
        accepted = "studies of one model, or with predicted_loss among the objectives"
        raise InputError(message, accepted=accepted)
    if of_loss and not same_law(one.study, other.study):
        message = f"{a} and {b} predict the loss by different laws"
        raise InputError(message, accepted="studies of one quality law")


def _not_alike(sides: Sequence[Side]) -> list[str]:
    """What else differs from the first study: the points differ by that, too."""
    first, said = sides[0], []
    limits = [{row["text"] for row in side.study["constraints"]} for side in sides]
    for side, own in zip(sides[1:], limits[1:], strict=True):
        pair = f"{first.name} and {side.name}"
        if own != limits[0]:
            said.append(f"limits of {pair} ({', '.join(sorted(own ^ limits[0]))})")
        changed = moved(price_pairs(first.prices, side.prices))
        if chips := [row["chip"] for row in changed if row["ratio"]]:
            said.append(f"prices of {', '.join(chips)} of {pair}")
        if figures := changed_figures(first.study, side.study):
            said.append(f"figures of {pair} ({', '.join(figures[:MOST])})")
    return said
