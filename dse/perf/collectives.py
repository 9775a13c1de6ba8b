"""Collectives: latency plus bandwidth, hierarchical where a group outgrows its scale-up domain.

Inside one domain of g chips an all-reduce moves 2 (g - 1) / g of its bytes over each chip's link
(Rabenseifner's reduce-scatter and all-gather; Thakur et al. 2005, section 4.5), or what another
algorithm does (`dse.perf.fabrics`). A group over m domains reduce-scatters inside, all-reduces
the g-th part across domains over each chip's own network link in 2 log2 m hops, and all-gathers
inside; with more levels (rack, cluster), level by level. The levels work at the same time on
different parts of a long message, so that the slowest of them sets its transfer (measured on 4
nodes: docs/fabrics.md); their latencies add up.

With jitter, each level waits for the slowest of the chips that meet there (`dse.perf.jitter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dse.candidates import Codes, Floats
from dse.perf.deployed import Deployed
from dse.perf.fabrics import GROUPS, DomainTable, Fabric, Network
from dse.perf.jitter import wait_s


class Sent(NamedTuple):
    """What one chip sends, forwarding for others not counted: `bytes_` (n,), times `inside` over
    the links of its domain, and times each of `outside`, a product of factors, over each network.
    """

    bytes_: Floats
    inside: Floats
    outside: tuple[tuple[Floats | float, ...], ...]

    def inside_bytes(self) -> Floats:
        return self.bytes_ * self.inside

    def outside_bytes(self) -> Floats:
        total = np.zeros(len(self.bytes_))
        for factors in self.outside:
            part = self.bytes_
            for factor in factors:
                part = part * factor
            total = total + part
        return total


class Cost(NamedTuple):
    """Seconds, (n,): latency and ramp; transfer. What a chip sends, for energy."""

    latency_s: Floats
    transfer_s: Floats
    sent: Sent


class Collective:
    """seconds = latency + sqrt(bytes * ramp) + bytes * s_per_byte, for bytes of one chip; every
    array (n,). The square root is the ramp of a message between latency and full bandwidth. `short`
    is another algorithm for messages that it brings through sooner, None where no candidate has
    one."""

    __slots__ = ("inside", "latency_s", "outside", "ramp", "s_per_byte", "short")

    def __init__(
        self,
        latency_s: Floats,
        s_per_byte: Floats,
        ramp: Floats,
        inside: Floats,
        outside: tuple[tuple[Floats, ...], ...] = (),
        short: Collective | None = None,
    ) -> None:
        self.latency_s = latency_s
        self.s_per_byte = s_per_byte
        self.ramp = ramp
        self.inside, self.outside = inside, outside
        self.short = short

    def __call__(self, bytes_: Floats) -> Cost:
        latency = bytes_ * self.ramp
        np.sqrt(latency, out=latency)
        latency += self.latency_s
        transfer = bytes_ * self.s_per_byte
        if self.short is not None:
            other = self.short(bytes_)
            sooner = other.latency_s + other.transfer_s < latency + transfer
            latency = np.where(sooner, other.latency_s, latency)
            transfer = np.where(sooner, other.transfer_s, transfer)
        return Cost(latency, transfer, Sent(bytes_, self.inside, self.outside))


def _log2(n: Floats) -> Codes:
    """(n,) place of a group in the tables of `dse.perf.fabrics`."""
    return np.minimum(np.ceil(np.log2(np.maximum(n, 1.0))), GROUPS - 1.0).astype(np.intp)


class _Level(NamedTuple):
    """A network of a group, (n,): how many domains of the level inside the whole group spans, which
    share of a chip's all-to-all bytes goes over it (`leaves`) and of a gather's (`part`), and the
    rows of its tables."""

    domains: Floats
    leaves: Floats
    part: Floats
    reduce_latency_s: Floats
    gather_latency_s: Floats
    exchange_latency_s: Floats
    reduce_s_per_byte: Floats
    gather_s_per_byte: Floats
    dispatch_s_per_byte: Floats
    ramp: Floats


class Group:
    """n chips that talk to each other: (n,) sizes, split into scale-up domains.

    all_reduce(bytes): every chip has `bytes` and receives their sum. all_gather(bytes): every chip
    ends up with `bytes`, an equal part from each; a reduce-scatter takes the same.
    """

    def __init__(self, fabric: Fabric, chip: Codes, size: Floats) -> None:
        domain = fabric.domain[chip]
        inside = np.minimum(size, domain)
        step = _log2(inside)
        several = (size > 1.0).astype(np.float64)
        share = (inside - 1.0) / inside
        self.levels, wait = _levels(fabric, chip, size, inside)
        self._alone = size <= domain
        self.domains: tuple[Floats, ...] = tuple(level.domains for level in self.levels)
        self.all_reduce = self._collective(
            fabric.all_reduce, chip, step, 2.0 * share, several, wait,
            [(2.0 * x.part, x.reduce_latency_s, x.reduce_s_per_byte) for x in self.levels],
        )  # fmt: skip
        self.all_gather = self._collective(
            fabric.all_gather, chip, step, share, several, wait,
            [(x.part, x.gather_latency_s, x.gather_s_per_byte) for x in self.levels],
        )  # fmt: skip
        self._exchange = self._collective(
            fabric.all_to_all, chip, step, (inside - 1.0) / size, several, wait,
            [(np.zeros(1), x.exchange_latency_s, x.dispatch_s_per_byte) for x in self.levels],
            rising=False,
        )  # fmt: skip
        self._leaves_s_per_byte = [x.leaves * x.dispatch_s_per_byte for x in self.levels]

    def _collective(
        self,
        table: DomainTable,
        chip: Codes,
        step: Codes,
        share: Floats,
        several: Floats,
        wait: Floats | None,
        outside: Sequence[tuple[Floats, Floats, Floats]],
        rising: bool = True,
    ) -> Collective:
        """`share` of the bytes inside, and of each network (share, latency, seconds per byte), with
        its ramp where `rising`."""
        latency = table.latency_s[chip, step]
        s_per_byte = share * table.s_per_byte[chip, step]
        ramp = table.ramp[chip, step]
        ramp = ramp * ramp * latency * s_per_byte
        latency = latency * several
        short = self._short(table, chip, step, share, wait)
        for level, (part, hops_s, per_byte) in zip(self.levels, outside, strict=True):
            latency = latency + hops_s
            slow = part * per_byte
            s_per_byte = np.maximum(s_per_byte, slow)
            if rising and level.ramp.any():
                rise = level.ramp * level.ramp * hops_s * slow
                ramp = ramp + rise + 2.0 * np.sqrt(ramp * rise)
        if wait is not None:
            latency = latency + wait
        shares = tuple((part,) for part, _, _ in outside)
        return Collective(latency, s_per_byte, ramp, share, shares, short)

    def _short(
        self, table: DomainTable, chip: Codes, step: Codes, share: Floats, wait: Floats | None
    ) -> Collective | None:
        """The algorithm for short messages of groups inside one domain."""
        latency = table.short_latency_s[chip, step]
        latency = np.where(self._alone, latency, np.inf)
        if np.isinf(latency).all():
            return None
        s_per_byte = share * np.where(np.isinf(latency), 0.0, table.short_s_per_byte[chip, step])
        return Collective(
            latency if wait is None else latency + wait, s_per_byte, np.zeros(len(share)), share
        )

    def all_to_all(self, bytes_: Floats, leaving: Sequence[Floats] | None = None) -> Cost:
        """Every chip sends `bytes_` in all, evenly to the group; what leaves a domain of a level,
        times its `leaving` where copies are made on arrival, goes over the next network while the
        rest stays inside."""
        latency, transfer, sent = self._exchange(bytes_)
        outside: list[tuple[Floats | float, ...]] = []
        for k, (level, s_per_byte) in enumerate(
            zip(self.levels, self._leaves_s_per_byte, strict=True)
        ):
            factor = 1.0 if leaving is None else leaving[k]
            leaves = bytes_ * s_per_byte
            leaves *= factor
            np.maximum(transfer, leaves, out=transfer)
            outside.append((level.leaves, factor))
        return Cost(latency, transfer, Sent(bytes_, sent.inside, tuple(outside)))


def _levels(
    fabric: Fabric, chip: Codes, size: Floats, inside: Floats
) -> tuple[tuple[_Level, ...], Floats | None]:
    """The networks of a group, and (n,) seconds that it waits for stragglers on all levels, None
    where nothing is jittered."""
    jittered = fabric.jittered
    wait = np.zeros(len(size))
    if jittered:
        waits = wait_s(fabric.jitter_s[chip], fabric.distribution[chip], inside)
        wait = waits * (inside > 1.0)
    levels, reach = [], inside
    for network in fabric.networks:
        wider = np.minimum(size, network.reach[chip])
        met = np.ceil(wider / reach)
        step = _log2(met)
        levels.append(
            _Level(
                domains=np.ceil(size / reach),
                leaves=(wider - reach) / size,
                part=(met - 1.0) / met / reach,
                reduce_latency_s=network.reduce_latency_s[chip, step],
                gather_latency_s=network.gather_latency_s[chip, step],
                exchange_latency_s=network.exchange_latency_s[chip, step],
                reduce_s_per_byte=network.reduce_s_per_byte[chip, step],
                gather_s_per_byte=network.gather_s_per_byte[chip, step],
                dispatch_s_per_byte=network.dispatch_s_per_byte[chip, step],
                ramp=network.ramp[chip],
            )
        )
        if jittered:
            waits = wait_s(network.jitter_s[chip], network.distribution[chip], wider)
            wait = wait + waits * (met > 1.0)
        reach = wider
    return tuple(levels), wait if jittered else None


def groups(deployed: Deployed) -> tuple[Group, Group]:
    """The tensor-parallel group and the group of all chips that share an instance's experts."""
    if deployed.groups is None:
        fabric, chip = deployed.machines.fabric, deployed.batch.chip
        deployed.groups = (
            Group(fabric, chip, deployed.tensor_parallel),
            Group(fabric, chip, deployed.group),
        )
    return deployed.groups


def point_to_point(
    fabric: Fabric, chip: Codes, bytes_: Floats, senders: Floats
) -> tuple[Cost, ...]:
    """The cost, (n,), of handing `bytes_` from each chip to one other: inside the scale-up domain,
    where a pair may have one link, then over each network. The receivers wait for the slowest of so
    many senders."""
    none, all_ = np.zeros(1), np.ones(1)
    levels: list[Fabric | Network] = [fabric, *fabric.networks]
    costs = [
        Cost(
            fabric.all_reduce.latency_s[chip, 1],
            bytes_ / fabric.pair_bytes_per_s[chip],
            Sent(bytes_, all_, ()),
        ),
        *(
            Cost(one.hop_s[chip], bytes_ * one.s_per_byte[chip], Sent(bytes_, none, ((all_,),)))
            for one in fabric.networks
        ),
    ]
    if not fabric.jittered:
        return tuple(costs)
    waits = [wait_s(one.jitter_s[chip], one.distribution[chip], senders) for one in levels]
    return tuple(
        Cost(cost.latency_s + wait, cost.transfer_s, cost.sent)
        for cost, wait in zip(costs, waits, strict=True)
    )


def stage_hops(deployed: Deployed, bytes_: Floats) -> tuple[tuple[Floats, Cost], ...]:
    """((hops, cost of one), ...), (n,): handing `bytes_` from stage to stage inside a scale-up
    domain, and over each network where two stages lie in different domains."""
    fabric, chip = deployed.machines.fabric, deployed.batch.chip
    hops = deployed.pipeline_parallel - 1.0
    chips = deployed.group * deployed.pipeline_parallel
    reaches = [deployed.domain, *(network.reach[chip] for network in fabric.networks)]
    left, counts = hops, []
    for reach in reaches:
        beyond = np.minimum(np.maximum(np.ceil(chips / reach) - 1.0, 0.0), hops)
        counts.append(left - beyond)
        left = beyond
    costs = point_to_point(fabric, chip, bytes_, deployed.group)
    return tuple(zip(counts, costs, strict=True))


def network_of(fabric: Fabric, chip: Codes, chips: Floats) -> tuple[Floats, Floats]:
    """(seconds of a hop, seconds per byte), (n,), of the innermost network that joins so many
    chips."""
    hop, per_byte = np.zeros(len(chips)), np.zeros(len(chips))
    for network in reversed(fabric.networks):
        joins = chips <= network.reach[chip]
        hop = np.where(joins, network.hop_s[chip], hop)
        per_byte = np.where(joins, network.s_per_byte[chip], per_byte)
    return hop, per_byte
