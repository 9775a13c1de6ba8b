"""Operators of the chosen points under the roof of their chip (Williams, Waterman and Patterson,
Communications of the ACM 52, 2009): attainable FLOP/s = min(peak, intensity * bandwidth)."""

from __future__ import annotations

import math
from typing import Any

from dse.answer.answer import Column, Figure, Section, Table
from dse.answer.labels import BOUND_NAMES
from dse.answer.numbers import significant, time
from dse.answer.palette import BLUE, plain
from dse.answer.roofline import PHASES, Operator, layout, operators_of
from dse.questions.study.figures import BOUND_COLOURS
from dse.questions.study.folder import Chosen, Json, StudyFolder
from dse.questions.study.words import capital

ABOUT = (
    "The roofline: how much arithmetic an operator does for each byte that it moves (its "
    "arithmetic intensity) sets the highest rate that the chip allows, which is the line. On the "
    "slope memory bandwidth is the limit, on the flat part arithmetic is. Each mark is an "
    "operator, larger where it takes more of its phase; its distance below the line is what the "
    "software loses. Circles are prefill, diamonds decode. Operators without arithmetic and those "
    "that wait for other chips are not here.",
)
NAMED = 2  # operators of a phase that are named in the picture, those that take most of its time
APART = 1.6  # their names overlap where their rates differ by less than this factor


def operators(chosen: Chosen) -> list[Operator]:
    """Every operator that computes, in both phases; empty where study.json holds no flops."""
    return operators_of(chosen.detail)


def roofs(chosen: Chosen) -> list[tuple[str, float]]:
    """(dtypes, dense peak in FLOP/s) of the arithmetic that the operators run on, lowest first."""
    used = sorted(
        {
            round(row[key], -9)
            for row in chosen.detail["breakdown"]
            for key in ("prefill_peak_flops_per_s", "decode_peak_flops_per_s")
            if row.get(key)
        }
    )
    peaks: Json = chosen.detail.get("peak_flops_per_s", {})
    return [
        ("/".join(d for d, p in peaks.items() if math.isclose(p, peak, rel_tol=1e-3)), peak)
        for peak in used
    ]


def roofline_figure(chosen: Chosen) -> dict[str, Any]:
    """Arithmetic intensity against achieved TFLOP/s, both logarithmic; marks grow with time."""
    found = operators(chosen)
    bandwidth = chosen.detail["hbm_bytes_per_s"]
    low = min(operator.intensity for operator in found) / 2
    traces: list[dict[str, Any]] = []
    peaks = roofs(chosen)
    high = max(*(operator.intensity for operator in found), *(p / bandwidth for _, p in peaks))
    end = 2 * high
    # Room right of the roofs for their names.
    edge = end * (end / low) ** 0.4
    for name, peak in peaks:
        ridge = peak / bandwidth
        traces.append(
            {
                "type": "scatter", "mode": "lines", "x": [low, ridge, end],
                "y": [1e-12 * low * bandwidth, 1e-12 * peak, 1e-12 * peak],
                "line": {"color": "ink", "width": 2}, "showlegend": False, "hoverinfo": "skip",
            }
        )  # fmt: skip
        traces.append(
            {
                "type": "scatter", "mode": "text", "x": [end], "y": [1e-12 * peak],
                "text": [plain(f"{name} {significant(1e-12 * peak)}")],
                "textposition": "middle right", "showlegend": False, "hoverinfo": "skip",
                "textfont": {"size": 11}, "cliponaxis": False,
            }
        )  # fmt: skip
    named = _named(found)
    for phase, _, symbol in PHASES:
        for bound, colour in BOUND_COLOURS.items():
            mine = [o for o in found if o.phase == phase and o.bound == bound]
            if mine:
                name = f"{phase}, {BOUND_NAMES[bound]}"
                traces.append(_marks(mine, named, name, symbol, colour))
    return {"data": traces, "layout": layout(low, edge, 440)}


def _named(found: list[Operator]) -> dict[Operator, str]:
    """Operators to name in a picture, each with the side of its mark that the name is on."""
    ends = [math.log(o.intensity) for o in found]
    last = min(ends) + 0.7 * (max(ends) - min(ends))
    named: dict[Operator, str] = {}
    for phase, *_ in PHASES:
        longest = sorted((o for o in found if o.phase == phase), key=lambda o: -o.share)
        for operator in longest[:NAMED]:
            ratios = (operator.achieved / other.achieved for other in named)
            if all(max(ratio, 1 / ratio) > APART for ratio in ratios):
                far = math.log(operator.intensity) > last
                named[operator] = "bottom center" if far else "bottom right"
    return named


def _marks(
    found: list[Operator], named: dict[Operator, str], name: str, symbol: str, colour: str
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers+text", "name": name,
        "x": [o.intensity for o in found], "y": [1e-12 * o.achieved for o in found],
        "text": [plain(o.name) if o in named else "" for o in found],
        "textposition": [named.get(o, "bottom left") for o in found],
        "textfont": {"size": 11}, "cliponaxis": False,
        "marker": {
            "symbol": symbol, "color": colour, "opacity": 0.9,
            "size": [7 + 22 * math.sqrt(o.share) for o in found],
            "line": {"color": BLUE if colour != BLUE else "#56B4E9", "width": 1},
        },
        "hoverinfo": "text",
        "hovertext": [
            plain(
                f"{o.name} ({o.phase}): {time(o.seconds)}, {o.share:.0%} of its phase"
            )
            + f"<br>{significant(o.intensity)} FLOP per byte"
            + f"<br>{significant(1e-12 * o.achieved)} TFLOP/s, "
            + f"{o.achieved / o.attainable:.0%} of the roof"
            for o in found
        ],
    }  # fmt: skip


def roofline_section(folder: StudyFolder) -> list[Section]:
    """A picture and a table for each chosen point whose operators are known."""
    known = [chosen for chosen in folder.chosen if operators(chosen)]
    if not known:
        return []
    drawn = [
        Figure(
            f"roof-{k}",
            f"{capital(one.under)} on {one.item['deployment']['chip']}",
            roofline_figure(one),
            "Arithmetic intensity against rate: each mark an operator, the line the roof.",
        )
        for k, one in enumerate(known)
    ]
    numbers = Section("The numbers", [roofline_table(one) for one in known], folded=True)
    return [
        Section(
            "Under the roof of the chip", (*drawn, numbers), ABOUT, "roofline", on_console=False
        )
    ]


def roofline_table(chosen: Chosen) -> Table:
    """Each operator in each phase, longest first."""
    return Table(
        f"roof-of-{chosen.item['point']}",
        capital(chosen.under),
        (
            Column("name", "operator"),
            Column("phase", "phase"),
            Column("seconds", "time", "time"),
            Column("intensity", "FLOP per byte", "rate"),
            Column("achieved", "TFLOP/s", "rate"),
            Column("attainable", "roof, TFLOP/s", "rate"),
            Column("of_roof", "share of the roof", "share"),
        ),
        [
            {
                "name": o.name,
                "phase": o.phase,
                "seconds": o.seconds,
                "intensity": o.intensity,
                "achieved": 1e-12 * o.achieved,
                "attainable": 1e-12 * o.attainable,
                "of_roof": o.achieved / o.attainable,
            }
            for o in sorted(operators(chosen), key=lambda o: (o.phase, -o.seconds))
        ],
    )
