"""How many evaluations a second: `python -m benchmarks.evaluate [--json]`.

An evaluation takes a point of `quickstart` from its index to every objective and constraint, as a
search does: shape, parameters, prefill, decode and mixed step, collectives, memory, serving, cost,
quality. What no objective or limit names (energy, the parts of each step) is left out. Points are
drawn evenly from all branches of the space; beside them stands the whole space in order, which has
more in common from one point to the next. Two processes, with what a search counts of each point.

Beside it stands a bare NumPy kernel: for every point, operator and step, the passes over memory of
the law of `dse.physics.ledger` and nothing else (no parameters, memory, rules, cost or quality),
in place, on arrays of a chunk. What `evaluate` does less, it shares; what it does more, is the rest
of the model.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dse.catalog import load_catalog
from dse.problem.objective import PhysicsProblem, pose
from dse.record import record
from dse.schema.study import load_study, resolve_space
from dse.search.evaluator import CHUNK, Evaluator
from dse.search.parallel import Executor

POINTS = 400_000
ROUNDS = 5
JOBS = 2
STEPS = 3  # a prompt alone, a decode step, a decode step with prompts


def quickstart() -> PhysicsProblem:
    catalog = load_catalog()
    return pose(load_study(resolve_space("quickstart"), catalog), catalog)


def operators(problem: PhysicsProblem) -> tuple[list[str], list[bool]]:
    """Names of all operators in order; of those that most points run, whether each has arithmetic
    beside what it moves."""
    index = problem.space.unrank(np.arange(0, problem.space.size, problem.space.size // 400))
    entries = problem.metrics(index, keep=True).performance.detail.decode_ledger.entries
    assert entries is not None
    most = [entry for entry in entries if (entry.seconds > 0.0).mean() > 0.5]
    names = dict.fromkeys(entry.name for entry in entries)
    return list(names), [bool(entry.flops.any()) for entry in most]


def kernel(n: int, computing: list[bool]) -> None:
    """Every operator of the steps of n points by the ledger's law: (n,) in place."""
    rows, seconds, sized = np.linspace(1.0, 2.0, n), np.zeros(n), np.full(n, 1e-9)
    p = np.full(n, 3.0)
    compute, memory, larger, busy = (np.empty(n) for _ in range(4))
    for arithmetic in computing * STEPS:
        np.multiply(rows, sized, out=memory)  # bytes
        np.add(memory, sized, out=memory)
        np.multiply(memory, sized, out=memory)  # seconds
        np.copyto(busy, memory)
        if arithmetic:
            np.multiply(rows, sized, out=compute)
            np.multiply(compute, sized, out=compute)
            np.maximum(compute, memory, out=larger)
            np.minimum(compute, memory, out=busy)
            np.divide(busy, larger, out=busy)
            np.power(busy, p, out=busy)
            np.add(busy, 1.0, out=busy)
            np.power(busy, sized, out=busy)
            np.multiply(busy, larger, out=busy)
        np.add(busy, sized, out=busy)  # fixed
        np.multiply(busy, sized, out=busy)  # layers
        np.add(seconds, busy, out=seconds)


@record
class Round:
    """Evaluations a second of points at random and of the space in order, and processor seconds of
    one and of a point of the kernel."""

    per_s: float
    in_order_per_s: float
    cpu_s: float
    kernel_cpu_s: float


def measure(problem: PhysicsProblem, computing: list[bool]) -> list[Round]:
    """Points at random, the whole space in order, one process alone, and the kernel, by turns."""
    space = problem.space
    ids = np.sort(space.rank(space.sample(np.random.default_rng(0), POINTS)))
    chunks = [ids[i : i + CHUNK] for i in range(0, len(ids), CHUNK)]

    def per_s(which: Callable[[int, int], NDArray[np.int64]], points: int) -> float:
        """Evaluations a second with all accounts, over as many processes as there are jobs."""
        evaluator = Evaluator(problem, executor=Executor(JOBS))
        started = time.perf_counter()
        for _ in evaluator.sweep_ids(which, 0, points):
            pass
        assert evaluator.evaluations == points
        return points / (time.perf_counter() - started)

    def cpu_s(work: Callable[[NDArray[np.int64]], object]) -> float:
        """Processor seconds a point, in this process alone."""
        started = time.process_time()
        for chunk in chunks:
            work(chunk)
        return (time.process_time() - started) / len(ids)

    return [
        Round(
            per_s(lambda first, last: ids[first:last], len(ids)),
            per_s(np.arange, space.size),
            cpu_s(lambda part: problem.evaluate(space.unrank(part))),
            cpu_s(lambda part: kernel(len(part), computing)),
        )
        for _ in range(ROUNDS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    problem = quickstart()
    names, computing = operators(problem)
    rounds = measure(problem, computing)
    rates = [one.per_s for one in rounds]
    in_order = [one.in_order_per_s for one in rounds]
    cpu_s = float(np.median([one.cpu_s for one in rounds]))
    kernel_cpu_s = float(np.median([one.kernel_cpu_s for one in rounds]))
    answer = {
        "evaluations_per_s": float(np.median(rates)),
        "rounds": rates,
        "in_order_per_s": float(np.median(in_order)),
        "in_order_rounds": in_order,
        "cpu_s_per_evaluation": cpu_s,
        "kernel_cpu_s_per_point": kernel_cpu_s,
        "over_kernel": cpu_s / kernel_cpu_s,
        "points": POINTS,
        "jobs": JOBS,
        "operators": names,
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if asked.json:
        print(json.dumps(answer, indent=1))
        return
    for words, name, each in (
        ("of points at random", "evaluations_per_s", rates),
        ("of the whole space in order", "in_order_per_s", in_order),
    ):
        every = ", ".join(f"{rate:,.0f}" for rate in each)
        print(f"{answer[name]:,.0f} evaluations a second {words} ({JOBS} processes): {every}")
    print(
        f"{cpu_s * 1e6:.2f} us of a processor each, at random; "
        f"{kernel_cpu_s * 1e6:.2f} of a bare kernel (ratio {cpu_s / kernel_cpu_s:.2f})"
    )
    print(f"{len(answer['operators'])} operators: {', '.join(answer['operators'])}")


if __name__ == "__main__":
    main()
