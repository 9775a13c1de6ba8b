"""The answer of `dse validate`: how far predictions are off, in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.targets import (
    BACKTEST_HEADER,
    TARGET_HEADER,
    backtest_rows,
    backtest_words,
    target_rows,
)
from dse.accuracy.words import (
    COLUMNS,
    HEADER,
    HELD_HEADER,
    NAMES,
    RIGHT,
    SPEED_HEADER,
    WORST_HEADER,
    held_out_rows,
    lead,
    score_row,
    speed_rows,
    speed_words,
    unit,
    worst_row,
)
from dse.answer.answer import Answer, Block, Cell, Column, Figure, Table
from dse.answer.plots import PALETTE, SYMBOLS, plain

WORST = 10
BY = {"chip": "By chip", "model": "By model", "backend": "By serving software"}
WORDS = {
    "group": "all rows of one model on one chip",
    "error": "|predicted / measured - 1|, as a percentage of the measured value",
    "median error": "half of the rows are off by less",
    "90th percentile": "nine of ten rows are off by less",
    "bias": "median of predicted / measured - 1: above 0, predicted too large",
    "rank correlation": "Spearman's: 1 where predictions put the rows in the measured order",
    "static": "serving one fixed batch from its first to its last token",
    "continuous": "serving a closed loop: so many requests are always in flight",
    "poisson": "serving requests that arrive at random moments, an open loop",
    "offline": "serving requests that are all queued at the start",
    "disaggregated": "one pool of chips reads prompts, another writes answers",
    "pretrain": "training from scratch",
    "sft": "training all weights on examples",
    "lora": "training low-rank adapters beside frozen weights",
    "held out": "predicted by a model whose constants were fitted without that row's group, chip "
    "or model",
    "backend": "the serving software",
}


def validate_answer(
    document: Mapping[str, Any], predicted: pd.DataFrame, data: str | None
) -> Answer:
    """`document` is that of `dse validate --json`, `predicted` the rows that it scores, `data` the
    user's own file."""
    found = dict(document)
    headline, *sentences = lead(found, data)
    worst = measurements.worst_groups(predicted)
    blocks: list[Block] = []
    overall = [item for item in found["scores"] if item["by"] == "all"]
    if overall:
        notes = [COLUMNS, *_small(overall, worst)]
        scores = map(score_row, overall)
        blocks.append(_table("scores", "Error by metric", HEADER, scores, RIGHT, notes))
    if "cross_validation" in found:
        caption = "Held out (fitted without what stands above the column), error by group"
        rows = held_out_rows(found)
        blocks.append(_table("held out", caption, HELD_HEADER, rows, range(2, len(HELD_HEADER))))
    if worst:
        rows, caption = map(worst_row, worst[:WORST]), "Worst groups with 5 rows or more"
        blocks.append(_table("worst", caption, WORST_HEADER, rows, (3, 4, 5)))
    if found["not_covered"]:
        columns = (Column("rows", "rows", "count"), Column("reason", "reason"))
        blocks.append(Table("not covered", "Not covered", columns, found["not_covered"]))
    blocks += _for_files(found, own=data is not None)
    backtest = found.get("backtest")
    bought = "Before the chip was measured (docs/accuracy.md, On the day of purchase): "
    return Answer(
        question="validate",
        title="Predictions against measurements",
        headline=headline,
        sentences=[*sentences, *speed_words(found)],
        blocks=[*figures(found["scores"], predicted), *blocks],
        words=WORDS,
        certainty=[bought + line for line in backtest_words(backtest)] if backtest else (),
        document=document,
    )


def _for_files(found: Mapping[str, Any], own: bool) -> list[Table]:
    """Tables that are too long for a console: targets, scores by chip, model and software, chips
    against each other, the day of purchase."""
    made: list[Table] = []
    if "cross_validation" in found and not own:
        made.append(
            _table("targets", "Targets", TARGET_HEADER, target_rows(dict(found)), (1, 2, 3))
        )
    for by, title in BY.items():
        rows = [
            (score_row(item)[0], item["serving"], item["key"], *score_row(item)[2:])
            for item in found["scores"]
            if item["by"] == by
        ]
        head = (*HEADER[:2], "rows of", *HEADER[2:])
        made.append(_table(by, title, head, rows, range(3, len(head))))
    made.append(
        _table("speed", "One chip against another", SPEED_HEADER, speed_rows(found), (2, 3, 4, 5))
    )
    if "backtest" in found:
        head = (*BACKTEST_HEADER[:-2], "its own laws", "its own laws in 80%")
        rows = backtest_rows(found["backtest"])
        made.append(_table("purchase", "On the day of purchase", head, rows, range(4, 13)))
    return [replace(table, on_console=False) for table in made if table.rows]


def _small(overall: Sequence[Mapping[str, Any]], worst: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which scores have no group of 5 rows."""
    large = {(one["metric"], one["serving"]) for one in worst}
    small = [
        f"{item['metric']} ({item['serving']})"
        for item in overall
        if (item["metric"], item["serving"]) not in large
    ]
    if not small:
        return []
    return [f"No group of {', '.join(small)} has 5 rows: theirs is over all groups."]


def _table(
    name: str,
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Sequence[int],
    notes: Sequence[str] = (),
) -> Table:
    columns = [Column(title, title, right=k in right) for k, title in enumerate(head)]
    cells: list[dict[str, Cell]] = [dict(zip(head, row, strict=True)) for row in rows]
    return Table(name, caption, columns, cells, notes)


BAND = 0.2
ENOUGH_ROWS = 100  # fewer rows are better read in a table
DRAWN_ROWS = 1_000  # in a picture, evenly thinned: a page stays below 6 MB


def figures(scores: Sequence[Mapping[str, Any]], predicted: pd.DataFrame) -> list[Figure]:
    """One for each score over ENOUGH_ROWS rows or more; all, where none has so many."""
    overall = [item for item in scores if item["by"] == "all"]
    large = [item for item in overall if item["rows"] >= ENOUGH_ROWS] or overall
    scored = predicted[predicted["status"] == "ok"]
    return [
        _figure(scored, item["metric"], item["serving"])
        for item in sorted(large, key=lambda item: -item["rows"])
    ]


def _figure(scored: pd.DataFrame, metric: str, serving: str) -> Figure:
    rows = scored[(scored["metric"] == metric) & (scored["serving"] == serving)]
    count = len(rows)
    rows = rows.iloc[np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))]
    ends = [float(rows["value"].min()), float(rows["value"].max())]
    lines = (("exact", 0.0, "solid"), ("20% off", BAND, "dot"), ("", -BAND, "dot"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": [end * (1.0 + off) for end in ends],
            "line": {"color": "ink", "width": 1, "dash": dash},
            "name": name,
            "showlegend": bool(name),
            "hoverinfo": "skip",
        }
        for name, off, dash in lines
    ]
    for k, chip in enumerate(rows["chip"].value_counts().index):
        mine = rows[rows["chip"] == chip]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(str(chip)),
                "x": [float(f"{value:.4g}") for value in mine["value"]],
                "y": [float(f"{value:.4g}") for value in mine["predicted"]],
                "text": [plain(f"{model} on {chip}") for model in mine["model"]],
                "marker": {
                    "color": PALETTE[k % len(PALETTE)],
                    "symbol": SYMBOLS[k // len(PALETTE) % len(SYMBOLS)],
                    "size": 6,
                    "opacity": 0.7,
                },
            }
        )
    name = f"{NAMES[metric]} ({serving})"
    layout = {
        "height": 520,
        "xaxis": {"title": {"text": f"measured, {unit(metric)}"}, "type": "log"},
        "yaxis": {"title": {"text": f"predicted, {unit(metric)}"}, "type": "log"},
    }
    return Figure(
        f"{metric}-{serving}",
        f"{name}: predicted against measured",
        {"data": data, "layout": layout},
        f"{count:,} rows, {len(rows):,} of them drawn, a colour for each chip. A prediction is "
        "exact on the line, and within 20% of the measured value between the dotted lines.",
    )
