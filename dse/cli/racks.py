"""dse hardware rack: what bounds the scale-up domain of a rack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import Whole, json_option
from dse.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    from dse.schema.rack import Rack

SIZES = (
    8, 16, 32, 64, 72, 96, 128, 144, 192, 256, 288, 384, 512, 576, 768, 1024, 1152,
)  # fmt: skip
COLUMNS = {
    "rack_cables": "cables", "rack_cable_reach": "reach", "rack_bend_radius": "bend",
    "rack_power": "power", "rack_cooling": "cooling", "rack_weight": "weight",
    "rack_floor_load": "floor", "rack_space": "space",
}  # fmt: skip


@click.command("rack")
@click.argument("rack", required=False)
@click.option("--chips", type=Whole(1, 16_384), help="A domain of so many chips, bound by bound.")
@click.option("--cable", help="With another cable of the rack: active_copper or optical.")
@click.option("--racks", type=Whole(1, 64), help="Domains of up to so many racks side by side.")
@click.option("--figures", is_flag=True, help="Every figure with its source instead.")
@json_option
def rack(
    rack: str | None,
    chips: int | None,
    cable: str | None,
    racks: int | None,
    figures: bool,
    as_json: bool,
) -> None:
    """What bounds the scale-up domain of a rack: cables, power, cooling, weight, floor.

    \b
    dse hardware rack                          the racks
    dse hardware rack gb200_nvl72              its bounds by the size of the domain
    dse hardware rack gb200_nvl72 --chips 144 --cable optical --racks 2

    RACK is an id, or the path of a rack file.
    """
    from dse.errors import InputError
    from dse.problem.racks import rack_answer
    from dse.schema.rack import load_rack, resolve_rack, shipped_racks

    if rack is None:
        asked = {"--chips": chips, "--cable": cable, "--racks": racks, "--figures": figures}
        for flag, value in asked.items():
            if value:
                raise InputError(
                    f"{flag} of which rack?", field="RACK", accepted=", ".join(shipped_racks())
                )
        _list([load_rack(path) for path in shipped_racks().values()], as_json)
        return
    spec = load_rack(resolve_rack(rack))
    spec = spec if cable is None else spec.with_cable(cable)
    spec = spec if racks is None else spec.with_racks(racks)
    sizes = [chips] if chips else sorted({*SIZES, spec.domain})
    answer = rack_answer(spec, sizes)
    if as_json:
        from dse.cli.hardware import figure_row

        print_json({**answer, "figures": [figure_row(figure) for figure in spec.figures]})
        return
    _heading(answer)
    if figures:
        from dse.cli.hardware import print_figures

        print_figures(spec.figures, ())
        for sentence in spec.assumed:
            say(f"assumed: {sentence}", "  ")
    elif chips:
        _one_size(answer)
    else:
        _print_sizes(answer)
    for sentence in _sentences(answer):
        say(sentence, "  ")
    for sentence in answer["notes"]:
        say(f"note: {sentence}", "  ")
    count = len(answer["assumed"])
    say(
        f"{count} of {len(spec.figures)} figures are assumed"
        + ("." if figures else f": dse hardware rack {rack} --figures"),
        "  ",
    )


def _list(racks: list[Rack], as_json: bool) -> None:
    """Every rack with its domain and where it ends."""
    from dse.problem.racks import rack_answer

    answers = [rack_answer(rack, [rack.domain]) for rack in racks]
    if as_json:
        print_json([{key: a[key] for key in _LISTED} for a in answers])
        return
    print_table(
        ("rack", "chip", "domain", "racks", "cable", "fits", "stopped by"),
        [
            (
                a["id"], a["chip"], str(a["domain"]), str(a["racks_per_domain"]), a["cable"] or "-",
                f"{a['largest']:,}", a["bound"] or "-",
            )
            for a in answers
        ],
        right=(2, 3, 5),
    )  # fmt: skip
    say(
        "domain: chips of the product's scale-up domain; racks: that one may take; fits: the "
        "largest domain within every bound, in whole trays; stopped by: the bound that the next "
        "tray breaks most. A dash: its links are a printed board.",
        "  ",
    )


_LISTED = (
    "id", "name", "hypothetical", "chip", "domain", "racks_per_domain", "cable", "largest", "bound",
)  # fmt: skip


def _heading(answer: dict[str, Any]) -> None:
    label = ", hypothetical" if answer["hypothetical"] else ""
    racks = answer["racks_per_domain"]
    cable = answer["cable"]
    say(
        f"{answer['id']}: {answer['name']}{label}; {answer['chip']}, a domain of "
        f"{answer['domain']} chips, {'one rack' if racks == 1 else f'up to {racks} racks'} a "
        f"domain, {cable.replace('_', ' ') + ' cables' if cable else 'no cables'}.",
        "  ",
    )


def _print_sizes(answer: dict[str, Any]) -> None:
    rows = [
        (
            f"{row['chips']:,}{'*' if row['chips'] == answer['domain'] else ' '}",
            str(row["racks"]),
            *(_percent(row["use"][name]) for name in COLUMNS),
            "fits" if row["bound"] is None else row["bound"],
        )
        for row in answer["sizes"]
    ]
    last = [("alone", "", *(_most(answer, answer["alone"], name) for name in COLUMNS), "")]
    flat = answer["one_stage"]["alone"]
    if flat != answer["alone"]:
        last.append(("1 stage", "", *(_most(answer, flat, name) for name in COLUMNS), ""))
    print_table(
        ("chips", "racks", *COLUMNS.values(), "most broken"),
        [*rows, *last],
        right=range(10),
    )
    say(
        "Use of each bound in percent of its limit. *: the product's domain. alone: the largest "
        "domain that each bound would allow if there were no other"
        + ("; 1 stage: the same if one stage of switches joined any number." * (len(last) > 1))
        + "." * (len(last) == 1),
        "  ",
    )


def _one_size(answer: dict[str, Any]) -> None:
    from dse import units

    row = answer["sizes"][0]
    lines = []
    for name, limit in answer["limits"].items():
        use = row["use"][name]
        used, at_most = (
            units.format(value, limit["unit"], 4)
            for value in (use * limit["value"], limit["value"])
        )
        lines.append(
            (
                name,
                used,
                at_most,
                _percent(use),
                _most(answer, answer["alone"], name),
                "broken" * (use > 1.0),
            )
        )
    print_table(
        ("bound", "used", "limit", "percent", "alone allows", ""), lines, right=(1, 2, 3, 4)
    )
    racks, stage = row["racks"], row["stages"]
    say(
        f"{row['chips']:,} chips in {racks} rack{'s' * (racks > 1)}, "
        f"{stage} stage{'s' * (stage > 1)} of switches; whole trays of "
        f"{answer['chips_per_tray']}, evenly over {answer['racks_per_domain']}.",
        "  ",
    )


def _percent(use: float | None) -> str:
    return "-" if use is None else f"{100 * use:,.0f}"


def _most(answer: dict[str, Any], alone: dict[str, int | None], name: str) -> str:
    if name not in answer["limits"]:
        return "-"
    largest = alone[name]
    return "any" if largest is None else f"{largest:,}"


def _sentences(answer: dict[str, Any]) -> list[str]:
    """Where the domain ends, and what would move that."""
    from dse.problem.racks import stops_sentence

    lines = [f"The domain: {stops_sentence(answer['stops'])}"]
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
