"""The built-in model as the prior of an expensive evaluator.

A search of the model takes a second and proposes a front. The evaluator answers for a spread of it;
how far the model is off is learnt from all answers as a sum over the values of the axes, and the
corrected model proposes the next. A model that is wrong by a factor, or by another with each chip
or width, costs a few answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.pareto import Floats, Scale
from dse.problem.protocol import Evaluation, Objective, Problem
from dse.search.evaluator import SEARCH, Batch, Engine, Evaluator, Progress, Trials
from dse.search.pareto_local import drawn, refine, sample
from dse.space.space import Space

ROUNDS = 8
PROPOSING = 50_000  # evaluations of the model a round
STRENGTH = 1.0  # answers of one value of an axis that move the model half of the way


@dataclass(frozen=True, slots=True)
class Corrected:
    """The model with what was learnt of it: `tables[j]`, (values of axis j, m + c), is added to the
    logarithm of objectives that are scaled so and of what limits are held against, else to the
    objective."""

    model: Problem
    tables: tuple[Floats, ...] = ()

    @property
    def space(self) -> Space:
        return self.model.space

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return self.model.objectives

    @property
    def constraints(self) -> tuple[str, ...]:
        return self.model.constraints

    def evaluate(self, index: NDArray[np.int64]) -> Evaluation:
        found = self.model.evaluate(index)
        if not self.tables:
            return found
        F, G, m = found.F.copy(), found.G.copy(), len(self.objectives)
        off = np.zeros((len(index), m + G.shape[1]))
        for axis, table in enumerate(self.tables):
            off += table[index[:, axis]]
        for j, objective in enumerate(self.objectives):
            F[:, j] = F[:, j] * np.exp(off[:, j]) if objective.log else F[:, j] + off[:, j]
        G = np.where(G > -1.0, (G + 1.0) * np.exp(off[:, m:]) - 1.0, G)
        return Evaluation(F, G)

    def learnt(self, answers: Batch) -> Corrected:
        """The model corrected by all answers: a ridge regression on the values of the axes of how
        far it is off."""
        said = self.model.evaluate(answers.index)
        off = np.column_stack([self._off(said.F, answers.F), _log_ratio(said.G + 1, answers.G + 1)])
        rows = np.isfinite(off).all(axis=1)
        if not rows.any():
            return self
        values = [int(count) for count in self.space.cardinalities]
        starts = np.concatenate([[0], np.cumsum(values)])
        chosen = np.zeros((int(rows.sum()), starts[-1] + 1))
        chosen[:, -1] = 1.0
        for axis, start in enumerate(starts[:-1]):
            chosen[np.arange(len(chosen)), start + answers.index[rows, axis]] = 1.0
        penalty = np.full(chosen.shape[1], STRENGTH)
        penalty[-1] = 1e-6  # a factor that is the same everywhere
        weights = np.linalg.solve(chosen.T @ chosen + np.diag(penalty), chosen.T @ off[rows])
        tables = [weights[start : start + n] for start, n in zip(starts, values, strict=False)]
        tables[0] = tables[0] + weights[-1]
        return replace(self, tables=tuple(tables))

    def _off(self, said: Floats, answered: Floats) -> Floats:
        log = np.array([objective.log for objective in self.objectives])
        with np.errstate(invalid="ignore"):
            return np.where(log, _log_ratio(said, answered), answered - said)


def _log_ratio(said: Floats, answered: Floats) -> Floats:
    """Of both above 0 or both below; 0 where one is 0 or their signs differ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = answered / said
        return np.where((ratio > 0.0) | np.isinf(answered), np.log(np.abs(ratio)), 0.0)


class ModelFirst(Engine):
    """Rounds of answers for a spread of the front that the corrected model proposes."""

    name, bulk = "model-first", False

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        """Raises InputError for a problem that has no faster one."""
        model = getattr(evaluator.problem, "physics", None)
        if model is None:
            accepted = "another engine; this one takes the model as the prior of --evaluator"
            raise InputError("there is no --evaluator", field="--engine", accepted=accepted)
        corrected, answers = Corrected(model), []
        size = max(1, -(-evaluator.left // ROUNDS))
        while evaluator.left:
            proposed = _proposed(corrected, rng)
            ids = _spread(proposed, evaluator, min(size, evaluator.left))
            batch = evaluator.evaluate(evaluator.space.unrank(ids))
            batch = batch if len(batch) else sample(evaluator, rng)
            if not len(batch):
                return
            evaluator.publish(batch, SEARCH)
            answers.append(batch)
            corrected = corrected.learnt(Batch.of(answers))
            progress(evaluator.evaluations, evaluator.limit, len(evaluator.archive))


def _proposed(corrected: Corrected, rng: np.random.Generator) -> Evaluator:
    found = Evaluator(corrected)
    if found.space.size <= PROPOSING:
        found.sweep(lambda: None)
        return found
    found.limit = PROPOSING
    found.look(drawn(found, rng))
    refine(found, rng, lambda done, total, front: None)
    return found


def _spread(proposed: Evaluator, evaluator: Evaluator, n: int) -> NDArray[np.int64]:
    """At most n points of the proposed front that were not evaluated, each the farthest from the
    front so far and from those before it."""
    F, ids = proposed.archive.F, proposed.archive.ids
    new = ~evaluator.seen.contains(ids)
    if not new.any():
        return ids[:0]
    log = [objective.log for objective in evaluator.problem.objectives]
    scale = Scale.of(F, log)
    points, known = scale(F[new]), scale(evaluator.archive.F)
    far = np.full(len(points), np.inf)
    for one in known:
        far = np.minimum(far, np.abs(points - one).max(axis=1))
    chosen: list[int] = []
    for _ in range(min(n, len(points))):
        chosen.append(int(np.argmax(far)))
        far = np.minimum(far, np.abs(points - points[chosen[-1]]).max(axis=1))
    return ids[new][chosen]


ENGINES = (ModelFirst(),)
