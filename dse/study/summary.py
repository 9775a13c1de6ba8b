"""A study in brief: one sentence, the chosen points and a picture of the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.answer.answer import Answer, Column, Figure, Table
from dse.answer.palette import PALETTE, SYMBOLS, plain
from dse.problem.words import short_deployment, short_shape
from dse.schema.metrics import EVERY


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a front: its number, the shape as a config object, where it runs, its metrics (SI
    units) and the command that evaluates it again."""

    point: int
    names: tuple[str, ...]
    model: Mapping[str, Any]
    deployment: Mapping[str, Any]
    metrics: Mapping[str, Any]
    command: str


def summary_of(document: Mapping[str, Any], points: Sequence[Point]) -> Answer:
    """The points that have names, and all points by the first two objectives. `document` is that of
    study.json."""
    objectives = [str(row["metric"]) for row in document["objectives"]]
    chosen = [one for one in points if one.names]
    where = {"shape": [short_shape(one.model) for one in points]}
    shapes = (Column("shape", "shape"),) if len(set(where["shape"])) > 1 else ()
    table = Table(
        "chosen",
        f"The chosen points of {document['title']}",
        (
            Column("point", "point", right=True),
            Column("names", "chosen as"),
            *(Column(metric, EVERY[metric].short, metric) for metric in objectives),
            *shapes,
            Column("deployment", "deployment"),
        ),
        [
            {
                "point": one.point,
                "names": ", ".join(one.names),
                "shape": short_shape(one.model),
                "deployment": short_deployment(one.deployment),
                **{metric: one.metrics[metric] for metric in objectives},
            }
            for one in chosen
        ],
    )
    return Answer(
        question="study",
        title=str(document["title"]),
        headline=f"{document['title']}: {document['evaluations']:,} of {document['size']:,} "
        f"designs evaluated, {len(points):,} on the front; prices: {document['price_basis']}.",
        blocks=(*_front(objectives, points), table),
        document=document,
        command=str(document.get("command") or ""),
    )


def _front(objectives: Sequence[str], points: Sequence[Point]) -> list[Figure]:
    """The front by two objectives, a colour a chip; none of a study with one objective."""
    if len(objectives) < 2 or not points:
        return []
    x, y = objectives[:2]
    chips = sorted({str(one.deployment["chip"]) for one in points})
    traces = []
    for k, chip in enumerate(chips):
        there = [one for one in points if one.deployment["chip"] == chip]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(chip),
                "x": [one.metrics[x] for one in there],
                "y": [one.metrics[y] for one in there],
                "text": [plain(f"point {one.point} {' '.join(one.names)}") for one in there],
                "marker": {
                    "color": PALETTE[k % len(PALETTE)],
                    "symbol": SYMBOLS[k % len(SYMBOLS)],
                },
            }
        )
    layout = {"height": 420, "xaxis": _axis(x), "yaxis": _axis(y)}
    shows = f"Each point of the front by {EVERY[x].label} and {EVERY[y].label}, one colour a chip."
    return [Figure("front", "The front", {"data": traces, "layout": layout}, shows)]


def _axis(metric: str) -> dict[str, Any]:
    row = EVERY[metric]
    title = f"{row.label} ({row.dimension})"
    return {"title": {"text": title}, **({"type": "log"} if row.log else {})}
