"""Does the answer depend on the quality law? The front under each law, for page, text and console
(`laws` of study.json, `dse.study.laws`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Block, Figure, Notes, Section, table_of_texts
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show
from dse.answer.palette import BLUE, GREEN, ORANGE, VERMILION, plain
from dse.questions.study.folder import Json, StudyFolder

REGRET = (
    "Regret of the points of the answer under each law: how much of the front's range a design "
    "gives away against what that law itself would choose"
)
OWN_FRONTS = (
    "Each law's own front, and the compromise that it would choose. Losses of different laws do "
    "not compare."
)
DRAWN = 1_500
HEIGHT_PX = 480


def law_sentences(study: Mapping[str, Any]) -> list[str]:
    """The answer in words; empty where the laws were not compared."""
    laws = study.get("laws")
    if not laws:
        return []
    if not laws["depends"]:
        return [f"No: {laws['why']}."]
    count, size = _fronts(laws), study["front_size"]
    everywhere = laws["on_every_front"]
    said = [
        f"{everywhere:,} of the {size:,} designs of this front are on the front under each of "
        f"{count} law{'s' * (count > 1)}; "
        + (
            f"the place of the other {size - everywhere:,} depends on the law."
            if everywhere < size
            else "none depends on the law."
        )
    ]
    if empty := [row["law"] for row in laws["compared"] if not row["front_size"]]:
        said.append(f"Under {', '.join(empty)} no design meets the limits.")
    rows = {row["name"]: row for row in laws["chosen"]}
    if "robust" not in rows:
        return [*said, "No design of this front meets the limits under every law."]
    robust, knee = rows["robust"], rows.get("knee")
    where = (
        "it is on every law's front"
        if len(robust["on_fronts"]) == count
        else f"it is on the front of {', '.join(robust['on_fronts'])}"
    )
    said.append(
        f"The robust choice is point {robust['point']}: under its worst law "
        f"({robust['worst_law']}) it gives away {robust['worst_regret']:.3f} of the front's range; "
        f"{where}."
    )
    if knee is not None and knee["point"] == robust["point"]:
        said.append("It is also the knee of this front.")
    elif knee is not None and knee["worst_regret"] is not None:
        said.append(
            f"The knee of this front, point {knee['point']}, gives away "
            f"{knee['worst_regret']:.3f} under its worst law ({knee['worst_law']})."
        )
    return said


def laws_section(folder: StudyFolder) -> list[Section]:
    """The front under each quality law; nothing where the laws were not compared."""
    study = folder.study
    said = law_sentences(study)
    if not said:
        return []
    blocks: list[Block] = [*law_figures(folder)]
    laws = study["laws"]
    if laws["depends"]:
        regret, own = regret_rows(folder), law_rows(folder)
        blocks += [
            table_of_texts("regret", REGRET, regret, (0, len(regret[0]) - 1)),
            table_of_texts("laws", OWN_FRONTS, own, (0, 3, 4)),
            Section(
                "How this was worked out, and the laws",
                [
                    Notes(f"Searched: {laws['searched']}.", laws["definitions"]),
                    Notes("Laws", [f"{row['law']}: {row['title']}" for row in laws["compared"]]),
                ],
                folded=True,
                on_console=False,
            ),
        ]
    title = "Does the answer depend on the law?"
    return [Section(title, blocks, about=said, name="laws")]


def _fronts(laws: Json) -> int:
    """Laws under which anything is feasible."""
    return sum(row["front_size"] > 0 for row in laws["compared"])


def law_rows(folder: StudyFolder) -> list[tuple[str, ...]]:
    """A head and a row a law: its front, and the design that it would choose by itself."""
    laws = folder.study.get("laws")
    if not laws or not laws["depends"]:
        return []
    objectives = [o["metric"] for o in folder.objectives]
    head = (
        "law", "on its front", "of them on this one", "its own compromise", "on",
        *(label(metric).text for metric in objectives), "dense-equivalent",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for row in laws["compared"]:
        knee = row["knee"]
        own = " (of this study)" if row["law"] == folder.study["quality_law"] else ""
        counts = (f"{row['law']}{own}", f"{row['front_size']:,}", f"{row['shared']:,}")
        if knee is None:
            rows.append((*counts, "nothing feasible", *("–",) * (len(head) - 4)))
            continue
        point = f" (point {knee['point']})" if knee["point"] else " (not on this front)"
        rows.append(
            (
                *counts,
                knee["shape"] + point,
                knee["deployment"],
                *(show(metric, knee["metrics"][metric]) for metric in objectives),
                show("dense_equivalent_parameters", knee["metrics"]["dense_equivalent_parameters"]),
            )
        )
    return rows


def regret_rows(folder: StudyFolder) -> list[tuple[str, ...]]:
    """A head and a row for each chosen point: its regret under each law."""
    laws = folder.study.get("laws")
    if not laws or not laws["depends"]:
        return []
    names = [row["law"] for row in laws["compared"]]
    rows = [("chosen as", "point", *names, "worst", "on the front of")]
    for row in laws["chosen"]:
        fronts = row["on_fronts"]
        rows.append(
            (
                label(row["name"]).text,
                str(row["point"]),
                *(_regret(row["regret"][name]) for name in names),
                _regret(row["worst_regret"]),
                "every law" if len(fronts) == _fronts(laws) else ", ".join(fronts),
            )
        )
    return rows


def law_figures(folder: StudyFolder) -> list[Figure]:
    """The front in two objectives, each design by the laws on whose front it is."""
    laws = folder.study.get("laws")
    if not laws or not laws["depends"] or len(folder.objectives) < 2:
        return []
    x, y = _axes(folder)
    count = _fronts(laws)
    step = max(1.0, len(folder.items) / DRAWN)
    items = [folder.items[int(i * step)] for i in range(min(len(folder.items), DRAWN))]
    groups = (
        ("on every law's front", BLUE, "circle", lambda fronts: fronts == count),
        ("on the front of some laws", ORANGE, "diamond", lambda fronts: 1 < fronts < count),
        ("under this study's law alone", VERMILION, "x", lambda fronts: fronts <= 1),
    )
    traces = [
        _marks([i for i in items if belongs(len(i["laws"]["on_fronts"]))], x, y)
        | {"name": name, "marker": {"color": colour, "symbol": symbol, "size": 7}}
        for name, colour, symbol, belongs in groups
    ]
    traces.append(_own_choices(laws, x, y))
    robust = [item for item in folder.items if item["point"] == laws["robust"]]
    traces.append(
        _marks(robust, x, y)
        | {
            "name": "robust choice",
            "marker": {"symbol": "circle-open", "size": 18, "color": "ink", "line": {"width": 2.5}},
        }
    )
    layout = {
        "height": HEIGHT_PX,
        "xaxis": {"title": {"text": axis_title(x)}, "type": _type(folder, x)},
        "yaxis": {"title": {"text": axis_title(y)}, "type": _type(folder, y)},
    }
    shows = "The front, each design marked by the laws on whose front it is."
    return [Figure("laws-plot", "", {"data": traces, "layout": layout}, shows)]


def _own_choices(laws: Json, x: str, y: str) -> dict[str, Any]:
    """A star for each design that a law would choose, named by the laws that do."""
    names: dict[str, list[str]] = {}
    knees: dict[str, Json] = {}
    for row in laws["compared"]:
        if knee := row["knee"]:
            what = f"{knee['shape']}, {knee['deployment']}"
            names.setdefault(what, []).append(row["law"])
            knees[what] = knee["own_metrics"]
    order = sorted(knees, key=lambda what: knees[what][x])
    return {
        "type": "scatter", "mode": "markers+text", "name": "what each law would choose",
        "x": [_scaled(x, knees[what][x]) for what in order],
        "y": [_scaled(y, knees[what][y]) for what in order],
        "text": [plain(", ".join(names[what])) for what in order],
        # Names of neighbours do not cover each other.
        "textposition": [("top center", "bottom center")[k % 2] for k in range(len(order))],
        "marker": {"symbol": "star", "size": 14, "color": GREEN},
        "hoverinfo": "text",
        "hovertext": [plain(f"{', '.join(names[what])}: {what}") for what in order],
    }  # fmt: skip


def _marks(items: list[Json], x: str, y: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers",
        "x": [_scaled(x, item["metrics"][x]) for item in items],
        "y": [_scaled(y, item["metrics"][y]) for item in items],
        "showlegend": bool(items),
        "hoverinfo": "text",
        "hovertext": [
            plain(f"point {item['point']}: {', '.join(item['laws']['on_fronts']) or 'no law'}")
            for item in items
        ],
    }  # fmt: skip


def _axes(folder: StudyFolder) -> tuple[str, str]:
    """Cost across where the study has one, and the predicted loss up where it is wanted."""
    metrics = [o["metric"] for o in folder.objectives]
    costs = [metric for metric in metrics if label(metric).kind == "usd/Mtoken"]
    x = costs[0] if costs else next(m for m in metrics if label(m).kind != "nats")
    rest = [metric for metric in metrics if metric != x]
    return x, next((metric for metric in rest if label(metric).kind == "nats"), rest[0])


def _type(folder: StudyFolder, metric: str) -> str:
    return "log" if any(o["metric"] == metric and o.get("log") for o in folder.objectives) else "-"


def _scaled(metric: str, value: float | None) -> float | None:
    return None if value is None else value * label(metric).scale


def _regret(value: float | None) -> str:
    return "infeasible" if value is None else f"{value:.3f}"
