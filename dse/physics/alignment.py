"""What misaligned sizes cost: the sizes that a kernel computes, and the speed that it reaches.

A product of M rows, K inner by N columns on one rank runs as one of K' by N' columns: whole steps
of the chip's `columns` in both. On NVIDIA and AMD these are 64, the smallest tile that libraries
run at full speed, and 128 bytes of bf16, which a kernel loads at a time (derived); on a matrix unit
of U x U they are U. Memory time is that of whole lines, 64 columns too (assumed), on TPU 128: XLA
lays arrays out in tiles of 8 x 128.

Below that lies a cliff: on H100 widths that are multiples of 64 bytes reach the same within 1%, one
of 4 bytes (10,922 in bf16) reaches 68%. Between 4 and 64 bytes nothing is measured; the cliff is
taken to lie at 16 bytes, what one vector load takes and a stride of the tensor memory accelerator
needs. It was measured on large products in bf16; other formats and chips are taken to lose as much,
and so are products of few rows (assumed): the whole kernel is slowed.

Attention computes heads of the sizes that its kernels are compiled for (FlashAttention: 32, 64, 96,
128, 192, 256); TPU pads them to 128.

Whole tiles of 128 or 256 and waves are left out: kernel laws were fitted to measured products of
many shapes, all multiples of 64, so that their mean waste is in the laws. For the same reason every
size that is a multiple of 64 keeps its time bit for bit on NVIDIA and AMD.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.blocks.operators import Experts, Product, Role
from dse.data import rows_beside
from dse.record import record
from dse.schema.chip import Chip
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.space.candidates import CandidateBatch, Floats

# hardware/measurements/gemm_alignment.csv: H100, bf16, rates at widths of 10,922 and 10,944.
MISALIGNED = 272.7 / 398.4
CLIFF_BYTES = 16.0
MEASURED_BYTES = 64.0  # aligned so far, widths were measured to be alike
FULL_BYTES = 128.0  # what NVIDIA recommends from A100 on
MX_BLOCK = 32.0  # software stores whole blocks of mxfp4
WIDE_HEAD = 128.0
# Scales of blocks lie apart from the elements.
ELEMENT_BITS = np.array([int(BITS[dtype]) for dtype in DTYPES], dtype=np.int64)


@record
class Grain:
    """What kernels on chips of some families come in: a row of grains.csv. `chips` are values of
    `family` in the chip files. K and N are computed in whole steps of `columns` and read in whole
    `lines`; heads are computed in whole steps of `heads`, those wider than 128 of `wide_heads`.
    `is_unit`: `columns` is the side of a matrix unit, that of the chip where its file says it.
    `cliff`: whether misaligned widths are slow, which was measured on `measured`."""

    chips: tuple[str, ...] = ()
    columns: float = 1.0
    lines: float = 1.0
    heads: float = 1.0
    wide_heads: float = 1.0
    is_unit: bool = False
    cliff: bool = False
    measured: tuple[str, ...] = ()
    source: str = "none"


def _grain(row: Mapping[str, str]) -> Grain:
    return Grain(
        chips=tuple(row["chips"].split()),
        **{name: float(row[name]) for name in ("columns", "lines", "heads", "wide_heads")},
        is_unit=bool(row["is_unit"]),
        cliff=bool(row["cliff"]),
        measured=tuple(row["measured"].split()),
        source=row["source"],
    )


UNKNOWN = Grain()
GRAINS = {row["family"]: _grain(row) for row in rows_beside(__file__, "grains.csv")}


def grain_of(family: str) -> Grain:
    """What kernels of a family come in, `UNKNOWN` where nothing is published."""
    return next((grain for grain in GRAINS.values() if family in grain.chips), UNKNOWN)


def columns_of(chip: Chip) -> tuple[float, str]:
    """(step of K and N, its source): what the note of the chip's compute units says of a matrix
    unit, else what holds for the family."""
    grain = grain_of(chip.family)
    figure = chip.figure("compute_units") if grain.is_unit else None
    found = re.search(r"(\d+)x\1\b", figure.note or "") if figure else None
    if figure is None or found is None:
        return grain.columns, grain.source
    return float(found[1]), figure.source


class GrainTable(NamedTuple):
    """The same of all chips of a study: arrays (chips,)."""

    columns: Floats
    lines: Floats
    heads: Floats
    wide_heads: Floats
    cliff: NDArray[np.bool_]


def grain_table(chips: Sequence[Chip]) -> GrainTable:
    """Of chips, in order."""
    grains = [grain_of(chip.family) for chip in chips]
    columns = np.array([columns_of(chip)[0] for chip in chips])
    of_family = ("lines", "heads", "wide_heads", "cliff")
    return GrainTable(
        columns, *(np.array([getattr(grain, name) for grain in grains]) for name in of_family)
    )


def aligned_bytes(size: Floats, bits: NDArray[np.int64]) -> Floats:
    """(n,) largest power of two, up to 128, that divides `size` elements of `bits` in bytes; below
    1 where they do not fill a byte."""
    total = np.rint(size * bits).astype(np.int64) | (8 * int(FULL_BYTES))
    return (total & -total) / 8.0


def alignment_efficiency(bytes_: Floats) -> Floats:
    """(n,) share of its speed that a product whose rows are aligned to `bytes_` reaches."""
    return np.where(bytes_ < CLIFF_BYTES, MISALIGNED, 1.0)


def whole(size: Floats, step: Floats | float) -> Floats:
    """(n,) `size` in whole steps."""
    return np.ceil(size / step) * step


def stored(size: Floats, code: NDArray[np.intp]) -> Floats:
    """(n,) width with the padding to whole blocks that software gives mxfp4."""
    return np.where(code == CODE["mxfp4"], whole(size, MX_BLOCK), size)


class Fit(NamedTuple):
    """A product as its kernel runs it, (n,) each: elements of its weight as computed (`weight`), of
    which a share `filled` is no padding, and as read (`read`), and `sides`, K and N together, as
    read; the share of its speed that it `reached`, None where all reach all of it."""

    weight: Floats
    read: Floats
    sides: Floats
    filled: Floats
    reached: Floats | None


class Alignment:
    """How the products and heads of a batch fit its chips. A product is known by its place in a
    step, since every step of a deployed batch adds the same ones in the same order: the work is
    done in the first, for those candidates alone that do not fit, and None says that all do.

    Routers are computed as they are: they are small, and the number of experts is no width."""

    def __init__(self, table: GrainTable, batch: CandidateBatch) -> None:
        self._table, self._chip = table, batch.chip
        self._weight_dtype = batch.weight_dtype
        self._per_step: dict[str, Floats] = {}
        self._kept: dict[Hashable, Fit | None] = {}
        # With the block itself, so that no other takes its id.
        self._of_heads: dict[tuple[int, str], tuple[object, Floats, Floats | None]] = {}

    def code(self, part: str) -> NDArray[np.intp]:
        """(n,) format of a weight part; 16 bits where it has none."""
        codes = self._weight_dtype.get(part)
        return np.full(len(self._chip), CODE["bf16"], dtype=np.intp) if codes is None else codes

    def computed(self, one: Product) -> Floats:
        """(n,) columns that the kernel of a product computes."""
        if one.role is Role.ROUTER:
            return one.out
        return whole(stored(one.out, self.code(one.part)), self._table.columns[self._chip])

    def bytes(self, one: Product) -> Floats:
        """(n,) that both widths of a product are multiples of, up to 128."""
        code = self.code(one.part)
        bits, sizes = ELEMENT_BITS[code], (stored(one.out, code), stored(one.inner, code))
        return np.minimum(*(aligned_bytes(size, bits) for size in sizes))

    def product(self, place: Hashable, one: Product) -> Fit | None:
        """The fit of the product at a place of a step; None where it needs none."""
        if place not in self._kept:
            self._kept[place] = self.fit(one)
        return self._kept[place]

    def experts(self, place: Hashable, one: Experts) -> Fit | None:
        """The same of grouped products."""
        if place not in self._kept:
            self._kept[place] = self._grouped(one)
        return self._kept[place]

    def fit(self, one: Product) -> Fit | None:
        """The same of any product."""
        if one.role is Role.ROUTER:
            return None
        at = self._off(one.part, one.out, one.inner)
        if not at.size:
            return None
        run = self._run(one.part, one.out[at], one.inner[at], at)
        return _scattered(at, one.out * one.inner, one.out + one.inner, *run)

    def _grouped(self, one: Experts) -> Fit | None:
        """An up-projection to `matrices` - 1 widths side by side, and one down."""
        at = self._off("experts", one.width, one.latent)
        if not at.size:
            return None
        width, latent = one.width[at], one.latent[at]
        matrices = np.maximum(one.block["matrices"][at], 2.0)
        up = self._run("experts", (matrices - 1.0) * width, latent, at)
        down = self._run("experts", latent, width, at)
        share = 1.0 / matrices
        # In shares, so that what is at full speed both ways is at exactly 1.
        slower = (1.0 / up[3] - 1.0) * (1.0 - share) + (1.0 / down[3] - 1.0) * share
        run = (up[0] + down[0], up[1] + down[1], down[2], 1.0 / (1.0 + slower))
        return _scattered(at, one.weight, one.width + one.latent, *run)

    def _off(self, part: str, *sizes: Floats) -> NDArray[np.intp]:
        """Candidates with a size that needs padding; all others lie above the cliff too."""
        if part not in self._per_step:
            blocks = np.where(self.code(part) == CODE["mxfp4"], MX_BLOCK, 1.0)
            # All are powers of two.
            self._per_step[part] = 1.0 / np.maximum(self._table.columns[self._chip], blocks)
        off = np.zeros(len(self._chip), dtype=bool)
        for size in sizes:
            steps = size * self._per_step[part]
            off |= steps != np.floor(steps)
        return np.flatnonzero(off)

    def _run(
        self, part: str, out: Floats, inner: Floats, at: NDArray[np.intp]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """(weight, read, sides, reached) of the candidates `at`."""
        table, chip, code = self._table, self._chip[at], self.code(part)[at]
        columns, lines, bits = table.columns[chip], table.lines[chip], ELEMENT_BITS[code]
        out, inner = stored(out, code), stored(inner, code)
        bytes_ = np.minimum(aligned_bytes(out, bits), aligned_bytes(inner, bits))
        reached = np.where(table.cliff[chip], alignment_efficiency(bytes_), 1.0)
        wide, deep = whole(out, lines), whole(inner, lines)
        return whole(inner, columns) * whole(out, columns), deep * wide, deep + wide, reached

    def heads(self, block: object, name: str, *sizes: Floats) -> tuple[Floats, Floats | None]:
        """(sum of the head sizes as computed, the share of it that is not padding), (n,); None for
        the share where no head is padded. `name` tells several of a block apart."""
        key = (id(block), name)
        if key not in self._of_heads:
            total = computed = np.zeros(len(self._chip))
            wide, usual = self._table.wide_heads[self._chip], self._table.heads[self._chip]
            for size in sizes:
                step = np.where(size > WIDE_HEAD, wide, usual)
                total, computed = total + size, computed + whole(size, step)
            share = None
            if (computed != total).any():
                share = np.where(computed > 0.0, total / np.maximum(computed, 1.0), 1.0)
            self._of_heads[key] = block, computed, share
        return self._of_heads[key][1:]


def _scattered(
    at: NDArray[np.intp],
    weight: Floats,
    sides: Floats,
    computed: Floats,
    read: Floats,
    sides_read: Floats,
    reached: Floats,
) -> Fit:
    """The fit of all candidates from that of those `at`, the others as they are."""
    filled, whole_speed = np.ones(len(weight)), (reached == 1.0).all()
    speed, reads, wide = np.ones(len(weight)), weight.copy(), sides.copy()
    # Nothing is padded of a layer that a model lacks.
    filled[at] = np.where(computed > 0.0, weight[at] / np.maximum(computed, 1.0), 1.0)
    weight = weight.copy()
    weight[at], reads[at], wide[at], speed[at] = computed, read, sides_read, reached
    return Fit(weight, reads, wide, filled, None if whole_speed else speed)
