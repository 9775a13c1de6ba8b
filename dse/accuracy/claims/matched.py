"""Measured rows of two chips that share everything else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.scores import SAME
from dse.catalog import load_catalog
from dse.schema.dtypes import arithmetic

DECODE = ("tpot_s", "decode_step_s", "output_tokens_per_s")


@cache
def matched(metrics: tuple[str, ...] = DECODE) -> pd.DataFrame:
    """Pairs (chip_a, chip_b) of closed-loop, static or offline rows that share model, parallelism,
    formats, lengths, concurrency and backend, b the later chip: `speed` of b over a as
    measured, `predicted` the same as predicted, `bandwidth` and `flops` the ratios of the chips'
    figures (dense peak of the arithmetic of the weights)."""
    rows = measurements.covered(measurements.predict(measurements.shipped()[0]))
    chips = load_catalog().chips
    rows = rows[rows["metric"].isin(metrics)]
    same = [name for name in SAME if name in rows]
    kept = rows[[*same, "chip", "value", "predicted"]].copy()
    kept[same] = kept[same].astype(str)
    pairs = kept.merge(kept, on=same, suffixes=("_a", "_b"))
    order = {
        name: (chip.year or 0, chip.memories[0].bytes_per_s, name) for name, chip in chips.items()
    }
    later = [order[a] < order[b] for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)]
    pairs = pairs[np.array(later, dtype=bool)].reset_index(drop=True)
    pairs["concurrency"] = pd.to_numeric(pairs["concurrency"], errors="coerce")  # offline: none
    rate = np.where(pairs["metric"].str.endswith("_per_s"), 1.0, -1.0)
    for name, column in (("speed", "value"), ("predicted", "predicted")):
        pairs[name] = (pairs[f"{column}_b"] / pairs[f"{column}_a"]) ** rate
    pairs["bandwidth"] = [
        chips[b].memories[0].bytes_per_s / chips[a].memories[0].bytes_per_s
        for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)
    ]
    pairs["flops"] = [
        peak(b, dtype) / peak(a, dtype)
        for a, b, dtype in zip(pairs["chip_a"], pairs["chip_b"], pairs["weight_dtype"], strict=True)
    ]
    return pairs


def peak(chip: str, weight_dtype: str) -> float:
    """Dense FLOP/s of the arithmetic that weights of a format run on; 16 bits where the chip has
    none of its own or the format is not said."""
    peaks = load_catalog().chips[chip].peak_flops_per_s
    own = arithmetic(weight_dtype) if weight_dtype else "bf16"
    return peaks.get(own, peaks["bf16"])
