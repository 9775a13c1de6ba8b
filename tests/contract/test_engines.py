"""What every engine owes: whatever it evaluates, once, within its budget, and the front of that."""

from __future__ import annotations

import gc
import importlib.util

import numpy as np
import pytest

from benchmarks.synthetic import AXES, SMALL_AXES, SyntheticProblem
from dse.catalog import load_catalog
from dse.errors import InputError
from dse.pareto import share
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import Evaluator
from dse.search.parallel import Executor
from dse.search.run import ENGINES, Result, search

TORCH = importlib.util.find_spec("torch") is not None
RUNNABLE = [name for name in ENGINES if name not in ("gp", "model-first")]
# two values of an axis, three of one: 3,840 points
TINY_AXES = tuple(
    (name, values[: 3 if name == "concurrency" else 2], *rest) for name, values, *rest in AXES
)


class Spy(SyntheticProblem):
    """Remembers every point that was evaluated."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = []

    def evaluate(self, index):
        evaluation = super().evaluate(index)
        self.calls.append((self.space.rank(index), evaluation.F, evaluation.G))
        return evaluation

    def everything(self):
        return (np.concatenate(part) for part in zip(*self.calls, strict=True))


def dominated(F):
    """O(n^2): whether another row is as good everywhere and better somewhere."""
    better = (F[:, None] <= F[None]).all(axis=2) & (F[:, None] < F[None]).any(axis=2)
    return better.any(axis=0)


def run(name, problem, *, seed=0, jobs=1, chunk=10_000, trials=50):
    evaluator = Evaluator(problem, chunk=chunk, executor=Executor(jobs))
    evaluator.limit = ENGINES[name].evaluations(problem.space.size)
    rng = np.random.Generator(np.random.PCG64(seed))
    ENGINES[name].run(evaluator, trials, rng, lambda *_: None)
    return evaluator


@pytest.mark.parametrize("name", RUNNABLE)
def test_evaluates_once_within_budget_and_keeps_the_front(name):
    problem = Spy(axes=TINY_AXES, prefill_s=0.02)
    evaluator = run(name, problem)
    ids, F, G = problem.everything()
    assert len(ids) == len(set(ids.tolist())) == evaluator.evaluations <= evaluator.limit
    feasible = (G <= 0).all(axis=1)
    assert 0 < feasible.sum() == evaluator.feasible < len(ids)
    front = ids[feasible][~dominated(F[feasible])]
    assert set(evaluator.archive.ids.tolist()) <= set(front.tolist())
    archived = {tuple(row) for row in evaluator.archive.F.tolist()}
    assert archived == {tuple(row) for row in F[feasible][~dominated(F[feasible])].tolist()}
    for column, tally in enumerate(evaluator.tallies):
        violated = G[:, column] > 0
        assert tally.violated == violated.sum()
        assert tally.only == (violated & ((G > 0).sum(axis=1) == 1)).sum()


@pytest.mark.parametrize("name", RUNNABLE)
def test_same_seed_same_front_whatever_the_threads(name):
    problem = SyntheticProblem(axes=TINY_AXES)
    one = run(name, problem, jobs=1)
    two = run(name, problem, jobs=2, chunk=97)
    assert one.evaluations == two.evaluations
    assert one.tallies == two.tallies
    np.testing.assert_array_equal(one.archive.ids, two.archive.ids)
    np.testing.assert_array_equal(one.archive.F, two.archive.F)
    assert one.nearest == two.nearest


@pytest.mark.parametrize("name", RUNNABLE)
def test_nothing_feasible_is_an_empty_front_and_the_nearest_miss(name):
    problem = Spy(axes=TINY_AXES, prefill_s=1e-9)
    evaluator = run(name, problem)
    ids, _, G = problem.everything()
    assert evaluator.feasible == len(evaluator.archive) == 0
    total = np.maximum(G, 0).sum(axis=1)
    assert evaluator.nearest == min(zip(total.tolist(), ids.tolist(), strict=True))


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_space_smaller_than_every_batch_is_exhausted_or_left(name):
    few = tuple((axis, values[:1] if axis != "chip" else values, *r) for axis, values, *r in AXES)
    evaluator = run(name, SyntheticProblem(axes=few), trials=None)
    assert 0 < evaluator.evaluations <= evaluator.space.size == 8


@pytest.mark.parametrize("prefill_s", [0.5, 0.004])
@pytest.mark.parametrize("objectives", [2, 3])
def test_a_tenth_of_the_points_finds_the_true_hypervolume(objectives, prefill_s):
    problem = SyntheticProblem(objectives, prefill_s, SMALL_AXES)
    truth = search(problem, "exhaustive").front.F
    log = [objective.log for objective in problem.objectives]
    for name in ("pareto-local", "nsga2"):
        for seed in range(3):
            result = search(problem, name, seed=seed, trials=200)
            assert result.evaluations <= problem.space.size / 10
            assert share(result.front.F, truth, log) >= 0.995


def test_gp_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs torch.*pip install torch"):
        run("gp", SyntheticProblem(axes=TINY_AXES))


@pytest.mark.extra
@pytest.mark.skipif(not TORCH, reason="needs torch")
def test_gp_gives_the_same_front_twice():
    problem = SyntheticProblem(axes=SMALL_AXES)
    one, two = (run("gp", problem, trials=25) for _ in range(2))
    assert one.evaluations == 25
    np.testing.assert_array_equal(one.archive.ids, two.archive.ids)


# The shipped spaces searched without enumeration, against the truth.


ENUMERATED = ("tiny", "quickstart")


@pytest.fixture(scope="module", params=ENUMERATED)
def enumerated(request) -> tuple[PhysicsProblem, Result]:
    catalog = load_catalog()
    problem = pose(load_study(resolve_space(request.param), catalog), catalog)
    return problem, search(problem, "exhaustive")


# Of NSGA-II one seed of one space, as it takes ten times as long; more: benchmarks/search.py.
@pytest.mark.parametrize(
    ("enumerated", "engine", "seed"),
    [
        ("tiny", "nsga2", 0),
        *((name, "pareto-local", seed) for name in ENUMERATED for seed in range(3)),
    ],
    indirect=["enumerated"],
)
def test_a_tenth_of_the_points_finds_the_front(
    enumerated: tuple[PhysicsProblem, Result], engine: str, seed: int
) -> None:
    problem, true = enumerated
    found = search(problem, engine, seed=seed)
    log = [objective.log for objective in problem.objectives]
    assert found.evaluations <= problem.space.size / 10
    assert share(found.front.F, true.front.F, log) >= 0.995


def test_every_front_point_is_feasible_and_evaluates_alike(
    enumerated: tuple[PhysicsProblem, Result],
) -> None:
    problem, true = enumerated
    again = problem.evaluate(true.front.index)
    assert (again.G <= 0.0).all()
    assert again.F.tobytes() == true.front.F.tobytes()


# An evaluation frees its arrays when it is done: what waits for the garbage collector adds up to


SPACES = ("quickstart", "consumer-fleet", "pools-deepseek-v3", "lifetime-dense", "attention-kinds")


@pytest.fixture(scope="module")
def problem(request: pytest.FixtureRequest) -> PhysicsProblem:
    catalog = load_catalog()
    return pose(load_study(resolve_space(request.param), catalog), catalog)


@pytest.mark.parametrize("problem", SPACES, indirect=True)
@pytest.mark.parametrize("points", [1, 6_000])
def test_an_evaluation_leaves_no_garbage(problem: PhysicsProblem, points: int):
    index = problem.space.sample(np.random.default_rng(0), points)
    problem.evaluate(index)  # with tables that are made once
    gc.disable()
    try:
        for _ in range(3):  # what runs beside a test may leave some of its own
            gc.collect()
            problem.evaluate(index)
            if not (left := gc.collect()):
                break
        assert left == 0
    finally:
        gc.enable()
