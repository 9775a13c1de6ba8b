"""Figures that claims rest on and no verb prints as one number: shipped rows, joules of an access
against a multiply, measured pairs of chips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.scores import pairs_of
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.dtypes import arithmetic


def energy(*, catalog: Catalog) -> dict[str, dict[str, float]]:
    """Joules to read the bits of a number over those of its multiply: by node and multiply, by
    memory (hardware/energy.yaml)."""
    found: dict[str, dict[str, float]] = {}
    operations = catalog.energy.operations
    for multiply in (one for one in operations if one.name.endswith("multiply")):
        ratios = found.setdefault(f"{multiply.name}, {multiply.node}", {})
        for access in operations:
            if access.node == multiply.node and not access.name.endswith("multiply"):
                ratios[access.name] = access.j_per_bit * multiply.bits / multiply.figure.value
    return found


def measured(file: str, where: Mapping[str, Any], column: str = "value") -> dict[str, float | None]:
    """`least`, `median`, `most` and number of `rows` of a column of a shipped file of measurements,
    of the rows that have the values of `where`."""
    path = hardware_dir() / MEASUREMENTS / Path(file).name
    if not path.is_file():
        listed = ", ".join(sorted(one.name for one in path.parent.glob("*.csv")))
        raise InputError(f"no file {file!r}", field="file", accepted=listed)
    table = pd.read_csv(path, dtype=str)
    if missing := {column, *where} - set(table.columns):
        raise InputError(f"no column {missing.pop()!r}", accepted=", ".join(table.columns))
    for name, value in where.items():
        known = [str(one) for one in (value if isinstance(value, list) else [value])]
        table = table[table[name].isin(known)]
    return _ends(table[column].astype(float).to_numpy())


def reached(start: str, growth: str, limit: str) -> dict[str, float]:
    """The `year` in which what starts in the year of its row and grows by a factor each year meets
    a limit, and the `years` until then; all three are subjects of
    hardware/measurements/figures.csv."""
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / "figures.csv", dtype=str)
    rows = {row["subject"]: row for row in table.to_dict("records")}
    if missing := {start, growth, limit} - set(rows):
        raise InputError(f"no subject {missing.pop()!r}", accepted=", ".join(rows))
    first, factor, last = (float(rows[name]["value"]) for name in (start, growth, limit))
    years = math.log(last / first) / math.log(factor)
    return {"year": float(rows[start]["date"][:4]) + years, "years": years}


def pairs(
    before: str = "", after: str = "", concurrency: int = 0, by: str = "speed"
) -> dict[str, Any]:
    """Measured decode speed of a later chip over an earlier one, of rows that share all but the
    chip (those of `before` and `after` alone, up to `concurrency` requests): its `speed`, and how
    far the ratio `by` (bandwidth, flops, predicted) is off it, as a factor minus one."""
    table = matched(DECODE)
    for name, value in (("chip_a", before), ("chip_b", after)):
        table = table[table[name] == value] if value else table
    if concurrency:
        table = table[table["concurrency"] <= concurrency]
    off = np.expm1(np.abs(np.log((table[by] / table["speed"]).to_numpy())))
    return {"speed": _ends(table["speed"].to_numpy()), "off": _ends(off)}


def _ends(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return {"least": None, "median": None, "most": None, "rows": 0}
    ends = {"least": values.min(), "median": np.median(values), "most": values.max()}
    return {name: float(value) for name, value in {**ends, "rows": len(values)}.items()}


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
    pairs = pairs_of(rows)
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
