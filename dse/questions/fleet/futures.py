"""Futures of a plan: demand, throughput, prices and delivery drawn together, seeded.

demand      a walk: each quarter adds an error to that of the one before; classes move together
throughput  the model's 80% intervals of throughput, by how kernel laws are known and whether
            the launch is stock or tuned; shared by chip, kin and configuration as in
            `dse.study.regret`. Separate pools run as the slower chip's
prices      `dse.economics.prices` by chip; a price of the plan's own is known
delivery    what has a lead time comes a quarter late, all of it or nothing
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dse.catalog import Catalog
from dse.economics.fleet import LEAST, divisible, solve
from dse.economics.fleet_cost import Mix, Option
from dse.economics.prices import ASSUMED, price_spreads
from dse.economics.scenarios import Counter, Futures, error_of, hedged
from dse.physics.intervals import Spread, eldest, kin_of, normals, spread_of, widened
from dse.quality.own_runs import P90
from dse.questions.fleet.answer import Progress, Solution, answered
from dse.questions.fleet.options import options_of
from dse.schema.backend import STOCK
from dse.schema.calibration import KINDS
from dse.schema.plan import BUY, Offer, Plan
from dse.space.candidates import Floats

SEEN = 80  # futures that the order is chosen in
COUNTED = 2000  # others that count what it serves
PLAIN = 250  # the same where no service level is asked


def for_level(plan: Plan, catalog: Catalog, seed: int, progress: Progress) -> Solution:
    """The plan at its service level: what is ordered in the first quarter is chosen over futures,
    what follows is that of the prediction."""
    assert plan.service_level is not None
    known = options_of(plan, catalog, progress)
    options = known[0]
    if any(all(o.klass != one.name for o in options) for one in plan.demand):
        return answered(plan, catalog, progress, known)
    start = solve(plan, options, split=divisible(plan, options))
    if start.mix is None:
        return answered(plan, catalog, progress, known)
    seen = futures_of(plan, options, catalog, SEEN, (seed, 0))
    counter = Counter(plan, options, futures_of(plan, options, catalog, COUNTED, (seed, 1)))
    first = first_orders(start.mix)
    found = hedged(plan, options, seen, counter, plan.service_level, first, progress)
    signed = answered(replace(plan, signed=found.order), catalog, progress, known)
    return replace(signed, hedged=found)


def with_served(found: Solution, catalog: Catalog, seed: int, progress: Progress) -> Solution:
    """The solution with the share of futures that its first orders serve."""
    if found.counted is None or found.solved.mix is None:
        return found
    progress("futures")
    plan, options = found.plan, found.options
    futures = futures_of(plan, options, catalog, PLAIN, (seed, 1))
    served = Counter(plan, options, futures).share(first_orders(found.solved.mix))
    return replace(found, served=served)


def futures_of(
    plan: Plan, options: Sequence[Option], catalog: Catalog, count: int, seed: tuple[int, ...]
) -> Futures:
    """`count` futures; those of a chip do not depend on the chips behind it in the plan."""
    children = np.random.SeedSequence(seed).spawn(len(plan.chips) + 1)
    rng = np.random.default_rng(children[0])
    steps = rng.standard_normal((count, plan.quarters))
    late = rng.uniform(size=count) < plan.uncertainty.late
    demand = np.exp(math.log1p(plan.uncertainty.demand) / P90 * np.cumsum(steps, axis=1))
    chips = [chip.chip for chip in plan.chips]
    keys = [list(dict.fromkeys(error_of(o) for o in options if c in o.chips)) for c in chips]
    kin = eldest([kin_of(catalog, catalog.chip(chip)) for chip in chips])
    itself = np.arange(len(chips), dtype=np.intp)
    shared, prices, own = normals(children[1:], count, [len(k) for k in keys], itself, kin)
    part = catalog.calibration.shared
    measured = plan.uncertainty.measured

    def rate(option: Option) -> Floats:
        ends = _ends(plan, option, catalog)
        slowest = np.full(count, -np.inf)
        for i, chip in enumerate(chips):
            if chip in option.chips:
                mine = own[i][:, keys[i].index(error_of(option))]
                error = math.sqrt(part) * shared[:, i] + math.sqrt(1.0 - part) * mine
                slowest = np.maximum(slowest, 0.0 if chip in measured else error / P90)
        low, high = ends
        return np.exp(np.where(slowest > 0.0, slowest * low, -slowest * high))

    return Futures(
        demand=np.repeat(demand[:, None, :], len(plan.demand), axis=1),
        rate=np.stack([rate(option) for option in options], axis=1),
        price=np.stack(
            [
                np.exp(_price_sd(plan, offer, catalog) * prices[:, chips.index(offer.chip)])
                for offer in plan.offers
            ],
            axis=1,
        )
        if plan.offers
        else np.ones((count, 0)),
        late=late,
    )


def _ends(plan: Plan, option: Option, catalog: Catalog) -> tuple[float, float]:
    """Logarithms of the ends of the 80% interval of an option's throughput."""
    klass = next(one for one in plan.demand if one.name == option.klass)
    spread: Spread = spread_of(catalog.calibration)
    if klass.details.get("tuning") == STOCK:
        spread = widened(spread, catalog.calibration.stock_wider)
    said = str(option.detail.get("kind", KINDS[0])).split(", ")
    worst = max(KINDS.index(kind) for kind in said)
    low, high = spread["throughput"][worst]
    return math.log(low), math.log(high)


def _price_sd(plan: Plan, offer: Offer, catalog: Catalog) -> float:
    """Of the logarithm of the price of an offer."""
    given = plan.uncertainty.prices
    if given is not None:
        return math.log1p(given) / P90
    if offer.way == BUY:
        return math.log1p(ASSUMED) / P90
    if not offer.basis:
        return 0.0
    return price_spreads(catalog.prices, offer.basis, [offer.chip])[0].sd


def first_orders(mix: Mix) -> dict[str, int]:
    """Servers that are ordered in the first quarter, by offer; split ones as whole ones."""
    first = {label: servers for (label, q), servers in mix.orders.items() if q == 0}
    return {label: math.ceil(servers - LEAST) for label, servers in first.items()}
