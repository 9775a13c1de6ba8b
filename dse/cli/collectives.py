"""dse hardware collectives: what collectives cost on a fabric."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import Whole, json_option, read_catalog
from dse.cli.printing import print_json, print_table, say

SIZES = ("32 KiB", "1 MiB", "128 MiB")


@click.command("collectives")
@click.argument("chip")
@click.option("--system", metavar="ID", help="Another system of hardware/systems than the chip's.")
@click.option("--chips", type=Whole(2, 8192), default=64, help="Chips of the group.")
@click.option(
    "--bytes", "sizes", multiple=True, metavar="SIZE", default=SIZES, help="Size of a message."
)
@click.option("--against", metavar="CHIP", help="Another chip, to compare with.")
@click.option("--against-system", metavar="ID", help="Its system, where it is not the chip's own.")
@click.option(
    "--top-k", type=Whole(1, 1024), default=8, help="Experts of a token, in expert all-to-all."
)
@click.option("--hidden-size", type=Whole(1, 1_000_000), default=7168, help="Numbers of a token.")
@click.option("--jitter", metavar="TIME", help="Mean delay of each participant, such as 10us.")
@click.option("--jitter-distribution", metavar="NAME", help="exponential, normal or pareto.")
@click.option("--measured", is_flag=True, help="The model beside every all-reduce measured here.")
@json_option
def command(
    chip: str,
    system: str | None,
    chips: int,
    sizes: tuple[str, ...],
    against: str | None,
    against_system: str | None,
    top_k: int,
    hidden_size: int,
    jitter: str | None,
    jitter_distribution: str | None,
    measured: bool,
    as_json: bool,
) -> None:
    """Time, algorithm and bus bandwidth of every collective over a group of chips.

    \b
    dse hardware collectives gb200_nvl72 --chips 64 --against b200_sxm
    dse hardware collectives b200_sxm --system hgx_b200_efa --measured
    """
    from dse import units
    from dse.cli.options import refuse
    from dse.errors import InputError
    from dse.questions.estimate.ask import jitter_of
    from dse.questions.scale.collectives import (
        Route,
        against_measured,
        collectives,
        measured_ratios,
    )

    catalog, chip = read_catalog().with_chip(chip)
    if against is not None:
        catalog, against = catalog.with_chip(against)
    if measured:
        refuse(("chips", "sizes", "against", "against_system", "jitter"), "--measured")
        rows = against_measured(catalog, chip, system or catalog.chip(chip).system)
        if not rows:
            raise InputError(f"no measured all-reduce of {chip}", accepted="without --measured")
        _print_measured(rows, as_json)
        return
    if against_system is not None and against is None:
        raise InputError("--against is missing", accepted="--against CHIP --against-system ID")
    bytes_ = [_size(units.parse(text, "bytes", field="--bytes"), text) for text in sizes]
    waits = jitter_of(jitter, jitter_distribution)
    route = Route(top_k, hidden_size)
    answers = [
        collectives(catalog, name, its_system, chips, bytes_, route, waits)
        for name, its_system in ((chip, system), (against, against_system))
        if name is not None
    ]
    for answer in answers:
        rows = against_measured(catalog, answer["chip"], answer["system"])
        answer["measured_ratios"] = measured_ratios(rows, bytes_)
    if as_json:
        first, *others = answers
        print_json({**first, **({"against": others[0]} if others else {})})
        return
    _print(answers, top_k, hidden_size)


def _size(value: float, text: str) -> float:
    from dse.errors import InputError

    if not 1 <= value <= 1e15:
        raise InputError(f"read {text!r}", field="--bytes", accepted="1 B to 1 PB")
    return value


def _label(size: float) -> str:
    """Whole binary units where it is some, as message sizes are written."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        count = size / 1024**power
        if count >= 1 and count.is_integer():
            return f"{count:,.0f} {unit}"
    from dse import units

    return units.format(size, "bytes")


def _print(answers: list[dict[str, Any]], top_k: int, hidden_size: int) -> None:
    from dse import units
    from dse.questions.scale.collectives import TITLES

    for answer in answers:
        count = answer["domains"]
        levels = "; ".join(
            f"{level['name']}: {level['topology'].replace('_', ' ')}" for level in answer["levels"]
        )
        domains = "one scale-up domain" if count == 1 else f"{count} scale-up domains"
        heading = f"{answer['chip']} on {answer['system']}: {answer['chips']} chips in {domains}"
        say(f"{heading} ({levels})")
        print_table(
            ("message", "collective", "time", "GB/s", "kind", "algorithm"),
            [
                (
                    _label(message["bytes"]) if k == 0 else "",
                    TITLES[one["collective"]],
                    units.format(one["seconds"], "s"),
                    f"{one['bus_bytes_per_s'] / 1e9:.1f}",
                    one["kind"],
                    one["algorithm"],
                )
                for message in answer["messages"]
                for k, one in enumerate(message["collectives"])
            ],
            right=(2, 3),
        )
    if len(answers) == 2:
        _print_ratios(answers)
    for answer in answers:
        _print_measured_ratios(answer)
    say(
        "GB/s: bus bandwidth, what a chip sends in a ring over the time. fitted: to kernels of "
        "this chip; derived: to those of another, or of another network; extrapolated: closed "
        "forms beyond the measured groups; measured: the algorithm of the kernels that were "
        "measured; as elsewhere: that of the chips that the law is taken from. Gathers were "
        "measured with NCCL, all-reduces with kernels of serving software, which take fewer "
        "steps. Message: of an all-reduce what each chip has, of a gather what it ends up with, "
        f"of an all-to-all what it sends. Expert all-to-all: tokens of {hidden_size:,} 8-bit "
        f"numbers to {top_k} experts each, from 128 tokens a chip on one copy a domain.",
        "  ",
    )


def _print_ratios(answers: list[dict[str, Any]]) -> None:
    from dse.questions.scale.collectives import TITLES

    first, second = answers
    count = first["chips"]
    click.echo(f"Time of {second['chip']} over that of {first['chip']}, {count} chips each:")
    print_table(
        ("collective", *(_label(message["bytes"]) for message in first["messages"])),
        [
            (
                title,
                *(
                    f"{_seconds(theirs, name) / _seconds(ours, name):.1f}x"
                    for ours, theirs in zip(first["messages"], second["messages"], strict=True)
                ),
            )
            for name, title in TITLES.items()
        ],
        right=range(1, len(first["messages"]) + 1),
    )


def _seconds(message: dict[str, Any], name: str) -> float:
    return next(one["seconds"] for one in message["collectives"] if one["collective"] == name)


def _print_measured_ratios(answer: dict[str, Any]) -> None:
    rows = answer["measured_ratios"]
    if not rows:
        return
    few, many = rows[0]["chips"]
    click.echo(
        f"Measured on {answer['chip']}, {answer['system']}: bus bandwidth of an all-reduce over "
        f"{few} chips over that of {many}"
    )
    print_table(
        ("message", "measured", "model", "note"),
        [
            (
                _label(row["bytes"]),
                f"{row['measured']:.1f}x",
                f"{row['predicted']:.1f}x",
                row["note"],
            )
            for row in rows
        ],
        right=(1, 2),
    )


def _print_measured(rows: list[dict[str, Any]], as_json: bool) -> None:
    from dse import units

    if as_json:
        print_json(rows)
        return
    print_table(
        ("chips", "message", "measured", "model", "model / measured", "software, note"),
        [
            (
                str(row["chips"]),
                _label(row["bytes"]),
                units.format(row["seconds"], "s"),
                units.format(row["predicted_s"], "s"),
                f"{row['predicted_s'] / row['seconds']:.2f}",
                "; ".join(text for text in (row["software"], row["note"]) if text),
            )
            for row in rows
        ],
        right=(0, 2, 3, 4),
    )
    launch = sorted({units.format(row["launch_s"], "s") for row in rows if row["launch_s"]})
    if launch:
        say(
            f"The model has {', '.join(launch)} added for the launch from Python that this "
            "benchmark has in every message: what small messages in one box take beyond the fitted "
            "kernels, which run inside CUDA graphs.",
            "  ",
        )
