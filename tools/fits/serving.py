"""Fits the calibration and writes it: `python -m tools.fits.serving [FILE]`.

FILE is `hardware/efficiency/serving/calibration.yaml` unless named. The data is the project's own
copy of the measurements. The same data and versions write the same bytes.
"""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from dse.accuracy.fits import as_factors, pose
from dse.accuracy.saturating_fit import linearise
from dse.accuracy.tables import read_table
from dse.catalog import MEASUREMENTS
from dse.data import hardware_dir
from dse.schema.calibration import FILE
from dse.space.candidates import Floats

DATA = "inference.csv"
DATE = "2026-11-23"
HELD = "source"  # whose rows the spread is of: left out as a whole
HEADER = """# Written by tools/fits/serving.py; docs/accuracy.md says how far it holds.
title: Factors on kernel laws and backends, and the spread of held-out rows
kind: fitted
source: >-
  closed-loop, offline and static serving rows of hardware/measurements/{data} ({rows} rows of
  {groups} groups, weighted by group); spread: the narrowest ends that hold 80% of measured /
  predicted on rows whose source the fit had not seen (dse.accuracy.saturating_fit)
date: "{date}"
data_digest: {digest}
"""


def text(path: Path) -> str:
    """The calibration file of the rows in `path`."""
    problem = pose(read_table(path))
    moves = problem.fit()
    factors = as_factors(moves)
    numbers = problem.without_each(HELD, moves, linearise(problem.logs, moves))
    used = problem.used
    table, (spread, wider) = problem.table[used], problem.spread(numbers)
    lines = [
        HEADER.format(
            data=path.name,
            rows=f"{int(used.sum()):,}",
            groups=table["group"].nunique(),
            date=DATE,
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        ).rstrip(),
        "factors:",
        *(f"  {name}: {_round(factor)}" for name, factor in factors.items()),
        "spread:",
    ]
    shared = shared_variance(table, problem.measured[used] / numbers[used, 0])
    for name, kinds in spread.items():
        ends = (f"{kind}: [{_round(low)}, {_round(high)}]" for kind, (low, high) in kinds.items())
        lines.append(f"  {name}: {{{', '.join(ends)}}}")
    lines.append(f"stock_wider: {_round(wider)}")
    lines.append(f"shared: {_round(shared)}")
    return "\n".join(lines) + "\n"


def shared_variance(table: pd.DataFrame, ratio: Floats) -> float:
    """Part of the variance of log(measured / predicted) of times per output token that the rows of
    a group share: median absolute deviation of the groups' medians, squared, over that plus the
    same within groups."""
    rows = table["metric"].isin(("tpot_s", "decode_step_s")).to_numpy()
    frame = pd.DataFrame({"group": table["group"].to_numpy(), "log": np.log(ratio)})[rows]
    frame = frame[frame.groupby("group")["log"].transform("size") >= 5]
    medians = frame.groupby("group")["log"].median()
    within = (frame["log"] - frame["group"].map(medians)).abs().groupby(frame["group"]).median()
    between = float((medians - medians.median()).abs().median()) ** 2
    return between / (between + float(within.median()) ** 2)


def _round(value: float) -> float:
    """Three significant digits."""
    return round(value, 2 - math.floor(math.log10(abs(value))))


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else hardware_dir() / "efficiency" / FILE
    with np.errstate(divide="ignore", invalid="ignore"):
        target.write_text(text(hardware_dir() / MEASUREMENTS / DATA), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
