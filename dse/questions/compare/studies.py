"""Two studies side by side: what changed in prices, what that moved, and whether they compare.
Several studies as one front: which study each point comes from, and what each study adds.

Notation: F_a and F_b are the fronts in the objectives (rows are designs, all minimised), each at
the prices of its own study. Where only prices differ, a design costs r times as much at the other
prices, r the ratio of its chip's prices: that is how a design of one front is judged on the other.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import document, frame, lines, of_rows
from dse.answer.numbers import axis_title, label, percent, priced, show, tenths, times
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
Row = dict[str, Any]


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
    def log(self) -> tuple[bool, ...]:
        """Which objectives are scaled by logarithm."""
        return tuple(row["log"] for row in self.study["objectives"])

    @property
    def prices(self) -> Sequence[Json]:
        """A row for each chip; none where the study did not write its prices down."""
        return (self.study.get("price") or {}).get("rows", ())

    def named(self, name: str) -> Json | None:
        """A chosen point: cheapest, fastest, ..."""
        return next((one for one in self.items.values() if name in one.get("names", ())), None)

    def rows(self, words: Words, keys: Sequence[str] | None = None) -> list[Row]:
        """Points of the front, those of `keys` or all, under keys of the vocabulary."""
        items = [self.items[key] for key in (self.items if keys is None else keys)]
        return [
            {
                "study": self.name,
                "point": item["point"],
                "names": " ".join(item.get("names", ())),
                "chip": item["deployment"]["chip"],
                "design": words(item),
                "command": item.get("command"),
                **{name: item["metrics"][name] for name in self.metrics},
            }
            for item in items
        ]


def sides_of(folders: Sequence[Path]) -> list[Side]:
    """The studies of some folders. Raises InputError for other objectives or price bases than those
    of the first, StorageError for a study that is damaged."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{chr(ord('A') + k)} ({folder})" for k, folder in enumerate(folders)]
    sides: list[Side] = []
    for folder, name in zip(folders, names, strict=True):
        study, items = read_study(folder)
        sides.append(Side(folder, name, study, {_design(item): item for item in items}))
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


def _words(sides: Sequence[Side]) -> tuple[Words, str]:
    """What a design is called beside others, with its shape where there are several and requests in
    flight where these are held: `h4096 L32 kv8 f14336 on 8 h100_sxm TP4 fp8/fp8 c64`; and what the
    letters mean."""

    def shape(item: Json) -> str:
        model = item["model"]
        return short_shape(model) if "hidden_size" in model else str(model.get("name"))

    shaped = len({shape(item) for side in sides for item in side.items.values()}) > 1
    loaded = all(held(loads_of(side.study)) for side in sides)

    def words(item: Json) -> str:
        deployed = short_deployment(item["deployment"], loaded)
        return f"{shape(item)} on {deployed}" if shaped else deployed

    return words, f"Designs: {f'{SHAPE_KEY}; ' * shaped}{DEPLOYMENT_KEY}."


def _pictures(sides: Sequence[Side], words: Words) -> list[Figure]:
    """The cost over each of two other objectives: of every front the designs that no other of it
    beats in both."""
    first = sides[0]
    y = first.cost or first.metrics[0]
    made = []
    for x in [metric for metric in first.metrics if metric != y][:2]:
        columns = [first.metrics.index(x), first.metrics.index(y)]
        rows: list[Row] = []
        for side in sides:
            keys = np.array(list(side.items))[non_dominated(side.F[:, columns])]
            rows += sorted(side.rows(words, keys.tolist()), key=lambda row, x=x: row[x])
        table = of_rows(f"best-{x}", "", rows, f"study point chip design {x} {y}")
        title = f"{label(y).text} against {label(x).text}"
        shows = "Of each front the designs that no other of it beats in these two."
        across = "" if first.log[columns[0]] else axis_title(x)
        hover = ("chip", "point", "design")
        drawn = lines(f"front-{x}", title, table, x, y, "study", shows, hover=hover, across=across)
        made.append(drawn)
    return made


def compare_studies(a: Path, b: Path, called: tuple[str, str] | None = None) -> Answer:
    """What changed from one study to the other. `called` is said in place of the folders.

    Both fronts are scaled by the enumerated front where one of the studies enumerated its space,
    and their prices are the same, else by the front of their union. `entered` and `left` are points
    of B and A that the other does not have.

    Raises InputError for studies of different objectives or price bases.
    """
    first, second = sides = sides_of((a, b))
    (words, key), metrics = _words(sides), first.metrics
    called = called or (str(a), str(b))
    prices = price_pairs(first.prices, second.prices)
    shared = _shared(first, second, prices)
    fronts = first.F, second.F
    whole = None  # which of the two saw the whole of one space, at the same prices
    if not moved(prices) and first.study["fingerprint"] == second.study["fingerprint"]:
        whole = next((k for k, side in enumerate(sides) if _saw_all(side.study)), None)
    union = np.concatenate(fronts)
    reference = union[non_dominated(union)] if whole is None else fronts[whole]
    scale = Scale.of(reference, first.log)
    volumes = [hypervolume(front, scale) for front in fronts]
    ratio = volumes[1] / volumes[0] if volumes[0] > 0 else None
    # Price of each chip at B's prices over that at A's, where nothing but prices differs.
    costs = [metric for metric in metrics if "usd" in metric]
    proportional = all(metric.startswith(PROPORTIONAL) for metric in costs)
    alike = {row["what"]: row["alike"] for row in shared}
    ratios: dict[str, float] = {}
    if proportional and all(alike[what] for what in ("workload", "hardware data", "quality law")):
        ratios = {row["chip"]: row["ratio"] for row in prices if row["ratio"]}

    rows: list[Row] = []
    for side, other, only, power in ((first, second, "left", 1), (second, first, "entered", -1)):
        for design, row in zip(side.items, side.rows(words), strict=True):
            row["became"] = "stays" if design in other.items else only
            if only == row["became"] and row["chip"] in ratios:
                there = ratios[row["chip"]] ** power
                row |= {f"{metric}.elsewhere": row[metric] * there for metric in costs}
            rows.append(row)
    keys = ("became", "study", "point", "names", "chip", *metrics)
    keys = (*keys, *(f"{metric}.elsewhere" for metric in costs), "design")
    named = {
        name: (start, end)
        for start in first.items.values()
        for name in start.get("names", ())
        if (end := second.named(name))
    }
    chosen = [
        {"which": name, **row, "same_design": _design(start) == _design(end)}
        for name, (start, end) in named.items()
        for row in (*first.rows(words, [_design(start)]), *second.rows(words, [_design(end)]))
    ]
    of = {
        "designs.before": ("study", first.name),
        **{status: ("became", status) for status in ("left", "entered")},
        "designs.after": ("study", second.name),
    }
    counts = {
        column: Counter(row["chip"] for row in rows if row[key] == value)
        for column, (key, value) in of.items()
    }
    before, left, entered, after = counts.values()
    chips = sorted(before | after, key=lambda c: (-after[c], -before[c], c))
    frames = [
        of_rows(
            "chosen",
            "The chosen designs, before and after",
            chosen,
            ("which", "study", "point", "chip", "same_design", *metrics, "design"),
            key,
            shown=("which", "study", *metrics, "design") if chosen else (),
        ),
        frame(
            "chips",
            "Designs on the front, by chip",
            {"chip": chips}
            | {column: [count[chip] for chip in chips] for column, count in counts.items()},
        ),
        _prices(prices, second.study["price_basis"]),
        of_rows("comparable", "What the two share", shared, "what alike note", on_console=False),
    ]
    designs = of_rows("designs", "The designs of both fronts", rows, keys)
    kept = None  # what A's cheapest design costs at B's prices, and how much more than B's that is
    one, now = named.get("cheapest", (None, None))
    if first.cost and one and now and one["deployment"]["chip"] in ratios:
        cost = one["metrics"][first.cost] * ratios[one["deployment"]["chip"]]
        over = cost / now["metrics"][first.cost] - 1.0
        kept = {"metric": first.cost, "value": cost, "over": over}
    sentences = [_headline(sides, words, prices, named)]
    unlike = [row for row in shared if not row["alike"] and row["what"] != "search"]
    if unlike:
        said = "; ".join(f"{row['what']}: {row['note']}" for row in unlike)
        sentences.append(f"Not by prices alone: {said}.")
    if kept is not None and kept["over"] > SAME:
        sentences.append(
            f"The cheapest design of {first.name} costs {priced(kept['metric'], kept['value'])} at "
            f"the prices of {second.name}, {tenths(kept['over'])} more than the cheapest now."
        )
    if left or entered:
        volume = "" if ratio is None else f"; it has {times(ratio)} the hypervolume"
        sentences.append(
            f"{left.total():,} of {len(first.items):,} designs left the front and "
            f"{entered.total():,} of now {len(second.items):,} are new on it{volume}."
        )
    else:
        sentences.append(f"The front holds the same {len(second.items):,} designs.")
    as_of = [(side.study.get("own_prices") or {}).get("as_of") for side in sides]
    title = second.study.get("title") or second.study["space"]
    facts = {
        "a": called[0],
        "b": called[1],
        "names": {"a": first.name, "b": second.name},
        "title": title,
        "as_of": dict(zip("ab", as_of, strict=True)),
        "price_basis": second.study["price_basis"],
        "hypervolume_a": volumes[0],
        "hypervolume_b": volumes[1],
        "ratio": ratio,
        "epsilon": additive_epsilon(fronts[1], fronts[0], scale),
        "reference_point": [REFERENCE] * len(metrics),
        "reference_front": "union of both" if whole is None else f"all of {called[whole]}",
        "true_hypervolume_share": None if whole is None else volumes[1 - whole] / volumes[whole],
        "front_a": len(first.items),
        "front_b": len(second.items),
        **{
            status: sorted(row["point"] for row in rows if row["became"] == status)
            for status in ("entered", "left")
        },
        "kept": kept,
        "answer": sentences,
    }
    return Answer(
        question="compare",
        title=f"{title}: what changed",
        asked=f"{title}: from {called[0]} to {called[1]}",
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=(*_pictures(sides, words), *(one for one in frames if one.rows)),
        document=document(facts, [*frames, designs]),
        data=(designs,),
        words=WORDS,
    )


def _prices(pairs: Sequence[Json], basis: str) -> Table:
    """The prices of both sides; none where no price, date or source differs."""
    sources = Sources()
    same = all(
        row["date_a"] == row["date_b"] and row["source_a"] == row["source_b"] for row in pairs
    )
    rows = []
    for row in [] if same and not moved(pairs) else pairs:
        said = [text for side in "ab" for text in (row[f"source_{side}"] or "").split("; ")]
        rows.append(
            {**row, "change": row["ratio"] and row["ratio"] - 1.0, "source": sources(*said)}
        )
    keys = ("chip", "usd_per_chip_hour.before=a", "usd_per_chip_hour.after=b", "change")
    keys = (*keys, "date.before=date_a", "date.after=date_b", "source")
    return of_rows("prices", f"Prices, USD per chip-hour ({basis})", rows, keys, *sources)


def _headline(sides: Sequence[Side], words: Words, prices: Sequence[Json], named: Json) -> str:
    """What became of the cheapest design (without one on both sides, of the first that is `named`),
    and how many prices changed."""
    first, second = sides
    counted = (
        f"prices of {len(moved(prices))} of {len(prices)} chip{'s' * (len(prices) > 1)} changed"
    )
    if not prices:
        counted = "no prices were written down"
    start, cost = f"From {first.name} to {second.name}", first.cost
    name = "cheapest" if "cheapest" in named else next(iter(named), None)
    if name is None:
        return f"{start}, {counted}."
    before, after = named[name]
    chip, now = (item["deployment"]["chip"] for item in (before, after))
    moves = f"moves from {chip} to {now}" if chip != now else f"stays on {now}, as another design"
    if _design(before) == _design(after):
        moves = f"stays {words(after)}"
    if cost is not None:
        was, new = (item["metrics"][cost] for item in (before, after))
        change = new / was - 1.0
        paid = priced(cost, new) if cost.startswith("usd") else show(cost, new)
        if abs(change) < SAME:
            moves += f", at the same {paid}"
        else:
            word = "dearer" if change > 0.0 else "cheaper"
            moves += f", {tenths(abs(change))} {word} ({paid}, before {show(cost, was)})"
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
        digest = (study.get("loss_runs") or {}).get("digest")
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


def _shared(first: Side, second: Side, prices: Sequence[Json]) -> list[Row]:
    """Everything that two answers must share to differ by price alone: `what`, whether it is
    `alike`, and a `note`."""
    a, b = first.study, second.study
    load, law = same_workload(a, b), same_law(a, b)
    same_space, space = a["fingerprint"] == b["fingerprint"], "the same space"
    if not same_space and (but := _prices_alone(first, second, prices)):
        same_space, space = True, f"the same space, but for {but}"
    elif not same_space:
        said = differences(a.get("definition"), b.get("definition") or {})
        space = f"they searched different spaces{f': {said}' if said else ''}"
    figures = changed_figures(a, b)
    own = set(a.get("efficiency_files") or ()) ^ set(b.get("efficiency_files") or ())
    hardware, same_hardware = "the same figures of chips and systems, the same kernel laws", True
    if figures:
        more = f" and {len(figures) - MOST} more" if len(figures) > MOST else ""
        same_hardware = False
        hardware = f"figures that differ: {', '.join(figures[:MOST])}{more}"
    elif own:
        same_hardware = not (load and law) or _perform_alike(first, second)
        hardware = f"kernel laws of one's own in one of them: {', '.join(sorted(own))}"
    elif load and law and not _perform_alike(first, second):
        same_hardware = False
        hardware = (
            "designs of both fronts perform otherwise, though no figure differs: the model of one "
            "is older"
        )
    digests = ", ".join(f"{side.name} {side.study['data_digest'][:12]}" for side in (first, second))
    laws = " and ".join(dict.fromkeys(str(study.get("quality_law")) for study in (a, b)))
    saw = [_saw_all(study) for study in (a, b)]
    search = f"both saw every point of their space: {a['size']:,} and {b['size']:,}"
    if not all(saw):
        seen = [f"{side.name} saw {_seen(side.study)}" for side in (first, second)]
        search = f"{'; '.join(seen)}; the other may only not have looked at what one has alone"
    rows = (
        ("space", same_space, space),
        ("workload", load, "the same workload" if load else "they serve different workloads"),
        ("hardware data", same_hardware, f"{hardware} (data digest: {digests})"),
        ("quality law", law, laws),
        ("search", all(saw), search),
    )
    return [{"what": what, "alike": alike, "note": note} for what, alike, note in rows]


def _perform_alike(first: Side, second: Side) -> bool:
    """Whether designs of both fronts have the same objectives on both, cost apart: fronts hold what
    the model says, in full precision."""
    metrics = [metric for metric in first.metrics if "usd" not in metric]
    both = [key for key in second.items if key in first.items]
    one, other = (
        [[side.items[key]["metrics"][metric] for metric in metrics] for key in both]
        for side in (first, second)
    )
    return bool(np.allclose(one, other, rtol=1e-9, atol=0.0))


def _prices_alone(first: Side, second: Side, prices: Sequence[Json]) -> str:
    """What differs between two spaces where that is costs of owning, or chips that only one of the
    studies has a price of; empty where anything else differs."""
    defined = [dict(side.study.get("definition") or {}) for side in (first, second)]
    chips = [set(map(str, one.pop("axis chip", ()))) for one in defined]
    costs = [
        {line: one.pop(line) for line in list(one) if line.startswith("cost ")} for one in defined
    ]
    unpriced = [row["chip"] for row in prices if row["ratio"] is None]
    if not defined[0] or defined[0] != defined[1] or chips[0] ^ chips[1] != set(unpriced):
        return ""
    once = [f"chips with a price on one side only: {', '.join(unpriced)}"] if unpriced else []
    return "; ".join([*once, *filter(None, [differences(*costs)])])


def _saw_all(study: Json) -> bool:
    """Whether a front is that of the whole space: searched, or enumerated afterwards and added."""
    proof = study.get("proof") or {}
    return study["true_hypervolume_share"] == 1.0 or ("enumerated" in proof and "added" in proof)


def _seen(study: Json) -> str:
    if _saw_all(study):
        return "every point"
    size = study.get("size")
    of = f" of {size:,} points ({percent(study['evaluations'] / size)})" if size else " points"
    return f"{study['evaluations']:,}{of} by {study['engine']}"


def merged_studies(folders: Sequence[Path]) -> Answer:
    """Several studies as one front.

    `front` are the points of any study that no point of another, or of its own, beats: of equal
    ones that of the first study. `share` is a study's part of the hypervolume of the merged front,
    `adds` what that would lose without the study, as a share of it.

    Raises InputError for studies that cannot stand on one front: of other objectives, price bases,
    workloads or quality laws.
    """
    sides = sides_of(folders)
    first, names = sides[0], [side.name for side in sides]
    for side in sides[1:]:
        _refuse_unlike(first, side)
    (words, key), metrics = _words(sides), first.metrics
    union = np.concatenate([side.F for side in sides])
    owner = np.repeat(np.arange(len(sides)), [len(side.items) for side in sides])
    kept = np.flatnonzero(non_dominated(union))
    counts = np.bincount(owner[kept], minlength=len(sides)).tolist()
    scale = Scale.of(union[kept], first.log)
    whole = hypervolume(union[kept], scale)
    rows = [row for side in sides for row in side.rows(words)]
    points = sorted((rows[i] for i in kept), key=lambda row: row[first.cost or metrics[0]])
    best = []
    for row in first.study["objectives"]:
        choose = min if row["direction"] == "minimize" else max
        point = choose(points, key=lambda one, metric=row["metric"]: one[metric])
        best.append({"best_in": label(row["metric"]).text, **point})
    volumes = np.array([hypervolume(side.F, scale) for side in sides])
    without = [
        hypervolume(union[owner != k], scale) if (owner != k).any() else 0.0
        for k in range(len(sides))
    ]
    keys = ("study", "point", "chip", *metrics, "design")
    frames = [
        frame(
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
                "share": volumes / whole if whole > 0.0 else math.nan,
                "adds": 1.0 - np.array(without) / whole if whole > 0.0 else math.nan,
            },
            shown=("study", "chips_of", "designs", "on_front", "share", "adds"),
        ),
        of_rows("chosen", "The ends of the merged front", best, ("best_in", *keys)),
        of_rows(
            "front",
            "The merged front",
            points,
            (*keys, "command"),
            key,
            shown=keys,
            on_console=False,
        ),
    ]
    counted = ", ".join(f"{n:,} from {name}" for n, name in zip(counts, names, strict=True))
    sentences = [f"The merged front has {len(points):,} points: {counted}."]
    if idle := [name for n, name in zip(counts, names, strict=True) if not n]:
        sentences.append(f"Nothing of {listed(idle)} is on it: other studies beat every point.")
    if unlike := [text for side in sides[1:] for text in _not_alike(first, side)]:
        sentences.append(f"What else differs: {'; '.join(unlike)}.")
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
        blocks=(*frames[:2], *_pictures(sides, words), frames[2]),
        document=document(facts, frames),
        data=(replace(frames[2], name="merged"),),
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


def _not_alike(first: Side, side: Side) -> list[str]:
    """What else differs from the first study: the points differ by that, too."""
    said, pair = [], f"{first.name} and {side.name}"
    one, other = ({row["text"] for row in of.study["constraints"]} for of in (first, side))
    if one != other:
        said.append(f"limits of {pair} ({', '.join(sorted(one ^ other))})")
    changed = moved(price_pairs(first.prices, side.prices))
    if chips := [row["chip"] for row in changed if row["ratio"]]:
        said.append(f"prices of {', '.join(chips)} of {pair}")
    if figures := changed_figures(first.study, side.study):
        said.append(f"figures of {pair} ({', '.join(figures[:MOST])})")
    return said
