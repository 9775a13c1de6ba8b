"""The same chips on another fabric, for comparisons at one point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.perf.machines import Machines


def one_domain(machines: Machines) -> Machines:
    """In a scale-up domain that holds any group."""
    return replace(machines, domain=np.full_like(machines.domain, np.inf))


def faster_links(machines: Machines, factor: float) -> Machines:
    """With `factor` times the bandwidth of every link, inside the domain and between domains."""
    return replace(
        machines,
        link_bytes_per_s=machines.link_bytes_per_s * factor,
        all_reduce_s_per_byte=machines.all_reduce_s_per_byte / factor,
        all_gather_s_per_byte=machines.all_gather_s_per_byte / factor,
        all_to_all_s_per_byte=machines.all_to_all_s_per_byte / factor,
        scale_out_s_per_byte=machines.scale_out_s_per_byte / factor,
        dispatch_s_per_byte=machines.dispatch_s_per_byte / factor,
    )
