"""The program of a fleet over several futures at once: what is ordered now is the same in all of
them, and all else is decided in each (`dse.economics.scenarios`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dse.economics.fleet import DEMAND, INSTANCES, program_of
from dse.economics.fleet_cost import Option, serves
from dse.economics.program import milp_of
from dse.schema.plan import Plan

Floats = NDArray[np.float64]
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


class Program:
    """The rows of a plan, to be repeated for futures."""

    def __init__(self, plan: Plan, options: Sequence[Option]) -> None:
        self.plan, self.options = plan, options
        self.on_time = _Rows(plan, options)
        waits = any(offer.lead_quarters for offer in plan.offers)
        self.late = _Rows(_delayed(plan), options) if waits else self.on_time

    def of(self, futures: Futures, groups: NDArray[np.intp] | None = None) -> _Joined:
        """Of futures that have an order in common, or as many as there are groups."""
        groups = np.zeros(len(futures), dtype=np.intp) if groups is None else groups
        return _Joined(self, futures, groups)


class _Rows:
    """One future's rows as arrays: entries (row, column, value), with the option, class or offer
    whose factor each is multiplied by; -1 where there is none."""

    def __init__(self, plan: Plan, options: Sequence[Option]) -> None:
        made = program_of(plan, options)
        classes = [one.name for one in plan.demand]
        offers = [offer.label for offer in plan.offers]
        # The share of all peaks that is not served has the last column.
        self.names = [*made.columns, ("relax",)]
        self.cost = np.array([*made.cost, 0.0])
        self.offer = np.array(
            [offers.index(name[1]) if name[0] == "order" else -1 for name in self.names]
        )
        self.upper = np.array([*made.upper, 1.0])
        for k, name in enumerate(self.names):
            if name[0] == "order" and self.upper[k]:
                offer = plan.offer(name[1])
                supply = offer.chips_per_quarter
                most = supply // plan.chip(offer.chip).server if np.isfinite(supply) else np.inf
                self.upper[k] = min(most, LARGER * self.upper[k] + LARGER)
        now = [name[0] in ("order", "used") and name[2] == 0 for name in self.names]
        self.now = np.flatnonzero(now)
        rows, columns, values, limits = [], [], [], []
        of_option, of_class, of_offer, limit_of = [], [], [], []
        for r, (name, (row, limit)) in enumerate(made.rows.items()):
            demand = name[0] == DEMAND
            klass, q = (classes.index(name[1]), name[2]) if demand else (-1, 0)
            terms = {**row, len(made.columns): limit} if demand else row
            scale = max(map(abs, terms.values()), default=1.0) or 1.0
            for k, value in terms.items():
                kind, *which = self.names[k]
                more = LARGER if kind == "used" and value < 0.0 else 1.0
                rows.append(r)
                columns.append(k)
                values.append(value / scale * more)
                of_option.append(which[0] if demand and kind == INSTANCES else -1)
                of_class.append((klass, q) if kind == "relax" else (-1, 0))
                dollars = name[0] in DOLLARS and kind == "order"
                of_offer.append(offers.index(which[0]) if dollars else -1)
            limits.append(limit / scale)
            limit_of.append((klass, q))
        self.row, self.column = np.array(rows), np.array(columns)
        self.value, self.limit = np.array(values), np.array(limits)
        self.of_option, self.of_offer = np.array(of_option), np.array(of_offer)
        self.of_class, self.limit_of = np.array(of_class), np.array(limit_of)

    def values(self, futures: Futures) -> Floats:
        """(n, entries)."""
        found = np.tile(self.value, (len(futures), 1))
        _times(found, self.of_option, futures.rate)
        _times(found, self.of_offer, futures.price)
        at = np.flatnonzero(self.of_class[:, 0] >= 0)
        found[:, at] *= futures.demand[:, self.of_class[at, 0], self.of_class[at, 1]]
        return found

    def limits(self, futures: Futures) -> Floats:
        """(n, rows)."""
        found = np.tile(self.limit, (len(futures), 1))
        at = np.flatnonzero(self.limit_of[:, 0] >= 0)
        found[:, at] *= futures.demand[:, self.limit_of[at, 0], self.limit_of[at, 1]]
        return found

    def costs(self, futures: Futures) -> Floats:
        """(n, columns) dollars."""
        found = np.tile(self.cost, (len(futures), 1))
        _times(found, self.offer, futures.price)
        return found


def _times(values: Floats, place: NDArray[np.intp], factors: Floats) -> None:
    at = np.flatnonzero(place >= 0)
    values[:, at] *= factors[:, place[at]]


class _Joined:
    """Futures side by side: the columns of the first quarter's orders once a group, all others once
    a future."""

    def __init__(self, program: Program, futures: Futures, groups: NDArray[np.intp]) -> None:
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
            values.append(one.values(some).ravel())
            limits.append(one.limits(some).ravel())
            start += len(at) * height
            self.usd[at] = one.costs(some)
            np.maximum.at(upper, column[at].ravel(), np.tile(one.upper, len(at)))
        entries = (np.concatenate(rows), np.concatenate(columns))
        self.factors = (np.concatenate(values), entries)
        self.limit, self.upper, self.lower = np.concatenate(limits), upper, np.zeros(size)
        self.cost = np.bincount(column.ravel(), self.usd.ravel(), minlength=size) / n
        self.relax = column[:, -1]
        self.shared = kinds * len(first.now)

    def fix(self, order: Order) -> None:
        """Orders that are known, of one group; a chip of more servers than spare ones is used."""
        plan = self.plan
        for k, name in enumerate(self.names):
            if name[0] == "order":
                self.lower[k] = self.upper[k] = order.get(name[1], 0)
            else:
                chip = plan.chip(name[1])
                there = chip.stock // chip.server + sum(
                    order.get(offer.label, 0) for offer in chip.offers if serves(offer, 0, 0)
                )
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


def _delayed(plan: Plan) -> Plan:
    """With what has a lead time a quarter later."""
    chips = tuple(
        replace(
            chip,
            offers=tuple(
                replace(offer, lead_quarters=offer.lead_quarters + (offer.lead_quarters > 0))
                for offer in chip.offers
            ),
        )
        for chip in plan.chips
    )
    return replace(plan, chips=chips)
