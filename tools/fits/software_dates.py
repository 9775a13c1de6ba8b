"""What a year of software brought: `python -m tools.fits.software_dates`.

Rows of one model, chip, backend, metric and series of sources that were measured at two dates or
more, each against today's prediction, so that loads may differ. The slope is that of
log(measured time / predicted) over years; a pair of model and chip counts once, with its median.
Then each model is left out: its change is that of the others of its kind, dense or sparse.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from dse.accuracy.measurements import covered, predict, read
from dse.accuracy.tables import campaigns
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.schema.model_catalog import resolve_model
from tools.fits.serving import DATA

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


def main() -> None:
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
    main()
