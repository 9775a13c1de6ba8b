"""What can be bought, how often each choice stays first, what it costs to be wrong, and what to
measure before buying.

A choice is a chip of a space in the configuration (degrees and formats) that is cheapest at the
prediction. Requests in flight are chosen again in every draw, as an operator turns them until the
latencies are met. The configuration is not: only a buyer who has measured several knows which is
best. Loads are kept unless others beat them in cost and in all limited times.

Notation: N draws, C choices (chips), k deployments of a choice. In a draw every choice has an error
e, standard normal, of which `shared` of the variance is the chip's, and of that COMMON is that of
its kin, the chips whose kernel laws err together (`dse.physics.intervals`):

    e = sqrt(shared) A + sqrt(1 - shared) B        A by chip, B by chip and configuration
    A = sqrt(COMMON) K + sqrt(1 - COMMON) O        K by kin, O by chip

z = e / P90 moves its times and costs along their 80% intervals (`dse.study.decide`). Prices are
log-normal, independent by chip; demand is log-normal. The price of a choice in a draw is that of
the deployment that is then cheapest within the limits. A chip that keeps the limits with no
deployment has cost nothing yet served: its loss is what it costs at its cheapest plus what the best
choice costs. With F the least price of all,

    regret[d, i] = loss[d, i] / F[d] - 1

A measurement of chip i tells its error e exactly, and something of every other error that is
correlated with it: of those of its kin. A quote tells a chip's price. What is learned is a standard
normal m, to within a cell of EDGES: which requests in flight keep the limits is a staircase in m,
and points between would miss its steps. Within a cell the draws take values of m by its density,
and are conditioned by the residual (Matheron's rule)

    e_k' = e_k + correlation(e_k, e) (m - e)        all errors are standard normal

so that every measurement is judged on the same draws. With a choice made after it,

    chance wrong      = mean over cells of 1 - max over i P(i first | cell)
    expected regret   = mean over cells of min over i E(regret of i | cell)

and without it the mean comes before the maximum or minimum: neither can grow by learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog, with_own_chips
from dse.errors import InputError, NothingFeasible
from dse.pareto import non_dominated
from dse.physics.intervals import CLASS, COMMON, THROUGHPUT_METRICS, eldest, normals
from dse.physics.machines import Machines, compile_machines
from dse.problem.describe import describe_deployment
from dse.problem.evaluate import Metrics
from dse.problem.objective import KNOWN, PhysicsProblem, on_terms
from dse.problem.protocol import Evaluation
from dse.quality.own_runs import Doubt
from dse.record import record
from dse.schema.backend import KINDS
from dse.schema.derive import derive
from dse.schema.metrics import METRICS, Limit
from dse.schema.model import model_of
from dse.space.batches import DEPLOYMENT_AXES
from dse.space.candidates import CandidateBatch, Floats, Rows
from dse.space.space import deployments, without_pools
from dse.study.decide import LOSS, P90, Moved, configuration, ends

CHUNK = 12_000
LARGEST = 3_000_000  # points that are enumerated
IN_FLIGHT = "concurrency"
MIXED = -1  # in the place of a chip: two kinds
LOOSE = 4.0  # a deployment beyond a limit by more never comes within it
Progress = Callable[[str], None]
DRAWS = 1_000  # at a time
EDGES = np.array([-np.inf, *np.linspace(-2.75, 2.75, 23), np.inf])  # standard deviations
WORK = 100_000  # draws times deployments of a choice, in every cell
LIKELY = 0.005  # a chip that is first less often is not measured


@record
class LossHeld:
    """A limit on the predicted loss under a law that was moved to runs: `loss` (k,) nats, and what
    the runs leave of it."""

    loss: Floats
    limit: float
    doubt: Doubt

    def kept(self, numbers: Floats) -> NDArray[np.bool_]:
        """(N, k) for draws of `Posterior.draw`, (N, 4)."""
        return self.loss + self.doubt.moved(numbers.T[:, :, None]) <= self.limit


@record
class Choice:
    """A chip and its k deployments, which share one error. `held` are the limits on metrics that
    errors move; `requests_per_s` (k,) is what one deployment serves; `deployment` is the one that
    is cheapest at the prediction within the limits, `kind` how its kernel laws are known."""

    chip: str
    cost: Moved
    held: tuple[tuple[Limit, Moved], ...]
    requests_per_s: Floats
    kind: str
    deployment: Mapping[str, Any]
    loss: LossHeld | None = None


@record
class Choices:
    """`priced`: the objective is in dollars, so that prices move it. `left_out` says why a chip is
    no choice. `points` were evaluated. `shared` is the part of an error's variance that is the
    chip's. `kin`, C names, has one name for those that err together; `price_sd` (C,) is of the
    logarithm; `demand`, requests per second, the ends of an 80% interval, log-normal between, or
    None."""

    objective: str
    items: tuple[Choice, ...]
    left_out: Mapping[str, str]
    points: int
    shared: float
    price_sd: Floats
    kin: tuple[str, ...]
    demand: tuple[float, float] | None = None

    @property
    def priced(self) -> bool:
        return self.objective in THROUGHPUT_METRICS and "usd" in self.objective

    @property
    def demands(self) -> tuple[float, ...]:
        """Requests per second: the ends of the interval and its middle; none without a demand."""
        if self.demand is None:
            return ()
        low, high = self.demand
        return low, math.sqrt(low * high), high


def choices_of(
    problem: PhysicsProblem,
    objective: str | None = None,
    config: Mapping[str, Any] | None = None,
    progress: Progress = lambda text: None,
) -> Choices:
    """Every chip of the space with the model of the space, or with the shape `config` of a point,
    in its cheapest configuration; judged by the objective asked for, else by the price among those
    of the space, else by the first that an interval is known of.

    Raises InputError for a space whose model is searched where no `config` is given, for a space
    too large and an objective that no interval is known of, and NothingFeasible where no chip keeps
    the limits.
    """
    by_chip: ByChip = None
    if config is not None:
        study, codes = problem.study, range(len(problem.machines.ids))
        without_pools(study)
        model = problem.model or model_of(dict(config), str(study.path))
        by_chip = [deployments(study, [model], [config], code) for code in codes]
    usable = [m for m in CLASS if METRICS[m].log and METRICS[m].direction == "minimize"]
    own = [o.metric for o in problem.objectives if o.metric in usable]
    named = objective or next((m for m in own if "usd" in m), own[0] if own else None)
    if named not in usable:
        said = "no objective of the space has an interval" if named is None else f"read {named!r}"
        raise InputError(said, field="--objective", accepted=", ".join(usable))
    limits, doubted = _moving(problem), _loss_limit(problem) is not None
    moved = [KNOWN, *(limit.text for limit in limits)]
    fixed = [j for j, name in enumerate(problem.constraints) if name not in moved]
    output = sum((load.weight or 0.0) * load.output_tokens for load in problem.study.workloads)
    parts: list[dict[str, NDArray[Any]]] = []
    points = 0
    for batch, metrics, found, total in _tried(problem, by_chip):
        excess, cost = np.zeros(len(batch)), metrics.values[named]
        for k, limit in enumerate(limits):
            used = limit.used(metrics)
            used = np.where(np.isnan(used), np.inf if limit.sign > 0.0 else 1e-300, used)
            ratio = used / limit.limit
            excess = np.maximum(excess, ratio if limit.sign > 0.0 else 1.0 / ratio)
            found[f"held {k}"] = np.stack([used, *ends(_as(limit.metric), metrics)])
        found["excess"], found["kind"] = excess, metrics.provenance
        found["cost"] = np.stack([cost, *ends(named, metrics)])
        found["requests_per_s"] = metrics.values["output_tokens_per_s"] / output
        if doubted and (doubt := metrics.quality.doubt) is not None:
            found["loss"] = np.stack([metrics.values[LOSS], doubt.leverage, *doubt.columns])
        keeps = (problem.judge(metrics).G[:, fixed] <= 0.0).all(axis=1)
        kept = np.flatnonzero(keeps & np.isfinite(cost) & (excess <= LOOSE))
        parts.append({name: column[..., kept] for name, column in found.items()})
        points += len(batch)
        progress(f"{points:,} of {total:,} deployments")
    table = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    items, kin, left_out = [], [], {}
    if (table["excess"][table["chip"] == MIXED] <= 1.0).any():
        mixed = "prefill and decode on two kinds of chip"
        left_out[mixed] = "prices are drawn of one chip a choice"
    for code, chip in enumerate(problem.machines.ids):
        if (choice := _choice(problem, code, table, by_chip)) is None:
            left_out[chip] = "no deployment of the space keeps the limits at the prediction"
            continue
        items.append(choice)
        kin.append(problem.machines.kin[code])
    if not items:
        raise NothingFeasible("no chip of the space keeps the limits: `dse run` counts the reasons")
    shared, price_sd = problem.machines.shared_error, np.zeros(len(items))
    return Choices(named, tuple(items), left_out, points, shared, price_sd, tuple(kin))


# Candidates that keep all but the limits that errors move, and these within LOOSE. Every array ends
# in (n,): `chip`; `place` in the space, or among the deployments of a shape on that chip; `key`
# (j, n) columns that deployments with the same error share: all but requests in flight; `excess` is
# the largest used / limit; `cost` and each of `held` (3, n) are the arrays of a Moved;
# `requests_per_s`; `kind`.
_Rows = Mapping[str, NDArray[Any]]
ByChip = list[CandidateBatch] | None  # the deployments of a shape


def _tried(
    problem: PhysicsProblem, by_chip: ByChip
) -> Iterator[tuple[CandidateBatch, Metrics, dict[str, NDArray[Any]], int]]:
    """(candidates, their metrics, columns chip, key and place, all there are) in chunks: those of a
    shape `by_chip`, or of the space."""
    total = sum(map(len, by_chip or ()))
    for code, one in enumerate(by_chip or ()):
        one.chip[:] = code
        for start in range(0, len(one), CHUNK):
            batch = one[start : start + CHUNK]
            key = configuration(batch, (*DEPLOYMENT_AXES[:-1], "kv_dtype"), ("domain",)).T
            columns = {"chip": batch.chip, "key": key, "place": start + np.arange(len(batch))}
            yield batch, problem.metrics_of(batch, problem.machines), columns, total
    if by_chip is not None:
        return
    size, where = problem.space.size, str(problem.study.path)
    if problem.model is None:
        raise InputError(
            "the space searches shapes, and the cheapest is the smallest of them",
            file=where,
            field="model",
            accepted="one model, or a study of this space with --point: the shape of that point",
        )
    if size > LARGEST:
        message = f"{size:,} points"
        raise InputError(message, file=where, field="axes", accepted=f"at most {LARGEST:,}")
    names = enumerate(problem.space.names)
    kept = [k for k, name in names if name.removeprefix("decode_") != IN_FLIGHT]
    for start in range(0, size, CHUNK):
        ids = np.arange(start, min(start + CHUNK, size), dtype=np.int64)
        index = problem.space.unrank(ids)
        batch, metrics = problem.batch(index), problem.metrics(index)
        kinds = problem.kinds(batch, index)
        chip = np.where(kinds.first == kinds.second, kinds.second, MIXED)
        columns = {"chip": chip, "key": index[:, kept].T.astype(np.float64), "place": ids}
        yield batch, metrics, columns, size


def _moving(problem: PhysicsProblem) -> list[Limit]:
    """The limits on metrics that errors move."""
    return [limit for limit in problem.limits if _as(limit.metric) in CLASS]


def _as(metric: str) -> str:
    """Percentiles of the time to first token are taken to err as its median does (assumed)."""
    return "ttft_s" if metric.startswith("ttft_") else metric


def _choice(problem: PhysicsProblem, code: int, table: _Rows, by_chip: ByChip) -> Choice | None:
    """The rows of one chip that may be chosen in some draw; None where none keeps the limits."""
    limits, rows = _moving(problem), np.flatnonzero(table["chip"] == code)
    cost, within = table["cost"][0], table["excess"] <= 1.0
    if not within[rows].any():
        return None
    _, configuration = np.unique(table["key"][:, rows], axis=1, return_inverse=True)
    configuration = configuration.ravel()
    least = np.full(configuration.max() + 1, np.inf)
    np.minimum.at(least, configuration, np.where(within[rows], cost[rows], np.inf))
    rows = rows[configuration == int(np.argmin(least))]
    columns = [cost[rows]]
    columns += [one.sign * table[f"held {k}"][0, rows] for k, one in enumerate(limits)]
    rows = rows[non_dominated(np.stack(columns, axis=1))]
    best = int(np.argmin(np.where(within[rows], cost[rows], np.inf)))
    limit, law, loss = _loss_limit(problem), problem.own_law, None
    if limit is not None and law is not None:
        values, leverage, *own = table["loss"][:, rows]
        loss = LossHeld(values, limit, Doubt(tuple(own), leverage, law.posterior))
    place = table["place"][rows[best : best + 1]]
    if by_chip is None:
        (deployment,) = problem.deployments(problem.space.unrank(place))
    else:
        deployment = describe_deployment(by_chip[code], int(place[0]), problem.machines)
    held = tuple((one, Moved(*table[f"held {k}"][:, rows])) for k, one in enumerate(limits))
    cost, rates = Moved(*table["cost"][:, rows]), table["requests_per_s"][rows]
    chip, kind = problem.machines.ids[code], KINDS[table["kind"][rows[best]]]
    return Choice(chip, cost, held, rates, kind, deployment, loss)


def _loss_limit(problem: PhysicsProblem) -> float | None:
    """The least limit on the predicted loss, None without one."""
    limits = [one.limit for one in problem.limits if one.metric == LOSS and one.sign > 0.0]
    return min(limits, default=None)


# How often each choice stays first.


@record
class Draws(Rows):
    """N of them: `error` and `price` (N, C), standard normals; `demand` (N,) requests per second,
    None without one. `numbers` (N, 4) is what runs of the user leave of the law of quality, None
    without runs or a limit on loss. `within` (N,) is uniform: where in a cell a measured value
    lies."""

    error: Floats
    price: Floats
    within: Floats
    demand: Floats | None = None
    numbers: Floats | None = None

    def __len__(self) -> int:
        return len(self.within)


def draw(choices: Choices, count: int, seed: int) -> Draws:
    """`count` draws; those of a chip do not depend on the chips behind it in the space."""
    items, shared = choices.items, choices.shared
    children = np.random.SeedSequence(seed).spawn(len(items) + 1)
    common = np.random.default_rng(children[0])
    normal, within = common.standard_normal(count), common.uniform(1e-6, 1.0 - 1e-6, count)
    each, alone = [1] * len(items), np.arange(len(items))
    chip, price, own = normals(children[1:], count, each, alone, eldest(choices.kin))
    error = math.sqrt(shared) * chip + math.sqrt(1.0 - shared) * np.concatenate(own, axis=1)
    demand = numbers = None
    if choices.demand is not None:
        low, middle, high = choices.demands
        demand = middle * np.exp(math.log(high / low) / 2.0 / P90 * normal)
    if (loss := items[0].loss) is not None:
        of_law = np.random.default_rng((seed, 4))
        numbers = np.stack([loss.doubt.posterior.draw(of_law) for _ in range(count)])
    return Draws(error, price, within, demand, numbers)


def served(
    item: Choice, error: Floats, factor: Floats, draws: Draws
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """One choice in N draws, for errors (N,) and a price factor (N,), at the demand of the draws:
    the price (N,) of its cheapest deployment within the limits, inf where none is; the same without
    the limits; the deployment (N,)."""

    def at(rows: slice) -> tuple[Floats, Floats, NDArray[np.intp]]:
        z = error[rows, None] / P90
        cost = item.cost.at(z)
        if draws.demand is not None:  # whole instances of a deployment
            needed = draws.demand[rows, None] / (item.requests_per_s * (item.cost.value / cost))
            cost = cost * (np.ceil(needed) / needed)
        cost = cost * factor[rows, None]
        kept = np.ones(cost.shape, dtype=bool)
        for limit, metric in item.held:
            kept &= limit.sign * metric.at(z) <= limit.sign * limit.limit
        if item.loss is not None and draws.numbers is not None:
            kept &= item.loss.kept(draws.numbers[rows])
        within = np.where(kept, cost, np.inf)
        row = np.argmin(within, axis=1)
        return within[np.arange(len(row)), row], cost.min(axis=1), row

    parts = [at(slice(start, start + DRAWS)) for start in range(0, len(error), DRAWS)]
    price, own, row = (np.concatenate(part) for part in zip(*parts, strict=True))
    return price, own, row


def outcomes(choices: Choices, draws: Draws) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Each choice in every draw, (N, C) as in `served`."""
    factor = np.exp(choices.price_sd * draws.price)
    found = [
        served(item, draws.error[:, i], factor[:, i], draws) for i, item in enumerate(choices.items)
    ]
    price, own, row = (np.stack(part, axis=1) for part in zip(*found, strict=True))
    return price, own, row


def judge(price: Floats, own: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Of N draws, `price` and `own` (N, C) as in `served`: the choice (N,) with the least price, -1
    where none keeps the limits, of equal ones that named before; and the regret (N, C), 0 there."""
    least = price.min(axis=1)
    some = np.isfinite(least)
    best = np.where(some, least, 1.0)[:, None]
    loss = np.where(np.isfinite(price), price, own + best)
    regret = np.where(some[:, None], loss / best - 1.0, 0.0)
    return np.where(some, np.argmin(price, axis=1), -1), regret


def robustness(choices: Choices, draws: Draws) -> tuple[dict[str, Floats], float, float]:
    """What N draws say of the choices, by key of the vocabulary, (C,) each: the objective as it is
    predicted and the ends of its 80% interval, the regret where it is at the bad end of its
    intervals and every other at the good end, at the demand that is worst of the ends and the
    middle, the chances that it keeps no limits and that it is first, its expected
    regret and the 95th percentile; with the share of draws in which no choice keeps the limits, and
    the largest standard error of a chance to be first."""
    price, own, _ = outcomes(choices, draws)
    first, regret = judge(price, own)
    chance = (first[:, None] == np.arange(len(choices.items))).mean(axis=0)
    low, high = np.quantile(price, [0.1, 0.9], axis=0, method="nearest")
    middle = choices.demands[1] if choices.demand else None
    metric, worst = choices.objective, []
    for demand in choices.demands or (None,):
        bad, alone = _at_end(choices, 1.0, demand)
        good, _ = _at_end(choices, -1.0, demand)
        rival = np.array([np.delete(good, i).min(initial=np.inf) for i in range(len(good))])
        served_by_any = np.isfinite(rival)
        rival = np.where(served_by_any, rival, 1.0)
        loss = np.where(np.isfinite(bad), bad, alone + rival)
        worst.append(np.where(served_by_any, np.maximum(loss / rival - 1.0, 0.0), 0.0))
    columns = {
        metric: _at_end(choices, 0.0, middle)[0],
        f"{metric}.low": low,
        f"{metric}.high": high,
        "worst_regret_at_ends": np.max(worst, axis=0),
        "chance_misses_limits": np.isinf(price).mean(axis=0),
        "chance_first": chance,
        "expected_regret": regret.mean(axis=0),
        "regret_95": np.quantile(regret, 0.95, axis=0),
    }
    error = float(np.sqrt(chance * (1.0 - chance) / len(draws)).max())
    return columns, float((first < 0).mean()), error


def _at_end(choices: Choices, end: float, demand: float | None) -> tuple[Floats, Floats]:
    """(price, price without the limits), (C,) each, where all errors and prices lie `end` ends of
    the 80% interval away from the middle, at so many requests per second."""
    normal = np.full((1, len(choices.items)), end * P90)
    rate = None if demand is None else np.array([demand])
    price, own, _ = outcomes(choices, Draws(normal, normal, normal[:, 0], rate))
    return price[0], own[0]


def measure_next(
    choices: Choices,
    draws: Draws,
    robust: Mapping[str, Floats],
    progress: Progress = lambda text: None,
) -> list[dict[str, Any]]:
    """Every measurement that could matter, the one that saves most chance of a wrong choice first;
    ties by regret. Empty where there is one choice. `what` of choice `i`: its price, or its error;
    `changes_choice` is the chance that what is learned makes another choice the likeliest first."""
    items, priced = choices.items, choices.priced
    most = max(len(item.requests_per_s) for item in items)
    draws = draws.take(slice(max(WORK // most, 1_000)))
    price, own, _ = outcomes(choices, draws)
    likely = robust["chance_first"] >= LIKELY
    likely[np.argmin(robust[choices.objective])] = True
    asked = []
    for i in np.flatnonzero(likely).tolist() if len(items) > 1 else ():
        quoted = priced and choices.price_sd[i] != 0.0
        asked += [(what, i) for what in (("price", "serving") if quoted else ("serving",))]
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - 150 ms

    count, below, of_kin = len(items), ndtr(EDGES), eldest(choices.kin)
    weight = np.diff(below)
    factor = np.exp(choices.price_sd * draws.price)
    found = []
    for step, (what, i) in enumerate(asked):
        progress(f"measurement {step + 1} of {len(asked)}")
        chance, regret = np.zeros((len(weight), count)), np.zeros((len(weight), count))
        for cell, chances in enumerate(weight):
            m = ndtri(below[cell] + chances * draws.within)
            at_price, at_own = price.copy(), own.copy()
            if what == "price":
                moved = np.exp(choices.price_sd[i] * (m - draws.price[:, i]))
                at_price[:, i] *= moved
                at_own[:, i] *= moved
            else:  # the choice and its kin, where its error is m
                rest = m - draws.error[:, i]
                for k in map(int, np.flatnonzero(of_kin == of_kin[i])):
                    correlation = 1.0 if k == i else choices.shared * COMMON
                    error = draws.error[:, k] + correlation * rest
                    told = served(items[k], error, factor[:, k], draws)
                    at_price[:, k], at_own[:, k], _ = told
            first, lost = judge(at_price, at_own)
            chance[cell] = np.bincount(first[first >= 0], minlength=count) / len(draws)
            regret[cell] = lost.mean(axis=0)
        mean_chance, mean_regret = weight @ chance, weight @ regret
        wrong_now, regret_now = 1.0 - float(mean_chance.max()), float(mean_regret.min())
        turned = np.argmax(chance, axis=1) != np.argmax(mean_chance)
        found.append(
            {
                "what": what,
                "i": i,
                "chance_wrong_now": wrong_now,
                "chance_saved": wrong_now - (1.0 - float(weight @ chance.max(axis=1))),
                "expected_regret_now": regret_now,
                "expected_regret_saved": regret_now - float(weight @ regret.min(axis=1)),
                "changes_choice": float(weight @ turned),
            }
        )
    return sorted(
        found, key=lambda one: (-round(one["chance_saved"], 9), -one["expected_regret_saved"])
    )


# Candidates of one chip, as it is or with a figure changed, against the front of a study.

MARGIN = 1e-9  # a deployment that is on the front already differs from itself by rounding alone


@dataclass(frozen=True, slots=True)
class Tried:
    """Every candidate on one variant of the chip. `enters` (n,)."""

    machines: Machines
    found: Evaluation
    bottleneck: np.ndarray
    enters: np.ndarray


@dataclass(slots=True)
class Trials:
    """Candidates of one chip against a front of F (k, m)."""

    problem: PhysicsProblem
    catalog: Catalog
    chip: str
    batch: CandidateBatch
    front: Floats

    def __post_init__(self) -> None:
        without_pools(self.problem.study)

    @property
    def basis(self) -> str:
        return self.problem.study.price_basis

    @property
    def price(self) -> float | None:
        found = self.catalog.prices.select(self.basis).get(self.chip)
        return found.usd_per_chip_hour if found else None

    def machines(self, setting: str | None) -> Machines:
        """The chip with one setting of `derive`. Raises InputError."""
        catalog, name = self.catalog, self.chip
        if setting is not None:
            own = derive(catalog, self.chip, [setting])
            catalog = on_terms(with_own_chips(catalog, [own]), self.problem.study)
            name = own.chip.id
        software = [one.id for one in self.problem.machines.backends]
        return compile_machines(catalog, [name], self.basis, backends=software)

    def try_(self, machines: Machines, rows: np.ndarray | None = None) -> Tried:
        """The candidates at `rows` (all by default) on `machines`."""
        batch, parts = self.batch if rows is None else self.batch[rows], []
        for start in range(0, len(batch), CHUNK):
            metrics = self.problem.metrics_of(batch[start : start + CHUNK], machines)
            found = self.problem.judge(metrics)
            parts.append((found.F, found.G, metrics.performance.detail.bottleneck))
        F, G, bottleneck = map(np.concatenate, zip(*parts, strict=True))
        found = Evaluation(F, G)
        return Tried(machines, found, bottleneck, entering(self.front, found))


def entering(front: Floats, found: Evaluation) -> np.ndarray:
    """(n,) whether a feasible row is better than every row of `front` (k, m) in some objective, by
    more than MARGIN of its size. Of two rows that enter and of which one beats the
    other, the better alone."""
    enters = np.zeros(len(found.F), dtype=bool)
    rows = np.flatnonzero((found.G <= 0.0).all(axis=1) & np.isfinite(found.F).all(axis=1))
    if len(rows):
        F = found.F[rows]
        F = F + MARGIN * np.abs(F)
        keep = non_dominated(F)
        # Of equal rows only the first is kept, and the front comes first.
        both = non_dominated(np.concatenate([front, F[keep]]))
        enters[rows[keep]] = both[len(front) :]
    return enters


def gap(front: Floats, F: Floats) -> Floats:
    """(n,) the factor by which every objective would have to be better for the row to be beaten by
    no row of the front: max over the front of min over objectives of value / front's value."""
    worst = np.zeros(len(F))
    with np.errstate(divide="ignore", invalid="ignore"):
        for point in front:  # over the front, not over candidates
            ratios = np.where(point > 0.0, F / point, point / F)
            worst = np.maximum(worst, np.nanmin(ratios, axis=1))
    return worst
