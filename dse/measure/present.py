"""The answer of `dse calibrate`: what was reached, the laws, and what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from dse import units
from dse.answer.answer import Answer, Block, Column, Table
from dse.answer.numbers import show_as, time

Json = Mapping[str, Any]


def calibrated(document: Json) -> Answer:
    """`document` is that of `dse calibrate --json`."""
    run = document["provenance"]
    tables = (
        _reached(document),
        _laws(document["fits"]),
        _collectives(document["collectives"]),
        _penalties(document["penalties"]),
    )
    blocks: list[Block] = [table for table in tables if table.rows]
    return Answer(
        question="calibrate",
        title=f"Kernel laws of {document['id']}",
        headline=f"{document['id']}: {run['device']}, {run['software']}, {run['driver']}; "
        f"{document['points']} points in {time(document['seconds'])} ({run['grid']})",
        sentences=_sentences(document),
        blocks=blocks,
        document=document,
    )


def _sentences(document: Json) -> list[str]:
    lines = [f"Warning: {line}" for line in document["warnings"]]
    rest = sorted(
        {row["operator"] for row in document["not_measured"] if row["dtype"] in (None, "bf16")}
    )
    if rest:
        lines.append(f"Not measured, from other laws (derived or assumed): {', '.join(rest)}.")
    for row in document["skipped"]:
        lines.append(f"{row['works']} of {row['operator']} {row['dtype']} not run: {row['reason']}")
    lines.append(f"Laws: {document['efficiency_file']}")
    lines.append(f"Points: {document['points_file']}")
    if document["chip_file"]:
        lines.append(f"Chip: {document['chip_file']}")
    return lines


def _reached(document: Json) -> Table:
    rows = [
        (name, best, one[rate] / one["divided_by"], one["divided_by_kind"])
        for part, rate in (("gemm", "flops_per_s"), ("memory", "bytes_per_s"))
        for one in document[part]
        for name, best in (_best(one, rate),)
    ]
    return Table.of(
        "reached",
        "The best of each kind of work",
        rows,
        (
            Column("reached", "reached", of=itemgetter(0)),
            Column("best", "best", right=True, of=itemgetter(1)),
            Column("share", "share", "share", of=itemgetter(2)),
            Column("peak", "of the peak that is", of=itemgetter(3)),
        ),
    )


def _best(one: Json, rate: str) -> tuple[str, str]:
    if rate == "flops_per_s":
        return f"GEMM {one['dtype']}", units.format(one[rate], "flop/s")
    return one["kernel"], show_as("bandwidth", one[rate])


def _laws(fits: Sequence[Json]) -> Table:
    def of_law(key: str, title: str, name: str = "") -> Column:
        return Column(key, title, "number", of=lambda one: one["law"][name or key])

    return Table.of(
        "laws",
        "The laws that were fitted",
        fits,
        (
            Column("law", "law", of=lambda one: f"{one['operator']} {one['dtype']}"),
            Column("points", "points", "count"),
            of_law("compute", "compute"),
            of_law("memory", "memory"),
            of_law("fixed_us", "fixed, µs", "fixed"),
            of_law("p", "p"),
            Column("error", "off by", "share"),
            Column("held_out_error", "held out", "share"),
            Column("spread", "noise", "share"),
        ),
        notes=(
            "off by: median miss of the law on the points it was fitted to; held out: on shapes "
            "that the fit was made without; noise: middle half of the samples of a point over "
            "their median. fp16 and fp32 are reported; the file holds what dse has laws for.",
        ),
    )


def _collectives(rows: Sequence[Json]) -> Table:
    return Table.of(
        "collectives",
        "Collectives",
        rows,
        (
            Column("operation", "collective"),
            Column("devices", "devices", "count"),
            Column("latency", "latency, µs", right=True),
            Column("fraction", "of the link", right=True),
            Column("ramp", "ramp", right=True),
            Column("error", "off by", "share"),
        ),
    )


def _penalties(rows: Sequence[Json]) -> Table:
    return Table.of(
        "misaligned",
        "Misaligned sizes",
        sorted(rows, key=lambda row: (row["operator"], row["axis"], row["size"])),
        (
            Column("what", "misaligned", of=lambda row: f"{row['operator']} {row['axis']}"),
            Column("size", "size", "count"),
            Column("between", "between", of=lambda row: f"{row['below']:,} and {row['above']:,}"),
            Column("alignment", "divides by", "count"),
            Column("time", "time", right=True, of=_time),
            Column("lowest", "from", "number"),
            Column("highest", "to", "number"),
            Column("noise", "noise", "share"),
        ),
        notes=(
            "time: over the straight line between the two neighbours; median, lowest and highest "
            "of the shapes compared; noise: of the samples. !: longer by 15% and by more than the "
            "noise.",
        ),
    )


def _time(row: Json) -> str:
    return f"{show_as('number', row['ratio'])}{' !' if row['cliff'] else ''}"
