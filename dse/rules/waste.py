"""What a shape costs in time: matrix products that do not fill the chip, copies, padding.

Costs are shares of the predicted step (device and network, without the host). Those of alignment,
padding and blocks are in every prediction (`dse.physics.alignment`). Those of tiles and waves are
in none, and must not be added to one: the laws of kernels were fitted to measured products of many
shapes, so that their mean waste is in them.

How much of a chip a matrix product can use, from its sizes: closed forms, arrays (n,).

Tiles: an output of M x N is computed in whole tiles of Tm x Tn,

    tile efficiency = M N / (ceil(M / Tm) Tm ceil(N / Tn) Tn).

Waves: C tiles on S compute units take ceil(C / S) rounds,

    wave efficiency = C / (ceil(C / S) S)

(NVIDIA, Matrix Multiplication Background). K enters neither; fewer tiles than half the units are
split over it (assumed). Libraries have more tiles than the three here, and schedules that share out
the last wave, so that the best of these is an upper bound of the loss. At few rows products are
bound by memory: nothing is lost to tiles at SMALL rows or fewer (assumed).

What misaligned sizes cost is in every prediction, and in `dse.physics.alignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from dse.blocks.operators import Role
from dse.physics.alignment import CLIFF_BYTES, ELEMENT_BITS, MEASURED_BYTES, MX_BLOCK
from dse.physics.gemms import Gemm, NotedStep
from dse.physics.phases import layer_imbalance
from dse.record import record
from dse.rules.case import Width, split_widths
from dse.rules.deployment import MX, mx_padding
from dse.rules.divide import VOCABULARY_MULTIPLE
from dse.rules.kinds import Family, Finding, Rule, rule_of, said, whole
from dse.schema.dtypes import CODE
from dse.space.candidates import CandidateBatch, Floats

SMALL = 256.0


def tile_efficiency(rows: Floats, out: Floats, tile: tuple[float, float]) -> Floats:
    """(n,) useful share of the tiles of an M x N output."""
    tall, wide = tile
    computed = np.ceil(rows / tall) * tall * np.ceil(out / wide) * wide
    return rows * out / np.maximum(computed, 1.0)


def wave_efficiency(
    rows: Floats, out: Floats, tile: tuple[float, float], units: float, groups: Floats | float = 1.0
) -> Floats:
    """(n,) share of `units` that the tiles of `groups` outputs keep busy. Fewer tiles than half the
    units are split over K into as many parts as fit."""
    tiles = np.ceil(rows / tile[0]) * np.ceil(out / tile[1]) * groups
    tiles = tiles * np.maximum(np.floor(units / np.maximum(tiles, 1.0)), 1.0)
    return tiles / np.maximum(np.ceil(tiles / units) * units, 1.0)


def best_tile(
    rows: Floats,
    out: Floats,
    tiles: tuple[tuple[float, float], ...],
    units: float | None,
    groups: Floats,
) -> tuple[Floats, Floats]:
    """(tile efficiency, wave efficiency) of the tile that wastes least, (n,) each; 1 at few rows.
    Of grouped products the rows are left out, whose padding the law of the experts has; waves are 1
    where the number of units is not known."""
    tile = wave = np.zeros(len(rows))
    for one in tiles:
        whole = tile_efficiency(rows, out, one)
        columns = tile_efficiency(np.full(len(rows), one[0]), out, one)
        used = np.where(groups > 1.0, columns, whole)
        busy = np.ones(len(rows))
        if units is not None:
            busy = wave_efficiency(rows, out, one, units, groups)
        better = used * busy > tile * wave
        tile, wave = np.where(better, used, tile), np.where(better, busy, wave)
    few = (rows * groups <= SMALL) | (rows * out <= 0.0)
    return np.where(few, 1.0, tile), np.where(few, 1.0, wave)


SEEN = 5e-4  # shares below it are not worth a line

ALIGNMENT = rule_of("alignment")
ALIGNMENT_IN_DECODE = replace(
    ALIGNMENT,
    name="alignment_in_decode",
    source="taken to lose as much as large products: no speed of few rows is published",
    known="assumed",
)
TILES = rule_of("tiles_and_waves")
COLUMNS = rule_of("column_padding")
UNIT = rule_of("matrix_unit")
UNIT_ROWS = rule_of("matrix_unit_rows")
KV_COPIES = rule_of("kv_heads_copied")
UNEVEN = rule_of("uneven_stages")
PADDING = rule_of("vocabulary_padding")


@record
class Judged:
    """A product and what it reaches; arrays (n,). `tile` is the useful share of what is computed in
    whole tiles or by the matrix unit, `busy` that of its rows. `added_s`: seconds that all `count`
    of them take beyond the predicted ones."""

    gemm: Gemm
    tile: Floats
    wave: Floats
    busy: Floats
    added_s: Floats


@record
class Filling:
    """What products have to fill: `units` compute units (None: not known), or a matrix unit.
    `alignment_known`: the kind of evidence of what misaligned widths cost here."""

    family: Family
    units: float | None
    matrix_unit: float | None
    alignment_known: str = "assumed"


def judge_products(step: NotedStep, filling: Filling, tiled: bool) -> list[Judged]:
    """Every product of a step; `tiled`: tiles and waves count (prefill, training)."""
    family, ones = filling.family, np.ones(step.deployed.n)
    judged = []
    for gemm in step.gemms:
        there = (gemm.count > 0.0) & (gemm.out > 0.0) & (gemm.inner > 0.0)
        tile = wave = busy = ones
        added = np.zeros(len(ones))
        if tiled and family.tiles:
            columns, units = gemm.computed_out, filling.units
            tile, wave = best_tile(gemm.rows, columns, family.tiles, units, gemm.groups)
            used = np.where(there, tile * wave, 1.0)
            slower = gemm.seconds_at(used, gemm.reached) - gemm.seconds_at(1.0, gemm.reached)
            added = np.where(there, slower, 0.0)
        elif filling.matrix_unit is not None:
            tile, rows = gemm.filled, np.maximum(gemm.rows, 1e-9)
            busy = np.where(there, rows / np.maximum(rows, filling.matrix_unit), 1.0)
            # As if every product that runs had as many rows as the unit, at its peak.
            full_s = np.where(busy < 1.0, filling.matrix_unit * gemm.row_s, 0.0)
            used = gemm.compute_s / np.maximum(np.maximum(gemm.compute_s, full_s), 1e-300)
            used = np.where(there & (used > 0.0), used, 1.0)
            added = gemm.seconds_at(used, gemm.reached) - gemm.seconds_at(1.0, gemm.reached)
        judged.append(Judged(gemm, tile, wave, busy, added))
    return judged


@record
class Steps:
    """The steps of n shapes and their products."""

    batch: CandidateBatch
    filling: Filling
    prefill: NotedStep
    decode: NotedStep
    prefill_gemms: list[Judged]
    decode_gemms: list[Judged]

    @property
    def phases(self) -> tuple[tuple[NotedStep, list[Judged]], ...]:
        """(step, its products) of prefill and of decode."""
        return (self.prefill, self.prefill_gemms), (self.decode, self.decode_gemms)

    @property
    def seconds(self) -> list[Floats]:
        """(n,) seconds of each phase as predicted, with the fullest stage's layers."""
        return [step.seconds * layer_imbalance(self.batch) for step, _ in self.phases]


def _share(seconds: Iterable[Floats], step: NotedStep) -> Floats:
    total = np.zeros(step.deployed.n)
    for one in seconds:
        total = total + one
    return total / step.seconds


def _shares(steps: Steps, seconds: Callable[[Judged], Floats]) -> tuple[Floats, Floats]:
    """(prefill, decode): `seconds` of all products as a share of each step, (n,)."""
    prefill, decode = (_share(map(seconds, products), step) for step, products in steps.phases)
    return prefill, decode


def _entry_s(step: NotedStep, role: Role) -> Floats:
    total = np.zeros(step.deployed.n)
    assert step.ledger.entries is not None
    for entry in step.ledger.entries:
        if entry.role is role:
            total = total + entry.seconds
    return total


def wastes(steps: Steps) -> Iterator[Finding]:
    """Every rule of this file on n shapes."""
    family = steps.filling.family
    if family.grain.cliff:
        yield from _alignment(steps)
    if family.tiles:
        yield _padded(steps, COLUMNS)
        yield _tiles(steps)
    elif family.grain.is_unit:
        yield _padded(steps, replace(UNIT, source=family.source))
        yield _few_rows(steps)
    for width in split_widths(steps.batch):
        yield _mx(steps, width)
    yield from _copies(steps)
    yield from _predicted(steps)
    if family.stride_rule is not None and family.stride_bytes is not None:
        yield _stride(steps, family.stride_rule, family.stride_bytes)


def _alignment(steps: Steps) -> Iterator[Finding]:
    prefill, decode = _shares(steps, lambda one: one.gemm.cliff_s)
    none = np.zeros(len(prefill))
    formats = steps.batch.weight_dtype.values()
    sixteen = all((code == CODE["bf16"]).all() for code in formats)
    known = steps.filling.alignment_known if sixteen else "assumed"  # measured in bf16 alone

    def words(i: int) -> str:
        off = [
            f"{one.gemm.name} {whole(one.gemm.inner[i])} x {whole(one.gemm.out[i])} "
            f"({one.gemm.bytes[i]:g} bytes)"
            for one in steps.prefill_gemms
            if one.gemm.count[i] > 0.0 and one.gemm.reached[i] < 1.0
        ]
        return "; ".join(off)

    rule = replace(ALIGNMENT, known=known)
    yield Finding(rule, prefill > 0.0, words, prefill, none, predicted=True)
    yield Finding(ALIGNMENT_IN_DECODE, decode > 0.0, words, none, decode, predicted=True)


def _padded(steps: Steps, rule: Rule) -> Finding:
    prefill, decode = _shares(steps, lambda one: one.gemm.padding_s)

    def words(i: int) -> str:
        worst = max(steps.prefill_gemms, key=lambda one: float(one.gemm.padding_s[i]))
        return (
            f"most in {worst.gemm.name}, {whole(worst.gemm.inner[i])} x "
            f"{whole(worst.gemm.out[i])}: {worst.gemm.filled[i]:.0%} of what is computed is used"
        )

    return Finding(rule, (prefill > SEEN) | (decode > SEEN), words, prefill, decode, predicted=True)


def unmeasured_alignment(steps: Steps, i: int) -> list[str]:
    """Products of shape i whose alignment lies where no speed was measured."""
    return [
        f"{one.gemm.name} ({one.gemm.bytes[i]:g} bytes)"
        for one in steps.prefill_gemms
        if one.gemm.count[i] > 0.0 and CLIFF_BYTES <= one.gemm.bytes[i] < MEASURED_BYTES
    ]


def _tiles(steps: Steps) -> Finding:
    share = _share((one.added_s for one in steps.prefill_gemms), steps.prefill)

    def words(i: int) -> str:
        worst = max(steps.prefill_gemms, key=lambda one: float(one.added_s[i]))
        used = worst.tile[i] * worst.wave[i]
        return (
            f"most in {worst.gemm.name}, {whole(worst.gemm.rows[i])} x {whole(worst.gemm.out[i])} "
            f"outputs: {used:.0%} of what is computed or occupied is used"
        )

    return Finding(TILES, share > SEEN, words, share, np.zeros(len(share)))


def _few_rows(steps: Steps) -> Finding:
    side = steps.filling.matrix_unit or 1.0
    prefill, decode = _shares(steps, lambda one: one.added_s)

    def words(i: int) -> str:
        rows = min(float(one.gemm.rows[i]) for one in steps.decode_gemms)
        return (
            f"{rows:,.0f} rows of {side:g} in a decode step: {rows / side:.0%} of the unit is busy"
        )

    return Finding(UNIT_ROWS, (prefill > SEEN) | (decode > SEEN), words, prefill, decode)


def _mx(steps: Steps, width: Width) -> Finding:
    over = np.where(
        width.used & (steps.batch.weight_dtype[width.part] == CODE["mxfp4"]),
        mx_padding(width) - 1.0,
        0.0,
    )

    def share(step: NotedStep) -> Floats:
        total = np.zeros(len(over))
        for gemm in step.gemms:
            if gemm.part == width.part:
                total = total + gemm.seconds
        return total * over / (1.0 + over) / step.seconds

    return Finding(
        MX,
        over > 0.0,
        lambda i: (
            f"{width.title}: {whole(width.total[i])} over {whole(width.ranks[i])} ranks is "
            f"{width.value[i] / MX_BLOCK:g} blocks of 32; the fullest rank holds {over[i]:.1%} more"
        ),
        share(steps.prefill),
        share(steps.decode),
        predicted=True,
    )


def _copies(steps: Steps) -> Iterator[Finding]:
    tp = steps.batch.tensor_parallel
    cache_s = _entry_s(steps.decode, Role.CACHE) / steps.decode.seconds
    for block in steps.batch.blocks:
        if block.kind not in ("gqa", "mla") or not (block.count > 0.0).any():
            continue
        heads = block["kv_heads"] if block.kind == "gqa" else np.ones(len(tp))
        copies = np.maximum(tp / np.maximum(heads, 1.0), 1.0)
        of = "KV heads" if block.kind == "gqa" else "latent"

        def words(i: int, heads: Floats = heads, copies: Floats = copies, of: str = of) -> str:
            return (
                f"{whole(heads[i])} {of} on {whole(tp[i])} ranks: {copies[i]:,g} copies; attention "
                "data parallelism keeps one"
            )

        yield Finding(
            KV_COPIES,
            (block.count > 0.0) & (copies > 1.0),
            words,
            np.zeros(len(tp)),
            cache_s * (1.0 - 1.0 / copies),
            predicted=True,
        )


def _predicted(steps: Steps) -> Iterator[Finding]:
    batch = steps.batch
    uneven = layer_imbalance(batch)
    lost = 1.0 - 1.0 / uneven
    yield Finding(
        UNEVEN,
        uneven > 1.0,
        lambda i: (
            f"{whole(batch.layers[i])} layers in {whole(batch.pipeline_parallel[i])} stages: "
            f"the fullest has {uneven[i]:.3g} times the mean"
        ),
        lost,
        lost,
        predicted=True,
    )
    held = steps.prefill.deployed.vocabulary * batch.tensor_parallel
    over = 1.0 - batch.vocab_size / held
    shares = [_entry_s(step, Role.HEAD) / step.seconds * over for step, _ in steps.phases]
    yield Finding(
        PADDING,
        batch.vocab_size % VOCABULARY_MULTIPLE > 0.0,
        said("vocabulary of {} held as {}", batch.vocab_size, held),
        *shares,
        predicted=True,
    )


def _stride(steps: Steps, rule: Rule, stride: float) -> Finding:
    hot = []
    for one in steps.prefill_gemms:
        code = steps.batch.weight_dtype.get(one.gemm.part, np.full(len(steps.batch), CODE["bf16"]))
        bytes_ = one.gemm.inner * ELEMENT_BITS[code] / 8.0
        there = (one.gemm.count > 0.0) & (one.gemm.inner > 0.0)
        hot.append((one.gemm, there & (bytes_ % stride == 0.0)))
    broken = np.zeros(len(steps.batch), dtype=bool)
    for _, where in hot:
        broken = broken | where

    def words(i: int) -> str:
        of = sum(int(gemm.count[i] > 0.0) for gemm, _ in hot)
        found = sorted({float(gemm.inner[i]) for gemm, where in hot if where[i]})
        widths = ", ".join(whole(size) for size in found)
        return f"{sum(int(w[i]) for _, w in hot)} of {of} products: inputs of {widths}"

    return Finding(rule, broken, words)


def added_share(steps: Steps) -> tuple[Floats, Floats]:
    """(prefill, decode): what no prediction holds, as a share of each step, (n,)."""
    prefill, decode = (np.zeros(len(steps.batch)) for _ in range(2))
    for finding in wastes(steps):
        if finding.predicted or finding.prefill is None or finding.decode is None:
            continue
        prefill, decode = prefill + finding.prefill, decode + finding.decode
    return prefill, decode


def misaligned_share(steps: Steps) -> tuple[Floats, Floats]:
    """(prefill, decode): what padding and misaligned widths take of each predicted step, (n,)."""
    return _shares(steps, lambda one: one.gemm.cliff_s + one.gemm.padding_s)
