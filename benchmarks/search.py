"""Engines x seeds on spaces that can be enumerated: what share of the true front is found.

    python -m benchmarks.search [--engines pareto-local,nsga2] [--seeds 3] [--json]

The share is the hypervolume of the front found over that of the true front, each objective scaled
between the true front's ideal and nadir (cost and latency in logarithm), reference point 1.1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.synthetic import SyntheticProblem
from dse.pareto import share
from dse.problem import Problem
from dse.search import Record, search

# tpe and gp spend 0.1 to 1 s on a trial: name them to have them
ENGINES = ("exhaustive", "pareto-local", "nsga2", "qmc", "random")


def problems() -> dict[str, Problem]:
    """Two and three objectives, and a latency limit that a third, or a thousandth, of the space
    keeps."""
    return {
        "2 objectives": SyntheticProblem(objectives=2),
        "3 objectives": SyntheticProblem(),
        "tight": SyntheticProblem(prefill_s=0.03),
        "nearly empty": SyntheticProblem(prefill_s=0.004),
    }


def measure(name: str, problem: Problem, engines: list[str], seeds: int) -> list[dict]:
    """One row for each engine and seed; the storage of the record is included in the seconds."""
    truth = search(problem, "exhaustive")
    log = [objective.log for objective in problem.objectives]
    rows = []
    for engine in engines:
        for seed in range(1 if engine == "exhaustive" else seeds):
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                record = Record(problem, Path(folder) / "journal.log", name, {})
                result = search(problem, engine, seed=seed, record=record)
                seconds = time.perf_counter() - started
            rows.append(
                {
                    "problem": name,
                    "engine": engine,
                    "seed": seed,
                    "share": share(result.front.F, truth.front.F, log)
                    if len(result.front)
                    else 0.0,
                    "evaluations": result.evaluations,
                    "points": problem.space.size,
                    "feasible_share": truth.feasible / problem.space.size,
                    "front": len(result.front),
                    "true_front": len(truth.front),
                    "trials": record.trials,
                    "seconds": seconds,
                    "evaluate_s": result.seconds["evaluate"],
                    "store_s": result.seconds["store"],
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    engines = options.engines.split(",")
    rows = [
        row
        for name, problem in problems().items()
        for row in measure(name, problem, engines, options.seeds)
    ]
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
        return
    print("problem       engine        seed    share  evaluations  front/true  trials  seconds")
    for row in rows:
        print(
            f"{row['problem']:13} {row['engine']:13} {row['seed']:4}  {row['share']:7.4%}"
            f"  {row['evaluations']:11,}  {row['front']:5}/{row['true_front']:<4}"
            f"  {row['trials']:6,}  {row['seconds']:7.2f}"
        )


if __name__ == "__main__":
    main()
