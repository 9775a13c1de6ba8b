"""`dse catalog racks`: the racks, and where the domain of each ends."""

from __future__ import annotations

from dse.answer.answer import Answer, Column, Table
from dse.physics.racks import stop
from dse.problem.racks import rack_row
from dse.schema.rack import load_rack, shipped_racks


def list_racks() -> Answer:
    """Every rack with its domain and where it ends."""
    racks = [load_rack(path) for path in shipped_racks().values()]
    rows = [rack_row(rack, stop(rack)) for rack in racks]
    return Answer(
        question="racks",
        title="Racks",
        headline=f"{len(rows)} racks: dse scale --rack ID says what ends the domain of one.",
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
