"""`dse catalog racks`: the racks, and what ends the domain of each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from dse.answer.answer import Answer
from dse.answer.frames import document, frame, of_rows
from dse.options import Opt
from dse.physics.racks import largest_domain
from dse.problem.describe import bound_columns, end_words, rack_row
from dse.questions.catalog.chips import figure_row, figure_table
from dse.schema.system import load_rack, resolve_rack, shipped_racks


def list_racks() -> Answer:
    """Every rack with its domain and where it ends."""
    rows = [rack_row(load_rack(path)) for path in shipped_racks().values()]
    table = of_rows(
        "racks",
        "Domains",
        rows,
        "id chip scale_up_chips=domain racks_per_domain cable largest_domain=largest "
        "rack_bound=bound",
        "The largest domain is in whole trays; the bound is the one that the next tray breaks "
        "most. A dash: its links are a printed board.",
    )
    return Answer(
        question="racks",
        title="Racks",
        headline=f"{len(rows)} racks: dse catalog racks show ID says what ends the domain of one.",
        blocks=[table],
        document=rows,
    )


def show_rack(rack: Annotated[str, Opt(positional=True)]) -> Answer:
    """What bounds the domain of a rack, and every figure with its source. RACK is an id, or the
    path of a rack file.

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
    sentences = []
    if one_stage[0] > facts["largest"]:
        sentences.append(
            f"One stage of switches joins {joined:g} chips, a second doubles the cables and "
            f"triples the switches. If one stage joined any number: {one_stage[0]:,} "
            f"({one_stage[1]})."
        )
    sentences.append(f"{len(spec.assumed)} of {len(figures)} figures are assumed.")
    rests = [f"assumed: {text}" for text in spec.assumed]
    rests += [f"note: {text}" for text in spec.notes]
    return Answer(
        question="rack",
        title=f"{spec.id}: {spec.name}",
        asked=f"{spec.id}: {spec.name}{label}; {spec.chip}, {facts['cable'] or 'no'} cables.",
        headline=f"The domain: {end_words(facts)}.",
        sentences=sentences,
        blocks=[bounds, figure_table(figures)],
        rests=rests,
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
