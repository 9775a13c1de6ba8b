"""compare.html: chips side by side, and the operators of a model under the roof of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import significant, time
from dse.answer.palette import PALETTE, SYMBOLS, plain
from dse.files import write_json, write_text
from dse.problem.words import heading
from dse.questions.compare.chips_words import (
    MARKS_KEY,
    estimated,
    figure_rows,
    hypothetical_lines,
    lead,
    metric_rows,
    operator_rows,
)
from dse.questions.study.folder import Chosen
from dse.questions.study.roofline import PHASES, Operator, layout, operators
from dse.render.page import answer_page

PAGE, DATA = "compare.html", "compare.json"
LEAST_PX = 8
NEAR = 1.6  # a name goes below all marks within this factor of its intensity
WORDS = {
    "roof": "the most that a chip can do at an intensity: memory bandwidth times the intensity, "
    "up to its peak arithmetic",
    "ridge": "the intensity at which a roof bends: below it memory is the limit, above it "
    "arithmetic",
    "arithmetic intensity": "operations for each byte moved between memory and chip",
    "hypothetical": "made up from a known chip by changing figures; nobody makes it",
    "scale-up domain": "the chips that one fast fabric joins",
    **{
        word: GLOSSARY[word]
        for word in ("prefill", "decode", "claimed", "estimated", "assumed", "derived", "KV cache")
    },
}


def write_comparison(folder: Path, document: Mapping[str, Any]) -> Path:
    """Writes compare.html and compare.json into `folder`. Raises StorageError where they cannot be
    written."""
    write_json(folder, DATA, dict(document))
    write_text(folder, PAGE, comparison_page(document))
    return folder / PAGE


def comparison_page(document: Mapping[str, Any]) -> str:
    """The page as HTML; `document` is that of `dse hardware compare --json`."""
    ids = [chip["id"] for chip in document["chips"]]
    points = estimated(document)
    what = []
    if points:
        deployment = {**points[0]["deployment"], "chip": "each chip"}
        what = heading({**points[0], **document, "deployment": deployment})
    figures = {
        f"roof-{phase}": figure
        for phase, *_ in PHASES
        if (figure := roofline_of_chips(document, phase))
    }
    if not figures and (alone := roofs_alone(document)):
        figures = {"roof-chips": alone}
    drawn = {trace.get("name") for figure in figures.values() for trace in figure["data"]}
    return answer_page(
        "chips.html", WORDS,
        title=", ".join(ids[:-1]) + f" and {ids[-1]}" if len(ids) > 1 else ids[0],
        ids=ids,
        command=document.get("command"),
        hypothetical={chip["id"] for chip in document["chips"] if chip["hypothetical"]},
        lead=lead(document),
        made_up=hypothetical_lines(document),
        what=what,
        figures=list(figures),
        without_roof=[one for one in ids if plain(one) not in drawn],
        figure_rows=figure_rows(document),
        marks=MARKS_KEY,
        estimated=[point["chip"] for point in points],
        metric_rows=metric_rows(document) if points else [],
        operator_tables=[
            (title, operator_rows(document, phase))
            for phase, title in (("prefill", "Prefill of one prompt"), ("decode", "Decode step"))
        ]
        if points
        else [],
        plots=figures, script="chips.js",
    )  # fmt: skip


def roofline_of_chips(document: Mapping[str, Any], phase: str) -> dict[str, Any] | None:
    """Intensity against TFLOP/s in one phase, a roof for each chip; None where no chip was
    estimated. Marks are operators and grow with their time."""
    found = []
    for k, chip in enumerate(chip["id"] for chip in document["chips"]):
        point = next((p for p in estimated(document) if p["chip"] == chip), None)
        if point is None:
            continue
        detail = {"breakdown": point["operators"], "hbm_bytes_per_s": point["hbm_bytes_per_s"]}
        mine = [o for o in operators(Chosen((), {}, detail)) if o.phase == phase]
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
        "type": "scatter", "mode": "lines", "name": plain(chip),
        "x": [low, peak / bandwidth, high],
        "y": [1e-12 * low * bandwidth, 1e-12 * peak, 1e-12 * peak],
        "line": {"color": PALETTE[k % len(PALETTE)], "width": 2,
                 "dash": ("solid", "dash", "dot", "dashdot")[k % 4]},
        "hoverinfo": "text", "hovertext": [plain(words)] * 3,
    }  # fmt: skip


def _name(chips: list[list[Operator]], low: float, high: float) -> dict[str, Any]:
    """The operator that takes most of the phase on the first chip, named below its marks."""
    longest = max(chips[0], key=lambda o: o.share)
    x = longest.intensity
    near = [o.achieved for mine in chips for o in mine if 1 / NEAR < o.intensity / x < NEAR]
    side = "left" if x > math.sqrt(low * high) else "right"
    return {
        "type": "scatter", "mode": "text", "x": [x], "y": [0.6e-12 * min(near)],
        "text": [plain(longest.name)], "showlegend": False, "textposition": f"bottom {side}",
        "textfont": {"size": 12}, "hoverinfo": "skip", "cliponaxis": False,
    }  # fmt: skip


def _marks(k: int, chip: str, found: list[Operator]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": plain(chip), "showlegend": False,
        "x": [o.intensity for o in found], "y": [1e-12 * o.achieved for o in found],
        "marker": {
            "symbol": f"{SYMBOLS[k % len(SYMBOLS)]}-open", "color": PALETTE[k % len(PALETTE)],
            "size": [LEAST_PX + 16 * math.sqrt(o.share) for o in found], "line": {"width": 2},
        },
        "hoverinfo": "text",
        "hovertext": [
            plain(f"{chip}: {o.name}, {time(o.seconds)}, {o.share:.0%} of its phase")
            + f"<br>{significant(o.intensity)} FLOP per byte, "
            + f"{o.achieved / o.attainable:.0%} of the roof; bound by {plain(o.bound)}"
            for o in found
        ],
    }  # fmt: skip
