"""A hypothetical scale-up domain in words: what it rests on, and where its rack ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError
from dse.physics.racks import (
    Stop,
    alone,
    limits,
    next_stops,
    rack_use,
    racks_needed,
    relaxed,
    stages,
    stop,
    with_chip,
)
from dse.rules.registry import MEANINGS
from dse.schema.rack import Rack, refusal, shipped_racks
from dse.schema.system import System

if TYPE_CHECKING:
    from dse.catalog import Catalog
    from dse.physics.machines import Machines


def check_domain(catalog: Catalog, chip: str) -> None:
    """Raises InputError for a chip whose scale-up domain cannot be varied."""
    reason = refusal(chip, catalog.systems[catalog.chip(chip).system])
    if reason is not None:
        accepted = "a chip behind switches, such as h200_sxm or gb200_nvl72"
        raise InputError(reason, field="--domain", accepted=accepted)


def domain_assumptions(
    system: System, domain: float, rack: Rack | None, group: float = 1.0
) -> list[str]:
    """What a domain of `domain` chips rests on, a sentence each; `group` chips share a layer."""
    inner = system.levels[0]
    size = "any number" if inner.size is None else f"{inner.size}"
    sentences = [
        f"a scale-up domain of {domain:g} chips is hypothetical: {system.id} has {size}, and the "
        f"latency and bandwidth of its {inner.name} are taken to stay"
    ]
    if group > domain and group % domain > 0.0:
        sentences.append(
            f"{domain:g} does not divide the {group:g} chips that share a layer: the last domain "
            "is counted as full"
        )
    if rack is None:
        return [*sentences, "no rack was named: that such a domain can be built is not checked"]
    label = "hypothetical rack" if rack.hypothetical else "rack"
    count = len(rack.assumed)
    return [
        *sentences,
        f"the domain stands in the {label} {rack.id}, {count} of whose {len(rack.figures)} figures "
        f"are assumed (dse catalog racks list {rack.id})",
    ]


def study_rack(machines: Machines) -> dict[str, Any]:
    """What a study says of its rack: `named` finds it again; `chips` says of every chip where its
    domain ends, what stops it there, and after that; `sentences` say the same."""
    table = machines.rack
    assert table is not None
    rack = table.rack
    shipped = shipped_racks().get(rack.id)
    chips = [
        {"chip": chip, "stops": [stop_row(stop) for stop in next_stops(with_chip(table, k))]}
        for k, chip in enumerate(machines.ids)
    ]
    return {
        "id": rack.id,
        "name": rack.name,
        "named": rack.id if Path(rack.file) == shipped else rack.file,
        "hypothetical": rack.hypothetical,
        "chips": chips,
        "sentences": [
            f"The scale-up domain is hypothetical and stands in the "
            f"{'hypothetical ' if rack.hypothetical else ''}rack {rack.id}: {rack.name}.",
            *(f"On {row['chip']} {stops_sentence(row['stops'])}" for row in chips),
        ],
    }


def stop_row(stop: Stop) -> dict[str, Any]:
    """A stop as JSON; `bound` is null where nothing stops it."""
    meaning = MEANINGS.get(stop.bound or "")
    return {
        "largest": stop.largest,
        "bound": stop.bound,
        "meaning": meaning,
        "without": list(stop.without),
    }


def stops_sentence(stops: Sequence[dict[str, Any]]) -> str:
    """`it ends at 104 chips, stopped by rack_cable_reach; without that at 256 (rack_space).`"""
    first, *others = stops
    words = f"it ends at {first['largest']:,} chips, stopped by {first['bound']}"
    if first["bound"] is None:
        words = f"nothing stops it up to {first['largest']:,} chips"
    for k, row in enumerate(others):
        lifted = "that" if k == 0 else "both" if k == 1 else "all of these"
        bound = row["bound"] or "the largest that is looked at"
        words += f"; without {lifted} at {row['largest']:,} ({bound})"
    return f"{words}."


def rack_row(rack: Rack, end: Stop) -> dict[str, Any]:
    """What a rack is, and where its domain ends."""
    return {
        "id": rack.id,
        "name": rack.name,
        "hypothetical": rack.hypothetical,
        "chip": rack.chip,
        "domain": rack.domain,
        "racks_per_domain": rack.racks,
        "chips_per_tray": rack.tray_chips,
        "cable": rack.cable.kind if rack.cable else None,
        "largest": end.largest,
        "bound": end.bound,
    }


def rack_answer(rack: Rack, sizes: Sequence[int]) -> dict[str, Any]:
    """Everything that is said of a rack: the bounds at domains of `sizes`, where the domain ends,
    with each bound lifted, by each bound alone, with one stage of switches for any number, within
    one rack, and with its other cables. Claim 12 is this of `gb200_nvl72`.

    `next_breaks` holds use / limit of what one more tray breaks, worst first; `alone` the largest
    domain that each bound would allow (null: no end up to `dse.physics.racks.MOST_CHIPS`).
    """
    domain = np.array(sizes, dtype=np.float64)
    use, racks, stage = rack_use(rack, domain), racks_needed(rack, domain), stages(rack, domain)
    found, first = limits(rack), stop(rack)
    flat = replace(rack, stage_chips=math.inf)
    after = rack_use(rack, np.array([float(first.largest + rack.tray_chips)]))
    return {
        **rack_row(rack, first),
        "next_breaks": {
            name: float(u[0])
            for name, u in sorted(after.items(), key=lambda item: -float(item[1][0]))
            if u[0] > 1.0
        },
        "stops": [stop_row(one) for one in next_stops(rack)],
        "relaxed": {name: stop_row(one) for name, one in relaxed(rack).items()},
        "alone": _largest(alone(rack)),
        "chips_per_stage": None if math.isinf(rack.stage_chips) else rack.stage_chips,
        "one_stage": {**stop_row(stop(flat)), "alone": _largest(alone(flat))},
        "one_rack": stop_row(stop(rack.with_racks(1))),
        "other_cables": [
            {"cable": cable.kind, "stops": [stop_row(one) for one in next_stops(changed)]}
            for cable in rack.cables[1:]
            for changed in (rack.with_cable(cable.kind),)
        ],
        "limits": {name: {"value": v, "unit": unit} for name, (v, unit) in found.items()},
        "sizes": [
            {
                "chips": size,
                "racks": int(racks[k]),
                "stages": int(stage[k]),
                "use": {name: float(u[k]) if name in found else None for name, u in use.items()},
                "bound": worst if use[worst][k] > 1.0 else None,
            }
            for k, size in enumerate(sizes)
            for worst in (max(use, key=lambda name, k=k: float(use[name][k])),)
        ],
        "assumed": list(rack.assumed),
        "notes": list(rack.notes),
    }


def _largest(stops: dict[str, Stop]) -> dict[str, int | None]:
    """The largest domain by bound; None where the bound does not end it."""
    return {name: None if one.bound is None else one.largest for name, one in stops.items()}
