"""Points of a session as laws, how far these are off on shapes that they never saw, and what
misaligned sizes cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.measure.fitting import fit, law
from dse.measure.work import HEADS, SIZES, STREAMS, Point

FOLDS = 5
FEWEST = 6  # points of a fit of four constants
COLUMNS = (
    "operator", "dtype", "role", "axis", "m", "n", "k", *HEADS, "elements", "flops", "bytes",
    "seconds", "spread", "samples",
)  # fmt: skip
# Time of a misaligned size over that of its neighbours, above which the table calls it a cliff.
CLIFF = 1.15


def table(points: Sequence[Point]) -> pd.DataFrame:
    """One row a point: `seconds` is the median of the samples, `spread` the distance between their
    quartiles over it."""
    rows = []
    for point in points:
        work, samples = point.work, np.array(point.samples)
        low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
        sizes = dict(zip(SIZES[work.operator], work.sizes, strict=True))
        rows.append(
            {
                "operator": work.operator, "dtype": work.dtype, "role": work.role,
                "axis": work.axis, **sizes, "flops": work.flops, "bytes": work.bytes,
                "seconds": middle, "spread": (high - low) / middle, "samples": len(samples),
            }
        )  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    sizes = [name for name in COLUMNS[4:13] if name in frame]
    frame[sizes] = frame[sizes].astype("Int64")
    return frame


def reached(points: pd.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """(best operations a second of a GEMM by format, bytes a second by kernel of the memory)."""
    gemms = points[points.operator == "gemm"]
    rates = {
        dtype: float((rows.flops / rows.seconds).max())
        for dtype in dict.fromkeys(gemms.dtype)
        for rows in (gemms[gemms.dtype == dtype],)
    }
    memory = points[points.operator.isin(tuple(STREAMS))]
    return rates, dict(zip(memory.operator, memory.bytes / memory.seconds, strict=True))


def laws(
    points: pd.DataFrame,
    peaks: Mapping[str, float],
    bandwidth: float,
    software: str,
    top_us: float = 300.0,
) -> list[dict[str, Any]]:
    """A fit of each operator and format with enough points on its grid: `operator, dtype, points,
    law` (`dse.measure.files`), `error` and `held_out_error`, medians of the miss as a
    fraction; the second on shapes that the fit was made without. Bandwidth in bytes a second."""
    found = []
    grid = points[points.role == "grid"]
    for (operator, dtype), rows in grid.groupby(["operator", "dtype"], sort=False):
        if operator in STREAMS or len(rows) < FEWEST or dtype not in peaks:
            continue
        ready = rows.assign(rows=1.0, measured=True, miss=0.0, backend="", version=software)
        constants = fit(ready, peaks[str(dtype)], bandwidth, top_us=top_us)
        constants["fixed"] = 0.0 if constants["fixed"] < 1e-3 else constants["fixed"]
        held_out = _held_out(ready, peaks[str(dtype)], bandwidth, top_us)
        note = f"{len(rows)} points measured here, {software}"
        if held_out is not None:
            note += f"; off by {held_out:.3f} (median) on shapes left out of the fit"
        found.append(
            {
                "operator": str(operator), "dtype": str(dtype), "points": len(rows),
                "law": constants | {"note": note}, "error": constants["error"],
                "held_out_error": held_out, "spread": round(float(rows.spread.median()), 3),
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


def penalties(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Time of each misaligned size over the straight line between its aligned neighbours, medians
    over the shapes that were compared: `operator, dtype, axis, size, below, above, alignment` (the
    largest power of two that divides it), `ratio`, `lowest`, `highest`, `shapes`, `noise` (spread
    of the samples of the three sizes), `cliff` (longer by CLIFF, by more than the noise, and for
    every shape)."""
    compared: Any = points[points.role != "grid"].to_dict("records")
    ratios: dict[tuple, list[tuple[float, float]]] = {}
    # Works of a comparison stand together: below, size, above.
    for k, odd in enumerate(compared):
        if odd["role"] != "misaligned":
            continue
        below, above = compared[k - 1], compared[k + 1]
        low, size, high = (int(row[odd["axis"]]) for row in (below, odd, above))
        slope = (above["seconds"] - below["seconds"]) / (high - low)
        expected = below["seconds"] + (size - low) * slope
        key = (odd["operator"], odd["dtype"], odd["axis"], size, low, high)
        noise = max(row["spread"] for row in (below, odd, above))
        ratios.setdefault(key, []).append((odd["seconds"] / expected, noise))
    names = ("operator", "dtype", "axis", "size", "below", "above")
    rows = []
    for key, found in ratios.items():
        ratio, noise = (float(np.median(one)) for one in zip(*found, strict=True))
        lowest, highest = min(found)[0], max(found)[0]
        cliff = ratio > max(CLIFF, 1.0 + noise) and lowest > 1.0
        numbers = {"ratio": ratio, "lowest": lowest, "highest": highest, "noise": noise}
        rows.append(
            dict(zip(names, key, strict=True))
            | {"alignment": key[3] & -key[3], "shapes": len(found), "cliff": cliff}
            | {name: round(value, 3) for name, value in numbers.items()}
        )
    return rows
