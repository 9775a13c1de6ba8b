"""How often each choice stays first, what it costs to be wrong, and what to measure before buying.

Notation: N draws, C choices (chips), k deployments of a choice. In a draw every choice has an error
e, standard normal, of which `shared` of the variance is the chip's, and of that COMMON is that of
its kin, the chips whose kernel laws err together (`dse.physics.intervals`):

    e = sqrt(shared) A + sqrt(1 - shared) B        A by chip, B by chip and configuration
    A = sqrt(COMMON) K + sqrt(1 - COMMON) O        K by kin, O by chip

z = e / P90 moves its times and costs along their 80% intervals (`dse.study.drawn`). Prices are
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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.physics.intervals import COMMON, eldest, normals
from dse.record import record
from dse.space.candidates import Floats, Rows
from dse.study.choices import Choice, Choices
from dse.study.drawn import P90

CHUNK = 1_000  # draws at a time
EDGES = np.array([-np.inf, *np.linspace(-2.75, 2.75, 23), np.inf])  # standard deviations
WORK = 100_000  # draws times deployments of a choice, in every cell
LIKELY = 0.005  # a chip that is first less often is not measured
Progress = Callable[[str], None]


@record
class Uncertain:
    """Choices with what is not known of them: `price_sd` (C,) of the logarithm; `demand`, requests
    per second, the ends of an 80% interval, log-normal between, or None. `kin` names those that err
    together, C names or none, where each chip errs for itself."""

    choices: Choices
    price_sd: Floats
    demand: tuple[float, float] | None = None
    kin: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Choice, ...]:
        return self.choices.items

    @property
    def eldest(self) -> NDArray[np.intp]:
        """(C,) the first choice of the same kin."""
        return eldest(self.kin) if self.kin else np.arange(len(self.items))

    def correlation(self, i: int, k: int) -> float:
        """Of the errors of two choices."""
        if i == k:
            return 1.0
        return self.choices.shared * COMMON if self.eldest[i] == self.eldest[k] else 0.0

    @property
    def demands(self) -> tuple[float, ...]:
        """Requests per second: the ends of the interval and its middle; none without a demand."""
        if self.demand is None:
            return ()
        low, high = self.demand
        return low, math.sqrt(low * high), high


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


def draw(uncertain: Uncertain, count: int, seed: int) -> Draws:
    """`count` draws; those of a chip do not depend on the chips behind it in the space."""
    items, shared = uncertain.items, uncertain.choices.shared
    children = np.random.SeedSequence(seed).spawn(len(items) + 1)
    common = np.random.default_rng(children[0])
    normal, within = common.standard_normal(count), common.uniform(1e-6, 1.0 - 1e-6, count)
    each, alone = [1] * len(items), np.arange(len(items))
    chip, price, own = normals(children[1:], count, each, alone, uncertain.eldest)
    error = math.sqrt(shared) * chip + math.sqrt(1.0 - shared) * np.concatenate(own, axis=1)
    demand = numbers = None
    if uncertain.demand is not None:
        low, middle, high = uncertain.demands
        demand = middle * np.exp(math.log(high / low) / 2.0 / P90 * normal)
    if (loss := items[0].loss) is not None:
        of_law = np.random.default_rng((seed, 4))
        numbers = np.stack([loss.doubt.posterior.draw(of_law) for _ in range(count)])
    return Draws(error, price, within, demand, numbers)


def served(
    item: Choice,
    error: Floats,
    factor: Floats,
    demand: Floats | None,
    numbers: Floats | None = None,
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """One choice in N draws, for errors (N,), a price factor (N,), requests per second (N,) or
    None, and `Draws.numbers`: the price (N,) of its cheapest deployment within the limits, inf
    where none is; the same without the limits; the deployment (N,)."""

    def at(rows: slice) -> tuple[Floats, Floats, NDArray[np.intp]]:
        z = error[rows, None] / P90
        cost = item.cost.at(z)
        if demand is not None:  # whole instances of a deployment
            needed = demand[rows, None] / (item.requests_per_s * (item.cost.value / cost))
            cost = cost * (np.ceil(needed) / needed)
        cost = cost * factor[rows, None]
        kept = np.ones(cost.shape, dtype=bool)
        for limit in item.held:
            kept &= limit.sign * limit.metric.at(z) <= limit.sign * limit.limit
        if item.loss is not None and numbers is not None:
            kept &= item.loss.kept(numbers[rows])
        within = np.where(kept, cost, np.inf)
        row = np.argmin(within, axis=1)
        return within[np.arange(len(row)), row], cost.min(axis=1), row

    parts = [at(slice(start, start + CHUNK)) for start in range(0, len(error), CHUNK)]
    price, own, row = (np.concatenate(part) for part in zip(*parts, strict=True))
    return price, own, row


def outcomes(uncertain: Uncertain, draws: Draws) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Each choice in every draw, (N, C) as in `served`."""
    factor = np.exp(uncertain.price_sd * draws.price)
    found = [
        served(item, draws.error[:, i], factor[:, i], draws.demand, draws.numbers)
        for i, item in enumerate(uncertain.items)
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


def robustness(uncertain: Uncertain, draws: Draws) -> tuple[dict[str, Floats], float, float]:
    """What N draws say of the choices, by key of the vocabulary, (C,) each: the objective as it is
    predicted and the ends of its 80% interval, the regret where every interval is at its end
    against the choice, the chances that it keeps no limits and that it is first, its expected
    regret and the 95th percentile; with the share of draws in which no choice keeps the limits, and
    the largest standard error of a chance to be first."""
    price, own, _ = outcomes(uncertain, draws)
    first, regret = judge(price, own)
    chance = (first[:, None] == np.arange(len(uncertain.items))).mean(axis=0)
    low, high = np.quantile(price, [0.1, 0.9], axis=0, method="nearest")
    middle = uncertain.demands[1] if uncertain.demand else None
    metric = uncertain.choices.objective
    columns = {
        metric: _at_end(uncertain, 0.0, middle)[0],
        f"{metric}.low": low,
        f"{metric}.high": high,
        "worst_regret_at_ends": _worst_regret(uncertain),
        "chance_misses_limits": np.isinf(price).mean(axis=0),
        "chance_first": chance,
        "expected_regret": regret.mean(axis=0),
        "regret_95": np.quantile(regret, 0.95, axis=0),
    }
    error = float(np.sqrt(chance * (1.0 - chance) / len(draws)).max())
    return columns, float((first < 0).mean()), error


def _at_end(uncertain: Uncertain, end: float, demand: float | None) -> tuple[Floats, Floats]:
    """(price, price without the limits), (C,) each, where all errors and prices lie `end` ends of
    the 80% interval away from the middle, at so many requests per second."""
    normal = np.full((1, len(uncertain.items)), end * P90)
    rate = None if demand is None else np.array([demand])
    price, own, _ = outcomes(uncertain, Draws(normal, normal, normal[:, 0], rate))
    return price[0], own[0]


def _worst_regret(uncertain: Uncertain) -> Floats:
    """(C,) the regret of a choice at the bad end of its intervals, every other at the good end, at
    the demand that is worst of the ends and the middle."""
    regrets = []
    for demand in uncertain.demands or (None,):
        price, own = _at_end(uncertain, 1.0, demand)
        good, _ = _at_end(uncertain, -1.0, demand)
        rival = np.array([np.delete(good, i).min(initial=np.inf) for i in range(len(good))])
        served_by_any = np.isfinite(rival)
        rival = np.where(served_by_any, rival, 1.0)
        loss = np.where(np.isfinite(price), price, own + rival)
        regrets.append(np.where(served_by_any, np.maximum(loss / rival - 1.0, 0.0), 0.0))
    return np.max(regrets, axis=0)


def measure_next(
    uncertain: Uncertain,
    draws: Draws,
    robust: Mapping[str, Floats],
    progress: Progress = lambda text: None,
) -> list[dict[str, Any]]:
    """Every measurement that could matter, the one that saves most chance of a wrong choice first;
    ties by regret. Empty where there is one choice. `what` of choice `i`: its price, or its error;
    `changes_choice` is the chance that what is learned makes another choice the likeliest first."""
    items, priced = uncertain.items, uncertain.choices.priced
    most = max(len(item.deployments) for item in items)
    draws = draws.take(slice(max(WORK // most, 1_000)))
    price, own, _ = outcomes(uncertain, draws)
    likely = robust["chance_first"] >= LIKELY
    likely[np.argmin(robust[uncertain.choices.objective])] = True
    asked = []
    for i in np.flatnonzero(likely).tolist() if len(items) > 1 else ():
        quoted = priced and uncertain.price_sd[i] != 0.0
        asked += [(what, i) for what in (("price", "serving") if quoted else ("serving",))]
    found = []
    for k, (what, i) in enumerate(asked):
        progress(f"measurement {k + 1} of {len(asked)}")
        told = _learned(uncertain, draws, what, i, price, own)
        found.append({"what": what, "i": i} | told)
    return sorted(
        found, key=lambda one: (-round(one["chance_saved"], 9), -one["expected_regret_saved"])
    )


def _learned(
    uncertain: Uncertain, draws: Draws, what: str, i: int, price: Floats, own: Floats
) -> dict[str, Any]:
    """`price` and `own` (N, C) are those of the draws as they are."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - 150 ms

    count = len(uncertain.items)
    below = ndtr(EDGES)
    weight = np.diff(below)
    chance, regret = np.zeros((len(weight), count)), np.zeros((len(weight), count))
    factor = np.exp(uncertain.price_sd * draws.price)
    for cell, chances in enumerate(weight):
        m = ndtri(below[cell] + chances * draws.within)
        at_price, at_own = price.copy(), own.copy()
        if what == "price":
            moved = np.exp(uncertain.price_sd[i] * (m - draws.price[:, i]))
            at_price[:, i] *= moved
            at_own[:, i] *= moved
        else:  # the choice and its kin, where its error is m
            rest = m - draws.error[:, i]
            for k in map(int, np.flatnonzero(uncertain.eldest == uncertain.eldest[i])):
                error = draws.error[:, k] + uncertain.correlation(i, k) * rest
                of = served(uncertain.items[k], error, factor[:, k], draws.demand, draws.numbers)
                at_price[:, k], at_own[:, k], _ = of
        first, lost = judge(at_price, at_own)
        chance[cell] = np.bincount(first[first >= 0], minlength=count) / len(draws)
        regret[cell] = lost.mean(axis=0)
    mean_chance, mean_regret = weight @ chance, weight @ regret
    wrong_now, regret_now = 1.0 - float(mean_chance.max()), float(mean_regret.min())
    return {
        "chance_wrong_now": wrong_now,
        "chance_saved": wrong_now - (1.0 - float(weight @ chance.max(axis=1))),
        "expected_regret_now": regret_now,
        "expected_regret_saved": regret_now - float(weight @ regret.min(axis=1)),
        "changes_choice": float(weight @ (np.argmax(chance, axis=1) != np.argmax(mean_chance))),
    }
