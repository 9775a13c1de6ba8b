"""The few decisions that a front comes to (`decisions` of study.json, `dse.study.decide`), and how
sure the design to start from is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dse.answer.answer import Block, Column, Figure, Section, Table
from dse.answer.labels import label
from dse.answer.numbers import percent, show, significant
from dse.answer.plots import BLUE, PALETTE, VERMILION, bars, hatch, names_axis, plain, upright
from dse.answer.sentences import listed
from dse.problem.mix import held, loads_of
from dse.problem.words import brief_shape, in_weights, on_chip, short_deployment
from dse.questions.study.chosen import Json, StudyFolder, multiples
from dse.study.decide import FACTORS

MOST_WEIGHT = float(FACTORS[-1])
WISHED = "all objectives alike"
IT = "it or a design near it"
LIKELY = 0.1  # share of the cases from which on another decision is named
MOSTLY, SELDOM = 0.8, 0.5  # shares of designs that have what sets a decision apart
HOW = (
    "A decision stands for the designs of the front that are nearest to it. With quality, speed "
    "and prices varied within their errors {draws} times, the best design was of the decision in "
    "that share of the cases. What a design gives away to the best of a case is its regret; the "
    "first decision has the least on average. Wish: {wish}."
)
MOST_CAUSES = 8
ENDS = ("better than predicted", "worse than predicted")
CAUSES = (
    "Each error alone, at either end of its 80% interval: a price, the speed of a chip, the loss "
    "of a kind of model, and what a decision shares with designs of its kind alone (speed: the "
    "same deployment; loss: the same experts), which may belong to another decision. The bar is "
    "what decision 1 then gives away to the best design; a number at its end is the decision that "
    "is best there; without one, another design of decision 1 is."
)
WEIGHTS = (
    "One objective at a time counts for more than the others, up to {most:g} times as much: which "
    "decision is then the best."
)
# What may set a decision apart.
Trait = tuple[str, Callable[[Json], object]]


def how_sure(folder: StudyFolder, brief: bool = False) -> str:
    """`; in 83% of draws of the errors the best design is this or its like, ...`; empty where
    nothing was drawn."""
    found = folder.study.get("decisions")
    if not found or found["start"]["probability"] is None:
        return ""
    start = found["start"]
    alike = brief and found["wish"] == WISHED and len(folder.objectives) > 1
    said = (
        f"; with {'each objective counting alike, and ' * alike}quality, speed and prices varied "
        f"within their errors, {IT} is the best in "
        f"{start['probability']:.0%} of cases"
    )
    if found["wish"] != WISHED:
        said += f" for the wish “{found['wish']}”"
    if start["kept"] < 0.995:
        said += f", keeps the limits in {start['kept']:.0%},"
    if brief:
        return said.removesuffix(",")
    return f"{said} and gives away {_regret(folder, start['regret'])} on average"


def others_likely(folder: StudyFolder) -> str:
    """` (decision 7 in 22%, decision 3 in 21%)`: the others that are the best in LIKELY cases."""
    families = folder.study["decisions"]["families"][1:]
    likely = [one for one in families if (one["probability"] or 0.0) >= LIKELY]
    likely.sort(key=lambda one: -one["probability"])
    said = [f"decision {one['decision']} in {one['probability']:.0%}" for one in likely]
    return f" ({', '.join(said)})" if said else ""


def against_next(folder: StudyFolder) -> str:
    """The first decision against the one that is the best in most other cases, a number an
    objective; empty without one."""
    first, *others = folder.study["decisions"]["families"]
    if not others or first["probability"] is None:
        return ""
    other = max(others, key=lambda one: one["probability"])
    here, there = (folder.items[one["point"] - 1]["metrics"] for one in (first, other))
    parts = []
    for objective in folder.objectives:
        m = objective["metric"]
        if m != "predicted_loss":
            parts.append(f"{significant(here[m] / there[m], 2)} times its {label(m).text}")
            continue
        apart, compute = here[m] - there[m], other.get("compute_multiple")
        worth = significant(max(compute, 1.0 / compute), 2) if compute else ""
        said = f"a loss {abs(apart):.4f} {'lower' if apart < 0.0 else 'higher'}"
        parts.append(f"{said} (worth {worth} times the training)" if worth else said)
    which = first["decision"], other["decision"]
    return f"Decision {which[0]} against decision {which[1]}: {listed(parts)}."


def first_turns(folder: StudyFolder) -> str:
    """What would change the decision first: for each objective, how much more it must count."""
    nearest: dict[str, Json] = {}
    for turn in folder.study["decisions"]["turns"]:
        if "factor" in turn:
            nearest.setdefault(turn["objective"], turn)
    if not nearest:
        return ""
    said = [
        f"{label(m).text}{'' if k else ' counts'} {significant(turn['factor'], 2)} times"
        f"{'' if k else ' as much'} (then decision {turn['decision']})"
        for k, (m, turn) in enumerate(sorted(nearest.items(), key=lambda one: one[1]["factor"]))
    ]
    return f"Another decision is the best if {listed(said, 'or')}."


def _regret(folder: StudyFolder, regret: float) -> str:
    found = folder.study["decisions"]
    if found["regret_in"] == "amount":
        return f"{significant(regret, 2)} of {label(found['best']).text}"
    of = "of the front's range" if found["best"] is None else f"of {label(found['best']).text}"
    return f"{regret:.1%} {of}"


def decided(folder: StudyFolder) -> list[Table]:
    """A row for each decision: its design, how often it is the best, what sets it apart."""
    found = folder.study.get("decisions")
    if not found:
        return []
    items = {item["point"]: item for item in folder.items}
    held_too = held(loads_of(folder.study))
    drawn = found["start"]["probability"] is not None
    several = len({brief_shape(item) for item in folder.items}) > 1

    def design(one: Json) -> str:
        item = items[one["point"]]
        on = short_deployment(item["deployment"], held_too)
        return f"{brief_shape(item)}, {on}" if several else on

    return [
        Table.of(
            "decisions",
            "The decisions of this front",
            found["families"],
            (
                Column(
                    "decision", "decision", of=lambda one: f"{one['decision']} ({one['point']})"
                ),
                *(
                    Column(
                        m,
                        label(m).short,
                        m,
                        explain=label(m).text,
                        of=lambda one, m=m: items[one["point"]]["metrics"][m],
                    )
                    for m in folder.wanted
                ),
                Column("designs", "designs", "count"),
                *([Column("probability", "chance best", "share")] if drawn else []),
                Column("apart", "what sets it apart", of=lambda one: _apart(folder, one)),
                Column("design", "design", of=design),
            ),
            notes=[*_turns(folder), *multiples(folder), HOW.format(**found)],
        )
    ]


def _apart(folder: StudyFolder, family: Json) -> str:
    """The objectives in which it is the best of the decisions, and what its designs have in common
    that others seldom have."""
    own = [item for item in folder.items if item.get("decision") == family["decision"]]
    others = [item for item in folder.items if item.get("decision") != family["decision"]]
    said = []
    points = [one["point"] for one in folder.study["decisions"]["families"]]
    for objective in folder.objectives:
        metric, least = objective["metric"], objective["direction"] == "minimize"
        values = {p: folder.items[p - 1]["metrics"][metric] for p in points}
        best = min(values.values()) if least else max(values.values())
        if values[family["point"]] == best and len(points) > 1:
            said.append(f"{'lowest' if least else 'highest'} {label(metric).text}")
    said += _traits(own, others)
    return "; ".join(said) or "between the others"


POOLS = {False: "one pool for both phases", True: "pools of their own"}


def _traits(own: Sequence[Json], others: Sequence[Json]) -> Iterator[str]:
    traits: tuple[Trait, ...] = (
        ("on {}", lambda item: on_chip(item["deployment"])),
        ("{}", lambda item: POOLS["prefill" in item["deployment"]]),
        ("{} model", lambda item: "a sparse" if item["model"].get("num_experts") else "a dense"),
        ("{} weights", lambda item: in_weights(item["deployment"])),
        ("TP {}", lambda item: item["deployment"]["tensor_parallel"]),
        ("{} in flight", lambda item: round(item["deployment"]["concurrency"])),
    )
    for text, of in traits:
        value, count = Counter(map(of, own)).most_common(1)[0]
        share = sum(of(item) == value for item in others) / max(len(others), 1)
        if count >= MOSTLY * len(own) and share < SELDOM:
            yield text.format(value)


def _turns(folder: StudyFolder) -> list[str]:
    """Where the wish, moved, turns one decision into the next."""
    by_metric: dict[str, list[str]] = {}
    for turn in folder.study["decisions"]["turns"]:
        metric = turn["objective"]
        at = f"× {significant(turn['factor'], 2)}" if "factor" in turn else None
        at = at or show(metric, turn["limit"])
        by_metric.setdefault(metric, []).append(f"from {at} decision {turn['decision']}")
    if not by_metric:
        return []
    moved = "limit moves" if "limit" in folder.study["decisions"]["turns"][0] else "weight grows"
    parts = [f"of {label(metric).text}, {', '.join(said)}" for metric, said in by_metric.items()]
    return [f"Where one decision turns into the next as the {moved}: {'; '.join(parts)}."]


def change_section(folder: StudyFolder) -> list[Section]:
    """What would change the decision, in pictures; none where nothing was drawn or moves it."""
    found = folder.study.get("decisions") or {}
    blocks: list[Block] = []
    said, how = [], []
    if any("factor" in turn for turn in found.get("turns", ())):
        blocks.append(_weights_figure(folder))
        said.append(first_turns(folder))
        how.append(WEIGHTS.format(most=MOST_WEIGHT))
    if found.get("causes"):
        blocks += [_causes_figure(folder), *_causes_table(folder)]
        said.append(_causes_sentence(found))
        how.append(CAUSES)
    if not blocks:
        return []
    blocks.append(Section("How to read this", (), how, folded=True))
    return [Section("What would change the decision", blocks, said, "changes", on_console=False)]


def _cause(one: Json) -> str:
    if not isinstance(one["name"], str):
        return f"{one['of']} of decision {one['name']} and its kin"
    return (
        f"loss of {one['name']} models" if one["of"] == "loss" else f"{one['of']} of {one['name']}"
    )


def _at_end(one: Json, end: int) -> str:
    """`price of h100_sxm 15% higher`."""
    if one["factors"] is None:
        return f"{_cause(one)} {ENDS[end]}"
    by = one["factors"][end] - 1.0
    return f"{_cause(one)} {percent(abs(by))} {'higher' if by > 0.0 else 'lower'}"


def _causes_sentence(found: Json) -> str:
    here = found["unmoved"]["decision"]
    still = [
        f"{of} of a chip"
        for of in ("price", "speed")
        if not any(_moves(one, here) for one in found["causes"] if _is_of_chip(one, of))
    ]
    said = f"As predicted, decision {here} is the best"
    if still:
        said += f"; no {' or '.join(still)} within its interval changes that"
    others = any(_moves(one, here) for one in found["causes"])
    return f"{said}; {'the errors of the table do' if others else 'no error alone does'}."


def _causes_table(folder: StudyFolder) -> list[Table]:
    """The errors that make another decision the best, the dearest first."""
    found = folder.study["decisions"]
    here = found["unmoved"]["decision"]
    turned = [
        (_at_end(one, k), end)
        for one in found["causes"]
        for k, end in enumerate(one["ends"])
        if end["decision"] != here
    ]
    turned.sort(key=lambda one: -one[1]["regret"])
    columns = [
        Column("error", "if this is so", of=lambda one: one[0]),
        Column("decision", "the best is decision", of=lambda one: one[1]["decision"], right=True),
        Column(
            "regret",
            "decision 1 gives away",
            right=True,
            of=lambda one: _regret(folder, one[1]["regret"]),
        ),
    ]
    return [Table.of("errors-alone", "Errors that change it", turned, columns)] if turned else []


def _is_of_chip(one: Json, of: str) -> bool:
    return one["of"] == of and isinstance(one["name"], str)


def _moves(one: Json, here: int) -> bool:
    return any(end["decision"] != here for end in one["ends"])


def _causes_figure(folder: StudyFolder) -> Figure:
    """Bars from what the first decision gives away without errors to what it does with one."""
    found = folder.study["decisions"]
    base, amount = found["unmoved"]["regret"], found["regret_in"] == "amount"
    rows = sorted(found["causes"], key=lambda one: max(end["regret"] for end in one["ends"]))
    rows = [one for one in rows if any(end["regret"] != base for end in one["ends"])]
    rows = rows[-MOST_CAUSES:]
    names = [plain(_cause(one)) for one in rows]
    scale = label(found["best"]).scale if amount else 100.0
    data: list[dict[str, Any]] = []
    for k, colour in enumerate((BLUE, VERMILION)):
        ends = [one["ends"][k] for one in rows]
        away = [scale * (end["regret"] - base) for end in ends]
        texts = [
            "" if end["decision"] == found["unmoved"]["decision"] else f"{end['decision']}"
            for end in ends
        ]
        hover = [
            f"{plain(_at_end(one, k))}: decision {end['decision']} is the best"
            for one, end in zip(rows, ends, strict=True)
        ]
        look = {"color": colour, "pattern": hatch("/" if k else "")}
        data.append(
            bars(ENDS[k], away, names, colour)
            | {"base": scale * base, "marker": look, "text": texts, "textposition": "outside"}
            | {"cliponaxis": False, "hoverinfo": "text", "hovertext": hover}
        )
    title = f"decision 1 gives away ({_counted(found)})"
    layout = {
        "barmode": "group",
        "height": 130 + 40 * len(rows),
        "xaxis": {"title": {"text": plain(title)}},
        "yaxis": names_axis(names),
        "shapes": [upright(scale * base)],
    }
    shows = "For each error alone, what the first decision gives away at either end of it."
    return Figure("causes", "If an estimate is off", {"data": data, "layout": layout}, shows)


def _counted(found: Json) -> str:
    if found["regret_in"] == "amount":
        return label(found["best"]).text
    return f"% of {'range' if found['best'] is None else label(found['best']).text}"


def _weights_figure(folder: StudyFolder) -> Figure:
    """A band for each objective, which changes colour where another decision takes over."""
    found = folder.study["decisions"]
    first = found["families"][0]["decision"]
    names = [plain(label(m).text) for m in folder.wanted][::-1]
    parts: dict[int, list[tuple[str, float, float]]] = {}
    for metric in folder.wanted:
        own = [turn for turn in found["turns"] if turn["objective"] == metric]
        starts = [(0.0, first), *((math.log2(turn["factor"]), turn["decision"]) for turn in own)]
        stops = [*(start for start, _ in starts[1:]), math.log2(MOST_WEIGHT)]
        for (start, decision), stop in zip(starts, stops, strict=True):
            parts.setdefault(decision, []).append((plain(label(metric).text), start, stop - start))
    data = [
        bars(f"decision {decision}", [p[2] for p in of], [p[0] for p in of], "")
        | {
            "base": [p[1] for p in of],
            "marker": {"color": PALETTE[(decision - 1) % len(PALETTE)]},
            "text": [f"{decision}" for _ in of],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "hoverinfo": "name",
        }
        for decision, of in sorted(parts.items())
    ]
    ticks = list(range(int(math.log2(MOST_WEIGHT)) + 1))
    layout = {
        "barmode": "overlay",
        "height": 130 + 40 * len(names),
        "xaxis": {
            "title": {"text": "times as important as each of the others"},
            "tickvals": ticks,
            "ticktext": [f"× {2**k}" for k in ticks],
        },
        "yaxis": names_axis(names),
    }
    shows = "For each objective, which decision is the best as its weight grows."
    return Figure(
        "weights", "If one objective counts for more", {"data": data, "layout": layout}, shows
    )
