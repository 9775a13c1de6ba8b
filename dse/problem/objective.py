"""The problem that a space file poses: its points through the physics, as F and G."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import number
from dse.catalog import Catalog
from dse.economics.tco import YEAR_HOURS, load_share, price_by_parts, with_basis
from dse.economics.tokens import PRICES, Load, load_at
from dse.errors import InputError
from dse.physics.machines import Machines, compile_machines
from dse.problem.describe import describe_deployment, describe_pools
from dse.problem.evaluate import Metrics
from dse.problem.mix import Mix, evaluate_mix, mix_of
from dse.problem.models import OwnLaw, own_law
from dse.problem.pools import RULES as POOL_RULES
from dse.problem.pools import Joined, Kinds, Pools
from dse.problem.protocol import Evaluation, Objective
from dse.problem.training import Trained, trained_of
from dse.quality.law import Law
from dse.rules.case import Searched
from dse.rules.registry import names
from dse.schema.axes import POOLS
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import (
    LARGEST_DOMAIN,
    lacks_for_owning,
    lacks_power,
    power_at_meter,
    server_of,
)
from dse.schema.metrics import METRICS, Limit, Measured
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.study import Study
from dse.schema.traffic import Demand, check_idle_once
from dse.space.alike import Shared, shared_by
from dse.space.batches import batch_of_values
from dse.space.candidates import CandidateBatch, Floats
from dse.space.space import Space

# A constraint of every study: a point that an objective says nothing of has no place on a front.
KNOWN = "every objective has a value"
LOAD = "concurrency"  # all else is of the deployment


class _Found(NamedTuple):
    values: Mapping[str, Floats]
    members: tuple[()] = ()  # one workload


@dataclass(frozen=True, slots=True)
class PhysicsProblem:
    """Problem of `dse.problem.protocol`: constraints are the rules of `dse.rules.registry` that
    the space can break, the limits of the user by the text that these were written in, and
    KNOWN."""

    study: Study
    space: Space
    machines: Machines
    mix: Mix
    objectives: tuple[Objective, ...]
    limits: tuple[Limit, ...]
    model: Model | None
    trained: Trained | None = None
    # Of this very problem: a changed one has its own.
    _made: dict[str, Pools] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def constraints(self) -> tuple[str, ...]:
        pools = POOL_RULES if self.pools is not None else ()
        return (*self.rules, *pools, *(limit.text for limit in self.limits), KNOWN)

    @property
    def pools(self) -> Pools | None:
        """The designs with pools of their own, None where the space has none."""
        if POOLS not in self.space.names:
            return None
        if POOLS not in self._made:
            self._made[POOLS] = Pools(
                self.space,
                self.mix[0].workload,
                self.batch_of,
                lambda batch: self._alone(batch, self.machines),
                [one.metric for one in (*self.objectives, *self.limits)],
                self.limits,
                len(self.rules),
            )
        return self._made[POOLS]

    @property
    def rules(self) -> tuple[str, ...]:
        rack = bool(self.machines.racks)
        return names(rack=rack, trained=self.trained is not None, searched=self.searched)

    @property
    def searched(self) -> Searched:
        """What the search chooses, of which its own rules keep it inside what is known."""
        if self.study.model_axes and not self.study.allow_extrapolation:
            return "shapes"
        return "deployments"

    @property
    def law(self) -> str | Law:
        """The study's quality law, moved to its loss runs where it has any."""
        own = self.own_law
        return self.study.quality_law if own is None else own.law

    @property
    def own_law(self) -> OwnLaw | None:
        """What the study's loss runs say of its law, None without runs."""
        study = self.study
        return None if study.loss_runs is None else own_law(study.quality_law, study.loss_runs)

    def batch(self, index: NDArray[np.int64]) -> CandidateBatch:
        """The candidates at canonical index (n, d); of separate pools, the decode pool."""
        if self.pools is None:
            return self.batch_of(self.space.values(index))
        return self.batch_of(self.pools.pool("decode", index))

    def batch_of(self, values: dict[str, NDArray]) -> CandidateBatch:
        """The candidates of values of all axes, (n,) each, on the grid or off it."""
        if self.study.training_tokens is not None:
            values["training_tokens"] = np.full(len(values["chip"]), self.study.training_tokens)
        return batch_of_values(values, model=self.model)

    def deployments(self, index: NDArray[np.int64]) -> list[dict[str, Any]]:
        """The deployment of each point in the names of the command line."""
        batch = self.batch(index)
        found = [describe_deployment(batch, i, self.machines) for i in range(len(index))]
        if self.pools is None:
            return found
        first = self.batch_of(self.pools.pool("prefill", index))
        rows = np.flatnonzero(self.pools.separate(index))
        for i, held in zip(rows.tolist(), self.pools.held(index[rows]).tolist(), strict=True):
            found[i] = describe_pools(describe_deployment(first, i, self.machines), found[i], held)
        return found

    def metrics(self, index: NDArray[np.int64], *, keep: bool = False) -> Metrics:
        batch = self.batch(index)
        shared = self._shared(batch, index)
        metrics = self.metrics_of(batch, self.machines, keep=keep, shared=shared)
        if self.pools is not None:
            metrics = self.pools.complete(metrics, index)
        values = self.on_terms(metrics.values, lambda: self.kinds(batch, index))
        return replace(metrics, values=values)

    def kinds(self, batch: CandidateBatch, index: NDArray[np.int64]) -> Kinds:
        """The chips of the candidates `batch` at `index`."""
        one = Kinds(batch.chip, batch.chip)
        return one if self.pools is None else self.pools.kinds(index, batch.chip)

    def on_terms(
        self, values: Mapping[str, Floats], kinds: Callable[[], Kinds]
    ) -> Mapping[str, Floats]:
        """The metrics of busy deployments, (n,) each, on the terms of the study: the same. `kinds`
        are their chips, for who asks."""
        del kinds
        return values

    def metrics_of(
        self,
        batch: CandidateBatch,
        machines: Machines,
        *,
        keep: bool = False,
        shared: Shared | None = None,
    ) -> Metrics:
        """The metrics of candidates on chips of `machines`, each pool of its own as if it did
        both phases."""
        metrics = self._alone(batch, machines, keep=keep, shared=shared)
        return metrics if self.trained is None else self.trained.complete(metrics, batch)

    def _shared(self, batch: CandidateBatch, index: NDArray[np.int64]) -> Shared | None:
        """What the candidates at `index` have in common."""
        models = self.space.codes(
            index, lambda axis: axis.rule.section == "model" or axis.rule.kind == "dtype"
        )
        deployments = self.space.codes(index, lambda axis: axis.name != LOAD)
        if models is None or deployments is None:
            return None
        return shared_by(batch, models, deployments)

    def _alone(
        self,
        batch: CandidateBatch,
        machines: Machines,
        *,
        keep: bool = False,
        shared: Shared | None = None,
    ) -> Metrics:
        return evaluate_mix(
            batch,
            self.mix,
            machines,
            training_flops=self.study.training_compute,
            keep=keep,
            law=self.law,
            unique_tokens=self.study.unique_tokens,
            searched=self.searched,
            shared=shared,
        )

    def evaluate(self, index: NDArray[np.int64]) -> Evaluation:
        """F (n, m) and G (n, c). A point without a value of every objective breaks KNOWN."""
        if self.pools is None:
            return self.judge(self.metrics(index))
        separate = self.pools.separate(index)
        if separate.all():
            return self._joined(index)
        found = Evaluation(
            np.empty((len(index), len(self.objectives))),
            np.empty((len(index), len(self.constraints))),
        )
        for rows, joined in ((separate, True), (~separate, False)):
            if rows.any():
                part = index[rows]
                one = self._joined(part) if joined else self.judge(self.metrics(part))
                found.F[rows], found.G[rows] = one.F, one.G
        return found

    def _joined(self, index: NDArray[np.int64]) -> Evaluation:
        """Of separate pools. Designs with a worker that no design may have are not joined: their
        objectives are infinite, and of the limits they are held to those that it breaks."""
        assert self.pools is not None
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            alive, dead, refused, sides = self.pools.screened(index)
            if not len(dead):
                return self._designs(self.pools.joined(index, sides=sides))
            values = np.full((len(self.objectives), len(index)), np.inf)
            amounts = np.zeros((len(self.constraints), len(index)))
            for k, amount in refused.items():
                amounts[k, dead] = amount
            if len(alive):
                found = self._designs(self.pools.joined(index[alive], sides=sides))
                values[:, alive] = found.F.T
                for k in np.flatnonzero(found.G.any(axis=0)):
                    amounts[k, alive] = found.G[:, k]
        return Evaluation(values.T, amounts.T)

    def _designs(self, designs: Joined) -> Evaluation:
        values = self.on_terms(designs.values, lambda: designs.kinds)
        return self._judged(_Found(values), designs.violations)

    def judge(self, metrics: Metrics) -> Evaluation:
        """F (n, m) and G (n, c) of metrics that were evaluated."""
        return self._judged(metrics, dict(enumerate(metrics.violations.values())))

    def _judged(self, metrics: Measured, violations: Mapping[int, Floats]) -> Evaluation:
        """`violations` by the place of a rule; 0 of those that it does not name."""
        # A row for each objective and constraint: one after the other in memory.
        values = np.stack([o.sign * metrics.values[o.metric] for o in self.objectives])
        unknown = np.isnan(values).any(axis=0)
        amounts = np.zeros((len(self.constraints), values.shape[1]))
        first = len(amounts) - 1 - len(self.limits)
        limits = {k: limit.amount(metrics) for k, limit in enumerate(self.limits, first)}
        found = {**violations, **limits, len(amounts) - 1: unknown * 1.0}
        broken = [k for k, amount in found.items() if amount.any()]  # most rules are kept by all
        for k in broken:
            amounts[k] = np.where(np.isnan(found[k]), np.inf, found[k])
        if unknown.any():
            values = np.where(np.isnan(values), np.inf, values)
        return Evaluation(values.T, amounts.T, tuple(sorted(broken)))


def on_terms(catalog: Catalog, study: Study) -> Catalog:
    """The catalog with the prices of owned chips, where the study or its training asks for them."""
    catalog = with_basis(catalog, study.price_basis, study.costs)
    if study.training is None or study.training.price_basis == study.price_basis:
        return catalog
    return with_basis(catalog, str(study.training.price_basis))


def pose(study: Study, catalog: Catalog) -> PhysicsProblem:
    """Compiles a study against the hardware catalog."""
    catalog = on_terms(catalog, study)
    space = Space.of(study)
    if study.loss_runs is not None:
        own_law(study.quality_law, study.loss_runs)  # refuses runs that no law can be moved to
    return PhysicsProblem(
        study=study,
        space=space,
        machines=compile_machines(
            catalog, space.chips, study.price_basis, study.rack, backends=space.backends
        ),
        mix=mix_of([load.row() for load in study.workloads], catalog.backends),
        objectives=tuple(
            Objective(
                o.metric,
                o.direction,
                METRICS[o.metric].log,
                o.resolution.step,
                o.resolution.relative,
            )
            for o in study.objectives
        ),
        limits=study.constraints,
        model=None if study.model is None else resolve_model(study.model),
        trained=trained_of(study, catalog),
    )


# A study under a demand.

TOTAL = "usd_per_million_total_tokens"


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
        idle_saves, server = kinds.a_dollar(self.load_share), kinds.a_chip(self.server)
        return load_at(demand, values, idle_saves, server, slower)


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
