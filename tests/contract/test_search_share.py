"""The shipped spaces searched without enumeration, against the truth."""

from __future__ import annotations

import pytest

from dse.catalog import load_catalog
from dse.pareto import share
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.run import Result, search

SPACES = ("tiny", "quickstart")


@pytest.fixture(scope="module", params=SPACES)
def enumerated(request) -> tuple[PhysicsProblem, Result]:
    catalog = load_catalog()
    problem = pose(load_study(resolve_space(request.param), catalog), catalog)
    return problem, search(problem, "exhaustive")


# Of NSGA-II one seed, as it takes ten times as long; more of them: benchmarks/search.py.
@pytest.mark.parametrize(
    ("engine", "seed"), [("nsga2", 0), *(("pareto-local", seed) for seed in range(3))]
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
