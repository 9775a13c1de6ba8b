"""How many designs of separate pools a second: `python -m benchmarks.pools [--json]`.

Designs of `pools-deepseek-v3`, drawn evenly, from their number in the space to every objective and
constraint. `joined_per_s` counts those that are joined alone; the others have a worker that breaks
a rule by itself. Two processes. Tables of workers are made before, in `tables_s`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from dse.catalog import load_catalog
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import Evaluator
from dse.search.parallel import Executor
from dse.space.space import Ints

POINTS = 4_000_000
ROUNDS = 3
JOBS = 2
SPACE = "pools-deepseek-v3"


def separate(problem: PhysicsProblem) -> Ints:
    """The numbers of POINTS designs of separate pools, ascending."""
    size = problem.space.size
    ids = np.sort(np.random.default_rng(0).choice(size, min(POINTS, size), replace=False))
    assert problem.pools is not None
    return ids[problem.pools.separate(problem.space.unrank(ids))]


def rates(problem: PhysicsProblem, ids: Ints) -> tuple[float, float]:
    """Designs a second, and a second of one core (on a machine that others use, too)."""
    found = []
    for _ in range(ROUNDS):
        row = []
        for jobs, clock in ((JOBS, time.perf_counter), (1, time.process_time)):
            evaluator = Evaluator(problem, executor=Executor(jobs))
            started = clock()
            for _ in evaluator.sweep_ids(lambda first, last: ids[first:last], 0, len(ids)):
                pass
            row.append(len(ids) / (clock() - started))
        found.append(row)
    every, core = np.median(found, axis=0)
    return float(every), float(core)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    catalog = load_catalog()
    problem = pose(load_study(resolve_space(SPACE), catalog), catalog)
    assert problem.pools is not None
    started = time.perf_counter()
    problem.evaluate(problem.space.unrank(np.array([problem.space.size - 1])))
    tables_s = time.perf_counter() - started
    ids = separate(problem)
    alive = problem.pools.screened(problem.space.unrank(ids))[0]
    every, joined = rates(problem, ids), rates(problem, ids[alive])
    answer = {
        "space": SPACE,
        "size": problem.space.size,
        "designs_per_s": every[0],
        "designs_per_core_s": every[1],
        "joined_per_s": joined[0],
        "joined_per_core_s": joined[1],
        "joined_share": len(alive) / len(ids),
        "tables_s": tables_s,
        "jobs": JOBS,
    }
    if asked.json:
        print(json.dumps(answer, indent=1))
        return
    print(
        f"{every[0]:,.0f} designs of separate pools a second ({every[1]:,.0f} a second of one "
        f"core), {joined[0]:,.0f} ({joined[1]:,.0f}) where all are joined: {JOBS} "
        f"processes, with archive and tallies. {answer['joined_share']:.0%} are joined, tables "
        f"took {tables_s:.2f} s"
    )


if __name__ == "__main__":
    main()
