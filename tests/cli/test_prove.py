"""`dse run`: how sure the front is, in study.json, the report and on the console."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic import GridSpace
from dse.problem.protocol import Evaluation, Objective
from dse.search.evaluator import Checkpoint
from dse.search.parallel import HERE
from dse.search.run import against_truth, evidence, local_optimality, prove, search
from dse.study.folder import FRONT, read_json
from tests.cli.conftest import ask, dse
from tests.helpers_report import answer_of, both, sections

LOCAL = ("run", "tiny", "--engine", "pareto-local", "--seed", 3)


def test_a_small_space_is_enumerated_after_a_search(tiny: Path, tmp_path: Path) -> None:
    said = dse(*LOCAL, "--out", tmp_path)
    assert said.code == 0
    study = json.loads((tmp_path / "study.json").read_text())
    proof = study["proof"]
    assert study["evaluations"] <= study["size"] / 10
    assert proof["enumerated"]["evaluations"] == study["size"]
    assert 0.999 <= study["true_hypervolume_share"] <= 1.0
    every = json.loads((tiny / "study.json").read_text())
    assert every["engine"] == "exhaustive"
    assert proof["enumerated"]["found"] <= proof["enumerated"]["true_front_size"]
    assert proof["enumerated"]["true_front_size"] == every["exact_front_size"]
    assert every["front_size"] < every["exact_front_size"]
    # what the enumeration met beyond the search is on the front, and the same when reported again
    front = (tmp_path / "front.csv").read_bytes()
    items, true = (read_json(out, FRONT)["items"] for out in (tmp_path, tiny))
    designs = [(item["model"], item["deployment"]) for item in items]
    assert designs == [(item["model"], item["deployment"]) for item in true]
    again = ask(*LOCAL, "--out", tmp_path)
    assert again["proof"] == proof
    assert again["trials"] == study["trials"]
    assert (tmp_path / "front.csv").read_bytes() == front
    assert 0.0 <= proof["enumerated"]["additive_epsilon"] < 0.05
    whole = " ".join(said.out.split())
    assert "How sure is this front Against all 32,256 points of the space" in whole
    page = (tmp_path / "report.html").read_text()
    section = page.split('<section id="sure">')[1].split("</section>")[0]
    assert "How sure is this front" in section
    assert "one parameter away from the front" in section
    assert "optimal" not in section
    assert "## How sure is this front" in (tmp_path / "report.md").read_text()


def test_an_enumeration_needs_no_other_proof(tmp_path: Path) -> None:
    study = ask("run", "deploy-llama-3-70b", "--out", tmp_path)
    assert study["engine"] == "exhaustive"
    assert study["why_engine"] == "5,940 points are few enough to enumerate"
    assert study["true_hypervolume_share"] == 1.0
    assert set(study["proof"]) == {"enumerated"}


def test_nothing_is_said_where_nothing_is_asked(tmp_path: Path) -> None:
    study = ask(*LOCAL, "--no-prove", "--out", tmp_path)
    assert study["proof"] is None
    assert study["true_hypervolume_share"] is None
    assert study["command"].endswith("--no-prove")
    assert 'id="sure"' not in (tmp_path / "report.html").read_text()


def test_a_large_space_gets_evidence_and_no_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32,256 points, as if they were too many to enumerate."""
    monkeypatch.setattr("dse.search.run.ENUMERATE", 10_000)
    monkeypatch.setattr("dse.study.run.ENUMERATE", 10_000)
    study = ask("run", "tiny", "--out", tmp_path)
    assert study["engine"] == "pareto-local"
    assert study["true_hypervolume_share"] is None
    proof = study["proof"]
    assert "enumerated" not in proof
    assert len(proof["restarts"]) == 4
    assert all(0.99 < run["share"] <= 1.0 for run in proof["restarts"])
    page = " ".join((tmp_path / "report.md").read_text().split())
    assert "evidence, not proof" in page
    asked = ask("run", "tiny", "--prove", "--fresh", "--out", tmp_path)
    assert asked["proof"]["enumerated"]["evaluations"] == 32_256


# What is said of a front, on a space whose front is known in closed form.


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
    said, met = evidence(problem, lost, seed=0, executor=HERE, progress=lambda *_: None)
    runs = said["restarts"]
    assert set(search(problem, "exhaustive").front.ids) == set(met)
    assert [run["share"] for run in runs[1:]] == [1.0] * 3
    assert runs[0]["share"] == pytest.approx(1 - (1 / 81) / TOTAL)


def test_restarts_that_are_done_are_not_made_again(problem: Diagonal, tmp_path: Path) -> None:
    lost = without(problem, 4)
    how = {"seed": 0, "executor": HERE, "progress": lambda *_: None}
    path = tmp_path / "checkpoint.npz"
    first = evidence(problem, lost, checkpoint=Checkpoint(path, {}), **how)
    calls: list[int] = []

    class Spy(Diagonal):
        def evaluate(self, index: np.ndarray) -> Evaluation:
            calls.append(len(index))
            return super().evaluate(index)

    again = evidence(Spy(), lost, checkpoint=Checkpoint(path, {}), **how)
    assert sum(calls) == 3 * N  # the fronts of the restarts
    assert again[0] == first[0]
    assert again[1].tolist() == first[1].tolist()


def test_a_space_that_is_small_enough_is_proved_and_no_other(problem: Diagonal) -> None:
    lost = without(problem, 4)
    whole, front = prove(problem, lost, seed=0, enumerate_up_to=200, executor=HERE)
    assert whole["enumerated"]["evaluations"] == problem.space.size == 200
    assert "restarts" not in whole
    np.testing.assert_array_equal(front.ids, search(problem, "exhaustive").front.ids)
    assert whole["added"] == 1
    part, _ = prove(problem, lost, seed=0, enumerate_up_to=199, executor=HERE)
    assert "enumerated" not in part
    said = " ".join(told(part))
    assert "evidence, not proof" in said
    assert "optimal" not in said
    assert "9 of 10 true points" in " ".join(told(whole))


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
