"""Engines that ask an Optuna sampler: NSGA-II, TPE, Gaussian process, quasi-random, random, and any
other by its import path.

The sampler works on a study in memory whose parameters are axis positions (an integer for a
scale, a category for a kind). A batch is asked, evaluated in one vectorised call and told with its
named constraints, and its points are published to the study of record. A draw that repeats an
evaluated point is asked again; if the sampler has no other idea, an unseen random point takes its
place. So no trial is a duplicate.

Processes that share a study through Optuna's storage each ask a sampler of their own, which is told
what the others stored before every batch. Of two that draw the same, the second begins other random
numbers, as samplers do for Optuna's own threads (`reseed_rng`).

What a user names by an import path, a function or a sampler, is imported here too. Naming it runs
its code, which is why it stands on the command line and never in a space file.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import moocore
import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import Trial, TrialState, create_trial

from dse.errors import DseError, InputError
from dse.search import pareto_local
from dse.search.evaluator import SEARCH, Batch, Engine, Evaluator, Progress, Trials
from dse.space.space import Space

_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def imported(entry: str, field: str, accepted: str) -> Any:
    """The object `package.module:name`, looked for in the current folder too. Raises InputError
    when there is none."""
    if not _ENTRY.fullmatch(entry):
        raise InputError(f"read {entry!r}", field=field, accepted=accepted)
    module, name = entry.split(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise InputError(
            f"{entry} cannot be imported: {type(error).__name__}: {error}",
            field=field,
            accepted=accepted,
        ) from error


optuna.logging.set_verbosity(optuna.logging.WARNING)

REDRAWS = 4
POPULATION = 100
SEEDS_MOST = 500
# A trial belongs to a generation, and may become a parent, only by this attribute.
GENERATION = NSGAIISampler._get_generation_key()


class AskTell:
    """Batches asked of one sampler for one evaluator."""

    def __init__(
        self, evaluator: Evaluator, sampler: BaseSampler, rng: np.random.Generator
    ) -> None:
        self.evaluator, self._rng = evaluator, rng
        space = evaluator.space
        self._distributions = positions(space)
        self._axes = [space.names.index(name) for name in self._distributions]
        self._worst = np.zeros(len(evaluator.problem.objectives))
        self.study = optuna.create_study(
            directions=["minimize" for _ in evaluator.problem.objectives], sampler=sampler
        )

    def seed(self, batch: Batch) -> None:
        """Give the sampler points evaluated elsewhere, as the generation that it starts from."""
        self._add(batch, generation=0)
        self.evaluator.publish(batch, SEARCH)

    def batch(self, n: int, generation: int) -> int:
        """Ask, evaluate and tell n new points; return how many there were."""
        trials, index = self._ask(n)
        strangers = self._strangers(n - len(trials), index)
        batch = self.evaluator.evaluate(np.concatenate([index, strangers]))
        values, constraints = self._columns(batch)
        for row, trial in enumerate(trials):
            if row >= len(batch):
                self.study.tell(trial, state=TrialState.FAIL)
                continue
            for name, value in constraints[row].items():
                trial.set_constraint(name, value)
            self.study.tell(trial, values[row])
        self._add(batch.take(np.arange(len(trials), len(batch))), generation)
        stored = self.evaluator.publish(batch, SEARCH)
        if self.evaluator.others is not None and stored < len(batch):
            self.study.sampler.reseed_rng()
            self._rng = np.random.default_rng()
        return len(batch)

    def learn(self, generation: int) -> int:
        """Tell the sampler what other processes stored; return how many points there were."""
        if self.evaluator.others is None:
            return 0
        index = self.evaluator.space.unrank(self.evaluator.others())
        batch = self.evaluator.evaluate(index)
        self._add(batch, generation)
        return len(batch)

    def _ask(self, n: int) -> tuple[list[Trial], NDArray[np.int64]]:
        """At most n trials whose points are new and distinct, and their index (k, d)."""
        space, seen = self.evaluator.space, self.evaluator.seen
        trials: list[Trial] = []
        rows: list[NDArray[np.int64]] = []
        taken: set[int] = set()
        for _ in range(n):
            for _ in range(REDRAWS):
                trial = self.study.ask(self._distributions)
                row = np.zeros((1, len(space.names)), dtype=np.int64)
                row[0, self._axes] = [trial.params[name] for name in self._distributions]
                row = space.canonical(row)
                point = space.rank(row)
                if not seen.contains(point)[0] and int(point[0]) not in taken:
                    taken.add(int(point[0]))
                    trials.append(trial)
                    rows.append(row)
                    break
                self.study.tell(trial, state=TrialState.FAIL)
        return trials, np.concatenate([np.empty((0, len(space.names)), dtype=np.int64), *rows])

    def _strangers(self, n: int, taken: NDArray[np.int64]) -> NDArray[np.int64]:
        """At most n random points, neither evaluated before nor among `taken`."""
        space = self.evaluator.space
        if n == 0:
            return taken[:0]
        index = space.sample(self._rng, 4 * n)
        ids = space.rank(index)
        new = ~self.evaluator.seen.contains(ids) & ~np.isin(ids, space.rank(taken))
        return self._rng.permutation(index[new])[:n]

    def _add(self, batch: Batch, generation: int) -> None:
        """Trials that were not asked for."""
        names = self.evaluator.space.names
        values, constraints = self._columns(batch)
        self.study.add_trials(
            create_trial(
                values=values[row],
                params={names[axis]: int(batch.index[row, axis]) for axis in self._axes},
                distributions=self._distributions,
                constraints=constraints[row],
                system_attrs={GENERATION: generation},
            )
            for row in range(len(batch))
        )

    def _columns(self, batch: Batch) -> tuple[list[list[float]], list[dict[str, float]]]:
        """Values and named constraints of each trial. An infinite objective (of an infeasible
        point) becomes the worst finite one so far: samplers standardise by them."""
        finite = np.where(np.isfinite(batch.F), batch.F, -np.inf)
        worst = finite.max(axis=0, initial=-np.inf)
        self._worst = np.where(np.isfinite(worst), np.maximum(self._worst, worst), self._worst)
        names = self.evaluator.problem.constraints
        return (
            np.where(np.isfinite(batch.F), batch.F, self._worst).tolist(),
            [dict(zip(names, row, strict=True)) for row in batch.G.tolist()],
        )


def positions(space: Space) -> dict[str, BaseDistribution]:
    """Of each axis with a choice the positions of its values: an integer of a scale, a category of
    kinds."""
    return {
        space.names[axis]: IntDistribution(0, int(count) - 1)
        if space.ordered[axis]
        else CategoricalDistribution(tuple(range(int(count))))
        for axis, count in enumerate(space.cardinalities)
        if count > 1
    }


class Nsga2(Engine):
    """A large sample, NSGA-II (Deb et al. 2002) from its best points, then neighbours of the
    front until none helps."""

    name, bulk = "nsga2", True
    trials = 1_000

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        sampler = NSGAIISampler(population_size=POPULATION, seed=_seed(rng))
        loop = AskTell(evaluator, sampler, rng)
        loop.seed(best(pareto_local.sample(evaluator, rng)))
        asked = min(self.trials, evaluator.left // 4) if trials is None else trials
        _ask_all(loop, asked, POPULATION, progress)
        pareto_local.refine(evaluator, rng, progress)


@dataclass(frozen=True, slots=True)
class SamplerEngine(Engine):
    """One Optuna sampler on its own, `batch` trials at a time; `sampler` makes it of a `seed`."""

    name: str
    sampler: Callable[..., BaseSampler]
    trials: int
    batch: int
    bulk: bool = False

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        size = 1 if evaluator.one_by_one else self.batch
        with _said(self.name) if is_path(self.name) else nullcontext():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                sampler = self.sampler(seed=_seed(rng))
            loop = AskTell(evaluator, sampler, rng)
            _ask_all(loop, self.trials if trials is None else trials, size, progress)


def is_path(name: str) -> bool:
    """Whether an engine is named by an import path."""
    return ":" in name


def sampler_engine(path: str) -> SamplerEngine:
    """The engine of `package.module:Sampler`, a class of `optuna.samplers.BaseSampler` that takes
    `seed`; it is asked for one trial at a time. Raises InputError for anything else."""
    field, accepted = "--engine", "package.module:Sampler, a class of optuna.samplers.BaseSampler"
    cls = imported(path, field, accepted)
    if not (isinstance(cls, type) and issubclass(cls, BaseSampler)):
        raise InputError(f"{path} is no sampler of Optuna", field=field, accepted=accepted)
    if "seed" not in inspect.signature(cls).parameters:
        raise InputError(f"{path} takes no seed", field=field, accepted="a sampler that takes seed")
    return SamplerEngine(path, cls, trials=300, batch=1)


@contextmanager
def _said(path: str) -> Iterator[None]:
    """What a sampler of the user raises, as an InputError."""
    try:
        yield
    except DseError:
        raise
    except Exception as error:  # it may raise anything
        raise InputError(
            f"{path} failed: {type(error).__name__}: {error}",
            field="--engine",
            accepted="a sampler that can be made with a seed alone, for several objectives",
        ) from error


def gp_sampler(seed: int) -> BaseSampler:
    """Raises InputError when torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "the Gaussian-process sampler needs torch, which is not installed",
            field="--engine gp",
            accepted="pip install torch, or another engine",
        )
    return GPSampler(n_startup_trials=20, seed=seed, warn_independent_sampling=False)


tpe = partial(TPESampler, n_startup_trials=40, constant_liar=True)
qmc = partial(QMCSampler, scramble=True, warn_independent_sampling=False)
ENGINES = (
    Nsga2(),
    SamplerEngine("tpe", tpe, trials=300, batch=20),
    SamplerEngine("gp", gp_sampler, trials=60, batch=1),
    SamplerEngine("qmc", qmc, trials=1_000, batch=100),
    SamplerEngine("random", RandomSampler, trials=1_000, batch=100),
)


def best(batch: Batch) -> Batch:
    """The rows that NSGA-II would rank first: feasible ones by non-domination rank, then the
    others by violation. All of the first rank up to 500, and at least a population."""
    violation = batch.violation
    feasible = violation == 0
    rank = np.zeros(len(batch), dtype=np.int64)
    if feasible.any():
        rank[feasible] = moocore.pareto_rank(np.nan_to_num(batch.F[feasible]))
    rank[~feasible] = len(batch)
    order = np.lexsort((batch.ids, violation, rank))
    first = int((feasible & (rank == rank[order[0]])).sum())
    return batch.take(order[: max(POPULATION, min(first, SEEDS_MOST))])


def _ask_all(loop: AskTell, trials: int, size: int, progress: Progress) -> None:
    evaluator, told, generation = loop.evaluator, 0, 0
    while True:
        generation += 1
        told += loop.learn(generation)
        if told >= trials or not evaluator.left:
            return
        new = loop.batch(min(size, trials - told, evaluator.left), generation)
        if new == 0:
            return
        told += new
        progress(evaluator.evaluations, None, len(evaluator.archive))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
