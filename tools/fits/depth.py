"""What width and depth are worth, from published runs: python -m tools.fits.depth

`depth_evidence.csv` holds 76 dense runs of 35 shapes (78M to 1.7B parameters, 1.6B to 49B tokens)
with their losses: all that Bian et al. 2025 published. The parameters of a run are all of the
model, both tables of 50,432 words included, for these the authors kept alike between the shapes of
one size. The loss is E + A / (N S)^a + B / D^b with S the factor of `dse.quality.law`: seven
numbers, least squares of relative errors. The best width per layer is not theirs: a line through
the logarithms of the dense models of `search_spaces/models.csv`.

The interval is an 80% bootstrap over shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dse.physics.parameters import parameters
from dse.problem.models import batch_of_models
from dse.quality.law import depth_factor
from dse.schema.model_catalog import load_models

EVIDENCE = Path(__file__).with_name("depth_evidence.csv")
TABLES = 2.0 * 50_432.0  # parameters for each unit of width
# log E, log A at 1e8 parameters, a, log B at 1e9 tokens, b, k shallow, k deep
START = (0.8, 0.0, 0.4, 0.5, 0.6, 0.1, 0.05)
BOUNDS = ((-3.0, -5.0, 0.05, -5.0, 0.05, -0.5, -0.5), (1.0, 5.0, 2.0, 5.0, 2.0, 1.5, 1.5))
DRAWS = 200

Floats = NDArray[np.float64]


def read() -> pd.DataFrame:
    return pd.read_csv(EVIDENCE)


def published_shapes() -> tuple[Floats, Floats]:
    """(n,) parameters without tables, and width per layer, of the dense models of the catalog."""
    batch = batch_of_models(list(load_models().values()))
    count = parameters(batch)
    dense = count.experts == 0.0
    return count.active_non_embedding[dense], (batch.hidden_size / batch.layers)[dense]


def best_width_per_layer() -> tuple[float, float]:
    """(c, e) of c N^e."""
    size, ratio = published_shapes()
    exponent, constant = np.polyfit(np.log(size), np.log(ratio), 1)
    return float(np.exp(constant)), float(exponent)


def loss(at: Floats, table: pd.DataFrame) -> Floats:
    """(n,) of the runs, with the seven numbers of START."""
    width = table["hidden_size"].to_numpy(dtype=float)
    layers, size = (table[name].to_numpy(dtype=float) for name in ("layers", "parameters"))
    tokens = table["training_tokens"].to_numpy(dtype=float)
    worth = size * depth_factor(width, layers, size - TABLES * width, at[5], at[6])
    return (
        np.exp(at[0])
        + np.exp(at[1]) * (worth / 1e8) ** -at[2]
        + np.exp(at[3]) * (tokens / 1e9) ** -at[4]
    )


def fit(
    table: pd.DataFrame, depth: bool = True, start: Sequence[float] | Floats = START
) -> tuple[Floats, float]:
    """The seven numbers, and the root mean square of the relative errors; the last two are 0
    without `depth`."""
    measured, free = table["loss"].to_numpy(), 7 if depth else 5

    def residuals(at: Floats) -> Floats:
        return loss(np.append(at, np.zeros(7 - free)), table) / measured - 1.0

    found = least_squares(
        residuals, start[:free], bounds=(BOUNDS[0][:free], BOUNDS[1][:free]), max_nfev=2000
    )
    return np.append(found.x, np.zeros(7 - free)), float(np.sqrt(np.mean(found.fun**2)))


def intervals(table: pd.DataFrame) -> Floats:
    """(2, 2) 10% and 90% quantiles of k shallow and k deep, shapes drawn again."""
    shape = table["run"].str.rsplit("-", n=1).str[0].to_numpy()
    shapes, rng = np.unique(shape), np.random.default_rng(0)
    found, start = [], fit(table)[0]
    for _ in range(DRAWS):
        drawn = [np.flatnonzero(shape == one) for one in rng.choice(shapes, len(shapes))]
        found.append(fit(table.iloc[np.concatenate(drawn)], start=start)[0][5:])
    return np.quantile(found, [0.1, 0.9], axis=0)


def main() -> None:
    table = read()
    constant, exponent = best_width_per_layer()
    print(f"best width per layer: {constant:.2f} N^{exponent:.3f}")
    at, rms = fit(table)
    low, high = intervals(table)
    for name, k, least, most in zip(("shallow", "deep"), at[5:], low, high, strict=True):
        print(f"k {name}: {k:.3f} ({least:.3f} to {most:.3f})")
    print(f"relative error: {rms:.2%}, without depth {fit(table, depth=False)[1]:.2%}")


if __name__ == "__main__":
    main()
