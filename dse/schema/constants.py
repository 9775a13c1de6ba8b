"""Constants of the catalog: `hardware/energy.yaml` and `hardware/reliability.yaml`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dse import units
from dse.errors import InputError
from dse.record import record
from dse.schema.chip import Chip, Memory
from dse.schema.figure import Figure, Figured, Value
from dse.schema.loader import did_you_mean
from dse.schema.plausible import BEHIND
from dse.schema.reader import (
    REQUIRED,
    Field,
    Listed,
    Refused,
    Schema,
    Table,
    Text,
    Then,
    Whole,
    field,
    gathered,
)

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


# Memories behind the device memory: a chip's own, or the defaults of `hardware/tiers.yaml`.

TIERS_FILE = "tiers.yaml"
# In the order of their codes (`CandidateBatch.offload_tier`). `attached` is a second memory of the
# chip itself, which needs no host link.
TIERS = ("host", "attached", "flash")


@record
class Tier:
    """One memory behind the device memory of one chip.

    `kind` is what its file calls it; `bytes_per_s` is the slower of the memory's share for one chip
    and of the link that it is reached over; `assumed` holds the reasons of assumed figures.
    """

    name: str
    kind: str
    bytes: float
    bytes_per_s: float
    assumed: tuple[str, ...]


def _behind(dimension: str) -> Figured:
    return Figured(Value(dimension, least=BEHIND[0], most=BEHIND[1]))


def _tier(name: str) -> Table[dict[str, Figure]]:
    """Figures of a tier as "host capacity"."""

    def figures(**found: Figure | None) -> dict[str, Figure]:
        return {key: one.named(f"{name} {key}") for key, one in found.items() if one is not None}

    return Table(
        Field("capacity", _behind("bytes"), meaning="for one chip"),
        Field("bandwidth", _behind("bytes/s"), meaning="for one chip"),
        Field("link", _behind("bytes/s"), None, meaning="that the chip reaches it over"),
        make=figures,
    )


class TierDefaults(Schema):
    """The figures of `hardware/tiers.yaml` by tier and name, empty without that file; of a tier's
    bandwidth, copies reach the share `reached_of`."""

    reached_of: Figure | None = field(
        Figured(Value("count", most=1.0, accepted="above 0, at most 1")),
        default=None,
        left_out=REQUIRED,
        written="reached",
    )
    figures: Mapping[str, Mapping[str, Figure]] = gathered(
        Field("host", _tier("host")), Field("flash", _tier("flash")), default={}
    )

    @property
    def reached(self) -> float:
        return self.reached_of.value if self.reached_of else 1.0

    @property
    def reason(self) -> str:
        one = self.reached_of
        return f"copies reach {one.text} of a tier's bandwidth ({one.kind})" if one else ""


NO_TIERS = TierDefaults()


def tiers_of(chip: Chip, defaults: TierDefaults) -> dict[str, Tier]:
    """The tiers of a chip by name. One whose capacity or bandwidth nobody published, and for which
    there is no default, is not among them."""
    found = {}
    for name in TIERS:
        tier = _attached(chip) if name == "attached" else _behind_host(chip, name, defaults)
        if tier is not None and tier.bytes > 0 and tier.bytes_per_s > 0:  # False for NaN
            found[name] = tier
    return found


def find_tier(chip: Chip, defaults: TierDefaults, asked: str | None) -> str:
    """The tier that is asked for by its name or by the kind of its memory, `host` where none is.
    Raises InputError where the chip has none such."""
    known = tiers_of(chip, defaults)
    wanted = (asked or TIERS[0]).strip().lower()
    for name, tier in known.items():
        if wanted in (name, tier.kind.lower()):
            return name
    names = [*known, *(tier.kind for tier in known.values() if tier.kind not in known)]
    near = {name.lower(): name for name in names}
    raise InputError(
        f"{chip.id} has no memory tier {asked!r}{did_you_mean(wanted, near)}",
        field="--set offload_tier",
        accepted=", ".join(names) or "no offload on this chip",
    )


def _own(chip: Chip, name: str) -> Memory | None:
    words = ((memory, memory.kind.lower().split()) for memory in chip.memories[1:])
    return next((memory for memory, kind in words if kind and kind[0] == name), None)


def _attached(chip: Chip) -> Tier | None:
    for memory in chip.memories[1:]:
        if memory.kind.lower().split()[:1] not in (["host"], ["flash"]):
            return Tier("attached", memory.kind, memory.bytes, memory.bytes_per_s, ())
    return None


def _behind_host(chip: Chip, name: str, defaults: TierDefaults) -> Tier | None:
    """Host DRAM or flash, over the chip's host link."""
    if not defaults.figures:
        return None
    given, link = defaults.figures[name], defaults.figures["host"]["link"]
    own, reasons = _own(chip, name), []
    if own is None and name == "host" and "unified" in chip.memories[0].kind.lower():
        return None  # the host's memory is the device memory
    kind = {"host": "host DRAM", "flash": "flash"}[name]
    if own is None:
        bytes_, rate = given["capacity"].value, given["bandwidth"].value
        reasons += [
            f"{given[field].name}: {given[field].note}" for field in ("capacity", "bandwidth")
        ]
    else:
        kind, bytes_, rate = own.kind, own.bytes, own.bytes_per_s
    published = chip.figure("host_link_bandwidth")
    limit = math.inf if published is None else published.value
    if published is None:
        limit = link.value
        reasons.append(f"{link.name}: {link.note}")
    return Tier(name, kind, bytes_, min(rate, limit), tuple(reasons))


def tier_words(tier: Tier) -> str:
    """`host (host DRAM) 256 GB at 64 GB/s, assumed`."""
    size, rate = units.format(tier.bytes, "bytes"), units.format(tier.bytes_per_s, "bytes/s")
    kind = "" if tier.kind == tier.name else f" ({tier.kind})"
    return f"{tier.name}{kind} {size} at {rate}{', assumed' if tier.assumed else ''}"


def offload_words(deployment: Mapping[str, Any]) -> list[str]:
    """`50% of the weights and 25% of the cache in host memory`, or nothing."""
    name = deployment.get("offload_tier")
    if name is None:
        return []
    parts = [
        f"{deployment[share] * 100:.3g}% of the {what}"
        for share, what in (("weights_offloaded", "weights"), ("kv_offloaded", "cache"))
        if deployment[share]
    ]
    return [f"{' and '.join(parts)} in {name} memory"] if parts else []
