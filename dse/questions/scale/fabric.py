"""The same chips on another fabric, for comparisons at one point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.physics.machines import Machines

PER_BYTE = ("s_per_byte", "reduce_s_per_byte", "gather_s_per_byte", "dispatch_s_per_byte")


def one_domain(machines: Machines) -> Machines:
    """In a scale-up domain that holds any group, whose collectives are those of the largest group
    of the real one (only their share of bytes grows)."""
    fabric = machines.fabric
    endless = np.full_like(fabric.domain, np.inf)
    return replace(machines, fabric=replace(fabric, domain=endless, networks=()))


def faster_links(machines: Machines, factor: float) -> Machines:
    """With `factor` times the bandwidth of every link, inside the domain and between domains."""
    fabric = machines.fabric
    networks = tuple(
        replace(network, **{name: getattr(network, name) / factor for name in PER_BYTE})
        for network in fabric.networks
    )
    return replace(
        machines,
        fabric=replace(
            fabric,
            link_bytes_per_s=fabric.link_bytes_per_s * factor,
            pair_bytes_per_s=fabric.pair_bytes_per_s * factor,
            all_reduce=fabric.all_reduce.scaled(1.0, factor),
            all_gather=fabric.all_gather.scaled(1.0, factor),
            all_to_all=fabric.all_to_all.scaled(1.0, factor),
            networks=networks,
        ),
    )
