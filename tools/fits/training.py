"""Fits the training stacks and writes them: `python -m tools.fits.training`.

Writes the fitted constants into `hardware/training/*.yaml` (kind `fitted`; all other lines stay)
and the spread of held-out rows into `hardware/efficiency/training/calibration.yaml`. The data is
the project's own copy of the measurements; the same data and versions write the same bytes.
`dse validate --cross-validate` says how far such a fit is off rows that it has not seen.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from dse.accuracy.fits import (
    CONSTANTS,
    TrainingProblem,
    moved_stacks,
    pose_training,
    spread_of_kinds,
)
from dse.accuracy.training_rows import asked_training
from dse.accuracy.validate import TRAINING, read, ready, scored_rows
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.physics.training.evaluate import HABIT
from dse.schema.training import (
    CALIBRATION,
    CLOCK,
    FOLDER,
    fitted_clocks,
    training_stacks,
)
from dse.space.candidates import Floats
from tools.fits.published import RUNS, whole

DATE = "2026-11-23"
SPREAD = """# Written by tools/fits/training.py; docs/accuracy.md says how far it holds.
title: Spread of held-out training rows
kind: fitted
source: >-
  training rows of hardware/measurements/{data} ({rows} runs of {groups} groups, weighted by group);
  spread of measured / predicted speed, 10th and 90th percentile of rows whose group (model and
  chip) the fit had not seen; "run": whole runs in chip-hours, which enter no fit. A clock is
  arithmetic of sustained training over that of the chip's kernel laws; "whole_run":
  published hours over those of the usual plan that dse train finds, geometric mean, least and most
  of {runs}; "habit": newest rows asked for without their plan, the recipes and runs of their model
  hidden
date: "{date}"
data_digest: {digest}
factors:
  whole_run: {whole:.3g}
  whole_run_least: {least:.3g}
  whole_run_most: {most:.3g}
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
    over_usual: tuple[float, list[float]],
) -> str:
    """The calibration file of the rows in `path`, held out by group; `over_usual` is what
    `tools.fits.published.whole` gives."""
    used = problem.weight > 0.0
    lines = [
        SPREAD.format(
            data=path.name,
            rows=int(used.sum()),
            groups=problem.table["group"][used].nunique(),
            date=DATE,
            whole=over_usual[0],
            least=min(over_usual[1]),
            most=max(over_usual[1]),
            runs=", ".join(run.name for run in RUNS),
            clocks="\n".join(f"  {CLOCK}{chip}: {value:.3g}" for chip, value in clocks.items()),
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        ).rstrip()
    ]
    everything = np.isfinite(held[:, 0])
    for name, kinds in (problem.spread(held, everything) | {HABIT: habit_spread(path)}).items():
        ends = (f"{kind}: [{low:.3g}, {high:.3g}]" for kind, (low, high) in kinds.items())
        lines.append(f"  {name}: {{{', '.join(ends)}}}")
    return "\n".join(lines) + "\n"


def habit_spread(path: Path) -> dict[str, tuple[float, float]]:
    """Of the rows in `path`, asked for with the recipes and runs of their model hidden."""
    rows = ready(asked_training(scored_rows(read(path)), load_catalog(), unseen=True))
    rows = rows[(rows["status"] == "ok") & (rows["metric"] == "tokens_per_s_per_chip")]
    logs = np.log(rows["value"] / rows["predicted"])
    return spread_of_kinds(pd.DataFrame({"log": logs, "group": rows["group"], "kind": 0}))


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
    for one in CONSTANTS:
        for name in one.stacks if one.constant != CLOCK else ():
            constant = one.constant
            found.setdefault(name, {})[constant] = getattr(stacks[name], constant)
    return found


def stack_files(path: Path, problem: TrainingProblem, moves: Floats) -> dict[Path, str]:
    """The stacks as the fit writes them, by file."""
    used = int((problem.weight > 0.0).sum())
    source = f"{used} runs of hardware/measurements/{path.name} (tools.fits.training)"
    found = {}
    for name, constants in constants_of(problem, moves).items():
        file = hardware_dir() / FOLDER / f"{name}.yaml"
        found[file] = stack_text(file.read_text(encoding="utf-8"), constants, source)
    return found


def main() -> None:
    path = hardware_dir() / MEASUREMENTS / TRAINING
    problem = posed(path)
    moves = problem.fit()
    held = problem.held_out(start=moves)
    written = stack_files(path, problem, moves)
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
    clocks = moved_stacks(problem.stacks, moves)["megatron"].clocks
    calibration = hardware_dir() / CALIBRATION
    # Twice: the plans of published runs are searched with the constants just written.
    for over_usual in (lambda: (1.0, [1.0] * len(RUNS)), whole):
        text = spread_text(path, problem, held["group"], clocks, over_usual())
        calibration.write_text(text, encoding="utf-8")
        training_stacks.cache_clear()
        fitted_clocks.cache_clear()
    for file in (*written, calibration):
        print(file)


if __name__ == "__main__":
    main()
