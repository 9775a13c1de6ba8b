"""Fits the training stacks and writes them: `python -m tools.fits.training [--check | --groups]`.

Writes the fitted constants into `hardware/training/*.yaml` (kind `fitted`; all other lines stay)
and the spread of held-out rows into `hardware/efficiency/training/calibration.yaml`. The data is
the project's own copy of the measurements; the same data and versions write the same bytes.
`--check` prints held-out errors and constants and writes nothing; `--groups` the errors of every
group in tokens per second and chip, the worst with its model left out first.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from dse.accuracy.measurements import TRAINING, covered, read, ready, scored_rows
from dse.accuracy.scores import score
from dse.accuracy.training_fit import (
    PARAMETERS,
    TrainingProblem,
    moved_stacks,
    pose_training,
)
from dse.catalog import MEASUREMENTS
from dse.data import hardware_dir
from dse.schema.training_stack import (
    CALIBRATION,
    CLOCK,
    FOLDER,
    fitted_clocks,
    training_stacks,
)
from dse.space.candidates import Floats
from tools.fits.public_runs import RUNS, usual

DATE = "2026-11-23"
SPREAD = """# Written by dse/accuracy/fit_training.py; docs/accuracy.md says how far it holds.
title: Spread of held-out training rows
kind: fitted
source: >-
  training rows of hardware/measurements/{data} ({rows} runs of {groups} groups, weighted by group);
  spread of measured / predicted speed, 10th and 90th percentile of rows whose group (model and
  chip) the fit had not seen; "run": whole runs in chip-hours, which enter no fit. A clock is
  arithmetic of sustained training over that of the chip's kernel laws; "usual": published hours
  over those of the best plan that dse train finds, geometric mean, least and most of
  {runs}
date: "{date}"
data_digest: {digest}
factors:
  usual: {usual:.3g}
  usual_least: {least:.3g}
  usual_most: {most:.3g}
{clocks}
spread:
"""
LINE = re.compile(r"^  (\w+): \{value: [^,]+, kind: \w+, source: .*\}$")


def posed(path: Path) -> TrainingProblem:
    """The fitting problem of the rows of a file."""
    table = scored_rows(read(path))
    return pose_training(table, np.ones(len(table), dtype=bool))


def spread_text(
    path: Path,
    problem: TrainingProblem,
    held: Floats,
    clocks: Mapping[str, float],
    over_best: tuple[float, list[float]],
) -> str:
    """The calibration file of the rows in `path`, held out by group; `over_best` is what
    `tools.fits.public_runs.usual` gives."""
    used = problem.weight > 0.0
    lines = [
        SPREAD.format(
            data=path.name,
            rows=int(used.sum()),
            groups=problem.table["group"][used].nunique(),
            date=DATE,
            usual=over_best[0],
            least=min(over_best[1]),
            most=max(over_best[1]),
            runs=", ".join(run.name for run in RUNS),
            clocks="\n".join(f"  {CLOCK}{chip}: {value:.3g}" for chip, value in clocks.items()),
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        ).rstrip()
    ]
    everything = np.isfinite(held[:, 0])
    for name, kinds in problem.spread(held, everything).items():
        ends = (f"{kind}: [{low:.3g}, {high:.3g}]" for kind, (low, high) in kinds.items())
        lines.append(f"  {name}: {{{', '.join(ends)}}}")
    return "\n".join(lines) + "\n"


def stack_text(text: str, constants: Mapping[str, float], source: str) -> str:
    """A stack file with these constants as fitted ones."""
    lines = []
    for line in text.splitlines():
        found = LINE.match(line)
        if found and found[1] in constants:
            value = constants[found[1]]
            line = f'  {found[1]}: {{value: {value:.3g}, kind: fitted, source: "{source}"}}'
        lines.append(line)
    return "\n".join(lines) + "\n"


def constants_of(problem: TrainingProblem, moves: Floats) -> dict[str, dict[str, float]]:
    """By stack, its fitted constants."""
    stacks = moved_stacks(problem.stacks, moves)
    found: dict[str, dict[str, float]] = {}
    for parameter in PARAMETERS:
        for name in parameter.stacks if parameter.constant != CLOCK else ():
            constant = parameter.constant
            found.setdefault(name, {})[constant] = getattr(stacks[name], constant)
    return found


def report(problem: TrainingProblem, held: Mapping[str, Floats], moves: Floats) -> None:
    """Prints errors by fold and the constants."""
    for by, numbers in {"nothing": problem.predict(moves), **held}.items():
        rows = covered(ready(problem.predicted(numbers)))
        for item in score(rows):
            if item["by"] == "all":
                print(
                    f"{by:8} {item['metric']:28} {item['serving']:9} groups {item['groups']:3} "
                    f"error {item['group_median_error']:.3f} median {item['median_error']:.3f} "
                    f"bias {item['bias']:+.3f}"
                )
    for parameter, t in zip(PARAMETERS, moves, strict=True):
        stacks = ", ".join(parameter.stacks)
        print(f"{parameter.constant:24} {parameter.moved(float(t)):8.4g}  {t:+.2f}  {stacks}")


def report_groups(problem: TrainingProblem, held: Mapping[str, Floats], moves: Floats) -> None:
    """Prints of each group its rows, and by fold the median error and the median bias."""
    table = problem.table
    rows = (table["metric"] == "tokens_per_s_per_chip").to_numpy() & problem.used
    groups = table["group"][rows]
    columns: dict[str, pd.Series] = {"rows": groups.value_counts()}
    for by, numbers in {"nothing": problem.predict(moves), **held}.items():
        error = pd.Series((numbers[:, 0] / problem.measured - 1.0)[rows], groups.index)
        each = {"error": error.abs(), "bias": error}
        columns |= {f"{by} {what}": one.groupby(groups).median() for what, one in each.items()}
    found = pd.DataFrame(columns).sort_values("model error", ascending=False)
    print(found.to_string(float_format="{:+.3f}".format))


def stack_files(path: Path, problem: TrainingProblem, moves: Floats) -> dict[Path, str]:
    """The stacks as the fit writes them, by file."""
    used = int((problem.weight > 0.0).sum())
    source = f"{used} runs of hardware/measurements/{path.name} (dse.accuracy.fit_training)"
    found = {}
    for name, constants in constants_of(problem, moves).items():
        file = hardware_dir() / FOLDER / f"{name}.yaml"
        found[file] = stack_text(file.read_text(encoding="utf-8"), constants, source)
    return found


def main(arguments: list[str]) -> None:
    path = hardware_dir() / MEASUREMENTS / TRAINING
    problem = posed(path)
    moves = problem.fit()
    held = problem.held_out(start=moves)
    if "--groups" in arguments:
        report_groups(problem, held, moves)
        return
    if "--check" in arguments:
        report(problem, held, moves)
        return
    written = stack_files(path, problem, moves)
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
    clocks = moved_stacks(problem.stacks, moves)["megatron"].clocks
    calibration = hardware_dir() / CALIBRATION
    # Twice: the plans of published runs are searched with the constants just written.
    for over_best in (lambda: (1.0, [1.0] * len(RUNS)), usual):
        text = spread_text(path, problem, held["group"], clocks, over_best())
        calibration.write_text(text, encoding="utf-8")
        training_stacks.cache_clear()
        fitted_clocks.cache_clear()
    for file in (*written, calibration):
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
