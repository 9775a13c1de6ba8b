"""How long a large study takes to read: `python -m benchmarks.trials [--json] [--trials N]`.

Writes trials of `quickstart` into a journal (`--storage URL`: into a database, as study
`benchmark`), then reads them as `dse run` does when it resumes: the study is opened, its identity
compared, the ids of its trials are known, and values, constraints and points stand in arrays.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.evaluate import quickstart
from dse.problem.objective import PhysicsProblem
from dse.search.evaluator import Batch
from dse.search.record import Record

TRIALS = 100_000
IDENTITY = {"space": "quickstart"}


def points(problem: PhysicsProblem, n: int) -> Batch:
    """n distinct points whose objectives are all finite."""
    index = problem.space.sample(np.random.default_rng(0), min(2 * n, problem.space.size))
    found = problem.evaluate(index)
    finite = np.flatnonzero(np.isfinite(found.F).all(axis=1) & np.isfinite(found.G).all(axis=1))[:n]
    return Batch(problem.space.rank(index[finite]), index[finite], found.F[finite], found.G[finite])


def measure(problem: PhysicsProblem, trials: int, location: str | Path) -> dict[str, float]:
    """Seconds of writing, opening and extracting; `read_cpu_s` does not depend on what else the
    machine does."""
    batch = points(problem, trials)
    written = Record(problem, location, "benchmark", IDENTITY, fresh=True)
    started = time.perf_counter()
    written.add(batch, "sample")
    wrote, before = time.perf_counter(), time.process_time()
    record = Record(problem, location, "benchmark", IDENTITY)
    opened = time.perf_counter()
    found = record.load()
    extracted, spent = time.perf_counter(), time.process_time() - before
    same = np.array_equal(found.batch.ids, batch.ids) and np.array_equal(found.batch.G, batch.G)
    assert same, "what was read is not what was written"
    return {
        "trials": len(found.stages),
        "write_s": wrote - started,
        "open_s": opened - wrote,
        "extract_s": extracted - opened,
        "read_s": extracted - wrote,
        "read_cpu_s": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--storage", help="an Optuna storage URL; a journal file if left out")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        location = asked.storage or Path(folder) / "journal.log"
        answer = measure(quickstart(), asked.trials, location)
    answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if asked.json:
        print(json.dumps(answer, indent=1))
        return
    print(
        f"{answer['trials']:,} trials: written in {answer['write_s']:.1f} s, "
        f"read in {answer['read_s']:.1f} s (opened {answer['open_s']:.1f} s, "
        f"into arrays {answer['extract_s']:.1f} s; {answer['read_cpu_s']:.1f} s of processor); "
        f"{answer['peak_bytes'] / 1e9:.1f} GB at most"
    )


if __name__ == "__main__":
    main()
