"""Several studies as one front: which study each point comes from, and what each study adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Block, Column, Figure, Notes, Section, Table, table_of
from dse.answer.labels import label
from dse.answer.numbers import percent, show
from dse.answer.plots import PALETTE, SYMBOLS, join, marks, metric_axis, plain, scaled
from dse.answer.sentences import listed
from dse.errors import InputError
from dse.pareto import REFERENCE, Scale, hypervolume, non_dominated
from dse.problem.mix import held, loads_of
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHAPE_KEY
from dse.questions.compare.prices import moved, price_pairs, prices_of
from dse.questions.compare.studies import (
    Side,
    changed_figures,
    cost_metric,
    design_words,
    refuse,
    same_law,
    same_workload,
    shape_of,
    side_of,
)
from dse.study.folder import read_study

Json = Mapping[str, Any]
SHOWN = 40  # rows of the front on the page; merged.csv has all


def merge(folders: Sequence[Path]) -> dict[str, Any]:
    """The document of `dse compare A B C --json`.

    `front` are the points of any study that no point of another, or of its own, beats: of equal
    ones that of the first study. `share` is a study's part of the hypervolume of the merged front,
    `adds` what that would lose without the study, as a share of it.

    Raises InputError for studies that cannot stand on one front: of other objectives, price bases,
    workloads or quality laws.
    """
    read = [read_study(folder) for folder in folders]
    studies = [study for study, _ in read]
    for folder, study in zip(folders[1:], studies[1:], strict=True):
        refuse(folders[0], folder, [studies[0], study])
        _refuse_unlike(folders[0], folder, studies[0], study)
    names = _names(folders)
    sides = [
        side_of(folder, name, study, items)
        for folder, name, (study, items) in zip(folders, names, read, strict=True)
    ]
    objectives = studies[0]["objectives"]
    union = np.concatenate([side.F for side in sides])
    owner = np.repeat(np.arange(len(sides)), [len(side.F) for side in sides])
    kept = np.flatnonzero(non_dominated(union))
    scale = Scale.of(union[kept], tuple(row["log"] for row in objectives))
    whole = hypervolume(union[kept], scale)
    items = [item for side in sides for item in side.items.values()]
    shaped = len({shape_of(item) for item in items}) > 1
    loaded = all(held(loads_of(study)) for study in studies)
    metrics = [row["metric"] for row in objectives]
    cost = cost_metric(objectives) or metrics[0]
    front = [
        {
            "study": names[owner[i]],
            "point": items[i]["point"],
            "chip": items[i]["deployment"]["chip"],
            "design": design_words(items[i], shaped, loaded),
            "metrics": {name: items[i]["metrics"][name] for name in metrics},
            "command": items[i].get("command"),
        }
        for i in kept
    ]
    front.sort(key=lambda row: row["metrics"][cost])
    rows = []
    for k, side in enumerate(sides):
        others = union[owner != k]
        without = hypervolume(others, scale) if len(others) else 0.0
        rows.append(
            {
                "name": side.name,
                "folder": str(side.folder),
                "space": side.study["space"],
                "chips": sorted({item["deployment"]["chip"] for item in side.items.values()}),
                "front": len(side.items),
                "kept": int((owner[kept] == k).sum()),
                "hypervolume": hypervolume(side.F, scale),
                "share": hypervolume(side.F, scale) / whole if whole > 0.0 else None,
                "adds": 1.0 - without / whole if whole > 0.0 else None,
            }
        )
    return {
        "title": f"{listed(names)}: one front",
        "studies": rows,
        "objectives": objectives,
        "price_basis": studies[0]["price_basis"],
        "hypervolume": whole,
        "reference_point": [REFERENCE] * len(objectives),
        "chosen": _chosen(front, objectives),
        "not_alike": _not_alike(sides),
        "front": front,
        "shaped": shaped,
        "held": loaded,
    }


def _refuse_unlike(a: Path, b: Path, one: Json, other: Json) -> None:
    """Raises InputError where a point of one could not be compared with one of the other."""
    if not same_workload(one, other, software=False):
        message = f"{a} and {b} serve different workloads"
        raise InputError(message, accepted="studies of one workload")
    of_loss = "predicted_loss" in [row["metric"] for row in one["objectives"]]
    models = [dict(study.get("definition") or {}).get("model") for study in (one, other)]
    if models[0] != models[1] and not of_loss:
        message = f"{a} serves {models[0] or 'searched shapes'}, {b} {models[1] or 'others'}"
        accepted = "studies of one model, or with predicted_loss among the objectives"
        raise InputError(message, accepted=accepted)
    if of_loss and not same_law(one, other):
        message = f"{a} and {b} predict the loss by different laws"
        raise InputError(message, accepted="studies of one quality law")


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, or their paths where two have the same."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _chosen(front: Sequence[Json], objectives: Sequence[Json]) -> list[dict[str, Any]]:
    """The best point of the front in each objective."""
    found = []
    for row in objectives:
        best = min if row["direction"] == "minimize" else max
        point = best(front, key=lambda one, row=row: one["metrics"][row["metric"]])
        found.append({"objective": row["metric"], **point})
    return found


def _not_alike(sides: Sequence[Side]) -> list[str]:
    """What else differs from the first study: the points differ by that, too."""
    first, said = sides[0], []
    limits = [{row["text"] for row in side.study["constraints"]} for side in sides]
    for side, own in zip(sides[1:], limits[1:], strict=True):
        if own != limits[0]:
            texts = ", ".join(sorted(own ^ limits[0]))
            said.append(f"Limits of {first.name} and {side.name} differ: {texts}.")
        pairs = price_pairs(prices_of(first.study), prices_of(side.study))
        if changed := [row["chip"] for row in moved(pairs) if row["ratio"]]:
            chips = ", ".join(changed)
            said.append(f"Prices of {chips} differ between {first.name} and {side.name}.")
        if figures := changed_figures(first.study, side.study):
            texts = ", ".join(figures[:4])
            said.append(f"Figures of {first.name} and {side.name} differ: {texts}.")
    return said


def merged_answer(document: dict[str, Any]) -> Answer:
    """The merged front in sentences, tables and pictures."""
    first, *rest = _sentences(document)
    front = _front_table(document)
    shown = Table(
        front.name,
        f"The merged front{'' if len(front.rows) <= SHOWN else f', {SHOWN} points spread over it'}",
        front.columns,
        [front.rows[i] for i in _spread(len(front.rows))],
        (
            f"Designs: {f'{SHAPE_KEY}; ' * document['shaped']}{DEPLOYMENT_KEY}"
            f"{HELD_KEY * document['held']}.",
        ),
        on_console=False,
    )
    blocks: list[Block] = [_study_table(document), _chosen_table(document), *_figures(document)]
    blocks.append(Section("The points", [shown], folded=True, on_console=False))
    if document["not_alike"]:
        blocks.append(Notes("What else differs", document["not_alike"]))
    return Answer(
        question="compare",
        title=document["title"],
        headline=first,
        sentences=rest,
        asked=f"{len(document['studies'])} studies; prices: {document['price_basis']}",
        blocks=blocks,
        document=document,
        data=(table_of("merged", _flat(document)),),
    )


def _sentences(document: Json) -> list[str]:
    studies = document["studies"]
    counts = ", ".join(f"{row['kept']:,} from {row['name']}" for row in studies)
    said = [f"The merged front has {len(document['front']):,} points: {counts}."]
    for row in document["chosen"]:
        metric = row["objective"]
        said.append(
            f"Best {label(metric).text}: {show(metric, row['metrics'][metric])}, point "
            f"{row['point']} of {row['study']} ({row['design']})."
        )
    idle = [row["name"] for row in studies if not row["kept"]]
    if idle:
        said.append(f"Nothing of {listed(idle)} is on it: other studies beat every point.")
    return said


def _study_table(document: Json) -> Table:
    columns = (
        Column("name", "study"),
        Column("chips", "chips", of=lambda row: ", ".join(row["chips"])),
        Column("front", "its front", "count"),
        Column("kept", "on the merged front", "count"),
        Column("share", "of the merged hypervolume", of=lambda row: _percent(row["share"])),
        Column("adds", "lost without it", of=lambda row: _percent(row["adds"])),
    )
    note = "Hypervolume: share of objective space that a front beats, scaled by the merged front."
    return Table.of("studies", "What each study adds", document["studies"], columns, notes=[note])


def _percent(share: float | None) -> str | None:
    return None if share is None else percent(share)


def _chosen_table(document: Json) -> Table:
    columns = (
        Column("best", "best", of=lambda row: label(row["objective"]).text),
        Column("study", "study"),
        Column("point", "point", "count"),
        *_metric_columns(document),
        Column("design", "design"),
    )
    rows = [{**row, **row["metrics"]} for row in document["chosen"]]
    return Table.of("chosen", "The ends of the merged front", rows, columns)


def _metric_columns(document: Json) -> list[Column]:
    names = [row["metric"] for row in document["objectives"]]
    return [Column(name, label(name).short, name, explain=label(name).text) for name in names]


def _front_table(document: Json) -> Table:
    columns = (
        Column("study", "study"),
        Column("point", "point", "count"),
        *_metric_columns(document),
        Column("design", "design"),
    )
    rows = [{**row, **row["metrics"]} for row in document["front"]]
    return Table.of("front", "The merged front", rows, columns)


def _flat(document: Json) -> list[dict[str, Any]]:
    kept = ("study", "point", "chip", "design", "command")
    return [{**{key: row[key] for key in kept}, **row["metrics"]} for row in document["front"]]


def _spread(n: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, SHOWN)).round()}) if n else []


def _figures(document: Json) -> list[Figure]:
    """The merged front in the cost and each other objective, a colour and mark for each study."""
    metrics = [row["metric"] for row in document["objectives"]]
    y = cost_metric(document["objectives"]) or metrics[0]
    return [
        _figure(f"merged-{k}", document, x, y)
        for k, x in enumerate(name for name in metrics if name != y)
    ]


def _figure(name: str, document: Json, x: str, y: str) -> Figure:
    sign = {
        row["metric"]: 1.0 if row["direction"] == "minimize" else -1.0
        for row in document["objectives"]
    }
    points = np.array([[sign[m] * row["metrics"][m] for m in (x, y)] for row in document["front"]])
    best = [document["front"][i] for i in np.flatnonzero(non_dominated(points))]
    best.sort(key=lambda row: row["metrics"][x])
    path = join(_values(best, x), _values(best, y))
    traces = [path | {"line": {**path["line"], "width": 1.5}}]
    for k, study in enumerate(document["studies"]):
        rows = [row for row in document["front"] if row["study"] == study["name"]]
        if not rows:
            continue
        hover = [
            f"{row['study']}, point {row['point']}: {show(y, row['metrics'][y])}, "
            f"{show(x, row['metrics'][x])}; {row['design']}"
            for row in rows
        ]
        trace = marks(k, study["name"], _values(rows, x), _values(rows, y), hover)
        trace["marker"] |= {"symbol": SYMBOLS[k % len(SYMBOLS)], "size": 8}
        trace |= {"name": plain(study["name"]), "showlegend": True}
        trace["marker"]["color"] = PALETTE[k % len(PALETTE)]
        traces.append(trace)
    log = {row["metric"]: row["log"] for row in document["objectives"]}
    axes = {
        key: metric_axis(metric, values if log[metric] and min(values) > 0.0 else ())
        for key, metric in (("x", x), ("y", y))
        for values in ([value for trace in traces for value in trace[key]],)
    }
    layout = {"height": 440, "showlegend": True, "xaxis": axes["x"], "yaxis": axes["y"]}
    title = f"{label(y).text} against {label(x).text}, by study"
    shows = (
        "Every point of the merged front; the line joins those that no other beats in these two."
    )
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


def _values(rows: Sequence[Json], metric: str) -> list[float]:
    return [value or 0.0 for value in scaled(metric, [row["metrics"][metric] for row in rows])]
