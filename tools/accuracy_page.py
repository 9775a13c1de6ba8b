"""The scores as a Markdown page with pictures: `python -m tools.accuracy_page docs/accuracy.md`.

`accuracy_page.md` beside this file is the page without its tables.

Predicted against measured as a small SVG picture, for pages without scripts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import escape as in_svg

from dse.accuracy.measurements import predict, shipped
from dse.accuracy.validate import validate
from dse.answer.answer import Answer, Table
from dse.answer.numbers import tenths
from dse.answer.plots import PALETTE
from dse.render.markdown import escape, table
from dse.vocabulary import find, quantity
from tools.written import filled, write_page

# What the tables by chip, model and software show: a column each.
SHOWN = (
    ("tpot_s", "continuous"),
    ("ttft_s", "continuous"),
    ("output_tokens_per_s", "offline"),
    ("tokens_per_s_per_chip", "pretrain"),
)


def page(answer: Answer, command: str, drawn: Sequence[str]) -> str:
    """`answer` is that of `dse.validate(cross_validate=True)`, `drawn` the pictures beside it."""
    tables = {one.name: "\n".join(_lines(one)) for one in answer.tables}
    scores = next(one for one in answer.tables if one.name == "scores")
    meanings = (quantity(column.key) for column in scores.columns[2:])
    return filled(
        __file__,
        tables
        | {by: "\n".join(_by(answer.document["scores"], by)) for by in ("chip", "model", "backend")}
        | {
            "command": command,
            "sentences": "\n".join(f"- {escape(s)}" for s in (answer.headline, *answer.sentences)),
            "columns": escape(". ".join(f"{row.short}: {row.meaning}" for row in meanings)) + ".",
            "pictures": "\n".join(f"![{escape(name)}]({name})" for name in drawn),
        },
    )


def _lines(one: Table) -> list[str]:
    whole = replace(one, shown=())
    return table(whole.titles, whole.texts())


def _by(scores: Sequence[Mapping[str, Any]], by: str) -> list[str]:
    """A row a chip, model or software: the error of each metric that is SHOWN."""
    found = {
        (item["key"], item["metric"], item["serving"]): tenths(item["group_median_error"])
        for item in scores
        if item["by"] == by and (item["metric"], item["serving"]) in SHOWN
    }
    keys = sorted({key for key, _, _ in found})
    rows = [(key, *(found.get((key, *shown), "–") for shown in SHOWN)) for key in keys]
    return table((by, *map(" ".join, SHOWN)), rows)


def main(path: Path) -> None:
    """Scores of the shipped rows, held-out ones among them, as `path` and pictures beside it."""
    answer = validate(cross_validate=True, progress=lambda text: print(text, file=sys.stderr))
    rows = pd.concat(map(predict, shipped()))
    drawn = pictures(answer.document["scores"], rows[rows["status"] == "ok"], path.stem)
    text = page(answer, f"python -m tools.accuracy_page {path}", list(drawn))
    write_page(path, text, drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]))


SIDE, LEFT, TOP, BELOW = 420, 62, 46, 48  # pixels: plot, and what is around it
BAND = 0.2
ENOUGH_ROWS = 100  # fewer rows are better read in a table


UNITS = {"mfu": "of the peak", "chip_hours": "hours"}  # of others s, FLOP/s or tokens/s


def pictures(
    scores: Sequence[Mapping[str, Any]], scored: pd.DataFrame, stem: str
) -> dict[str, str]:
    """`STEM-METRIC-SERVING.svg` -> SVG for each score over ENOUGH_ROWS rows or more."""
    found = {}
    for item in scores:
        if item["by"] == "all" and item["rows"] >= ENOUGH_ROWS:
            metric, serving = item["metric"], item["serving"]
            rows = scored[(scored["metric"] == metric) & (scored["serving"] == serving)]
            found[f"{stem}-{metric}-{serving}.svg"] = scatter_svg(rows, metric, serving)
    return found


def scatter_svg(rows: pd.DataFrame, metric: str, serving: str) -> str:
    """One dot a row on equal logarithmic axes, the line where a prediction is exact, and the band
    within 20% of the measured value; one colour a chip."""
    row, rate = find(metric), "FLOP/s" if "flops" in metric else "tokens/s"
    name = row.title if row else metric.replace("_", " ")
    unit = UNITS.get(metric, rate if "_per_s" in metric else "s")
    values = np.log10(rows[["value", "predicted"]].to_numpy(dtype=float))
    low, high = values.min() - 0.1, values.max() + 0.1

    def x(log: float) -> float:
        return LEFT + SIDE * (log - low) / (high - low)

    def y(log: float) -> float:
        return TOP + SIDE * (high - log) / (high - low)

    lower, upper = np.log10(1 - BAND), np.log10(1 + BAND)
    corners = [(low, low + lower), (high, high + lower), (high, high + upper), (low, low + upper)]
    band = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SIDE + 130}" '
        f'height="{TOP + SIDE + BELOW}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{name}, {serving} '
        f"serving, {len(rows):,} rows</text>",
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>'
        "</clipPath>",
    ]
    for tick in _ticks(low, high):
        at = np.log10(tick)
        parts.append(
            f'<path d="M{x(at):.1f} {TOP}v{SIDE}M{LEFT} {y(at):.1f}h{SIDE}" stroke="#dfe4e9"/>'
            f'<text x="{x(at):.1f}" y="{TOP + SIDE + 16}" text-anchor="middle">{tick:g}</text>'
            f'<text x="{LEFT - 6}" y="{y(at) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    parts.append(
        f'<g clip-path="url(#plot)"><polygon points="{band}" fill="#56b4e9" fill-opacity=".25"/>'
        f'<path d="M{x(low):.1f} {y(low):.1f}L{x(high):.1f} {y(high):.1f}" stroke="#16202b"/></g>'
    )
    chips = rows["chip"].value_counts().index
    for k, chip in enumerate(chips):
        colour = PALETTE[k % len(PALETTE)]
        dots = "".join(
            f"M{x(a):.1f} {y(b):.1f}h0" for a, b in values[(rows["chip"] == chip).to_numpy()]
        )
        level = TOP + 12 + 18 * k
        parts.append(
            f'<path d="{dots}M{LEFT + SIDE + 16} {level}h0" stroke="{colour}" stroke-width="4" '
            'stroke-linecap="round" stroke-opacity=".7"/>'
            f'<text x="{LEFT + SIDE + 24}" y="{level + 4}">{in_svg(chip)}</text>'
        )
    parts += [
        f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 38}" text-anchor="middle">measured '
        f"({unit}); band: within 20%</text>",
        f'<text transform="translate(14 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">'
        f"predicted ({unit})</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade, or whole decades where those are many."""
    steps = (1.0,) if high - low > 3.0 else (1.0, 2.0, 5.0)
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if low <= np.log10(tick) <= high]
