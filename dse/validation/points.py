"""Rows of the measurement format, predicted.

A row is one measured metric of one configuration. Its rules, applied here and printed with each
prediction: tp x pp x dp = n_chips (`tp` counts cores on trn1 and inf2); `dp` is attention
data-parallel for a sparse model and replicas for a dense one; empty `ep` is 1; an empty
`weight_dtype` is the checkpoint's own; an empty `kv_dtype` is fp8 for TensorRT-LLM with an fp8 or
4-bit checkpoint, otherwise bf16.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.dtypes import ALIASES, DTYPES
from dse.errors import InputError, StorageError
from dse.evaluate import Metrics, evaluate
from dse.perf.intervals import interval
from dse.perf.machines import Machines, compile_machines
from dse.perf.workload import SERVING, Workload
from dse.space.batches import batch_of
from dse.specs.catalog import Catalog, load_catalog
from dse.specs.model import Model
from dse.specs.model_catalog import load_models, resolve_model

NUMBERS = ("n_chips", "tp", "pp", "ep", "dp", "prompt_tokens", "output_tokens", "concurrency")
TEXTS = ("model", "chip", "weight_dtype", "kv_dtype", "engine", "serving", "metric", "speculative")
RATES = {
    "output_tokens_per_s": lambda prompt, output: output,
    "input_tokens_per_s": lambda prompt, output: prompt,
    "total_tokens_per_s": lambda prompt, output: prompt + output,
}
TIMES = ("ttft_s", "tpot_s", "prefill_s", "decode_step_s", "e2e_s")
# Chips whose `tp` counts cores.
CORES_PER_CHIP = {"trn1": 2.0, "inf2": 2.0}
# Prompts that a measured closed loop sent, over its concurrency (the format's own statement).
ROUNDS = 10.0
ADDED = ("predicted", "predicted_low", "predicted_high", "floor", "status", "assumed")


def estimate_file(points: Path, out: Path) -> dict[str, int]:
    """Writes every row of `points` with the columns ADDED to `out`; returns how many were `ok`.

    Raises InputError for a file that cannot be read as CSV, StorageError for an `out` that cannot
    be written.
    """
    try:
        table = pd.read_csv(points, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as CSV: {error}", file=str(points)) from error
    answer = estimate_rows(table)
    try:
        answer.to_csv(out, index=False, lineterminator="\n")
    except OSError as error:
        raise StorageError(f"{out}: cannot be written: {error.strerror}") from error
    return {"rows": len(answer), "ok": int((answer["status"] == "ok").sum())}


@dataclass(frozen=True, slots=True)
class _Row:
    """One covered row as the physics takes it."""

    position: int
    model: Model
    chip: str
    weight_dtype: str | None
    kv_dtype: str
    deployment: dict[str, float]
    prompt: float
    output: float
    metric: str
    assumed: str


def estimate_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    for name in ("model", "chip", "serving", "metric", "prompt_tokens", "output_tokens"):
        if name not in table:
            raise InputError(f"no column {name!r}", accepted="the measurement format")
    catalog = load_catalog()
    groups: dict[tuple[str, str], list[_Row]] = {}
    status = [""] * len(table)
    columns = {name: _column(table, name) for name in (*NUMBERS, *TEXTS)}
    models: dict[str, Model | str] = {}
    for position in range(len(table)):
        cells = {name: column[position] for name, column in columns.items()}
        try:
            row, backend = _read(cells, position, catalog, models)
        except InputError as error:
            status[position] = error.message
            continue
        groups.setdefault((cells["serving"], backend), []).append(row)
        status[position] = "ok"
    numbers = np.full((len(table), 4), np.nan)
    assumed = [""] * len(table)
    machines = compile_machines(catalog, [c for c in catalog.chips if not catalog.refusal(c)])
    for (serving, backend), rows in groups.items():
        where = [row.position for row in rows]
        numbers[where] = _predict(rows, serving, catalog, backend, machines)
        for row in rows:
            assumed[row.position] = row.assumed
    answer = table.copy()
    for k, name in enumerate(ADDED[:4]):
        answer[name] = numbers[:, k]
    answer["status"] = status
    answer["assumed"] = assumed
    return answer


def not_covered(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """[{reason, rows}] of the rows without a prediction, most rows first."""
    counted = Counter(status for status in answer["status"] if status != "ok")
    return [{"reason": reason, "rows": rows} for reason, rows in counted.most_common()]


def _column(table: pd.DataFrame, name: str) -> list[str]:
    if name not in table:
        return [""] * len(table)
    return [str(cell).strip() for cell in table[name].fillna("")]


def _number(cells: dict[str, str], name: str, default: float | None = None) -> float:
    text = cells[name]
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} is {'empty' if not text else 'not a positive number'}")
    return value


def _dtype(text: str, name: str) -> str:
    value = ALIASES.get(text.lower(), text.lower())
    if value not in DTYPES:
        raise InputError(f"{name} {text!r} is not known")
    return value


def _read(
    cells: dict[str, str], position: int, catalog: Catalog, models: dict[str, Model | str]
) -> tuple[_Row, str]:
    """A row and its backend. Raises InputError with the reason why it is not covered."""
    name = cells["model"]
    if name not in models:
        known = load_models()
        models[name] = (
            resolve_model(name)
            if name.lower() in known or Path(name).exists()
            else f"no model {name!r}"
        )
    model = models[name]
    if isinstance(model, str):
        raise InputError(model)
    if cells["chip"] not in catalog.chips:
        raise InputError(f"no chip {cells['chip']!r}")
    serving, metric = cells["serving"], cells["metric"]
    if serving not in SERVING:
        raise InputError(f"serving {serving!r} is not modelled")
    if metric not in TIMES and metric not in RATES:
        raise InputError(f"metric {metric!r} is not modelled")
    if serving == "offline" and metric == "ttft_s":
        raise InputError("time to first token has no meaning offline")
    if cells["speculative"] == "on":
        raise InputError("speculative decoding is not modelled")
    sparse = any(block.kind == "moe" for block in model.blocks)
    tp, pp, dp = (_number(cells, axis, 1.0) for axis in ("tp", "pp", "dp"))
    tp = max(tp / CORES_PER_CHIP.get(cells["chip"], 1.0), 1.0)
    chips = _number(cells, "n_chips", tp * pp * dp)
    replicas = chips / (tp * pp * dp)
    if replicas < 1.0 or replicas % 1.0:
        raise InputError("tp x pp x dp does not divide n_chips")
    ep = _number(cells, "ep", 1.0)
    catalog.require(cells["chip"], tp * pp * (dp if sparse else 1.0))
    backend, assumed = _backend(cells["engine"])
    weight = _dtype(cells["weight_dtype"], "weight_dtype") if cells["weight_dtype"] else None
    if weight is None:
        assumed.append("weights as in the published checkpoint")
    if cells["kv_dtype"]:
        kv = _dtype(cells["kv_dtype"], "kv_dtype")
    else:
        narrow = (weight or min(model.weight_dtypes.values(), key=_bits)) not in ("bf16", "int8")
        kv = "fp8" if backend == "trtllm" and narrow else "bf16"
        assumed.append(f"KV cache {kv}")
    for axis in ("dp", "ep"):
        if sparse and not cells[axis]:
            assumed.append(f"{axis} 1")
    row = _Row(
        position=position,
        model=model,
        chip=cells["chip"],
        weight_dtype=weight,
        kv_dtype=kv,
        deployment={
            "tensor_parallel": tp,
            "pipeline_parallel": pp,
            "data_parallel": dp if sparse else 1.0,
            "expert_parallel": ep,
            "replicas": replicas if sparse else replicas * dp,
            "concurrency": 1.0 if serving == "offline" else _number(cells, "concurrency"),
        },
        prompt=_number(cells, "prompt_tokens"),
        output=_number(cells, "output_tokens", 1.0),
        metric=metric,
        assumed="; ".join(assumed),
    )
    return row, backend


def _bits(dtype: str) -> int:
    return {"bf16": 16, "fp8": 8, "int8": 8}.get(dtype, 4)


def _backend(engine: str) -> tuple[str, list[str]]:
    """The backend of the software that a row names, and what had to be assumed for it."""
    text = engine.lower()
    if "vllm" in text:
        return ("vllm-2023" if "2023" in text else "vllm"), []
    for sign, backend in (
        ("sglang", "sglang"), ("trtllm", "trtllm"), ("tensorrt", "trtllm"), ("neuron", "neuron"),
    ):  # fmt: skip
        if sign in text:
            return backend, []
    return "generic", [f"backend generic for {engine or 'an unnamed one'}"]


def _predict(
    rows: list[_Row], serving: str, catalog: Catalog, backend: str, machines: Machines
) -> np.ndarray:
    """(predicted, low, high, floor) of rows that share serving and backend, (rows, 4)."""
    names = list(rows[0].deployment)
    batch = batch_of(
        [row.model for row in rows],
        np.array([machines.code(row.chip) for row in rows], dtype=np.intp),
        [row.weight_dtype for row in rows],
        [row.kv_dtype for row in rows],
        {axis: np.array([row.deployment[axis] for row in rows]) for axis in names},
    )
    prompt = np.array([row.prompt for row in rows])
    output = np.array([row.output for row in rows])
    load = Workload(prompt, output, serving, catalog.backends[backend], ROUNDS)
    metrics = evaluate(batch, load, machines)
    answer = np.full((len(rows), 4), np.nan)
    for metric in sorted({row.metric for row in rows}):
        where = np.array([k for k, row in enumerate(rows) if row.metric == metric])
        values, floor = _metric(metrics, metric, prompt, output)
        like = "output_tokens_per_s" if metric in RATES else metric
        low, high = interval(like, values[where], metrics.provenance[where])
        answer[where] = np.stack([values[where], low, high, floor[where]], axis=1)
    return answer


def _metric(
    metrics: Metrics, metric: str, prompt: np.ndarray, output: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(values, roofline floor) of a metric; a rate has no floor."""
    performance = metrics.performance
    if metric in RATES:
        rate = performance.requests_per_s * RATES[metric](prompt, output)
        return rate, np.full(len(rate), np.nan)
    floor = performance.latency_floor_s
    if metric in ("prefill_s", "ttft_s", "e2e_s"):
        floor = performance.prefill_ledger.floor_s
    return metrics.values[metric], floor
