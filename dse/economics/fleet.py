"""The cheapest fleet for a plan, as a mixed-integer program (SciPy's HiGHS).

Unknowns, all of them whole numbers: instances of each option and quarter, servers ordered by each
offer and quarter, owned servers of each chip that are on in each quarter. With R the rented servers
in their term, O the owned ones that are on, of s chips each, k spare servers and a spare share h:

    sum of rate x instances of a class >= its peak                                demand
    s (R + O) >= (1 + h) sum of chips x instances + k s (if the chip is used)     servers
    O <= stock + what was bought and has arrived                                  ownership
    watts, racks, chips, dollars <= limit                                         limits

A large fleet is solved first with instances that need not be whole, in a fraction of the time: a
lower bound, and at slightly more demand orders that are nearly right. Whole instances are sought
near these, then, where the two differ by more than the gap, everywhere among what is cheaper by
the gap, up to a number of nodes: where there is nothing, the gap is proven.

The objective is the discounted cost of `dse.economics.fleet_cost`, which counts it a second time
from the answer.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

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
from dse.schema.plan import BUY, QUARTER_HOURS, RENT, FleetChip, Offer, Plan

GAP = 1e-4  # relative, at which the program stops
LARGE_GAP = 5e-3  # the same of a fleet of more than MANY whole instances
MANY = 20
NODES, WHOLE = 500, 10  # of a branch-and-bound tree; times as many for the whole program
# A budget is a count, so that a slow machine finds the same mix; this only ends what hangs.
HANGS_S = 120.0
NEAR = 1  # servers that an order may differ from that of the program with split instances
MARGINS = (0.01, 0.02)  # more demand of that program, which leaves room for whole ones
INFEASIBLE = 2  # as `milp` says it
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
    seconds: float
    relaxed: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Program:
    """Rows and columns by name; `rows` hold (column, factor) and an upper bound."""

    names: list[tuple] = field(default_factory=list)
    index: dict[tuple, int] = field(default_factory=dict)
    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[tuple[dict[int, float], float]] = field(default_factory=list)

    def add(self, name: tuple, cost: float = 0.0, upper: float = np.inf, whole: int = 1) -> None:
        self.index[name] = len(self.names)
        self.names.append(name)
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)

    def at_most(self, terms: Iterable[tuple[tuple, float]], limit: float) -> None:
        """sum of factor x column <= limit."""
        row: dict[int, float] = {}
        for name, factor in terms:
            row[self.index[name]] = row.get(self.index[name], 0.0) + factor
        self.rows.append((row, limit))

    def run(
        self,
        nodes: int,
        gap: float,
        *,
        split: bool = False,
        near: Mapping[tuple, float] | None = None,
        below: float = np.inf,
    ) -> Any:
        """HiGHS's answer. With `split`, instances need not be whole; with `near`, orders are those
        of another answer, NEAR servers more or less; with `below`, it costs no more than that, so
        that to find nothing proves a bound."""
        data, columns, ends, limits = [], [], [0], []
        cheaper = [({k: usd for k, usd in enumerate(self.cost) if usd}, below)]
        for row, limit in [*self.rows, *(cheaper if np.isfinite(below) else [])]:
            # Rows of watts and dollars beside rows of servers: each scaled to a largest factor 1.
            scale = max((abs(factor) for factor in row.values()), default=1.0)
            columns += list(row)
            data += [factor / scale for factor in row.values()]
            ends.append(len(data))
            limits.append(limit / scale)
        matrix = csr_array((data, columns, ends), shape=(len(limits), len(self.names)))
        # SciPy takes arrays of bounds, which its annotations do not say.
        none: Any = np.full(len(limits), -np.inf)
        most: Any = np.array(limits)
        least: Any = np.zeros(len(self.upper))
        upper: Any = np.array(self.upper)
        if near is not None:
            for k, name in enumerate(self.names):
                if name[0] == "order":
                    least[k] = max(round(near[name]) - NEAR, 0.0)
                    upper[k] = min(round(near[name]) + NEAR, upper[k])
        whole = np.array(self.whole)
        if split:
            whole[[k for k, name in enumerate(self.names) if name[0] == "run"]] = 0
        with _nothing_printed():
            return milp(
                np.array(self.cost),
                constraints=LinearConstraint(matrix, none, most),
                integrality=whole,
                bounds=Bounds(least, upper),
                options={"mip_rel_gap": gap, "node_limit": nodes, "time_limit": HANGS_S},
            )


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Silences HiGHS, which sometimes writes a line to standard output in spite of its options; a
    JSON document must stay alone there."""
    c = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
        c.fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def solve(
    plan: Plan,
    options: Sequence[Option],
    *,
    relax: Sequence[str] = (),
    nodes: int = NODES,
    gap: float | None = None,
    split: bool = False,
) -> Solved:
    """The cheapest mix of `options` that keeps the plan. With `relax` the limits of these names
    (`limits_of`) may be exceeded, and the sum of the shares of excess is minimised. With `split`
    instances need not be whole: a lower bound, whose `instances` are rounded."""
    large = many(plan, options)
    gap = gap or (LARGE_GAP if large and not split else GAP)
    program = _program(plan, options, relax)
    start = time.perf_counter()

    def seconds() -> float:
        return time.perf_counter() - start

    best, bound = None, -np.inf
    if split or large:
        parts = program.run(nodes, gap, split=True)
        if parts.status == INFEASIBLE:
            return Solved(None, np.inf, np.inf, np.inf, "infeasible", seconds())
        bound = -np.inf if parts.mip_dual_bound is None else float(parts.mip_dual_bound)
        if parts.x is not None:
            best = parts if split else _rounded(program, plan, options, relax, parts, nodes, gap)
    if not split and (best is None or best.fun - bound > gap * abs(best.fun)):
        below = np.inf if best is None else best.fun - gap * abs(best.fun)
        whole = program.run(WHOLE * nodes, gap, below=below)
        if whole.status == INFEASIBLE and best is None:
            return Solved(None, np.inf, np.inf, np.inf, "infeasible", seconds())
        least = below if whole.status == INFEASIBLE else whole.mip_dual_bound
        if least is not None:
            bound = max(bound, min(float(least), below))
        if whole.x is not None and (best is None or whole.fun < best.fun):
            best = whole
    if best is None:
        undecided = "undecided: the limit of nodes was reached"
        return Solved(None, np.inf, np.inf, np.inf, undecided, seconds())
    value = dict(zip(program.names, best.x, strict=True))
    usd = float(best.fun)
    bound = min(bound, usd)
    share = (usd - bound) / usd if usd > 0.0 else 0.0
    status = "feasible: the limit of nodes was reached"
    if share <= gap * 1.01:
        status = OPTIMAL if share <= GAP * 1.01 else "within the gap"
    relaxed = {name: value["relax", name] for name in relax if value["relax", name] > 1e-9}
    return Solved(_mix(value), usd, bound, share, status, seconds(), relaxed)


def many(plan: Plan, options: Sequence[Option]) -> bool:
    """Whether the peak takes more than MANY instances, even if all are the largest."""
    needed = 0.0
    for one in plan.demand:
        most = max(option.requests_per_s for option in options if option.klass == one.name)
        needed += max(one.traffic.peak_per_s(q) for q in range(plan.quarters)) / most
    return needed > MANY


def _rounded(
    program: _Program,
    plan: Plan,
    options: Sequence[Option],
    relax: Sequence[str],
    parts: Any,
    nodes: int,
    gap: float,
) -> Any:
    """The best whole answer near that with split instances, at the least margin of demand at which
    there is one; None where there is none."""
    for margin in (0.0, *MARGINS):
        loose = parts if margin == 0.0 else _more(plan, options, relax, margin, nodes, gap)
        found = None if loose.x is None else _near(program, loose, nodes, gap)
        if found is not None:
            return found
    return None


def _more(
    plan: Plan,
    options: Sequence[Option],
    relax: Sequence[str],
    margin: float,
    nodes: int,
    gap: float,
) -> Any:
    """The answer with split instances at `margin` more demand."""
    for one in plan.demand:
        name, per_s = f"{DEMAND} {one.name}", one.traffic.requests_per_s * (1.0 + margin)
        plan = with_limit(plan, name, per_s)
    return _program(plan, options, relax).run(nodes, gap, split=True)


def _near(program: _Program, loose: Any, nodes: int, gap: float) -> Any:
    """The best answer near one with split instances, or None."""
    found = program.run(nodes, gap, near=dict(zip(program.names, loose.x, strict=True)))
    return found if found.x is not None else None


def limits_of(plan: Plan) -> dict[str, float]:
    """Every limit and supply that is given, then every demand (requests per second in the mean of
    the first quarter), by name: what may be relaxed if nothing is feasible."""
    found = {name: value for name, value in asdict(plan.limits).items() if np.isfinite(value)}
    supplies = {f"{SUPPLY} {offer.label}": offer.chips_per_quarter for offer in plan.offers}
    found |= {name: chips for name, chips in supplies.items() if np.isfinite(chips)}
    return found | {f"{DEMAND} {one.name}": one.traffic.requests_per_s for one in plan.demand}


def with_limit(plan: Plan, name: str, value: float) -> Plan:
    """The plan with one of `limits_of` at another value."""
    kind, _, rest = name.partition(" ")
    if kind == DEMAND:
        changed = (
            replace(one, traffic=replace(one.traffic, requests_per_s=value))
            if one.name == rest
            else one
            for one in plan.demand
        )
        return replace(plan, demand=tuple(changed))
    if kind == SUPPLY:
        return with_offer(plan, replace(plan.offer(rest), chips_per_quarter=value))
    return replace(plan, limits=replace(plan.limits, **{name: value}))


def with_offer(plan: Plan, offer: Offer) -> Plan:
    """The plan with the offer of that label replaced. With the price of what is bought goes its
    maintenance, a share of it."""

    def changed(chip: FleetChip) -> FleetChip:
        if all(one.label != offer.label for one in chip.offers):
            return chip
        owning = chip.owning
        if offer.way == BUY and owning is not None:
            share = offer.usd / owning.capital_usd
            owning = replace(
                owning,
                server_usd=owning.server_usd * share,
                network_usd=owning.network_usd * share,
            )
        offers = tuple(offer if one.label == offer.label else one for one in chip.offers)
        return replace(chip, offers=offers, owning=owning)

    return replace(plan, chips=tuple(changed(chip) for chip in plan.chips))


def _mix(value: Mapping[tuple, float]) -> Mix:
    def whole(kind: str) -> dict:
        return {
            name[1:]: round(count)
            for name, count in value.items()
            if name[0] == kind and round(count) > 0
        }

    return Mix(orders=whole("order"), on=whole("on"), instances=whole("run"))


def settled(plan: Plan, options: Sequence[Option], mix: Mix) -> Mix:
    """The same orders, with each quarter served on the fewest chips. The program leaves this open,
    since chips that are there anyway cost nothing."""
    instances: dict[tuple[int, int], int] = {}
    for q in range(plan.quarters):
        before = {(k, at): count for (k, at), count in mix.instances.items() if at == q}
        used = {chip for k, _ in before for chip in options[k].chips}
        program = _Program()
        for k, option in enumerate(options):
            if used.issuperset(option.chips):
                # Of equally many chips, those in fewer instances.
                program.add(("run", k, q), sum(option.chips.values()) + 1e-3)
        for one in plan.demand:
            rates = [
                (name, -options[name[1]].requests_per_s)
                for name in program.names
                if options[name[1]].klass == one.name
            ]
            program.at_most(rates, -one.traffic.peak_per_s(q))
        for chip in used:
            taken = [
                (name, (1.0 + plan.spare_share) * options[name[1]].chips.get(chip, 0))
                for name in program.names
            ]
            servers = mix.on.get((chip, q), 0) - plan.spare_servers
            for order, _ in _rented(plan, chip, q):
                servers += mix.orders.get(order[1:], 0)
            program.at_most(taken, float(servers * plan.chip(chip).server))
        found = program.run(NODES, GAP)
        instances |= (
            before
            if found.x is None
            else {
                name[1:]: round(count)
                for name, count in zip(program.names, found.x, strict=True)
                if round(count) > 0
            }
        )
    return replace(mix, instances=instances)


def _program(plan: Plan, options: Sequence[Option], relax: Sequence[str]) -> _Program:
    program = _Program()
    quarters = range(plan.quarters)
    priced = 0.0 if relax else 1.0
    for q in quarters:
        for k in range(len(options)):
            program.add(("run", k, q))
    for offer in plan.offers:
        server = plan.chip(offer.chip).server
        most = offer.chips_per_quarter // server
        capped = np.isfinite(most) and f"{SUPPLY} {offer.label}" not in relax
        for q in quarters:
            usd = sum(
                discount(plan, t)
                * (rent_usd(offer, q) if offer.way == RENT else capital_usd(plan, offer, q))
                for t in quarters
                if serves(offer, q, t)
            ) + end_usd(plan, offer, q)
            fits = q + offer.lead_quarters < plan.quarters
            enough = _enough(plan, options, offer.chip)
            upper = min(most if capped else enough, enough) if fits else 0
            program.add(("order", offer.label, q), priced * usd * server, upper)
    for chip in plan.chips:
        for q in quarters:
            usd = discount(plan, q) * _running_usd(plan, chip.chip) * chip.server
            program.add(("on", chip.chip, q), priced * usd)
            if plan.spare_servers:
                program.add(("used", chip.chip, q), 0.0, 1.0)
            if np.isfinite(plan.limits.racks):
                program.add(("racks", chip.chip, q))
    for offer in plan.offers if plan.signed is not None else ():
        ordered, servers = ("order", offer.label, 0), float(plan.signed.get(offer.label, 0))
        program.at_most([(ordered, 1.0)], servers)
        program.at_most([(ordered, -1.0)], -servers)
    for name in relax:
        program.add(("relax", name), 1.0, whole=0)
    for q in quarters:
        _demand(program, plan, options, q, relax)
        for chip in plan.chips:
            _servers(program, plan, options, chip.chip, q)
        _limits(program, plan, q, relax)
    if np.isfinite(plan.limits.usd_total):
        terms = [term for q in quarters for term in _cash(plan, q)]
        _limit(program, terms, plan.limits.usd_total, "usd_total", relax)
    for offer in plan.offers:
        name = f"{SUPPLY} {offer.label}"
        if name in relax:
            server = plan.chip(offer.chip).server
            for q in quarters:
                terms = [(("order", offer.label, q), float(server))]
                _limit(program, terms, offer.chips_per_quarter, name, relax)
    return program


def _demand(
    program: _Program, plan: Plan, options: Sequence[Option], q: int, relax: Sequence[str]
) -> None:
    for one in plan.demand:
        peak = one.traffic.peak_per_s(q)
        terms: list[tuple[tuple, float]] = [
            (("run", k, q), -option.requests_per_s)
            for k, option in enumerate(options)
            if option.klass == one.name
        ]
        if f"{DEMAND} {one.name}" in relax:
            terms.append((("relax", f"{DEMAND} {one.name}"), -peak))
        program.at_most(terms, -peak)


def _rented(plan: Plan, chip: str, q: int, *, on_site: bool = False) -> list[tuple[tuple, float]]:
    """Servers of a chip that are rented in a quarter, one term an order."""
    return [
        (("order", offer.label, order), 1.0)
        for offer in plan.chip(chip).offers
        for order in range(plan.quarters)
        if offer.way == RENT and serves(offer, order, q) and (offer.on_site or not on_site)
    ]


def _servers(program: _Program, plan: Plan, options: Sequence[Option], chip: str, q: int) -> None:
    """Chips of the instances and the spares are in servers; what is on and not rented is owned."""
    one = plan.chip(chip)
    needed: list[tuple[tuple, float]] = [
        (("run", k, q), (1.0 + plan.spare_share) * option.chips[chip])
        for k, option in enumerate(options)
        if chip in option.chips
    ]
    have: list[tuple[tuple, float]] = [
        (name, -float(one.server)) for name, _ in _rented(plan, chip, q)
    ]
    have.append((("on", chip, q), -float(one.server)))
    if plan.spare_servers:
        spare = (("used", chip, q), float(plan.spare_servers * one.server))
        program.at_most([*needed, *have, spare], 0.0)
        for k, option in enumerate(options):
            if chip in option.chips:
                most = _most_instances(plan, option, q)
                program.at_most([(("run", k, q), 1.0), (("used", chip, q), -most)], 0.0)
    else:
        program.at_most([*needed, *have], 0.0)
    bought = [
        (("order", offer.label, order), -1.0)
        for offer in one.offers
        for order in range(plan.quarters)
        if offer.way == BUY and serves(offer, order, q)
    ]
    program.at_most([(("on", chip, q), 1.0), *bought], float(one.stock // one.server))


def _enough(plan: Plan, options: Sequence[Option], chip: str) -> float:
    """The most servers of a chip that a plan can use: every class at its highest peak on the option
    that takes most of the chip, and the spares."""
    one = plan.chip(chip)
    chips = sum(
        max(
            (
                max(_most_instances(plan, option, q) for q in range(plan.quarters))
                * option.chips[chip]
                for option in options
                if option.klass == served.name and chip in option.chips
            ),
            default=0.0,
        )
        for served in plan.demand
    )
    return float(np.ceil((1.0 + plan.spare_share) * chips / one.server)) + plan.spare_servers


def _most_instances(plan: Plan, option: Option, q: int) -> float:
    """Never more than serve the whole peak of the class."""
    peak = next(one for one in plan.demand if one.name == option.klass).traffic.peak_per_s(q)
    return float(np.ceil(peak / option.requests_per_s))


def _limits(program: _Program, plan: Plan, q: int, relax: Sequence[str]) -> None:
    limits = plan.limits
    servers = {
        chip.chip: [*_rented(plan, chip.chip, q, on_site=True), (("on", chip.chip, q), 1.0)]
        for chip in plan.chips
    }
    for name, of in (("watts", lambda c: c.watts * c.server), ("chips", lambda c: c.server)):
        if np.isfinite(getattr(limits, name)):
            terms: list[tuple[tuple, float]] = [
                (key, factor * of(chip))
                for chip in plan.chips
                for key, factor in servers[chip.chip]
            ]
            _limit(program, terms, getattr(limits, name), name, relax)
    if np.isfinite(limits.racks):
        for chip in plan.chips:
            per_rack = chip.chips_per_rack / chip.server
            full = (("racks", chip.chip, q), -per_rack)
            program.at_most([*servers[chip.chip], full], 0.0)
        terms = [(("racks", chip.chip, q), 1.0) for chip in plan.chips]
        _limit(program, terms, limits.racks, "racks", relax)
    if np.isfinite(limits.usd_per_hour):
        terms = [(key, usd / QUARTER_HOURS) for key, usd in _accrued(plan, q)]
        _limit(program, terms, limits.usd_per_hour, "usd_per_hour", relax)
    if np.isfinite(limits.usd_per_quarter):
        _limit(program, _cash(plan, q), limits.usd_per_quarter, "usd_per_quarter", relax)


def _limit(
    program: _Program,
    terms: list[tuple[tuple, float]],
    limit: float,
    name: str,
    relax: Sequence[str],
) -> None:
    if name in relax:
        terms = [*terms, (("relax", name), -max(limit, 1.0))]
    program.at_most(terms, limit)


def _accrued(plan: Plan, q: int) -> list[tuple[tuple, float]]:
    """Dollars of a quarter by unknown: rent, the charge for what is bought, what is on."""
    return _spent(plan, q, lambda offer, order: capital_usd(plan, offer, order))


def _cash(plan: Plan, q: int) -> list[tuple[tuple, float]]:
    """Dollars paid in a quarter by unknown: what is bought is paid whole when it arrives."""
    return _spent(
        plan,
        q,
        lambda offer, order: offer.usd_in(order) if order + offer.lead_quarters == q else 0.0,
    )


def _spent(plan: Plan, q: int, bought) -> list[tuple[tuple, float]]:
    terms: list[tuple[tuple, float]] = []
    for offer in plan.offers:
        server = plan.chip(offer.chip).server
        for order in range(plan.quarters):
            if serves(offer, order, q):
                usd = rent_usd(offer, order) if offer.way == RENT else bought(offer, order)
                terms.append((("order", offer.label, order), usd * server))
    return terms + [
        (("on", chip.chip, q), _running_usd(plan, chip.chip) * chip.server) for chip in plan.chips
    ]


def _running_usd(plan: Plan, chip: str) -> float:
    """Dollars per owned chip that is on, and quarter."""
    return upkeep_usd(plan, chip) + electricity_usd(plan, chip)
