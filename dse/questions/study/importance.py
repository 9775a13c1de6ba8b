"""Which choices decide about each objective: a picture, a sentence and the numbers."""

from __future__ import annotations

from typing import Any

from dse.answer.answer import Column, Figure, Section, Table
from dse.answer.labels import label
from dse.answer.numbers import share
from dse.answer.palette import PALETTE, hatch, plain
from dse.answer.plots import bars, names_axis
from dse.problem.words import axis_words
from dse.questions.study.chosen import Json

TITLE = "Which choices matter"
MOST_SHOWN, LEAST_SHOWN = 12, 0.01
NAMED, WORTH_NAMING = 2, 0.1
HATCHES = ("", "/", "x", ".", "-")
BAR_PX, FRAME_PX = 13, 110
EVEN = ("qmc", "random")
ABOUT = (
    "The shares say by how much the values of a choice in the best tenth of {designs:,} designs "
    "differ from its values in all of them, for each objective alone ({method} of Optuna, "
    "arXiv:2304.10255); they add up to 100%. {drawn} A choice counts, too, where only some of its "
    "values leave room under the limits."
)
SAMPLE = (
    "These designs were drawn evenly over the space before any was evaluated, and meet every "
    "constraint."
)


def importance_section(study: Json) -> list[Section]:
    """Nothing for a study without `importance`."""
    found = study.get("importance")
    if not found:
        return []
    about = ABOUT.format(
        designs=found["designs"], method=found["method"], drawn=_drawn(found, study["engine"])
    )
    numbers = Section("The numbers", [_table(found["axes"])], folded=True)
    blocks = [_figure(found["axes"]), numbers]
    return [Section(TITLE, blocks, (sentence(found), about), "importance", on_console=False)]


def sentence(found: Json) -> str:
    """`What decides most about predicted loss: sparse (40%), hidden size (25%); about ...`"""
    parts = []
    for metric, axes in found["axes"].items():
        first, *others = list(axes.items())[:NAMED]
        named = [first, *(pair for pair in others if pair[1] >= WORTH_NAMING)]
        said = ", ".join(f"{axis_words(axis)} ({share(part)})" for axis, part in named)
        parts.append(f"about {label(metric).text}: {said}")
    return f"What decides most {'; '.join(parts)}."


def _drawn(found: Json, engine: str) -> str:
    if found["stage"] == "sample":
        return SAMPLE
    leans = "" if engine in EVEN else ", nearer to the best than an even draw would be"
    return f"These designs are what {engine} asked for{leans}; they meet every constraint."


def _ordered(axes: Json) -> list[str]:
    """Axes by the largest share that they have of an objective."""
    most: dict[str, float] = {}
    for shares in axes.values():
        for axis, part in shares.items():
            most[axis] = max(most.get(axis, 0.0), part)
    return sorted(most, key=lambda axis: -most[axis])


def _figure(axes: Json) -> Figure:
    """Bars to the right, one an objective for each axis, the most important axis on top."""
    top = [
        axis
        for axis in _ordered(axes)
        if max(shares.get(axis, 0.0) for shares in axes.values()) >= LEAST_SHOWN
    ][:MOST_SHOWN][::-1]
    names = [plain(axis_words(axis)) for axis in top]
    data: list[dict[str, Any]] = []
    for k, (metric, shares) in enumerate(axes.items()):
        text = label(metric).text
        trace = bars(text, [shares.get(axis, 0.0) for axis in top], names, "")
        look = {"color": PALETTE[k % len(PALETTE)], "pattern": hatch(HATCHES[k % len(HATCHES)])}
        hover = {"hovertemplate": f"%{{y}}, {plain(text)}: %{{x:.1%}}<extra></extra>"}
        data.insert(0, trace | {"marker": look, **hover})  # bars of a group are drawn upwards
    layout = {
        "barmode": "group",
        "height": FRAME_PX + (BAR_PX * len(axes) + 8) * len(top),
        "legend": {"traceorder": "reversed"},
        "xaxis": {"title": {"text": "importance"}, "tickformat": ".0%", "rangemode": "tozero"},
        "yaxis": names_axis(names),
    }
    shows = "How much each choice decides: a bar for each objective, longest on top."
    return Figure("importance-plot", "", {"data": data, "layout": layout}, shows)


def _table(axes: Json) -> Table:
    columns = [
        Column(
            metric,
            label(metric).short,
            "share",
            explain=label(metric).text,
            of=lambda axis, shares=shares: round(shares[axis], 3) if axis in shares else None,
        )
        for metric, shares in axes.items()
    ]
    choice = Column("choice", "choice", of=axis_words)
    return Table.of("importance", "Importance", _ordered(axes), (choice, *columns))
