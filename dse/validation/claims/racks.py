"""Claim 12: what ends a scale-up domain."""

from __future__ import annotations

from dse.perf.racks import RACK_RULES, alone, next_stops, relaxed, stop
from dse.specs.rack import load_rack, shipped_racks
from dse.validation.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table

RACK = "gb200_nvl72"
# The bounds that the claim names.
NAMED = (
    "rack_cables",
    "rack_cable_reach",
    "rack_bend_radius",
    "rack_power",
    "rack_cooling",
    "rack_weight",
)


def judge(stops: list[str | None], turned: float) -> str:
    """`stops`: the bound that ends the domain of each rack; `turned`: where bending alone would end
    the domain of RACK, over its domain."""
    named = [bound in NAMED for bound in stops]
    if not any(named):
        return CONTRADICTED
    return CONFIRMED if all(named) and turned <= 2.0 else QUALIFIED


def find() -> Finding:
    rows, stops = [], []
    for name, path in shipped_racks().items():
        rack = load_rack(path)
        first, *after = next_stops(rack, 3)
        stops.append(first.bound)
        rows.append(
            (
                f"{name}{' (hypothetical)' if rack.hypothetical else ''}", str(rack.domain),
                f"{first.largest:,}", _word(first.bound),
                *(f"{one.largest:,} ({_word(one.bound)})" for one in after),
                *("–",) * (2 - len(after)),
            )
        )  # fmt: skip
    rack = load_rack(shipped_racks()[RACK])
    by_itself, without = alone(rack), relaxed(rack)
    figures: dict[str, float | None] = {
        "largest_domain": float(stop(rack).largest),
        "racks": float(len(stops)),
        "stopped_by_a_named_bound": float(sum(bound in NAMED for bound in stops)),
    }
    figures |= {f"alone_{name}": float(one.largest) for name, one in by_itself.items()}
    turned = by_itself["rack_bend_radius"].largest / stop(rack).largest
    each = tuple(
        (_word(name), meaning, f"{by_itself[name].largest:,}", f"{without[name].largest:,}",
         _word(without[name].bound))
        for name, meaning in RACK_RULES.items()
    )  # fmt: skip
    first = stop(rack)
    return Finding(
        judge(stops, turned),
        f"the domain of {RACK} ends at {first.largest} chips, first by {_word(first.bound)}; "
        f"{int(figures['stopped_by_a_named_bound'] or 0)} of {len(stops)} racks end by a bound "
        "that the claim names, the others by the height of the rack or the floor; bend radius "
        "alone " + ("would not end it" if turned > 2.0 else "would end it too"),
        figures,
        "Racks as their files describe them, in whole trays, today's cables and chips; a second "
        "stage of switches is needed beyond what one joins.",
        (
            Table(
                "Where each rack's domain ends, and after the first bounds are lifted",
                ("rack", "as sold", "ends at", "by", "without that", "without both"),
                tuple(rows),
            ),
            Table(
                f"{RACK}: each bound alone, and all others without it",
                ("bound", "meaning", "alone ends at", "without it at", "by"),
                each,
            ),
        ),
        "Derived from figures that are specifications, claims or assumed (dse hardware rack NAME "
        "lists them): limits of the rack as sold were sized for its domain, so that several bounds "
        "meet there.",
        "What a maker could build with other cables, racks and rooms at other prices.",
    )


def _word(bound: str | None) -> str:
    return "nothing" if bound is None else bound.removeprefix("rack_").replace("_", " ")


CLAIMS = (
    Claim(
        12,
        "The size of a scale-up domain is bounded by the physics of the rack: cables, bend radius, "
        "power, cooling, weight.",
        ("dse claims 12", "dse hardware rack gb200_nvl72"),
        "Contradicted where no rack's domain ends by a bound that is named; confirmed where every "
        f"one does, and the bend radius alone would end that of {RACK} within twice its size; else "
        "qualified.",
        find,
    ),
)
