"""What bounds the scale-up domain of a rack: each bound as used / limit, n domain sizes at once.

Notation, n domain sizes D (n,), of a rack as `dse.schema.system` describes it:

    R  racks that one domain may take            f  chips of each rack, whole trays, evenly spread
    t  stages of switches                        s = 2 t - 1, ports of switches that a chip takes
    c  cables of a chip to the first stage       t c, its cables in all
    u, h  rack units of a chip, of a port of it  d  the diameter of a cable
    w, m  watts and mass of a chip with all that comes with it

    f = tray ceil(D / (R tray))
    t = the least with 2 (r / 2)^t >= D, r the chips that one stage joins (folded Clos; Leiserson
        1985, "Fat-trees"), so that a second stage doubles the cables and triples the switches

Every bound grows with D and never falls. Those of one rack hold exactly as long as R racks, each as
full as the bound allows, take the domain. Nothing is said of what a larger domain costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dse.schema.system import HEIGHT_UNIT_M, Rack
from dse.space.candidates import Codes, Floats

MOST_STAGES = 6
MOST_CHIPS = 16_384  # of a domain that is looked at
# In the order in which they are said; `dse.rules.deployment` says what each means.
BOUNDS = (
    "rack_cables",
    "rack_cable_reach",
    "rack_bend_radius",
    "rack_power",
    "rack_cooling",
    "rack_weight",
    "rack_floor_load",
    "rack_space",
)


def full_of(rack: Rack, tdp_w: float | None, link_bytes_per_s: float) -> Rack:
    """The rack full of another chip, of `tdp_w` (None: that of the rack's file). It sends
    `link_bytes_per_s` over its scale-up links in one direction (NaN: not known), and a cable
    carries both, so that it has 2 link / rate of them (72 for 900 GB/s over pairs of 200 Gb/s)."""
    cables = rack.cables
    if cables is not None and math.isfinite(link_bytes_per_s):
        cables = replace(
            cables, per_chip=float(np.ceil(2.0 * link_bytes_per_s / cables.bytes_per_s))
        )
    return replace(rack, chip_w=rack.chip_w if tdp_w is None else tdp_w, cables=cables)


def stages(rack: Rack, domain: Floats) -> Floats:
    """(n,) stages of switches between `domain` chips."""
    found = np.ones(len(domain))
    for stage in range(1, MOST_STAGES):
        found = found + (domain > 2.0 * (rack.stage_chips / 2.0) ** stage)
    return found


def rack_use(rack: Rack, domain: Floats) -> dict[str, Floats]:
    """used / limit of every bound of BOUNDS, each (n,), for domains of `domain` chips.

    With M the mass of the empty rack and A its footprint:

        rack_cables       f t c / 2 (pi / 4) d^2 / (fill x area)
        rack_cable_reach  (lead + min(D (u / 2 + s h), rack units) + (racks - 1) width) / reach
        rack_bend_radius  (bend multiple + layers) d / depth, layers = ceil(tray t c d / tray width)
        rack_power        f w / feed                 rack_weight      (M + f m) / allowed mass
        rack_cooling      f w share / capacity       rack_floor_load  (M + f m) / (A floor load)
        rack_space        f (u + s h) / rack units

    Switches stand in the middle, so that the busiest cross-section carries half of a rack's cables,
    and the longest runs from the outermost tray to the farthest switch. A tray's cables turn in
    layers over its width, around the radius of the innermost. The racks of the reach are those that
    the domain needs where each is as full as its power, cooling, mass, floor and height allow, in
    whole trays. Bounds of cables are 0 in a rack without.
    """
    tray, t, cables = float(rack.tray_chips), stages(rack, domain), rack.cables
    ports = 2.0 * t - 1.0
    lines = t * (cables.per_chip if cables else 0.0)
    cable_w, cable_kg = (cables.power_w, cables.mass_kg) if cables else (0.0, 0.0)
    chip_w = rack.chip_w + rack.other_w + ports * rack.stage_w + lines * cable_w
    chip_kg = rack.chip_kg + ports * rack.stage_kg + lines * cable_kg
    chip_units = rack.chip_units + ports * rack.stage_units
    chips = tray * np.ceil(domain / (rack.racks * tray))
    power_w, mass_kg = chips * chip_w, rack.frame_kg + chips * chip_kg
    floor_kg = rack.width_m * rack.depth_m * rack.floor_kg_per_m2
    use = dict.fromkeys(BOUNDS[:3], np.zeros(len(domain))) | {
        "rack_power": power_w / rack.feed_w,
        "rack_cooling": power_w * rack.cooling_share / rack.cooling_w,
        "rack_weight": mass_kg / rack.allowed_kg,
        "rack_floor_load": mass_kg / floor_kg,
        "rack_space": chips * chip_units / rack.frame_units,
    }
    if cables is None:
        return use
    carried_kg = min(rack.allowed_kg, floor_kg) - rack.frame_kg
    holds = np.minimum(rack.feed_w, rack.cooling_w / rack.cooling_share) / chip_w
    holds = np.minimum(holds, np.minimum(carried_kg / chip_kg, rack.frame_units / chip_units))
    holds = tray * np.maximum(np.floor(holds / tray * (1.0 + 1e-12)), 1.0)
    racks = np.clip(np.ceil(domain / holds), 1.0, float(rack.racks))
    d = cables.diameter_m
    height = domain * (rack.chip_units / 2.0 + ports * rack.stage_units)
    up_m = HEIGHT_UNIT_M * np.minimum(height, rack.frame_units)
    length_m = cables.lead_m + up_m + (racks - 1.0) * cables.between_racks_m
    layers = np.ceil(lines * rack.tray_chips * d / cables.tray_width_m)
    section_m2 = chips * lines / 2.0 * (np.pi / 4.0 * d * d)
    return use | {
        "rack_cables": section_m2 / (cables.fill * cables.area_m2),
        "rack_cable_reach": length_m / cables.reach_m,
        "rack_bend_radius": (cables.bend_multiple + layers) * d / cables.bend_depth_m,
    }


def rack_violations(racks: Sequence[Rack], domain: Floats, chip: Codes) -> dict[str, Floats]:
    """used / limit - 1 of every bound, (n,), for candidates on chips `chip` (n,); `racks` are full
    of one chip each."""
    use, row = [rack_use(rack, domain) for rack in racks], np.arange(len(domain))
    return {name: np.stack([one[name] for one in use])[chip, row] - 1.0 for name in BOUNDS}


def largest_domain(rack: Rack, bounds: Sequence[str] = BOUNDS) -> tuple[int, str | None]:
    """The largest domain within `bounds`, in whole trays (0: none fits), and the bound that the
    next tray breaks most (None: nothing ends it up to MOST_CHIPS). No bound falls with the domain,
    so that the sizes that fit are the smallest."""
    sizes = np.arange(rack.tray_chips, MOST_CHIPS + 1, rack.tray_chips, dtype=np.float64)
    all_use = rack_use(rack, sizes)
    use = {name: all_use[name] for name in BOUNDS if name in bounds}
    fits = int(np.count_nonzero(np.max(np.stack([*use.values()]), axis=0) <= 1.0))
    largest = int(sizes[fits - 1]) if fits else 0
    broken = None if fits == len(sizes) else max(use, key=lambda name: float(use[name][fits]))
    return largest, broken
