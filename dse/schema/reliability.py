"""How often training is interrupted, by chip, and what it costs: `hardware/reliability.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, Field

from dse.errors import InputError
from dse.schema.chip import Figure, FigureSpec, read_figure
from dse.schema.loader import STRICT, load_yaml, validate

FILE = "reliability.yaml"
_SINGLE = {
    "other_interruptions": "s",
    "restart": "s",
    "checkpoint_bandwidth_per_chip": "bytes/s",
}


@dataclass(frozen=True, slots=True)
class Reliability:
    """`interruptions` by chip id: chip-seconds between two of them. `figures`: `restart` (seconds
    from an interruption to the first step after it, without the work that was lost) and
    `checkpoint_bandwidth_per_chip` (bytes/s of storage for each chip of the cluster)."""

    interruptions: Mapping[str, Figure]
    figures: Mapping[str, Figure]

    def between(self, chip: str) -> Figure:
        """Chip-seconds between interruptions of a chip: its own figure, else the assumed one."""
        return self.interruptions.get(chip) or self.figure("other_interruptions")

    def figure(self, name: str) -> Figure:
        """Raises InputError where the hardware folder has no reliability file."""
        if name not in self.figures:
            raise InputError(f"no {name}", file=FILE, accepted=f"hardware/{FILE}")
        return self.figures[name]


NO_RELIABILITY = Reliability(MappingProxyType({}), MappingProxyType({}))


class _Interruptions(FigureSpec):
    chips: tuple[str, ...] = Field(min_length=1)


class _ReliabilityFile(BaseModel):
    model_config = STRICT

    interruptions: tuple[_Interruptions, ...]
    other_interruptions: FigureSpec
    restart: FigureSpec
    checkpoint_bandwidth_per_chip: FigureSpec


def load_reliability(path: Path | str) -> Reliability:
    """Raises InputError with the line and field of a mistake: an unknown unit, a chip that stands
    twice."""
    document = load_yaml(path)
    spec = validate(_ReliabilityFile, document)
    found: dict[str, Figure] = {}
    for index, row in enumerate(spec.interruptions):
        figure = read_figure(document, ("interruptions", index), "interruptions", row, "s")
        for chip in row.chips:
            if chip in found:
                raise document.error(
                    ("interruptions", index, "chips"), f"{chip} stands twice", "once"
                )
            found[chip] = figure
    return Reliability(
        MappingProxyType(found),
        MappingProxyType(
            {
                name: read_figure(document, (name,), name, getattr(spec, name), dimension)
                for name, dimension in _SINGLE.items()
            }
        ),
    )
