"""Two studies side by side: what changed in prices, what that moved, and whether they compare.

Notation: F_a and F_b are the fronts in the objectives (rows are designs, all minimised), each at
the prices of its own study. Where only prices differ, a design costs r times as much at the other
prices, r the ratio of its chip's prices: that is how a design of one front is judged on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.numbers import percent
from dse.errors import InputError
from dse.pareto import REFERENCE, Scale, additive_epsilon, hypervolume, non_dominated
from dse.problem.mix import held, loads_of
from dse.problem.words import short_deployment, short_shape
from dse.questions.compare.prices import chosen_changes, design_key, moved, price_pairs, prices_of
from dse.schema.workloads import DETAILS
from dse.study.definition import differences
from dse.study.folder import read_study

PROPORTIONAL = "usd_per_million"  # metrics that begin so are proportional to the price of the chip
TELLING = 5  # designs that are told of those that entered, and that left
Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the studies: study.json, the items of front.json by design, and F (n, m)."""

    folder: Path
    name: str
    study: Mapping[str, Any]
    items: Mapping[str, Item] = field(repr=False)
    F: np.ndarray = field(repr=False)

    @property
    def as_of(self) -> str | None:
        return (self.study.get("own_prices") or {}).get("as_of")


@dataclass(frozen=True, slots=True)
class Compared:
    """Both sides, and the document of `dse compare A B --json` (without its sentences)."""

    a: Side
    b: Side
    document: dict[str, Any] = field(repr=False)
    words: Callable[[Item], str] = field(repr=False)  # what a design is
    shaped: bool  # designs differ in their shapes

    @property
    def objectives(self) -> list[dict[str, Any]]:
        return self.a.study["objectives"]

    def status(self, key: str) -> str:
        """What became of a design: `stays`, `entered` or `left`."""
        here, there = key in self.a.items, key in self.b.items
        return "stays" if here and there else "left" if here else "entered"


def compare(a: Path, b: Path, called: tuple[str, str] | None = None) -> Compared:
    """Both fronts are scaled by the enumerated front where one of the studies enumerated its space,
    and their prices are the same, else by the front of their union. `prices` says which prices
    differ, `chosen` what became of the cheapest, fastest, best and knee. `entered` and `left` are
    points of B and A that the other does not have. `called` is said in place of the folders.

    Raises InputError for studies of different objectives or price bases.
    """
    read = [read_study(folder) for folder in (a, b)]
    studies = [study for study, _ in read]
    refuse(a, b, studies)
    called = called or (str(a), str(b))
    objectives = studies[0]["objectives"]
    sides = [
        side_of(folder, name, study, items)
        for folder, name, (study, items) in zip((a, b), side_names(a, b), read, strict=True)
    ]
    first, second = sides
    shaped = len({shape_of(item) for _, items in read for item in items}) > 1
    words = partial(
        design_words,
        shaped=shaped,
        loaded=all(held(loads_of(study)) for study in studies),
    )
    pairs = price_pairs(*map(prices_of, studies))
    true = None if moved(pairs) else _enumerated(studies)
    union = np.concatenate([first.F, second.F])
    reference = union[non_dominated(union)] if true is None else sides[true].F
    scale = Scale.of(reference, tuple(row["log"] for row in objectives))
    volumes = [hypervolume(side.F, scale) for side in sides]
    document = {
        "a": called[0],
        "b": called[1],
        "names": {"a": first.name, "b": second.name},
        "title": second.study.get("title") or second.study["space"],
        "as_of": {"a": first.as_of, "b": second.as_of},
        "price_basis": second.study["price_basis"],
        "hypervolume_a": volumes[0],
        "hypervolume_b": volumes[1],
        "ratio": volumes[1] / volumes[0] if volumes[0] > 0 else None,
        "epsilon": additive_epsilon(second.F, first.F, scale),
        "reference_point": [REFERENCE] * len(objectives),
        "reference_front": "union of both" if true is None else f"enumerated: {called[true]}",
        "true_hypervolume_share": None if true is None else volumes[1 - true] / volumes[true],
        "same_space": first.study["fingerprint"] == second.study["fingerprint"],
        "same_workload": same_workload(*studies),
        "same_data": first.study["data_digest"] == second.study["data_digest"],
        "same_law": same_law(*studies),
        "same_hardware": not changed_figures(*studies) and _perform_alike(first, second),
        "engine_a": first.study["engine"],
        "engine_b": second.study["engine"],
        "front_a": len(first.items),
        "front_b": len(second.items),
        "evaluations_a": first.study["evaluations"],
        "evaluations_b": second.study["evaluations"],
        "entered": _points(second.items, first.items),
        "left": _points(first.items, second.items),
        "chips": _chips(first, second),
        "prices": moved(pairs),
        "all_prices": pairs,
        "chosen": chosen_changes(
            list(first.items.values()),
            list(second.items.values()),
            [o["metric"] for o in objectives],
            words,
        ),
    }
    document["comparable"] = alike_rows(document, *studies)
    found = Compared(first, second, document, words, shaped)
    ratios = _ratios(found)
    document["kept"] = _kept(found, ratios)
    document["telling"] = {
        "entered": _telling(found, second, first, _inverse(ratios), scale),
        "left": _telling(found, first, second, ratios, scale),
    }
    return found


def refuse(a: Path, b: Path, studies: Sequence[Mapping[str, Any]]) -> None:
    if studies[0]["objectives"] != studies[1]["objectives"]:
        raise InputError(
            f"{a} and {b} have different objectives",
            accepted="two studies of the same objectives",
        )
    bases = [study["price_basis"] for study in studies]
    if bases[0] != bases[1]:
        raise InputError(
            f"{a} has prices on basis {bases[0]}, {b} on {bases[1]}: they do not compare",
            accepted="two studies of one price basis",
        )


def side_names(a: Path, b: Path) -> tuple[str, str]:
    """What the sides are called: the folders' own names, where these differ."""
    names = a.resolve().name, b.resolve().name
    return names if names[0] != names[1] else (f"A ({a})", f"B ({b})")


def cost_metric(objectives: Iterable[Mapping[str, Any]]) -> str | None:
    """The price among the objectives."""
    return next((o["metric"] for o in objectives if "usd" in o["metric"]), None)


def _enumerated(studies: Sequence[Mapping[str, Any]]) -> int | None:
    """Which of two studies of one space saw all of it; None where neither did, or both."""
    if studies[0]["fingerprint"] != studies[1]["fingerprint"]:
        return None
    whole = [k for k in (0, 1) if saw_all(studies[k])]
    return whole[0] if whole else None


def side_of(folder: Path, name: str, study: Mapping[str, Any], items: Iterable[Item]) -> Side:
    designs = {design_key(item): item for item in items}
    return Side(folder, name, study, designs, _values(list(designs.values()), study["objectives"]))


def _values(items: Sequence[Item], objectives: list[dict[str, Any]]) -> np.ndarray:
    columns = [
        (1.0 if o["direction"] == "minimize" else -1.0)
        * np.array([item["metrics"][o["metric"]] for item in items], dtype=float)
        for o in objectives
    ]
    return np.stack(columns, axis=1)


def design_words(item: Item, shaped: bool, loaded: bool) -> str:
    """`h4096 L32 kv8 f14336 on 8 h100_sxm TP4 fp8/fp8 c64`; the shape where there are several, and
    `c64` where requests in flight are held."""
    shape = f"{shape_of(item)} on " if shaped else ""
    return f"{shape}{short_deployment(item['deployment'], loaded)}"


def shape_of(item: Item) -> str:
    model = item["model"]
    return short_shape(model) if "hidden_size" in model else str(model.get("name"))


def _points(of: Mapping[str, Item], other: Mapping[str, Item]) -> list[int]:
    return sorted(item["point"] for key, item in of.items() if key not in other)


def _perform_alike(a: Side, b: Side) -> bool:
    """Whether designs of both fronts have the same objectives on both, cost apart: fronts hold what
    the model says, in full precision. Taken for granted of other workloads or laws."""
    if not same_workload(a.study, b.study) or not same_law(a.study, b.study):
        return True
    columns = [i for i, o in enumerate(a.study["objectives"]) if "usd" not in o["metric"]]
    ours = {key: i for i, key in enumerate(a.items)}
    shared = [(ours[key], i) for i, key in enumerate(b.items) if key in ours]
    if not shared or not columns:
        return True
    one, other = np.array(shared).T
    return bool(np.allclose(a.F[one][:, columns], b.F[other][:, columns], rtol=1e-9, atol=0.0))


def _chips(a: Side, b: Side) -> list[dict[str, Any]]:
    """How many designs of each chip were on the front, left it, stayed, entered, and are on it."""
    rows: dict[str, dict[str, Any]] = {}
    for key, item in {**a.items, **b.items}.items():
        chip = item["deployment"]["chip"]
        row = rows.setdefault(chip, {"chip": chip, "a": 0, "left": 0, "entered": 0, "b": 0})
        here, there = key in a.items, key in b.items
        row["a"] += here
        row["b"] += there
        row["left"] += here and not there
        row["entered"] += there and not here
    return sorted(rows.values(), key=lambda row: (-row["b"], -row["a"], row["chip"]))


def _ratios(found: Compared) -> dict[str, float] | None:
    """Price of each chip at B's prices over that at A's. None where more than prices differs, so
    that a design of one study cannot be judged by the prices of the other."""
    document = found.document
    costs = [o["metric"] for o in found.objectives if "usd" in o["metric"]]
    alike = all(document[f"same_{what}"] for what in ("workload", "hardware", "law"))
    if not alike or not all(name.startswith(PROPORTIONAL) for name in costs):
        return None
    return {row["chip"]: row["ratio"] for row in document["all_prices"] if row["ratio"]}


def _inverse(ratios: Mapping[str, float] | None) -> dict[str, float] | None:
    return None if ratios is None else {chip: 1.0 / ratio for chip, ratio in ratios.items()}


def _kept(found: Compared, ratios: Mapping[str, float] | None) -> dict[str, Any] | None:
    """What A's cheapest design costs at B's prices, and how much more than B's cheapest that is."""
    metric = cost_metric(found.objectives)
    row = next((one for one in found.document["chosen"] if one["name"] == "cheapest"), None)
    if metric is None or row is None or ratios is None or row["chip_a"] not in ratios:
        return None
    cost = row["metrics"][metric]["a"] * ratios[row["chip_a"]]
    return {"metric": metric, "value": cost, "over": cost / row["metrics"][metric]["b"] - 1.0}


def _telling(
    found: Compared, of: Side, other: Side, ratios: Mapping[str, float] | None, scale: Scale
) -> list[dict[str, Any]]:
    """Of the designs of one front that the other does not have, those that are farthest from it at
    its prices: the point there that beats them by most, and the margin in the scaled objective in
    which that is least (0 or more). A chip without a price there comes first."""
    only = [(key, i) for i, key in enumerate(of.items) if key not in other.items]
    metrics = [o["metric"] for o in of.study["objectives"]]
    costs = np.array(["usd" in name for name in metrics])
    there, others = scale(other.F), list(other.items.values())
    unpriced = {row["chip"] for row in found.document["all_prices"] if row["ratio"] is None}
    rows = []
    for key, i in only:
        item = of.items[key]
        ratio = None if ratios is None else ratios.get(item["deployment"]["chip"])
        row: dict[str, Any] = {
            "point": item["point"],
            "names": list(item["names"]),
            "design": found.words(item),
            "chip": item["deployment"]["chip"],
            "metrics": {m: item["metrics"][m] for m in metrics},
            "unpriced": item["deployment"]["chip"] in unpriced,
            **dict.fromkeys(("repriced", "beaten_by", "margin")),
        }
        if ratio is not None:
            value = np.where(costs, of.F[i] * ratio, of.F[i])
            margins = (scale(value[None]) - there).min(axis=1)
            best = int(np.argmax(margins))
            row["repriced"] = {
                m: float(v) for m, v, c in zip(metrics, value, costs, strict=True) if c
            }
            if margins[best] >= 0.0:
                row["beaten_by"] = others[best]["point"]
                row["margin"] = float(margins[best])
        rows.append(row)
    rows.sort(key=lambda row: (row["repriced"] is not None, -(row["margin"] or 0.0), row["point"]))
    return rows[:TELLING]


Study = Mapping[str, Any]
LOAD = ("weight", "prompt_tokens", "output_tokens", "serving", "backend", *DETAILS)
MOST = 4  # figures that are named


def same_workload(a: Study, b: Study, *, software: bool = True) -> bool:
    """Whether the workloads ask the same, whatever they are called and, unless `software`, whatever
    serves them."""
    keys = [key for key in LOAD if software or key != "backend"]
    one, other = ([[load.get(key) for key in keys] for load in loads_of(s)] for s in (a, b))
    return one == other


def same_law(a: Study, b: Study) -> bool:
    """Whether one quality law predicts the loss, from as much text."""
    laws, runs = ([one.get(key) for one in (a, b)] for key in ("quality_law", "loss_runs"))
    digests = [None if of is None else of["digest"] for of in runs]
    text = [one.get("unique_tokens") for one in (a, b)]
    return laws[0] == laws[1] and digests[0] == digests[1] and text[0] == text[1]


def changed_figures(a: Study, b: Study) -> list[str]:
    """Figures of chips and sources of kernel laws that both studies used and that differ."""
    one, other = (_figures(study) for study in (a, b))
    return [name for name, said in one.items() if other.get(name, said) != said]


def _own_laws(a: Study, b: Study) -> str:
    """The efficiency files that one study used and the other did not."""
    one, other = (set(study.get("efficiency_files") or ()) for study in (a, b))
    return ", ".join(sorted(one ^ other))


def _figures(study: Study) -> dict[str, str]:
    """{figure: its text}, of a kernel law its source."""
    found = {}
    for row in study.get("sources") or ():
        name, _, text = str(row.get("figure")).partition(":")
        found[name] = text or str(row.get("source"))
    return found


def alike_rows(document: Mapping[str, Any], a: Study, b: Study) -> list[dict[str, Any]]:
    """`{what, same, words}` of everything that two answers must share to differ by price alone."""
    names = document["names"]
    same_space, space = document["same_space"], "the same space"
    if not same_space and (prices := _prices_alone(document, a, b)):
        same_space = True
        space += f", but for {prices}"
    elif not same_space:
        said = differences(a.get("definition"), b.get("definition") or {})
        space = f"they searched different spaces{f': {said}' if said else ''}"
    figures = changed_figures(a, b)
    more = f" and {len(figures) - MOST} more" if len(figures) > MOST else ""
    hardware = "the same figures of chips and systems and the same kernel laws"
    if figures:
        hardware = f"figures that differ: {', '.join(figures[:MOST])}{more}"
    elif laws := _own_laws(a, b):
        hardware = f"kernel laws of one's own in one of them: {laws}"
    elif not document["same_hardware"]:
        hardware = (
            "designs of both fronts perform otherwise, though no figure differs: the model of one "
            "is older"
        )
    elif not document["same_data"]:
        hardware += "; the digests differ by prices, or by chips that neither uses"
    quality = [study.get("quality_law") for study in (a, b)]
    digests = ", ".join(
        f"{names[side]} {study['data_digest'][:12]}" for side, study in (("a", a), ("b", b))
    )
    rows = [
        ("space", same_space, space),
        (
            "workload",
            document["same_workload"],
            "the same workload" if document["same_workload"] else "they serve different workloads",
        ),
        ("hardware data", document["same_hardware"], f"{hardware} (data digest: {digests})"),
        ("quality law", document["same_law"], " and ".join(dict.fromkeys(map(str, quality)))),
        ("search", *_search(names, a, b)),
    ]
    return [{"what": what, "same": same, "words": words} for what, same, words in rows]


def _prices_alone(document: Mapping[str, Any], a: Study, b: Study) -> str:
    """What differs between two spaces where that is costs of owning, or chips that only one of the
    studies has a price of; empty where anything else differs."""
    defined = [dict(study.get("definition") or {}) for study in (a, b)]
    chips = [set(map(str, one.pop("axis chip", ()))) for one in defined]
    costs = [
        {line: one.pop(line) for line in list(one) if line.startswith("cost ")} for one in defined
    ]
    unpriced = [row["chip"] for row in document["all_prices"] if row["ratio"] is None]
    if not defined[0] or defined[0] != defined[1] or chips[0] ^ chips[1] != set(unpriced):
        return ""
    once = [f"chips with a price on one side only: {', '.join(unpriced)}"] if unpriced else []
    return "; ".join([*once, *filter(None, [differences(*costs)])])


def saw_all(study: Study) -> bool:
    """Whether a front is that of the whole space: searched, or enumerated afterwards and added."""
    proof = study.get("proof") or {}
    return study["true_hypervolume_share"] == 1.0 or ("enumerated" in proof and "added" in proof)


def _search(names: Mapping[str, str], a: Study, b: Study) -> tuple[bool, str]:
    """Whether both saw their whole space, and what each saw of it."""
    whole = [saw_all(study) for study in (a, b)]
    if all(whole):
        counts = " and ".join(f"{study['size']:,}" for study in (a, b))
        return True, f"both saw every point of their space: {counts}"
    said = []
    for side, study, all_ in (("a", a, whole[0]), ("b", b, whole[1])):
        size = study.get("size")
        of = f" of {size:,} points ({percent(study['evaluations'] / size)})" if size else " points"
        saw = "every point" if all_ else f"{study['evaluations']:,}{of} by {study['engine']}"
        said.append(f"{names[side]} saw {saw}")
    end = "; what is on one front alone may only not have been looked at by the other"
    return False, "; ".join(said) + end
