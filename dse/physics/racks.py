"""What bounds the scale-up domain of a rack: each bound as used / limit, n domain sizes at once.

Notation, n domain sizes D (n,), of a rack as `dse.schema.rack` describes it:

    R  racks that one domain may take            f  chips of each rack, whole trays, evenly spread
    t  stages of switches                        s = 2 t - 1, ports of switches that a chip takes
    c  cables of a chip to the first stage       t c, its cables in all
    u, h  rack units of a chip, of a port of it   w  watts of a chip with all that comes with it

    f = tray ceil(D / (R tray))
    t = the least with 2 (r / 2)^t >= D, r the chips that one stage joins (folded Clos; Leiserson
        1985, "Fat-trees"), so that a second stage doubles the cables and triples the switches

Every bound grows with D and never falls. Those of one rack hold exactly as long as R racks, each as
full as the bound allows, take the domain. Nothing is said of what a larger domain costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dse.record import record
from dse.schema.rack import HEIGHT_UNIT_M, Cooling, Rack
from dse.space.candidates import Codes, Floats

MOST_STAGES = 6
MOST_CHIPS = 16_384  # of a domain that is looked at
# In the order in which they are said; `dse.rules.service` says what each means.
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


@record
class RackTable:
    """A rack and, for each chip of a study, (chips,): its power and its cables."""

    rack: Rack
    chip_w: Floats
    cables: Floats


def rack_table(
    rack: Rack, tdp_w: Sequence[float | None], link_bytes_per_s: Sequence[float]
) -> RackTable:
    """`tdp_w` of each chip (None: that of the rack's file), `link_bytes_per_s` what it sends over
    its scale-up links in one direction: a cable carries both directions, so that a chip has
    2 link / rate of them (72 for 900 GB/s over pairs of 200 Gb/s)."""
    power = [rack.chip_w if watts is None else watts for watts in tdp_w]
    links = np.array(link_bytes_per_s, dtype=np.float64)
    cables = np.full(len(power), rack.cables_per_chip)
    if rack.cable is not None:
        cables = np.where(np.isfinite(links), np.ceil(2.0 * links / rack.cable.bytes_per_s), cables)
    return RackTable(rack, np.array(power, dtype=np.float64), cables)


def stages(rack: Rack, domain: Floats) -> Floats:
    """(n,) stages of switches between `domain` chips."""
    found = np.ones(len(domain))
    for stage in range(1, MOST_STAGES):
        found = found + (domain > 2.0 * (rack.stage_chips / 2.0) ** stage)
    return found


@record
class _Loads:
    """What domains put into each rack, (n,): `chips` of it, and of a chip its switch `ports`, its
    cables (`lines`), watts, mass and rack units."""

    chips: Floats
    ports: Floats
    lines: Floats
    w: Floats
    kg: Floats
    units: Floats


def _loads(rack: Rack, domain: Floats, chip_w: Floats | None, cables: Floats | None) -> _Loads:
    n, tray = len(domain), float(rack.tray_chips)
    watts = np.full(n, rack.chip_w) if chip_w is None else chip_w
    first = np.full(n, rack.cables_per_chip) if cables is None else cables
    t = stages(rack, domain)
    ports, lines = 2.0 * t - 1.0, t * first
    cable_w, cable_kg = (rack.cable.power_w, rack.cable.mass_kg) if rack.cable else (0.0, 0.0)
    return _Loads(
        chips=tray * np.ceil(domain / (rack.racks * tray)),
        ports=ports,
        lines=lines,
        w=watts + rack.other_w + ports * rack.stage_w + lines * cable_w,
        kg=rack.chip_kg + ports * rack.stage_kg + lines * cable_kg,
        units=rack.chip_units + ports * rack.stage_units,
    )


def worst_cooling(rack: Rack) -> Cooling:
    """The medium that is at its limit first; it is the same for every domain."""
    return max(rack.cooling, key=lambda medium: medium.share / medium.capacity_w)


def racks_needed(
    rack: Rack, domain: Floats, chip_w: Floats | None = None, cables: Floats | None = None
) -> Floats:
    """(n,) racks that a domain takes where each is as full as its power, cooling, mass, floor and
    height allow, in whole trays; at most those that a domain may take."""
    load, medium, tray = _loads(rack, domain, chip_w, cables), worst_cooling(rack), rack.tray_chips
    carried_kg = min(rack.allowed_kg, rack.footprint_m2 * rack.floor_kg_per_m2) - rack.frame_kg
    holds = np.minimum(rack.feed_w, medium.capacity_w / medium.share) / load.w
    holds = np.minimum(holds, np.minimum(carried_kg / load.kg, rack.frame_units / load.units))
    holds = tray * np.maximum(np.floor(holds / tray * (1.0 + 1e-12)), 1.0)
    return np.clip(np.ceil(domain / holds), 1.0, float(rack.racks))


def rack_use(
    rack: Rack, domain: Floats, chip_w: Floats | None = None, cables: Floats | None = None
) -> dict[str, Floats]:
    """used / limit of every bound of BOUNDS, each (n,), for domains of `domain` chips.

    With f, w, t and c as above, M and m the mass of the empty rack and of a chip, and A the
    footprint:

        rack_power       f w / feed                  rack_weight      (M + f m) / allowed mass
        rack_cooling     f w share / capacity        rack_floor_load  (M + f m) / (A floor load)
        rack_space       f (u + s h) / rack units

    and the cables as `_cable_use` says. `chip_w` and `cables` (n,) take the place of the rack's own
    chip. Bounds of cables are 0 in a rack without.
    """
    load, medium = _loads(rack, domain, chip_w, cables), worst_cooling(rack)
    power_w, mass = load.chips * load.w, rack.frame_kg + load.chips * load.kg
    use = {
        **_cable_use(rack, domain, load, racks_needed(rack, domain, chip_w, cables)),
        "rack_power": power_w / rack.feed_w,
        "rack_cooling": power_w * medium.share / medium.capacity_w,
        "rack_weight": mass / rack.allowed_kg,
        "rack_floor_load": mass / (rack.footprint_m2 * rack.floor_kg_per_m2),
        "rack_space": load.chips * load.units / rack.frame_units,
    }
    return {name: use[name] for name in BOUNDS}


def _cable_use(rack: Rack, domain: Floats, load: _Loads, racks: Floats) -> dict[str, Floats]:
    """Bounds of the cables in the `racks` that the domain needs; d is a cable's diameter.

        rack_cables       f t c / 2 (pi / 4) d^2 / (fill x area)
        rack_cable_reach  (lead + min(D (u / 2 + s h), rack units) + (racks - 1) width) / reach
        rack_bend_radius  (bend multiple + layers) d / depth, layers = ceil(tray t c d / tray width)

    Switches stand in the middle, so that the busiest cross-section carries half of a rack's cables,
    and the longest runs from the outermost tray to the farthest switch. A tray's cables turn in
    layers over its width, around the radius of the innermost.
    """
    cable, space = rack.cable, rack.space
    if cable is None or space is None:
        zeros = np.zeros(len(domain))
        return dict.fromkeys(("rack_cables", "rack_cable_reach", "rack_bend_radius"), zeros)
    d = cable.diameter_m
    height = domain * (rack.chip_units / 2.0 + load.ports * rack.stage_units)
    up_m = HEIGHT_UNIT_M * np.minimum(height, rack.frame_units)
    length_m = rack.lead_m + up_m + (racks - 1.0) * rack.between_racks_m
    layers = np.ceil(load.lines * rack.tray_chips * d / space.tray_width_m)
    section_m2 = load.chips * load.lines / 2.0 * (np.pi / 4.0 * d * d)
    return {
        "rack_cables": section_m2 / (space.fill * space.area_m2),
        "rack_cable_reach": length_m / cable.reach_m,
        "rack_bend_radius": (cable.bend_multiple + layers) * d / space.bend_depth_m,
    }


def limits(rack: Rack) -> dict[str, tuple[float, str]]:
    """What each bound is a share of: (SI value, dimension of `dse.units`). Those of cables are
    missing in a rack without."""
    cable, space = rack.cable, rack.space
    found = {
        "rack_power": (rack.feed_w, "W"),
        "rack_cooling": (worst_cooling(rack).capacity_w, "W"),
        "rack_weight": (rack.allowed_kg, "kg"),
        "rack_floor_load": (rack.floor_kg_per_m2, "kg/m2"),
        "rack_space": (rack.frame_units, "count"),
    }
    if cable is not None and space is not None:
        found["rack_cables"] = (space.fill * space.area_m2, "m2")
        found["rack_cable_reach"] = (cable.reach_m, "m")
        found["rack_bend_radius"] = (space.bend_depth_m, "m")
    return {name: found[name] for name in BOUNDS if name in found}


def rack_violations(table: RackTable, domain: Floats, chip: Codes) -> dict[str, Floats]:
    """used / limit - 1 of every bound, (n,), for candidates on chips `chip` (n,)."""
    use = rack_use(table.rack, domain, table.chip_w[chip], table.cables[chip])
    return {name: amount - 1.0 for name, amount in use.items()}


def with_chip(table: RackTable, k: int) -> Rack:
    """The rack of a study, full of its chip `k`."""
    power, cables = float(table.chip_w[k]), float(table.cables[k])
    return replace(table.rack, chip_w=power, cables_per_chip=cables)


@record
class Stop:
    """The largest domain in whole trays (0: none fits) and the bound that the next one breaks most
    (None: nothing stops it up to MOST_CHIPS), where the bounds `without` are lifted."""

    without: tuple[str, ...]
    largest: int
    bound: str | None


def stop(rack: Rack, without: Sequence[str] = ()) -> Stop:
    """Where the domain of a rack ends, with some bounds lifted. No bound of BOUNDS falls with
    the domain, so that the sizes that fit are the smallest."""
    sizes = np.arange(rack.tray_chips, MOST_CHIPS + 1, rack.tray_chips, dtype=np.float64)
    use = {name: u for name, u in rack_use(rack, sizes).items() if name not in without}
    worst = np.max(np.stack([np.zeros(len(sizes)), *use.values()]), axis=0)
    fits = int(np.count_nonzero(worst <= 1.0))
    largest = int(sizes[fits - 1]) if fits else 0
    if fits == len(sizes):
        return Stop(tuple(without), largest, None)
    return Stop(tuple(without), largest, max(use, key=lambda name: float(use[name][fits])))


def alone(rack: Rack) -> dict[str, Stop]:
    """For every bound, where the domain ends if no other bound existed."""
    return {name: stop(rack, tuple(other for other in BOUNDS if other != name)) for name in BOUNDS}


def relaxed(rack: Rack) -> dict[str, Stop]:
    """For every bound, where the domain ends if that bound were lifted and all others stayed."""
    return {name: stop(rack, (name,)) for name in BOUNDS}


def next_stops(rack: Rack, count: int = 3) -> list[Stop]:
    """The first stop, then those that follow as each is lifted in turn with all before it."""
    found = [stop(rack)]
    while len(found) < count and found[-1].bound is not None:
        found.append(stop(rack, (*found[-1].without, str(found[-1].bound))))
    return found
