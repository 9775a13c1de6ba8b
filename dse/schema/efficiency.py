"""What kernels reach of a chip's peaks: `hardware/efficiency/*.yaml`.

One law for every operator, with its constants by operator and format:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from dse.schema.chip import Chip, Date
from dse.schema.dtypes import ARITHMETIC, BITS, DTYPES, arithmetic
from dse.schema.loader import STRICT, Document, KeyPath, did_you_mean, load_yaml, reject, validate

# Spread of the samples of a point, over their median, above which a machine was hardly idle.
NOISY = 0.2

LawKind = Literal["fitted", "derived", "assumed"]
# Launch and tail of one small kernel inside a CUDA graph: assumed, near the 1.7 us by which the
# smallest GEMMs undercut their fitted fixed cost.
ELEMENTWISE_FIXED = "2 us"


@dataclass(frozen=True, slots=True)
class Law:
    """Constants of the law; `compute` and `memory` are fractions, `error` the median absolute
    error of the fit as a fraction."""

    compute: float
    memory: float
    fixed_s: float
    p: float
    kind: str
    source: str
    error: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Collective:
    """For n chips, with transfer = wire bytes / (bandwidth_fraction(n) * link),

        seconds = latency_s(n) + transfer + ramp(n) * sqrt(latency_s(n) * transfer)

    `ramp` is what messages cost that are too long for the latency alone and too short for the full
    bandwidth; 2 is a p-norm of the two with p = 1/2."""

    latency_s: Mapping[int, float]
    bandwidth_fraction: Mapping[int, float]
    ramp: Mapping[int, float]
    kind: str
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Laws by operator and format, and the peaks and bandwidth that the fractions refer to.

    `elementwise_fixed_s` is the fixed cost of a norm, an activation or a rotary embedding.
    `all_gather` stands for a reduce-scatter too; a file without it has that of `all_to_all`, which
    moves the same bytes. The file of a class of chips has no `divided_by`: its fractions refer to
    the figures of the chip that uses it, `peak_flops_per_s` is empty and `hbm_bytes_per_s` NaN
    until `of_chip`. `provenance` is what a file of `dse calibrate` says of the device and the run,
    empty for any other file.
    """

    id: str
    title: str
    peak_flops_per_s: Mapping[str, float]
    hbm_bytes_per_s: float
    operators: Mapping[str, Mapping[str, Law]]
    expert_padding_rows: float
    elementwise_fixed_s: float
    all_reduce: Collective
    all_gather: Collective
    all_to_all: Collective
    source: str
    date: str
    file: str
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def noise(self) -> float | None:
        """What `dse calibrate` wrote of the spread of its samples; None in any other file."""
        try:
            return float(self.provenance["noise"])
        except (KeyError, ValueError):
            return None

    @property
    def is_class(self) -> bool:
        return math.isnan(self.hbm_bytes_per_s)

    def of_chip(self, chip: Chip) -> Efficiency:
        """These laws for a chip that they were not measured on, as "file:chip": the fractions refer
        to the chip's own figures, and what was fitted elsewhere is derived here. 4-bit experts on a
        chip without 4-bit arithmetic are unpacked and reach the fraction of 16-bit ones; where only
        the other chip has it, 4 bits reach the fraction of fp8."""
        return replace(
            self,
            id=f"{self.id}:{chip.id}",
            peak_flops_per_s=chip.peak_flops_per_s,
            hbm_bytes_per_s=chip.memories[0].bytes_per_s,
            operators={
                operator: {
                    dtype: _not_fitted(self._unpacked(operator, dtype, chip)) for dtype in laws
                }
                for operator, laws in self.operators.items()
            },
            all_reduce=_not_fitted(self.all_reduce),
            all_gather=_not_fitted(self.all_gather),
            all_to_all=_not_fitted(self.all_to_all),
        )

    def of_figures(self, chip: Chip) -> Efficiency:
        """These laws, measured on `chip`, as fractions of the figures of its chip file: the peaks
        that they were divided by may differ (B200: 7.7 against 8 TB/s)."""

        def peak_ratio(dtype: str) -> float:
            runs_on = arithmetic(dtype)
            runs_on = runs_on if runs_on in chip.peak_flops_per_s else "bf16"
            peak = chip.peak_flops_per_s[runs_on]
            return self.peak_flops_per_s.get(runs_on, peak) / peak

        bandwidth_ratio = self.hbm_bytes_per_s / chip.memories[0].bytes_per_s
        return replace(
            self,
            operators={
                operator: {
                    dtype: replace(
                        law,
                        compute=min(law.compute * peak_ratio(dtype), 1.0),
                        memory=min(law.memory * bandwidth_ratio, 1.0),
                    )
                    for dtype, law in laws.items()
                }
                for operator, laws in self.operators.items()
            },
        )

    def _unpacked(self, operator: str, dtype: str, chip: Chip) -> Law:
        laws = self.operators[operator]
        if operator not in ("gemm", "experts") or BITS[dtype] >= 8:
            return laws[dtype]
        here = self.is_class or arithmetic(dtype) in self.peak_flops_per_s
        there = dtype in chip.peak_flops_per_s
        if here and not there and operator == "experts":
            return replace(laws[dtype], compute=laws["bf16"].compute)
        if there and not here:
            return replace(laws[dtype], compute=laws.get("fp8", laws["bf16"]).compute)
        return laws[dtype]


Measured = TypeVar("Measured", Law, Collective)


def _not_fitted(law: Measured) -> Measured:
    return replace(law, kind="derived") if law.kind == "fitted" else law


def _formats(laws: Mapping[str, object]) -> Mapping[str, object]:
    for name in laws:
        if name not in DTYPES:
            raise reject(f"{name!r} is no format{did_you_mean(name, DTYPES)}", ", ".join(DTYPES))
    if "bf16" not in laws:
        raise reject("no law for bf16", "bf16 and any of " + ", ".join(DTYPES))
    return laws


class _LawSpec(BaseModel):
    model_config = STRICT

    compute: float = Field(gt=0, le=1)
    memory: float = Field(gt=0, le=1)
    fixed: str
    p: float = Field(ge=1)
    kind: LawKind
    error: float | None = Field(default=None, ge=0)
    source: str | None = None
    note: str | None = None


_Laws = Annotated[dict[str, _LawSpec], BeforeValidator(_formats)]


class _Operators(BaseModel):
    model_config = STRICT

    gemm: _Laws
    prefill_attention: _Laws
    decode_attention: _Laws
    mla_prefill_attention: _Laws
    mla_decode_attention: _Laws
    experts: _Laws


class _CollectiveSpec(BaseModel):
    model_config = STRICT

    chips: tuple[int, ...] = Field(min_length=1)
    latency: tuple[str, ...]
    bandwidth_fraction: tuple[Annotated[float, Field(gt=0, le=2)], ...]
    ramp: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    kind: LawKind
    error: float | None = Field(default=None, ge=0)
    source: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _aligned(self) -> _CollectiveSpec:
        if not len(self.chips) == len(self.latency) == len(self.bandwidth_fraction):
            raise reject(
                f"{len(self.chips)} chips, {len(self.latency)} latencies and "
                f"{len(self.bandwidth_fraction)} fractions",
                "three lists of one length",
            )
        if self.ramp is not None and len(self.ramp) != len(self.chips):
            raise reject(
                f"{len(self.chips)} chips and {len(self.ramp)} ramps", "lists of one length"
            )
        return self


class _DividedBy(BaseModel):
    model_config = STRICT

    bf16: str
    fp8: str | None = None
    int8: str | None = None
    nvfp4: str | None = None
    mxfp4: str | None = None
    memory_bandwidth: str


class _EfficiencyFile(BaseModel):
    model_config = STRICT

    id: str = Field(min_length=1)
    title: str
    divided_by: _DividedBy | None = None
    source: str = Field(min_length=1)
    date: Date
    note: str | None = None
    provenance: dict[str, str] = {}
    operators: _Operators
    expert_padding_rows: float = Field(ge=0)
    elementwise_fixed: str = ELEMENTWISE_FIXED
    all_reduce: _CollectiveSpec
    all_gather: _CollectiveSpec | None = None
    all_to_all: _CollectiveSpec


def load_efficiency(path: Path | str) -> Efficiency:
    """Reads one efficiency file. Raises InputError with the line and field of every mistake."""
    document = load_yaml(path)
    spec = validate(_EfficiencyFile, document)
    base = spec.divided_by.model_dump(exclude_none=True) if spec.divided_by else {}
    peaks = {
        name: document.quantity(("divided_by", name), base[name], "flop/s")
        for name in ARITHMETIC
        if name in base
    }
    bandwidth = math.nan
    if spec.divided_by:
        text = spec.divided_by.memory_bandwidth
        bandwidth = document.quantity(("divided_by", "memory_bandwidth"), text, "bytes/s")
    to_all = _collective(document, "all_to_all", spec.all_to_all, spec.source)
    gather = to_all
    if spec.all_gather:
        gather = _collective(document, "all_gather", spec.all_gather, spec.source)
    return Efficiency(
        id=spec.id,
        title=spec.title,
        peak_flops_per_s=MappingProxyType(peaks),
        hbm_bytes_per_s=bandwidth,
        operators={
            operator: {
                name: _law(document, ("operators", operator, name), law, spec.source)
                for name, law in laws.items()
            }
            for operator, laws in spec.operators
        },
        expert_padding_rows=spec.expert_padding_rows,
        elementwise_fixed_s=document.quantity(("elementwise_fixed",), spec.elementwise_fixed, "s"),
        all_reduce=_collective(document, "all_reduce", spec.all_reduce, spec.source),
        all_gather=gather,
        all_to_all=to_all,
        source=spec.source,
        date=spec.date,
        file=str(path),
        provenance=MappingProxyType(spec.provenance),
    )


def _law(document: Document, path: KeyPath, spec: _LawSpec, source: str) -> Law:
    return Law(
        compute=spec.compute,
        memory=spec.memory,
        fixed_s=document.quantity((*path, "fixed"), spec.fixed, "s"),
        p=spec.p,
        kind=spec.kind,
        source=spec.source or source,
        error=spec.error,
        note=spec.note,
    )


def _collective(document: Document, name: str, spec: _CollectiveSpec, source: str) -> Collective:
    seconds = [
        document.quantity((name, "latency", index), text, "s")
        for index, text in enumerate(spec.latency)
    ]
    return Collective(
        latency_s=dict(zip(spec.chips, seconds, strict=True)),
        bandwidth_fraction=dict(zip(spec.chips, spec.bandwidth_fraction, strict=True)),
        ramp=dict(zip(spec.chips, spec.ramp or (0.0,) * len(spec.chips), strict=True)),
        kind=spec.kind,
        source=spec.source or source,
        note=spec.note,
    )
