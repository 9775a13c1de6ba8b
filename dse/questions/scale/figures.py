"""The pictures of `dse scale`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dse.answer.answer import Figure
from dse.answer.numbers import plain as plain_number
from dse.answer.numbers import share, time
from dse.answer.plots import SYMBOLS, decades, marks, upright
from dse.questions.scale.answer import Scaled
from dse.questions.scale.sizes import Point
from dse.questions.scale.words import chips_words, domains_words

Json = dict[str, Any]
# A mark of a line: chips (or what stands along the axis), value, text to show over it.
Mark = tuple[Any, float, str]
DASHES = ("solid", "dash")  # of the first and the second chip


def figures(answers: Sequence[Scaled]) -> list[Figure]:
    """The pictures in the order of the page; a dense model has none of experts, limits that nothing
    meets none of cost."""
    domains = " and ".join(f"{chips_words(a.subject.domain)} ({a.subject.chip})" for a in answers)
    ends = f"A dashed line ends the scale-up domain: {domains}."
    made = [_latency(answers, ends)]
    if any(row.within for answer in answers for row in answer.sizes):
        made.append(_cost(answers, ends))
    made += [_network(answers, ends), _jitter(answers)]
    if any(answer.experts for answer in answers):
        made.append(_experts(answers, ends))
    return made


def _latency(answers: Sequence[Scaled], ends: str) -> Figure:
    """Lowest time per output token of one user, with its 80% interval where one chip is shown; the
    ceiling as a ring."""
    traces, seen = [], []
    for k, answer in enumerate(answers):
        found = [(row.chips, row.single) for row in answer.sizes if row.single]
        if len(answers) == 1:
            traces.append(_band(found))
        points = [
            (
                size,
                1e3 * p.tpot_s,
                f"{size} chips, {p.division}: {time(p.tpot_s)} a token, bound by {p.bound}, "
                f"{share(p.network_share)} network",
            )
            for size, p in found
        ]
        traces += _sized(k, answer, points)
        seen += [value for _, value, _ in points]
        at = answer.ceiling
        if at.chips is not None and at.tpot_s is not None:
            over = f"ceiling of {answer.subject.chip}: {at.chips} chips"
            ring = marks(0, "ceiling", [at.chips], [1e3 * at.tpot_s], [over])
            ring["marker"] = {"symbol": "circle-open", "size": 22, "color": "ink"}
            ring["marker"]["line"] = {"width": 2}
            traces.append(ring | {"legendgroup": "ceiling", "showlegend": k == 0})
    return Figure(
        "latency",
        "Latency of one user",
        {"data": traces, "layout": _layout(answers, "one user, ms per output token", seen)},
        "Time per output token of one user against the chips of one instance. Each point is "
        f"the best of all legal ways to divide an instance of that size. {ends} Lines join "
        "powers of two and whole domains; small marks are the other sizes that divide it.",
    )


def _band(found: Sequence[tuple[int, Point]]) -> Json:
    """The 80% interval around the time per output token."""
    sizes = [size for size, _ in found]
    low, high = ([1e3 * p.tpot_interval[end] for _, p in found] for end in (0, 1))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": sizes + sizes[::-1],
        "y": low + high[::-1],
        "fill": "toself",
        "fillcolor": "rgba(86, 180, 233, 0.22)",
        "line": {"width": 0},
        "name": "80% interval",
        "hoverinfo": "skip",
    }


def _cost(answers: Sequence[Scaled], ends: str) -> Figure:
    """Lowest cost within the limits; where a chip has no price, chip-seconds per thousand output
    tokens of every chip."""
    found = [[(r.chips, r.within) for r in answer.sizes if r.within] for answer in answers]
    priced = all(p.usd_per_million_total_tokens is not None for rows in found for _, p in rows)
    traces, seen = [], []
    for k, answer in enumerate(answers):
        points = [
            (
                size,
                (p.usd_per_million_total_tokens or 0.0)
                if priced
                else 1e3 / p.output_tokens_per_s_per_chip,
                f"{size} chips, {p.division}, {p.concurrency:,} in flight: "
                f"{plain_number(p.output_tokens_per_s_per_chip)} output tokens/s a chip, "
                f"{time(p.tpot_s)} a token",
            )
            for size, p in found[k]
        ]
        traces += _sized(k, answer, points)
        seen += [value for _, value, _ in points]
    title = "USD per million tokens" if priced else "chip-seconds per 1,000 output tokens"
    return Figure(
        "cost",
        "Cost within the limits",
        {"data": traces, "layout": _layout(answers, title, seen)},
        f"The lowest cost within the limits against the chips of one instance. {ends}",
    )


def _network(answers: Sequence[Scaled], ends: str) -> Figure:
    """One user, and the full load within the limits."""
    traces = []
    for k, answer in enumerate(answers):
        for j, (name, load) in enumerate((("single", "one user"), ("within", "at the limits"))):
            found = [(row.chips, getattr(row, name)) for row in answer.sizes]
            points = [
                (size, 100 * p.network_share, f"{size} chips, {load}: {share(p.network_share)}")
                for size, p in found
                if p is not None and _joined(size, answer)
            ]
            traces.append(_line(k, answer, points, load, j))
    layout = _layout(answers, "network in the decode step (%)", [1.0])
    layout["yaxis"] = {"title": layout["yaxis"]["title"], "rangemode": "tozero"}
    return Figure(
        "network",
        "Share of the network",
        {"data": traces, "layout": layout},
        f"The network's share of the decode step against the chips of one instance. {ends}",
    )


def _experts(answers: Sequence[Scaled], ends: str) -> Figure:
    traces = []
    for k, answer in enumerate(answers):
        for j, name in enumerate(("step", "all-to-all")):
            points = [
                (
                    row.expert_parallel,
                    1e3 * value,
                    f"{row.expert_parallel} chips in {domains_words(row.domains)}, {name}: "
                    f"{time(value)}{'' if row.fits else ' (does not fit the memory)'}",
                )
                for row in answer.experts
                if (value := row.decode_step_s if name == "step" else row.all_to_all_s) > 0.0
            ]
            traces.append(_line(k, answer, points, name, j))
    layout = _layout(answers, "decode step (ms)", [1.0, 100.0])
    layout["xaxis"]["title"] = {"text": "chips that share the experts"}
    return Figure(
        "experts-plot",
        "Experts over more chips",
        {"data": traces, "layout": layout},
        "The decode step, and its all-to-alls, against the chips that share the experts. " + ends,
    )


def _jitter(answers: Sequence[Scaled]) -> Figure:
    traces = []
    for k, answer in enumerate(answers):
        loads = (("collective", "group_chips"), ("fastest instance", "minimum_chips"))
        for j, (name, of) in enumerate(loads):
            found = [(time(row.jitter_s), getattr(row, of)) for row in answer.jitter]
            points = [(at, n, f"jitter {at}: {name} at {n} chips") for at, n in found]
            traces.append(_line(k, answer, points, name, j))
    layout = _layout(answers, "chips", [1.0])
    layout["shapes"] = []
    layout["xaxis"] = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [time(row.jitter_s) for row in answers[0].jitter],
        "title": {"text": "jitter of each member of a collective"},
    }
    layout["yaxis"] |= _powers(row.minimum_chips for a in answers for row in a.jitter)
    return Figure(
        "jitter-plot",
        "Largest useful collective against jitter",
        {"data": traces, "layout": layout},
        "Chips of the largest useful collective, and of the fastest instance, against the jitter "
        "of each member.",
    )


def _line(k: int, answer: Scaled, points: Iterable[Mark], name: str = "", second: int = 0) -> Json:
    """Joined marks of the `k`th chip; its `second` line is dotted."""
    x, y, texts = ([*part] for part in zip(*points, strict=True)) if points else ([], [], [])
    title = f"{answer.subject.chip}, {name}" if name else answer.subject.chip
    made = marks(k, title, x, y, texts)
    mark = {**made["marker"], "size": 8, "symbol": SYMBOLS[2 * k + second if name else k]}
    line = {"color": mark["color"], "width": 2, "dash": "dot" if second else DASHES[k]}
    return {**made, "mode": "lines+markers", "marker": mark, "line": line}


def _sized(k: int, answer: Scaled, points: Sequence[Mark]) -> list[Json]:
    """A line through powers of two and whole domains; other sizes as small marks, for what does not
    divide evenly jumps up and down."""
    joined = [point for point in points if _joined(point[0], answer)]
    other = [point for point in points if not _joined(point[0], answer)]
    made = [_line(k, answer, joined)]
    if other:
        x, y, texts = zip(*other, strict=True)
        odd = marks(k, f"{answer.subject.chip}, odd sizes", x, y, texts)
        faint = {**odd["marker"], "size": 6, "opacity": 0.45, "symbol": SYMBOLS[k]}
        made.append({**odd, "marker": faint, "showlegend": False})
    return made


def _joined(size: int, answer: Scaled) -> bool:
    return size & (size - 1) == 0 or size % answer.subject.domain == 0


def _powers(values: Iterable[int]) -> Json:
    """A logarithmic axis that names powers of two."""
    ticks = [2**k for k in range(max(values).bit_length() + 1)]
    return {"type": "log", "tickvals": ticks, "ticktext": [str(tick) for tick in ticks]}


def _layout(answers: Sequence[Scaled], title: str, values: Sequence[float]) -> Json:
    """Chips along the axis, and a line where the domain of each chip ends; `values` are what the
    other axis, logarithmic, has to show."""
    sizes = [row.chips for answer in answers for row in answer.sizes]
    ends = dict.fromkeys(a.subject.domain for a in answers if a.subject.domain < max(sizes))
    return {
        "height": 380,
        "xaxis": _powers(sizes) | {"title": {"text": "chips of one instance"}},
        "yaxis": {"title": {"text": title}, **decades(values)},
        "hovermode": "closest",
        "shapes": [upright(domain) for domain in ends],
    }
