"""What measured serving says beyond the fit: `python -m tools.fits.residuals kin` or `dates`.

kin: how far the errors of two chips agree that serve one model.

Of every group (model and chip) the median of log(measured / predicted) on rows that the fit had not
seen, by metric and serving; then pairs of chips with the same model, of one family and of two.
Figures of a first token are left out, for its queue differs from server to server.

dates: what a year of software brought.

Rows of one model, chip, backend, metric and series of sources that were measured at two dates or
more, each against today's prediction, so that loads may differ. The slope is that of
log(measured time / predicted) over years; a pair of model and chip counts once, with its median.
Then each model is left out: its change is that of the others of its kind, dense or sparse.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pandas as pd

from dse.accuracy.fits import pose
from dse.accuracy.measurements import covered, predict, read
from dse.accuracy.scores import ENOUGH_ROWS
from dse.accuracy.tables import campaigns, read_table
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.schema.model_catalog import resolve_model
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


def print_kin() -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        problem = pose(read_table(hardware_dir() / MEASUREMENTS / DATA))
        numbers = problem.held_out(print)["group"]
    used = problem.weight > 0.0
    family = {chip.id: chip.family for chip in load_catalog().chips.values()}
    ratio = problem.measured[used] / numbers[used, 0]
    for name, (count, value) in correlations(problem.table[used], ratio, family).items():
        print(f"{name} family: {value:.2f} over {count} pairs")


SIGN = {"tpot_s": 1.0, "decode_step_s": 1.0, "output_tokens_per_s": -1.0}
ROUND = re.compile(r"(?:gbeezybez|mlcommons)/inference_results_v[\d.]+")  # of one series, MLPerf
LEAST = 0.2  # years between two dates
KEYS = ["model", "chip", "backend", "metric", "serving", "series"]
Guess = Callable[[pd.DataFrame], float]


def slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """`model, chip, slope, years, age` of each pair of model and chip: log time a year, the longest
    span, and the chip's age at the first row; `rows` as `predict` leaves them."""
    rows = rows[rows["metric"].isin(list(SIGN)) & (rows["tuning"] != "stock")].copy()
    rows["series"] = [ROUND.sub("MLPerf", name) for name in campaigns(rows)]
    when = rows["date"].str.extract(r"^(20\d\d)-(\d\d)").astype(float)
    rows["when"] = when[0] + (when[1] - 0.5) / 12.0
    rows["log"] = np.log(rows["value"] / rows["predicted"]) * rows["metric"].map(SIGN)
    dated = rows.dropna(subset="when").groupby([*KEYS, "when"])["log"].median().reset_index()
    found = []
    for key, part in dated.groupby(KEYS):
        i, j = np.triu_indices(len(part), 1)
        when, log = part["when"].to_numpy(), part["log"].to_numpy()
        years, moved = when[j] - when[i], log[j] - log[i]
        far = years >= LEAST
        if far.any():
            slope = float((years * moved)[far].sum() / (years[far] ** 2).sum())
            found.append((*key[:2], slope, years.max(), when[0]))
    table = pd.DataFrame(found, columns=["model", "chip", "slope", "years", "first"])
    how = {"slope": "median", "years": "max", "first": "min"}
    table = table.groupby(["model", "chip"]).agg(how).reset_index()
    year = {chip.id: chip.year for chip in load_catalog().chips.values()}
    return table.assign(age=table.pop("first") - table["chip"].map(year))


def left_out(table: pd.DataFrame, guess: Guess) -> float:
    """Median of |change - that by the slope guessed from the other models|, in log time."""
    guessed = [guess(table[table["model"] != model]) for model in table["model"]]
    return float(((table["slope"] - guessed).abs() * table["years"]).median())


def print_dates() -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = covered(predict(read(hardware_dir() / MEASUREMENTS / DATA)))
    table = slopes(rows)
    sparse = np.array([bool(resolve_model(name).experts) for name in table["model"]])
    for kind, part in (("dense", table[~sparse]), ("sparse", table[sparse])):
        low, middle, high = part["slope"].quantile([0.1, 0.5, 0.9])
        age = float(np.corrcoef(part["age"], part["slope"])[0, 1])
        print(
            f"{kind}: {len(part)} pairs over {part['years'].min():.2f} to {part['years'].max():.2f}"
            f" years; log time a year {middle:+.2f}, 80% {low:+.2f} to {high:+.2f}; correlation "
            f"with the chip's age {age:+.2f}; a model left out is off by "
            f"{left_out(part, lambda others: float(others['slope'].median())):.3f}, without a "
            f"trend {left_out(part, lambda _: 0.0):.3f}"
        )


if __name__ == "__main__":
    {"kin": print_kin, "dates": print_dates}[sys.argv[1]]()
