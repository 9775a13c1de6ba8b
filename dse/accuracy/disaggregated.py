"""Rows of disaggregated prefill and decode, predicted.

The measurement format with two pools in place of one: `prefill_workers/tp/pp/dp/ep` and
`decode_workers/tp/pp/dp/ep`, both on `chip`. Of the rest, the rules of `dse.accuracy.rows` hold.
Speculative decoding is not recorded in the known rows and is taken as off.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.points import ADDED, ROUNDS, machines_of
from dse.accuracy.rows import NEEDED, NUMBERS, TEXTS, Row, number, read_row
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.physics.disaggregated import predict_disaggregated
from dse.physics.intervals import interval
from dse.physics.machines import Machines
from dse.physics.workload import Workload
from dse.problem.evaluate import worst_kind
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch

POOLS = ("prefill", "decode")
AXES = ("tp", "pp", "dp", "ep")
Pair = tuple[Row, Row]


def estimate_disaggregated(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    for name in (*NEEDED, *(f"{pool}_workers" for pool in POOLS)):
        if name not in table:
            raise InputError(f"no column {name!r}", accepted="the measurement format")
    catalog = catalog or load_catalog()
    machines = machines_of(catalog)
    status, assumed = ["ok"] * len(table), [""] * len(table)
    groups: dict[str, list[tuple[int, Pair]]] = {}
    models: dict[str, Model | str] = {}
    for position, cells in enumerate(table.fillna("").astype(str).to_dict("records")):
        try:
            pair = _pools({str(k): str(v).strip() for k, v in cells.items()}, catalog, models)
        except InputError as error:
            status[position] = error.message
            continue
        groups.setdefault(pair[0].backend, []).append((position, pair))
        assumed[position] = "; ".join([pair[0].assumed, "no speculative decoding"])
    numbers = np.full((len(table), 4), np.nan)
    for backend, found in groups.items():
        where = [position for position, _ in found]
        numbers[where] = _predict([pair for _, pair in found], catalog, backend, machines)
    answer = table.copy()
    for k, name in enumerate(ADDED[:4]):
        answer[name] = numbers[:, k]
    answer["status"], answer["assumed"] = status, assumed
    return answer


def _pools(cells: dict[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Pair:
    """The two pools of a row, each as a row of its own."""
    if cells["serving"] != "disaggregated":
        raise InputError(f"serving {cells['serving']!r} is not disaggregated")
    if cells["metric"] not in ("ttft_s", "tpot_s"):
        raise InputError(f"metric {cells['metric']!r} is not modelled")
    rows, both = [], 0.0
    for pool in POOLS:
        own = {name: cells.get(name, "") for name in (*NUMBERS, *TEXTS)}
        own |= {axis: cells.get(f"{pool}_{axis}", "") for axis in AXES}
        chips = number(cells, f"{pool}_workers")
        for axis in ("tp", "pp", "dp"):
            chips *= number(own, axis, 1.0)
        both += chips
        rows.append(
            read_row(own | {"serving": "continuous", "n_chips": str(chips)}, catalog, models)
        )
    catalog.require(rows[0].chip, both)  # the cache crosses a link between the pools
    return rows[0], rows[1]


def _batch(rows: list[Row], machines: Machines) -> CandidateBatch:
    return batch_of(
        [row.model for row in rows],
        np.array([machines.code(row.chip) for row in rows], dtype=np.intp),
        [row.weight_dtype for row in rows],
        [row.kv_dtype for row in rows],
        {axis: np.array([row.deployment[axis] for row in rows]) for axis in DEPLOYMENT_AXES},
    )


def _predict(pairs: list[Pair], catalog: Catalog, backend: str, machines: Machines) -> np.ndarray:
    """(predicted, low, high, floor) of rows of one backend, (rows, 4)."""
    prefill, decode = (_batch([pair[k] for pair in pairs], machines) for k in range(2))
    prompt = np.array([pair[0].prompt for pair in pairs])
    output = np.array([pair[0].output for pair in pairs])
    load = Workload(prompt, output, "continuous", catalog.backends[backend], ROUNDS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(prefill, decode, load, machines, machines)
    kind = np.maximum(worst_kind(prefill, machines), worst_kind(decode, machines))
    first = np.array([pair[0].metric == "ttft_s" for pair in pairs])
    values = np.where(first, found.ttft_s, found.tpot_s)
    floor = np.where(first, found.prefill_floor_s, found.latency_floor_s)
    answer = np.full((len(pairs), 4), np.nan)
    for metric, rows in (("ttft_s", first), ("tpot_s", ~first)):
        low, high = interval(metric, values[rows], kind[rows], machines.spread)
        answer[rows] = np.stack([values[rows], low, high, floor[rows]], axis=1)
    return answer
