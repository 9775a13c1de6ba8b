"""Collectives: latency plus bandwidth, hierarchical where a group outgrows its scale-up domain.

Inside one domain of g chips an all-reduce moves 2 (g - 1) / g of its bytes over each chip's link
(Rabenseifner's reduce-scatter and all-gather; Thakur et al. 2005, section 4.5), or what another
algorithm does (`dse.physics.fabrics`). A group over m domains reduce-scatters inside, all-reduces
the g-th part across domains over each chip's own network link in 2 log2 m hops, and all-gathers
inside; with more levels (rack, cluster), level by level. The levels work at the same time on
different parts of a long message, so that the slowest of them sets its transfer (measured on 4
nodes: docs/fabrics.md); their latencies add up.

With jitter, each level waits for the slowest of the chips that meet there. Each is late by a
random, never negative, independent delay of a given mean; the collective takes longer by the
expected maximum of n of them. Over the mean of one delay that is

    exponential  H_n, the n-th harmonic number (exact); grows with ln n: a chip in a collective
    half-normal  F^-1(1 - q), q = e^-gamma (1 + 1.07 / (ln n + 4.38)) / (n + c), the quantile near
                 which the expected maximum of a tail of Gumbel's type lies. c makes n = 1 exact,
                 the two other numbers are fitted to the integral: within 0.6% of it from 1 to 10^6
                 participants (test_jitter.py). Grows with sqrt(ln n): a rank in a training step

No percentile of any collective was found published, so the mean is an input, 0 by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.physics.fabrics import GROUPS, DomainTable, Fabric, Network
from dse.space.candidates import Codes, Floats


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
    """(n,) place of a group in the tables of `dse.physics.fabrics`."""
    return np.minimum(np.ceil(np.log2(np.maximum(n, 1.0))), GROUPS - 1.0).astype(np.intp)


def _at(table: NDArray[np.float64], cell: Codes) -> Floats:
    """(n,) entries of a (chips, GROUPS) table; `cell` is their place in the flattened one."""
    return table.ravel().take(cell)


class _Level(NamedTuple):
    """A network of a group, (n,): how many domains of the level inside the whole group spans, which
    share of a chip's all-to-all bytes goes over it (`leaves`) and of a gather's (`part`), the chip,
    and the `cell` of its tables."""

    network: Network
    domains: Floats
    leaves: Floats
    part: Floats
    chip: Codes
    cell: Codes


class Group:
    """n chips that talk to each other: (n,) sizes, split into scale-up domains.

    all_reduce(bytes): every chip has `bytes` and receives their sum. all_gather(bytes): every chip
    ends up with `bytes`, an equal part from each; a reduce-scatter takes the same.
    """

    def __init__(
        self,
        fabric: Fabric,
        chip: Codes,
        size: Floats,
        domain: Floats | None = None,
        stride: Floats | None = None,
    ) -> None:
        """`domain` (n,) takes the place of the chips' own where it is hypothetical; with `stride`
        (n,) the group takes one of every so many chips, so that fewer of it share a domain."""
        domain = fabric.domain[chip] if domain is None else domain
        if stride is not None:
            domain = np.maximum(np.floor(domain / stride), 1.0)
        inside = np.minimum(size, domain)
        self._fabric, self._size, self._inside = fabric, size, inside
        self._cell = chip * GROUPS + _log2(inside)
        self._several = (size > 1.0).astype(np.float64)
        self._share = (inside - 1.0) / inside
        self._alone = size <= domain
        self.levels, self._wait = _levels(fabric, chip, size, inside, stride)
        self.domains: tuple[Floats, ...] = tuple(level.domains for level in self.levels)

    # Gathered on first use: few groups run all three.
    @cached_property
    def all_reduce(self) -> Collective:
        parts = [2.0 * x.part for x in self.levels]
        return self._collective("all_reduce", 2.0 * self._share, parts)

    @cached_property
    def all_gather(self) -> Collective:
        return self._collective("all_gather", self._share, [x.part for x in self.levels])

    @cached_property
    def _exchange(self) -> tuple[Collective, list[Floats]]:
        """What an all-to-all takes inside the domain, with every network's latency; and of each
        network the seconds a byte that a chip sends in all."""
        share = (self._inside - 1.0) / self._size
        inside = self._collective("all_to_all", share, [None] * len(self.levels))
        leaves = [
            x.leaves * _at(x.network.ring_s_per_byte["all_to_all"], x.cell) for x in self.levels
        ]
        return inside, leaves

    def _collective(self, name: str, share: Floats, parts: Sequence[Floats | None]) -> Collective:
        """`share` of the bytes inside, and of each network its part: the two of an all-to-all meet
        in `all_to_all` (None)."""
        table: DomainTable = getattr(self._fabric, name)
        latency = _at(table.latency_s, self._cell)
        s_per_byte = share * _at(table.s_per_byte, self._cell)
        ramp = _at(table.ramp, self._cell)
        ramp = ramp * ramp * latency * s_per_byte
        latency = latency * self._several
        short = self._short(table, share)
        for level, part in zip(self.levels, parts, strict=True):
            hops_s = _at(level.network.latency_s[name], level.cell)
            latency = latency + hops_s
            if part is None:
                continue
            slow = part * _at(level.network.ring_s_per_byte[name], level.cell)
            s_per_byte = np.maximum(s_per_byte, slow)
            if level.network.ramp.any():
                rise = level.network.ramp[level.chip]
                rise = rise * rise * hops_s * slow
                ramp = ramp + rise + 2.0 * np.sqrt(ramp * rise)
        if self._wait is not None:
            latency = latency + self._wait
        outside = tuple((np.zeros(1) if part is None else part,) for part in parts)
        return Collective(latency, s_per_byte, ramp, share, outside, short)

    def _short(self, table: DomainTable, share: Floats) -> Collective | None:
        """The algorithm for short messages of groups inside one domain."""
        if np.isinf(table.short_latency_s).all():
            return None
        latency = _at(table.short_latency_s, self._cell)
        if np.isinf(latency).all():
            return None
        latency = np.where(self._alone, latency, np.inf)
        per_byte = np.where(np.isinf(latency), 0.0, _at(table.short_s_per_byte, self._cell))
        if self._wait is not None:
            latency = latency + self._wait
        return Collective(latency, share * per_byte, np.zeros(len(share)), share)

    def all_to_all(self, bytes_: Floats, leaving: Sequence[Floats] | None = None) -> Cost:
        """Every chip sends `bytes_` in all, evenly to the group; what leaves a domain of a level,
        times its `leaving` where copies are made on arrival, goes over the next network while the
        rest stays inside."""
        exchange, leaves_s_per_byte = self._exchange
        latency, transfer, sent = exchange(bytes_)
        outside: list[tuple[Floats | float, ...]] = []
        for k, (level, s_per_byte) in enumerate(zip(self.levels, leaves_s_per_byte, strict=True)):
            factor = 1.0 if leaving is None else leaving[k]
            leaves = bytes_ * s_per_byte
            leaves *= factor
            np.maximum(transfer, leaves, out=transfer)
            outside.append((level.leaves, factor))
        return Cost(latency, transfer, Sent(bytes_, sent.inside, tuple(outside)))


def _levels(
    fabric: Fabric, chip: Codes, size: Floats, inside: Floats, stride: Floats | None = None
) -> tuple[tuple[_Level, ...], Floats | None]:
    """The networks of a group, and (n,) seconds that it waits for its slowest member, None where
    nothing is jittered: that of the level where members are latest, since a member that is late
    is late once."""
    jittered = fabric.jittered
    wait = np.zeros(len(size))
    if jittered:
        waits = wait_s(fabric.jitter_s[chip], inside)
        wait = waits * (inside > 1.0)
    levels, reach = [], inside
    for network in fabric.networks:
        if (size <= reach).all():  # what further levels would add is 0
            break
        joins = network.reach[chip]
        if stride is not None:
            joins = np.maximum(np.floor(joins / stride), 1.0)
        wider = np.maximum(np.minimum(size, joins), reach)
        met = np.ceil(wider / reach)
        levels.append(
            _Level(
                network=network,
                domains=np.ceil(size / reach),
                leaves=(wider - reach) / size,
                part=(met - 1.0) / met / reach,
                chip=chip,
                cell=chip * GROUPS + _log2(met),
            )
        )
        if jittered:
            waits = wait_s(network.jitter_s[chip], wider)
            wait = np.maximum(wait, waits * (met > 1.0))
        reach = wider
    return tuple(levels), wait if jittered else None


def point_to_point(
    fabric: Fabric, chip: Codes, bytes_: Floats, senders: Floats
) -> tuple[Cost, ...]:
    """The cost, (n,), of handing `bytes_` from each chip to one other: inside the scale-up domain,
    where a pair may have one link, then over each network. The receivers wait for the slowest of so
    many senders."""
    none, all_ = np.zeros(1), np.ones(1)

    def cost(level: Fabric | Network, latency_s: Floats, transfer_s: Floats, sent: Sent) -> Cost:
        return Cost(latency_s + wait_s(level.jitter_s[chip], senders), transfer_s, sent)

    pair_s, first_s = bytes_ / fabric.pair_bytes_per_s[chip], fabric.all_reduce.latency_s[chip, 1]
    inside, outside = Sent(bytes_, all_, ()), Sent(bytes_, none, ((all_,),))
    return (
        cost(fabric, first_s, pair_s, inside),
        *(
            cost(one, one.hop_s[chip], bytes_ * one.s_per_byte[chip], outside)
            for one in fabric.networks
        ),
    )


def network_of(fabric: Fabric, chip: Codes, chips: Floats) -> tuple[Floats, Floats]:
    """(seconds of a hop, seconds per byte), (n,), of the innermost network that joins so many
    chips."""
    hop, per_byte = np.zeros(len(chips)), np.zeros(len(chips))
    for network in reversed(fabric.networks):
        joins = chips <= network.reach[chip]
        hop = np.where(joins, network.hop_s[chip], hop)
        per_byte = np.where(joins, network.s_per_byte[chip], per_byte)
    return hop, per_byte


_GUMBEL = float(np.exp(-np.euler_gamma))
_FITTED = (1.07, 4.38)


def expected_maximum(n: Floats) -> Floats:
    """(n,) expected maximum of so many exponential delays over the mean of one; 1 for one
    participant. `n` may be any real number from 1."""
    from scipy.special import digamma  # noqa: PLC0415

    return digamma(n + 1.0) + np.euler_gamma


def expected_half_normal_maximum(n: Floats) -> Floats:
    """(n,) the same of half-normal delays."""
    from statistics import NormalDist  # noqa: PLC0415 - SciPy's takes 150 ms to start

    # So that at n = 1 the quantile is the mean.
    c = _GUMBEL * (1.0 + _FITTED[0] / _FITTED[1]) / math.erfc(1.0 / math.sqrt(math.pi)) - 1.0
    beyond = _GUMBEL * (1.0 + _FITTED[0] / (np.log(n) + _FITTED[1])) / (n + c)
    few, place = np.unique(beyond / 2.0, return_inverse=True)  # group sizes: a handful
    below = NormalDist().inv_cdf
    return -np.array([below(tail) for tail in few.tolist()])[place] * np.sqrt(np.pi / 2.0)


def wait_s(jitter_s: Floats, n: Floats) -> Floats:
    """(n,) seconds that a collective of `n` participants waits for its slowest."""
    return jitter_s * expected_maximum(n) if jitter_s.any() else np.zeros(len(n))
