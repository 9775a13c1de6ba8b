"""The cheapest fleet for a plan, as a mixed-integer program.

Unknowns: instances of each option and quarter, servers ordered by each offer and quarter, owned
servers of each chip that are on in each quarter, servers that are in use. With R the rented servers
in their term, O the owned ones that are on, S those in use, of s chips each, k spare servers and a
spare share h:

    sum of rate x instances of a class >= its peak                                demand
    s S >= (1 + h) sum of chips x instances + k s (if the chip is used)           servers
    S <= R + O, O <= stock + what was bought and has arrived                      ownership
    watts, racks, chips, dollars <= limit                                         limits

All are whole numbers. What would change a large fleet is sought with instances that need not be
whole: a lower bound. There, of the options of a class on a chip the one with the highest rate a
chip does; and where S is whole, orders are, as each serves quarters in a row. The same bound, of
whole S, begins a search of whole instances with spares, and says which chips are tried first.

The objective is the discounted cost of `dse.economics.fleet_cost`, which counts it a second time
from the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from dse.economics import program
from dse.economics.fleet_cost import (
    Mix,
    Option,
    capital_usd,
    discount,
    electricity_usd,
    end_usd,
    rent_usd,
    serves,
    upkeep_usd,
)
from dse.economics.program import NONE, Found, Name, Program
from dse.schema.plan import BUY, QUARTER_HOURS, RENT, DemandClass, FleetChip, Offer, Plan

GAP = 1e-4  # relative, at which the program stops
LARGE_GAP = 2e-3  # the same of a fleet of more than MANY whole instances
MANY = 20
LEAST = 1e-6  # of what need not be whole: less is nothing
NODES, WHOLE = 500, 10  # of a branch-and-bound tree; times as many for the whole program
INSTANCES, SERVERS = "run", "servers"  # what need not be whole in a large fleet
OPTIMAL = "optimal"
# What may be relaxed to explain that nothing is feasible, in words.
DEMAND, SUPPLY = "demand", "supply"


@dataclass(frozen=True, slots=True)
class Solved:
    """The program's answer. `usd` is the discounted cost, `bound` the proven lowest, `gap` the
    difference over `usd`; `relaxed` the share by which each relaxed limit is exceeded.
    `mix` is None if none was found; `status` says whether that is proven."""

    mix: Mix | None
    usd: float
    bound: float
    gap: float
    status: str
    relaxed: Mapping[str, float] = field(default_factory=dict)


NOTHING = Solved(None, np.inf, np.inf, np.inf, "infeasible")


def solve(
    plan: Plan,
    options: Sequence[Option],
    *,
    relax: Sequence[str] = (),
    nodes: int = NODES,
    gap: float | None = None,
    split: Sequence[str] = (),
    below: float = np.inf,
) -> Solved:
    """The cheapest mix of `options` that keeps the plan. With `relax` the limits of these names
    (`limits_of`) may be exceeded, and the sum of the shares of excess is minimised. What `split`
    names (`divisible`) need not be whole, nor is it in the mix: a lower bound. With `below`,
    nothing is found that is not cheaper than that."""
    gap = gap or (GAP if split or not divisible(plan, options) else LARGE_GAP)
    whole = program_of(plan, options, relax=relax, split=split)
    if split:
        best = _split(whole, nodes, gap, below)
    elif (plan.spare_servers and not relax) or below < np.inf:
        best = _whole(plan, options, whole, WHOLE * nodes, gap, below)
    else:
        best = program.solve(whole, gap=gap, nodes=WHOLE * nodes)
    if best.value is None:
        undecided = "undecided: the limit of nodes was reached"
        return NOTHING if best.infeasible else replace(NOTHING, status=undecided)
    usd, bound = best.usd, min(best.bound, best.usd)
    share = (usd - bound) / usd if usd > 0.0 else 0.0
    status = "feasible: the limit of nodes was reached"
    if share <= gap * 1.01:
        status = OPTIMAL if share <= GAP * 1.01 else "within the gap"
    value = dict(zip(whole.columns, best.value.tolist(), strict=True))
    relaxed = {name: value["relax", name] for name in relax if value["relax", name] > 1e-9}
    return Solved(_mix(value, split), usd, bound, share, status, relaxed)


def divisible(plan: Plan, options: Sequence[Option]) -> tuple[str, ...]:
    """What is so many that its wholeness is small beside the fleet: instances where the peak takes
    more than MANY, even if all are the largest, then servers, alike."""
    instances = servers = 0.0
    for one in plan.demand:
        mine = [option for option in options if option.klass == one.name]
        peak = max(one.peak_per_s(q) for q in range(plan.quarters))
        instances += peak / max(option.requests_per_s for option in mine)
        servers += peak / max(option.requests_per_s / _servers_of(plan, option) for option in mine)
    if instances <= MANY:
        return ()
    return (INSTANCES,) if servers <= MANY else (INSTANCES, SERVERS)


def _servers_of(plan: Plan, option: Option) -> float:
    return sum(chips / plan.chip(chip).server for chip, chips in option.chips.items())


def _split(loose: Program, nodes: int, gap: float, below: float) -> Found:
    """The answer to a program with split instances. Orders, which follow from whole servers in use
    unless a limit binds, are made whole where they do not."""
    servers = [k for name, k in loose.columns.items() if name[0] == SERVERS and loose.whole[k]]
    found = program.solve(loose, gap=gap, nodes=nodes, below=below)
    orders = [k for name, k in loose.columns.items() if name[0] in ("order", "on")]
    if found.value is None or not servers:
        return found
    if np.all(np.abs(found.value[orders] - np.round(found.value[orders])) < 1e-5):
        return found
    for k in orders:
        loose.whole[k] = 1
    return program.solve(loose, gap=gap, nodes=nodes, below=below)


def _whole(
    plan: Plan, options: Sequence[Option], whole: Program, nodes: int, gap: float, below: float
) -> Found:
    """The answer to a whole program. That of split instances bounds it, and mostly says which chips
    are used: with those alone the tree is small. All are tried where that leaves a gap."""
    split = program_of(plan, options, split=[INSTANCES])
    least = program.solve(split, gap=GAP, nodes=nodes)
    if least.infeasible or least.bound > below:
        return replace(NONE, bound=least.bound)
    if plan.spare_servers and least.value is not None:
        some = program_of(plan, options)
        for name, value in zip(split.columns, least.value, strict=True):
            if name[0] == "used":
                some.upper[some.columns[name]] = float(round(value))
        found = program.solve(some, gap=gap, nodes=nodes, below=below)
        if found.value is not None and found.usd - least.bound <= gap * found.usd:
            return replace(found, bound=least.bound)
    return program.solve(whole, gap=gap, nodes=nodes, below=below)


def limits_of(plan: Plan) -> dict[str, float]:
    """Every limit and supply that is given, then every demand (requests per second in the mean of
    the first quarter), by name: what may be relaxed if nothing is feasible."""
    found = {name: value for name, value in asdict(plan.limits).items() if np.isfinite(value)}
    supplies = {f"{SUPPLY} {offer.label}": offer.chips_per_quarter for offer in plan.offers}
    found |= {name: chips for name, chips in supplies.items() if np.isfinite(chips)}
    return found | {f"{DEMAND} {one.name}": one.requests_per_s for one in plan.demand}


def with_limit(plan: Plan, name: str, value: float) -> Plan:
    """The plan with one of `limits_of` at another value."""
    kind, _, rest = name.partition(" ")
    if kind == DEMAND:
        changed = (
            replace(one, requests_per_s=value) if one.name == rest else one for one in plan.demand
        )
        return replace(plan, demand=tuple(changed))
    if kind == SUPPLY:
        return with_offer(plan, replace(plan.offer(rest), chips_per_quarter=value))
    return replace(plan, limits=replace(plan.limits, **{name: value}))


def with_offer(plan: Plan, offer: Offer) -> Plan:
    """The plan with the offer of that label replaced. With the price of what is bought goes its
    maintenance, a share of it; with the price and the wait of a rent those of its breaks."""

    def moved(one: Offer) -> Offer:
        if one.label == offer.label:
            return offer
        if one.breaks != offer.label:
            return one
        share = offer.usd / plan.offer(offer.label).usd
        return replace(one, usd=one.usd * share, lead_quarters=offer.lead_quarters)

    plan, owning = plan.with_offers(moved), plan.chip(offer.chip).owning
    if offer.way == RENT or owning is None:
        return plan
    share = offer.usd / owning.capital_usd
    server_usd, network_usd = owning.server_usd * share, owning.network_usd * share
    owning = replace(owning, server_usd=server_usd, network_usd=network_usd)
    chips = (replace(c, owning=owning) if c.chip == offer.chip else c for c in plan.chips)
    return replace(plan, chips=tuple(chips))


def _mix(value: Mapping[Name, float], split: Sequence[str]) -> Mix:
    """What is there; counts are whole but for what is split."""

    def of(kind: str, least: float, whole: bool) -> dict:
        counts = ((name[1:], count) for name, count in value.items() if name[0] == kind)
        return {name: round(n) if whole else n for name, n in counts if n > least}

    servers = SERVERS not in split
    least = 0.5 if servers else LEAST
    return Mix(
        orders=of("order", least, servers),
        on=of("on", least, servers),
        instances=of("run", *((LEAST, False) if split else (0.5, True))),
    )


def settled(plan: Plan, options: Sequence[Option], mix: Mix) -> Mix:
    """The same orders, with each quarter served on the fewest chips. The program leaves this open,
    since chips that are there anyway cost nothing."""
    instances: dict[tuple[int, int], float] = {}
    for q in range(plan.quarters):
        before = {(k, at): count for (k, at), count in mix.instances.items() if at == q}
        used = {chip for k, _ in before for chip in options[k].chips}
        fewest = Program()
        for k, option in enumerate(options):
            if used.issuperset(option.chips):
                # Of equally many chips, those in fewer instances.
                fewest.add((INSTANCES, k, q), sum(option.chips.values()) + 1e-3)
        for one in plan.demand:
            rates = [
                (name, -options[name[1]].requests_per_s)
                for name in fewest.columns
                if options[name[1]].klass == one.name
            ]
            fewest.at_most((DEMAND, one.name), rates, -one.peak_per_s(q))
        for chip in used:
            taken = [
                (name, (1.0 + plan.spare_share) * options[name[1]].chips.get(chip, 0))
                for name in fewest.columns
            ]
            servers = mix.on.get((chip, q), 0) - plan.spare_servers
            for order in _there(plan, plan.chip(chip), q, RENT):
                servers += mix.orders.get(order[1:], 0)
            fewest.at_most((SERVERS, chip), taken, float(servers * plan.chip(chip).server))
        found = program.solve(fewest, gap=GAP, nodes=NODES).value
        instances |= (
            before
            if found is None
            else {
                name[1:]: round(count)
                for name, count in zip(fewest.columns, found, strict=True)
                if round(count) > 0
            }
        )
    return replace(mix, instances=instances)


def program_of(
    plan: Plan,
    options: Sequence[Option],
    *,
    relax: Sequence[str] = (),
    split: Sequence[str] = (),
) -> Program:
    """The program of a plan. Columns: instances ("run", option, quarter), servers ("order", offer,
    quarter), ("on", chip, quarter) and ("servers", chip, quarter), whether a chip is ("used", chip,
    quarter), ("racks", chip, quarter), the share of excess ("relax", limit). Rows have the names of
    what they hold: ("demand", class, quarter), (limit, quarter)."""
    made, quarters = Program(), range(plan.quarters)
    priced, servers = 0.0 if relax else 1.0, int(SERVERS not in split)
    columns = _columns(options) if split else range(len(options))
    for q in quarters:
        for k in columns:
            made.add((INSTANCES, k, q), whole=int(not split))
    for chip in plan.chips:
        enough = _enough(plan, options, chip)
        for offer in chip.offers:
            capped = f"{SUPPLY} {offer.label}" not in relax
            most = np.floor(offer.chips_per_quarter / chip.server) if capped else np.inf
            for q in quarters:
                usd = priced * _order_usd(plan, offer, q) * chip.server
                upper = min(most, enough) if offer.arrives(q, plan.quarters) else 0.0
                made.add(("order", offer.label, q), usd, upper, whole=int(not split))
            if plan.signed is not None:
                # What is signed is held, more than the prediction needs or not.
                order, held = ("order", offer.label, 0), plan.signed.get(offer.label, 0)
                made.upper[made.columns[order]] = held
                made.at_most(("signed", *order), [(order, -1.0)], -held)
        for q in quarters:
            usd = priced * discount(plan, q) * _running_usd(plan, chip.chip) * chip.server
            made.add(("on", chip.chip, q), usd, whole=int(not split))
            made.add((SERVERS, chip.chip, q), whole=servers)
            if plan.spare_servers:
                made.add(("used", chip.chip, q), 0.0, 1.0)
            if np.isfinite(plan.limits.racks):
                made.add(("racks", chip.chip, q), whole=servers)
    for name in relax:
        made.add(("relax", name), 1.0, whole=0)
    for q in quarters:
        for one in plan.demand:
            _demand(made, options, one, q, relax)
        for chip in plan.chips:
            _servers(made, plan, options, chip, q, bool(split))
        _limits(made, plan, q, relax)
    terms = [term for q in quarters for term in _spent(plan, q, cash=True)]
    _limit(made, ("usd_total",), terms, plan.limits.usd_total, relax)
    for offer in plan.offers:
        name = f"{SUPPLY} {offer.label}"
        if name in relax:
            server = plan.chip(offer.chip).server
            for q in quarters:
                terms = [(("order", offer.label, q), float(server))]
                _limit(made, (name, q), terms, offer.chips_per_quarter, relax)
    return made


def _columns(options: Sequence[Option]) -> Sequence[int]:
    """The options that do where instances need not be whole: those of which no other of the class
    takes as few of every chip for its rate."""

    def replaces(m: int, k: int) -> bool:
        other, option = options[m], options[k]
        return other.klass == option.klass and all(
            chips / other.requests_per_s <= option.chips.get(chip, 0) / option.requests_per_s
            for chip, chips in other.chips.items()
        )

    return undominated(range(len(options)), replaces)


def undominated(places: Sequence[int], replaces: Callable[[int, int], bool]) -> list[int]:
    """Those that no other replaces; of some that replace each other, the first."""
    kept: list[int] = []
    for k in places:
        better = (m for m in places if m != k and replaces(m, k))
        if not any(m in kept or not replaces(k, m) for m in better):
            kept.append(k)
    return kept


def _order_usd(plan: Plan, offer: Offer, q: int) -> float:
    """Discounted dollars per chip of an order of quarter q, with what the end writes off."""
    usd = rent_usd(offer, q) if offer.way == RENT else capital_usd(plan, offer, q)
    there = (discount(plan, t) for t in range(plan.quarters) if serves(offer, q, t))
    return usd * sum(there) + end_usd(plan, offer, q)


def _demand(
    made: Program, options: Sequence[Option], one: DemandClass, q: int, relax: Sequence[str]
) -> None:
    peak, name = one.peak_per_s(q), f"{DEMAND} {one.name}"
    terms: list[tuple[Name, float]] = [
        (column, -options[column[1]].requests_per_s) for column in _runs(made, options, q, one.name)
    ]
    if name in relax:
        terms.append((("relax", name), -peak))
    made.at_most((DEMAND, one.name, q), terms, -peak)


def _runs(made: Program, options: Sequence[Option], q: int, klass: str) -> list[Name]:
    """The columns of a class in a quarter."""
    return [
        (INSTANCES, k, q)
        for k, option in enumerate(options)
        if option.klass == klass and (INSTANCES, k, q) in made.columns
    ]


def _there(plan: Plan, chip: FleetChip, q: int, way: str, *, on_site: bool = False) -> list[Name]:
    """The orders of a chip, to rent or to buy it, that serve in a quarter."""
    return [
        ("order", offer.label, order)
        for offer in chip.offers
        for order in range(plan.quarters)
        if offer.way == way and serves(offer, order, q) and (offer.on_site or not on_site)
    ]


def _servers(
    made: Program, plan: Plan, options: Sequence[Option], chip: FleetChip, q: int, split: bool
) -> None:
    """Chips of the instances and the spares are in servers; what is on and not rented is owned."""
    name, use = chip.chip, (SERVERS, chip.chip, q)
    taken: list[tuple[Name, float]] = [(use, -float(chip.server))]
    used = ("used", name, q)
    for one in plan.demand:
        runs = [run for run in _runs(made, options, q, one.name) if name in options[run[1]].chips]
        taken += [(run, (1.0 + plan.spare_share) * options[run[1]].chips[name]) for run in runs]
        if plan.spare_servers and split:
            peak = one.peak_per_s(q)
            rates = [(run, options[run[1]].requests_per_s) for run in runs]
            made.at_most(("used", name, one.name, q), [*rates, (used, -peak)], 0.0)
        elif plan.spare_servers:
            for run in runs:
                most = _most_instances(one, options[run[1]], q)
                made.at_most(("used", name, *run), [(run, 1.0), (used, -most)], 0.0)
    if plan.spare_servers:
        taken.append((used, float(plan.spare_servers * chip.server)))
        one_and_spare = [(used, 1.0 + plan.spare_servers), (use, -1.0)]
        made.at_most(("used", name, q), one_and_spare, 0.0)
    made.at_most(("chips of", name, q), taken, 0.0)
    rented, bought = ([(one, -1.0) for one in _there(plan, chip, q, way)] for way in (RENT, BUY))
    made.at_most(use, [(use, 1.0), *rented, (("on", name, q), -1.0)], 0.0)
    owned = float(chip.stock // chip.server)
    made.at_most(("on", name, q), [(("on", name, q), 1.0), *bought], owned)


def _enough(plan: Plan, options: Sequence[Option], chip: FleetChip) -> float:
    """The most servers of a chip that a plan can use: every class at its highest peak on the option
    that takes most of the chip, and the spares."""
    chips = 0.0
    for one in plan.demand:
        mine = [o for o in options if o.klass == one.name and chip.chip in o.chips]
        instances = (max(_most_instances(one, o, q) for q in range(plan.quarters)) for o in mine)
        chips += max(
            (n * o.chips[chip.chip] for n, o in zip(instances, mine, strict=True)), default=0
        )
    return float(np.ceil((1.0 + plan.spare_share) * chips / chip.server)) + plan.spare_servers


def _most_instances(one: DemandClass, option: Option, q: int) -> float:
    """Never more than serve the whole peak of the class."""
    return float(np.ceil(one.peak_per_s(q) / option.requests_per_s))


def _limits(made: Program, plan: Plan, q: int, relax: Sequence[str]) -> None:
    limits = plan.limits
    here: list[tuple[FleetChip, Name]] = [
        (chip, name)
        for chip in plan.chips
        for name in (*_there(plan, chip, q, RENT, on_site=True), ("on", chip.chip, q))
    ]
    watts = [(name, chip.watts * chip.server) for chip, name in here]
    _limit(made, ("watts", q), watts, limits.watts, relax)
    chips = [(name, float(chip.server)) for chip, name in here]
    _limit(made, ("chips", q), chips, limits.chips, relax)
    if np.isfinite(limits.racks):
        for one in plan.chips:
            terms = [(name, 1.0) for chip, name in here if chip is one]
            full = (("racks", one.chip, q), -one.chips_per_rack / one.server)
            made.at_most(("racks", one.chip, q), [*terms, full], 0.0)
        terms = [(("racks", chip.chip, q), 1.0) for chip in plan.chips]
        _limit(made, ("racks", q), terms, limits.racks, relax)
    hourly = [(key, usd / QUARTER_HOURS) for key, usd in _spent(plan, q)]
    _limit(made, ("usd_per_hour", q), hourly, limits.usd_per_hour, relax)
    _limit(made, ("usd_per_quarter", q), _spent(plan, q, cash=True), limits.usd_per_quarter, relax)


def _limit(
    made: Program,
    row: Name,
    terms: list[tuple[Name, float]],
    limit: float,
    relax: Sequence[str],
) -> None:
    """At most the limit that the row is named after, or as much more as it may be relaxed."""
    if row[0] in relax:
        terms = [*terms, (("relax", row[0]), -max(limit, 1.0))]
    if np.isfinite(limit):
        made.at_most(row, terms, limit)


def _spent(plan: Plan, q: int, *, cash: bool = False) -> list[tuple[Name, float]]:
    """Dollars of a quarter by unknown: rent, the charge for what is bought, what is on. As `cash`,
    what is bought is paid whole when it arrives."""
    terms: list[tuple[Name, float]] = []
    for offer in plan.offers:
        server = plan.chip(offer.chip).server
        for order in range(plan.quarters):
            if not serves(offer, order, q):
                continue
            if offer.way == RENT:
                usd = rent_usd(offer, order)
            elif cash:
                usd = offer.usd_in(order) * (order + offer.lead_quarters == q)
            else:
                usd = capital_usd(plan, offer, order)
            terms.append((("order", offer.label, order), usd * server))
    return terms + [
        (("on", chip.chip, q), _running_usd(plan, chip.chip) * chip.server) for chip in plan.chips
    ]


def _running_usd(plan: Plan, chip: str) -> float:
    """Dollars per owned chip that is on, and quarter."""
    return upkeep_usd(plan, chip) + electricity_usd(plan, chip)
