"""The fit of one law to points of (flops, bytes, seconds), and of one collective to messages.

The shipped efficiency files (`tools.fits.kernels`) and those of `dse calibrate` come from
these functions alike. The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import least_squares


def law(flops, moved, peak, bandwidth, constants):
    """Seconds (n,) of the law in the module docstring; constants: compute, memory, fixed us, p."""
    compute, memory, fixed_us, p = constants
    parts = p * np.log(flops / (compute * peak)), p * np.log(moved / (memory * bandwidth))
    return np.exp(np.logaddexp(*parts) / p) + fixed_us * 1e-6


def fit(
    points: pd.DataFrame, peak: float, bandwidth: float, top_p: float = 8.0, top_us: float = 300.0
) -> dict:
    """Least robust log error with compute, memory <= 1, 0 <= fixed <= `top_us`, 1 <= p <= `top_p`.

    `error` is the weighted median over the points of |predicted / seconds - 1|, joined in
    quadrature with the median miss of the per-backend fit that a condensed point was read from.
    """
    flops, moved, seconds, miss = points[["flops", "bytes", "seconds", "miss"]].to_numpy(float).T
    kinds = points.groupby("backend").measured.transform("nunique")
    total = points.groupby(["backend", "measured"]).rows.transform("sum")
    weight = (points.rows / total / kinds).to_numpy(float)

    def predict(x):
        return law(flops, moved, peak, bandwidth, x)

    solutions = [
        least_squares(
            lambda x: np.sqrt(weight) * np.log(predict(x) / seconds),
            (0.5, 0.7, 8.0, min(p, (1 + top_p) / 2)),
            bounds=((0.01, 0.01, 0, 1), (1, 1, top_us, top_p)),
            loss="soft_l1",
            f_scale=0.05 * np.sqrt(weight.mean()),
            x_scale=(0.5, 0.5, 5, 1),
        )
        for p in (1.2, 2.5, 5.0)
    ]
    best = min(solutions, key=lambda s: round(s.cost, 9)).x
    x = [float(f"{value:.3g}") for value in best]
    error = median(np.hypot(predict(x) / seconds - 1, miss), weight)
    keys = dict(zip(("compute", "memory", "fixed", "p"), x, strict=True))
    note = ", ".join(sorted(set(points.backend + " " + points.version)))
    return {**keys, "kind": "fitted", "error": round(error, 3), "note": note}


def median(values: np.ndarray, weight: np.ndarray) -> float:
    """Weighted median of (n,) values."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(share, share[-1] / 2)])


def link_law(size, wire_s, seconds, miss=0.0, top_us=300.0) -> dict:
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
        bounds=((0, 0.01, 0), (top_us, 1.2, 4)),
        loss="soft_l1",
        f_scale=0.1 * np.sqrt(weight.mean()),
        x_scale=(5.0, 0.2, 0.5),
    ).x
    latency, fraction, ramp = (float(f"{value:.3g}") for value in best)
    ramp = round(ramp, 3)
    error = median(np.hypot(predict((latency, fraction, ramp)) / seconds - 1, miss), weight)
    return {"latency": latency, "fraction": fraction, "ramp": ramp, "error": round(error, 3)}
