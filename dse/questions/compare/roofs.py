"""Roofs of chips side by side, with the operators of a model under each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Figure
from dse.answer.numbers import significant, time
from dse.answer.palette import PALETTE, plain
from dse.answer.plots import marks
from dse.answer.roofline import PHASES, Operator, layout, operators_of
from dse.questions.compare.chips_words import estimated

LEAST_PX = 8
NEAR = 1.6  # a name goes below all marks within this factor of its intensity
DASHES = ("solid", "dash", "dot", "dashdot")
ROOF = (
    "A roof is the most that a chip can do: on its slope memory is the limit, on its flat part "
    "arithmetic."
)
OPERATORS = (
    "Each mark, in the colour of its chip, is an operator of the model. It grows with the "
    "operator's time, and lies as far below its roof as kernels, launches and links keep it. "
    "All-reduces and other operators without arithmetic are in the tables."
)


def roof_figures(document: Mapping[str, Any]) -> list[Figure]:
    """The operators of both phases under the roof of each chip; without a model, the roofs."""
    made = []
    for phase, *_ in PHASES:
        if drawn := roofline_of_chips(document, phase):
            title = f"Roofline: {phase}"
            shows = _left_out(
                f"{ROOF} {OPERATORS}", document, drawn, "The model cannot be estimated there."
            )
            made.append(Figure(f"roof-{phase}", title, drawn, shows))
    if not made and (drawn := roofs_alone(document)):
        shows = _left_out(
            f"{ROOF} Roofs are at the bf16 peak.",
            document,
            drawn,
            "It takes a bf16 peak and a memory bandwidth.",
        )
        made.append(Figure("roof-chips", "Rooflines at bf16", drawn, shows))
    return made


def _left_out(text: str, document: Mapping[str, Any], drawn: Mapping[str, Any], why: str) -> str:
    """`text`, and which chips have no roof."""
    known = {trace.get("name") for trace in drawn["data"]}
    missing = [chip["id"] for chip in document["chips"] if plain(chip["id"]) not in known]
    return f"{text} No roof: {', '.join(missing)}. {why}" if missing else text


def roofline_of_chips(document: Mapping[str, Any], phase: str) -> dict[str, Any] | None:
    """Intensity against TFLOP/s in one phase, a roof for each chip; None where no chip was
    estimated. Marks are operators and grow with their time."""
    found = []
    for k, chip in enumerate(chip["id"] for chip in document["chips"]):
        point = next((p for p in estimated(document) if p["chip"] == chip), None)
        if point is None:
            continue
        detail = {"breakdown": point["operators"], "hbm_bytes_per_s": point["hbm_bytes_per_s"]}
        mine = [o for o in operators_of(detail) if o.phase == phase]
        peak = max(row.get(f"{phase}_peak_flops_per_s") or 0.0 for row in point["operators"])
        if mine and peak:
            found.append((k, chip, point["hbm_bytes_per_s"], peak, mine))
    if not found:
        return None
    every = [o for *_, mine in found for o in mine]
    low = min(o.intensity for o in every) / 2
    ridges = [peak / bandwidth for _, _, bandwidth, peak, _ in found]
    high = 2 * max([o.intensity for o in every] + ridges)
    traces = []
    for k, chip, bandwidth, peak, mine in found:
        traces.append(_roof(k, chip, low, high, bandwidth, peak))
        traces.append(_marks(k, chip, mine))
    traces.append(_name([mine for *_, mine in found], low, high))
    return {"data": traces, "layout": layout(low, high, 460)}


def roofs_alone(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """A roof at the bf16 peak for each chip that has the figures; None where none has."""
    rows = [
        (k, chip["id"], chip["figures"]["memory_bandwidth"], chip["figures"].get("peak_bf16"))
        for k, chip in enumerate(document["chips"])
    ]
    known = [(k, c, band["value"], peak["value"]) for k, c, band, peak in rows if band and peak]
    if not known:
        return None
    ridges = [peak / band for _, _, band, peak in known]
    low, high = min(ridges) / 100, max(ridges) * 8
    traces = [_roof(k, chip, low, high, band, peak) for k, chip, band, peak in known]
    return {"data": traces, "layout": layout(low, high, 460)}


def _roof(
    k: int, chip: str, low: float, high: float, bandwidth: float, peak: float
) -> dict[str, Any]:
    words = f"{chip}: {significant(1e-12 * bandwidth)} TB/s, {significant(1e-12 * peak, 4)} TFLOP/s"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(chip),
        "x": [low, peak / bandwidth, high],
        "y": [1e-12 * low * bandwidth, 1e-12 * peak, 1e-12 * peak],
        "line": {"color": PALETTE[k % len(PALETTE)], "width": 2, "dash": DASHES[k % len(DASHES)]},
        "hoverinfo": "text",
        "hovertext": [plain(words)] * 3,
    }


def _name(chips: list[list[Operator]], low: float, high: float) -> dict[str, Any]:
    """The operator that takes most of the phase on the first chip, named below its marks."""
    longest = max(chips[0], key=lambda o: o.share)
    x = longest.intensity
    near = [o.achieved for mine in chips for o in mine if 1 / NEAR < o.intensity / x < NEAR]
    side = "left" if x > math.sqrt(low * high) else "right"
    return {
        "type": "scatter",
        "mode": "text",
        "x": [x],
        "y": [0.6e-12 * min(near)],
        "text": [plain(longest.name)],
        "showlegend": False,
        "textposition": f"bottom {side}",
        "textfont": {"size": 12},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _marks(k: int, chip: str, found: list[Operator]) -> dict[str, Any]:
    hover = [
        f"{chip}: {o.name}, {time(o.seconds)}, {o.share:.0%} of its phase; "
        f"{significant(o.intensity)} FLOP per byte, {o.achieved / o.attainable:.0%} of the roof; "
        f"bound by {o.bound}"
        for o in found
    ]
    trace = marks(k, chip, [o.intensity for o in found], [1e-12 * o.achieved for o in found], hover)
    trace["marker"] |= {
        "symbol": f"{trace['marker']['symbol']}-open",
        "size": [LEAST_PX + 16 * math.sqrt(o.share) for o in found],
        "line": {"width": 2},
    }
    return trace | {"showlegend": False}
