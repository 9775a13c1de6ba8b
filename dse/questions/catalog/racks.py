"""`dse catalog racks`: the racks, and what ends the domain of each."""

from __future__ import annotations

import math
from dataclasses import replace

from dse.answer.answer import Answer, Column, Table
from dse.answer.frames import document, frame
from dse.physics.racks import largest_domain
from dse.problem.describe import bound_columns, end_words, rack_row
from dse.questions.catalog.chips import figure_row, figure_table
from dse.schema.rack import load_rack, resolve_rack, shipped_racks


def list_racks() -> Answer:
    """Every rack with its domain and where it ends."""
    rows = [rack_row(load_rack(path)) for path in shipped_racks().values()]
    return Answer(
        question="racks",
        title="Racks",
        headline=f"{len(rows)} racks: dse catalog racks show ID says what ends the domain of one.",
        blocks=[
            Table(
                "racks",
                "Domains",
                (
                    Column("id", "rack"),
                    Column("chip", "chip"),
                    Column("domain", "domain", "count"),
                    Column("racks_per_domain", "racks", "count"),
                    Column("cable", "cable"),
                    Column("largest", "fits", "count"),
                    Column("bound", "stopped by"),
                ),
                rows,
                notes=(
                    "domain: chips of the product's scale-up domain; racks: that one may take; "
                    "fits: the largest domain within every bound, in whole trays; stopped by: the "
                    "bound that the next tray breaks most. A dash: its links are a printed board.",
                ),
            )
        ],
        document=rows,
    )


def show_rack(rack: str) -> Answer:
    """What bounds the domain of a rack, an id or the path of a rack file, and every figure with its
    source.

    Raises InputError for a rack that does not exist, and for a file that cannot be read."""
    spec = load_rack(resolve_rack(rack))
    facts, figures = rack_row(spec), [figure_row(figure) for figure in spec.figures]
    label = ", hypothetical" * spec.hypothetical
    bounds = frame(
        "bounds",
        f"What bounds the domain of {spec.domain:,} chips",
        bound_columns(spec),
        f"used: by {spec.domain:,} chips, over the limit; next tray: by "
        f"{facts['largest'] + spec.tray_chips:,}, where that breaks the bound; alone: the largest "
        "domain if no other bound existed; one stage: if one stage of switches joined any number.",
        shown=("rack_bound", "rack_use", "next_breaks", "bound_chips", "one_stage_chips"),
    )
    joined, one_stage = spec.stage_chips, largest_domain(replace(spec, stage_chips=math.inf))
    sentences = [f"note: {text}" for text in spec.notes]
    if one_stage[0] > facts["largest"]:
        sentences[:0] = [
            f"One stage of switches joins {joined:g} chips, a second doubles the cables and "
            f"triples the switches. If one stage joined any number: {one_stage[0]:,} "
            f"({one_stage[1]})."
        ]
    return Answer(
        question="rack",
        title=f"{spec.id}: {spec.name}",
        asked=f"{spec.id}: {spec.name}{label}; {spec.chip}, {facts['cable'] or 'no'} cables.",
        headline=f"The domain: {end_words(facts)}.",
        sentences=[*sentences, f"{len(spec.assumed)} of {len(figures)} figures are assumed."],
        blocks=[bounds, figure_table(figures)],
        rests=[f"assumed: {text}" for text in spec.assumed],
        document=document(
            {
                **facts,
                "largest_one_stage": one_stage[0],
                "notes": list(spec.notes),
                "assumed": list(spec.assumed),
                "figures": figures,
            },
            [bounds],
        ),
    )
