"""Rows of the measurement format, predicted.

`read_rows` reads a table once; `predict_rows` predicts what it read, as often as wanted, with any
catalog (its backends) and any machines. `dse.accuracy.rows` has the rules of one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.rows import NEEDED, NUMBERS, RATES, TEXTS, Row, interval_metric, read_row
from dse.accuracy.tables import (
    Column,
    distinct,
    in_table,
    machines_of,
    predict_by_metric,
    read_each,
    require_columns,
    with_predictions,
)
from dse.catalog import Catalog, load_catalog
from dse.physics.intervals import interval
from dse.physics.machines import Machines
from dse.physics.queueing import synchronised_share
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

# Prompts that a measured closed loop sent, over its concurrency (the format's own statement).
ROUNDS = 10.0
# Of requests that the simulation keeps in step, the share that real clients and servers do: chosen
# once, between the rows of SGLang 0.5.1 (near 1) and of SGLang 0.5.6, vLLM and TensorRT-LLM (.3
# to .6).
IN_STEP = 0.5


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Covered rows of one serving and backend: m configurations and the r rows that measure them.

    `batch`, `prompt`, `output`, `length_spread`, `queued`: (m,);
    `batch.chip` indexes `Readout.chips`.
    `position` (row of the table), `configuration` (index into the batch) and `metric`: (r,).
    """

    serving: str
    backend: str
    batch: CandidateBatch
    prompt: Floats
    output: Floats
    length_spread: Floats
    queued: Floats
    position: NDArray[np.intp]
    configuration: NDArray[np.intp]
    metric: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Readout:
    """A table of n rows, read. `status` is `ok` or why a row is not covered; `assumed` what a
    covered row left open."""

    chips: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    status: tuple[str, ...]
    assumed: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.status)


def estimate_rows(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout = read_rows(table, catalog)
    found = list(_evaluated(readout, catalog, machines_of(catalog)))
    answer = with_predictions(table, readout, _numbers(readout, found))
    broken = _broken(found)
    answer["assumed"] = [
        "; ".join(filter(None, (text, broken.get(position))))
        for position, text in enumerate(readout.assumed)
    ]
    return answer


def read_rows(table: pd.DataFrame, catalog: Catalog) -> Readout:
    """Raises InputError where a needed column is missing."""
    require_columns(table, NEEDED)
    models: dict[str, Model | str] = {}
    found, status = read_each(
        table, (*NUMBERS, *TEXTS), lambda cells: read_row(cells, catalog, models)
    )
    groups: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    for position, row in found:
        groups.setdefault((row.serving, row.backend), []).append((position, row))
    chips = tuple(sorted({row.chip for _, row in found}))
    return Readout(
        chips=chips,
        groups=tuple(_group(rows, chips) for rows in groups.values()),
        status=tuple(status),
        assumed=in_table(found, len(table), lambda row: row.assumed),
    )


def predict_rows(readout: Readout, catalog: Catalog, machines: Machines) -> Floats:
    """(n, 5): predicted, low and high end of the 80% interval, roofline floor, kind of efficiency
    (index of KINDS); NaN for a row that is not covered, and for a floor that does not apply.
    `machines` has every chip of the readout; of the catalog only the backends are used."""
    return _numbers(readout, _evaluated(readout, catalog, machines))


def _evaluated(
    readout: Readout, catalog: Catalog, machines: Machines
) -> Iterator[tuple[RowGroup, Metrics]]:
    """Each group with the metrics of its configurations."""
    codes = np.array([machines.code(chip) for chip in readout.chips], dtype=np.intp)
    for group in readout.groups:
        batch = replace(group.batch, chip=codes[group.batch.chip])
        backend = catalog.backends[group.backend]
        load = Workload(
            group.prompt,
            group.output,
            group.serving,
            backend,
            ROUNDS,
            IN_STEP * synchronised_share(group.output, ROUNDS, group.length_spread),
            queued=group.queued,
        )
        yield group, evaluate(batch, load, machines)


def _numbers(readout: Readout, found: Iterable[tuple[RowGroup, Metrics]]) -> Floats:
    """The answer of `predict_rows`."""
    answer = np.full((len(readout), 5), np.nan)
    for group, metrics in found:

        def of(metric: str, rows: NDArray[np.bool_], group=group, metrics=metrics) -> list[Column]:
            where = group.configuration[rows]
            values, floor = (column[where] for column in _metric(metrics, metric, group))
            kind = metrics.provenance[where]
            low, high = interval(interval_metric(metric), values, kind, metrics.spread)
            return [values, low, high, floor, kind]

        predict_by_metric(answer, group.position, group.metric, of)
    return answer


def _broken(found: Iterable[tuple[RowGroup, Metrics]]) -> dict[int, str]:
    """By row of the table, the rules of `dse.rules` that its configuration breaks, in
    words."""
    rules: dict[int, str] = {}
    for group, metrics in found:
        for position, k in zip(group.position.tolist(), group.configuration, strict=True):
            names = [name for name, amount in metrics.violations.items() if amount[k] > 0.0]
            if names:
                rules[position] = f"it breaks {', '.join(names)}"
    return rules


def _group(rows: list[tuple[int, Row]], chips: tuple[str, ...]) -> RowGroup:
    """Rows that share serving and backend; those that differ in the metric alone share a
    configuration."""
    firsts, configuration = distinct(
        [row for _, row in rows],
        lambda row: (
            *(row.model.id, row.model.source, row.chip, row.weight_dtype, row.kv_dtype),
            *(*row.deployment.values(), row.prompt, row.output, row.length_spread, row.queued),
        ),
    )
    batch = batch_of_rows(firsts, [chips.index(row.chip) for row in firsts])
    return RowGroup(
        serving=firsts[0].serving,
        backend=firsts[0].backend,
        batch=batch,
        prompt=np.array([row.prompt for row in firsts]),
        output=np.array([row.output for row in firsts]),
        length_spread=np.array([row.length_spread for row in firsts]),
        queued=np.array([row.queued for row in firsts]),
        position=np.array([position for position, _ in rows], dtype=np.intp),
        configuration=configuration,
        metric=np.array([row.metric for _, row in rows]),
    )


def batch_of_rows(rows: Sequence[Row], chips: Sequence[int]) -> CandidateBatch:
    """The configurations of rows; `chips` are the codes of theirs."""
    return batch_of(
        [row.model for row in rows],
        np.array(chips, dtype=np.intp),
        [row.weight_dtype for row in rows],
        [row.kv_dtype for row in rows],
        {axis: np.array([row.deployment[axis] for row in rows]) for axis in DEPLOYMENT_AXES},
    )


def _metric(metrics: Metrics, metric: str, group: RowGroup) -> tuple[Floats, Floats]:
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
    floor = performance.latency_floor_s
    if metric in ("prefill_s", "ttft_s", "e2e_s"):
        floor = performance.prefill_ledger.floor_s
    return metrics.values[metric], floor
