"""Rows of serving, predicted: one pool, and disaggregated prefill and decode.

`SERVED.read` reads a table once; `predict_rows` predicts what it read, as often as wanted, with any
catalog (its backends) and any machines. `dse.accuracy.serving_rows` has the rules of one row.

Disaggregated rows have two pools in place of one: `prefill_workers/tp/pp/dp/ep` and
`decode_workers/tp/pp/dp/ep`, both on `chip`. Otherwise the rules of one
pool hold. Speculative decoding is not recorded in the known rows and is taken as off.

What a row leaves open, the public recipe with its chip, format, lengths, load and workers says
(`hardware/measurements/serving_recipes.csv`): the format of the cache, redundant experts and the
largest batch of a decode rank (`decode_max_running_requests`), which decides how long requests wait
for a slot and which recipes set just below the load; else it is the backend's. On Blackwell those
recipes start SGLang with a long stream interval (50), as InferenceX's on one pool do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dse.accuracy.serving_rows import (
    NEEDED,
    NUMBERS,
    RANGE_RATIO,
    RATES,
    SETTINGS,
    TEXTS,
    Row,
    backend_of,
    interval_metric,
    launched,
    number,
    read_launched,
    read_row,
)
from dse.accuracy.tables import (
    Columns,
    Group,
    Kind,
    Readout,
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
from dse.physics.queueing import kept_in_step, synchronised_share
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate, worst_kind
from dse.problem.instances import usual_divisions, usual_of
from dse.schema.backend import TUNED, Backend
from dse.schema.model import Model
from dse.space.batches import DRAFT_AXIS, batch_of
from dse.space.candidates import CandidateBatch, Floats

# Prompts that a measured closed loop sent, over its concurrency (the format's own statement).
ROUNDS = 10.0
# Of requests that are all queued, the share that stays in step: chosen by the error of the median
# group over 0 to 0.5.
OFFLINE_IN_STEP = 0.25
LOADS = ("prompt", "output", "length_spread", "queued", "requests_per_s")
POOLS = ("prefill", "decode")
AXES = ("tp", "pp", "dp", "ep")
CAP = "decode_max_running_requests"
COPIES = ("prefill_redundant_experts", "decode_redundant_experts")
RECIPES = "measurements/serving_recipes.csv"


@dataclass(frozen=True, slots=True)
class Served:
    """m configurations, (m,) each."""

    batch: CandidateBatch
    prompt: Floats
    output: Floats
    length_spread: Floats
    queued: Floats
    requests_per_s: Floats


ServedGroup = Group[Row, Served]


def estimate_rows(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout, machines = SERVED.read(table, catalog), machines_of(catalog)
    found = [_evaluated(group, catalog, machines) for group in readout.groups]
    numbers = readout.predicted(map(_columns, readout.groups, found))
    return with_predictions(table, readout, numbers, _broken(readout, found))


def predict_rows(readout: Readout[Row, Served], catalog: Catalog, machines: Machines) -> Floats:
    """(n, 5) as `Readout.predicted`. `machines` has every chip of the readout; of the catalog only
    the backends are used."""
    return readout.predicted(
        _columns(group, _evaluated(group, catalog, machines)) for group in readout.groups
    )


# Rows as a person would ask for them: model, chip, chips, lengths, load (a benchmark's rounds and
# queue among it), formats and the name of the software; no degrees, release, setting, script, draft
# or tuning. `dse` then divides the chips.


def _asked(cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Row:
    row = read_launched(cells, catalog, models)
    named = backend_of(cells["engine"])[0].removesuffix("-2023")
    plain = {axis: n for axis, n in row.deployment.items() if axis != DRAFT_AXIS}
    return replace(row, backend=named, deployment=plain, launch=(), tuning=TUNED)


def asked_rows(table: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """As `estimate_rows`, of what a person would have said of each row."""
    readout, machines = replace(SERVED, row=_asked).read(table, catalog), machines_of(catalog)
    groups = [_divided(group, catalog, machines) for group in readout.groups]
    readout = replace(readout, groups=tuple(groups))
    found = [_evaluated(group, catalog, machines) for group in groups]
    numbers = readout.predicted(map(_columns, groups, found))
    return with_predictions(table, readout, numbers, _broken(readout, found))


def _divided(group: ServedGroup, catalog: Catalog, machines: Machines) -> ServedGroup:
    """The group with the chips of each configuration divided as they usually are."""
    table, row = usual_divisions(group.posed.batch, [one.model.experts for one in group.rows])
    loads = {name: getattr(group.posed, name)[row] for name in LOADS}
    every = Served(table.placed(group.posed.batch, row), **loads)
    rows = tuple(group.rows[k] for k in row)
    metrics = _evaluated(replace(group, rows=rows, posed=every), catalog, machines)
    rate = np.where(metrics.feasible, metrics.values["output_tokens_per_s"], -np.inf)
    batch = every.batch[usual_of(table, row, np.nan_to_num(rate, nan=-np.inf))]
    return replace(group, posed=replace(group.posed, batch=batch))


def _evaluated(group: ServedGroup, catalog: Catalog, machines: Machines) -> Metrics:
    """The metrics of its configurations."""
    posed, first = group.posed, group.rows[0]
    backend = launched(catalog.backends[first.backend], group.rows)
    if first.open_loop:
        load = Workload(
            posed.prompt,
            posed.output,
            "continuous",
            backend,
            open_loop=True,
            tuning=first.tuning,
        )
    else:
        load = Workload(
            posed.prompt,
            posed.output,
            first.serving,
            backend,
            ROUNDS,
            _in_step(backend, posed, offline=first.serving == "offline"),
            requests_per_s=posed.requests_per_s,
            queued=posed.queued,
            tuning=first.tuning,
        )
    return evaluate(placed(posed.batch, group.rows, machines), load, machines)


def _in_step(backend: Backend, posed: Served, *, offline: bool) -> Floats:
    """(m,) the share of the time that requests of a benchmark stay in step."""
    batch = posed.batch
    requests = np.ceil(batch.concurrency / (batch.replicas * batch.data_parallel))
    packed = np.minimum(requests, np.maximum(backend.chunk_tokens / posed.prompt, 1.0))
    if offline:
        return np.full_like(packed, OFFLINE_IN_STEP)
    share = synchronised_share(posed.output, ROUNDS, posed.length_spread)
    return share * kept_in_step(packed, backend.scheduler)


def _columns(group: ServedGroup, metrics: Metrics) -> Callable[[str], Columns]:
    def of(metric: str) -> Columns:
        values, floor = _metric(metrics, metric, group.posed)
        kind = metrics.provenance
        low, high = interval(interval_metric(metric), values, kind, metrics.spread)
        return [values, low, high, floor, kind]

    return of


def infeasible_rows(
    readout: Readout[Row, Served], catalog: Catalog, machines: Machines
) -> dict[int, str]:
    """By row of the table, the rules of `dse.rules` that it breaks."""
    found = [_evaluated(group, catalog, machines) for group in readout.groups]
    return _broken(readout, found)


def _broken(readout: Readout[Row, Served], found: Sequence[Metrics]) -> dict[int, str]:
    rules: dict[int, str] = {}
    for group, metrics in zip(readout.groups, found, strict=True):
        rules |= broken_rules(metrics.violations, group)
    return rules


def _posed(rows: Sequence[Row]) -> Served:
    loads = {name: np.array([getattr(row, name) for row in rows]) for name in LOADS}
    return Served(batch_of_rows(rows), **loads)


def batch_of_rows(rows: Sequence[Row]) -> CandidateBatch:
    """The configurations of rows of the same axes, not yet `placed` on their chips."""
    return batch_of(
        [row.model for row in rows],
        np.zeros(len(rows), dtype=np.intp),
        [row.weight_dtype for row in rows],
        [row.kv_dtype for row in rows],
        {axis: np.array([row.deployment[axis] for row in rows]) for axis in rows[0].deployment},
    )


def placed(batch: CandidateBatch, rows: Sequence[Any], machines: Machines) -> CandidateBatch:
    """The batch on the chips of its rows."""
    return replace(batch, chip=np.array([machines.code(row.chip) for row in rows], dtype=np.intp))


def _metric(metrics: Metrics, metric: str, group: Served) -> tuple[Floats, Floats]:
    """(values, roofline floor) of a metric, (m,) each; a rate has no floor."""
    performance = metrics.performance
    if metric in RATES:
        tokens = {
            "output_tokens_per_s": group.output,
            "input_tokens_per_s": group.prompt,
            "total_tokens_per_s": group.prompt + group.output,
        }[metric]
        rate = performance.requests_per_s * tokens
        return rate, np.full(len(rate), np.nan)
    floor = performance.detail.latency_floor_s
    if metric in ("prefill_s", "ttft_s", "e2e_s"):
        floor = performance.detail.prefill_ledger.floor_s
    if metric == "ttft_s" and performance.arrivals is not None:
        metric = "ttft_mean_s"
    return metrics.values[metric], floor


SERVED = Kind(
    needed=NEEDED,
    cells=(*NUMBERS, *TEXTS, *SETTINGS),
    row=read_launched,
    together=lambda row: (
        *(row.serving, row.open_loop, row.backend, row.tuning),
        DRAFT_AXIS in row.deployment,
    ),
    key=lambda row: row.key,
    pose=_posed,
)


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
    readout, machines = POOLED.read(table, catalog), machines_of(catalog)
    numbers = readout.predicted(_pool_columns(group, catalog, machines) for group in readout.groups)
    broken: dict[int, list[str]] = {}
    for group in readout.groups:
        for pool in POOLS:
            violations = evaluate(*_pool(group, pool, catalog, machines), machines).violations
            for position, rules in broken_rules(violations, group, f"{pool} ").items():
                broken.setdefault(position, []).append(rules)
    rules = {position: ", ".join(names) for position, names in broken.items()}
    return with_predictions(table, readout, numbers, rules)


def _read_pair(cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]) -> Pair:
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
    """By what a row ran: lengths are means of those drawn (`dse.accuracy.serving_rows`)."""
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


def _pool_columns(
    group: Group[Pair, None], catalog: Catalog, machines: Machines
) -> Callable[[str], Columns]:
    (prefill, load), (decode, _) = (_pool(group, pool, catalog, machines) for pool in POOLS)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = predict_disaggregated(prefill, decode, load, machines, machines)
    kind = np.maximum(worst_kind(prefill, machines), worst_kind(decode, machines))
    values = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s}
    floors = {"ttft_s": found.prefill_ledger.floor_s, "tpot_s": found.latency_floor_s}

    first_token = first_token_class(load.serving, load.backend.scheduler)
    spread = machines.spread_of(load.tuning, first_token)

    def of(metric: str) -> Columns:
        low, high = interval(metric, values[metric], kind, spread)
        return [values[metric], low, high, floors[metric], kind]

    return of


POOLED = Kind(
    needed=(*NEEDED, *(f"{pool}_workers" for pool in POOLS)),
    cells=(
        *NUMBERS,
        *TEXTS,
        CAP,
        *(f"{pool}_{name}" for pool in POOLS for name in ("workers", *AXES)),
    ),
    row=_read_pair,
    together=lambda pair: pair.prefill.backend,
    key=lambda pair: (pair.prefill.key, pair.decode.key, pair.cap, pair.copies),
    pose=lambda pairs: None,
)
