"""A plan solved: the mix, its cost counted a second time, what would change it, and their rows.

Why no fleet keeps a plan, and what must give: each limit alone is let go as little as makes the
plan feasible; where no one of them is enough, all together, by the least sum of shares.

Futures of a plan: demand, throughput, prices and delivery drawn together, seeded.

demand      a walk: each quarter adds an error to that of the one before; classes move together
throughput  the model's 80% intervals of throughput, by how kernel laws are known and whether
            the launch is stock or tuned; shared by chip, kin and configuration as in
            `dse.study.regret`. Separate pools run as the slower chip's
prices      `dse.economics.prices` by chip; a price of the plan's own is known
delivery    what has a lead time comes a quarter late, all of it or nothing
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.fleet import LEAST, Solved, divisible, settled, solve
from dse.economics.fleet_cost import Counted, Mix, Option, cash_flow, count
from dse.economics.prices import ASSUMED, evidence_rows, price_spreads, unsold
from dse.economics.scenarios import Counter, Futures, Hedged, error_of, hedged
from dse.errors import DseError
from dse.physics.intervals import Spread, eldest, kin_of, normals, spread_of, widened
from dse.quality.own_runs import P90
from dse.questions.fleet.changes import (
    Progress,
    Row,
    Search,
    Steps,
    entries,
    lack,
    loosened,
    must_give,
    renting_alone,
    stock_rows,
    waits_for,
)
from dse.questions.fleet.options import Known, options_of
from dse.schema.backend import KINDS, STOCK
from dse.schema.plan import BUY, QUARTER_HOURS, FleetChip, Offer, Plan
from dse.space.candidates import Floats

AGREES = 1e-6  # relative: the program's cost and the cost that is counted from its mix
SEEN = 80  # futures that the order is chosen in
COUNTED = 2000  # others that count what it serves
PLAIN = 250  # the same where no service level is asked
MOST_SHOWN = 400  # windows of a trace
OWN_FORMATS = "checkpoint format, its own cache"  # of an option whose class asks for none


@dataclass(frozen=True, slots=True)
class Solution:
    """`counted` is None where nothing keeps the plan: `gives` then says what must give, `waits`
    whose lead time is too long, `unserved` the classes that no chip serves. Rows of `refused`,
    `limits`, `prices`, `alone` (each chip by itself, of a plan of one quarter and one class) and
    `stock` are those of the frames. `by_means` are the chips that would be ordered for requests of
    mean lengths at the mean rate. `instead` is the cheapest order that buys nothing, None where
    nothing is bought, or for the reason `no_renting`. `unsold` are chips that are not on general
    sale, with what their files say; `priced` is what the prices of the offers rest on
    (`dse.economics.prices`), `spread` the 80% interval of measured over predicted throughput by its
    kind. With a service level, `hedged` is the order of the first quarter, and what would change it
    is not searched; without, `served` is the share of futures that the order serves. `base` is what
    changes are set against: with split instances in a large fleet."""

    plan: Plan
    options: tuple[Option, ...]
    refused: tuple[Row, ...]
    solved: Solved
    counted: Counted | None
    base: Solved | None = None
    limits: tuple[Row, ...] = ()
    prices: tuple[Row, ...] = ()
    gives: tuple[Row, ...] = ()
    waits: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    alone: tuple[Row, ...] = ()
    by_means: int | None = None
    unsold: Mapping[str, str] = field(default_factory=dict)
    untried: tuple[dict[str, Any], ...] = ()
    priced: tuple[Mapping[str, Any], ...] = ()
    instead: tuple[Mix, Counted] | None = None
    no_renting: str = ""
    stock: tuple[Row, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hedged: Hedged | None = None
    served: float | None = None

    @property
    def mix(self) -> Mix:
        """That of a plan that is kept."""
        assert self.solved.mix is not None
        return self.solved.mix

    @property
    def split(self) -> bool:
        """Whether the prices and changes are those of instances that need not be whole."""
        return bool(divisible(self.plan, self.options))

    @property
    def ordered(self) -> list[Offer]:
        labels = {label for label, _ in self.mix.orders}
        return [offer for offer in self.plan.offers if offer.label in labels]


def solution(plan: Plan, catalog: Catalog, seed: int, progress: Progress) -> Solution:
    """The plan solved, with what it did not choose from; each step says what is left. At a service
    level, what is ordered in the first quarter is chosen over futures, and what follows is that of
    the prediction."""
    if plan.service_level is not None:
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
        order = hedged(plan, options, seen, counter, plan.service_level, first, progress)
        signed = replace(plan, signed=order.order)
        return replace(answered(signed, catalog, progress, known), hedged=order)
    steps, evaluated = Steps(progress, plan), Known()
    given = options_of(plan, catalog, steps, evaluated)
    found = answered(plan, catalog, steps, given)
    base = None if found.counted is None else found.base
    search = Search(plan, found.options, base, evaluated, catalog, steps)
    found = replace(found, untried=tuple(search.untried()))
    if found.counted is None:
        return found
    steps("futures")
    futures = futures_of(plan, found.options, catalog, PLAIN, (seed, 1))
    served = Counter(plan, found.options, futures).share(first_orders(found.mix))
    return replace(found, served=served)


def answered(
    plan: Plan,
    catalog: Catalog,
    progress: Progress,
    given: tuple[Sequence[Option], Sequence[Row]],
) -> Solution:
    """Solves a plan of given options, with what the catalog says of its chips. Raises DseError as
    `answer_of`."""
    found = answer_of(plan, *given, progress)
    priced = [(offer.chip, offer.basis) for offer in plan.offers if offer.basis]
    chips = [catalog.chip(one.chip) for one in plan.chips]
    means = None
    if found.counted is not None and found.alone and plan.demand[0].source:
        means = _by_means(plan, catalog, found.counted)
    return replace(
        found,
        by_means=means,
        unsold=unsold(catalog, [chip.chip for chip in plan.chips]),
        priced=tuple(evidence_rows(catalog, priced, plan.costs)),
        names={chip.id: f"{chip.vendor} {chip.label}" for chip in chips},
        spread=catalog.calibration.spread.get("throughput", {}),
    )


def answer_of(
    plan: Plan,
    options: Sequence[Option],
    refused: Sequence[Row] = (),
    progress: Progress = lambda _: None,
) -> Solution:
    """A plan of given options. Raises DseError where the cost or the limits of the mix, counted
    apart from the program, are not what the program says: a fault of this software."""
    kept = tuple(options), tuple(refused)
    unserved = tuple(
        one.name for one in plan.demand if not any(row.klass == one.name for row in options)
    )
    if unserved:
        nothing = Solved(None, 0.0, 0.0, 0.0, "infeasible", 0.0)
        return Solution(plan, *kept, nothing, None, unserved=unserved)
    progress(f"{len(options)} options over {plan.quarters} quarters")
    solved = solve(plan, options)
    if solved.mix is None:
        found = Solution(plan, *kept, solved, None)
        if plan.signed is not None or solved.status != "infeasible":
            return found
        gives, waits = must_give(plan, options, progress), waits_for(plan, options)
        return replace(found, gives=tuple(gives), waits=tuple(waits))
    mix = settled(plan, options, solved.mix)
    counted = count(plan, options, mix)
    if counted.broken or abs(counted.usd - solved.usd) > AGREES * max(solved.usd, 1.0):
        raise DseError(
            f"the program's answer does not stand: {counted.usd:.9g} USD counted against "
            f"{solved.usd:.9g}; {'; '.join(counted.broken)}"
        )
    solved = replace(solved, mix=mix)
    found = Solution(plan, *kept, solved, counted, base=solved)
    if plan.signed is not None:
        return found
    split = divisible(plan, options)
    base = solve(plan, options, split=split) if split else solved
    instead, no_renting = None, ""
    if any(plan.offer(label).way == BUY for label, _ in mix.orders):
        renting = renting_alone(plan, options)
        no_renting = lack(renting)
        if not no_renting and renting.mix is not None:
            instead = renting.mix, count(plan, options, renting.mix)
    alone = [_alone(plan, options, chip) for chip in plan.chips] if single(plan) else []
    return replace(
        found,
        base=base,
        limits=tuple(loosened(plan, options, base, progress)),
        prices=tuple(entries(plan, options, solved, base, progress)),
        alone=tuple(sorted(alone, key=lambda row: row["cost"])),
        instead=instead,
        no_renting=no_renting,
        stock=tuple(stock_rows(plan, options, base, progress)),
    )


def single(plan: Plan) -> bool:
    """Whether the plan asks for one class in one quarter, so that chips compare one by one."""
    return plan.quarters == 1 and len(plan.demand) == 1


def _alone(plan: Plan, options: Sequence[Option], chip: FleetChip) -> Row:
    """The plan on one of its chips alone: dollars per million tokens at the mean rate, where part
    of it idles, and at the rate that it is sized for."""
    mine = [option for option in options if set(option.chips) == {chip.chip}]
    none = {"chip": chip.chip, "chips": None, "cost": math.inf}
    if not mine:
        return {**none, "reason": "serves no class within its limits"}
    only = replace(plan, chips=(chip,))
    solved = solve(only, mine)
    if solved.mix is None:
        return {**none, "reason": "cannot keep the plan alone"}
    mix = settled(only, mine, solved.mix)
    counted = count(only, mine, mix)
    one, quarter = plan.demand[0], counted.quarters[0]
    used = [(mine[k], number) for (k, _), number in mix.instances.items()]
    hourly = quarter.usd / QUARTER_HOURS
    mean = 3600.0 * one.mean_per_s(0) * one.tokens
    servers = quarter.rented.get(chip.chip, 0) + quarter.owned_on.get(chip.chip, 0)
    parts = []
    for option, number in used:
        formats = "" if option.formats in ("", OWN_FORMATS) else f", {option.formats}"
        parts.append(f"{number:,} x {option.divided.replace(' x ', ' ', 1)}{formats}")
    return {
        "chip": chip.chip,
        "fleet": ", ".join(parts),
        "chips": servers * chip.server,
        "instances": sum(number for _, number in used),
        "cost": counted.usd,
        "usd_per_hour": hourly,
        "ttft_percentile_s": max(option.ttft_s for option, _ in used),
        "tpot_s": max(option.tpot_s for option, _ in used),
        "load": one.peak_per_s(0) / quarter.capacity[one.name],
        "most_requests_per_s": quarter.capacity[one.name],
        "tokens_per_usd": mean / hourly if hourly else None,
        "usd_per_million_mean": 1e6 * hourly / mean,
        "usd_per_million_busy": 1e6 * hourly / (mean * one.peak_over_average),
        "reason": None,
    }


def _by_means(plan: Plan, catalog: Catalog, counted: Counted) -> int | None:
    """Chips of the cheapest fleet, on the chips that were chosen, for requests that all have the
    mean lengths and come at the mean rate, the median first token in time."""
    one = plan.demand[0]
    median = None if one.percentile is None else 50
    mean = replace(one, streams=(one.mean,), peak_over_average=1.0, percentile=median)
    chosen = tuple(chip for chip in plan.chips if counted.quarters[0].chips_used.get(chip.chip))
    only = replace(plan, demand=(mean,), chips=chosen)
    options, _ = options_of(only, catalog)
    solved = solve(only, options) if options else None
    if solved is None or solved.mix is None:
        return None
    return round(sum(count(only, options, solved.mix).quarters[0].chips_used.values()))


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


def first_orders(mix: Mix) -> dict[str, int]:
    """Servers that are ordered in the first quarter, by offer; split ones as whole ones."""
    first = {label: servers for (label, q), servers in mix.orders.items() if q == 0}
    return {label: math.ceil(servers - LEAST) for label, servers in first.items()}


def option_row(one: Option) -> Row:
    return {
        "class": one.klass,
        "model": one.model,
        "on": one.label,
        "division": one.division,
        "requests_per_s": one.requests_per_s,
        "ttft_s": one.ttft_s,
        "tpot_s": one.tpot_s,
        "percentile": one.percentile,
        "formats": one.formats,
        "concurrency": one.concurrency,
        "bound": one.bound,
        "known": one.kind,
    }


def chip_rows(found: Solution, counted: Counted) -> list[Row]:
    """One row for each quarter and chip that is there: the rows of fleet.csv."""
    rows = []
    for q, one in enumerate(counted.quarters):
        for chip in found.plan.chips:
            name, spend = chip.chip, one.spend[chip.chip]
            ordered = sum(found.mix.orders.get((offer.label, q), 0) for offer in chip.offers)
            rented, own, on = (of.get(name, 0) for of in (one.rented, one.owned, one.owned_on))
            if ordered or rented or own:
                rows.append(
                    {
                        "quarter": q + 1,
                        "chip": name,
                        "ordered_chips": ordered * chip.server,
                        "rented_chips": rented * chip.server,
                        "owned_chips": own * chip.server,
                        "owned_on_chips": on * chip.server,
                        "serving_chips": one.chips_used.get(name, 0),
                        "kilowatts": (rented + on) * chip.server * chip.watts / 1e3,
                        "rent_usd": spend.rent,
                        "capital_usd": spend.capital,
                        "upkeep_usd": spend.upkeep,
                        "electricity_usd": spend.electricity,
                        "usd": spend.usd,
                        "bought_usd": spend.bought,
                    }
                )
    return rows


def order_rows(found: Solution) -> list[Row]:
    """What is ordered, with the cash that it commits to."""
    rows = []
    for (label, q), servers in found.mix.orders.items():
        offer = found.plan.offer(label)
        chips, usd = servers * found.plan.chip(offer.chip).server, offer.usd_in(q)
        bought = offer.way == BUY
        rows.append(
            {
                "order_quarter": q + 1,
                "first_quarter": q + 1 + offer.lead_quarters,
                "way": offer.way,
                "chip": offer.chip,
                "offer": label,
                "servers": servers,
                "chips": chips,
                "term_quarters": None if bought else offer.term_quarters,
                "price_usd": usd,
                "per": "chip" if bought else "chip-hour",
                "commits_usd": chips
                * usd
                * (1.0 if bought else offer.term_quarters * QUARTER_HOURS),
            }
        )
    return sorted(rows, key=lambda row: (row["order_quarter"], row["offer"]))


def quarter_rows(found: Solution, counted: Counted) -> list[Row]:
    """What each quarter costs, and its cash; after the plan, rents to the end of their term and the
    worth of what was bought."""
    rows, paid = [], 0.0
    for flow in cash_flow(found.plan, counted, found.mix):
        paid += flow.paid
        row: dict[str, Any] = {"quarter": flow.quarter, "rent_usd": flow.rent}
        if flow.quarter <= found.plan.quarters:
            one = counted.quarters[flow.quarter - 1]
            row |= {
                "capital_usd": sum(spend.capital for spend in one.spend.values()),
                "upkeep_usd": flow.upkeep,
                "electricity_usd": flow.electricity,
                "usd": one.usd,
                "watts": one.watts,
                "racks": one.racks,
            }
        rows.append(
            {
                **row,
                "bought_usd": flow.bought,
                "cash_usd": flow.paid,
                "cash_so_far_usd": paid,
                "worth_usd": flow.worth,
                "present_usd": flow.present,
                "depreciation_usd": flow.depreciation,
                "book_usd": flow.book,
                "rent_owed_usd": flow.owed,
            }
        )
    return rows


def use_rows(plan: Plan, counted: Counted) -> list[Row]:
    """Demand over what the instances can serve within the latency limits."""
    return [
        {
            "quarter": q + 1,
            "class": one.name,
            "peak_use": one.peak_per_s(q) / quarter.capacity[one.name],
            "mean_use": one.mean_per_s(q) / quarter.capacity[one.name],
        }
        for q, quarter in enumerate(counted.quarters)
        for one in plan.demand
    ]


def instance_rows(found: Solution) -> list[Row]:
    """Quarters that follow each other with as many of the same instances share a row."""
    spans: list[tuple[int, int, int, float]] = []  # first and last quarter, option, instances
    for (k, q), instances in sorted(found.mix.instances.items()):
        if spans and spans[-1][1:] == (q - 1, k, instances):
            spans[-1] = (spans[-1][0], q, k, instances)
        else:
            spans.append((q, q, k, instances))
    return [
        {
            "quarter": first + 1,
            "last_quarter": last + 1,
            "instances": instances,
            **option_row(found.options[k]),
        }
        for first, last, k, instances in sorted(spans)
    ]


def arrival_rows(plan: Plan) -> list[Row]:
    """Requests per second by window; beyond MOST_SHOWN windows the busiest of several in a row."""
    rows = []
    for one in plan.demand:
        if (windows := one.windows) is not None:
            each = -(-len(windows.requests) // MOST_SHOWN)
            starts = np.arange(0, len(windows.requests), each)
            busiest = np.maximum.reduceat(windows.per_s, starts).tolist()
            for start, rate in zip((starts * windows.seconds).tolist(), busiest, strict=True):
                seconds = each * windows.seconds
                row = {"class": one.name, "start_s": start, "window_s": seconds}
                rows.append({**row, "requests_per_s": rate})
    return rows
