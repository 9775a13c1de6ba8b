"""What kernels reach of a chip's peaks: `hardware/efficiency/*.yaml`.

One law for every operator, with its constants by operator and format:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import field as made_anew
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dse.errors import Doubt
from dse.schema.chip import Chip
from dse.schema.dtypes import ARITHMETIC, BITS, DTYPES, arithmetic
from dse.schema.loader import load_yaml
from dse.schema.plausible import FAR_OFF
from dse.schema.reader import (
    ID,
    REQUIRED,
    ByName,
    Date,
    Field,
    Listed,
    Number,
    Quantity,
    Refused,
    Schema,
    Table,
    Text,
    Then,
    Whole,
    Word,
    field,
    gathered,
    read,
)

# Spread of the samples of a point, over their median, above which a machine was hardly idle.
NOISY = 0.2

COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
Measured = TypeVar("Measured", bound="Law | Collective")
T = TypeVar("T")
LAW_KINDS = ("fitted", "derived", "assumed")
# Seconds of launch and tail of one small kernel inside a CUDA graph: assumed, near the 1.7 us by
# which the smallest GEMMs undercut their fitted fixed cost.
ELEMENTWISE_FIXED = 2e-6
# Of the 16-bit arithmetic that experts with unpacked weights reach: w4a16 over 16-bit ones, .78
# on H100, .73 on H200, 1.10 on L40S (measured; hardware/efficiency), their median.
UNPACKED_EXPERTS = 0.78


# Of shipped laws: fractions from 0.024 up, times from 0.1 to 65 us, a ramp of at most 4.
_FRACTION = (0.01, 2.0)
_COMPUTE = (0.005, 2.0)  # decode attention reaches little of it
_TIME = Quantity("s", usual=(1e-7, 1e-3))
_KIND, _ERROR = Word(LAW_KINDS), Number(0, 1)


class Law(Schema):
    """Constants of the law; `compute` and `memory` are fractions, `error` the median absolute
    error of the fit as a fraction. Of a law without a source, that of the file is meant."""

    compute: float = field(Number(above=0, most=1, usual=_COMPUTE))
    memory: float = field(Number(above=0, most=1, usual=_FRACTION))
    fixed_s: float = field(_TIME, written="fixed")
    p: float = field(Number(1, 100))
    kind: str = field(_KIND)
    error: float | None = field(_ERROR, default=None)
    source: str = field(Text(), default="")
    note: str | None = field(Text(), default=None)


class Collective(Schema, kw_only=True):
    """For n chips, with transfer = wire bytes / (bandwidth_fraction(n) * link),

        seconds = latency_s(n) + transfer + ramp(n) * sqrt(latency_s(n) * transfer)

    `ramp` is what messages cost that are too long for the latency alone and too short for the full
    bandwidth; 2 is a p-norm of the two with p = 1/2."""

    chips: tuple[int, ...] = field(Listed(Whole(1, 10**6), 1))
    latency_s: Mapping[int, float] = field(Listed(_TIME), written="latency")
    bandwidth_fraction: Mapping[int, float] = field(
        Listed(Number(above=0, most=2, usual=_FRACTION))
    )
    ramp: Mapping[int, float] = field(Listed(Number(0, 100)), default=None)
    kind: str = field(_KIND)
    error: float | None = field(_ERROR, default=None)
    source: str = field(Text(), default="")
    note: str | None = field(Text(), default=None)

    def check(self) -> Collective:
        """With its lists by the number of chips."""
        n, latencies, fractions = len(self.chips), len(self.latency_s), len(self.bandwidth_fraction)
        if not n == latencies == fractions:
            message = f"{n} chips, {latencies} latencies and {fractions} fractions"
            raise Refused(message, "three lists of one length")
        ramp = (0.0,) * n if self.ramp is None else self.ramp
        if len(ramp) != n:
            raise Refused(f"{n} chips and {len(ramp)} ramps", "lists of one length")
        lists = {"latency_s": self.latency_s, "bandwidth_fraction": self.bandwidth_fraction}
        lists |= {"ramp": ramp}
        by_chips = {k: dict(zip(self.chips, v, strict=True)) for k, v in lists.items()}
        return replace(self, **by_chips)


def _formats(laws: dict[str, Law]) -> dict[str, Law]:
    if "bf16" not in laws:
        raise Refused("no law for bf16", "bf16 and any of " + ", ".join(DTYPES))
    return laws


OPERATORS = (
    "gemm",
    "prefill_attention",
    "decode_attention",
    "mla_prefill_attention",
    "mla_decode_attention",
    "experts",
)
_COLLECTIVES = (
    Field("all_reduce", Collective),
    Field("all_gather", Collective, None),
    Field("all_to_all", Collective),
)
_LAWS = Then(ByName(Law, DTYPES, "format"), _formats)
_PEAKS = [Field(n, Quantity("flop/s"), REQUIRED if n == "bf16" else None) for n in ARITHMETIC]


class Efficiency(Schema, kw_only=True):
    """Laws by operator and format, and the peaks and bandwidth that the fractions refer to.

    `elementwise_fixed_s` is the fixed cost of a norm, an activation or a rotary embedding.
    `all_gather` stands for a reduce-scatter too; a file without it has that of `all_to_all`, which
    moves the same bytes. `through_host` has the three of chips that do not reach each other's
    memory, empty where nobody measured them. The file of a class of chips has no `divided_by`: its
    fractions refer to the figures of the chip that uses it, `peak_flops_per_s` is empty and
    `hbm_bytes_per_s` NaN until `of_chip`. `provenance` is what a file of `dse calibrate` says of
    the device and the run, empty for any other file.
    """

    id: str = field(ID)
    title: str = field(Text())
    divided_by: Mapping[str, float] = field(
        Table(*_PEAKS, Field("memory_bandwidth", Quantity("bytes/s"))), default=None
    )
    source: str = field(Text(1))
    date: str = field(Date())
    note: str | None = field(Text(), default=None)
    provenance: Mapping[str, str] = field(ByName(Text()), default={})
    operators: Mapping[str, Mapping[str, Law]] = field(
        Table(*(Field(name, _LAWS) for name in OPERATORS))
    )
    expert_padding_rows: float = field(Number(0, usual=(0.0, 1024.0)))
    elementwise_fixed_s: float = field(
        _TIME, default=ELEMENTWISE_FIXED, written="elementwise_fixed"
    )
    links: Mapping[str, Collective] = gathered(*_COLLECTIVES, default={})
    through_host: Mapping[str, Collective] = field(Table(*_COLLECTIVES), default={}, null=True)
    peak_flops_per_s: Mapping[str, float] = made_anew(default_factory=dict)
    hbm_bytes_per_s: float = math.nan
    file: str = ""

    def check(self) -> Efficiency:
        """With the source of the file for each law without its own."""

        def founded(law: Measured) -> Measured:
            return law if law.source else replace(law, source=self.source)

        def collectives(given: Mapping[str, Collective]) -> dict[str, Collective]:
            if not given:
                return {}
            every = {"all_gather": given["all_to_all"]} | {k: v for k, v in given.items() if v}
            return {name: founded(every[name]) for name in COLLECTIVES}

        base = self.divided_by or {}
        return replace(
            self,
            peak_flops_per_s={n: base[n] for n in ARITHMETIC if base.get(n)},
            hbm_bytes_per_s=base.get("memory_bandwidth", math.nan),
            operators=self.each(lambda operator, dtype, law: founded(law)),
            links=collectives(self.links),
            through_host=collectives(self.through_host),
        )

    def each(self, change: Callable[[str, str, Law], T]) -> dict[str, dict[str, T]]:
        """The laws by operator and format, each as `change` makes it of these and the law."""
        return {
            operator: {dtype: change(operator, dtype, law) for dtype, law in laws.items()}
            for operator, laws in self.operators.items()
        }

    @property
    def all_reduce(self) -> Collective:
        return self.links["all_reduce"]

    @property
    def all_gather(self) -> Collective:
        return self.links["all_gather"]

    @property
    def all_to_all(self) -> Collective:
        return self.links["all_to_all"]

    @property
    def noise(self) -> float | None:
        """What `dse calibrate` wrote of the spread of its samples; None in any other file."""
        try:
            return float(self.provenance["noise"])
        except (KeyError, ValueError):
            return None

    def measured(self, operator: str) -> frozenset[str]:
        """The formats whose law holds figures measured in them, on this chip or its kin: fitted
        ones, and of a class of chips those with a published figure (`derived`). 16 bits where there
        is none."""
        of_class = self.id.startswith("class_")
        return frozenset(
            dtype
            for dtype, law in self.operators[operator].items()
            if law.error is not None or (of_class and law.kind == "derived")
        ) or frozenset({"bf16"})

    @property
    def is_class(self) -> bool:
        return math.isnan(self.hbm_bytes_per_s)

    def of_chip(self, chip: Chip) -> Efficiency:
        """These laws for a chip that they were not measured on, as "file:chip": the fractions refer
        to the chip's own figures, and what was fitted elsewhere is derived here. 4-bit experts on a
        chip without 4-bit arithmetic are unpacked and reach `UNPACKED_EXPERTS` of the fraction of
        16-bit ones; where only the other chip has it, 4 bits reach the fraction of fp8."""
        return replace(
            self,
            id=f"{self.id}:{chip.id}",
            peak_flops_per_s=chip.peak_flops_per_s,
            hbm_bytes_per_s=chip.memories[0].bytes_per_s,
            operators=self.each(lambda of, dtype, _: _not_fitted(self._unpacked(of, dtype, chip))),
            links=_all_not_fitted(self.links),
        )

    def with_links_of(self, other: Efficiency) -> Efficiency:
        """These laws with the collectives of another chip, whose fabric is the nearer one."""
        return replace(self, links=_all_not_fitted(other.links))

    def without_peer_to_peer(self, measured: Efficiency) -> Efficiency:
        """These laws with collectives through the host: its own, or those that were measured."""
        return replace(self, links=self.through_host or _all_not_fitted(measured.through_host))

    def of_figures(self, chip: Chip) -> Efficiency:
        """These laws, measured on `chip`, as fractions of the figures of its chip file: the peaks
        that they were divided by may differ (B200: 7.7 against 8 TB/s)."""

        def peak_ratio(dtype: str) -> float:
            runs_on = arithmetic(dtype)
            runs_on = runs_on if runs_on in chip.peak_flops_per_s else "bf16"
            peak = chip.peak_flops_per_s[runs_on]
            return self.peak_flops_per_s.get(runs_on, peak) / peak

        bandwidth_ratio = self.hbm_bytes_per_s / chip.memories[0].bytes_per_s

        def rebased(operator: str, dtype: str, law: Law) -> Law:
            compute = min(law.compute * peak_ratio(dtype), 1.0)
            return replace(law, compute=compute, memory=min(law.memory * bandwidth_ratio, 1.0))

        return replace(self, operators=self.each(rebased))

    def _unpacked(self, operator: str, dtype: str, chip: Chip) -> Law:
        laws = self.operators[operator]
        if operator not in ("gemm", "experts") or BITS[dtype] >= 8:
            return laws[dtype]
        here = self.is_class or arithmetic(dtype) in self.peak_flops_per_s
        there = dtype in chip.peak_flops_per_s
        if here and not there and operator == "experts":
            return replace(laws[dtype], compute=laws["bf16"].compute * UNPACKED_EXPERTS)
        if there and not here:
            return replace(laws[dtype], compute=laws.get("fp8", laws["bf16"]).compute)
        return laws[dtype]


def _not_fitted(law: Measured) -> Measured:
    return replace(law, kind="derived") if law.kind == "fitted" else law


def _all_not_fitted(links: Mapping[str, Collective]) -> dict[str, Collective]:
    return {name: _not_fitted(law) for name, law in links.items()}


def load_efficiency(path: Path | str) -> Efficiency:
    """Reads one efficiency file. Raises InputError with the line and field of every mistake."""
    document = load_yaml(path)
    with warnings.catch_warnings():
        if isinstance(document.data, dict) and document.data.get("provenance"):
            # Measured: no unit has slipped.
            warnings.filterwarnings("ignore", f"(?s).*{FAR_OFF}", Doubt)
        return replace(read(Efficiency, document), file=str(path))
