"""The answer of `dse calibrate`: what was reached, the laws, and what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse import units
from dse.answer.answer import Answer, Block, Cell, Column, Table
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
    rows: list[dict[str, Cell]] = [
        {
            "reached": name,
            "best": best,
            "share": one[key] / one["divided_by"],
            "peak": one["divided_by_kind"],
        }
        for part, key in (("gemm", "flops_per_s"), ("memory", "bytes_per_s"))
        for one in document[part]
        for name, best in (_best(one, key),)
    ]
    return Table(
        "reached",
        "The best of each kind of work",
        (
            Column("reached", "reached"),
            Column("best", "best", right=True),
            Column("share", "share", "share"),
            Column("peak", "of the peak that is"),
        ),
        rows,
    )


def _best(one: Json, key: str) -> tuple[str, str]:
    if key == "flops_per_s":
        return f"GEMM {one['dtype']}", units.format(one[key], "flop/s")
    return one["kernel"], show_as("bandwidth", one[key])


def _laws(fits: Sequence[Json]) -> Table:
    return Table(
        "laws",
        "The laws that were fitted",
        (
            Column("law", "law"),
            Column("points", "points", "count"),
            Column("compute", "compute", "number"),
            Column("memory", "memory", "number"),
            Column("fixed_us", "fixed, µs", "number"),
            Column("p", "p", "number"),
            Column("error", "off by", "share"),
            Column("held_out_error", "held out", "share"),
            Column("spread", "noise", "share"),
        ),
        [
            {
                "law": f"{one['operator']} {one['dtype']}",
                "fixed_us": one["law"]["fixed"],
                **{name: one["law"][name] for name in ("compute", "memory", "p")},
                **{name: one[name] for name in ("points", "error", "held_out_error", "spread")},
            }
            for one in fits
        ],
        notes=(
            "off by: median miss of the law on the points it was fitted to; held out: on shapes "
            "that the fit was made without; noise: middle half of the samples of a point over "
            "their median. fp16 and fp32 are reported; the file holds what dse has laws for.",
        ),
    )


def _collectives(rows: Sequence[Json] | None) -> Table:
    return Table(
        "collectives",
        "Collectives",
        (
            Column("operation", "collective"),
            Column("devices", "devices", "count"),
            Column("latency", "latency, µs", right=True),
            Column("fraction", "of the link", right=True),
            Column("ramp", "ramp", right=True),
            Column("error", "off by", "share"),
        ),
        rows or [],
    )


def _penalties(rows: Sequence[Json]) -> Table:
    return Table(
        "misaligned",
        "Misaligned sizes",
        (
            Column("what", "misaligned"),
            Column("size", "size", "count"),
            Column("between", "between"),
            Column("alignment", "divides by", "count"),
            Column("time", "time", right=True),
            Column("lowest", "from", "number"),
            Column("highest", "to", "number"),
            Column("noise", "noise", "share"),
        ),
        [
            {
                **{key: row[key] for key in ("size", "alignment", "lowest", "highest", "noise")},
                "what": f"{row['operator']} {row['axis']}",
                "between": f"{row['below']:,} and {row['above']:,}",
                "time": f"{show_as('number', row['ratio'])}{' !' if row['cliff'] else ''}",
            }
            for row in sorted(rows, key=lambda row: (row["operator"], row["axis"], row["size"]))
        ],
        notes=(
            "time: over the straight line between the two neighbours; median, lowest and highest "
            "of the shapes compared; noise: of the samples. !: longer by 15% and by more than the "
            "noise.",
        ),
    )
