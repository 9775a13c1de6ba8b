"""A plan solved: the mix, its cost counted a second time, and what would change it.

Why no fleet keeps a plan, and what must give: each limit alone is let go as little as makes the
plan feasible; where no one of them is enough, all together, by the least sum of shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dse.catalog import Catalog
from dse.economics.fleet import (
    DEMAND,
    GAP,
    OPTIMAL,
    Solved,
    divisible,
    limits_of,
    settled,
    solve,
    with_offer,
)
from dse.economics.fleet_cost import Counted, Mix, Option, count
from dse.economics.prices import evidence_rows, unsold
from dse.economics.scenarios import Hedged
from dse.economics.tco import Breakdown, owned
from dse.errors import DseError
from dse.problem.words import Untried
from dse.questions.fleet.changes import (
    LATE,
    QUICK,
    Entry,
    Loosened,
    Progress,
    entries,
    lack,
    loosened,
)
from dse.questions.fleet.options import Known, Refusal, options_of
from dse.schema.plan import BUY, QUARTER_HOURS, FleetChip, Plan

NOTHING_KEEPS = "nothing keeps the plan"
AGREES = 1e-6  # relative: the program's cost and the cost that is counted from its mix


@dataclass(frozen=True, slots=True)
class OneChip:
    """The plan on one of its chips alone. `counted` is None where that chip cannot keep it, for
    `reason`; `used` are the options of its mix, with how many instances of each."""

    chip: str
    counted: Counted | None
    used: tuple[tuple[Option, float], ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Instead:
    """The cheapest order that buys nothing, beside one that buys: what buying is compared with.
    `mix` and `counted` are None where there is none, for `reason`."""

    mix: Mix | None
    counted: Counted | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stock:
    """What is owned already: `worth_usd` a chip is what the plan costs more without it, the price
    above which it is better sold now; None where there is no answer without, for `reason`."""

    chip: FleetChip
    worth_usd: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """`counted` is None where nothing keeps the plan: `gives` then says what must give, `waits`
    whose lead time is too long, `unserved` the classes that no chip serves. Of a plan of one
    quarter and one class, `alone` is each chip by itself, the cheapest first, and `by_means` the
    chips that would be ordered for requests of mean lengths at the mean rate. `unsold` are
    those that are not on general sale, with what their files say; `untried` what the plan did not
    choose from and would pay; `priced` what the prices of its offers rest on
    (`dse.economics.prices`). `instead` is None where nothing is bought; `stock` what is owned is
    worth to the plan. `names` are the makers' names of the chips, `spread` the 80% interval of
    measured over predicted throughput by its kind; `known` is what was evaluated, for who asks for
    more. With a service level, `hedged` is the order of the first quarter, and what would change it
    is not searched (`loosened` to `stock`); without, `served` is the share of futures that the
    order serves, None where not counted. `base` is what changes are set against: with split
    instances in a large fleet."""

    plan: Plan
    options: tuple[Option, ...]
    refused: tuple[Refusal, ...]
    solved: Solved
    counted: Counted | None
    loosened: tuple[Loosened, ...] = ()
    entries: tuple[Entry, ...] = ()
    gives: tuple[Gives, ...] = ()
    waits: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    alone: tuple[OneChip, ...] = ()
    by_means: int | None = None
    unsold: Mapping[str, str] = field(default_factory=dict)
    untried: tuple[Untried, ...] = ()
    priced: tuple[Mapping[str, Any], ...] = ()
    instead: Instead | None = None
    stock: tuple[Stock, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    known: Known = field(default_factory=dict, repr=False)
    hedged: Hedged | None = None
    served: float | None = None
    base: Solved | None = field(default=None, repr=False)


def answered(
    plan: Plan,
    catalog: Catalog,
    progress: Progress = lambda _: None,
    given: tuple[Sequence[Option], Sequence[Refusal]] | None = None,
) -> Solution:
    """Solves a plan, whose options and what is refused may be `given`. Raises DseError where the
    cost or the limits of the mix, counted apart from the program, are not what the program says: a
    fault of this software."""
    known: Known = {}
    options, refused = given or options_of(plan, catalog, progress, known)
    found = replace(answer_of(plan, options, refused, progress), known=known)
    priced = [(offer.chip, offer.basis) for offer in plan.offers if offer.basis]
    found = replace(
        found,
        unsold=unsold(catalog, [chip.chip for chip in plan.chips]),
        priced=tuple(evidence_rows(catalog, priced, plan.costs)),
        names={one.chip: _name(catalog, one.chip) for one in plan.chips},
        spread=catalog.calibration.spread.get("throughput", {}),
    )
    if found.counted is None or not found.alone or not plan.demand[0].traffic.source:
        return found
    return replace(found, by_means=_by_means(plan, catalog, found.counted))


def answer_of(
    plan: Plan,
    options: Sequence[Option],
    refused: Sequence[Refusal] = (),
    progress: Progress = lambda _: None,
) -> Solution:
    """The same of given options."""
    kept = tuple(options), tuple(refused)
    unserved = tuple(
        one.name for one in plan.demand if not any(row.klass == one.name for row in options)
    )
    if unserved:
        nothing = Solved(None, 0.0, 0.0, 0.0, "infeasible", 0.0)
        return Solution(plan, *kept, nothing, None, unserved=unserved)
    progress(f"{len(options)} options over {plan.quarters} quarters")
    solved = solve(plan, options)
    if solved.mix is None and plan.signed is not None:
        return Solution(plan, *kept, solved, None)
    if solved.mix is None:
        gives = tuple(must_give(plan, options, progress)) if solved.status == "infeasible" else ()
        waits = tuple(waits_for(plan, options)) if solved.status == "infeasible" else ()
        return Solution(plan, *kept, solved, None, gives=gives, waits=waits)
    solved = replace(solved, mix=settled(plan, options, solved.mix))
    assert solved.mix is not None
    counted = count(plan, options, solved.mix)
    if counted.broken or abs(counted.usd - solved.usd) > AGREES * max(solved.usd, 1.0):
        raise DseError(
            f"the program's answer does not stand: {counted.usd:.9g} USD counted against "
            f"{solved.usd:.9g}; {'; '.join(counted.broken)}"
        )
    if plan.signed is not None:
        return Solution(plan, *kept, solved, counted)
    split = divisible(plan, options)
    base = solve(plan, options, split=split) if split else solved
    return Solution(
        plan,
        *kept,
        solved,
        counted,
        tuple(loosened(plan, options, base, progress)),
        tuple(entries(plan, options, solved, base, progress)),
        base=base,
        alone=tuple(_alone(plan, options)) if single(plan) else (),
        instead=_instead(plan, options, solved.mix),
        stock=tuple(
            _stock(plan, options, base, chip, progress) for chip in plan.chips if chip.stock
        ),
    )


def _stock(
    plan: Plan, options: Sequence[Option], base: Solved, chip: FleetChip, progress: Progress
) -> Stock:
    progress(f"without the {chip.chip} that are owned")
    split = divisible(plan, options)
    less = tuple(replace(one, stock=0) if one is chip else one for one in plan.chips)
    again = solve(replace(plan, chips=less), options, nodes=QUICK, split=split)
    reason = lack(again, NOTHING_KEEPS) or lack(base, LATE)
    return Stock(chip, None if reason else max(again.usd - base.usd, 0.0) / chip.stock, reason)


def _instead(plan: Plan, options: Sequence[Option], mix: Mix) -> Instead | None:
    if all(plan.offer(label).way != BUY for label, _ in mix.orders):
        return None
    rents = tuple(
        replace(chip, offers=tuple(one for one in chip.offers if one.way != BUY))
        for chip in plan.chips
    )
    renting = replace(plan, chips=rents)
    solved = solve(renting, options, nodes=QUICK)
    reason = lack(solved, NOTHING_KEEPS)
    if reason or solved.mix is None:
        return Instead(None, None, reason)
    return Instead(solved.mix, count(plan, options, solved.mix))


def _name(catalog: Catalog, chip: str) -> str:
    """`NVIDIA H100 SXM5 80GB`."""
    spec = catalog.chip(chip)
    return f"{spec.vendor} {spec.label}"


def single(plan: Plan) -> bool:
    """Whether the plan asks for one class in one quarter, so that chips compare one by one."""
    return plan.quarters == 1 and len(plan.demand) == 1


def _alone(plan: Plan, options: Sequence[Option]) -> list[OneChip]:
    found = [_one_chip(plan, options, chip) for chip in plan.chips]
    return sorted(found, key=lambda one: math.inf if one.counted is None else one.counted.usd)


def _one_chip(plan: Plan, options: Sequence[Option], chip: FleetChip) -> OneChip:
    mine = [option for option in options if set(option.chips) == {chip.chip}]
    if not mine:
        return OneChip(chip.chip, None, (), "serves no class within its limits")
    only = replace(plan, chips=(chip,))
    solved = solve(only, mine)
    if solved.mix is None:
        return OneChip(chip.chip, None, (), "cannot keep the plan alone")
    mix = settled(only, mine, solved.mix)
    used = tuple((mine[k], number) for (k, _), number in mix.instances.items())
    return OneChip(chip.chip, count(only, mine, mix), used)


def _by_means(plan: Plan, catalog: Catalog, counted: Counted) -> int | None:
    """Chips of the cheapest fleet, on the chips that were chosen, for requests that all have the
    mean lengths and come at the mean rate, the median first token in time."""
    one = plan.demand[0]
    median = None if one.percentile is None else 50
    traffic = replace(one.traffic, streams=(one.traffic.mean,), peak=1.0)
    mean = replace(one, traffic=traffic, percentile=median)
    chosen = tuple(chip for chip in plan.chips if counted.quarters[0].chips_used.get(chip.chip))
    only = replace(plan, demand=(mean,), chips=chosen)
    options, _ = options_of(only, catalog)
    solved = solve(only, options) if options else None
    if solved is None or solved.mix is None:
        return None
    return round(sum(count(only, options, solved.mix).quarters[0].chips_used.values()))


def tokens(plan: Plan) -> float:
    """Prompt and output tokens of the mean demand over the horizon."""
    return sum(
        one.traffic.mean_per_s(q) * one.traffic.tokens * QUARTER_HOURS * 3600.0
        for one in plan.demand
        for q in range(plan.quarters)
    )


def split(found: Solution) -> bool:
    """Whether the prices and changes are those of instances that need not be whole."""
    return bool(divisible(found.plan, found.options))


def per_million(plan: Plan, counted: Counted) -> float:
    """Undiscounted dollars per million tokens, prompt and output, of the mean demand."""
    return sum(one.usd for one in counted.quarters) / tokens(plan) * 1e6


def owned_prices(plan: Plan) -> list[Breakdown]:
    """What an hour of each chip that is owned or may be bought costs, by its parts."""
    return [
        owned(chip.chip, chip.owning, plan.costs) for chip in plan.chips if chip.owning is not None
    ]


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
