"""The Answer of chips side by side: figures, prices, and a model's operators on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.answer import Answer, Cell, Column, Figure, Opening, Table, side_by_side, table_of
from dse.answer.glossary import GLOSSARY
from dse.answer.labels import label
from dse.answer.numbers import NONE, dollars, show, show_as
from dse.answer.plots import marks, metric_axis, scaled
from dse.answer.sentences import listed
from dse.problem.words import SHOWN, heading
from dse.questions.compare.chips import estimated, hypothetical_lines, lead
from dse.questions.compare.pictures import roof_figures

Json = Mapping[str, Any]
NAMES = {
    "memory_capacity": "memory",
    "memory_bandwidth": "memory bandwidth",
    "domain": "scale-up domain, chips",
    "topology": "its topology",
    "link": "scale-up link, per direction",
    "link_latency": "latency of a hop",
    "scale_out_bandwidth": "scale-out network",
    "tdp": "rated power",
    "system_power": "power with its share of the system",
}
RATIOS = {
    "ridge_flops_per_byte": "ridge at bf16, FLOP per byte",
    "usd_per_hour_per_tb_per_s": "$/h per TB/s",
    "usd_per_hour_per_pflop_per_s": "$/h per PFLOP/s at bf16",
    "usd_per_hour_per_tb": "$/h per TB of memory",
    "watts_per_tb_per_s": "W per TB/s",
}
MARKS = {"claimed": "c", "estimated": "e", "assumed": "a", "derived": "d", "fitted": "f"}
MARKS_KEY = (
    "(c) claimed, (e) estimated, (a) assumed, (d) derived; no mark: specified or measured. "
    "`dse catalog chips show` gives the source of each figure."
)
METRICS = (
    "ttft_s",
    "tpot_s",
    "prefill_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_user",
    "usd_per_million_total_tokens",
    "joules_per_output_token",
    "mfu",
    "mbu",
)
PRICE = "usd_per_million_total_tokens"
FEW = ("ttft_s", "tpot_s", PRICE, "joules_per_output_token")
WORDS = {
    "roof": "the most that a chip can do at an intensity: memory bandwidth times the intensity, "
    "up to its peak arithmetic",
    "ridge": "the intensity at which a roof bends: below it memory is the limit, above it "
    "arithmetic",
    "arithmetic intensity": "operations for each byte moved between memory and chip",
    "hypothetical": "made up from a known chip by changing figures; nobody makes it",
    "scale-up domain": "the chips that one fast fabric joins",
    "claimed": GLOSSARY["claimed"],
}


def chips_answer(document: dict[str, Any]) -> Answer:
    """`document` is that of `chips.compare_chips`."""
    ids = [chip["id"] for chip in document["chips"]]
    points, said = estimated(document), lead(document)
    asked = f"Prices: {document['price_basis']}"
    made = [_figure_table(document, ids)]
    if points:
        deployment = {**points[0]["deployment"], "chip": "each chip"}
        asked = "; ".join(heading({**points[0], **document, "deployment": deployment}))
        made += [
            _metric_table(points),
            _operator_table(points, "prefill", "Prefill of one prompt"),
            _operator_table(points, "decode", "Decode step"),
        ]
    drawn = roof_figures(document)
    first = Opening(asked, said[0], _speed(points), _few(points)) if drawn else None
    return Answer(
        question="compare",
        title=listed(ids),
        asked=asked,
        headline=said[0],
        sentences=[*said[1:], *hypothetical_lines(document)],
        blocks=(*drawn, *made),
        document=document,
        data=(
            table_of("data", [_data_row(chip, document["points"]) for chip in document["chips"]]),
        ),
        words=WORDS,
        opening=first,
        names={one["id"]: _maker(one) for one in document["chips"]},
    )


def _maker(chip: Json) -> str:
    """`hypothetical H100 SXM5 80GB`."""
    known = chip["name"].partition(" (")[0].removesuffix(", hypothetical")
    return f"hypothetical {known}" if chip["hypothetical"] else known


def _speed(points: Sequence[Json]) -> Figure:
    """Every feasible chip by what a token costs and takes; without prices by the time to the first
    one."""
    points = [point for point in points if point["feasible"]] or points
    priced = all(point["metrics"][PRICE] is not None for point in points)
    across, up = PRICE if priced else "ttft_s", "tpot_s"
    x, y = (scaled(name, [point["metrics"][name] for point in points]) for name in (across, up))
    data = [marks(k, point["chip"], [x[k]], [y[k]]) for k, point in enumerate(points)]
    layout = {"xaxis": metric_axis(across), "yaxis": metric_axis(up)}
    what = f"{label(across).text} and {label(up).text}"
    return Figure(
        "speed",
        f"{what[0].upper()}{what[1:]}",
        {"data": data, "layout": layout},
        f"Each mark is a chip, by {what}; lower is better in both.",
    )


def _few(points: Sequence[Json]) -> Table:
    columns = [Column("chip", "chip", of=_named)]
    columns += [Column(name, label(name).short, name, of=_metric(name)) for name in FEW]
    return Table.of("few", "", points, columns)


def _named(point: Json) -> str:
    return f"{point['chip']}{'' if point['feasible'] else ' (infeasible)'}"


def _metric(name: str) -> Callable[[Json], Cell]:
    return lambda point: point["metrics"][name]


def _titles(first: str, ids: Sequence[str]) -> dict[str, str]:
    return {"name": first, **{chip: chip for chip in ids}}


def _figure_table(document: Json, ids: Sequence[str]) -> Table:
    chips = document["chips"]
    names = list(dict.fromkeys(name for chip in chips for name in chip["figures"]))
    order = ["memory_capacity", "memory_bandwidth"]
    order += [name for name in names if name.startswith("peak_")]
    order += [name for name in names if name not in order]
    rows = [
        (NAMES.get(name, name.replace("_", " ")), [_figure(chip, name) for chip in chips])
        for name in order
    ]
    for basis in dict.fromkeys(basis for chip in chips for basis in chip["prices"]):
        cells = [_price(chip["prices"].get(basis)) for chip in chips]
        published = all(cell != NONE and not cell.endswith("(a)") for cell in cells)
        if basis == document["price_basis"] or published:
            rows.append((f"$/h {basis}", cells))
    for key, name in RATIOS.items():
        rows.append((name, [show_as("number", chip["ratios"][key]) for chip in chips]))
    laws = [
        "its own, measured" if chip["laws_of"] == chip["id"] else f"of {chip['laws_of']}"
        for chip in chips
    ]
    rows.append(("kernel efficiencies", laws))
    return side_by_side("figures", "Figures", _titles("figure", ids), rows, (MARKS_KEY,))


def _figure(chip: Json, name: str) -> str:
    figure = chip["figures"].get(name)
    if figure is None:
        return NONE
    text = figure["text"]
    if figure["value"] is not None:
        text = units.format(figure["value"], figure["unit"], 4)
    mark = MARKS.get(figure["kind"])
    return f"{text} ({mark})" if mark else text


def _price(price: Json | None) -> str:
    if price is None:
        return NONE
    return dollars(price["usd_per_chip_hour"]) + (" (a)" if price["kind"] == "assumed" else "")


def _metric_table(points: Sequence[Json]) -> Table:
    rows = [
        (SHOWN.get(name, name), [show(name, point["metrics"][name]) for point in points])
        for name in METRICS
    ]
    rows.append(("bound by", [point["bottleneck"] for point in points]))
    rows.append(("feasible", ["yes" if point["feasible"] else "no" for point in points]))
    titles = _titles("metric", [point["chip"] for point in points])
    return side_by_side("metrics", "The model on each chip", titles, rows)


def _operator_table(points: Sequence[Json], phase: str, caption: str) -> Table:
    """Time and bound of each operator, longest on the first chip first; last the sum."""
    tables = [{row["operator"]: row for row in point["operators"]} for point in points]
    key, bound = f"{phase}_s", "prefill_bound" if phase == "prefill" else "bound"

    def seconds(table: Json, name: str) -> float:
        return table[name][key] if name in table else 0.0

    def cell(table: Json, name: str) -> str:
        taken = seconds(table, name)
        return f"{show(key, taken)} {table[name][bound]}" if taken else NONE

    names = dict.fromkeys(name for table in tables for name in table)
    rows = [
        (name, [cell(table, name) for table in tables])
        for name in sorted(names, key=lambda name: -seconds(tables[0], name))
        if any(seconds(table, name) for table in tables)
    ]
    totals = [sum(seconds(table, name) for name in table) for table in tables]
    rows.append(("total", [show(key, total) for total in totals]))
    note = "Beside a time: what the operator waits for."
    titles = _titles("operator", [point["chip"] for point in points])
    return side_by_side(phase, caption, titles, rows, (note,))


def _data_row(chip: Json, points: Sequence[Json]) -> dict[str, Any]:
    """A chip's figures, ratios, prices and metrics in one row."""
    point = next((one for one in points if one["chip"] == chip["id"]), {"metrics": None})
    return {
        **{key: chip[key] for key in ("id", "name", "vendor")},
        "figure": {name: one and one["value"] for name, one in chip["figures"].items()},
        "ratio": chip["ratios"],
        "usd_per_chip_hour": {
            basis: one["usd_per_chip_hour"] for basis, one in chip["prices"].items()
        },
        "metric": point["metrics"] or {},
    }
