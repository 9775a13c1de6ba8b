"""Rows of disaggregated prefill and decode, predicted.

The measurement format with two pools in place of one: `prefill_workers/tp/pp/dp/ep` and
`decode_workers/tp/pp/dp/ep`, both on `chip`. Of the rest, the rules of `dse.accuracy.rows` hold.
Speculative decoding is not recorded in the known rows and is taken as off.

What a row leaves open, the public recipe with its chip, format, lengths, load and workers says
(`hardware/measurements/serving_recipes.csv`): the format of the cache, redundant experts and the
largest batch of a decode rank (`decode_max_running_requests`), which decides how long requests wait
for a slot and which recipes set just below the load; else it is the backend's. On Blackwell those
recipes start SGLang with a long stream interval (50), as InferenceX's on one pool do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from dse.accuracy.points import ROUNDS, batch_of_rows, placed
from dse.accuracy.rows import NEEDED, NUMBERS, RANGE_RATIO, TEXTS, Row, number, read_row
from dse.accuracy.tables import (
    Columns,
    Group,
    Kind,
    broken_rules,
    machines_of,
    read_table,
    with_predictions,
)
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.disaggregated import predict_disaggregated
from dse.physics.intervals import first_token_class, interval
from dse.physics.machines import Machines
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate, worst_kind
from dse.schema.model import Model
from dse.space.candidates import CandidateBatch

POOLS = ("prefill", "decode")
AXES = ("tp", "pp", "dp", "ep")
CAP = "decode_max_running_requests"
COPIES = ("prefill_redundant_experts", "decode_redundant_experts")
RECIPES = "measurements/serving_recipes.csv"


@dataclass(frozen=True, slots=True)
class Pair:
    """One covered row: each pool as a row of its own; `cap` is the most requests of an attention
    rank of the decode pool, 0 where nothing says it; `copies` of experts that either pool has."""

    prefill: Row
    decode: Row
    cap: float
    copies: tuple[float, float]

    @property
    def metric(self) -> str:
        return self.prefill.metric

    @property
    def assumed(self) -> str:
        limit = f"; at most {self.cap:g} requests a decode rank" if self.cap else ""
        copies = f"; {max(self.copies):g} redundant experts" if any(self.copies) else ""
        return f"{self.prefill.assumed}; no speculative decoding{limit}{copies}"


class Recipe(NamedTuple):
    """What a public recipe says of a row that ran it; `copies` of experts of the two pools."""

    cap: float = 0.0
    kv_dtype: str = ""
    copies: tuple[float, float] = (0.0, 0.0)


def estimate_disaggregated(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout, machines = KIND.read(table, catalog), machines_of(catalog)
    numbers = readout.predicted(_columns(group, catalog, machines) for group in readout.groups)
    broken: dict[int, list[str]] = {}
    for group in readout.groups:
        for pool in POOLS:
            violations = evaluate(*_pool(group, pool, catalog, machines), machines).violations
            for position, rules in broken_rules(violations, group, f"{pool} ").items():
                broken.setdefault(position, []).append(rules)
    rules = {position: ", ".join(names) for position, names in broken.items()}
    return with_predictions(table, readout, numbers, rules)


def _read(cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Pair:
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
    workers = (row.deployment["replicas"] for row in rows)
    recipe = _recipes().get((*_ran(rows[1]), *workers), Recipe())
    if recipe.kv_dtype and not cells["kv_dtype"]:
        rows = [replace(row, kv_dtype=recipe.kv_dtype) for row in rows]
    if rows[0].backend == "sglang" and catalog.chips[rows[0].chip].family == "blackwell":
        rows = [replace(row, backend="sglang-interval-30") for row in rows]
    prefill, decode = rows
    cap = number(cells, CAP) if cells[CAP] else recipe.cap
    return Pair(prefill, decode, cap, recipe.copies)


def _ran(row: Row) -> tuple[object, ...]:
    on = (row.model.id, row.chip, row.weight_dtype, row.backend, round(row.prompt))
    axes = ("concurrency", "tensor_parallel", "data_parallel")
    return (*on, round(row.output), *(row.deployment[axis] for axis in axes))


@cache
def _recipes() -> dict[tuple[object, ...], Recipe]:
    """By what a row ran: lengths are means of those drawn (`dse.accuracy.rows`)."""
    mean = (1.0 + RANGE_RATIO) / 2.0
    texts = ("model", "chip", "weight_dtype", "engine")
    lengths = ("nominal_prompt_tokens", "nominal_output_tokens")
    numbers = ("concurrency", "decode_tp", "decode_dp", "prefill_workers", "decode_workers")
    said = (CAP, "kv_dtype", *COPIES)
    table = read_table(hardware_dir() / RECIPES, (*texts, *lengths, *numbers, *said))
    return {
        (
            *(row[name] for name in texts),
            *(round(float(row[name]) * mean) for name in lengths),
            *(float(row[name]) for name in numbers),
        ): Recipe(float(row[CAP]), row["kv_dtype"], (float(row[COPIES[0]]), float(row[COPIES[1]])))
        for row in table.to_dict("records")
    }


def _pool(
    group: Group[Pair, None], pool: str, catalog: Catalog, machines: Machines
) -> tuple[CandidateBatch, Workload]:
    """One pool of each configuration, on its chip, and what is asked of both."""
    rows: list[Row] = [getattr(pair, pool) for pair in group.rows]
    prompt, output = (np.array([getattr(r, name) for r in rows]) for name in ("prompt", "output"))
    load = Workload(prompt, output, "continuous", catalog.backends[rows[0].backend], ROUNDS)
    batch = placed(batch_of_rows(rows), rows, machines)
    copies = np.array([pair.copies[POOLS.index(pool)] for pair in group.rows])
    batch = replace(batch, redundant_experts=copies)
    if pool == "decode":
        caps = np.array([pair.cap or load.cap for pair in group.rows])
        batch = replace(batch, max_running_requests=caps)
    return batch, load


def _columns(
    group: Group[Pair, None], catalog: Catalog, machines: Machines
) -> Callable[[str], Columns]:
    (prefill, load), (decode, _) = (_pool(group, pool, catalog, machines) for pool in POOLS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(prefill, decode, load, machines, machines)
    kind = np.maximum(worst_kind(prefill, machines), worst_kind(decode, machines))
    values = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s}
    floors = {"ttft_s": found.prefill_floor_s, "tpot_s": found.latency_floor_s}

    first_token = first_token_class(load.serving, load.backend.scheduler)
    spread = machines.spread_of(load.tuning, first_token)

    def of(metric: str) -> Columns:
        low, high = interval(metric, values[metric], kind, spread)
        return [values[metric], low, high, floors[metric], kind]

    return of


KIND = Kind(
    needed=(*NEEDED, *(f"{pool}_workers" for pool in POOLS)),
    cells=(
        *NUMBERS,
        *TEXTS,
        CAP,
        *(f"{pool}_{name}" for pool in POOLS for name in ("workers", *AXES)),
    ),
    row=_read,
    together=lambda pair: pair.prefill.backend,
    key=lambda pair: (pair.prefill.key, pair.decode.key, pair.cap, pair.copies),
    pose=lambda pairs: None,
)
