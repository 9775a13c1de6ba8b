"""The first screen of a study's page: the decision, the front with the few decisions marked and
published models as landmarks, a table of those decisions, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Opening, Table
from dse.answer.labels import BASES, axis_title, label
from dse.answer.numbers import show
from dse.answer.plots import PALETTE, SYMBOLS, VERMILION, plain
from dse.answer.sentences import listed, with_names
from dse.problem.words import brief_shape, given_name, in_weights, on_chip
from dse.questions.study.chosen import Json, StudyFolder, landmark_words
from dse.questions.study.decisions import (
    IT,
    against_next,
    first_turns,
    how_sure,
    others_likely,
)
from dse.questions.study.explorer import DRAWN, thin
from dse.questions.study.systems import system_answers
from dse.questions.study.words import capital, found_words, span, start_words

EDGE = 0.01  # share of the front at either end of an axis that need not be drawn
MARGIN = 0.07  # of an axis, at either end
MOST_AHEAD = 3  # published models that look better than the first decision
NEAR = 0.5  # of the front's range, to which an axis is drawn out for published models
Point = tuple[float, float]
Marked = tuple[str, Json, float | None]
Axes = tuple[str, str]  # metrics across and up


def opening(folder: StudyFolder) -> Opening:
    """Of any study; without decisions the chosen points are marked in their place."""
    marked = _marked(folder)
    said = system_answers(folder.study)[:1] or [f"{start_words(folder, translated=True)}."]
    figure, table = _figure(folder, marked), _table(folder, marked)
    headline = _named(folder, said[0])
    return Opening(asked_words(folder), headline, figure, table, _sure(folder))


def _marked(folder: StudyFolder) -> list[Marked]:
    """(mark, item of the front, share of the draws in which it is best) of each decision."""
    found = folder.study.get("decisions")
    items = {item["point"]: item for item in folder.items}
    if not found:
        return [(str(k), one.item, None) for k, one in enumerate(folder.chosen, 1)]
    drawn = found["start"]["probability"] is not None
    return [
        (str(one["decision"]), items[one["point"]], one["probability"] if drawn else None)
        for one in found["families"]
    ]


def _system(folder: StudyFolder, item: Json) -> str:
    """The chip of an item, or the system where the study compares systems."""
    rows = (folder.study.get("systems") or {}).get("rows", ())
    names = {row["chip"]: row["name"] for row in rows}
    chip = on_chip(item["deployment"])
    return names.get(chip) or _named(folder, chip)


def _named(folder: StudyFolder, text: str) -> str:
    """`text` with the makers' names of chips for their ids."""
    return with_names(text, folder.study.get("chips") or {})


def _design(folder: StudyFolder, item: Json) -> str:
    """`Sparse 133B (7.56B active), 8 × b200_sxm fp8, 64 in flight`; without the shape where every
    design has the same."""
    d, metrics = item["deployment"], item["metrics"]
    named = _system(folder, item)
    alone = named == _named(folder, str(d.get("chip")))
    where = f"{d['chips']} × {named}" if alone else named
    served = f"{where} {in_weights(d)}, {round(d['concurrency']):,} in flight"
    if len({brief_shape(one) for one in folder.items}) == 1:
        return served
    sizes = [show(name, metrics.get(name)) for name in ("total_parameters", "active_parameters")]
    shape = f"Sparse {sizes[0]} ({sizes[1]} active)"
    if not item["model"].get("num_experts"):
        shape = f"Dense {sizes[0]}"
    return f"{given_name(item) or shape}, {served}"


def _table(folder: StudyFolder, marked: Sequence[Marked]) -> Table:
    """A row for each mark: design, objectives, and how often it is the best."""
    columns = [
        Column("mark", "", right=True, of=lambda one: one[0]),
        Column("design", "decision", of=lambda one: _design(folder, one[1])),
        *(
            Column(
                m,
                label(m).short,
                m,
                explain=label(m).text,
                of=lambda one, m=m: one[1]["metrics"][m],
            )
            for m in folder.wanted
        ),
    ]
    if marked[0][2] is not None:
        why = "share of the cases in which this design or one near it is the best"
        columns.append(Column("best", "chance best", "share", explain=why, of=lambda one: one[2]))
    return Table.of("opening", "", marked, columns)


def _sure(folder: StudyFolder) -> str:
    found = how_sure(folder, brief=True).removeprefix("; ")
    if not found:
        return f"How sure: {found_words(folder)}"
    first = folder.study["decisions"]["families"][0]["decision"]
    found = found.replace(IT, f"decision {first} or a design near it")
    said = [f"How sure: {found}{others_likely(folder)}.", _ends(folder)]
    return " ".join(filter(None, [*said, against_next(folder), first_turns(folder)]))


def _ends(folder: StudyFolder) -> str:
    """The 80% intervals of the first decision's objectives, without a loss, whose errors are
    common to all designs; empty without one."""
    intervals = folder.start.metrics.get("intervals", {})
    known = [m for m in folder.wanted if m in intervals and label(m).kind != "nats"]
    said = [f"{label(m).text} {span(m, intervals[m])}" for m in known]
    return f"In 80% of cases {listed(said)}." if said else ""


def asked_words(folder: StudyFolder) -> str:
    """What was asked in a line, in words: the prices, the tokens, the limits."""
    load, tokens = folder.study["workload"], "several workloads"
    if load:
        prompt, output = load["prompt_tokens"], load["output_tokens"]
        tokens = f"{prompt:,} prompt and {output:,} output tokens a request"
    basis: str = folder.study["price"]["basis"]
    limited = ", ".join(map(_limit, folder.study["constraints"])) or "no limits"
    return f"{capital(BASES.get(basis) or basis)}; {tokens}; {limited}."


def _limit(one: Json) -> str:
    if one["limit"] is None:
        return one["text"]
    of = f" of {one['workload']}" if one.get("workload") else ""
    side = "at least" if one["sign"] < 0 else "at most"
    return f"{label(one['metric']).text}{of} {side} {show(one['metric'], one['limit'])}"


def _figure(folder: StudyFolder, marked: Sequence[Marked]) -> Figure:
    """The front in two objectives, chips told apart, with the marks and the published models."""
    x, y = folder.axes()
    if x == y:
        y = next(m for m in ("tpot_s", "ttft_s", "usd_per_million_total_tokens") if m != x)
    of = (x, y)
    drawn = thin(folder, DRAWN["drawn_points"])
    models = [one for one in folder.study.get("landmarks") or () if one["metrics"]]
    marks = [_at(item["metrics"], of) for _, item, _ in marked]
    axes = [
        _axis(
            metric,
            [_at(item["metrics"], of)[k] for item in folder.items],
            [mark[k] for mark in marks],
            [_at(one["metrics"], of)[k] for one in models],
            {o["metric"]: o for o in folder.objectives}.get(metric, {}),
        )
        for k, metric in enumerate(of)
    ]

    def inside(point: Point) -> bool:
        ends = zip(point, axes, strict=True)
        return all(axis["ends"][0] <= value <= axis["ends"][1] for value, axis in ends)

    shown = [one for one in models if inside(_at(one["metrics"], of))]
    data = [_chip(folder, k, chip, drawn, of) for k, chip in enumerate(_chips(folder))]
    if shown:
        data.append(
            _points("published", [_at(one["metrics"], of) for one in shown], of)
            | {
                "marker": {"symbol": "diamond-tall", "size": 10, "color": "ink"},
                "hovertext": [plain(landmark_words(folder, one)) for one in shown],
                "meta": [plain(one["name"]) for one in shown],
            }
        )
    looks = (("ink", 21, marked[1:]), (VERMILION, 27, marked[:1]))
    data += [_numbered(folder, some, of, colour, size) for colour, size, some in looks if some]
    layout = {
        name: {key: value for key, value in axis.items() if key != "ends"}
        for name, axis in zip(("xaxis", "yaxis"), axes, strict=True)
    }
    outside = sum(not inside(_at(item["metrics"], of)) for item in folder.items)
    absent = [one["name"] for one in models if one not in shown]
    shows = " ".join(filter(None, (_shows(folder, outside, absent), _undrawn(folder, shown, of))))
    return Figure("opening-plot", "", {"data": data, "layout": layout | {"meta": "named"}}, shows)


def _numbered(
    folder: StudyFolder, marked: Sequence[Marked], of: Axes, colour: str, size: int
) -> dict[str, Any]:
    """The decisions as numbers on discs."""
    return _points("decisions", [_at(item["metrics"], of) for _, item, _ in marked], of) | {
        "mode": "markers+text",
        "text": [mark for mark, *_ in marked],
        "textfont": {"size": 12, "color": "paper"},
        "marker": {"symbol": "circle", "size": size, "color": colour},
        "showlegend": False,
        "customdata": [item["point"] for _, item, _ in marked],
        "hovertext": [_hover(folder, item) for _, item, _ in marked],
        "cliponaxis": False,
    }


def _shows(folder: StudyFolder, outside: int, absent: Sequence[str]) -> str:
    known = folder.study.get("landmarks") or ()
    several = "all objectives together" if folder.objectives[1:] else "the objective"
    said = f"Each mark is a design that no other beats in {several}; numbers are the decisions."
    if known:
        by = label(known[0]["best_in"]).text
        said += (
            f" Diamonds: published models by the same laws, blind to data and post-training, each "
            f"where its {by} is least."
        )
    if outside or absent:
        parts = [f"{outside} designs"] * bool(outside) + list(absent)
        said += f" Outside the picture: {', '.join(parts)}."
    return said


def _undrawn(folder: StudyFolder, models: Sequence[Json], of: Axes) -> str:
    """What the picture does not show, and the published models that look better for it."""
    hidden = [m for m in folder.wanted if m not in of]
    if not hidden:
        return ""
    start = folder.start.metrics
    better = [
        f"{' and '.join(show(m, one['metrics'].get(m)) for m in hidden)} for {one['name']}"
        for one in models
        if all((one["metrics"].get(m) or math.inf) <= start[m] for m in of)
    ]
    names = listed([label(m).text for m in hidden])
    seen = f" (published: {listed(better[:MOST_AHEAD])})" if better else ""
    return f"Not drawn: {names}, in which a mark that looks beaten may win{seen}."


def _at(metrics: Json, of: Axes) -> Point:
    """A point of the picture in SI; NaN where a metric does not apply."""
    known = (metrics.get(of[0]), metrics.get(of[1]))
    first, second = (math.nan if value is None else float(value) for value in known)
    return first, second


def _axis(
    metric: str,
    values: Sequence[float],
    marks: Sequence[float],
    models: Sequence[float],
    objective: Json,
) -> dict[str, Any]:
    """The axis of a metric over all marks, all but the ends of the front, and the published models
    that are near; `ends` in SI."""
    known = sorted(value for value in values if not math.isnan(value))
    cut = int(EDGE * len(known))
    kept = [*known[cut : len(known) - cut], *(mark for mark in marks if not math.isnan(mark))]
    low, high = min(kept), max(kept)
    log = bool(objective.get("log")) and low > 0 and high / low > 3
    turn, back = (math.log10, lambda value: 10.0**value) if log else (float, float)
    far = NEAR * (turn(high) - turn(low))
    near = [m for m in models if m > 0 and turn(low) - far <= turn(m) <= turn(high) + far]
    low, high = min(low, *near, high), max(high, *near, low)
    wide = MARGIN * (turn(high) - turn(low)) or MARGIN * abs(turn(high)) or 1.0
    ends = [back(turn(low) - wide), back(turn(high) + wide)]
    scale = label(metric).scale
    title = axis_title(metric, objective.get("direction"))
    return {
        "ends": ends,
        "title": {"text": plain(title)},
        "range": [turn(scale * end) for end in ends],
        **({"type": "log", "tickformat": "~g", "dtick": "D2"} if log else {}),
        **({"dtick": 1} if log and high / low > 100 else {}),
    }


def _chips(folder: StudyFolder) -> list[str]:
    return list(dict.fromkeys(_system(folder, item) for item in folder.items))


def _chip(
    folder: StudyFolder, k: int, chip: str, drawn: Sequence[Json], of: Axes
) -> dict[str, Any]:
    mine = [item for item in drawn if _system(folder, item) == chip]
    look = {"symbol": SYMBOLS[k % len(SYMBOLS)], "color": PALETTE[k % len(PALETTE)]}
    return _points(chip, [_at(item["metrics"], of) for item in mine], of) | {
        "customdata": [item["point"] for item in mine],
        "hovertext": [f"point {item['point']}" for item in mine],
        "marker": {**look, "size": 6, "opacity": 0.75},
    }


def _points(name: str, points: Sequence[Point], of: Axes) -> dict[str, Any]:
    x, y = (
        [None if math.isnan(p[k]) else float(f"{label(of[k]).scale * p[k]:.5g}") for p in points]
        for k in (0, 1)
    )
    drawn = {"type": "scatter", "mode": "markers", "name": plain(name), "x": x, "y": y}
    return drawn | {"hoverinfo": "text"}


def _hover(folder: StudyFolder, item: Json) -> str:
    values = [f"{label(m).text}: {show(m, item['metrics'][m])}" for m in folder.wanted]
    design = f"point {item['point']}: {brief_shape(item)}"
    return "<br>".join(plain(text) for text in (design, *values))
