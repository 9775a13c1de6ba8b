"""Fits the calibration and writes it: `python -m tools.fits.serving [FILE]`; with `kin` as FILE it
prints how far the errors of two chips agree that serve one model.

FILE is `hardware/efficiency/serving/calibration.yaml` unless named. The data is the project's own
copy of the measurements. The same data and versions write the same bytes.
"""

from __future__ import annotations

import hashlib
import math
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from dse.accuracy.fits import as_factors, linearise, pose
from dse.accuracy.tables import ENOUGH_ROWS, read_table
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.schema.backend import CALIBRATION
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
  predicted on rows whose source the fit had not seen (dse.accuracy.fits)
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


SLOW = ("tpot_s", "decode_step_s")  # log ratio above 0 on a machine slower than predicted
FAST = ("output_tokens_per_s",)


def correlations(
    table: pd.DataFrame, ratio: Floats, family: dict[str, str]
) -> dict[str, tuple[int, float]]:
    """(pairs, correlation) of chips of the `same` family and of `other` ones; `ratio` (n,) is
    measured / predicted of the rows of `table`, which a fit had not seen. First tokens are left
    out, for their queue differs from server to server.

    Robust, as `shared_variance` is: with d the difference of two groups (model and chip) and x a
    group less the median of all, of equal variance v, E d^2 = 2 v (1 - correlation); both second
    moments are those of the median absolute value.
    """
    sign = table["metric"].map({**dict.fromkeys(SLOW, 1.0), **dict.fromkeys(FAST, -1.0)})
    frame = table[["metric", "serving", "model", "chip"]].assign(log=sign * np.log(ratio))
    keys = ["metric", "serving", "model", "chip"]
    groups = frame.dropna().groupby(keys)["log"].agg(["median", "size"]).reset_index()
    groups = groups[groups["size"] >= ENOUGH_ROWS]
    groups["median"] -= groups["median"].median()
    found: dict[str, list[tuple[float, float]]] = {"same": [], "other": []}
    for _, rows in groups.groupby(["metric", "serving", "model"]):
        for (a, x), (b, y) in combinations(zip(rows["chip"], rows["median"], strict=True), 2):
            found["same" if family[a] == family[b] else "other"].append((x, y))
    return {name: (len(pairs), _robust(np.array(pairs))) for name, pairs in found.items()}


def _robust(pairs: Floats) -> float:
    """Correlation of pairs (n, 2) about 0."""
    apart = float(np.median(np.abs(pairs[:, 0] - pairs[:, 1])))
    return 1.0 - apart**2 / (2.0 * float(np.median(np.abs(pairs))) ** 2)


def print_kin() -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        problem = pose(read_table(hardware_dir() / MEASUREMENTS / DATA))
        numbers = problem.held_out(print)["group"]
    used = problem.weight > 0.0
    family = {chip.id: chip.family for chip in load_catalog().chips.values()}
    ratio = problem.measured[used] / numbers[used, 0]
    for name, (count, value) in correlations(problem.table[used], ratio, family).items():
        print(f"{name} family: {value:.2f} over {count} pairs")


def _round(value: float) -> float:
    """Three significant digits."""
    return round(value, 2 - math.floor(math.log10(abs(value))))


def main(arguments: list[str]) -> None:
    target = Path(arguments[0]) if arguments else hardware_dir() / "efficiency" / CALIBRATION
    with np.errstate(divide="ignore", invalid="ignore"):
        target.write_text(text(hardware_dir() / MEASUREMENTS / DATA), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    if sys.argv[1:] == ["kin"]:
        print_kin()
    else:
        main(sys.argv[1:])
