"""Machines: the catalog's chips as arrays, one row a chip, ready to be gathered by candidate.

Tables have shape (chips,), (chips, dtypes) or (chips, GROUPS); a dtype axis is indexed by
`dse.dtypes.CODE`, a group axis by the base-2 logarithm of the number of chips, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.dtypes import ARITHMETIC, DTYPES, arithmetic
from dse.perf.calibrated import calibrated_machines
from dse.perf.intervals import Spread, spread_of
from dse.specs.calibration import KINDS
from dse.specs.catalog import Catalog
from dse.specs.chip import ROOFLINE, Chip
from dse.specs.efficiency import Collective, Efficiency, Law
from dse.specs.system import FabricLevel, System

GROUPS = 14  # groups of up to 2**13 chips
OPERATORS = (
    "gemm", "prefill_attention", "decode_attention", "mla_prefill_attention",
    "mla_decode_attention", "experts",
)  # fmt: skip
# Laws that only models with blocks of a kind use: `dse calibrate` does not measure them.
BLOCK_LAWS = {"moe": ("experts",), "mla": ("mla_prefill_attention", "mla_decode_attention")}
# Scale-out links in use by a collective reach this share of their label: measured 0.74 of the NIC
# at 16 GiB over 4 nodes, 0.97 for raw RDMA (github:stas00/ml-engineering network/README.md).
SCALE_OUT_FRACTION = 0.74
# The same of expert dispatch: 45 to 46 of 50 GB/s by DeepEP's low-latency kernels on 2, 4 and 8
# nodes (kernel tables of aiconfigurator-core 0.12.0, sglang 0.5.6.post2).
DISPATCH_FRACTION = 0.9
# Software on top of a hop of the network, seconds: claimed, "based on observations"
# (github:ai-dynamo/aiconfigurator systems/*.yaml@095f58a, p2p_latency). With 5 us a hop it gives
# 30 us for an all-reduce between two boxes of one chip, where 30 to 35 us were measured for 8 KiB
# (github:NVIDIA/dgx-spark-playbooks pull 103), and what DeepEP adds from 1 node to 2 to 8: 9 to 17.
SCALE_OUT_SOFTWARE_S = 10e-6

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LawTable:
    """Seconds = ((flops * s_per_flop)^p + (bytes * s_per_byte)^p)^(1/p) + fixed_s; (chips, dtypes).

    `floor_of_compute` is the share of the compute time that remains at the chip's dense peak.
    """

    s_per_flop: Table
    s_per_byte: Table
    fixed_s: Table
    p: Table
    floor_of_compute: Table


@dataclass(frozen=True, slots=True)
class Machines:
    """Chips of one study on one price basis. `usd_per_chip_hour` and `tdp_w` are NaN if unknown; a
    link whose bandwidth is unknown takes no time, and `Catalog.refusal` keeps out what needs it.
    `law_kind` and, for candidates with blocks of a kind, `block_kind` index KINDS."""

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    laws: Mapping[str, LawTable]
    floor_s_per_byte: Table
    capacity_bytes: Table
    tdp_w: Table
    usd_per_chip_hour: Table
    expert_padding_rows: Table
    domain: Table
    link_bytes_per_s: Table
    all_reduce_latency_s: Table
    all_reduce_s_per_byte: Table
    all_reduce_ramp: Table
    all_gather_latency_s: Table
    all_gather_s_per_byte: Table
    all_gather_ramp: Table
    all_to_all_latency_s: Table
    all_to_all_s_per_byte: Table
    all_to_all_ramp: Table
    scale_out_latency_s: Table
    scale_out_s_per_byte: Table
    dispatch_s_per_byte: Table
    native_dtype: NDArray[np.bool_]
    law_kind: NDArray[np.intp]
    block_kind: Mapping[str, NDArray[np.intp]]
    spread: Spread
    shared_error: float

    def code(self, chip: str) -> int:
        return self.ids.index(chip)


def compile_machines(
    catalog: Catalog, chips: Sequence[str | Chip], price_basis: str | None = None
) -> Machines:
    """Arrays of the named chips. Raises InputError for a chip or price that does not exist, and for
    a chip without a figure that every estimate needs."""
    rows = [chip if isinstance(chip, Chip) else catalog.chip(chip) for chip in chips]
    for row in rows:
        row.require(*ROOFLINE)
    prices = catalog.prices.select(price_basis) if price_basis else {}
    systems = [catalog.systems[row.system] for row in rows]
    efficiencies = [catalog.efficiencies[row.efficiency] for row in rows]
    pairs = list(zip(rows, efficiencies, strict=True))
    fabric = {
        name: np.array([_fabric(s, e, name) for s, e in zip(systems, efficiencies, strict=True)])
        for name in ("all_reduce", "all_gather", "all_to_all")
    }
    scale_out = np.array([_bandwidth(s.levels[-1]) for s in systems])
    kind = np.array(
        [[_worst_kind(e, dtype) for dtype in DTYPES] for e in efficiencies], dtype=np.intp
    )
    unmeasured = BLOCK_LAWS if any(e.provenance for e in efficiencies) else {}
    machines = Machines(
        ids=tuple(row.id for row in rows),
        classes=tuple(efficiency.id.partition(":")[0] for efficiency in efficiencies),
        laws={name: _law_table(name, pairs) for name in OPERATORS},
        capacity_bytes=np.array([row.capacity_bytes for row in rows]),
        tdp_w=np.array([np.nan if row.tdp_w is None else row.tdp_w for row in rows]),
        usd_per_chip_hour=np.array(
            [prices[row.id].usd_per_chip_hour if row.id in prices else np.nan for row in rows]
        ),
        floor_s_per_byte=np.array([1 / row.memories[0].bytes_per_s for row in rows]),
        expert_padding_rows=np.array([e.expert_padding_rows for e in efficiencies]),
        domain=np.array([float(s.levels[0].size or 1) for s in systems]),
        link_bytes_per_s=np.array([_bandwidth(s.levels[0]) for s in systems]),
        all_reduce_latency_s=fabric["all_reduce"][:, 0],
        all_reduce_s_per_byte=fabric["all_reduce"][:, 1],
        all_reduce_ramp=fabric["all_reduce"][:, 2],
        all_gather_latency_s=fabric["all_gather"][:, 0],
        all_gather_s_per_byte=fabric["all_gather"][:, 1],
        all_gather_ramp=fabric["all_gather"][:, 2],
        all_to_all_latency_s=fabric["all_to_all"][:, 0],
        all_to_all_s_per_byte=fabric["all_to_all"][:, 1],
        all_to_all_ramp=fabric["all_to_all"][:, 2],
        scale_out_latency_s=np.array(
            [s.levels[-1].latency_s + SCALE_OUT_SOFTWARE_S for s in systems]
        ),
        scale_out_s_per_byte=1 / (SCALE_OUT_FRACTION * scale_out),
        dispatch_s_per_byte=1 / (DISPATCH_FRACTION * scale_out),
        native_dtype=np.array(
            [[arithmetic(dtype) in row.peak_flops_per_s for dtype in DTYPES] for row in rows]
        ),
        law_kind=kind,
        block_kind={
            name: np.array(
                [[_block_kind(e, laws, dtype) for dtype in DTYPES] for e in efficiencies],
                dtype=np.intp,
            )
            for name, laws in unmeasured.items()
        },
        spread=spread_of(catalog.calibration),
        shared_error=catalog.calibration.shared,
    )
    return calibrated_machines(machines, catalog.calibration.factors)


def compute_dtype(chip: Chip, dtype: str) -> str:
    """The arithmetic that runs weights of `dtype` on a chip: its own where the chip has it, else
    that of 16-bit activations (weight-only formats are unpacked on the way to the multiplier)."""
    own = arithmetic(dtype)
    return own if own in ARITHMETIC and own in chip.peak_flops_per_s else "bf16"


def _law_table(operator: str, pairs: list[tuple[Chip, Efficiency]]) -> LawTable:
    columns = [[_law_row(operator, chip, eff, dtype) for dtype in DTYPES] for chip, eff in pairs]
    stacked = np.array(columns)
    return LawTable(*(np.ascontiguousarray(stacked[:, :, k]) for k in range(5)))


def _law_row(operator: str, chip: Chip, efficiency: Efficiency, dtype: str) -> tuple[float, ...]:
    law, runs_on = _law(operator, chip, efficiency, dtype)
    peak = chip.peak_flops_per_s[runs_on]
    bandwidth = chip.memories[0].bytes_per_s
    compute, memory = law.compute * peak, law.memory * bandwidth
    if efficiency.id == chip.id:
        # Measured on this very chip: what was reached stays, whichever peak it was divided by.
        compute = law.compute * efficiency.peak_flops_per_s.get(runs_on, peak)
        memory = law.memory * efficiency.hbm_bytes_per_s
    compute, memory = min(compute, peak), min(memory, bandwidth)
    return 1 / compute, 1 / memory, law.fixed_s, law.p, compute / peak


def _law(operator: str, chip: Chip, efficiency: Efficiency, dtype: str) -> tuple[Law, str]:
    """The law measured for weights of `dtype` if there is one, else the law of the arithmetic that
    they run on."""
    laws = efficiency.operators[operator]
    runs_on = compute_dtype(chip, dtype)
    if dtype in laws and (runs_on == arithmetic(dtype) or operator == "experts"):
        return laws[dtype], runs_on
    if runs_on in laws:
        return laws[runs_on], runs_on
    return laws["bf16"], "bf16"


def _worst_kind(efficiency: Efficiency, dtype: str) -> int:
    names = ("gemm",) if efficiency.provenance else ("gemm", "experts")
    return _kind_of(efficiency, names, dtype)


def _block_kind(efficiency: Efficiency, names: Sequence[str], dtype: str) -> int:
    """Of a device measured here, whose experts and latent attention were not; else no worse than
    `_worst_kind`."""
    return _kind_of(efficiency, names, dtype) if efficiency.provenance else 0


def _kind_of(efficiency: Efficiency, names: Sequence[str], dtype: str) -> int:
    laws = [efficiency.operators[name] for name in names]
    return max(KINDS.index(one.get(dtype, one["bf16"]).kind) for one in laws)


def _fabric(system: System, efficiency: Efficiency, name: str) -> Table:
    """Latency, seconds per wire byte and ramp of a collective by log2 of the group, (3, GROUPS)."""
    level = system.levels[0]
    sizes: Table = np.exp2(np.arange(GROUPS, dtype=np.float64))
    link = np.array([_usable_link(level, size) for size in sizes])
    latency, fraction, ramp = _curve(getattr(efficiency, name), sizes)
    hops = np.ones(GROUPS)
    if name == "all_to_all":
        hops = np.array([_mean_hops(level, size) for size in sizes])
    return np.array([latency, hops / (fraction * link), ramp])


def _curve(collective: Collective, sizes: Table) -> tuple[Table, Table, Table]:
    """Interpolates the measured group sizes in log2; beyond them, extrapolated, latency grows at
    the last slope (never falls) and the bandwidth fraction and the ramp stay."""
    chips = sorted(collective.latency_s)
    measured = np.log2(np.array(chips, dtype=float))
    latency = np.maximum.accumulate([collective.latency_s[n] for n in chips])
    log2 = np.log2(sizes)
    slope = 0.0
    if len(measured) > 1:
        slope = max((latency[-1] - latency[0]) / (measured[-1] - measured[0]), 0.0)
    seconds = np.interp(log2, measured, latency) + slope * np.maximum(log2 - measured[-1], 0.0)
    fraction = np.interp(log2, measured, [collective.bandwidth_fraction[n] for n in chips])
    return seconds, fraction, np.interp(log2, measured, [collective.ramp[n] for n in chips])


def _bandwidth(level: FabricLevel) -> float:
    known = level.bytes_per_s_per_direction
    return np.inf if np.isnan(known) else known


TORUS_AXES = {"ring": 1, "torus_2d": 2, "torus_3d": 3}
CUBE = 64  # chips of a 3D torus whose axes are closed by optical switches (TPU v4 and later)


def _spanned(level: FabricLevel, size: float) -> tuple[int, bool]:
    """(axes of a torus that a group spans, whether they are closed): doubling a group opens the
    next axis; an axis is closed when the group is a whole pod or, in 3D, whole cubes."""
    axes = min(TORUS_AXES[level.topology], round(np.log2(size)))
    whole = level.size is not None and size >= level.size
    return axes, whole or (level.topology == "torus_3d" and size >= CUBE)


def _usable_link(level: FabricLevel, size: float) -> float:
    """Bytes per second and direction that one chip can use inside a group of `size` chips.

    A full mesh gives one pair link per peer; a torus gives the links of the axes that the group
    spans, two a closed axis (TPU pods: jax-ml scaling book, "How to think about TPUs").
    """
    total = _bandwidth(level)
    pair = level.bytes_per_s_per_pair
    if pair is None or size <= 1:
        return total
    if level.topology == "full_mesh":
        return min(total, pair * (size - 1))
    if level.topology not in TORUS_AXES:
        return total
    axes, closed = _spanned(level, size)
    return min(total, pair * axes * (2 if closed else 1))


def _mean_hops(level: FabricLevel, size: float) -> float:
    """Links that a byte crosses on the way to a random chip of the group: in a torus a quarter of
    each closed axis or a third of each open one, else one."""
    if level.topology not in TORUS_AXES or size <= 1:
        return 1.0
    axes, closed = _spanned(level, size)
    return max(1.0, axes * size ** (1 / axes) / (4 if closed else 3))
