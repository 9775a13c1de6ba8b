"""Does the answer depend on the quality law? The front under each law, for page, text and console
(`laws` of study.json, `dse.study.laws`), and what one's own training runs say of it
(`loss_runs`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Notes, Section, Table
from dse.answer.labels import axis_title, label
from dse.answer.plots import BLUE, GREEN, ORANGE, VERMILION, plain, scaled
from dse.problem.own_law import own_law_words
from dse.questions.study.chosen import Json, StudyFolder
from dse.questions.study.explorer import thin

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


def laws_section(folder: StudyFolder) -> list[Section]:
    """The front under each quality law; nothing where the laws were not compared."""
    laws = folder.study.get("laws")
    if not laws:
        return []
    title = "Does the answer depend on the law?"
    if not laws["depends"]:
        return [Section(title, [], [f"No: {laws['why']}."], "laws")]
    how = Section(
        "How this was worked out, and the laws",
        [
            Notes(f"Searched: {laws['searched']}.", laws["definitions"]),
            Notes("Laws", [f"{row['law']}: {row['title']}" for row in laws["compared"]]),
        ],
        folded=True,
        on_console=False,
    )
    pictures = [_figure(folder, laws)] if len(folder.wanted) > 1 else []
    blocks = (*pictures, _regrets(laws), _fronts(folder, laws), how)
    return [Section(title, blocks, _sentences(laws, len(folder.items)), "laws")]


def _able(laws: Json) -> int:
    """Laws under which anything is feasible."""
    return sum(row["front_size"] > 0 for row in laws["compared"])


def _sentences(laws: Json, size: int) -> list[str]:
    count, everywhere = _able(laws), laws["on_every_front"]
    rest = "none depends on the law."
    if everywhere < size:
        rest = f"the place of the other {size - everywhere:,} depends on the law."
    said = [
        f"{everywhere:,} of the {size:,} designs of this front are on the front under each of "
        f"{count} law{'s' * (count > 1)}; {rest}"
    ]
    if empty := [row["law"] for row in laws["compared"] if not row["front_size"]]:
        said.append(f"Under {', '.join(empty)} no design meets the limits.")
    rows = {row["name"]: row for row in laws["chosen"]}
    if "robust" not in rows:
        return [*said, "No design of this front meets the limits under every law."]
    robust, knee = rows["robust"], rows.get("knee")
    fronts = robust["on_fronts"]
    where = "every law's front" if len(fronts) == count else f"the front of {', '.join(fronts)}"
    said.append(
        f"The robust choice is point {robust['point']}: under its worst law "
        f"({robust['worst_law']}) it gives away {robust['worst_regret']:.3f} of the front's range; "
        f"it is on {where}."
    )
    if knee is not None and knee["point"] == robust["point"]:
        said.append("It is also the knee of this front.")
    elif knee is not None and knee["worst_regret"] is not None:
        said.append(
            f"The knee of this front, point {knee['point']}, gives away "
            f"{knee['worst_regret']:.3f} under its worst law ({knee['worst_law']})."
        )
    return said


def _regrets(laws: Json) -> Table:
    """A row for each chosen point: its regret under each law."""

    def regret(value: float | None) -> str:
        return "infeasible" if value is None else f"{value:.3f}"

    def fronts(row: Json) -> str:
        all_of_them = len(row["on_fronts"]) == _able(laws)
        return "every law" if all_of_them else ", ".join(row["on_fronts"])

    names = [row["law"] for row in laws["compared"]]
    return Table.of(
        "regret",
        REGRET,
        laws["chosen"],
        (
            Column("name", "chosen as", of=lambda row: label(row["name"]).text),
            Column("point", "point", right=True),
            *(
                Column(
                    name, name, right=True, of=lambda row, name=name: regret(row["regret"][name])
                )
                for name in names
            ),
            Column("worst", "worst", right=True, of=lambda row: regret(row["worst_regret"])),
            Column("fronts", "on the front of", of=fronts),
        ),
        on_console=False,
    )


def _fronts(folder: StudyFolder, laws: Json) -> Table:
    """A row a law: its front, and the design that it would choose by itself."""

    def named(row: Json) -> str:
        own = row["law"] == folder.study["quality_law"]
        return f"{row['law']}{' (of this study)' if own else ''}"

    def shape(row: Json) -> str:
        knee = row["knee"]
        if knee is None:
            return "nothing feasible"
        where = f"point {knee['point']}" if knee["point"] else "not on this front"
        return f"{knee['shape']} ({where})"

    metrics = dict.fromkeys((*folder.wanted, "dense_equivalent_parameters"))
    return Table.of(
        "laws",
        OWN_FRONTS,
        laws["compared"],
        (
            Column("law", "law", of=named),
            Column("front_size", "on its front", "count"),
            Column("shared", "of them on this one", "count"),
            Column("shape", "its own compromise", of=shape),
            Column("on", "on", of=lambda row: (row["knee"] or {}).get("deployment")),
            *(
                Column(
                    m,
                    label(m).text,
                    m,
                    of=lambda row, m=m: row["knee"] and row["knee"]["metrics"][m],
                )
                for m in metrics
            ),
        ),
        on_console=False,
    )


def _figure(folder: StudyFolder, laws: Json) -> Figure:
    """The front in two objectives, each design by the laws on whose front it is."""
    x, y = folder.axes()
    count = _able(laws)
    logs = {o["metric"]: bool(o.get("log")) for o in folder.objectives}

    def marks(name: str, items: Sequence[Json], **marker: Any) -> dict[str, Any]:
        hover = [
            plain(f"point {item['point']}: {', '.join(item['laws']['on_fronts']) or 'no law'}")
            for item in items
        ]
        drawn = _points(name, [item["metrics"] for item in items], x, y, hover)
        return drawn | {"marker": marker, "showlegend": bool(items)}

    of_laws: dict[str, list[Json]] = {"every": [], "some": [], "one": []}
    for item in thin(folder, min(len(folder.items), DRAWN)):
        found = len(item["laws"]["on_fronts"])
        of_laws["every" if found == count else "some" if found > 1 else "one"].append(item)
    robust = [item for item in folder.items if item["point"] == laws["robust"]]
    ring = {"symbol": "circle-open", "size": 18, "color": "ink", "line": {"width": 2.5}}
    traces = [
        marks("on every law's front", of_laws["every"], color=BLUE, symbol="circle", size=7),
        marks("on the front of some laws", of_laws["some"], color=ORANGE, symbol="diamond", size=7),
        marks("under this study's law alone", of_laws["one"], color=VERMILION, symbol="x", size=7),
        _own_choices(laws, x, y),
        marks("robust choice", robust, **ring),
    ]
    axes = {
        f"{side}axis": {"title": {"text": axis_title(m)}, "type": "log" if logs[m] else "-"}
        for side, m in (("x", x), ("y", y))
    }
    shows = "The front, each design marked by the laws on whose front it is."
    return Figure("laws-plot", "", {"data": traces, "layout": {"height": HEIGHT_PX, **axes}}, shows)


def _own_choices(laws: Json, x: str, y: str) -> dict[str, Any]:
    """A star for each design that a law would choose, named by the laws that do."""
    found: dict[str, tuple[list[str], Json]] = {}
    for row in laws["compared"]:
        if knee := row["knee"]:
            what = f"{knee['shape']}, {knee['deployment']}"
            found.setdefault(what, ([], knee["own_metrics"]))[0].append(row["law"])
    order = sorted(found.items(), key=lambda one: one[1][1][x])
    names = [", ".join(laws) for _, (laws, _) in order]
    hover = [plain(f"{name}: {what}") for name, (what, _) in zip(names, order, strict=True)]
    rows = [metrics for _, (_, metrics) in order]
    # Names of neighbours do not cover each other.
    sides = [("top center", "bottom center")[k % 2] for k in range(len(order))]
    return _points("what each law would choose", rows, x, y, hover) | {
        "mode": "markers+text",
        "text": [plain(name) for name in names],
        "textposition": sides,
        "marker": {"symbol": "star", "size": 14, "color": GREEN},
    }


def _points(
    name: str, rows: Sequence[Json], x: str, y: str, hover: Sequence[str]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": scaled(x, [row[x] for row in rows]),
        "y": scaled(y, [row[y] for row in rows]),
        "hoverinfo": "text",
        "hovertext": list(hover),
    }


def loss_runs_section(folder: StudyFolder) -> list[Section]:
    """One section; nothing where the study has no runs."""
    runs = folder.study.get("loss_runs")
    if not runs:
        return []
    said = own_law_words(folder.study)
    return [Section("Your own training runs", [_runs_table(runs)], said, "loss-runs")]


def _runs_table(runs: Json) -> Table:
    def off(one: Json) -> str:
        return f"{one['loss'] - one['predicted_loss']:+.4f}"

    return Table.of(
        "loss-runs",
        "Runs of yours, nats per token",
        runs["runs"],
        (
            Column("name", "run"),
            Column("training_tokens", "tokens", "training_tokens"),
            Column("training_flops", "training", right=True, of=_training),
            Column("loss", "loss", "predicted_loss"),
            Column("published_loss", "law as published", "predicted_loss"),
            Column("predicted_loss", "law moved", "predicted_loss"),
            Column("off", "off by", right=True, of=off),
        ),
        on_console=False,
    )


def _training(one: Json) -> str:
    return _flop(one["training_flops"])


def _flop(flops: float) -> str:
    return f"{flops:.1e} FLOP".replace("e+", "e")
