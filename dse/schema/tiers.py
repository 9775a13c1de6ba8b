"""Memories behind the device memory: a chip's own, or the defaults of `hardware/tiers.yaml`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dse import units
from dse.errors import InputError
from dse.record import record
from dse.schema.chip import Chip, Memory
from dse.schema.figure import Figure, Figured, Value
from dse.schema.loader import did_you_mean
from dse.schema.plausible import BEHIND
from dse.schema.reader import REQUIRED, Field, Schema, Table, field, gathered

FILE = "tiers.yaml"
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
        meaning="share of a tier's bandwidth that copies reach",
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
