"""How often training is interrupted, by chip, and what it costs: `hardware/reliability.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from dse.errors import InputError
from dse.schema.energy import by_one
from dse.schema.figure import Figure, Figured, Value
from dse.schema.reader import Field, Listed, Schema, Text, Then, field, gathered

FILE = "reliability.yaml"
# Of a chip between interruptions; shipped ones are 7,440 to 50,677 hours.
_BETWEEN = Value("s", zero=False, least=3600.0, most=3600.0 * 1e7)
_INTERRUPTIONS = Figured(
    _BETWEEN,
    Field("chips", Listed(Text(), 1)),
    name="interruptions",
    make=lambda one, chips: (one, chips),
)


class Reliability(Schema):
    """`interruptions` by chip id: chip-seconds between two of them. `figures`: `restart` (seconds
    from an interruption to the first step after it, without the work that was lost) and
    `checkpoint_bandwidth_per_chip` (bytes/s of storage for each chip of the cluster)."""

    interruptions: Mapping[str, Figure] = field(Then(Listed(_INTERRUPTIONS), by_one("chips")))
    figures: Mapping[str, Figure] = gathered(
        Field("other_interruptions", Figured(_BETWEEN), meaning="the same of every other chip"),
        Field(
            "restart",
            Figured(Value("s", most=86400.0)),
            meaning="from an interruption to the first step after it",
        ),
        Field(
            "checkpoint_bandwidth_per_chip",
            Figured(Value("bytes/s", least=1e6, most=1e11)),
            meaning="of storage",
        ),
        default={},
    )

    def between(self, chip: str) -> Figure:
        """Chip-seconds between interruptions of a chip: its own figure, else the assumed one."""
        return self.interruptions.get(chip) or self.figure("other_interruptions")

    def figure(self, name: str) -> Figure:
        """Raises InputError where the hardware folder has no reliability file."""
        if name not in self.figures:
            raise InputError(f"no {name}", file=FILE, accepted=f"hardware/{FILE}")
        return self.figures[name]


NO_RELIABILITY = Reliability({})
