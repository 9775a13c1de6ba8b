"""Rows of disaggregated prefill and decode, predicted.

The measurement format with two pools in place of one: `prefill_workers/tp/pp/dp/ep` and
`decode_workers/tp/pp/dp/ep`, both on `chip`. Of the rest, the rules of `dse.accuracy.rows` hold.
Speculative decoding is not recorded in the known rows and is taken as off.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.points import ROUNDS, Readout, batch_of_rows
from dse.accuracy.rows import NEEDED, NUMBERS, TEXTS, Row, number, read_row
from dse.accuracy.tables import (
    Column,
    in_table,
    machines_of,
    predict_by_metric,
    read_each,
    require_columns,
    with_predictions,
)
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.physics.disaggregated import predict_disaggregated
from dse.physics.intervals import interval
from dse.physics.machines import Machines
from dse.physics.workload import Workload
from dse.problem.evaluate import worst_kind
from dse.schema.model import Model
from dse.space.candidates import Floats

POOLS = ("prefill", "decode")
AXES = ("tp", "pp", "dp", "ep")
Pair = tuple[Row, Row]


def estimate_disaggregated(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    require_columns(table, (*NEEDED, *(f"{pool}_workers" for pool in POOLS)))
    catalog = catalog or load_catalog()
    machines = machines_of(catalog)
    models: dict[str, Model | str] = {}
    rows, status = read_each(
        table,
        (*NUMBERS, *TEXTS, *(f"{pool}_{name}" for pool in POOLS for name in ("workers", *AXES))),
        lambda cells: _pools(cells, catalog, models),
    )
    groups: dict[str, list[tuple[int, Pair]]] = {}
    for position, pair in rows:
        groups.setdefault(pair[0].backend, []).append((position, pair))
    numbers = np.full((len(table), 5), np.nan)
    for backend, found in groups.items():
        where = np.array([position for position, _ in found], dtype=np.intp)
        _predict([pair for _, pair in found], catalog, backend, machines, numbers, where)
    assumed = in_table(rows, len(table), lambda pair: f"{pair[0].assumed}; no speculative decoding")
    return with_predictions(table, Readout((), (), tuple(status), assumed), numbers)


def _pools(cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Pair:
    """The two pools of a row, each as a row of its own."""
    if cells["serving"] != "disaggregated":
        raise InputError(f"serving {cells['serving']!r} is not disaggregated")
    if cells["metric"] not in ("ttft_s", "tpot_s"):
        raise InputError(f"metric {cells['metric']!r} is not modelled")
    rows, both = [], 0.0
    for pool in POOLS:
        own = {name: cells[name] for name in (*NUMBERS, *TEXTS)}
        own |= {axis: cells[f"{pool}_{axis}"] for axis in AXES}
        chips = number(cells, f"{pool}_workers")
        for axis in ("tp", "pp", "dp"):
            chips *= number(own, axis, 1.0)
        both += chips
        rows.append(
            read_row(own | {"serving": "continuous", "n_chips": str(chips)}, catalog, models)
        )
    catalog.require(rows[0].chip, both)  # the cache crosses a link between the pools
    return rows[0], rows[1]


def _predict(
    pairs: list[Pair],
    catalog: Catalog,
    backend: str,
    machines: Machines,
    numbers: Floats,
    position: NDArray[np.intp],
) -> None:
    """Sets the rows `position` of `numbers` (n, 5): pairs of one backend."""
    prefill, decode = (
        batch_of_rows(pools, [machines.code(row.chip) for row in pools])
        for pools in ([pair[k] for pair in pairs] for k in range(2))
    )
    prompt = np.array([pair[0].prompt for pair in pairs])
    output = np.array([pair[0].output for pair in pairs])
    load = Workload(prompt, output, "continuous", catalog.backends[backend], ROUNDS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(prefill, decode, load, machines, machines)
    kind = np.maximum(worst_kind(prefill, machines), worst_kind(decode, machines))
    values = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s}
    floors = {"ttft_s": found.prefill_floor_s, "tpot_s": found.latency_floor_s}

    def of(metric: str, rows: NDArray[np.bool_]) -> list[Column]:
        value = values[metric][rows]
        low, high = interval(metric, value, kind[rows], machines.spread)
        return [value, low, high, floors[metric][rows], kind[rows]]

    predict_by_metric(numbers, position, np.array([pair[0].metric for pair in pairs]), of)
