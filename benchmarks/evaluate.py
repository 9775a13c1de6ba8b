"""How many evaluations a second: `python -m benchmarks.evaluate [--json]`.

An evaluation takes a point of `quickstart` from its index to every objective and constraint, as a
search does: shape, parameters, prefill, decode and mixed step, collectives, memory, serving, cost,
quality. What no objective or limit names (energy, the parts of each step) is left out. Points are
drawn evenly from all branches of the space; one process, two threads.
"""

from __future__ import annotations

import argparse
import json
import resource

import numpy as np

from dse.catalog import load_catalog
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import Evaluator

POINTS = 400_000
ROUNDS = 5
THREADS = 2


def quickstart() -> PhysicsProblem:
    catalog = load_catalog()
    return pose(load_study(resolve_space("quickstart"), catalog), catalog)


def operators(problem: PhysicsProblem) -> list[str]:
    """Names of the operators that a dense and a sparse point run, in order."""
    index = problem.space.sample(np.random.default_rng(0), 64)
    entries = problem.metrics(index, keep=True).performance.detail.decode_ledger.entries
    assert entries is not None
    return list(dict.fromkeys(entry.name for entry in entries))


def measure(problem: PhysicsProblem) -> list[float]:
    """Evaluations a second of each round."""
    index = problem.space.sample(np.random.default_rng(0), POINTS)
    rates = []
    for _ in range(ROUNDS):
        evaluator = Evaluator(problem, threads=THREADS)
        evaluator.evaluate(index)
        rates.append(evaluator.evaluations / evaluator.seconds)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    problem = quickstart()
    rates = measure(problem)
    answer = {
        "evaluations_per_s": float(np.median(rates)),
        "rounds": rates,
        "points": POINTS,
        "threads": THREADS,
        "operators": operators(problem),
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if asked.json:
        print(json.dumps(answer, indent=1))
        return
    print(f"{answer['evaluations_per_s']:,.0f} evaluations a second ({THREADS} threads)")
    print(f"rounds: {', '.join(f'{rate:,.0f}' for rate in rates)}")
    print(f"{len(answer['operators'])} operators: {', '.join(answer['operators'])}")


if __name__ == "__main__":
    main()
