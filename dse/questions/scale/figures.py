"""The pictures of `dse scale`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Figure
from dse.answer.numbers import plain as plain_number
from dse.answer.numbers import share, time
from dse.answer.palette import PALETTE, SYMBOLS, plain
from dse.questions.scale.answer import Scaled
from dse.questions.scale.words import chips_words, division

DASHES = ("solid", "dash")  # of the first and the second chip


def figures(answers: Sequence[Scaled]) -> list[Figure]:
    """The pictures in the order of the page; a dense model has none of experts, limits that nothing
    meets none of cost."""
    domains = " and ".join(f"{chips_words(a.subject.domain)} ({a.subject.chip})" for a in answers)
    ends = f"A dashed line ends the scale-up domain: {domains}."
    made = [
        Figure(
            "latency",
            "Latency of one user",
            latency_figure(answers),
            "Time per output token of one user against the chips of one instance. Each point is "
            f"the best of all legal ways to divide an instance of that size. {ends} Lines join "
            "powers of two and whole domains; small marks are the other sizes that divide it.",
        )
    ]
    if any(row.within for answer in answers for row in answer.sizes):
        made.append(
            Figure(
                "cost",
                "Cost within the limits",
                cost_figure(answers),
                f"The lowest cost within the limits against the chips of one instance. {ends}",
            )
        )
    made += [
        Figure(
            "network",
            "Share of the network",
            network_figure(answers),
            f"The network's share of the decode step against the chips of one instance. {ends}",
        ),
        Figure(
            "jitter-plot",
            "Largest useful collective against jitter",
            jitter_figure(answers),
            "Chips of the largest useful collective, and of the fastest instance, against the "
            "jitter of each member.",
        ),
    ]
    if any(answer.experts for answer in answers):
        made.append(
            Figure(
                "experts-plot",
                "Experts over more chips",
                expert_figure(answers),
                "The decode step, and its all-to-alls, against the chips that share the experts. "
                f"{ends}",
            )
        )
    return made


def latency_figure(answers: Sequence[Scaled]) -> dict[str, Any]:
    """Lowest time per output token of one user against the chips of the instance, with its 80%
    interval where one chip is shown; the ceiling as a ring."""
    traces, seen = [], []
    for k, answer in enumerate(answers):
        found = [(row.chips, row.single) for row in answer.sizes if row.single]
        seen += [1e3 * p.tpot_s for _, p in found]
        own = _sized(
            k, answer, [size for size, _ in found], [1e3 * p.tpot_s for _, p in found],
            [
                f"{size} chips, {division(p)}: {time(p.tpot_s)} a token, bound by "
                f"{p.bound}, {share(p.network_share)} network"
                for size, p in found
            ],
        )  # fmt: skip
        if len(answers) == 1:
            own.insert(0, _band(found))
        traces += own
        if answer.ceiling.chips is not None and answer.ceiling.tpot_s is not None:
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "x": [answer.ceiling.chips],
                    "y": [1e3 * answer.ceiling.tpot_s], "name": "ceiling", "legendgroup": "ceiling",
                    "showlegend": k == 0,
                    "marker": {"symbol": "circle-open", "size": 22, "color": "ink",
                               "line": {"width": 2}},
                    "hoverinfo": "text",
                    "hovertext": [
                        plain(f"ceiling of {answer.subject.chip}: {answer.ceiling.chips} chips")
                    ],
                }
            )  # fmt: skip
    return {"data": traces, "layout": _layout(answers, "one user, ms per output token", seen)}


def _band(found: list[tuple[int, Any]]) -> dict[str, Any]:
    """The 80% interval around the time per output token."""
    sizes = [size for size, _ in found]
    low, high = ([1e3 * p.tpot_interval[end] for _, p in found] for end in (0, 1))
    return {
        "type": "scatter", "mode": "lines", "x": sizes + sizes[::-1], "y": low + high[::-1],
        "fill": "toself", "fillcolor": "rgba(86, 180, 233, 0.22)", "line": {"width": 0},
        "name": "80% interval", "hoverinfo": "skip",
    }  # fmt: skip


def cost_figure(answers: Sequence[Scaled]) -> dict[str, Any]:
    """Lowest cost within the limits against the chips of the instance; where a chip has no price,
    chip-seconds per thousand output tokens of every chip."""
    priced = all(
        row.within.usd_per_million_total_tokens is not None
        for answer in answers
        for row in answer.sizes
        if row.within
    )
    traces, seen = [], []
    for k, answer in enumerate(answers):
        found = [(row.chips, row.within) for row in answer.sizes if row.within]
        costs = [
            (p.usd_per_million_total_tokens or 0.0)
            if priced
            else 1e3 / p.output_tokens_per_s_per_chip
            for _, p in found
        ]
        seen += costs
        traces += _sized(
            k, answer, [size for size, _ in found], costs,
            [
                f"{size} chips, {division(p)}, {p.concurrency:,} in flight: "
                f"{plain_number(p.output_tokens_per_s_per_chip)} output tokens/s a chip, "
                f"{time(p.tpot_s)} a token"
                for size, p in found
            ],
        )  # fmt: skip
    title = "USD per million tokens" if priced else "chip-seconds per 1,000 output tokens"
    return {"data": traces, "layout": _layout(answers, title, seen)}


def network_figure(answers: Sequence[Scaled]) -> dict[str, Any]:
    """Share of the network in the decode step: one user, and the full load within the limits."""
    traces = []
    for k, answer in enumerate(answers):
        for name, dash, symbol in (("single", DASHES[k], 0), ("within", "dot", 1)):
            found = [(row.chips, getattr(row, name)) for row in answer.sizes]
            found = [(size, p) for size, p in found if p is not None and _joined(size, answer)]
            load = "one user" if name == "single" else "at the limits"
            line = _line(
                k, f"{answer.subject.chip}, {load}",
                [size for size, _ in found],
                [100 * p.network_share for _, p in found],
                [f"{size} chips, {load}: {share(p.network_share)}" for size, p in found],
            )  # fmt: skip
            line["line"]["dash"] = dash
            line["marker"]["symbol"] = SYMBOLS[2 * k + symbol]
            traces.append(line)
    layout = _layout(answers, "network in the decode step (%)", [1.0])
    layout["yaxis"] = {"title": layout["yaxis"]["title"], "rangemode": "tozero"}
    return {"data": traces, "layout": layout}


def expert_figure(answers: Sequence[Scaled]) -> dict[str, Any]:
    """The decode step against the chips that share the experts: all of it, and its all-to-alls."""
    traces = []
    for k, answer in enumerate(answers):
        rows = answer.experts
        parts = (
            ("step", DASHES[k], 0, [row.decode_step_s for row in rows]),
            ("all-to-all", "dot", 1, [row.all_to_all_s for row in rows]),
        )
        for name, dash, symbol, values in parts:
            known = [(row, value) for row, value in zip(rows, values, strict=True) if value > 0.0]
            line = _line(
                k, f"{answer.subject.chip}, {name}",
                [row.expert_parallel for row, _ in known],
                [1e3 * value for _, value in known],
                [
                    f"{row.expert_parallel} chips in {row.domains} domain"
                    f"{'s' * (row.domains > 1)}, {name}: {time(value)}"
                    f"{'' if row.fits else ' (does not fit the memory)'}"
                    for row, value in known
                ],
            )  # fmt: skip
            line["line"]["dash"] = dash
            line["marker"]["symbol"] = SYMBOLS[2 * k + symbol]
            traces.append(line)
    layout = _layout(answers, "decode step (ms)", [1.0, 100.0])
    layout["xaxis"]["title"] = {"text": "chips that share the experts"}
    return {"data": traces, "layout": layout}


def jitter_figure(answers: Sequence[Scaled]) -> dict[str, Any]:
    """Chips of the largest useful collective, and of the fastest instance, against jitter."""
    traces = []
    for k, answer in enumerate(answers):
        labels = [time(row.jitter_s) for row in answer.jitter]
        for name, dash, symbol, values in (
            ("collective", DASHES[k], 0, [row.group_chips for row in answer.jitter]),
            ("fastest instance", "dot", 1, [row.minimum_chips for row in answer.jitter]),
        ):
            line = _line(
                k, f"{answer.subject.chip}, {name}", labels, values,
                [f"jitter {at}: {name} at {value} chips"
                 for at, value in zip(labels, values, strict=True)],
            )  # fmt: skip
            line["line"] |= {"dash": dash}
            line["marker"]["symbol"] = SYMBOLS[2 * k + symbol]
            traces.append(line)
    labels = [time(row.jitter_s) for row in answers[0].jitter]
    layout = _layout(answers, "chips", [1.0])
    layout["shapes"] = []
    layout["xaxis"] = {
        "type": "category", "categoryorder": "array", "categoryarray": labels,
        "title": {"text": "jitter of each member of a collective"},
    }  # fmt: skip
    layout["yaxis"] |= _powers([row.minimum_chips for a in answers for row in a.jitter])
    return {"data": traces, "layout": layout}


def _line(k: int, name: str, x: list[Any], y: list[Any], hover: list[str]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "x": x, "y": y, "name": plain(name),
        "line": {"color": PALETTE[k], "width": 2, "dash": DASHES[k]},
        "marker": {"color": PALETTE[k], "size": 8, "symbol": SYMBOLS[k]},
        "hoverinfo": "text", "hovertext": [plain(text) for text in hover],
    }  # fmt: skip


def _powers(values: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis that names powers of two."""
    ticks = [2**k for k in range(max(values).bit_length() + 1)]
    return {"type": "log", "tickvals": ticks, "ticktext": [str(tick) for tick in ticks]}


def _sized(
    k: int, answer: Scaled, sizes: list[int], values: list[float], hover: list[str]
) -> list[dict[str, Any]]:
    """A line through powers of two and whole domains; other sizes as small marks, for what does not
    divide evenly jumps up and down."""
    joined = [i for i, size in enumerate(sizes) if _joined(size, answer)]
    other = [i for i, size in enumerate(sizes) if not _joined(size, answer)]

    def take(rows: list[int]) -> tuple[list[Any], list[Any], list[str]]:
        return [sizes[i] for i in rows], [values[i] for i in rows], [hover[i] for i in rows]

    line = _line(k, answer.subject.chip, *take(joined))
    marks = _line(k, f"{answer.subject.chip}, odd sizes", *take(other))
    marks |= {"mode": "markers", "showlegend": False}
    marks["marker"] = marks["marker"] | {"size": 6, "opacity": 0.45}
    return [line, marks] if other else [line]


def _joined(size: int, answer: Scaled) -> bool:
    return size & (size - 1) == 0 or size % answer.subject.domain == 0


def _layout(answers: Sequence[Scaled], title: str, values: Sequence[float]) -> dict[str, Any]:
    """Chips along the axis, and a line where the domain of each chip ends; `values` are what the
    other axis, logarithmic, has to show."""
    every = max(values) / min(values) < 8.0  # room for a label at each digit of a decade
    sizes = [row.chips for answer in answers for row in answer.sizes]
    ends = dict.fromkeys(
        answer.subject.domain for answer in answers if answer.subject.domain < max(sizes)
    )
    return {
        "height": 380,
        "xaxis": _powers(sizes) | {"title": {"text": "chips of one instance"}},
        "yaxis": {"type": "log", "title": {"text": title}, "dtick": "D1" if every else "D2",
                  "tickformat": "~g"},
        "hovermode": "closest",
        "shapes": [
            {
                "type": "line", "x0": domain, "x1": domain, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"color": "grid", "width": 2, "dash": "dash"}, "layer": "below",
            }
            for domain in ends
        ],
    }  # fmt: skip
