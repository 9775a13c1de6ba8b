"""What ends the scale-up domain of a rack: cables, power, cooling, weight, floor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse import units
from dse.answer.answer import Answer, Cell, Column, Table
from dse.problem.racks import rack_answer, stops_sentence
from dse.questions.catalog.chips import figure_row, figure_table
from dse.schema.rack import load_rack, resolve_rack

SIZES = (8, 16, 32, 64, 72, 96, 128, 144, 192, 256, 288, 384, 512, 576, 768, 1024, 1152)
BOUNDS = {
    "rack_cables": "cables",
    "rack_cable_reach": "reach",
    "rack_bend_radius": "bend",
    "rack_power": "power",
    "rack_cooling": "cooling",
    "rack_weight": "weight",
    "rack_floor_load": "floor",
    "rack_space": "space",
}
Json = Mapping[str, Any]


def rack_bounds(
    rack: str,
    *,
    chips: int | None = None,
    cable: str | None = None,
    racks: int | None = None,
    figures: bool = False,
) -> Answer:
    """The bounds of a rack, an id or the path of a rack file: by the size of the domain, of one
    size of `chips`, or (`figures`) every figure with its source. `cable` and `racks` change it.

    Raises InputError for a rack or a cable that does not exist."""
    spec = load_rack(resolve_rack(rack))
    spec = spec if cable is None else spec.with_cable(cable)
    spec = spec if racks is None else spec.with_racks(racks)
    sizes = [chips] if chips else sorted({*SIZES, spec.domain})
    answer = rack_answer(spec, sizes)
    rows = [figure_row(figure) for figure in spec.figures]
    table = _one_size(answer) if chips else _sizes(answer)
    if figures:
        table = figure_table(rows)
    said = "." if figures else f": dse catalog racks show {rack}"
    return Answer(
        question="rack",
        title=f"{answer['id']}: {answer['name']}",
        asked=_heading(answer),
        headline=f"The domain: {stops_sentence(answer['stops'])}",
        sentences=[
            *_sentences(answer),
            *(f"note: {text}" for text in answer["notes"]),
            f"{len(answer['assumed'])} of {len(rows)} figures are assumed{said}",
        ],
        blocks=[table],
        rests=[f"assumed: {text}" for text in spec.assumed] if figures else [],
        document={**answer, "figures": rows},
    )


def _heading(answer: Json) -> str:
    label = ", hypothetical" if answer["hypothetical"] else ""
    racks = answer["racks_per_domain"]
    cable = answer["cable"]
    return (
        f"{answer['id']}: {answer['name']}{label}; {answer['chip']}, a domain of "
        f"{answer['domain']} chips, {'one rack' if racks == 1 else f'up to {racks} racks'} a "
        f"domain, {cable.replace('_', ' ') + ' cables' if cable else 'no cables'}."
    )


def _sizes(answer: Json) -> Table:
    rows: list[dict[str, Cell]] = [
        {
            "chips": f"{row['chips']:,}{'*' if row['chips'] == answer['domain'] else ' '}",
            "racks": str(row["racks"]),
            **{name: _percent(row["use"][name]) for name in BOUNDS},
            "bound": "fits" if row["bound"] is None else row["bound"],
        }
        for row in answer["sizes"]
    ]
    last = {"alone": answer["alone"]}
    if (flat := answer["one_stage"]["alone"]) != answer["alone"]:
        last["1 stage"] = flat
    rows += [
        {"chips": name, "racks": "", "bound": "", **{one: _most(answer, m, one) for one in BOUNDS}}
        for name, m in last.items()
    ]
    flat_words = "; 1 stage: the same if one stage of switches joined any number."
    return Table(
        "sizes",
        "Use of each bound in percent of its limit",
        (
            Column("chips", "chips", right=True),
            Column("racks", "racks", right=True),
            *(Column(name, title, right=True) for name, title in BOUNDS.items()),
            Column("bound", "most broken"),
        ),
        rows,
        notes=(
            "*: the product's domain. alone: the largest domain that each bound would allow if "
            "there were no other" + (flat_words if len(last) > 1 else "."),
        ),
    )


def _one_size(answer: Json) -> Table:
    row = answer["sizes"][0]
    lines: list[dict[str, Cell]] = []
    for name, limit in answer["limits"].items():
        use = row["use"][name]
        used, most = (
            units.format(value, limit["unit"], 4)
            for value in (use * limit["value"], limit["value"])
        )
        lines.append(
            {
                "bound": name,
                "used": used,
                "limit": most,
                "percent": _percent(use),
                "alone": _most(answer, answer["alone"], name),
                "broken": "broken" * (use > 1.0),
            }
        )
    racks, stage = row["racks"], row["stages"]
    return Table(
        "bounds",
        f"{row['chips']:,} chips in {racks} rack{'s' * (racks > 1)}, "
        f"{stage} stage{'s' * (stage > 1)} of switches; whole trays of "
        f"{answer['chips_per_tray']}, evenly over {answer['racks_per_domain']}",
        (
            Column("bound", "bound"),
            Column("used", "used", right=True),
            Column("limit", "limit", right=True),
            Column("percent", "percent", right=True),
            Column("alone", "alone allows", right=True),
            Column("broken", ""),
        ),
        lines,
    )


def _percent(use: float | None) -> str | None:
    return None if use is None else f"{100 * use:,.0f}"


def _most(answer: Json, alone: Mapping[str, int | None], name: str) -> str | None:
    if name not in answer["limits"]:
        return None
    largest = alone[name]
    return "any" if largest is None else f"{largest:,}"


def _sentences(answer: Json) -> list[str]:
    """What would move the end of the domain."""
    lines = []
    if answer["next_breaks"]:
        broken = ", ".join(f"{name} ({100 * u:.0f}%)" for name, u in answer["next_breaks"].items())
        after = answer["largest"] + answer["chips_per_tray"]
        lines.append(f"{after:,} chips break {broken}.")
    if answer["racks_per_domain"] > 1:
        one = answer["one_rack"]
        lines.append(f"One rack holds {one['largest']:,} ({one['bound']} stops it there).")
    stage, beyond = answer["chips_per_stage"], answer["one_stage"]
    if stage is not None and beyond["largest"] > answer["largest"]:
        lines.append(
            f"One stage of switches joins {stage:g} chips, a second doubles the cables and triples "
            f"the switches. If one stage joined any number: {beyond['largest']:,} "
            f"({beyond['bound']})."
        )
    for row in answer["other_cables"]:
        kind = row["cable"].replace("_", " ")
        lines.append(f"With {kind} cables {stops_sentence(row['stops'])}")
    return lines
