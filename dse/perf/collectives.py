"""Collectives: latency plus bandwidth, hierarchical where a group outgrows its scale-up domain.

Inside one domain of g chips an all-reduce moves 2 (g - 1) / g of its bytes over each chip's link
(Rabenseifner's reduce-scatter and all-gather; Thakur et al. 2005, section 4.5). A group of n chips
over m = n / g domains reduce-scatters inside, all-reduces the g-th part across domains over each
chip's own network link, and all-gathers inside.
"""

from __future__ import annotations

import numpy as np

from dse.candidates import Floats
from dse.perf.deployed import Deployed
from dse.perf.machines import GROUPS


def _log2(n: Floats) -> Floats:
    return np.ceil(np.log2(np.maximum(n, 1.0)))


class Group:
    """n chips that talk to each other: (n,) sizes, split into scale-up domains.

    Both collectives are linear in their bytes: a latency and seconds per byte, (n,) each, that all
    steps of a batch share.
    """

    def __init__(self, deployed: Deployed, size: Floats) -> None:
        machines, chip = deployed.machines, deployed.batch.chip
        inside = np.minimum(size, deployed.domain)
        domains = np.ceil(size / inside)
        several = (size > 1.0) * 1.0
        step = np.minimum(_log2(inside), GROUPS - 1.0).astype(np.intp)
        out_latency = machines.scale_out_latency_s[chip]
        out_s_per_byte = machines.scale_out_s_per_byte[chip]

        reduce_latency = machines.all_reduce_latency_s[chip, step] * several
        within = 2.0 * (inside - 1.0) / inside * machines.all_reduce_s_per_byte[chip, step]
        across = 2.0 * (domains - 1.0) / domains / inside * out_s_per_byte
        self.reduce_latency_s: Floats = reduce_latency + 2.0 * _log2(domains) * out_latency
        self.reduce_s_per_byte: Floats = within + across

        a2a_latency = machines.all_to_all_latency_s[chip, step] * several
        stays = (inside - 1.0) / size * machines.all_to_all_s_per_byte[chip, step]
        leaves = (size - inside) / size * out_s_per_byte
        self.a2a_latency_s: Floats = a2a_latency + (domains > 1.0) * out_latency
        self.a2a_s_per_byte: Floats = np.maximum(stays, leaves)

        # An all-gather and a reduce-scatter start later than the one kernel of an all-reduce: two
        # collectives of the latency of an all-to-all (assumed; 16.6 and 16.8 us were measured for
        # the two on 8 chips, against 7.9 us).
        self.gather_scatter_latency_s: Floats = np.maximum(2.0 * a2a_latency - reduce_latency, 0.0)

    def all_reduce(self, bytes_: Floats) -> tuple[Floats, Floats]:
        """(latency, transfer) in seconds, (n,), of an all-reduce of `bytes_` on every chip."""
        return self.reduce_latency_s, bytes_ * self.reduce_s_per_byte

    def all_to_all(self, bytes_: Floats) -> tuple[Floats, Floats]:
        """(latency, transfer) in seconds, (n,): every chip sends `bytes_` in all, evenly to the
        group; what leaves the domain goes over the network while the rest stays inside."""
        return self.a2a_latency_s, bytes_ * self.a2a_s_per_byte


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
