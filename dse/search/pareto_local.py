"""A large vectorised sample, then every one-parameter neighbour of the front, and some
two-parameter ones, until none helps.

The neighbourhood search is Pareto local search (Paquete, Chiarandini and Stuetzle 2004, LNEMS 535,
177-199) with its expansions made in bulk: a round evaluates the neighbours of many points of the
front at once.

The same as an Optuna sampler, for studies whose objective is a function of one trial:

    study = optuna.create_study(
        directions=["minimize", "minimize"], sampler=ParetoLocalSampler(seed=0)
    )
    study.optimize(objective, n_trials=2_000)

It shares with the engine the choice of what to look around (`dse.search.evaluator.promising`); the
engine evaluates thousands of neighbours in a call, the sampler hands them out trial by trial.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from dse.pareto import Archive
from dse.search.engine import Budget, Progress, tenth
from dse.search.evaluator import SEARCH, Batch, Evaluator, SeenIds, promising
from dse.search.record import active_axes

LEAST_SAMPLE = 2_000
MOST_SAMPLE = 100_000
# Points expanded in a round: those of the front, and near it where the front has none left. A
# thousandth of the evaluations, and a 500th.
LEAST_EXPANDED, MOST_EXPANDED, MOST_NEAR = 8, 64, 256
VAIN = 6
# Expanded points that become trials: the way of the search, until it is near the front.
MOST_SHOWN = 500


class ParetoLocal:
    """A sample, then rounds of moves until nothing helps or the evaluations are spent."""

    name, bulk = "pareto-local", True

    def evaluations(self, size: int) -> int:
        return tenth(size)

    def run(
        self, evaluator: Evaluator, budget: Budget, rng: np.random.Generator, progress: Progress
    ) -> None:
        evaluator.look(drawn(evaluator, rng))
        refine(evaluator, rng, progress)


def drawn(evaluator: Evaluator, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random sample, index (n, d): a hundredth of the space, from 2,000 to 100,000 points, at
    most a quarter of the evaluations left."""
    return evaluator.space.sample(rng, _sample_size(evaluator))


def sample(evaluator: Evaluator, rng: np.random.Generator) -> Batch:
    """Evaluate a random sample."""
    return evaluator.evaluate(drawn(evaluator, rng))


def leaps(evaluator: Evaluator, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many random two-parameter neighbours of the front, index (n, d): where two choices only
    pay together (more chips and a wider split), no single step leads on. Axes that begin to count
    with a move (those of experts, once there are experts) take random values."""
    space, ids = evaluator.space, evaluator.archive.ids
    if not len(ids):
        return drawn(evaluator, rng)
    front = space.unrank(ids)
    chosen = rng.integers(len(ids), size=_sample_size(evaluator))
    index, active = front[chosen], active_axes(space, front)
    for axis in np.flatnonzero(~active.all(axis=0)):
        idle = np.flatnonzero(~active[chosen, axis])
        index[idle, axis] = rng.integers(space.cardinalities[axis], size=len(idle))
    rows, many = np.arange(len(index)), np.flatnonzero(space.cardinalities > 1)
    for _ in range(2):
        axis = rng.choice(many, len(index))
        values = space.cardinalities[axis]
        # a step of 1 to values - 1 around the circle: any other value, each as likely
        index[rows, axis] = (index[rows, axis] + rng.integers(1, values)) % values
    return space.canonical(index)


def _sample_size(evaluator: Evaluator) -> int:
    size = evaluator.space.size // 100
    return min(max(LEAST_SAMPLE, min(size, MOST_SAMPLE)), max(1, evaluator.left // 4))


def refine(evaluator: Evaluator, rng: np.random.Generator, progress: Progress) -> None:
    """Expand points in rounds until the evaluations are spent or nothing helps. First the front, 8
    to 64 a round; where it has fewer left, the points that are better than the front but for a
    small violation, up to 256; when those are expanded too, two-parameter moves, at last a fresh
    sample. Six of these in a row that bring nothing new end the search.

    Each round takes the most useful points of that moment, so that no evaluation goes to the
    neighbours of a point that has been dominated since.
    """
    space, expanded = evaluator.space, SeenIds(evaluator.space.size)
    width = min(max(evaluator.limit // 1_000, LEAST_EXPANDED), MOST_EXPANDED)
    near = min(max(evaluator.limit // 500, width), MOST_NEAR)
    log = [objective.log for objective in evaluator.problem.objectives]
    vain, looked, shown = 0, evaluator.archive.ids, 0

    def fresh(ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ~expanded.contains(ids)

    while evaluator.left:
        ids = promising(
            evaluator.archive, evaluator.relaxed, fresh, log, rng, width=width, near=near
        )
        if len(ids):
            expanded.add(ids)
            evaluator.publish_ids(ids[: MOST_SHOWN - shown], SEARCH)
            shown = min(shown + len(ids), MOST_SHOWN)
            evaluator.look(space.neighbours(space.unrank(ids)))
        else:
            vain = vain + 1 if np.array_equal(looked, evaluator.archive.ids) else 1
            if vain > VAIN:
                return
            looked = evaluator.archive.ids
            found = evaluator.look(leaps(evaluator, rng)) if vain < VAIN else 0
            if not (found or evaluator.look(drawn(evaluator, rng))):
                return
        progress(evaluator.evaluations, evaluator.limit, len(evaluator.archive))


ENGINES = (ParetoLocal(),)


Params = dict[str, Any]
Key = frozenset[tuple[str, Any]]

ALL_VALUES = 32
STEPS = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
REDRAWS = 10
PAIRS = 16


class ParetoLocalSampler(BaseSampler):
    """Random trials, then every one-parameter neighbour of the points of the front.

    A neighbour has another value of one parameter: any other one of a category or of a scale of at
    most 32 values; else 1/2 to 1/64 of the range up and down, in logarithm where the distribution
    is. The point of the front that contributes most to its hypervolume comes first; when all are
    expanded, nearly feasible points; then moves in two parameters at once, and random points. No
    point is proposed twice while the space has others at hand. Works for one objective or several,
    with `trial.set_constraint`, with conditional parameters (those that a neighbour shares with
    its origin keep their values) and with several threads.

    Args:
        n_startup_trials: random trials before the first neighbour.
        log: one flag an objective: its logarithm counts in the hypervolume. Such an objective is
            never 0. None: no objective.
        seed: of the random draws.
    """

    def __init__(
        self,
        *,
        n_startup_trials: int = 100,
        log: Sequence[bool] | None = None,
        seed: int | None = None,
    ) -> None:
        self._startup, self._log = n_startup_trials, log
        self._random = RandomSampler(seed)
        self._rng = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._study: tuple[int, int] | None = None
        self._forget(1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def reseed_rng(self) -> None:
        self._random.reseed_rng()
        self._rng = np.random.default_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        with self._lock:
            self._of(study)
            return self._space.calculate(study)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        with self._lock:
            self._of(study)
            if not self._queue:
                self._read(study)
                self._fill()
            params, proposal = self._proposal(study, trial, search_space)
            for _ in range(REDRAWS):
                if _key(proposal) not in self._known:
                    break
                params, proposal = self._proposal(study, trial, search_space)
            if proposal:
                self._known.add(_key(proposal))
            self._proposals[trial.number] = proposal
            return params

    def _proposal(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> tuple[Params, Params]:
        """(parameters of the search space, with those of conditions) of the next point."""
        next_one = self._queue.popleft() if self._queue else {}
        params = {
            name: next_one[name]
            if name in next_one and _holds(distribution, next_one[name])
            else self._random.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }
        return params, next_one | params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        value = self._proposals.get(trial.number, {}).get(param_name, self)
        if value is not self and _holds(param_distribution, value):
            return value
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        with self._lock:
            self._proposals.pop(trial.number, None)

    def _of(self, study: Study) -> None:
        """Forget another study."""
        identity = (id(study._storage), study._study_id)
        if self._study != identity:
            self._study = identity
            self._forget(len(study.directions))

    def _forget(self, objectives: int) -> None:
        self._space = IntersectionSearchSpace()
        self._front, self._relaxed = Archive(objectives), Archive(objectives + 1)
        self._points: dict[int, tuple[Params, Mapping[str, BaseDistribution]]] = {}
        self._expanded: set[int] = set()
        self._known: set[Key] = set()
        self._proposals: dict[int, Params] = {}
        self._queue: deque[Params] = deque()
        self._first = 0

    def _read(self, study: Study) -> None:
        """Take in the trials that were completed since the last look."""
        trials = study.get_trials(deepcopy=False)
        signs = [-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
        F, ids, violations = [], [], []
        for trial in trials[self._first :]:
            if trial.state != TrialState.COMPLETE or trial.number in self._points:
                continue
            values = np.multiply(signs, trial.values)
            violation = sum(max(value, 0.0) for value in trial.constraints.values())
            self._points[trial.number] = (trial.params, trial.distributions)
            self._known.add(_key(trial.params))
            if np.isfinite(values).all() and np.isfinite(violation):
                F.append(values)
                ids.append(trial.number)
                violations.append(violation)
        while self._first < len(trials) and trials[self._first].state.is_finished():
            self._first += 1
        if not ids:
            return
        F, numbers, over = np.array(F), np.array(ids, dtype=np.int64), np.array(violations)
        self._front.add(F[over <= 0], numbers[over <= 0])
        self._relaxed.add(np.column_stack([F, over]), numbers)

    def _fill(self) -> None:
        """Queue what is around the most promising point, or moves in two parameters."""
        if len(self._points) < self._startup:
            return
        objectives = self._front.F.shape[1]
        for _ in range(len(self._points)):
            ids = promising(
                self._front,
                self._relaxed,
                self._fresh,
                [False] * objectives if self._log is None else self._log,
                self._rng,
                width=1,
                near=1,
            )
            if not len(ids):
                break
            self._expanded.add(int(ids[0]))
            self._offer(neighbours(*self._points[int(ids[0])]))
            if self._queue:
                return
        if len(ids := self._front.ids):
            origins = [self._points[int(k)] for k in self._rng.choice(ids, PAIRS)]
            self._offer([self._two_moves(*origin) for origin in origins])

    def _fresh(self, ids: np.ndarray) -> np.ndarray:
        return np.array([int(i) not in self._expanded for i in ids], dtype=bool)

    def _offer(self, points: Sequence[Params]) -> None:
        new = [point for point in points if _key(point) not in self._known]
        self._queue.extend(new[k] for k in self._rng.permutation(len(new)))

    def _two_moves(self, params: Params, distributions: Mapping[str, BaseDistribution]) -> Params:
        for _ in range(2):
            if choices := neighbours(params, distributions):
                params = choices[self._rng.integers(len(choices))]
        return params


def neighbours(params: Params, distributions: Mapping[str, BaseDistribution]) -> list[Params]:
    """The points that differ from `params` in one parameter."""
    return [
        params | {name: value}
        for name, distribution in distributions.items()
        for value in other_values(distribution, params[name])
    ]


def other_values(distribution: BaseDistribution, value: Any) -> list[Any]:
    """The values that a neighbour may have in place of `value`."""
    if isinstance(distribution, CategoricalDistribution):
        return [choice for choice in distribution.choices if choice != value]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None and (high - low) / step < ALL_VALUES:
        count = int(np.floor((high - low) / step + 1e-9)) + 1
        found = [low + k * step for k in range(count)]
    else:
        at, least, most = np.log([value, low, high]) if distribution.log else (value, low, high)
        moved = [at + sign * share * (most - least) for share in STEPS for sign in (-1, 1)]
        found = [low, high, *(np.exp(moved) if distribution.log else moved)]
    if step is not None:
        found = [low + round((x - low) / step) * step for x in found]
    if isinstance(distribution, IntDistribution):
        return sorted({int(x) for x in found if low <= x <= high} - {value})
    return sorted({float(x) for x in found if low <= x <= high} - {value})


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value of another trial is still one of the distribution."""
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except (ValueError, TypeError):
        return False


def _key(params: Params) -> Key:
    return frozenset(params.items())
