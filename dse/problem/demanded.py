"""A study under a demand: each deployment is bought until the demand's peak is served, and is
judged by what is then paid for a token (`dse.economics.tokens`).

Without a demand nothing changes: a token costs what it does on a busy deployment. Where requests
arrive at random, a deployment serves the arrivals of the study, and further ones the same again.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.catalog import Catalog
from dse.economics.tco import YEAR_HOURS, load_share, price_by_parts
from dse.economics.tokens import Load, at_load, total_tokens_per_s
from dse.errors import InputError
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.problem.pools import Kinds
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import (
    LARGEST_DOMAIN,
    lacks_for_owning,
    lacks_power,
    power_at_meter,
    server_of,
)
from dse.schema.traffic import Demand, check_idle_once
from dse.space.candidates import Floats

TOTAL = "usd_per_million_total_tokens"
PRICES = (
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    TOTAL,
    "usd_per_million_output_tokens_all_in",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demanded(PhysicsProblem):
    """A problem whose prices of tokens are those at the average of `demand`, where there is one.
    `load_share` (chips,): of a chip-hour's price, what an idle chip does not cost; `meter_w`
    (chips,): watts at the meter, NaN where they are not known; `server` (chips,): the fewest chips
    that are had at once. Raises InputError for owned chips whose price carries idle hours as the
    demand does."""

    demand: Demand | None
    load_share: Floats
    meter_w: Floats
    server: Floats

    def __post_init__(self) -> None:
        costs = self.study.costs
        if self.demand is not None and costs is not None:
            check_idle_once(costs.value("utilisation"))

    @property
    def busy(self) -> Demanded:
        """The same at the prices of busy deployments."""
        return replace(self, demand=None)

    def on_terms(
        self, values: Mapping[str, Floats], kinds: Callable[[], Kinds]
    ) -> Mapping[str, Floats]:
        """The metrics with prices of tokens at the average of the demand."""
        if self.demand is None:
            return values
        load = self.load(self.demand, values, kinds())
        paid = {name: values[name] * load.dearer for name in PRICES}
        if load.usd_per_hour is not None and self.demand.average_tokens_per_s is not None:
            # The same but for rounding, so that what costs the same is a tie.
            paid[TOTAL] = np.asarray(
                load.usd_per_hour / (self.demand.average_tokens_per_s * 3600.0 / 1e6)
            )
        return ChainMap(paid, values)  # pyright: ignore

    def load(
        self,
        demand: Demand,
        values: Mapping[str, Floats],
        kinds: Kinds,
        slower: Floats | float = 1.0,
    ) -> Load:
        """What the demand makes of busy metrics, (n,) each, at their rate over `slower`."""
        usd, chips = values["chip_usd_per_hour"], values["chips"]
        with np.errstate(divide="ignore", invalid="ignore"):
            return at_load(
                demand,
                tokens_per_s=total_tokens_per_s(chips, usd, values[TOTAL]) / slower,
                chips=chips,
                usd_per_chip_hour=usd,
                load_share=kinds.a_dollar(self.load_share),
                server=kinds.a_chip(self.server),
                usd_per_million=(
                    values[PRICES[0]] * slower,
                    values[PRICES[1]] * slower,
                    values[TOTAL] * slower,
                ),
            )


def tokens_per_request(problem: PhysicsProblem) -> float:
    """Input and output tokens of a request, in the mean over the workloads."""
    return math.fsum(
        share.weight * float(share.workload.prompt_tokens[0] + share.workload.output_tokens[0])
        for share in problem.mix
    )


def demanded(problem: PhysicsProblem, catalog: Catalog, demand: Demand | None) -> Demanded:
    """A posed problem under a demand."""
    own = {one.name: getattr(problem, one.name) for one in fields(PhysicsProblem) if one.init}
    empty = np.zeros(len(problem.machines.ids))
    made = Demanded(**own, demand=demand, load_share=empty, meter_w=empty, server=empty + 1.0)
    return with_power(made, catalog)


def in_servers(problem: Demanded, catalog: Catalog) -> Demanded:
    """The problem with chips that are had in whole servers: scale-up domains, those of more than
    LARGEST_DOMAIN chips one by one. Raises InputError for pools of two kinds of chip."""
    if problem.pools is not None and not problem.pools.one_kind:
        raise InputError(
            "whole servers of prefill and decode pools on chips of their own",
            field="--whole-servers",
            accepted="a space whose pools have one kind of chip, or chips one by one",
        )
    size = np.array([float(server_of(catalog, chip)) for chip in problem.machines.ids])
    return replace(problem, server=np.where(size <= LARGEST_DOMAIN, size, 1.0))


def with_power(problem: Demanded, catalog: Catalog) -> Demanded:
    """The problem with what its chips draw, and what their electricity is of their price."""
    costs, ids = problem.study.costs or catalog.costs, problem.machines.ids
    owned = problem.study.price_basis == OWNED

    def share(chip: str) -> float:
        if not owned or lacks_for_owning(catalog, chip, costs):
            return 0.0
        return load_share(price_by_parts(catalog, chip, OWNED, costs))

    def watts(chip: str) -> float:
        known = lacks_power(catalog, chip, costs) is None
        return power_at_meter(catalog, chip, costs)[2] if known else np.nan

    return replace(
        problem,
        load_share=np.array([share(chip) for chip in ids]),
        meter_w=np.array([watts(chip) for chip in ids]),
    )


def at_demand(
    problem: Demanded,
    kinds: Kinds,
    busy: Metrics,
    i: int,
    intervals: Mapping[str, list[float]],
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What the demand takes of candidate `i`, as JSON: deployments, chips, watts at the meter,
    dollars, prices of a token; and its 80% intervals, those of prices at that demand. `busy` are
    the metrics of busy deployments, `intervals` theirs."""
    assert problem.demand is not None
    load = problem.load(problem.demand, busy.values, kinds)
    found, total = load.as_json(i), float(busy.values[TOTAL][i])
    usd, chips = found["usd_per_hour"], found["chips"]
    found |= {
        "usd_per_year": None if usd is None else usd * YEAR_HOURS,
        "meter_w": None if chips is None else number(chips * kinds.a_chip(problem.meter_w)[i]),
        "deployments_interval": None,
        "busy_usd_per_million_total_tokens": number(total),
    }
    if TOTAL not in intervals:
        return found, dict(intervals)
    slower = [end / total for end in intervals[TOTAL]]
    loads = [problem.load(problem.demand, busy.values, kinds, one) for one in slower]
    if load.deployments is not None:
        found["deployments_interval"] = [one.as_json(i)["deployments"] for one in loads]
    paid = {
        name: [
            float(busy.values[name][i] * times * np.atleast_1d(one.dearer)[i])
            for times, one in zip(slower, loads, strict=True)
        ]
        for name in PRICES
        if name in intervals
    }
    return found, {**intervals, **paid}
