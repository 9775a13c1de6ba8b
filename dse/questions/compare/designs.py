"""The answer of published designs against the front: where each stands, what its choices cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Figure, Table
from dse.answer.frames import document, frame, stacked
from dse.answer.numbers import dollars, times
from dse.answer.plots import BLUE, bars, names_axis, plain, upright
from dse.problem.shapes import (
    Distance,
)
from dse.quality import LAWS
from dse.questions.compare.rediscovery import Rediscovery, Variant

LEVEL = 0.05  # a price within it of the front's is level with the front
SMALL = 0.02  # a change of less is not named
# Memory is named where the weights take so much less of it, and so many times the requests run.
LESS, MORE = 0.1, 1.25
WORDS = {
    "front": "the shapes, each on its cheapest deployment, that no other beats in both predicted "
    "loss and price",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
}
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPE = (*SHAPE, "intermediate_size", "num_experts", "num_experts_per_tok")
SHAPE = (*SHAPE, "moe_intermediate_size")


def standing(away: Distance, served: bool) -> str:
    """A few words for a distance."""
    if not served:
        return "not servable"
    if away.cost_ratio is None:
        return "ahead of the front"
    if away.cost_ratio > 1.0 + LEVEL:
        return "behind the front"
    return "level with the front" if away.cost_ratio >= 1.0 - LEVEL else "ahead of the front"


def lead(found: Rediscovery) -> list[str]:
    """Where the design stands, and which assumption puts it there."""
    away, name = found.distance, found.case.expert.name
    if not found.servable:
        return [f"{name} cannot be served within the limits on any deployment of the space."]
    first = f"{name} is {standing(away, served=True)}: "
    if away.cost_ratio is None:
        first += "no shape of the space within the same budgets reaches its predicted loss"
    else:
        price = dollars(float(found.table.price[found.expert]))
        first += f"it costs {times(away.cost_ratio)} the front's price at equal predicted quality "
        first += f"({price} per million tokens)"
    if away.nats is not None:
        better = "lower" if away.nats >= 0 else "higher"
        first += f"; at equal cost the front's loss is {abs(away.nats):.4f} nats {better}"
    said = [f"{first}."]
    kindest, ratio = _kindest(found), away.cost_ratio
    if kindest is not None:
        left = kindest.distance.cost_ratio
        now = "no rival is as good" if left is None else f"it costs {times(left)} the front's price"
        said.append(f"One assumption does most of it: with {kindest.words}, {now}.")
    elif ratio is not None and ratio > 1.0 + LEVEL:
        said.append("No single assumption that we changed brings the design nearer.")
    if found.causes:
        dearest = next(iter(found.causes))
        said.append(f"The choice that costs most is {dearest}: {times(found.causes[dearest])}.")
    return [*said, *_memory(found), *_beyond(found)]


def _kindest(found: Rediscovery) -> Variant | None:
    """The single change of an assumption that brings the design nearest; None where none does."""
    ratio = found.distance.cost_ratio
    single = [v for v in found.variants if v.key not in ("all", "free") and v.distance_known]
    kindest = min(single, key=lambda one: one.distance.cost_ratio or 0.0, default=None)
    if ratio is None or kindest is None:
        return None
    return kindest if (kindest.distance.cost_ratio or 0.0) < ratio * (1.0 - SMALL) else None


def _memory(found: Rediscovery) -> list[str]:
    """Where the cheapest shape that is as good runs more requests on as many chips, because its
    weights leave more of their memory."""
    if (cheaper := found.distance.cheaper) is None or found.distance.cost_ratio is None:
        return []
    of, rows = found.table.columns, [found.expert, cheaper]
    weights = of["memory_weights_bytes_per_chip"] / of["memory_capacity_bytes_per_chip"]
    own, other = weights[rows]
    few, many = (of["running_requests"] / of["chips"])[rows]
    if own - other < LESS or many < MORE * few:
        return []
    return [
        f"Part of that is memory, not speed: its weights take {own:.0%} of each chip's memory and "
        f"{few:,.0f} requests run at once; with the cheapest as good, {other:.0%} and {many:,.0f}."
    ]


def _beyond(found: Rediscovery) -> list[str]:
    """How much of the front lies beyond what the law was fitted on."""
    columns, rows = found.table.columns, found.front.rows
    sparse = columns["activation_ratio"] < 1.0
    beyond = np.zeros(len(rows), dtype=bool)
    for name, known in LAWS[found.case.study.quality_law].fit.items():
        if name in columns:
            of_experts = name in ("activation_ratio", "granularity", "total_parameters")
            beyond |= (known.excludes(columns[name]) & (sparse if of_experts else True))[rows]
    if not beyond.any():
        return []
    return [
        f"The quality law extrapolates for {beyond.sum():,} of {len(rows):,} shapes of the front."
    ]


def designs_answer(answers: Sequence[Rediscovery]) -> Answer:
    """Where each published design stands, what its choices cost, and what an assumption does."""
    behind = sum((one.distance.cost_ratio or 0.0) > 1.0 + LEVEL for one in answers)
    alone, first = len(answers) == 1, answers[0]
    title, asked = "Published designs and the front", f"{len(answers)} published designs"
    said = [f"{behind} of {len(answers)} published designs cost more than 5% above the front."]
    if alone:
        title, study = first.case.title, first.case.study
        asked = f"{title}: {first.case.expert.name} against the front of {study.name}; prices: "
        asked, said = f"{asked}{study.price_basis}", lead(first)
    metric = first.objective
    made = [
        _designs(answers, metric),
        _near(answers, metric, alone),
        _variants_frame(answers, alone),
        _causes(answers),
        _grid(answers),
        _known(answers),
        _front(answers, metric),
    ]
    law = LAWS[first.case.study.quality_law]
    return Answer(
        question="compare",
        title=title,
        asked=asked,
        headline=said[0],
        sentences=said[1:],
        blocks=(*([_variant_figure(first)] if alone else []), *(one for one in made if one.rows)),
        rests=(f"Quality law: `{law.name}`, {law.title[0].lower()}{law.title[1:]}.",),
        document=document({"answer": said, "cases": [_facts(one) for one in answers]}, made),
        data=(made[0], made[-1]),
        words=WORDS,
    )


def _facts(found: Rediscovery) -> dict[str, Any]:
    case = found.case
    return {
        "case": case.name,
        "title": case.title,
        "expert": case.expert.id,
        "quality_law": case.study.quality_law,
        "price_metric": found.objective,
        "price_basis": case.study.price_basis,
        "held": {name: list(values) for name, values in case.held.items()},
        "why_held": case.why_held or None,
    }


def _designs(answers: Sequence[Rediscovery], metric: str) -> Table:
    kindest = [_kindest(one) for one in answers]
    interval = [one.price_interval if one.servable else (math.nan, math.nan) for one in answers]
    columns = {
        "case": [one.case.name for one in answers],
        "model": [one.case.expert.name for one in answers],
        "standing": [standing(one.distance, one.servable) for one in answers],
        "cost_ratio": [one.distance.cost_ratio for one in answers],
        "nats": [one.distance.nats for one in answers],
        "dense_equivalent_ratio": [one.distance.equivalent_ratio for one in answers],
        "dominating": [one.distance.dominating for one in answers],
        "served_shapes": [one.served for one in answers],
        "shapes": [one.shapes for one in answers],
        "front_size": [len(one.front.rows) for one in answers],
        metric: [float(p) if np.isfinite(p := one.table.price[-1]) else None for one in answers],
        f"{metric}.low": [low for low, _ in interval],
        f"{metric}.high": [high for _, high in interval],
        "known": [one.known_as for one in answers],
        "assumption": [None if one is None else one.key for one in kindest],
        "cost_ratio.after": [None if one is None else one.distance.cost_ratio for one in kindest],
    }
    shown = ("model", "standing", "cost_ratio", "nats", "dominating", "served_shapes", metric)
    shown = (*shown, "assumption", "cost_ratio.after")
    note = "Last two columns: the one assumption that brings it nearest, and what is left then."
    return frame("designs", "Published designs and the front", columns, note, shown=shown)


def _near(answers: Sequence[Rediscovery], metric: str, alone: bool) -> Table:
    """The design, the cheapest shape that is as good and the best that costs no more."""
    parts = []
    for one in answers:
        rows = {"design": one.expert, "cheaper": one.distance.cheaper}
        rows |= {"better": one.distance.better}
        there = {name: row for name, row in rows.items() if row is not None}
        part = {"which": list(there), **one.table.rows(list(there.values()), metric)}
        parts.append((one.case.name, part))
    columns = stacked("case", parts)
    shown = [key for key in SHAPE if key in columns and np.nansum(columns[key])]
    shown = ["which", *shown, metric, "predicted_loss", "tpot_s"]
    note = "design: as published; cheaper: the cheapest as good; better: the best at its price."
    caption = "The design and the nearest shapes of the front"
    return frame("nearest", caption, columns, note, shown=shown, on_console=alone)


def _variants_frame(answers: Sequence[Rediscovery], alone: bool) -> Table:
    parts = [
        (
            one.case.name,
            {
                "assumption": [v.key for v in one.variants],
                "with": [v.words for v in one.variants],
                "front_size": [v.front_size for v in one.variants],
                "cost_ratio": [v.distance.cost_ratio for v in one.variants],
                "nats": [v.distance.nats for v in one.variants],
                "dominating": [v.distance.dominating for v in one.variants],
            },
        )
        for one in answers
    ]
    shown = ("with", "cost_ratio", "nats", "dominating")
    caption = "The same with one assumption changed"
    return frame("variants", caption, stacked("case", parts), shown=shown, on_console=alone)


def _causes(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (one.case.name, {"choice": list(one.causes), "factor": list(one.causes.values())})
        for one in answers
        if one.causes
    ]
    note = "The factors of a case multiply to its cost at equal quality; below 1 a choice costs."
    caption = "What each choice of the cheaper shape saves at equal quality"
    columns = stacked("case", parts) if parts else {"case": [], "choice": [], "factor": []}
    return frame("causes", caption, columns, note, shown=("case", "choice", "factor"))


def _grid(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (
            one.case.name,
            {
                "axis": [place.axis for place in one.places],
                "value": [place.value for place in one.places],
                "on_grid": [place.on for place in one.places],
                "inside": [place.inside for place in one.places],
                "value.below": [place.below for place in one.places],
                "value.above": [place.above for place in one.places],
            },
        )
        for one in answers
    ]
    caption = "Where the design lies on the axes of the space"
    return frame("grid", caption, stacked("case", parts), on_console=False)


def _known(answers: Sequence[Rediscovery]) -> Table:
    parts = [
        (
            one.case.name,
            {
                "what": [known.what for known in one.case.known],
                "given": [known.value for known in one.case.known],
                "kind": [known.kind for known in one.case.known],
                "source": [known.source or known.note for known in one.case.known],
                "date": [known.date for known in one.case.known],
            },
        )
        for one in answers
        if one.case.known
    ]
    columns = stacked("case", parts) if parts else {"case": [], "what": [], "given": []}
    return frame("known", "What was known when it was designed", columns, on_console=False)


def _front(answers: Sequence[Rediscovery], metric: str) -> Table:
    parts = [(o.case.name, o.table.rows(o.front.rows.tolist(), metric)) for o in answers]
    return frame("front", "The shapes of the front", stacked("case", parts), on_console=False)


def _variant_figure(found: Rediscovery) -> Figure:
    """What the design costs over the front, as the case says and with one assumption changed."""
    known = [("as the case says", found.distance.cost_ratio)]
    known += [(one.words, one.distance.cost_ratio) for one in found.variants if one.front_size]
    rows = [
        (plain(words.partition(" (")[0].partition(":")[0].replace("`", "")), ratio)
        for words, ratio in known
        if ratio is not None
    ][::-1]
    names = [words for words, _ in rows]
    title = "cost, times that of the front"
    layout = {
        "height": 110 + 46 * len(rows),
        "xaxis": {"title": {"text": title}},
        "yaxis": names_axis(names),
        "shapes": [upright(1.0)],
    }
    return Figure(
        "variants-plot",
        "What it costs over the front, with one assumption changed",
        {"data": [bars(title, [ratio for _, ratio in rows], names, BLUE)], "layout": layout},
        "A bar for each assumption. At the dashed line it costs what the front does; left of it, "
        "less.",
    )
