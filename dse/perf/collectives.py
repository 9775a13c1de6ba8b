"""Collectives: latency plus bandwidth, hierarchical where a group outgrows its scale-up domain.

Inside one domain of g chips an all-reduce moves 2 (g - 1) / g of its bytes over each chip's link
(Rabenseifner's reduce-scatter and all-gather; Thakur et al. 2005, section 4.5). A group of n chips
over m = n / g domains reduce-scatters inside, all-reduces the g-th part across domains over each
chip's own network link in 2 log2 m hops, and all-gathers inside.
"""

from __future__ import annotations

import numpy as np

from dse.candidates import Floats
from dse.perf.deployed import Deployed
from dse.perf.machines import GROUPS


def _log2(n: Floats) -> Floats:
    return np.ceil(np.log2(np.maximum(n, 1.0)))


class Collective:
    """seconds = latency + sqrt(bytes * ramp) + bytes * s_per_byte, for bytes of one chip; every
    array (n,). The square root is the ramp of a message between latency and full bandwidth."""

    __slots__ = ("latency_s", "ramp", "s_per_byte")

    def __init__(
        self,
        latency_s: Floats,
        s_per_byte: Floats,
        ramp: Floats,
        hops_s: Floats,
        out_s_per_byte: Floats | float = 0.0,
    ) -> None:
        """Inside one domain `ramp` multiplies the square root of latency and transfer
        (`dse.specs.efficiency`); `hops_s` and `out_s_per_byte` come on top between domains."""
        self.latency_s: Floats = latency_s + hops_s
        self.s_per_byte: Floats = s_per_byte + out_s_per_byte
        self.ramp: Floats = ramp * ramp * latency_s * s_per_byte

    def __call__(self, bytes_: Floats) -> tuple[Floats, Floats]:
        """(latency and ramp, transfer) in seconds, (n,)."""
        latency = bytes_ * self.ramp
        np.sqrt(latency, out=latency)
        latency += self.latency_s
        return latency, bytes_ * self.s_per_byte


class Group:
    """n chips that talk to each other: (n,) sizes, split into scale-up domains.

    all_reduce(bytes): every chip has `bytes` and receives their sum. all_gather(bytes): every chip
    ends up with `bytes`, an equal part from each; a reduce-scatter takes the same. Each gives
    (latency, transfer) in seconds, (n,).
    """

    def __init__(self, deployed: Deployed, size: Floats) -> None:
        machines, chip = deployed.machines, deployed.batch.chip
        inside = np.minimum(size, deployed.domain)
        domains = np.ceil(size / inside)
        several = (size > 1.0) * 1.0
        step = np.minimum(_log2(inside), GROUPS - 1.0).astype(np.intp)
        hop = machines.scale_out_latency_s[chip]
        share = (inside - 1.0) / inside
        hops = _log2(domains) * hop
        out = (domains - 1.0) / domains / inside * machines.scale_out_s_per_byte[chip]
        self.domains = domains
        self.all_reduce = Collective(
            machines.all_reduce_latency_s[chip, step] * several,
            2.0 * share * machines.all_reduce_s_per_byte[chip, step],
            machines.all_reduce_ramp[chip, step],
            2.0 * hops,
            2.0 * out,
        )
        self.all_gather = Collective(
            machines.all_gather_latency_s[chip, step] * several,
            share * machines.all_gather_s_per_byte[chip, step],
            machines.all_gather_ramp[chip, step],
            hops,
            out,
        )
        self._exchange = Collective(
            machines.all_to_all_latency_s[chip, step] * several,
            (inside - 1.0) / size * machines.all_to_all_s_per_byte[chip, step],
            machines.all_to_all_ramp[chip, step],
            (domains > 1.0) * hop,
        )
        self._leaves_s_per_byte: Floats = (
            (size - inside) / size * machines.dispatch_s_per_byte[chip]
        )

    def all_to_all(self, bytes_: Floats, leaving: Floats | float = 1.0) -> tuple[Floats, Floats]:
        """(latency, transfer) in seconds, (n,): every chip sends `bytes_` in all, evenly to the
        group; what leaves the domain, times `leaving` where copies are made on arrival, goes over
        the network while the rest stays inside."""
        latency, transfer = self._exchange(bytes_)
        leaves = bytes_ * self._leaves_s_per_byte
        leaves *= leaving
        return latency, np.maximum(transfer, leaves, out=leaves)


def groups(deployed: Deployed) -> tuple[Group, Group]:
    """The tensor-parallel group and the group of all chips that share an instance's experts."""
    if deployed.groups is None:
        deployed.groups = (
            Group(deployed, deployed.tensor_parallel),
            Group(deployed, deployed.group),
        )
    return deployed.groups


def stage_hops(deployed: Deployed, bytes_: Floats) -> tuple[tuple[Floats, Floats, Floats], ...]:
    """((hops, latency, transfer), ...) in seconds, (n,): handing `bytes_` from stage to stage
    inside a scale-up domain, and over the network where two stages lie in different domains."""
    machines, chip = deployed.machines, deployed.batch.chip
    hops = deployed.pipeline_parallel - 1.0
    crossing = np.ceil(deployed.group * deployed.pipeline_parallel / deployed.domain) - 1.0
    crossing = np.minimum(np.maximum(crossing, 0.0), hops)
    inside = machines.all_reduce_latency_s[chip, 1], bytes_ / machines.link_bytes_per_s[chip]
    outside = machines.scale_out_latency_s[chip], bytes_ * machines.scale_out_s_per_byte[chip]
    return (hops - crossing, *inside), (crossing, *outside)
