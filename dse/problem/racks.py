"""A hypothetical scale-up domain: what it rests on, what bounds it, and where its rack ends it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError
from dse.physics.racks import BOUNDS, largest_domain, rack_use
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
        f"are assumed (dse catalog racks show {rack.id})",
    ]


def study_rack(machines: Machines) -> dict[str, Any]:
    """What a study says of its rack: `named` finds it again; `chips` says of every chip where its
    domain ends and what stops it there; `sentences` say the same."""
    rack = machines.racks[0]
    rows = [rack_row(one) for one in machines.racks]
    chips = [
        {
            "chip": chip,
            "largest": row["largest"],
            "bound": row["bound"],
            "meaning": MEANINGS.get(row["bound"] or ""),
        }
        for chip, row in zip(machines.ids, rows, strict=True)
    ]
    return {
        "id": rack.id,
        "name": rack.name,
        "named": rack.id if Path(rack.file) == shipped_racks().get(rack.id) else rack.file,
        "hypothetical": rack.hypothetical,
        "chips": chips,
        "sentences": [
            f"The scale-up domain is hypothetical and stands in the "
            f"{'hypothetical ' if rack.hypothetical else ''}rack {rack.id}: {rack.name}.",
            *(f"On {row['chip']} {end_words(row)}." for row in chips),
        ],
    }


def end_words(row: Mapping[str, Any]) -> str:
    """`it ends at 104 chips, stopped by rack_cable_reach`, of what `rack_row` gives."""
    if row["bound"] is None:
        return f"nothing stops it up to {row['largest']:,} chips"
    return f"it ends at {row['largest']:,} chips, stopped by {row['bound']}"


def rack_row(rack: Rack) -> dict[str, Any]:
    """What a rack is, and where its domain ends."""
    largest, bound = largest_domain(rack)
    return {
        "id": rack.id,
        "name": rack.name,
        "hypothetical": rack.hypothetical,
        "chip": rack.chip,
        "domain": rack.domain,
        "racks_per_domain": rack.racks,
        "chips_per_tray": rack.tray_chips,
        "cable": rack.cables.kind if rack.cables else None,
        "largest": largest,
        "bound": bound,
    }


def bound_columns(rack: Rack) -> dict[str, list[Any]]:
    """What bounds the domain of a rack, a row for each of BOUNDS, by keys of the vocabulary.

    `rack_use` is used / limit of the product's domain, `next_breaks` that of the largest domain
    and one tray (NaN where that breaks nothing). `bound_chips` is the largest domain if no other
    bound existed, `one_stage_chips` if also one stage of switches joined any number (NaN: no
    end up to `dse.physics.racks.MOST_CHIPS`).
    """
    after = largest_domain(rack)[0] + rack.tray_chips
    use = rack_use(rack, np.array([float(rack.domain), float(after)]))

    def alone(within: Rack) -> list[float]:
        ends = (largest_domain(within, (name,)) for name in BOUNDS)
        return [math.nan if broken is None else largest for largest, broken in ends]

    return {
        "rack_bound": list(BOUNDS),
        "bound_meaning": [MEANINGS[name] for name in BOUNDS],
        "rack_use": [float(use[name][0]) for name in BOUNDS],
        "next_breaks": [float(u) if u > 1.0 else math.nan for u in (use[n][1] for n in BOUNDS)],
        "bound_chips": alone(rack),
        "one_stage_chips": alone(replace(rack, stage_chips=math.inf)),
    }
