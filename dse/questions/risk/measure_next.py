"""What to measure before buying: the value of learning one number.

A measurement of configuration j of chip i tells its error e exactly, and something of every other
error that is correlated with it: of the chip's other configurations, and of those of its kin. A
quote tells a chip's price. What is learned is a standard normal m, to within a cell of EDGES: which
requests in flight keep the limits is a staircase in m, and points between would miss its steps.
Within a cell the draws take values of m by its density, and are conditioned by the residual
(Matheron's rule)

    e_k' = e_k + correlation(e_k, e) (m - e)        all errors are standard normal

so that every measurement is judged on the same draws. With a choice made after it,

    chance wrong      = mean over cells of 1 - max over i P(i first | cell)
    expected regret   = mean over cells of min over i E(regret of i | cell)

and without it the mean comes before the maximum or minimum: neither can grow by learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dse.questions.risk.robust import (
    Draws,
    Robust,
    Served,
    Uncertain,
    errors,
    judge,
    outcomes,
    price_factors,
    served,
)
from dse.space.candidates import Floats

EDGES = np.array([-np.inf, *np.linspace(-2.75, 2.75, 23), np.inf])  # standard deviations
WORK = 100_000  # draws times deployments of a choice, in every cell
CONFIGURATIONS = 2  # of each chip, the most often chosen
LIKELY = 0.005  # a chip that is first less often is not measured
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """`what` of choice `i`: its price, or the error of `configuration`, for which the deployment at
    `row` stands. `wrong_now`, `wrong_after`, `regret_now`, `regret_after` as above; `changes` is
    the chance that what is learned makes another choice the likeliest first."""

    what: Literal["price", "serving"]
    i: int
    configuration: int
    row: int
    wrong_now: float
    wrong_after: float
    regret_now: float
    regret_after: float
    changes: float

    @property
    def chance_saved(self) -> float:
        return self.wrong_now - self.wrong_after

    @property
    def regret_saved(self) -> float:
        return self.regret_now - self.regret_after


def measure_next(
    uncertain: Uncertain,
    draws: Draws,
    robust: Robust,
    progress: Progress = lambda what, done, total: None,
) -> list[Measurement]:
    """Every measurement that could matter, the one that saves most chance of a wrong choice first;
    ties by regret. Empty where there is one choice."""
    most = max(len(item.configuration) for item in uncertain.items)
    draws = draws.first(max(WORK // most, 1_000))
    asked = list(_asked(uncertain, robust)) if len(uncertain.items) > 1 else []
    known = outcomes(uncertain, draws)
    price = np.stack([one.price for one in known], axis=1)
    own = np.stack([one.own for one in known], axis=1)
    found = []
    for done, one in enumerate(asked):
        progress("measurements", done, len(asked))
        found.append(_learned(uncertain, draws, one, price, own))
    return sorted(found, key=lambda one: (-round(one.chance_saved, 9), -one.regret_saved))


def _asked(uncertain: Uncertain, robust: Robust) -> Iterator[Measurement]:
    quoted = set()
    for i, item in enumerate(uncertain.items):
        if robust.chance_first[i] < LIKELY and i != robust.predicted:
            continue
        certain = uncertain.price_sd[i] == 0.0 or item.chip in quoted
        if uncertain.choices.priced and not certain:
            quoted.add(item.chip)
            yield Measurement("price", i, -1, item.best, *(math.nan,) * 5)
        own = int(item.configuration[item.best])
        often = (own, *(int(j) for j in robust.configurations[i] if j != own))
        for j in often[:CONFIGURATIONS]:
            rows = np.flatnonzero(item.configuration == j)
            row = item.best if j == own else int(rows[np.argmin(item.cost.value[rows])])
            yield Measurement("serving", i, j, row, *(math.nan,) * 5)


def _learned(
    uncertain: Uncertain, draws: Draws, asked: Measurement, price: Floats, own: Floats
) -> Measurement:
    """`price` and `own` (N, C) are those of the draws as they are."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - 150 ms

    i, count = asked.i, len(uncertain.items)
    below = ndtr(EDGES)
    weight = np.diff(below)
    chance, regret = np.zeros((len(weight), count)), np.zeros((len(weight), count))
    for cell, chances in enumerate(weight):
        m = ndtri(below[cell] + chances * draws.within)
        at_price, at_own = price.copy(), own.copy()
        if asked.what == "price":
            moved = np.exp(uncertain.price_sd[i] * (m - draws.price[:, i]))
            same = uncertain.chip == uncertain.chip[i]
            at_price[:, same] *= moved[:, None]
            at_own[:, same] *= moved[:, None]
        else:
            for k, one in _given(uncertain, draws, i, asked.configuration, m):
                at_price[:, k], at_own[:, k] = one.price, one.own
        judged = judge(at_price, at_own)
        chance[cell] = np.bincount(judged.first[judged.first >= 0], minlength=count) / len(draws)
        regret[cell] = judged.regret.mean(axis=0)
    mean_chance, mean_regret = weight @ chance, weight @ regret
    before = int(np.argmax(mean_chance))
    return replace(
        asked,
        wrong_now=1.0 - float(mean_chance.max()),
        wrong_after=1.0 - float(weight @ chance.max(axis=1)),
        regret_now=float(mean_regret.min()),
        regret_after=float(weight @ regret.min(axis=1)),
        changes=float(weight @ (np.argmax(chance, axis=1) != before)),
    )


def _given(
    uncertain: Uncertain, draws: Draws, i: int, configuration: int, m: Floats
) -> Iterator[tuple[int, Served]]:
    """Choice i and its kin in draws in which the error of one of its configurations is m (N,)."""
    rest = m - errors(uncertain, draws, i)[:, configuration]
    demand = None if uncertain.demand is None else uncertain.demand.draw(draws.demand)
    factor = price_factors(uncertain, draws.price)
    for k in map(int, np.flatnonzero(uncertain.eldest == uncertain.eldest[i])):
        told = uncertain.correlation(i, configuration, k) * rest[:, None]
        error = errors(uncertain, draws, k) + told
        yield k, served(uncertain.items[k], error, factor[:, k], demand, draws.numbers)
