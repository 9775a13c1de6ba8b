"""What is said of a front, on a space whose front is known in closed form.

(x, y) with x, y in 0..9 and x + y >= 9, both minimised: the front is the diagonal of ten points,
scaled (i/9, 1 - i/9). With the reference point at 1.1 its hypervolume is 4.9/9 + 0.11.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic import GridSpace
from dse.catalog import load_catalog
from dse.problem.objective import pose
from dse.problem.protocol import Evaluation, Objective
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import Checkpoint
from dse.search.parallel import HERE
from dse.search.proof import against_truth, evidence, local_optimality, prove
from dse.search.run import search
from dse.space.space import thinned
from tests.helpers_report import answer_of, both, sections

N = 10
TOTAL = 4.9 / 9 + 0.11


class Diagonal:
    """The switch costs one unit of y and gives nothing."""

    space = GridSpace(
        (
            ("on", (False, True), False, False),
            ("x", tuple(range(N)), True, False),
            ("y", tuple(range(N)), True, False),
        )
    )
    objectives = (Objective("x", "minimize", False), Objective("y", "minimize", False))
    constraints = ("sum",)

    def evaluate(self, index: np.ndarray) -> Evaluation:
        on, x, y = index.T.astype(float)
        return Evaluation(np.stack([x, y + on], axis=1), ((N - 1 - x - y) / N)[:, None])


@pytest.fixture(scope="module")
def problem() -> Diagonal:
    return Diagonal()


def told(proof: dict[str, Any]) -> list[str]:
    """What the report of a study says of its proof."""
    front, study = both()
    shown = sections(answer_of(front, {**study, "proof": proof}))
    return [text for one in shown if one.name == "sure" for text in one.about]


def without(problem: Diagonal, *rows: int):
    """The search's result with rows of the front lost."""
    result = search(problem, "exhaustive")
    keep = np.setdiff1d(np.arange(len(result.front)), rows)
    return replace(result, front=result.front.take(keep), evaluations=50)


def test_a_lost_point_costs_what_it_covers(problem: Diagonal) -> None:
    true = search(problem, "exhaustive").front.F
    assert len(true) == N
    found = against_truth(problem, without(problem, 4).front.F, true)
    # inside, a point alone covers a square of 1/9 by 1/9; its neighbours are 1/9 away
    assert found["true_hypervolume_share"] == pytest.approx(1 - (1 / 81) / TOTAL)
    assert found["additive_epsilon"] == pytest.approx(1 / 9)
    assert (found["found"], found["true_front_size"]) == (N - 1, N)
    assert against_truth(problem, true, true) == {
        "true_hypervolume_share": 1.0,
        "additive_epsilon": 0.0,
        "true_front_size": N,
        "found": N,
    }


def test_local_optimality_is_not_the_truth(problem: Diagonal) -> None:
    """Points of the diagonal differ in two parameters, so that no neighbour finds a lost one. A
    point behind the diagonal is beaten by neighbours."""
    local, better = local_optimality(problem, without(problem, 4), executor=HERE)
    assert not len(better)
    assert (local["points"], local["better"], local["share"]) == (N - 1, 0, 1.0)
    behind = problem.space.rank(np.array([[0, 5, 5]]))
    result = without(problem)
    front = replace(
        result.front,
        ids=behind,
        index=problem.space.unrank(behind),
        F=np.array([[5.0, 5.0]]),
        G=np.array([[0.0]]),
    )
    local, better = local_optimality(problem, replace(result, front=front), executor=HERE)
    assert sorted(problem.space.unrank(better)[:, 1:].tolist()) == [[4, 5], [5, 4]]
    # x = 4 and y = 4 beat it, both on the diagonal; nine further values of x and y, and the switch
    assert (local["neighbours"], local["better"], local["share"]) == (19, 2, 0.0)


def test_restarts_are_measured_against_all_together(problem: Diagonal) -> None:
    lost = without(problem, 4)
    said, met = evidence(problem, lost, None, seed=0, executor=HERE, progress=lambda *_: None)
    runs = said["restarts"]
    assert set(search(problem, "exhaustive").front.ids) == set(met)
    assert [run["share"] for run in runs[1:]] == [1.0] * 3
    assert runs[0]["share"] == pytest.approx(1 - (1 / 81) / TOTAL)


def test_restarts_that_are_done_are_not_made_again(problem: Diagonal, tmp_path: Path) -> None:
    lost = without(problem, 4)
    how = {"seed": 0, "executor": HERE, "progress": lambda *_: None}
    path = tmp_path / "checkpoint.npz"
    first = evidence(problem, lost, problem, checkpoint=Checkpoint(path, {}), **how)
    calls: list[int] = []

    class Spy(Diagonal):
        def evaluate(self, index: np.ndarray) -> Evaluation:
            calls.append(len(index))
            return super().evaluate(index)

    again = evidence(Spy(), lost, Spy(), checkpoint=Checkpoint(path, {}), **how)
    assert sum(calls) == 3 * N  # the fronts of the restarts
    assert again[0] == first[0]
    assert again[1].tolist() == first[1].tolist()


def test_a_space_that_is_small_enough_is_proved_and_no_other(problem: Diagonal) -> None:
    lost = without(problem, 4)
    whole, front = prove(problem, lost, seed=0, subgrid=None, enumerate_up_to=200, executor=HERE)
    assert whole["enumerated"]["evaluations"] == problem.space.size == 200
    assert "restarts" not in whole
    np.testing.assert_array_equal(front.ids, search(problem, "exhaustive").front.ids)
    assert whole["added"] == 1
    assert "One more design" in " ".join(told(whole))
    part, _ = prove(problem, lost, seed=0, subgrid=problem, enumerate_up_to=199, executor=HERE)
    assert "enumerated" not in part
    assert part["subgrid"]["true_hypervolume_share"] == 1.0
    said = " ".join(told(part))
    assert "evidence, not proof" in said
    assert "optimal" not in said
    assert "9 of 10 true points" in " ".join(told(whole))
    every, _ = prove(
        problem, search(problem, "exhaustive"), seed=0, subgrid=None, enumerate_up_to=0
    )
    assert "the true front of the model" in told(every)[0]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100%"),
        (0.5, "50.00%"),
        (0.99995, "99.995%"),
        (0.99999999, "99.999999%"),
        (1 - 1e-12, "over 99.999999%"),
    ],
)
def test_a_share_below_one_is_never_printed_as_all(share: float, text: str) -> None:
    front, study = both()
    study["true_hypervolume_share"] = share
    said = " ".join(answer_of(front, study).sentences)
    assert f"the search reaches {text} of" in said


def test_the_history_ends_with_the_whole_and_never_falls(problem: Diagonal) -> None:
    found, _ = prove(
        problem, search(problem, "pareto-local"), seed=0, subgrid=None, enumerate_up_to=200
    )
    shares = [row["share"] for row in found["history"]]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_thinned_space_is_a_part_of_the_whole() -> None:
    catalog = load_catalog()
    problem = pose(load_study(resolve_space("shape-for-nvl72"), catalog), catalog)
    part = thinned(problem.space, 100_000)
    assert 25_000 < part.size <= 100_000
    index = part.sample(np.random.default_rng(0), 500)
    small = replace(problem, space=part).evaluate(index)
    positions = np.stack(
        [
            np.array([axis.values.index(value) for value in part.axes[j].values])[index[:, j]]
            for j, axis in enumerate(problem.space.axes)
        ],
        axis=1,
    )
    found = problem.evaluate(problem.space.canonical(positions))
    assert small.F.tobytes() == found.F.tobytes()
    assert part.chips == problem.space.chips
