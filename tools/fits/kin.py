"""How far the errors of two chips agree that serve one model: `python -m tools.fits.kin`.

Of every group (model and chip) the median of log(measured / predicted) on rows that the fit had not
seen, by metric and serving; then pairs of chips with the same model, of one family and of two.
Figures of a first token are left out, for its queue differs from server to server.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from dse.accuracy.calibrate import pose
from dse.accuracy.scores import ENOUGH_ROWS
from dse.accuracy.tables import read_table
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.space.candidates import Floats
from tools.fits.serving import DATA

SLOW = ("tpot_s", "decode_step_s")  # log ratio above 0 on a machine slower than predicted
FAST = ("output_tokens_per_s",)


def correlations(
    table: pd.DataFrame, ratio: Floats, family: dict[str, str]
) -> dict[str, tuple[int, float]]:
    """(pairs, correlation) of chips of the `same` family and of `other` ones; `ratio` (n,) is
    measured / predicted of the rows of `table`.

    Robust, as `tools.fits.serving.shared_variance` is: with d the difference of two groups and x
    a group less the median of all, of equal variance v, E d^2 = 2 v (1 - correlation); both second
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


def main() -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        problem = pose(read_table(hardware_dir() / MEASUREMENTS / DATA))
        numbers = problem.held_out(print)["group"]
    used = problem.weight > 0.0
    family = {chip.id: chip.family for chip in load_catalog().chips.values()}
    ratio = problem.measured[used] / numbers[used, 0]
    for name, (count, value) in correlations(problem.table[used], ratio, family).items():
        print(f"{name} family: {value:.2f} over {count} pairs")


if __name__ == "__main__":
    main()
