"""A batch on its machines: per-candidate tables, gathered once and shared by every step."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dse.blocks.operators import Exchange
from dse.physics.alignment import Alignment
from dse.physics.collectives import Cost, Group, point_to_point
from dse.physics.kernels import LawTable
from dse.physics.machines import Machines
from dse.physics.tiers import Offload
from dse.schema.backend import Backend
from dse.schema.dtypes import CODE, DTYPES
from dse.space.alike import columns_of, distinct, layer_of
from dse.space.candidates import BYTES, Block, CandidateBatch, Codes, Floats

VOCABULARY_MULTIPLE = 64.0  # serving stacks pad the vocabulary to 64 times the tensor parallelism


class Law:
    """One operator's law, gathered: every array (n,). `is_sum` where p is 1 for all of them;
    `sums` marks those with p = 1 among others, None without any, so that a candidate takes the
    same path in every batch. `floor_of_compute` turns the law's compute time into that at the full
    dense peak."""

    def __init__(
        self,
        table: LawTable,
        cell: Codes,
        clock: Floats | None = None,
        launched: Floats | None = None,
    ) -> None:
        """`cell` (n,) is the place in the flattened (chips, dtypes) tables; `clock` (n,) the share
        of its clock that the chip runs at, None for all of it; `launched` as that of `Deployed`."""
        self.s_per_flop: Floats = table.s_per_flop.ravel().take(cell)
        self.s_per_byte: Floats = table.s_per_byte.ravel().take(cell)
        fixed_s = table.fixed_s.ravel().take(cell)
        self.fixed_s: Floats = fixed_s if launched is None else fixed_s * launched
        # NumPy squares and takes roots where an exponent is exactly 2 or 1/2 and stands alone: one
        # candidate would differ in its last bit from the same among others.
        p = table.p.ravel().take(cell)
        self.p: Floats = np.where(p == 2.0, np.nextafter(2.0, 3.0), p)
        self.inverse_p: Floats = 1.0 / self.p
        sums = self.p == 1.0
        self.is_sum = bool(sums.all())
        self.sums = sums if not self.is_sum and sums.any() else None
        self.floor_of_compute: Floats = table.floor_of_compute.ravel().take(cell)
        if clock is not None:
            self.s_per_flop = self.s_per_flop / clock
            self.floor_of_compute = self.floor_of_compute * clock


def domain_of(batch: CandidateBatch, machines: Machines) -> Floats:
    """(n,) chips of a scale-up domain: the hypothetical one where it is given."""
    return machines.fabric.domain[batch.chip] if batch.domain is None else batch.domain


def launched_early(batch: CandidateBatch, machines: Machines, backend: Backend) -> Floats | None:
    """(n,) share of a kernel's fixed cost that remains where `backend` launches each before the one
    ahead of it has ended, on chips whose kernels allow it; None where no candidate does."""
    early = backend.early_launch
    if early is None:
        return None
    allowed = np.array([name in early.families for name in machines.families])
    return np.where(allowed[batch.chip], early.remaining, 1.0)


FEW = 4_096  # with no more candidates than this, what they have in common is not looked for
WORTH = 0.5  # of n candidates; more distinct ones cost more to find and gather than they save
MOST_TRIED = 2  # a fixed-point search changes the work each time: after so many, nothing is shared


class Part(NamedTuple):
    """Of n candidates those that differ for one layer: `deployed`, k of them; `rows`, (k,), their
    places; `kinds`, (n,), which of them each candidate is."""

    deployed: Deployed
    rows: Codes
    kinds: Codes

    def holds(self, columns: Sequence[Floats]) -> bool:
        """Whether candidates that are alike have equal values in these columns, (n,) each."""
        every = (column.view(np.int64) for column in columns)
        return all((one[self.rows].take(self.kinds) == one).all() for one in every)

    def of(self, value: Any) -> Any:
        """(n,) of each candidate -> (k,) of each that differs; what is of all as it is."""
        if not isinstance(value, np.ndarray) or len(value) == 1:
            return value
        return value[self.rows]

    def gathered(self, value: Floats) -> Floats:
        """(k,) of each that differs -> (n,) of each candidate."""
        return value.take(self.kinds)


class _Layers:
    """The layers of one block of n deployed candidates, `place` among those of their batch, or
    what is no layer (None). `batch` has those that differ in what such a layer sees
    (`dse.space.alike.layer_of`), of which each candidate is the one at `kinds`, (n,); both None
    where too many do."""

    def __init__(self, deployed: Deployed, place: int | None) -> None:
        self.n, self._machines = deployed.n, deployed.machines
        self.batch: CandidateBatch | None = None
        self.kinds: Codes | None = None
        self._launched = deployed.launched
        self._kept: Part | None = None
        self._tried = 0
        if deployed.few is not None and deployed.kinds is not None:
            few = deployed.few.layers(place)
            self.batch, self._launched = few.batch, few._launched
            self.kinds = None if few.kinds is None else few.kinds.take(deployed.kinds)
        elif (most := max(deployed.n, deployed.stand_for)) > FEW:
            batch = layer_of(deployed.batch, None if place is None else deployed.one_layer(place))
            launched = [] if self._launched is None else [self._launched]
            rows, kinds = distinct([*columns_of(batch), *launched])
            if len(rows) <= WORTH * most:
                self.batch, self.kinds = batch[rows], kinds
                self._launched = None if self._launched is None else self._launched[rows]

    def part(self, work: Sequence[Floats]) -> Part | None:
        """Those that differ in what a layer sees or in its step's `work`, (n,) or (1,) each; None
        where they are too many to be worth it."""
        columns = [one for one in work if len(one) == self.n]
        if self._kept is not None and self._kept.holds(columns):
            return self._kept
        if self.batch is None or self.kinds is None or self._tried == MOST_TRIED:
            return None
        self._tried += 1
        rows, kinds = distinct([self.kinds, *columns])
        if len(rows) > WORTH * self.n:
            self._tried = MOST_TRIED
            return None
        each = self.kinds[rows]
        launched = None if self._launched is None else self._launched[each]
        self._kept = Part(Deployed(self.batch[each], self._machines, launched), rows, kinds)
        return self._kept


class Deployed:
    """Gathers of n candidates. `experts_tensor_parallel` = tensor * data / expert parallel;
    `launched`, (n,) or None for 1, is the share of the fixed cost of its kernels that remains.
    `few` are the distinct deployments, of which each candidate has the one at `kinds`."""

    def __init__(
        self,
        batch: CandidateBatch,
        machines: Machines,
        launched: Floats | None = None,
        few: Deployed | None = None,
        kinds: Codes | None = None,
    ) -> None:
        self.batch = batch
        self.machines = machines
        self.n = len(batch)
        chip = batch.chip
        self.tensor_parallel = batch.tensor_parallel
        self.pipeline_parallel = batch.pipeline_parallel
        self.data_parallel = batch.data_parallel
        self.expert_parallel = batch.expert_parallel
        self.group = batch.tensor_parallel * batch.data_parallel
        self.experts_tensor_parallel = np.maximum(self.group / batch.expert_parallel, 1.0)
        self.redundant_experts = batch.redundant_experts
        self.host_lanes = machines.fabric.host_lanes[chip]
        self.expert_padding_rows = machines.expert_padding_rows[chip]
        self.kv_bytes = BYTES[batch.kv_dtype]
        self.weight_bytes = {part: BYTES[code] for part, code in batch.weight_dtype.items()}
        experts = batch.weight_dtype["experts"]
        own = (experts == CODE["nvfp4"]) & machines.native_dtype[chip, experts]
        bytes_ = self.weight_bytes["experts"]
        self.dispatched_bytes = np.where(own, bytes_, np.clip(bytes_, 1.0, 2.0))
        self.offload = None if batch.offload_tier is None else Offload(batch, machines.tiers)
        self.launched = launched
        self._laws: dict[tuple[str, str], Law] = {}
        # Of each block, by its id, the share of its experts' traffic that leaves a domain: the same
        # in every step, kept by `dse.blocks.moe`.
        self.leaving: dict[int, list[Floats]] = {}
        self.power_capped = machines.power.capped
        self.clock: Floats | None = None
        self.few = few
        self.kinds = kinds
        self.stand_for = 0  # candidates, as the few of them
        if few is not None:
            few.stand_for = self.n
        self._layers: dict[int | None, _Layers] = {}
        self._one: dict[int, Block] = {}

    # Gathered on first use.
    @cached_property
    def floor_s_per_byte(self) -> Floats:
        return self.machines.floor_s_per_byte[self.batch.chip]

    @cached_property
    def domain(self) -> Floats:
        return domain_of(self.batch, self.machines)

    @cached_property
    def capacity_bytes(self) -> Floats:
        return self.machines.capacity_bytes[self.batch.chip]

    @cached_property
    def stream_fixed_s(self) -> Floats:
        fixed_s = self.machines.stream_fixed_s[self.batch.chip]
        return fixed_s if self.launched is None else fixed_s * self.launched

    @cached_property
    def alignment(self) -> Alignment:
        return Alignment(self.machines.grain, self.batch)

    def one_layer(self, place: int) -> Block:
        """One layer of the block at a place among those of the batch, none where it has none."""
        if place not in self._one:
            block = self.batch.blocks[place]
            self._one[place] = replace(block, count=(block.count > 0.0) * 1.0)
        return self._one[place]

    def layers(self, place: int | None) -> _Layers:
        """Of the block at a place among those of the batch; of what is no layer without one. At
        the full clock."""
        assert self.clock is None
        if place not in self._layers:
            self._layers[place] = _Layers(self, place)
        return self._layers[place]

    @cached_property
    def vocabulary(self) -> Floats:
        """(n,) rows of the padded vocabulary on one tensor-parallel rank."""
        unit = VOCABULARY_MULTIPLE * self.tensor_parallel
        return np.ceil(self.batch.vocab_size / unit) * VOCABULARY_MULTIPLE

    @cached_property
    def tensor_group(self) -> Group:
        """The chips that share the tensors of a layer."""
        fabric = self.machines.fabric
        return Group(fabric, self.batch.chip, self.tensor_parallel, self.domain)

    @cached_property
    def expert_group(self) -> Group:
        """All chips that share an instance's experts."""
        return Group(self.machines.fabric, self.batch.chip, self.group, self.domain)

    def heads(self, block: Block, name: str, *sizes: Floats) -> tuple[Floats, Floats | None]:
        """As `dse.blocks.operators.Chips`."""
        return self.alignment.heads(block, name, *sizes)

    def cost(self, one: Exchange) -> Cost:
        """Of each of the collectives."""
        group = self.tensor_group if one.group == "tensor" else self.expert_group
        if one.how == "all_to_all":
            return group.all_to_all(one.bytes_, one.leaving)
        return (group.all_reduce if one.how == "all_reduce" else group.all_gather)(one.bytes_)

    def stage_hops(self, bytes_: Floats) -> tuple[tuple[Floats, Cost], ...]:
        """((hops, cost of one), ...), (n,): handing `bytes_` from stage to stage inside a scale-up
        domain, and over each network where two stages lie in different domains."""
        fabric, chip = self.machines.fabric, self.batch.chip
        hops = self.pipeline_parallel - 1.0
        chips = self.group * self.pipeline_parallel
        reaches = [self.domain, *(network.reach[chip] for network in fabric.networks)]
        left, counts = hops, []
        for reach in reaches:
            beyond = np.minimum(np.maximum(np.ceil(chips / reach) - 1.0, 0.0), left)
            counts.append(left - beyond)
            left = beyond
        costs = point_to_point(fabric, chip, bytes_, self.group)
        return tuple(zip(counts, costs, strict=True))

    def law(self, operator: str, part: str) -> Law:
        """The law of `operator` on the dtype of a weight part, of the KV cache ("kv"), on a dtype
        by name or, for any other part, on 16-bit data."""
        if part not in self.batch.weight_dtype and part not in CODE and part != "kv":
            part = "bf16"
        key = (operator, part)
        if key not in self._laws:
            if part == "kv":
                dtype = self.batch.kv_dtype
            elif part in self.batch.weight_dtype:
                dtype = self.batch.weight_dtype[part]
            else:
                dtype = np.full(self.n, CODE[part], dtype=np.intp)
            cell = self.batch.chip * len(DTYPES) + dtype
            table = self.machines.laws[operator]
            self._laws[key] = Law(table, cell, self.clock, self.launched)
        return self._laws[key]

    def at_clock(self, clock: Floats) -> Deployed:
        """The same with its arithmetic at a share `clock`, (n,), of its rate."""
        slower = copy(self)
        slower._laws, slower.clock = {}, clock
        return slower
