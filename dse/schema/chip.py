"""Chips: `hardware/chips/*.yaml`. Every figure keeps its source, date, kind and the vendor's words.

Peaks are dense, bandwidths are bytes, GB is not GiB. The capacity is what the driver reports where
that is known, else the vendor's label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field as made_anew
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, get_args

from dse.data import rows_beside
from dse.errors import InputError
from dse.record import record
from dse.schema.dtypes import ARITHMETIC, arithmetic
from dse.schema.figure import Figure, Figured, Kind, reasons
from dse.schema.plausible import doubts
from dse.schema.prices import PRICES, PURCHASES, PriceRow, PurchaseRow
from dse.schema.reader import (
    ID,
    Date,
    Field,
    Listed,
    Schema,
    Table,
    Text,
    Whole,
    Word,
    field,
)
from dse.units import example

Availability = Literal[
    "shipping", "shipping_legacy", "shipping_cn", "legacy", "limited", "restricted", "internal",
    "cloud", "cloud_legacy", "announced", "announced_ramping", "announced_deprioritised", "own",
    "hypothetical",
]  # fmt: skip

_ROWS = rows_beside(__file__, "figures.csv")
# Figures of a chip file and their dimensions.
DIMENSION = {row["figure"]: row["dimension"] for row in _ROWS}
# What every chip has, so that its absence is a gap. A chip without an fp8 peak simply has none.
EXPECTED = tuple(row["figure"] for row in _ROWS if row["expected"])
# What no estimate can do without.
ROOFLINE = ("peak_bf16", "memory_capacity", "memory_bandwidth")
GENERIC = "generic"  # the backend of a chip whose file names none
# The availability of a chip that nobody makes, and what its id then begins with.
HYPOTHETICAL = "hypothetical"


class UnratedFormat(Schema):
    """A format that matrix units multiply in, its dense peak unknown."""

    format: str = field(Word(ARITHMETIC))
    kind: str = field(Word(get_args(Kind)))
    source: str = field(Text(1))
    date: str = field(Date())


@record
class Memory:
    """One memory of a chip; NaN where the figure is not known."""

    kind: str
    bytes: float
    bytes_per_s: float


def _memory(kind: str, **found: Figure | None) -> tuple[Memory, tuple[Figure, ...]]:
    """A memory behind the device memory, and its figures as "LPDDR5X bandwidth"."""
    own = {name: one.named(f"{kind} {name}") for name, one in found.items() if one is not None}
    size, rate = (own[n].value if n in own else math.nan for n in ("capacity", "bandwidth"))
    return Memory(kind, size, rate), tuple(own.values())


FIGURES = Table(
    *(
        Field(
            row["figure"],
            Figured(row["dimension"]),
            None,
            meaning=row["meaning"] or f"such as {example(row['dimension'])}",
        )
        for row in _ROWS
    )
)
_NOT_CHOSEN = Table(
    *(
        Field(name, Listed(Figured(unit, name=name, alone=True)), ())
        for name, unit in DIMENSION.items()
    ),
    make=lambda **found: tuple(one for ones in found.values() for one in ones),
)
# Where 16 bits are assumed to come from on a chip without a peak of bf16: the figure, what of it,
# and why. Units that multiply narrower formats do so at twice the rate for half the bits (the peaks
# of every family that has both).
_SIXTEEN_BITS = tuple(
    (row["figure"], float(row["sixteen_bits"]), row["why"]) for row in _ROWS if row["sixteen_bits"]
)


def sixteen_bits(figures: Mapping[str, Figure]) -> Figure | None:
    """The peak at which a chip computes in 16 bits where it has none of bf16: that of the best
    format that it has. None where it has one, or no peak at all."""
    if "peak_bf16" in figures:
        return None
    for name, share, why in _SIXTEEN_BITS:
        if name in figures:
            value = figures[name].value * share
            one = replace(figures[name], value=value, kind="assumed", note=why, alternatives=())
            return replace(one, name="peak_bf16", text=f"{value / 1e12:g} TFLOP/s", quote=None)
    return None


class Chip(Schema, kw_only=True):
    """One accelerator as software sees it.

    `peak_flops_per_s` holds the dense peak of every format of `dse.schema.dtypes.ARITHMETIC` that
    the chip computes in; `memories` starts with the device memory (of a machine without any other,
    its SRAM); `capacity_bytes` is that memory's size (NaN if unknown). `assumed` holds "name:
    reason" and `missing` the names of the figures that nobody published; `not_chosen` holds
    published values of figures of which none could be believed. `backend` is the serving software
    that is meant where an estimate of one point names none. `idle_w`: drawn with weights loaded and
    nothing to do; `matmul_w`: at the measured rate of large matrix products, where not `tdp_w`.
    `without_peak`: formats that its matrix units multiply in and of which no dense peak was
    published. A hypothetical chip was made from the chip `derived_from` by the `changes`.
    """

    id: str = field(ID)
    vendor: str = field(Text())
    name: str = field(Text())
    family: str = field(Text())
    year: int | None = field(Whole(1990, 2100), default=None)
    availability: str = field(Word(get_args(Availability)))
    memory_kind: str = field(Text())
    system: str = field(Text())
    efficiency: str = field(Text())
    backend: str = field(Text(), default=GENERIC)
    given: Mapping[str, Figure | None] = field(FIGURES, written="figures")
    extra_memories: tuple[tuple[Memory, tuple[Figure, ...]], ...] = field(
        Listed(
            Table(
                Field("kind", Text(), meaning="host, flash, or any other"),
                Field("capacity", Figured("bytes"), None),
                Field("bandwidth", Figured("bytes/s"), None),
                make=_memory,
            )
        ),
        default=(),
    )
    without_peak: tuple[UnratedFormat, ...] = field(
        Listed(UnratedFormat), default=(), written="formats_without_peak"
    )
    not_chosen: tuple[Figure, ...] = field(_NOT_CHOSEN, default=())
    prices: tuple[PriceRow, ...] = field(PRICES, default=())
    purchases: tuple[PurchaseRow, ...] = field(PURCHASES, default=())
    notes: tuple[str, ...] = field(Listed(Text()), default=())
    peak_flops_per_s: Mapping[str, float] = made_anew(default_factory=dict)
    memories: tuple[Memory, ...] = ()
    capacity_bytes: float = math.nan
    capacity_kind: Literal["driver_reported", "vendor_label"] = "vendor_label"
    tdp_w: float | None = None
    idle_w: float | None = None
    matmul_w: float | None = None
    system_w_per_chip: float | None = None
    compute_units: int | None = None
    clock_hz: float | None = None
    figures: tuple[Figure, ...] = ()
    assumed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    file: str = ""
    derived_from: str = ""
    changes: tuple[str, ...] = ()

    def check(self) -> Self:
        """With what follows from the figures that are given."""
        figures = {name: one for name, one in self.given.items() if one is not None}
        if (wide := sixteen_bits(figures)) is not None:
            figures[wide.name] = wide
        on_chip = self.memory_kind == "SRAM"  # its SRAM is the device memory, and stands there
        expected = [name for name in EXPECTED if not (on_chip and name.startswith("sram_"))]
        value = {name: figure.value for name, figure in figures.items()}
        reported = "memory_capacity_driver_reported" in value
        label = value.get("memory_capacity", math.nan)
        capacity = value.get("memory_capacity_driver_reported", label)
        device = Memory(self.memory_kind, capacity, value.get("memory_bandwidth", math.nan))
        listed = (*figures.values(), *(one for _, extra in self.extra_memories for one in extra))
        peaks = {dtype: value.get(f"peak_{dtype}") for dtype in ARITHMETIC}
        return replace(
            self,
            peak_flops_per_s={dtype: peak for dtype, peak in peaks.items() if peak is not None},
            memories=(device, *(memory for memory, _ in self.extra_memories)),
            capacity_bytes=capacity,
            capacity_kind="driver_reported" if reported else "vendor_label",
            tdp_w=value.get("tdp"),
            idle_w=value.get("idle_power"),
            matmul_w=value.get("matmul_power"),
            system_w_per_chip=value.get("system_power"),
            compute_units=int(value["compute_units"]) if "compute_units" in value else None,
            clock_hz=value.get("clock"),
            figures=listed,
            assumed=(*doubts(listed, self.memory_kind), *reasons(listed)),
            missing=tuple(name for name in expected if name not in value),
            without_peak=tuple(x for x in self.without_peak if peaks[x.format] is None),
        )

    @property
    def hypothetical(self) -> bool:
        return self.availability == HYPOTHETICAL

    @property
    def label(self) -> str:
        """`H100 SXM5 80GB`: its maker's name, less what stands in brackets. `GB200 NVL72 GPU`: one
        of the chips of a rack, not a rack."""
        return re.sub(r" [(].*[)]", "", re.sub(r"(NVL\d\d+.*) [(]per .*[)]", r"\1 GPU", self.name))

    def figure(self, name: str) -> Figure | None:
        return next((figure for figure in self.figures if figure.name == name), None)

    def computes(self, dtype: str) -> bool:
        """Whether its matrix units multiply weights of `dtype`: a dense peak is listed, and not
        below that of 16 bits (the int8 units of B300 are: there 16 bits are faster)."""
        peak = self.peak_flops_per_s.get(arithmetic(dtype), 0.0)
        return peak > 0.0 and peak >= self.peak_flops_per_s.get("bf16", 0.0)

    def not_computed(self, dtype: str) -> str:
        """Why weights of `dtype` are unpacked to 16 bits here; empty where they are not."""
        own = arithmetic(dtype)
        if self.computes(dtype):
            return ""
        if own in self.peak_flops_per_s:
            return f"{self.id} multiplies in {dtype} more slowly than in 16 bits"
        if any(one.format == own for one in self.without_peak):
            return f"{self.id} multiplies in {dtype}, of which no dense peak was published"
        return f"{self.id} does not multiply in {dtype}"

    @property
    def memory_is_sram(self) -> bool:
        """Whether the device memory is the chip's SRAM."""
        return self.memories[0].kind == "SRAM"

    def lacks(self, *names: str) -> tuple[str, ...]:
        """Those of the named figures that the chip does not have."""
        return tuple(name for name in names if self.figure(name) is None)

    def require(self, *names: str) -> None:
        """Raises InputError if the chip lacks one of the named figures."""
        absent = self.lacks(*names)
        if absent:
            raise InputError(
                f"{self.id} has no {' and no '.join(absent)}",
                file=self.file,
                field="figures",
                accepted="a chip file with " + ", ".join(names),
            )


def load_chip(path: Path | str) -> Chip:
    """Reads one chip file. Raises InputError with the line and field of every mistake."""
    return replace(Chip.load(path), file=str(path))
