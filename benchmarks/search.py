"""Engines x seeds on the shipped spaces that can be enumerated: how near each comes to the truth.

    python -m benchmarks.search                        # all of it: about 20 minutes on two cores
    python -m benchmarks.search --spaces tiny --engines pareto-local --seeds 1
    python -m benchmarks.search --rows rows.json --write   # and a summary into docs/search.md

The share is the hypervolume of the front found over that of the true front, each objective scaled
between the true front's ideal and nadir (cost and latency in logarithm), reference point 1.1;
epsilon is the additive one on that scale. `--rows` keeps what is measured in a file and measures
only what it lacks. Processor seconds are those of all processes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import used
from benchmarks.search_tables import summary, tables
from dse.catalog import load_catalog
from dse.pareto import Scale, additive_epsilon, hypervolume, non_dominated, share
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.record import Record
from dse.search.run import Result, search
from dse.space.space import Space
from tools.written import write

# gp needs torch: name it to have it
ENGINES = ("exhaustive", "pareto-local", "nsga2", "tpe", "qmc", "random")
WHOLE = "shape-for-nvl72"
SPACES = (
    "deploy-llama-3-70b",
    "deploy-gpt-oss-120b",
    "attention-kinds",
    "lifetime-dense",
    "tiny",
    "deploy-deepseek-v3",
    "sparse-against-dense",
    "hidden-and-experts-by-chip",
    "quickstart",
    "shape-for-edge",
    "basket-h200-tpu-trn2",
    f"{WHOLE}@10000000",
    "consumer-fleet",
)
GROWTH = (100_000, 1_000_000, 10_000_000)
BUDGETS = (50_000, 500_000)
RESTARTS = 4

Row = dict[str, Any]


def problem_of(name: str) -> PhysicsProblem:
    """A shipped space, or `name@size`: the part of it that is thinned to at most `size` points."""
    name, _, size = name.partition("@")
    catalog = load_catalog()
    problem = pose(load_study(resolve_space(name), catalog), catalog)
    return replace(problem, space=thinned(problem.space, int(size))) if size else problem


def timed(run: Callable[[], Result]) -> tuple[Result, Row]:
    wall, cpu = time.perf_counter(), time.process_time() + used()
    result = run()
    return result, {
        "evaluations": result.evaluations,
        "front": len(result.front),
        "seconds": time.perf_counter() - wall,
        "cpu_s": time.process_time() + used() - cpu,
    }


class Bench:
    """The rows measured so far, kept in a file where one is named."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = json.loads(path.read_text()) if path and path.exists() else []

    def has(self, **key: Any) -> bool:
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self.path:
            self.path.write_text(json.dumps(self.rows, indent=0))

    def spaces(self, names: list[str], engines: list[str], seeds: int) -> None:
        """Every engine against the truth."""
        for name in names:
            wanted = [
                (engine, seed)
                for engine in engines
                for seed in range(1 if engine == "exhaustive" else seeds)
                if not self.has(part="engines", space=name, engine=engine, seed=seed)
            ]
            if not wanted:
                continue
            problem = problem_of(name)
            truth, found = timed(lambda problem=problem: search(problem, "exhaustive"))
            for engine, seed in wanted:
                if engine == "exhaustive":
                    row = found | {"trials": len(truth.front)} | quality(problem, truth, truth)
                else:
                    row = one(problem, engine, seed, truth)
                self.add(
                    part="engines",
                    space=name,
                    points=problem.space.size,
                    engine=engine,
                    seed=seed,
                    true_front=len(truth.front),
                    **row,
                )

    def agreement(self) -> None:
        """Searches of a space too large to enumerate, against their union."""
        if self.has(part="agreement"):
            return
        problem = problem_of(WHOLE)
        runs = [timed(lambda k=k: search(problem, "pareto-local", unit=k)) for k in range(RESTARTS)]
        union = np.concatenate([result.front.F for result, _ in runs])
        union = union[non_dominated(union)]
        log = [objective.log for objective in problem.objectives]
        for unit, (result, row) in enumerate(runs):
            self.add(
                part="agreement",
                space=WHOLE,
                points=problem.space.size,
                unit=unit,
                share=share(result.front.F, union, log),
                union=len(union),
                **row,
            )

    def growth(self) -> None:
        """Ten times the points, ten times the evaluations."""
        for size in GROWTH:
            for engine in ("exhaustive", "pareto-local"):
                if not self.has(part="growth", engine=engine, asked=size):
                    problem = problem_of(f"{WHOLE}@{size}")
                    row = timed(lambda p=problem, e=engine: search(p, e))[1]
                    self.add(
                        part="growth", engine=engine, asked=size, points=problem.space.size, **row
                    )
        problem = problem_of(WHOLE)
        for count in BUDGETS:
            if not self.has(part="budget", asked=count):
                row = timed(lambda n=count: search(problem, "pareto-local", evaluations=n))[1]
                self.add(
                    part="budget",
                    engine="pareto-local",
                    asked=count,
                    points=problem.space.size,
                    **row,
                )


def thinned(space: Space, size: int) -> Space:
    """The space with every second value of its longest scale left out, again and again, until it
    has at most `size` points.

    Chips, formats, axes that depend on the chip and those that conditions name keep all of their
    values. May stay above `size` where nothing is left to thin.
    """
    kept = {condition.axis for axis in space.axes for condition in axis.when}
    kept |= {axis.name for axis in space.axes if axis.by_chip}
    while space.size > size:
        lengths = [
            len(axis.values) if axis.ordered and axis.name not in kept else 0 for axis in space.axes
        ]
        if max(lengths) <= 2:
            break
        longest = lengths.index(max(lengths))
        axes = list(space.axes)
        axes[longest] = replace(axes[longest], values=axes[longest].values[::2])
        space = Space(space.name, axes, space.fingerprint)
    return space


def one(problem: PhysicsProblem, engine: str, seed: int, truth: Result) -> Row:
    """One search, its record stored on the way."""
    with tempfile.TemporaryDirectory() as folder:
        record = Record(problem, Path(folder) / "journal.log", "benchmark", {})
        result, row = timed(lambda: search(problem, engine, seed=seed, record=record))
    return row | {"trials": record.trials} | quality(problem, result, truth)


def quality(problem: PhysicsProblem, result: Result, truth: Result) -> Row:
    """Share and epsilon in the end."""
    scale = Scale.of(truth.front.F, [objective.log for objective in problem.objectives])
    whole = hypervolume(truth.front.F, scale)
    if not len(result.front):
        return {"share": 0.0, "epsilon": None}
    return {
        "share": hypervolume(result.front.F, scale) / whole,
        "epsilon": max(0.0, additive_epsilon(result.front.F, truth.front.F, scale)),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--spaces", default=",".join(SPACES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=Path, help="JSON file of rows, kept and added to")
    parser.add_argument("--only-engines", action="store_true", help="no agreement, no growth")
    parser.add_argument("--write", action="store_true", help="put a summary into docs/search.md")
    options = parser.parse_args(arguments)
    bench = Bench(options.rows)
    bench.spaces(options.spaces.split(","), options.engines.split(","), options.seeds)
    if not options.only_engines:
        bench.agreement()
        bench.growth()
    print(tables(bench.rows))
    if options.write:
        write("search.md", "python -m benchmarks.search --write", summary(bench.rows).strip())


if __name__ == "__main__":
    main()
