"""ParetoLocalSampler against Optuna's own contract for samplers, and against a known front."""

from __future__ import annotations

import copy
import itertools

import optuna
import pytest
from optuna.testing import pytest_samplers

from dse.search import ParetoLocalSampler


class TestContract(
    pytest_samplers.BasicSamplerTestCase,
    pytest_samplers.RelativeSamplerTestCase,
    pytest_samplers.MultiObjectiveSamplerTestCase,
):
    # 100 random trials first, as a user has it, and neighbours from the second trial on
    @pytest.fixture(params=[100, 1])
    def sampler(self, request):
        return lambda: ParetoLocalSampler(n_startup_trials=request.param, seed=0)


N = 12


def two_objectives(trial: optuna.Trial) -> tuple[float, float]:
    """x + y against their distances from the far corner; a switch adds a third parameter, without
    which the limit on their sum cannot be kept."""
    x, y = trial.suggest_int("x", 0, N), trial.suggest_int("y", 0, N)
    bonus = trial.suggest_int("z", 0, 4) if trial.suggest_categorical("on", [False, True]) else 0
    trial.set_constraint("least", (4 - bonus - x) / 4)
    return float(x + y), float((N - x) ** 2 + (N - y) ** 2 - bonus)


def true_front() -> set[tuple[float, float]]:
    found = set()
    for x, y, z in itertools.product(range(N + 1), range(N + 1), range(5)):
        if x + z >= 4:
            found.add((float(x + y), float((N - x) ** 2 + (N - y) ** 2 - z)))
    return {p for p in found if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in found)}


def searched(seed: int, trials: int = 400) -> optuna.Study:
    study = optuna.create_study(
        directions=["minimize", "minimize"],
        sampler=ParetoLocalSampler(n_startup_trials=40, seed=seed),
    )
    study.optimize(two_objectives, n_trials=trials)
    return study


@pytest.mark.parametrize("seed", range(3))
def test_finds_the_known_front_of_1014_points_in_400_trials(seed: int) -> None:
    study = searched(seed)
    found = {tuple(trial.values) for trial in study.best_trials}
    assert len(found & true_front()) >= 0.9 * len(true_front())


def test_no_trial_is_a_duplicate_while_neighbours_are_left() -> None:
    trials = searched(0).get_trials(deepcopy=False)
    points = [frozenset(trial.params.items()) for trial in trials]
    assert len(set(points[40:])) >= 0.98 * len(points[40:])


def test_the_same_seed_gives_the_same_trials() -> None:
    one, two = ([t.params for t in searched(1, 150).trials] for _ in range(2))
    assert one == two


def test_goes_on_in_a_study_that_others_filled_and_may_be_copied() -> None:
    study = searched(0, 60)
    study.sampler = copy.deepcopy(ParetoLocalSampler(n_startup_trials=40, seed=3))
    study.optimize(two_objectives, n_trials=5)
    best = {
        frozenset(t.params.items())
        for t in study.get_trials()[:60]
        if max(t.constraints.values()) <= 0
    }
    for trial in study.get_trials()[60:]:
        near = [len(frozenset(trial.params.items()) ^ point) <= 3 for point in best]
        assert any(near)


def test_one_sampler_serves_one_study_after_another() -> None:
    sampler = ParetoLocalSampler(n_startup_trials=20, seed=0)
    for _ in range(2):
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        study.optimize(two_objectives, n_trials=60)
        assert len(study.best_trials) > 5


def test_it_can_be_asked_and_told() -> None:
    study = optuna.create_study(
        directions=["minimize", "minimize"],
        sampler=ParetoLocalSampler(n_startup_trials=40, seed=0),
    )
    for _ in range(400):
        trial = study.ask()
        study.tell(trial, two_objectives(trial))
    assert [t.params for t in study.trials] == [t.params for t in searched(0).trials]


def test_reseeding_forgets_the_seed() -> None:
    drawn = []
    for again in (False, False, True):
        sampler = ParetoLocalSampler(seed=0)
        if again:
            sampler.reseed_rng()
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        study.optimize(two_objectives, n_trials=20)
        drawn.append([trial.params for trial in study.trials])
    assert drawn[0] == drawn[1] != drawn[2]
