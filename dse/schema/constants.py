"""Constants of the catalog: `hardware/energy.yaml` and `hardware/reliability.yaml`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dse.errors import InputError
from dse.record import record
from dse.schema.chip import Chip
from dse.schema.figure import Figure, Figured, Value
from dse.schema.reader import Field, Listed, Refused, Schema, Text, Then, Whole, field, gathered

ENERGY_FILE = "energy.yaml"


@record
class Operation:
    """A published energy of one operation or access of `bits` bits at a node."""

    node: str
    name: str
    bits: int
    figure: Figure

    @property
    def j_per_bit(self) -> float:
        return self.figure.value / self.bits


def by_one(key: str) -> Callable[[Sequence[tuple[Figure, tuple[str, ...]]]], Mapping[str, Figure]]:
    """Rows of (figure, names) as figures by name. Refuses a name that stands twice; `key` is the
    field of the names."""

    def figures(rows: Sequence[tuple[Figure, tuple[str, ...]]]) -> Mapping[str, Figure]:
        found: dict[str, Figure] = {}
        for index, (figure, names) in enumerate(rows):
            for name in names:
                if name in found:
                    raise Refused(f"{name} stands twice", "once", index, key)
                found[name] = figure
        return MappingProxyType(found)

    return figures


# From SRAM beside the adders to a byte over a network; operations of one bit to those of 64.
_BYTE = Value("J/byte", least=8e-14, most=8e-9)
_WORK = Value("J", least=1e-16, most=1e-10)
_MEMORY = Figured(
    _BYTE, Field("kinds", Listed(Text(), 1)), name="memory", make=lambda one, kinds: (one, kinds)
)
_OPERATION = Figured(
    "J",
    Field("node", Text()),
    Field("name", Text()),
    Field("bits", Whole(above=0)),
    alone=True,
    make=lambda figure, node, name, bits: Operation(node, name, bits, figure.named(name)),
)


class EnergyConstants(Schema):
    """`memories` by the memory kind of a chip and the other figures by name: joules per byte,
    joules per operation (`arithmetic`), or shares (`idle_share` of the rated power, `lowest_clock`
    of the rated clock)."""

    memories: Mapping[str, Figure] = field(Then(Listed(_MEMORY), by_one("kinds")))
    figures: Mapping[str, Figure] = gathered(
        Field("other_memory", Figured(_BYTE), meaning="a byte of any other memory"),
        Field("on_chip", Figured(_BYTE), meaning="a byte on the chip"),
        Field("links", Figured(_BYTE), meaning="a byte over the links of a domain"),
        Field("network", Figured(_BYTE), meaning="a byte over the network beyond"),
        Field("arithmetic", Figured(_WORK), meaning="one operation"),
        Field("idle_share", Figured("count"), meaning="idle power over the rated power"),
        Field("lowest_clock", Figured("count"), meaning="lowest clock over the rated clock"),
        default={},
    )
    operations: tuple[Operation, ...] = field(Listed(_OPERATION), default=())

    def check(self) -> None:
        for name in ("idle_share", "lowest_clock"):
            if self.figures[name].value >= 1.0:
                text = f"read {self.figures[name].text!r}: a share of the rated one"
                raise Refused(text, "above 0 and below 1", name, "value")

    def value(self, name: str) -> float:
        return self.figures[name].value if name in self.figures else math.nan

    def memory(self, kind: str) -> Figure | None:
        """Of a byte read from, or written to, a memory of that kind."""
        return self.memories.get(kind, self.figures.get("other_memory"))

    def idle_w(self, chip: Chip) -> float:
        """Watts of a chip with weights loaded and nothing to do: its own figure, else a share of
        its rated power; NaN without either."""
        if chip.idle_w is not None:
            return chip.idle_w
        return math.nan if chip.tdp_w is None else self.value("idle_share") * chip.tdp_w

    def assumed(self, chip: Chip) -> list[str]:
        """What of a chip's energy rests on an assumption, a sentence each."""
        if chip.tdp_w is None:
            return []
        sentences = []
        if chip.idle_w is None:
            share = self.figures.get("idle_share")
            if share is not None:
                sentences.append(
                    f"{chip.id}: idle power {self.idle_w(chip):.0f} W, {share.value:.0%} of its "
                    f"rated power ({share.note})"
                )
        memory = self.memory(chip.memories[0].kind)
        if memory is not None and memory.kind == "assumed":
            sentences.append(f"{chip.id}: energy per byte of its memory: {memory.note}")
        return sentences


NO_ENERGY = EnergyConstants({})


# How often training is interrupted, by chip, and what it costs: `hardware/reliability.yaml`.

RELIABILITY_FILE = "reliability.yaml"
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
            raise InputError(
                f"no {name}", file=RELIABILITY_FILE, accepted=f"hardware/{RELIABILITY_FILE}"
            )
        return self.figures[name]


NO_RELIABILITY = Reliability({})
