"""Why no fleet keeps a plan, and what must give: each limit alone is let go as little as makes the
plan feasible; where no one of them is enough, all together, by the least sum of shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dse.economics.fleet import DEMAND, GAP, OPTIMAL, limits_of, solve, with_offer
from dse.economics.fleet_cost import Option
from dse.questions.fleet.changes import QUICK, Progress
from dse.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class Gives:
    """One set of limits that makes the plan feasible when each gives to the value `needed`."""

    limits: tuple[str, ...]
    given: tuple[float, ...]
    needed: tuple[float, ...]
    alone: bool
    proven: bool


def must_give(plan: Plan, options: Sequence[Option], progress: Progress) -> list[Gives]:
    """Limits that are enough alone, least share first; else all of them together. Empty where not
    even that is enough: then nothing arrives in time (`waits_for`)."""
    names = list(limits_of(plan))
    found: list[tuple[float, Gives]] = []
    for name in names:
        progress(f"without the limit: {name}")
        again = solve(plan, options, relax=[name], nodes=QUICK, gap=GAP)
        share = again.relaxed.get(name, 0.0)
        nothing_left = name.startswith(DEMAND) and share > 1.0 - 1e-6
        if again.mix is not None and not nothing_left:
            row = _gives(plan, {name: share}, alone=True, proven=again.status == OPTIMAL)
            found.append((share, row))
    if found:
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]
    again = solve(plan, options, relax=names, nodes=QUICK, gap=GAP)
    if again.mix is None or not again.relaxed:
        return []
    return [_gives(plan, again.relaxed, alone=False, proven=again.status == OPTIMAL)]


def _gives(plan: Plan, relaxed: Mapping[str, float], *, alone: bool, proven: bool) -> Gives:
    given = {name: limits_of(plan)[name] for name in relaxed}
    needed = tuple(
        value * (1.0 - relaxed[name])
        if name.startswith(DEMAND)
        else value + max(value, 1.0) * relaxed[name]
        for name, value in given.items()
    )
    return Gives(tuple(relaxed), tuple(given.values()), needed, alone, proven)


def waits_for(plan: Plan, options: Sequence[Option]) -> list[str]:
    """Offers whose lead time alone makes the plan infeasible: with no wait it would hold."""
    found = []
    for offer in plan.unbroken:
        if offer.lead_quarters:
            prompt = replace(offer, lead_quarters=0)
            again = solve(with_offer(plan, prompt), options, nodes=QUICK)
            if again.mix is not None and math.isfinite(again.usd):
                found.append(offer.label)
    return found
