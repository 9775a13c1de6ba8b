"""Rows of the measurement format, predicted.

`read_rows` reads a table once; `predict_rows` predicts what it read, as often as wanted, with any
catalog (its backends) and any machines. `dse.accuracy.rows` has the rules of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd

from dse.accuracy.launches import SETTINGS, launched, read_launched
from dse.accuracy.rows import NEEDED, NUMBERS, RATES, TEXTS, Row, interval_metric
from dse.accuracy.tables import (
    Columns,
    Group,
    Kind,
    Readout,
    broken_rules,
    machines_of,
    with_predictions,
)
from dse.catalog import Catalog, load_catalog
from dse.physics.intervals import interval
from dse.physics.machines import Machines
from dse.physics.queueing import kept_in_step, synchronised_share
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.backend import Backend
from dse.space.batches import DRAFT_AXIS, batch_of
from dse.space.candidates import CandidateBatch, Floats

# Prompts that a measured closed loop sent, over its concurrency (the format's own statement).
ROUNDS = 10.0
# Of requests that are all queued, the share that stays in step: chosen by the error of the median
# group over 0 to 0.5.
OFFLINE_IN_STEP = 0.25


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
    readout, machines = read_rows(table, catalog), machines_of(catalog)
    found = [_evaluated(group, catalog, machines) for group in readout.groups]
    numbers = readout.predicted(map(_columns, readout.groups, found))
    return with_predictions(table, readout, numbers, _broken(readout, found))


def read_rows(table: pd.DataFrame, catalog: Catalog) -> Readout[Row, Served]:
    """Raises InputError where a needed column is missing."""
    return KIND.read(table, catalog)


def predict_rows(readout: Readout[Row, Served], catalog: Catalog, machines: Machines) -> Floats:
    """(n, 5) as `Readout.predicted`. `machines` has every chip of the readout; of the catalog only
    the backends are used."""
    return readout.predicted(
        _columns(group, _evaluated(group, catalog, machines)) for group in readout.groups
    )


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
    return Served(
        batch=batch_of_rows(rows),
        prompt=np.array([row.prompt for row in rows]),
        output=np.array([row.output for row in rows]),
        length_spread=np.array([row.length_spread for row in rows]),
        queued=np.array([row.queued for row in rows]),
        requests_per_s=np.array([row.requests_per_s for row in rows]),
    )


def batch_of_rows(rows: Sequence[Row]) -> CandidateBatch:
    """The configurations of rows of the same axes, not yet `placed` on their chips."""
    return batch_of(
        [row.model for row in rows],
        np.zeros(len(rows), dtype=np.intp),
        [row.weight_dtype for row in rows],
        [row.kv_dtype for row in rows],
        {axis: np.array([row.deployment[axis] for row in rows]) for axis in rows[0].deployment},
    )


def placed(batch: CandidateBatch, rows: Sequence[OnChip], machines: Machines) -> CandidateBatch:
    """The batch on the chips of its rows."""
    return replace(batch, chip=np.array([machines.code(row.chip) for row in rows], dtype=np.intp))


class OnChip(Protocol):
    @property
    def chip(self) -> str: ...


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


KIND = Kind(
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
