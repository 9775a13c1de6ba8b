"""Chips: `hardware/chips/*.yaml`. Every figure keeps its source, date, kind and the vendor's words.

Peaks are dense, bandwidths are bytes, GB is not GiB. The capacity is what the driver reports where
that is known, else the vendor's label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from dse.errors import InputError, InputErrors
from dse.schema.dtypes import ARITHMETIC
from dse.schema.loader import (
    STRICT,
    Document,
    KeyPath,
    did_you_mean,
    load_yaml,
    reject,
    validate,
)

Kind = Literal["spec", "measured", "claimed", "estimated", "assumed", "fitted", "derived"]
Availability = Literal[
    "shipping", "shipping_legacy", "shipping_cn", "legacy", "limited", "restricted", "internal",
    "cloud", "cloud_legacy", "announced", "announced_ramping", "announced_deprioritised", "own",
    "hypothetical",
]  # fmt: skip

# Figures of a chip file and their dimensions.
DIMENSION = {
    "peak_bf16": "flop/s", "peak_fp16": "flop/s", "peak_tf32": "flop/s", "peak_fp32": "flop/s",
    "peak_fp8": "flop/s", "peak_int8": "flop/s", "peak_nvfp4": "flop/s", "peak_mxfp4": "flop/s",
    "memory_capacity": "bytes", "memory_capacity_driver_reported": "bytes",
    "memory_bandwidth": "bytes/s", "sram_capacity": "bytes", "sram_bandwidth": "bytes/s",
    "tdp": "W", "system_power": "W", "compute_units": "count", "clock": "Hz",
    "idle_power": "W", "matmul_power": "W",
    "host_link_bandwidth": "bytes/s",
}  # fmt: skip
# What every chip has, so that its absence is a gap. A chip without an fp8 peak simply has none.
EXPECTED = (
    "peak_bf16", "memory_capacity", "memory_bandwidth", "sram_capacity", "sram_bandwidth", "tdp",
    "system_power", "compute_units", "clock", "host_link_bandwidth",
)  # fmt: skip
# What no estimate can do without.
ROOFLINE = ("peak_bf16", "memory_capacity", "memory_bandwidth")
GENERIC = "generic"  # the backend of a chip whose file names none
# The availability of a chip that nobody makes, and what its id then begins with.
HYPOTHETICAL = "hypothetical"
# The date of a figure that the user's own file gives without one.
UNDATED = "undated"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with where it comes from.

    `value` is SI in the dimension `unit` and `text` what the file says. A figure that is a word
    (unit "text", a topology) has value NaN.
    """

    name: str
    value: float
    unit: str
    text: str
    source: str
    date: str
    kind: str
    quote: str | None
    note: str | None
    alternatives: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory of a chip; NaN where the figure is not known."""

    kind: str
    bytes: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator as software sees it.

    `peak_flops_per_s` holds the dense peak of every format of `dse.schema.dtypes.ARITHMETIC` that
    the chip computes in; `memories` starts with the device memory (of a machine without any other,
    its SRAM); `capacity_bytes` is that memory's size (NaN if unknown). `assumed` holds "name:
    reason" and `missing` the names of the figures that nobody published; `not_chosen` holds
    published values of figures of which none could be believed. `backend` is the serving software
    that is meant where an estimate of one point names none. `idle_w`: drawn with weights loaded and
    nothing to do; `matmul_w`: at the measured rate of large matrix products, where not `tdp_w`.
    A hypothetical chip was made from the chip `derived_from` by the `changes`.
    """

    id: str
    vendor: str
    name: str
    family: str
    year: int | None
    availability: str
    system: str
    efficiency: str
    backend: str
    peak_flops_per_s: Mapping[str, float]
    memories: tuple[Memory, ...]
    capacity_bytes: float
    capacity_kind: Literal["driver_reported", "vendor_label"]
    tdp_w: float | None
    idle_w: float | None
    matmul_w: float | None
    system_w_per_chip: float | None
    compute_units: int | None
    clock_hz: float | None
    figures: tuple[Figure, ...]
    assumed: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    not_chosen: tuple[Figure, ...]
    file: str
    derived_from: str = ""
    changes: tuple[str, ...] = ()

    @property
    def hypothetical(self) -> bool:
        return self.availability == HYPOTHETICAL

    def figure(self, name: str) -> Figure | None:
        return next((figure for figure in self.figures if figure.name == name), None)

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


def _date(text: str) -> str:
    if text != UNDATED and not re.fullmatch(r"\d{4}(-\d{2}(-\d{2})?|-Q[1-4])?", text):
        raise reject("not a date", "2026, 2026-Q3, 2026-11 or 2026-11-20")
    return text


Date = Annotated[str, AfterValidator(_date)]


def _figure_names(written: dict[str, tuple[SourcedSpec, ...]]) -> dict:
    for name in written:
        if name not in DIMENSION:
            message = f"{name!r} is no figure{did_you_mean(name, DIMENSION)}"
            raise reject(message, ", ".join(DIMENSION))
    return written


class SourcedSpec(BaseModel):
    """A value as written, with its source."""

    model_config = STRICT

    value: str
    kind: Kind
    source: str = Field(min_length=1)
    date: Date
    quote: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _assumptions_have_reasons(self) -> SourcedSpec:
        if self.kind == "assumed" and not self.note:
            raise reject("an assumed figure without its reason", "a `note` that says why")
        return self


class FigureSpec(SourcedSpec):
    """A chosen value and the conflicting ones that other sources give."""

    alternatives: tuple[SourcedSpec, ...] = ()


class ChipFigures(BaseModel):
    """The figures that a chip file may have."""

    model_config = STRICT

    peak_bf16: FigureSpec | None = None
    peak_fp16: FigureSpec | None = None
    peak_tf32: FigureSpec | None = None
    peak_fp32: FigureSpec | None = None
    peak_fp8: FigureSpec | None = None
    peak_int8: FigureSpec | None = None
    peak_nvfp4: FigureSpec | None = None
    peak_mxfp4: FigureSpec | None = None
    memory_capacity: FigureSpec | None = None
    memory_capacity_driver_reported: FigureSpec | None = None
    memory_bandwidth: FigureSpec | None = None
    sram_capacity: FigureSpec | None = None
    sram_bandwidth: FigureSpec | None = None
    tdp: FigureSpec | None = None
    idle_power: FigureSpec | None = None
    matmul_power: FigureSpec | None = None
    system_power: FigureSpec | None = None
    compute_units: FigureSpec | None = None
    clock: FigureSpec | None = None
    host_link_bandwidth: FigureSpec | None = None


class _ExtraMemory(BaseModel):
    model_config = STRICT

    kind: str
    capacity: FigureSpec | None = None
    bandwidth: FigureSpec | None = None


class ChipFile(BaseModel):
    """A chip file as written."""

    model_config = STRICT

    id: str = Field(min_length=1)
    vendor: str
    name: str
    family: str
    year: int | None = None
    availability: Availability
    memory_kind: str
    system: str
    efficiency: str
    backend: str = GENERIC
    figures: ChipFigures
    extra_memories: tuple[_ExtraMemory, ...] = ()
    not_chosen: Annotated[dict[str, tuple[SourcedSpec, ...]], AfterValidator(_figure_names)] = {}
    notes: tuple[str, ...] = ()


def load_chip(path: Path | str) -> Chip:
    """Reads one chip file. Raises InputError with the line and field of every mistake."""
    return read_chip(load_yaml(path))


def read_chip(document: Document, form: type[ChipFile] = ChipFile) -> Chip:
    """The chip of a document of that form. Raises InputError, or InputErrors for several
    mistakes."""
    wrong = wrong_quantities(document)
    try:
        spec = validate(form, document)
    except InputError as error:
        raise together([*each(error), *wrong]) from None
    if wrong:
        raise together(wrong)
    figures = {
        name: read_figure(document, ("figures", name), name, written, dimension)
        for name, dimension in DIMENSION.items()
        if (written := getattr(spec.figures, name)) is not None
    }
    on_chip = spec.memory_kind == "SRAM"  # its SRAM is the device memory, and stands there
    expected = [name for name in EXPECTED if not (on_chip and name.startswith("sram_"))]
    value = {name: figure.value for name, figure in figures.items()}
    reported = "memory_capacity_driver_reported" in value
    label = value.get("memory_capacity", math.nan)
    capacity = value.get("memory_capacity_driver_reported", label)
    device = Memory(spec.memory_kind, capacity, value.get("memory_bandwidth", math.nan))
    others = [
        _extra_memory(document, index, memory) for index, memory in enumerate(spec.extra_memories)
    ]
    listed = (*figures.values(), *(figure for _, extra in others for figure in extra))
    return Chip(
        id=spec.id,
        vendor=spec.vendor,
        name=spec.name,
        family=spec.family,
        year=spec.year,
        availability=spec.availability,
        system=spec.system,
        efficiency=spec.efficiency,
        backend=spec.backend,
        peak_flops_per_s=MappingProxyType(
            {dtype: value[f"peak_{dtype}"] for dtype in ARITHMETIC if f"peak_{dtype}" in value}
        ),
        memories=(device, *(memory for memory, _ in others)),
        capacity_bytes=capacity,
        capacity_kind="driver_reported" if reported else "vendor_label",
        tdp_w=value.get("tdp"),
        idle_w=value.get("idle_power"),
        matmul_w=value.get("matmul_power"),
        system_w_per_chip=value.get("system_power"),
        compute_units=int(value["compute_units"]) if "compute_units" in value else None,
        clock_hz=value.get("clock"),
        figures=listed,
        assumed=reasons(listed),
        missing=tuple(name for name in expected if name not in value),
        notes=spec.notes,
        not_chosen=tuple(
            read_figure(document, ("not_chosen", name, index), name, written, DIMENSION[name])
            for name, others in spec.not_chosen.items()
            for index, written in enumerate(others)
        ),
        file=document.file,
    )


def each(error: InputError) -> list[InputError]:
    """The mistakes that an error reports."""
    return error.errors if isinstance(error, InputErrors) else [error]


def together(errors: list[InputError]) -> InputError:
    """The mistakes of a file as one error, in the order of its lines."""
    errors = sorted(errors, key=lambda error: error.line or 0)
    return errors[0] if len(errors) == 1 else InputErrors(errors)


def wrong_quantities(document: Document) -> list[InputError]:
    """Every figure and alternative whose value is not one of its dimension."""
    figures = document.data.get("figures")
    errors: list[InputError] = []
    for name, written in figures.items() if isinstance(figures, Mapping) else ():
        if name not in DIMENSION or not isinstance(written, Mapping):
            continue
        others = written.get("alternatives")
        places: list[tuple[KeyPath, object]] = [(("figures", name), written)]
        for index, other in enumerate(others if isinstance(others, list) else ()):
            places.append((("figures", name, "alternatives", index), other))
        for path, one in places:
            if isinstance(one, Mapping) and isinstance(one.get("value"), str | int | float):
                try:
                    quantity(document, (*path, "value"), str(one["value"]), DIMENSION[name])
                except InputError as error:
                    errors.append(error)
    return errors


def quantity(document: Document, path: KeyPath, text: str, dimension: str) -> float:
    """SI value of a figure at `path`. Times may be zero, everything else is above it.

    Raises InputError for a unit of another dimension.
    """
    value = document.quantity(path, text, dimension)
    if value == 0 and dimension != "s":
        raise document.error(path, f"read {text!r}: zero", "more than zero")
    return value


def _extra_memory(
    document: Document, index: int, spec: _ExtraMemory
) -> tuple[Memory, tuple[Figure, ...]]:
    figures = {
        name: read_figure(
            document, ("extra_memories", index, name), f"{spec.kind} {name}", written, dimension
        )
        for name, dimension in (("capacity", "bytes"), ("bandwidth", "bytes/s"))
        if (written := getattr(spec, name)) is not None
    }
    value = {name: figure.value for name, figure in figures.items()}
    memory = Memory(spec.kind, value.get("capacity", math.nan), value.get("bandwidth", math.nan))
    return memory, tuple(figures.values())


def read_figure(
    document: Document, path: KeyPath, name: str, spec: SourcedSpec, dimension: str
) -> Figure:
    """The figure written at `path`, with its alternatives, in SI.

    `dimension` is one of `dse.units` or "text". Raises InputError for a unit of another dimension.
    """
    value = math.nan
    if dimension != "text":
        value = quantity(document, (*path, "value"), spec.value, dimension)
    others = spec.alternatives if isinstance(spec, FigureSpec) else ()
    return Figure(
        name=name,
        value=value,
        unit=dimension,
        text=spec.value,
        source=spec.source,
        date=spec.date,
        kind=spec.kind,
        quote=spec.quote,
        note=spec.note,
        alternatives=tuple(
            read_figure(document, (*path, "alternatives", index), name, other, dimension)
            for index, other in enumerate(others)
        ),
    )


def reasons(figures: tuple[Figure, ...]) -> tuple[str, ...]:
    """The assumed figures, each as "name: reason"."""
    return tuple(f"{f.name}: {f.note}" for f in figures if f.kind == "assumed")
