"""Machines: the catalog's chips as arrays, one row a chip, ready to be gathered by candidate.

Tables have shape (chips,) or (chips, dtypes); a dtype axis is indexed by `dse.schema.dtypes.CODE`.
What lies between chips is in `dse.physics.fabrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS as BLOCKS
from dse.errors import InputError
from dse.physics.alignment import GrainTable, grain_table
from dse.physics.energy import Power, compile_power
from dse.physics.fabrics import Fabric, compile_fabric
from dse.physics.intervals import FIRST_TOKEN, Spread, kin_of, spread_of, widened
from dse.physics.kernels import (
    LawTable,
    Table,
    calibrated_fabric,
    calibrated_laws,
    inherited,
    native_first,
    unpacked_law,
)
from dse.physics.racks import full_of
from dse.physics.tiers import TierTable, tier_table
from dse.record import record
from dse.schema.backend import KINDS, STOCK, Backend, find_backend
from dse.schema.catalog import Catalog
from dse.schema.chip import ROOFLINE, Chip
from dse.schema.dtypes import CODE, DTYPES, arithmetic
from dse.schema.efficiency import OPERATORS, Efficiency, Law
from dse.schema.system import Rack
from dse.space.candidates import CandidateBatch

# Laws that only models with blocks of some kinds use: `dse calibrate` does not measure them.
BLOCK_LAWS = ("experts", "mla_prefill_attention", "mla_decode_attention")


@record
class Machines:
    """Chips of one study on one price basis. `usd_per_chip_hour` and `tdp_w` are NaN if unknown; a
    link whose bandwidth is unknown takes no time, and `Catalog.refusal` keeps out what needs it.
    `inherits` says of each operator's (chip, dtype) that the chip computes in the format and nobody
    measured that: it reaches no larger share of its peak than a measured format.
    `law_kind` and, for what uses one of BLOCK_LAWS, `block_law_kind` of that law index KINDS."""

    ids: tuple[str, ...]
    families: tuple[str, ...]
    classes: tuple[str, ...]
    laws: Mapping[str, LawTable]
    floor_s_per_byte: Table
    capacity_bytes: Table
    tdp_w: Table
    usd_per_chip_hour: Table
    expert_padding_rows: Table
    fabric: Fabric
    native_dtype: NDArray[np.bool_]
    inherits: Mapping[str, NDArray[np.bool_]]
    law_kind: NDArray[np.intp]
    block_law_kind: Mapping[str, NDArray[np.intp]]
    spread: Spread
    shared_error: float
    stock_wider: float
    kin: tuple[str, ...]  # of each chip: `dse.physics.intervals`
    tiers: TierTable
    stream_fixed_s: Table  # fixed cost of an element-wise kernel
    exponential_s: Table  # of one exponential; 0 where the rate is not known
    grain: GrainTable
    racks: tuple[Rack, ...] = ()  # of each chip, what bounds a hypothetical scale-up domain
    power: Power = field(default_factory=Power)
    own_backends: tuple[str, ...] = ()  # of each chip, what its file names
    backends: tuple[Backend, ...] = ()  # that `CandidateBatch.backend` codes stand for

    def spread_of(self, tuning: str, first_token: str) -> Spread:
        """Of the intervals of what is launched so; its first tokens are of the class."""
        own = {**self.spread, FIRST_TOKEN: self.spread[first_token]}
        return widened(own, self.stock_wider) if tuning == STOCK else own

    def code(self, chip: str) -> int:
        return self.ids.index(chip)


def compile_machines(
    catalog: Catalog,
    chips: Sequence[str | Chip],
    price_basis: str | None = None,
    rack: Rack | None = None,
    power_cap_w: float | None = None,
    backends: Sequence[str] = (),
) -> Machines:
    """Arrays of the named chips, in `rack` where their domain is hypothetical, each allowed
    `power_cap_w` watts (None: its rated power), with the `backends` that candidates choose from.
    Raises InputError for an unknown chip, price or backend, and for a chip without a figure that
    every estimate needs."""
    rows = [chip if isinstance(chip, Chip) else catalog.chip(chip) for chip in chips]
    for row in rows:
        row.require(*ROOFLINE)
    prices = catalog.prices.select(price_basis) if price_basis else {}
    systems = [catalog.systems[row.system] for row in rows]
    efficiencies = [catalog.efficiencies[row.efficiency] for row in rows]
    pairs = list(zip(rows, efficiencies, strict=True))
    exponentials = [row.figure("exponentials") for row in rows]
    unmeasured = BLOCK_LAWS if any(e.provenance for e in efficiencies) else ()
    machines = Machines(
        ids=tuple(row.id for row in rows),
        families=tuple(row.family for row in rows),
        classes=tuple(efficiency.id.partition(":")[0] for efficiency in efficiencies),
        laws={name: _law_table(name, pairs) for name in OPERATORS},
        capacity_bytes=np.array([row.capacity_bytes for row in rows]),
        tdp_w=np.array([np.nan if row.tdp_w is None else row.tdp_w for row in rows]),
        usd_per_chip_hour=np.array(
            [prices[row.id].usd_per_chip_hour if row.id in prices else np.nan for row in rows]
        ),
        floor_s_per_byte=np.array([1 / row.memories[0].bytes_per_s for row in rows]),
        expert_padding_rows=np.array([e.expert_padding_rows for e in efficiencies]),
        fabric=compile_fabric(systems, [catalog.fabric_laws(row) for row in rows]),
        native_dtype=np.array([[row.computes(dtype) for dtype in DTYPES] for row in rows]),
        inherits={name: _inherits(name, pairs) for name in OPERATORS},
        # Of a device measured here its experts and latent attention were not.
        law_kind=_worst(pairs, lambda one: ("gemm",) if one.provenance else ("gemm", "experts")),
        block_law_kind={
            name: _worst(pairs, lambda one, name=name: (name,) if one.provenance else ())
            for name in unmeasured
        },
        spread=spread_of(catalog.calibration),
        shared_error=catalog.calibration.shared,
        stock_wider=catalog.calibration.stock_wider,
        kin=tuple(kin_of(catalog, row) for row in rows),
        tiers=tier_table(rows, catalog.tiers),
        stream_fixed_s=np.array([e.elementwise_fixed_s for e in efficiencies]),
        exponential_s=np.array([0.0 if f is None else 1.0 / f.value for f in exponentials]),
        grain=grain_table(rows),
        racks=tuple(
            full_of(rack, row.tdp_w, system.levels[0].bytes_per_s_per_direction)
            for row, system in zip(rows, systems, strict=True)
        )
        if rack
        else (),
    )
    machines = calibrated_machines(machines, catalog.calibration.factors)
    reached = machines.laws["gemm"].floor_of_compute[:, CODE["bf16"]]
    return replace(
        machines,
        power=compile_power(rows, catalog.energy, reached, power_cap_w),
        own_backends=tuple(row.backend for row in rows),
        backends=tuple(find_backend(catalog.backends, name) for name in backends),
    )


def calibrated_machines(machines: Machines, factors: Mapping[str, float]) -> Machines:
    """The machines with every kernel factor applied, native and measured formats first."""
    laws, fabric = machines.laws, machines.fabric
    if factors:
        floor, native = machines.floor_s_per_byte, machines.native_dtype
        laws = calibrated_laws(laws, machines.classes, native, floor, factors)
        fabric = calibrated_fabric(fabric, factors)
    laws = {name: inherited(law, machines.inherits[name]) for name, law in laws.items()}
    return replace(machines, laws=native_first(laws, machines.native_dtype), fabric=fabric)


def compute_dtype(chip: Chip, dtype: str) -> str:
    """The arithmetic that runs weights of `dtype` on a chip: its own where the chip has it, else
    that of 16-bit activations (`dse.physics.kernels`)."""
    return arithmetic(dtype) if chip.computes(dtype) else "bf16"


def _law_table(operator: str, pairs: list[tuple[Chip, Efficiency]]) -> LawTable:
    columns = [[_law_row(operator, chip, eff, dtype) for dtype in DTYPES] for chip, eff in pairs]
    stacked = np.array(columns)
    return LawTable(*(np.ascontiguousarray(stacked[:, :, k]) for k in range(5)))


def _inherits(operator: str, pairs: list[tuple[Chip, Efficiency]]) -> NDArray[np.bool_]:
    """(chips, dtypes); see `Machines`."""
    return np.array(
        [
            [
                chip.computes(dtype) and not {dtype, arithmetic(dtype)} & eff.measured(operator)
                for dtype in DTYPES
            ]
            for chip, eff in pairs
        ]
    )


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
    they run on; of weights that are unpacked, the law of that."""
    laws = efficiency.operators[operator]
    runs_on = compute_dtype(chip, dtype)
    if runs_on != arithmetic(dtype):
        return unpacked_law(operator, chip, laws, dtype), runs_on
    if dtype in laws:
        return laws[dtype], runs_on
    if runs_on in laws:
        return laws[runs_on], runs_on
    return laws["bf16"], "bf16"


def _worst(
    pairs: Sequence[tuple[Chip, Efficiency]], laws_of: Callable[[Efficiency], Sequence[str]]
) -> NDArray[np.intp]:
    """(chips, dtypes) index into KINDS of the worst of these laws; 0 without any."""
    return np.array(
        [
            [
                max(
                    [KINDS.index(_law(name, *pair, dtype)[0].kind) for name in laws_of(pair[1])]
                    or [0]
                )
                for dtype in DTYPES
            ]
            for pair in pairs
        ],
        dtype=np.intp,
    )


def with_jitter(machines: Machines, seconds: float) -> Machines:
    """The machines with delays of mean `seconds` on every level of their fabric, in place of what
    their systems state. Raises InputError for a negative mean."""
    if not 0.0 <= seconds < np.inf:
        raise InputError(f"read {seconds}", field="jitter", accepted="0 s or more, such as 10 us")
    means = np.full(len(machines.ids), float(seconds))
    fabric = machines.fabric
    networks = tuple(replace(one, jitter_s=means) for one in fabric.networks)
    return replace(machines, fabric=replace(fabric, jitter_s=means, networks=networks))


def worst_block_law(batch: CandidateBatch, machines: Machines) -> NDArray[np.intp]:
    """(n,) index into `dse.schema.backend.KINDS` of the worst law that the blocks of a
    candidate use: one that no measurement of its chip holds, or one borrowed from other kernels."""
    worst = np.zeros(len(batch), dtype=np.intp)
    for block in batch.blocks:
        kind, used = BLOCKS[block.kind], block.count > 0.0
        for law in kind.laws:
            if law in machines.block_law_kind:
                found = machines.block_law_kind[law][batch.chip, batch.weight_dtype["experts"]]
                worst = np.maximum(worst, used * found)
        borrowed = kind.borrows(block)
        if borrowed is not None:
            worst = np.maximum(worst, borrowed * KINDS.index("derived"))
    return worst
