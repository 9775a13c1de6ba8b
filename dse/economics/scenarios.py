"""Orders that suffice in a given share of futures, by scenarios in the program of a fleet.

What is ordered in the first quarter is ordered now; all else is decided in each future once it is
seen: later orders, what is on, what runs where. A future multiplies the peaks of each class and
quarter, the rate of each option and the price of each offer, and may bring what has a lead time a
quarter late. It is served if some later decision meets every peak within every limit of the plan.
With x the servers ordered now and y(f) the decisions of future f,

    least   mean over kept f of cost(x, y(f))     x whole, the same in every future
    so that x, y(f) keep the rows of `dse.economics.fleet` in every kept future f

Which futures are kept is found in turns. The margin of a future is the multiple of all its peaks
that an order serves; those of least margin are left out, the program is solved for the others, and
margins are taken again from its order until the same futures are left out. (For one chip their
order does not depend on x, and the first turn is exact.) A share kept in few futures is a lower one
of all: it is raised until a count of other, many more futures reaches the level.

Later decisions are split: instances, servers and racks that need not be whole. What whole instances
lose of the margin in the first quarter is counted in some futures (`Counter.loss`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.economics.fleet import DEMAND, INSTANCES, MANY, program_of, undominated
from dse.economics.fleet_cost import Floats, Option, serves
from dse.economics.prices import ASSUMED, price_spreads
from dse.economics.program import milp_of
from dse.physics.intervals import Spread, eldest, kin_of, normals, spread_of, widened
from dse.quality.own_runs import P90
from dse.schema.backend import KINDS, STOCK
from dse.schema.plan import BUY, FleetChip, Offer, Plan

Order = Mapping[str, int]  # servers that are ordered now, by offer

GAP, NODES = 5e-3, 2000
LOOSE, FEW = 2e-3, 20  # of the whole instances of one future
LARGER = 4.0  # than predicted: what a future may need
DOLLARS = ("usd_per_hour", "usd_per_quarter", "usd_total")


@dataclass(frozen=True, slots=True)
class Futures:
    """N futures, as factors: `demand` (N, classes, quarters) of peaks, `rate` (N, options) of
    requests per second, `price` (N, offers); `late` (N,) whether what has a lead time comes a
    quarter late."""

    demand: Floats
    rate: Floats
    price: Floats
    late: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.late)

    @staticmethod
    def predicted(plan: Plan, options: Sequence[Option]) -> Futures:
        """The one that is as predicted."""
        return Futures(
            demand=np.ones((1, len(plan.demand), plan.quarters)),
            rate=np.ones((1, len(options))),
            price=np.ones((1, len(plan.offers))),
            late=np.zeros(1, dtype=bool),
        )

    def take(self, rows: Any) -> Futures:
        return Futures(self.demand[rows], self.rate[rows], self.price[rows], self.late[rows])

    def options(self, places: Sequence[int]) -> Futures:
        """Of these options alone."""
        return replace(self, rate=self.rate[:, places])

    def first(self) -> Futures:
        """Their first quarter."""
        return replace(self, demand=self.demand[:, :, :1])

    def larger(self, times: float | Floats) -> Futures:
        """With all peaks so many times as high, (N,) or one number."""
        return replace(self, demand=self.demand * np.reshape(times, (-1, 1, 1)))


def futures_of(
    plan: Plan, options: Sequence[Option], catalog: Catalog, count: int, seed: tuple[int, ...]
) -> Futures:
    """`count` futures, seeded; those of a chip do not depend on the chips behind it in the plan.

    demand      a walk: each quarter adds an error to that of the one before; classes move together
    throughput  the model's 80% intervals of throughput, by how kernel laws are known and whether
                the launch is stock or tuned; shared by chip, kin and configuration as in
                `dse.study.choices`. Separate pools run as the slower chip's
    prices      `dse.economics.prices` by chip; a price of the plan's own is known
    delivery    what has a lead time comes a quarter late, all of it or nothing
    """
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
        low, high = _ends(plan, option, catalog)
        slowest = np.full(count, -np.inf)
        for i, chip in enumerate(chips):
            if chip in option.chips:
                mine = own[i][:, keys[i].index(error_of(option))]
                error = math.sqrt(part) * shared[:, i] + math.sqrt(1.0 - part) * mine
                slowest = np.maximum(slowest, 0.0 if chip in measured else error / P90)
        return np.exp(np.where(slowest > 0.0, slowest * low, -slowest * high))

    paid = [
        np.exp(_price_sd(plan, offer, catalog) * prices[:, chips.index(offer.chip)])
        for offer in plan.offers
    ]
    return Futures(
        demand=np.repeat(demand[:, None, :], len(plan.demand), axis=1),
        rate=np.stack([rate(option) for option in options], axis=1),
        price=np.stack(paid, axis=1) if paid else np.ones((count, 0)),
        late=late,
    )


def _ends(plan: Plan, option: Option, catalog: Catalog) -> tuple[float, float]:
    """Logarithms of the ends of the 80% interval of an option's throughput."""
    klass = next(one for one in plan.demand if one.name == option.klass)
    spread: Spread = spread_of(catalog.calibration)
    if klass.details.get("tuning") == STOCK:
        spread = widened(spread, catalog.calibration.stock_wider)
    worst = max(KINDS.index(kind) for kind in option.kind.split(", "))
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
    return price_spreads(catalog.prices, offer.basis, [offer.chip])[0]["sd"]


class Program:
    """The rows of a plan, to be repeated for futures."""

    def __init__(self, plan: Plan, options: Sequence[Option]) -> None:
        self.plan, self.options = plan, options
        self.on_time = _Rows(plan, options)
        waits = any(offer.lead_quarters for offer in plan.offers)
        self.late = _Rows(plan.with_offers(_later), options) if waits else self.on_time


class _Rows:
    """One future's rows as arrays: entries (row, column, value), with the option, class or offer
    whose factor each is multiplied by; -1 where there is none."""

    def __init__(self, plan: Plan, options: Sequence[Option]) -> None:
        made = program_of(plan, options)
        # The share of all peaks that is not served has the last column.
        made.add(("relax",), upper=1.0)
        for name, (row, limit) in made.rows.items():
            if name[0] == DEMAND:
                row[len(made.columns) - 1] = limit
        offers = {offer.label: k for k, offer in enumerate(plan.offers)}
        asked = product([one.name for one in plan.demand], range(plan.quarters))
        peaks = {one: k for k, one in enumerate(asked)}
        self.names, rows = list(made.columns), list(made.rows)
        self.cost, self.upper = np.array(made.cost), np.array(made.upper)
        self.offer = np.array([offers[n[1]] if n[0] == "order" else -1 for n in self.names])
        for k, name in enumerate(self.names):
            if name[0] == "order" and self.upper[k]:
                offer = plan.offer(name[1])
                most = np.floor(offer.chips_per_quarter / plan.chip(offer.chip).server)
                self.upper[k] = min(most, LARGER * self.upper[k] + LARGER)
        now = [name[0] in ("order", "used") and name[2] == 0 for name in self.names]
        self.now = np.flatnonzero(now)
        self.row, self.column, self.value, self.limit = made.entries()
        terms = [(rows[r], self.names[k]) for r, k in zip(self.row, self.column, strict=True)]
        used = np.array([column[0] == "used" for _, column in terms])
        self.value[used & (self.value < 0.0)] *= LARGER
        self.limit_of = np.array([peaks[row[1:]] if row[0] == DEMAND else -1 for row in rows])
        runs = ((r[0] == DEMAND and c[0] == INSTANCES, c) for r, c in terms)
        self.of_option = np.array([column[1] if it_is else -1 for it_is, column in runs])
        paid = ((r[0] in DOLLARS and c[0] == "order", c) for r, c in terms)
        self.of_offer = np.array([offers[column[1]] if it_is else -1 for it_is, column in paid])
        relaxed = self.column == len(self.names) - 1
        self.of_class = np.where(relaxed, self.limit_of[self.row], -1)


def _times(values: Floats, *by: tuple[NDArray[np.intp], Floats]) -> Floats:
    """(n, k) of values (k,), each times the factor (n, m) at its place; of -1 as it is."""
    found = np.tile(values, (len(by[0][1]), 1))
    for place, factors in by:
        at = np.flatnonzero(place >= 0)
        found[:, at] *= factors[:, place[at]]
    return found


class _Joined:
    """Futures side by side: the columns of the first quarter's orders once a group, all others once
    a future. `groups` (N,) have an order in common, all futures where not given."""

    def __init__(
        self, program: Program, futures: Futures, groups: NDArray[np.intp] | None = None
    ) -> None:
        groups = np.zeros(len(futures), dtype=np.intp) if groups is None else groups
        first, self.plan = program.on_time, program.plan
        n, width = len(futures), len(first.names)
        kinds = int(groups.max()) + 1
        own = np.setdiff1d(np.arange(width), first.now)
        column = np.empty((n, width), dtype=np.intp)
        column[:, own] = kinds * len(first.now) + np.arange(n * len(own)).reshape(n, len(own))
        column[:, first.now] = groups[:, None] * len(first.now) + np.arange(len(first.now))
        self.column, self.names = column, [first.names[k] for k in first.now]
        size = kinds * len(first.now) + n * len(own)
        rows, columns, values, limits, start = [], [], [], [], 0
        self.usd = np.zeros((n, width))
        upper = np.zeros(size)
        for late in (False, True):
            at = np.flatnonzero(futures.late == late)
            if not len(at):
                continue
            one, some = program.late if late else program.on_time, futures.take(at)
            height = len(one.limit)
            rows.append((start + np.arange(len(at))[:, None] * height + one.row).ravel())
            columns.append(column[at][:, one.column].ravel())
            peaks, paid = some.demand.reshape(len(at), -1), some.price
            of = (one.of_option, some.rate), (one.of_offer, paid), (one.of_class, peaks)
            values.append(_times(one.value, *of).ravel())
            limits.append(_times(one.limit, (one.limit_of, peaks)).ravel())
            start += len(at) * height
            self.usd[at] = _times(one.cost, (one.offer, paid))
            np.maximum.at(upper, column[at].ravel(), np.tile(one.upper, len(at)))
        entries = (np.concatenate(rows), np.concatenate(columns))
        self.factors = (np.concatenate(values), entries)
        self.limit, self.upper, self.lower = np.concatenate(limits), upper, np.zeros(size)
        self.cost = np.bincount(column.ravel(), self.usd.ravel(), minlength=size) / n
        self.relax, self.unserved = column[:, -1], np.zeros(size)
        self.unserved[self.relax] = 1.0
        self.shared = kinds * len(first.now)

    def fix(self, order: Order) -> None:
        """Orders that are known, of one group; a chip of more servers than spare ones is used."""
        plan = self.plan
        for k, name in enumerate(self.names):
            if name[0] == "order":
                self.lower[k] = self.upper[k] = order.get(name[1], 0)
            else:
                there = _there(plan.chip(name[1]), order)
                self.lower[k] = self.upper[k] = there > plan.spare_servers

    def solve(self, cost: Floats, whole: Literal["split", "order", "whole"]) -> Any:
        """HiGHS's answer, of whole servers in the orders that are shared, or of all whole."""
        integer = np.full(len(cost), int(whole == "whole"))
        integer[: self.shared] = whole != "split"
        integer[self.relax] = 0
        gap, nodes = (LOOSE, FEW) if whole == "whole" else (GAP, NODES)
        rows, between = (self.factors, self.limit), (self.lower, self.upper)
        return milp_of(cost, rows, between, integer, gap=gap, nodes=nodes)

    def each_usd(self, x: Floats) -> Floats:
        """(n,) what each future costs."""
        return (self.usd * x[self.column]).sum(axis=1)

    def order(self, x: Floats) -> dict[str, int]:
        found = {name[1]: round(x[k]) for k, name in enumerate(self.names) if name[0] == "order"}
        return {label: servers for label, servers in found.items() if servers}


def _there(chip: FleetChip, order: Order) -> int:
    """Servers of a chip in the first quarter."""
    rents = (order.get(offer.label, 0) for offer in chip.offers if serves(offer, 0, 0))
    return chip.stock // chip.server + sum(rents)


def _later(offer: Offer) -> Offer:
    """What has a lead time comes a quarter later."""
    return replace(offer, lead_quarters=offer.lead_quarters + (offer.lead_quarters > 0))


ROUNDS = 2  # of leaving futures out
BISECTIONS = 3
HALVINGS = 5
SPREAD = 0.06  # below the level, where the share that is kept is sought
MOST = 3.0  # of a margin
CHUNK = 250  # futures that are counted at once
TOGETHER = 25  # of one program of margins
SAMPLE = 8  # futures in which the loss of whole instances is counted
STEPS = 5  # of the rates that a measurement tells apart
EVEN = 1e-6  # of a margin


def margins(
    program: Program, futures: Futures, order: Order, whole: Literal["split", "whole"] = "split"
) -> Floats:
    """(N,) the multiple of all its peaks, MOST at most, that each future serves with an order."""
    found = np.empty(len(futures))
    for start in range(0, len(futures), TOGETHER):
        at = slice(start, min(start + TOGETHER, len(futures)))
        joined = _Joined(program, futures.take(at))
        joined.fix(order)
        joined.lower[joined.relax] = 1.0 - MOST
        solved = joined.solve(joined.unserved, whole)
        found[at] = 0.0 if solved.x is None else 1.0 - solved.x[joined.relax]
    return found


class Counter:
    """Counts the futures that an order serves, whole instances in the first quarter. A small fleet,
    of MANY chips at most, is counted future by future; of a large one the loss of whole instances
    is that of SAMPLE."""

    def __init__(self, plan: Plan, options: Sequence[Option], futures: Futures) -> None:
        self.kept, self.futures = kept_of(options), futures
        self.program = Program(plan, [options[k] for k in self.kept])
        self.first = Program(replace(plan, quarters=1), options)
        self.small = _chips(plan, options) <= MANY
        self.known: dict[tuple[tuple[str, int], ...], float] = {}
        self.losses: dict[tuple[tuple[str, int], ...], float] = {}

    def served(self, futures: Futures, order: Order, loss: float) -> NDArray[np.bool_]:
        """(N,) of a sample with whole instances in the first quarter."""
        margin = margins(self.program, futures.options(self.kept), order)
        served = margin >= 1.0 + loss - EVEN
        if self.small:
            for k in np.flatnonzero(served & (margin < self._surely(order))):
                served[k] = self._whole(futures.take([k]), order) >= 1.0 - EVEN
        return served

    def _surely(self, order: Order) -> float:
        """The margin at which whole instances serve, too: at most one of each class and chip more
        is needed than of split ones."""
        plan, least = self.first.plan, 0.0
        for chip in plan.chips:
            servers = _there(chip, order) - plan.spare_servers
            most = max((o.chips.get(chip.chip, 0) for o in self.first.options), default=0)
            if servers > 0 and most:
                least += servers * chip.server // most - len(plan.demand)
        lost = len(plan.demand)
        return 1.0 + lost / least if least > 0.0 else math.inf

    def share(self, order: Order, level: float | None = None) -> float:
        """Of all futures, or of as many as tell on which side of `level` it lies."""
        key = tuple(sorted(order.items()))
        if key not in self.known:
            loss, done = self.loss(order), np.empty(0, dtype=bool)
            for start in range(0, len(self.futures), CHUNK):
                part = self.futures.take(slice(start, start + CHUNK))
                done = np.append(done, self.served(part, order, loss))
                far = 3.0 * math.sqrt(0.25 / len(done))
                if level is not None and abs(done.mean() - level) > far:
                    return float(done.mean())
            self.known[key] = float(done.mean())
        return self.known[key]

    def loss(self, order: Order) -> float:
        """The share of the margin that whole instances lose in the first quarter."""
        key = tuple(sorted(order.items()))
        if not self.small and key not in self.losses:
            some = self.futures.take(slice(0, SAMPLE))
            split = margins(self.first, some.first(), order)
            whole = np.array([self._whole(some.take([k]), order) for k in range(len(some))])
            held = (whole > 0.0) & (split < MOST)
            lost = split[held] / whole[held] - 1.0
            self.losses[key] = float(np.median(lost)) if len(lost) else 0.0
        return self.losses.get(key, 0.0)

    def _whole(self, future: Futures, order: Order) -> float:
        """The margin of the first quarter of one future."""
        return float(margins(self.first, future.first(), order, "whole")[0])


def _chips(plan: Plan, options: Sequence[Option]) -> float:
    """That the first quarter takes at the best rate a chip."""
    return sum(
        one.peak_per_s(0)
        / max(o.requests_per_s / sum(o.chips.values()) for o in options if o.klass == one.name)
        for one in plan.demand
    )


@dataclass(frozen=True, slots=True)
class Hedged:
    """Servers to order now, and what they do. `share` of `counted` futures is served; `reached`
    says whether that is the level. `headroom` is how much more than the predicted peak of the first
    quarter they serve at predicted rates. Discounted dollars: `usd` the mean over futures, `low`
    and `high` the ends of its 80% interval; a future that is not served is counted at what it can
    be served. `waiting_usd` is what it would save in the mean to see the future before ordering and
    `measuring_usd` to know the rates alone, the same futures served."""

    order: Order
    share: float
    counted: int
    reached: bool
    headroom: float
    usd: float
    low: float
    high: float
    waiting_usd: float
    measuring_usd: float


def hedged(
    plan: Plan,
    options: Sequence[Option],
    seen: Futures,
    counter: Counter,
    level: float,
    start: Order,
    progress: Callable[[str], None] = lambda _: None,
) -> Hedged:
    """The order that serves `level` of the futures of `counter` at the least mean cost of those of
    `seen`; where none is found, the one that serves most. `start` is any order."""
    program, seen = counter.program, seen.options(counter.kept)
    progress("order that serves most")
    largest, found = _largest(program, seen), _Best(seen, counter, level)
    served = int((margins(program, seen, largest) >= 1.0 - EVEN).sum())
    found.add(largest)
    found.add(start)
    at, loss = math.ceil(level * len(seen)), counter.loss(start)
    least, most = at - math.ceil(SPREAD * len(seen)), max(served, at)
    for _ in range(BISECTIONS):
        progress(f"order that serves {at} of {len(seen)} futures")
        order = _order(program, seen, at, loss, start) or _order(program, seen, at, loss, largest)
        enough = order is None or found.add(order)
        start = order or start
        loss = counter.loss(start)
        least, most = (least, at - 1) if enough else (at + 1, most)
        at = (least + most) // 2
        if least > most:
            break
    progress("smaller orders")
    found.halve()
    order = found.order
    each, asked = each_usd(program, seen, order), _asked(program, seen, order)
    alike = _least_usd(program, asked, np.zeros(len(seen), dtype=np.intp))
    # Rates alone: futures of nearly the same first quarter at the predicted demand.
    rates = margins(program, replace(seen, demand=np.ones_like(seen.demand)), order)
    steps = np.argsort(np.argsort(rates, kind="stable"), kind="stable") * STEPS // len(seen)
    known = _least_usd(program, asked, steps)
    single = _least_usd(program, asked, np.arange(len(seen)))
    low, high = np.quantile(each, [0.1, 0.9])
    share = counter.share(order)
    predicted = Futures.predicted(plan, options).first()
    return Hedged(
        order=order,
        share=share,
        counted=len(counter.futures),
        reached=share >= level,
        headroom=float(margins(counter.first, predicted, order)[0]) - 1.0,
        usd=float(each.mean()),
        low=float(low),
        high=float(high),
        waiting_usd=max(alike - single, 0.0),
        measuring_usd=max(alike - known, 0.0),
    )


class _Best:
    """The cheapest order found that serves enough; until there is one, that which serves most."""

    def __init__(self, seen: Futures, counter: Counter, level: float) -> None:
        self.seen, self.counter, self.level = seen, counter, level
        self.order: Order = {}
        self.share, self.usd = -1.0, math.inf
        self.short: Order = {}  # of those that do not serve enough, that which serves most
        self.most = 0.0

    def add(self, order: Order) -> bool:
        """Whether an order serves enough."""
        usd = float(each_usd(self.counter.program, self.seen, order).mean())
        share, reached = self.counter.share(order, self.level), self.share >= self.level
        enough = share >= self.level
        if (enough and (usd < self.usd or not reached)) or (not reached and share > self.share):
            self.order, self.share, self.usd = order, share, usd
        if not enough and share > self.most:
            self.short, self.most = order, share
        return enough

    def halve(self) -> None:
        """Tries what lies between the best and what nearly serves enough."""
        enough, short = self.order, self.short
        for _ in range(HALVINGS if self.share >= self.level else 0):
            middle = {
                label: math.ceil((enough.get(label, 0) + short.get(label, 0)) / 2)
                for label in {**enough, **short}
            }
            middle = {label: servers for label, servers in middle.items() if servers}
            if middle == enough:
                return
            if self.add(middle):
                enough = middle
            else:
                short = middle


def each_usd(program: Program, futures: Futures, order: Order) -> Floats:
    """(N,) discounted dollars of each future with an order, later decisions split; one that is not
    served is asked for what it can be served."""
    joined = _Joined(program, _asked(program, futures, order))
    joined.upper[joined.relax] = 0.0
    joined.fix(order)
    solved = joined.solve(joined.cost, "split")
    return np.full(len(futures), np.inf) if solved.x is None else joined.each_usd(solved.x)


def _asked(program: Program, futures: Futures, order: Order) -> Futures:
    margin = margins(program, futures, order)
    return futures.larger(np.minimum(margin, 1.0) * (1.0 - EVEN))


def _largest(program: Program, seen: Futures) -> Order:
    """The order that leaves least of all peaks unserved, in the mean of futures."""
    joined = _Joined(program, seen)
    solved = joined.solve(joined.unserved, "order")
    return {} if solved.x is None else joined.order(solved.x)


def _order(program: Program, seen: Futures, count: int, loss: float, start: Order) -> Order | None:
    """The order of least mean cost of the `count` futures that are kept; None where none keeps
    them."""
    order, before = start, None
    needed = seen.larger(1.0 + loss)
    for _ in range(ROUNDS):
        margin = margins(program, needed, order)
        kept = np.sort(np.argsort(-margin, kind="stable")[:count])
        if before is not None and np.array_equal(kept, before):
            break
        joined = _Joined(program, needed.take(kept))
        joined.upper[joined.relax] = 0.0
        solved = joined.solve(joined.cost, "order")
        if solved.x is None:
            return None if before is None else order
        order, before = joined.order(solved.x), kept
    return order


def _least_usd(program: Program, futures: Futures, groups: NDArray[np.intp]) -> float:
    """The least mean cost where futures of a group have their order in common, in split servers."""
    joined = _Joined(program, futures, groups)
    joined.upper[joined.relax] = 0.0
    solved = joined.solve(joined.cost, "split")
    return math.nan if solved.x is None else float(solved.fun)


def error_of(option: Option) -> tuple[object, ...]:
    """What options have in common whose rates err alike: class, model, chips, and whether prefill
    and decode are apart."""
    chips = tuple(sorted(option.chips))
    return (option.klass, option.model, chips, option.bound == "pools")


def kept_of(options: Sequence[Option]) -> list[int]:
    """Places of the options that no split ones replace that err alike."""
    errors = [error_of(option) for option in options]

    def replaces(j: int, k: int) -> bool:
        other, option = options[j], options[k]
        times = option.requests_per_s / other.requests_per_s
        return errors[j] == errors[k] and all(
            n * times / option.chips[chip] <= 1.0 + EVEN for chip, n in other.chips.items()
        )

    by_size = sorted(range(len(options)), key=lambda k: sum(options[k].chips.values()))
    return sorted(undominated(by_size, replaces))
