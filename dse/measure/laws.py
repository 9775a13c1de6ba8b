"""The fit of one law to points of (flops, bytes, seconds), and of one collective to messages; how
far a law is off on shapes that it never saw, and what misaligned sizes cost.

The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from dse.measure.session import HEADS, SIZES, STREAMS, Point, timed

FOLDS = 5
FEWEST = 6  # points of a fit of four constants
WHOLE = ("m", "n", "k", *HEADS, "elements")
COLUMNS = ("operator", "dtype", *WHOLE, "flops", "bytes", "seconds", "spread", "samples")


def law(flops, moved, peak, bandwidth, constants):
    """Seconds (n,) of the law in the module docstring; constants: compute, memory, fixed us, p."""
    compute, memory, fixed_us, p = constants
    parts = p * np.log(flops / (compute * peak)), p * np.log(moved / (memory * bandwidth))
    return np.exp(np.logaddexp(*parts) / p) + fixed_us * 1e-6


def fit(
    points: pd.DataFrame, peak: float, bandwidth: float, top_p: float = 8.0, top_us: float = 300.0
) -> dict:
    """Least robust log error with compute, memory <= 1, 0 <= fixed <= `top_us`, 1 <= p <= `top_p`.
    `error` is the median over the points of |predicted / seconds - 1|."""
    flops, moved, seconds = points[["flops", "bytes", "seconds"]].to_numpy(float).T

    def predict(x):
        return law(flops, moved, peak, bandwidth, x)

    most, robust = (1, 1, top_us, top_p), {"loss": "soft_l1", "f_scale": 0.05}
    best = least(lambda x: np.log(predict(x) / seconds), most, **robust)
    x = [float(f"{value:.3g}") for value in best]
    error = float(np.median(np.abs(predict(x) / seconds - 1)))
    keys = dict(zip(("compute", "memory", "fixed", "p"), x, strict=True))
    return {**keys, "kind": "fitted", "error": round(error, 3)}


def least(residuals: Callable, most: tuple[float, ...], **loss: Any) -> np.ndarray:
    """Constants of a law, at most `most`, with the least `residuals`, of three starts."""
    found = [
        least_squares(
            residuals,
            (0.5, 0.7, 8.0, min(p, (1 + most[-1]) / 2)),
            bounds=((0.01, 0.01, 0, 1), most),
            x_scale=(0.5, 0.5, 5, 1),
            **loss,
        )
        for p in (1.2, 2.5, 5.0)
    ]
    return min(found, key=lambda one: round(one.cost, 9)).x


def median(values: np.ndarray, weight: np.ndarray) -> float:
    """Weighted median of (n,) values."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(share, share[-1] / 2)])


def link_law(size, wire_s, seconds) -> dict:
    """Constants of seconds = latency + transfer + ramp sqrt(latency transfer), where transfer =
    wire_s / fraction, (n,) each, and their median error.

    Messages up to 1 MiB (decode), above 32 MiB (prefill) and between count one third each.
    """
    group = pd.Series(np.digitize(size, (1.1 * 2**20, 1.1 * 2**25)))
    weight = (1 / group.groupby(group).transform("size")).to_numpy()

    def predict(x):
        latency, transfer = x[0] * 1e-6, wire_s / x[1]
        return latency + transfer + x[2] * np.sqrt(latency * transfer)

    best = least_squares(
        lambda x: np.sqrt(weight) * np.log(predict(x) / seconds),
        (5.0, 0.6, 0.5),
        bounds=((0, 0.01, 0), (300.0, 1.2, 4)),
        loss="soft_l1",
        f_scale=0.1 * np.sqrt(weight.mean()),
        x_scale=(5.0, 0.2, 0.5),
    ).x
    latency, fraction, ramp = (float(f"{value:.3g}") for value in best)
    ramp = round(ramp, 3)
    error = median(np.abs(predict((latency, fraction, ramp)) / seconds - 1), weight)
    return {"latency": latency, "fraction": fraction, "ramp": ramp, "error": round(error, 3)}


def table(points: Sequence[Point]) -> pd.DataFrame:
    """One row a point: `seconds` is the median of the samples, `spread` the distance between their
    quartiles over it."""
    rows = []
    for point in points:
        work = point.work
        sizes = dict(zip(SIZES[work.operator], work.sizes, strict=True))
        counted = {"flops": work.flops, "bytes": work.bytes}
        of = {"operator": work.operator, "dtype": work.dtype}
        rows.append({**of, **sizes, **counted, **timed(point.samples)})
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(dict.fromkeys(WHOLE, "Int64"))


def reached(points: pd.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """(best operations a second of a GEMM by format, bytes a second by kernel of the memory)."""
    gemms = points[points.operator == "gemm"]
    fastest = (gemms.flops / gemms.seconds).groupby(gemms.dtype, sort=False).max()
    rates = {str(dtype): float(rate) for dtype, rate in fastest.items()}
    memory = points[points.operator.isin(tuple(STREAMS))]
    return rates, dict(zip(memory.operator, memory.bytes / memory.seconds, strict=True))


def fits(
    points: pd.DataFrame,
    peaks: Mapping[str, float],
    bandwidth: float,
    software: str,
    top_us: float = 300.0,
) -> list[dict[str, Any]]:
    """A fit of each operator and format with enough points: `operator, dtype,
    timed_shapes, law` (`dse.measure.calibration`), `fit_error` and `held_out_error`, medians of the
    miss as a fraction; the second on shapes that the fit was made without. Bandwidth in bytes/s."""
    found = []
    for (operator, dtype), rows in points.groupby(["operator", "dtype"], sort=False):
        if operator in STREAMS or len(rows) < FEWEST or dtype not in peaks:
            continue
        constants = fit(rows, peaks[str(dtype)], bandwidth, top_us=top_us)
        constants["fixed"] = 0.0 if constants["fixed"] < 1e-3 else constants["fixed"]
        held_out = _held_out(rows, peaks[str(dtype)], bandwidth, top_us)
        note = f"{len(rows)} points measured here, {software}"
        if held_out is not None:
            note += f"; off by {held_out:.3f} (median) on shapes left out of the fit"
        found.append(
            {
                "operator": str(operator), "dtype": str(dtype), "timed_shapes": len(rows),
                "law": constants | {"note": note}, "fit_error": constants["error"],
                "held_out_error": held_out, "sample_spread": round(float(rows.spread.median()), 3),
            }
        )  # fmt: skip
    return found


def _held_out(points: pd.DataFrame, peak: float, bandwidth: float, top_us: float) -> float | None:
    """Median miss over all points, each predicted by the fit to the other folds; a fold holds whole
    shapes (weights, or heads), so that none is known from other row counts."""
    keys = ["n", "k"] if points.operator.iloc[0] == "gemm" else ["heads", "kv_heads", "head_dim"]
    shape = points.groupby(keys).ngroup().to_numpy()
    count = shape.max() + 1
    if count < 3:
        return None
    misses = []
    for fold in range(min(FOLDS, count)):
        out = shape % min(FOLDS, count) == fold
        if (~out).sum() < FEWEST:
            return None
        x = fit(points[~out], peak, bandwidth, top_us=top_us)
        constants = tuple(x[name] for name in ("compute", "memory", "fixed", "p"))
        rows = points[out]
        predicted = law(rows.flops.to_numpy(), rows.bytes.to_numpy(), peak, bandwidth, constants)
        misses.append(np.abs(predicted / rows.seconds.to_numpy() - 1))
    return round(float(np.median(np.concatenate(misses))), 3)
