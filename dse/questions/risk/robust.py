"""How often each choice stays first, and what it costs to be wrong.

Notation: N draws, C choices (chips), k deployments of a choice. In a draw every configuration of a
chip has an error e, standard normal, of which `shared` of the variance is the chip's, and of that
COMMON is that of its kin, the chips whose kernel laws err together (`dse.physics.kin`):

    e = sqrt(shared) A + sqrt(1 - shared) B        A by chip, B by chip and configuration
    A = sqrt(COMMON) K + sqrt(1 - COMMON) O        K by kin, O by chip

z = e / P90 moves its times and costs along their 80% intervals (`dse.study.robust`). Prices are
log-normal, independent by chip; demand is log-normal. The price of a choice in a draw is that of
the deployment that is then cheapest within the limits. A chip that keeps the limits with no
deployment has cost nothing yet served: its loss is what it costs at its cheapest plus what the best
choice costs. With F the least price of all,

    regret[d, i] = loss[d, i] / F[d] - 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.physics.kin import COMMON, eldest, normals
from dse.questions.risk.choices import Choice, Choices
from dse.space.candidates import Floats
from dse.study.robust import P90

CHUNK = 1_000  # draws at a time


@dataclass(frozen=True, slots=True)
class RateInterval:
    """Requests per second: the ends of an 80% interval, log-normal between."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return math.sqrt(self.low * self.high)

    def draw(self, normal: Floats) -> Floats:
        return self.middle * np.exp(math.log(self.high / self.low) / 2.0 / P90 * normal)


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Choices with what is not known of them: `price_sd` (C,) of the logarithm, demand or None.
    `kin` names those that err together, C names or none, where each chip errs for itself. Shapes on
    one chip have its price and its error, and that of a configuration that they both run in."""

    choices: Choices
    price_sd: Floats
    demand: RateInterval | None = None
    kin: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Choice, ...]:
        return self.choices.items

    @property
    def eldest(self) -> NDArray[np.intp]:
        """(C,) the first choice of the same kin."""
        return eldest(self.kin) if self.kin else self.chip

    @property
    def chip(self) -> NDArray[np.intp]:
        """(C,) the first choice on the same chip."""
        return eldest([item.chip for item in self.items])

    def correlation(self, i: int, configuration: int, k: int) -> Floats:
        """(configurations of k,) of their errors with that of one configuration of choice i."""
        shared, mine = self.choices.shared, self.items[i].keys[configuration]
        if self.eldest[i] != self.eldest[k]:
            return np.zeros(self.items[k].configurations)
        part = shared if self.chip[i] == self.chip[k] else shared * COMMON
        same = np.array([key == mine for key in self.items[k].keys])
        return np.where(same, 1.0, part)


@dataclass(frozen=True, slots=True)
class Draws:
    """Standard normals: `chip` (N, C), the same on a chip and alike within a kin, and `own`,
    (N, configurations) for each choice, of errors; `price` (N, C), the same on a chip; `demand`
    (N,). `numbers` (N, 4) is what runs of the user leave of the law of quality, None without runs
    or a limit on loss. `within` (N,) is uniform: where in a cell a measured value lies
    (`dse.questions.risk.measure_next`)."""

    chip: Floats
    own: tuple[Floats, ...]
    price: Floats
    demand: Floats
    within: Floats
    numbers: Floats | None = None

    def __len__(self) -> int:
        return len(self.demand)

    def first(self, count: int) -> Draws:
        return Draws(
            self.chip[:count],
            tuple(own[:count] for own in self.own),
            self.price[:count],
            self.demand[:count],
            self.within[:count],
            None if self.numbers is None else self.numbers[:count],
        )


def draw(uncertain: Uncertain, count: int, seed: int) -> Draws:
    """`count` draws; those of a chip do not depend on the chips behind it in the space."""
    children = np.random.SeedSequence(seed).spawn(len(uncertain.items) + 1)
    shared = np.random.default_rng(children[0])
    demand, within = shared.standard_normal(count), shared.uniform(1e-6, 1.0 - 1e-6, count)
    each = [item.configurations for item in uncertain.items]
    chip, price, own = normals(children[1:], count, each, uncertain.chip, uncertain.eldest)
    numbers = None
    if (loss := uncertain.items[0].loss) is not None:
        of_law = np.random.default_rng((seed, 4))
        numbers = np.stack([loss.doubt.posterior.draw(of_law) for _ in range(count)])
    by_configuration = _by_key(uncertain.items, own)
    return Draws(chip, by_configuration, price, demand, within, numbers)


def _by_key(items: Sequence[Choice], own: Sequence[Floats]) -> tuple[Floats, ...]:
    """`own` (N, configurations) of each choice, with one column for one configuration of a chip."""
    seen: dict[str, Floats] = {}
    return tuple(
        np.stack([seen.setdefault(key, of) for key, of in zip(item.keys, each.T, strict=True)], 1)
        for item, each in zip(items, own, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Served:
    """One choice in N draws: `price` (N,) of its cheapest deployment within the limits, inf where
    none is; `own` (N,) the same without the limits; `row` (N,) the deployment."""

    price: Floats
    own: Floats
    row: NDArray[np.intp]


def served(
    item: Choice,
    error: Floats,
    factor: Floats,
    demand: Floats | None,
    numbers: Floats | None = None,
) -> Served:
    """For errors (N, configurations), a price factor (N,), requests per second (N,) or None, and
    `Draws.numbers`."""

    def rows(of: Floats | None, at: slice) -> Floats | None:
        return None if of is None else of[at]

    parts = [
        _served(item, error[at], factor[at], rows(demand, at), rows(numbers, at))
        for at in (slice(start, start + CHUNK) for start in range(0, len(error), CHUNK))
    ]
    return Served(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _served(
    item: Choice,
    error: Floats,
    factor: Floats,
    demand: Floats | None,
    numbers: Floats | None,
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    z = error[:, item.configuration] / P90
    cost = item.cost.at(z)
    if demand is not None:  # whole instances of a deployment
        capacity = item.requests_per_s * (item.cost.value / cost)
        needed = demand[:, None] / capacity
        cost = cost * (np.ceil(needed) / needed)
    cost = cost * factor[:, None]
    kept = np.ones(cost.shape, dtype=bool)
    for limit in item.held:
        kept &= limit.sign * limit.metric.at(z) <= limit.sign * limit.limit
    if item.loss is not None and numbers is not None:
        kept &= item.loss.kept(numbers)
    within = np.where(kept, cost, np.inf)
    row = np.argmin(within, axis=1)
    return within[np.arange(len(row)), row], cost.min(axis=1), row


def errors(uncertain: Uncertain, draws: Draws, i: int) -> Floats:
    """(N, configurations) of choice i."""
    shared = uncertain.choices.shared
    return math.sqrt(shared) * draws.chip[:, i, None] + math.sqrt(1.0 - shared) * draws.own[i]


def price_factors(uncertain: Uncertain, normal: Floats) -> Floats:
    """(N, C) for standard normals (N, C)."""
    return np.exp(uncertain.price_sd * normal)


def outcomes(uncertain: Uncertain, draws: Draws) -> list[Served]:
    """Each choice in every draw."""
    factor = price_factors(uncertain, draws.price)
    demand = None if uncertain.demand is None else uncertain.demand.draw(draws.demand)
    return [
        served(item, errors(uncertain, draws, i), factor[:, i], demand, draws.numbers)
        for i, item in enumerate(uncertain.items)
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """Of N draws: `first` (N,) the choice with the least price, -1 where none keeps the limits;
    `regret` (N, C), 0 there; `missed` (N, C)."""

    first: NDArray[np.intp]
    regret: Floats
    missed: NDArray[np.bool_]


def judge(price: Floats, own: Floats) -> Judged:
    """`price` and `own` (N, C) as in `Served`. Equal prices go to the choice named before."""
    least = price.min(axis=1)
    some = np.isfinite(least)
    missed = ~np.isfinite(price)
    best = np.where(some, least, 1.0)[:, None]
    loss = np.where(missed, own + best, price)
    regret = np.where(some[:, None], loss / best - 1.0, 0.0)
    return Judged(np.where(some, np.argmin(price, axis=1), -1), regret, missed)


@dataclass(frozen=True, slots=True)
class Robust:
    """Of C choices, (C,) each: `nominal` price at the prediction, `chance_first` with its
    `standard_error`, `expected_regret`, 95th percentile `regret_95`, `chance_missed`, prices at the
    ends of the 80% interval `low`, `high`; `same_deployment` the chance that its deployment of the
    prediction is the cheapest of all choices' deployments; `worst_price` and `worst_regret` where
    every interval is at its end against the choice. `none` is the share of draws in which no choice
    keeps the limits."""

    nominal: Floats
    chance_first: Floats
    standard_error: Floats
    same_deployment: Floats
    expected_regret: Floats
    regret_95: Floats
    chance_missed: Floats
    low: Floats
    high: Floats
    worst_price: Floats
    worst_regret: Floats
    none: float
    margin: Floats  # (N,) of `least_regret`: the logarithm of the best other price over its own
    configurations: tuple[NDArray[np.intp], ...]  # of each choice, most often chosen first

    @property
    def predicted(self) -> int:
        return int(np.argmin(self.nominal))

    @property
    def likeliest(self) -> int:
        return int(np.argmax(self.chance_first))

    @property
    def least_regret(self) -> int:
        return int(np.argmin(self.expected_regret))

    @property
    def least_worst_regret(self) -> int:
        return int(np.argmin(self.worst_regret))

    @property
    def least_worst_price(self) -> int:
        return int(np.argmin(self.worst_price))


def robustness(uncertain: Uncertain, draws: Draws) -> Robust:
    """What N draws say of the choices."""
    found = outcomes(uncertain, draws)
    price = np.stack([one.price for one in found], axis=1)
    judged = judge(price, np.stack([one.own for one in found], axis=1))
    count, items = len(draws), uncertain.items
    chance = np.array([(judged.first == i).mean() for i in range(len(items))])
    same = np.array(
        [((judged.first == i) & (found[i].row == item.best)).mean() for i, item in enumerate(items)]
    )
    low, high = np.quantile(
        np.where(judged.missed, np.inf, price), [0.1, 0.9], axis=0, method="nearest"
    )
    worst_price, worst_regret = corners(uncertain)
    expected = judged.regret.mean(axis=0)
    return Robust(
        nominal=np.array([_at(uncertain, i, 0.0, 0.0, None).price[0] for i in range(len(items))]),
        chance_first=chance,
        standard_error=np.sqrt(chance * (1.0 - chance) / count),
        same_deployment=same,
        expected_regret=expected,
        regret_95=np.quantile(judged.regret, 0.95, axis=0),
        chance_missed=judged.missed.mean(axis=0),
        low=low,
        high=high,
        worst_price=worst_price,
        worst_regret=worst_regret,
        none=float((judged.first < 0).mean()),
        margin=_margin(price, int(np.argmin(expected))),
        configurations=tuple(_often(item, one) for item, one in zip(items, found, strict=True)),
    )


def _margin(price: Floats, i: int) -> Floats:
    """(N,) of `price` (N, C); minus infinity where choice i keeps the limits with nothing."""
    others = np.delete(price, i, axis=1).min(axis=1, initial=np.inf)
    own = price[:, i]
    known = np.isfinite(own)
    return np.where(known, np.log(others) - np.log(np.where(known & (own > 0), own, 1)), -np.inf)


def _often(item: Choice, found: Served) -> NDArray[np.intp]:
    used = item.configuration[found.row[np.isfinite(found.price)]]
    return np.argsort(-np.bincount(used, minlength=item.configurations), kind="stable")


def _at(uncertain: Uncertain, i: int, error: float, price: float, demand: float | None) -> Served:
    """Choice i where all errors and its price lie `error` and `price` ends of the 80% interval away
    from the middle; demand as given, else its middle."""
    item = uncertain.items[i]
    if uncertain.demand is not None and demand is None:
        demand = uncertain.demand.middle
    return served(
        item,
        np.full((1, item.configurations), error * P90),
        np.exp([uncertain.price_sd[i] * price * P90]),
        None if demand is None else np.array([demand]),
    )


def corners(uncertain: Uncertain) -> tuple[Floats, Floats]:
    """(worst price, worst regret), (C,) each: a choice at the bad end of its intervals, in the
    regret every other at the good end, at the demand that is worst of the ends and the middle."""
    known = uncertain.demand
    demands = (None,) if known is None else (known.low, known.middle, known.high)
    count = len(uncertain.items)
    prices, regrets = [], []
    for demand in demands:
        bad = [_at(uncertain, i, 1.0, 1.0, demand) for i in range(count)]
        good = np.array([_at(uncertain, i, -1.0, -1.0, demand).price[0] for i in range(count)])
        price = np.array([one.price[0] for one in bad])
        rival = np.array([np.delete(good, i).min(initial=np.inf) for i in range(count)])
        own = np.array([one.own[0] for one in bad])
        served_by_any = np.isfinite(rival)
        rival = np.where(served_by_any, rival, 1.0)
        loss = np.where(np.isfinite(price), price, own + rival)
        prices.append(price)
        regrets.append(np.where(served_by_any, np.maximum(loss / rival - 1.0, 0.0), 0.0))
    return np.max(prices, axis=0), np.max(regrets, axis=0)
