"""Claim 12: what ends a scale-up domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.answer.numbers import percent
from dse.physics.racks import BOUNDS, Stop, alone, rack_use, relaxed, stages, stop
from dse.rules.registry import MEANINGS
from dse.schema.rack import Rack, load_rack, shipped_racks

RACK = "gb200_nvl72"
TIED = 0.02
SWITCHES = "switch_stage"
# The bounds that the claim names.
NAMED = (
    "rack_cables",
    "rack_cable_reach",
    "rack_bend_radius",
    "rack_power",
    "rack_cooling",
    "rack_weight",
)


def ends(rack: Rack) -> tuple[str, ...]:
    """What ends the domain of a rack: the bounds that the next tray breaks by within TIED of the
    most broken one, largest first, after SWITCHES where that tray needs one more stage."""
    largest = stop(rack).largest
    sizes = np.array([largest, largest + rack.tray_chips], dtype=np.float64)
    use = {name: float(used[1]) for name, used in rack_use(rack, sizes).items()}
    most = max(use.values())
    if most <= 1.0:
        return ()
    tied = sorted((n for n in use if use[n] > max(1.0, most / (1.0 + TIED))), key=lambda n: -use[n])
    before, after = stages(rack, np.maximum(sizes, 1.0))
    return (SWITCHES, *tied) if after > before else tuple(tied)


def judge(ended: Sequence[tuple[str, ...]], turned: float) -> str:
    """`ended`: `ends` of each rack; `turned`: where bending alone would end the domain of RACK,
    over its domain."""
    if not any(bound in NAMED for one in ended for bound in one):
        return CONTRADICTED
    return CONFIRMED if all(map(_by_named_alone, ended)) and turned <= 2.0 else QUALIFIED


def _by_named_alone(ended: tuple[str, ...]) -> bool:
    return bool(ended) and set(ended) <= set(NAMED)


def find() -> Finding:
    rows, ended = [], []
    for name, path in shipped_racks().items():
        rack = load_rack(path)
        first, by = stop(rack), ends(rack)
        ended.append(by)
        lifted = stop(rack, tuple(bound for bound in by if bound != SWITCHES))
        flat = stop(replace(rack, stage_chips=math.inf))
        rows.append(
            (
                f"{name}{' (hypothetical)' if rack.hypothetical else ''}", str(rack.domain),
                f"{first.largest:,}", _words(by), _stop(lifted),
                _stop(flat) if SWITCHES in by else "–",
            )
        )  # fmt: skip
    rack = load_rack(shipped_racks()[RACK])
    by_itself, without, first = alone(rack), relaxed(rack), stop(rack)
    flat = replace(rack, stage_chips=math.inf)
    alone_named = sum(map(_by_named_alone, ended))
    among = sum(any(bound in NAMED for bound in one) for one in ended) - alone_named
    figures: dict[str, float | None] = {
        "largest_domain": float(first.largest),
        "chips_of_one_stage": None if math.isinf(rack.stage_chips) else rack.stage_chips,
        "largest_domain_of_one_stage": float(stop(flat).largest),
        "racks": float(len(ended)),
        "stopped_by_named_bounds_alone": float(alone_named),
        "stopped_by_named_bounds_and_others": float(among),
    }
    figures |= {f"alone_{name}": float(one.largest) for name, one in by_itself.items()}
    turned = by_itself["rack_bend_radius"].largest / first.largest
    each = tuple(
        (_word(name), meaning, f"{by_itself[name].largest:,}", _stop(without[name]))
        for name, meaning in ((bound, MEANINGS[bound]) for bound in BOUNDS)
    )
    return Finding(
        judge(ended, turned),
        f"{_headline(rack)}; of {len(ended)} racks {alone_named} end by bounds that the claim "
        f"names alone, {among} by these together with switches, height or floor, "
        f"{len(ended) - alone_named - among} by others; bend radius alone "
        + ("would not end it" if turned > 2.0 else "would end it too"),
        figures,
        "Racks as their files describe them, in whole trays, today's cables and chips. Bounds that "
        f"the next tray breaks by within {TIED:.0%} of the most broken one are named together.",
        (
            Table(
                "Where each rack's domain ends; one stage: if one stage of switches joined any "
                "number",
                ("rack", "as sold", "ends at", "by", "these lifted", "one stage"),
                tuple(rows),
            ),
            Table(
                f"{RACK}: each bound alone, and all others without it",
                ("bound", "meaning", "alone ends at", "without it at"),
                each,
            ),
        ),
        "Derived from figures that are specifications, claims or assumed (dse hardware rack NAME "
        "--figures lists them): limits of the rack as sold were sized for its domain, so that "
        "several bounds meet there, and which of them comes first is within what assumed figures "
        f"leave open. {len(rack.assumed)} of {len(rack.figures)} figures of {RACK} are assumed: "
        + ", ".join(text.partition(":")[0] for text in rack.assumed)
        + ".",
        "What a maker could build with other cables, racks and rooms at other prices.",
    )


def _headline(rack: Rack) -> str:
    """Where the domain ends and by what; the switches first."""
    first, by = stop(rack), ends(rack)
    after = np.array([first.largest + rack.tray_chips], dtype=np.float64)
    use = [float(used[0]) for name, used in rack_use(rack, after).items() if name in by]
    spread = "–".join(dict.fromkeys(percent(value) for value in (min(use), max(use))))
    broken = f"{_words(tuple(b for b in by if b != SWITCHES))} ({spread} of their limits)"
    if SWITCHES not in by:
        return f"the domain of {rack.id} ends at {first.largest} chips, by {broken}"
    flat = stop(replace(rack, stage_chips=math.inf))
    return (
        f"{first.largest} chips of {rack.id} are one stage of switches: {rack.tray_chips} more "
        f"need a second stage and break {broken} at once; if one stage joined any number the "
        f"domain would end at {_stop(flat)}"
    )


def _stop(one: Stop) -> str:
    return f"{one.largest:,} ({_word(one.bound)})"


def _words(bounds: tuple[str, ...]) -> str:
    return ", ".join(map(_word, bounds)) or "nothing"


def _word(bound: str | None) -> str:
    return "nothing" if bound is None else bound.removeprefix("rack_").replace("_", " ")


CLAIMS = (
    Claim(
        12,
        "The size of a scale-up domain is bounded by the physics of the rack: cables, bend radius, "
        "power, cooling, weight.",
        ("dse claims 12", "dse hardware rack gb200_nvl72"),
        "Contradicted where no rack's domain ends by a bound that is named, ties counted; "
        "confirmed where every one ends by named bounds alone, no stage of switches or other "
        f"bound among the ties, and the bend radius alone would end that of {RACK} within twice "
        "its size; else qualified.",
        find,
    ),
)
