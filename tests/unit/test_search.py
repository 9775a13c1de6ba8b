"""The evaluator, the study of record and the search around them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import numpy as np
import optuna
import pytest

from benchmarks.synthetic import AXES, SMALL_AXES, SyntheticProblem
from dse.catalog import load_catalog
from dse.errors import InputError, StorageError
from dse.pareto import share
from dse.problem.objective import PhysicsProblem, pose
from dse.problem.protocol import Evaluation
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import SWEEP, Checkpoint, Evaluator
from dse.search.record import Record, uninterrupted
from dse.search.run import choose_engine, search
from dse.search.storage import open_storage


@pytest.fixture
def problem():
    return SyntheticProblem(axes=SMALL_AXES)


def opened(problem, folder, **identity):
    return Record(problem, folder / "journal.log", "study", identity)


# evaluator


def test_evaluate_returns_new_points_in_the_order_asked(problem):
    evaluator = Evaluator(problem)
    batch = evaluator.evaluate(problem.space.unrank(np.array([7, 3, 7, 5])))
    assert batch.ids.tolist() == [7, 3, 5]
    evaluator.limit = 4
    assert evaluator.evaluate(problem.space.unrank(np.array([3, 9, 1]))).ids.tolist() == [9]
    assert evaluator.left == 0
    empty = evaluator.evaluate(problem.space.unrank(np.array([11])))
    assert empty.F.shape == (0, 3)
    assert empty.G.shape == (0, 3)


# engines


@pytest.mark.parametrize(
    ("size", "how", "name", "why"),
    [
        (3_000_000, {}, "exhaustive", "3,000,000 points are few enough"),
        (3_000_001, {}, "pareto-local", "more than the 3,000,000"),
        (100, {"expensive": True}, "exhaustive", "no more than the 100 trials"),
        (101, {"expensive": True}, "model-first", "every one of 100 evaluations counts"),
        (10**6, {"expensive": True, "trials": 300}, "model-first", "every one of 300"),
    ],
)
def test_auto_decides_by_counts_and_says_why(size, how, name, why):
    engine, words = choose_engine("auto", size, **how)
    assert (engine.name, why in words) == (name, True)


class Measured:
    """The model, off by a factor of each value of each axis: log-normal, 20%."""

    def __init__(self, physics: PhysicsProblem) -> None:
        self.physics, self.space = physics, physics.space
        self.objectives, self.constraints = physics.objectives, physics.constraints
        rng = np.random.default_rng(1)
        m = len(self.objectives)
        self.off = [rng.normal(0.0, 0.2, (int(n), m)) for n in self.space.cardinalities]

    def evaluate(self, index):
        found = self.physics.evaluate(index)
        off = sum(table[index[:, axis]] for axis, table in enumerate(self.off))
        return Evaluation(found.F * np.exp(off), found.G)


def test_few_evaluations_go_where_the_corrected_model_proposes():
    catalog = load_catalog()
    physics = pose(load_study(resolve_space("deploy-llama-3-70b"), catalog), catalog)
    problem = Measured(physics)
    truth = search(problem, "exhaustive").front.F
    log = [objective.log for objective in problem.objectives]
    found, again, blind = (
        search(problem, engine, trials=100, expensive=True) for engine in ("auto", "auto", "random")
    )
    assert found.engine == "model-first"
    assert found.evaluations == 100
    np.testing.assert_array_equal(found.front.ids, again.front.ids)
    assert share(found.front.F, truth, log) > share(blind.front.F, truth, log)
    assert share(found.front.F, truth, log) > 0.97


def test_only_an_evaluator_has_the_model_as_its_prior(problem):
    with pytest.raises(InputError, match="--evaluator"):
        search(problem, "model-first")


def test_an_expensive_problem_gets_no_more_evaluations_than_trials(problem):
    for engine, trials in (("pareto-local", 30), ("tpe", 8), ("random", 12)):
        result = search(problem, engine, trials=trials, expensive=True)
        assert result.evaluations == trials


KILLED = """
import os, signal, sys
from pathlib import Path
from benchmarks.synthetic import SMALL_AXES, SyntheticProblem
from dse.search.run import search
from dse.search.evaluator import Checkpoint

def progress(done, total, front):
    if done > 30_000:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint = Checkpoint(Path(sys.argv[1]), {"seed": 0}, every=10_000)
search(SyntheticProblem(axes=SMALL_AXES), "exhaustive", progress=progress, chunk=1_000,
       checkpoint=checkpoint)
"""


def test_a_killed_enumeration_goes_on_to_the_same_result(problem, tmp_path):
    path = tmp_path / "sweep.npz"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    evaluated = []

    class Spy(SyntheticProblem):
        def evaluate(self, index):
            evaluated.append(len(index))
            return super().evaluate(index)

    whole = search(problem, "exhaustive")
    rest = search(
        Spy(axes=SMALL_AXES), "exhaustive", checkpoint=Checkpoint(path, {"seed": 0}, every=10_000)
    )
    again = 10_000 + 1_000  # what came after the last checkpoint, at most
    assert sum(evaluated) <= problem.space.size - 30_000 + again + 2 * len(whole.front)
    assert rest.evaluations == whole.evaluations == problem.space.size
    assert (rest.tallies, rest.feasible, rest.miss) == (whole.tallies, whole.feasible, whole.miss)
    for name in ("ids", "index", "F", "G"):
        assert getattr(rest.front, name).tobytes() == getattr(whole.front, name).tobytes()


@pytest.mark.parametrize("damage", ["other", "cut", "text"])
def test_a_checkpoint_of_another_run_or_damaged_counts_as_none(problem, tmp_path, damage):
    path = tmp_path / "sweep.npz"
    search(problem, "exhaustive", chunk=5_000, checkpoint=Checkpoint(path, {"seed": 0}, 10_000))
    assert Checkpoint(path, {"seed": 0}).load(SWEEP) is not None
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "text":
        path.write_text("no archive")
    other = Checkpoint(path, {"seed": 1 if damage == "other" else 0})
    assert other.load(SWEEP) is None
    assert Checkpoint(path, {"seed": 0}, fresh=True).load(SWEEP) is None
    assert not path.exists()


def test_exhaustive_refuses_what_it_cannot_finish():
    wide = tuple((name, values * 12, True, on) for name, values, _, on in AXES)
    with pytest.raises(InputError, match="too many to enumerate"):
        search(SyntheticProblem(axes=wide), "exhaustive")


def test_front_is_ordered_by_objectives_then_id(problem):
    front = search(problem, "pareto-local").front
    rows = [(*row, i) for row, i in zip(front.F.tolist(), front.ids.tolist(), strict=True)]
    assert rows == sorted(rows)


def test_progress_counts_up(problem):
    seen = []
    search(problem, "nsga2", trials=200, progress=lambda *a: seen.append(a))
    done = [evaluations for evaluations, _, _ in seen]
    assert done == sorted(done)
    assert len(done) > 3


# samplers by their path


def sampled(problem, path, seed=0, trials=40):
    return search(problem, path, seed=seed, trials=trials)


@pytest.mark.parametrize(
    "path", ["optuna.samplers:NSGAIIISampler", "optuna.samplers:RandomSampler"]
)
def test_any_sampler_is_an_engine_by_its_path(problem, path):
    one, two, other = (sampled(problem, path, seed) for seed in (0, 0, 1))
    assert one.engine == path
    assert one.evaluations == 40
    np.testing.assert_array_equal(one.front.ids, two.front.ids)
    assert one.front.ids.tolist() != other.front.ids.tolist()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("os:system", "is no sampler of Optuna"),
        ("dse.search.run:search", "is no sampler of Optuna"),
        ("nosuch_module:X", "cannot be imported"),
        ("optuna.samplers:Nosuch", "cannot be imported"),
        ("a b:c", "read 'a b:c'"),
        ("optuna.samplers:PartialFixedSampler", "takes no seed"),
        ("optuna.samplers:GridSampler", "failed: TypeError"),
        ("optuna.samplers:CmaEsSampler", "failed: "),
    ],
)
def test_what_is_no_sampler_for_the_problem_is_refused_in_words(problem, path, why):
    with pytest.raises(InputError, match=f"--engine: .*{why}"):
        sampled(problem, path)


# study of record


def test_parameters_are_the_values_of_the_space_with_their_types(problem, tmp_path):
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.array([0, problem.space.size - 1])))
    opened(problem, tmp_path).add(batch, "front")
    storage = open_storage(tmp_path / "journal.log")
    for trial, point in zip(storage.get_all_trials(0), batch.index, strict=True):
        for axis, name in enumerate(problem.space.names):
            if name in trial.params:
                written = problem.space.choices[axis][point[axis]]
                assert trial.params[name] == written
                assert type(trial.params[name]) is type(written)
                kind = optuna.distributions.CategoricalDistribution(problem.space.choices[axis])
                assert trial.distributions[name] == kind


def test_every_front_point_is_a_trial_in_the_users_units(problem, tmp_path):
    result = search(problem, "nsga2", record=opened(problem, tmp_path), trials=100)
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
    )
    study = optuna.load_study(study_name="study", storage=storage)
    assert study.metric_names == [objective.metric for objective in problem.objectives]
    assert [d.name for d in study.directions] == ["MINIMIZE", "MINIMIZE", "MAXIMIZE"]
    trials = {trial.user_attrs["id"]: trial for trial in study.get_trials(deepcopy=False)}
    assert len(trials) == len(study.get_trials(deepcopy=False))
    for row, point in enumerate(result.front.ids.tolist()):
        trial = trials[point]
        loss, price, speed = result.front.F[row]
        assert trial.values == [loss, price, -speed]
        pairs = zip(problem.constraints, result.front.G[row].tolist(), strict=True)
        assert trial.constraints == {name: g for name, g in pairs if g != 0.0}
        assert ("num_experts" in trial.params) == trial.params["sparse"]
        assert trial.params["chip"] in ("north", "east", "south", "west")
        column = problem.space.names.index("hidden_size")
        choices = problem.space.choices[column]
        assert trial.params["hidden_size"] == choices[result.front.index[row, column]]
    # Optuna itself agrees on what is feasible and best.
    assert {t.user_attrs["id"] for t in study.best_trials} == set(result.front.ids.tolist())


def test_infinite_objectives_survive_storage(problem, tmp_path):
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.array([1])))
    batch.F[0, 1] = np.inf
    opened(problem, tmp_path).add(batch, "nsga2")
    assert opened(problem, tmp_path).load().batch.F[0, 1] == np.inf


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("engine", ["nsga2", "random"])
def test_an_interrupted_search_goes_on_to_the_same_front(problem, tmp_path, engine):
    def searched(record):
        return search(problem, engine, record=record, evaluations=2_500, trials=200)

    whole = opened(problem, tmp_path / "whole")
    expected = searched(whole)
    broken = opened(problem, tmp_path / "broken")
    add, calls = broken.add, []

    def interrupted(batch, stage):
        calls.append(stage)
        if len(calls) == 3:
            add(batch.take(np.arange(10)), stage)
            raise Interrupted
        return add(batch, stage)

    broken.add = interrupted
    with pytest.raises(Interrupted):
        searched(broken)
    again = opened(problem, tmp_path / "broken")
    kept = again.load().batch.ids.tolist()
    assert len(kept) > 100
    result = searched(again)
    np.testing.assert_array_equal(result.front.ids, expected.front.ids)
    np.testing.assert_array_equal(result.front.F, expected.front.F)
    stored = again.load().batch.ids.tolist()
    assert stored == whole.load().batch.ids.tolist()
    assert stored[: len(kept)] == kept
    searched(again)
    assert again.trials == len(stored)


def test_a_database_holds_studies_side_by_side(problem, tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.arange(3)))
    Record(problem, url, "a", {}).add(batch, "front")
    Record(problem, url, "b", {}).add(batch, "front")
    assert Record(problem, url, "a", {}, fresh=True).trials == 0
    assert Record(problem, url, "b", {}).trials == 3


MADE = b'{"op_code":0,"worker_id":"a","study_name":"a","directions":[1]}\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello\n", "not an Optuna journal"),
        (MADE + b"hello\nhello\n", r":2: .*head -n 1`.*--fresh"),
        (MADE + b'{"op_code":99}\n', r":2: .*--fresh"),
        (MADE + b"\xff\xfe\x00\n", r":2: .*--fresh"),
    ],
)
def test_a_file_that_is_no_journal(problem, tmp_path, content, says):
    (tmp_path / "journal.log").write_bytes(content)
    with pytest.raises(StorageError, match=r"journal\.log") as said:
        opened(problem, tmp_path)
    assert re.search(says, str(said.value))
    assert (tmp_path / "journal.log").read_bytes() == content


@pytest.mark.parametrize(("signals", "done"), [(1, ["stored"]), (2, [])])
def test_the_first_interrupt_waits_for_what_is_being_stored(signals: int, done: list[str]) -> None:
    stored: list[str] = []

    @uninterrupted()
    def store() -> None:
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        stored.append("stored")

    with pytest.raises(KeyboardInterrupt):
        store()
    assert stored == done
