"""Many points of the catalog predicted at once, and the measured rows beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy import measurements
from dse.catalog import Catalog, load_catalog
from dse.physics.machines import compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.calibration import KINDS
from dse.schema.model import Model
from dse.schema.model_catalog import load_models
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

PARTS = ("compute", "memory", "network", "fixed")
CHUNK = 10_000


class Point(NamedTuple):
    """A model on a deployment. `weight` None keeps the checkpoint's formats; `kv` None too."""

    model: str
    chip: str
    tp: float = 1.0
    pp: float = 1.0
    dp: float = 1.0
    ep: float = 1.0
    replicas: float = 1.0
    concurrency: float = 1.0
    weight: str | None = None
    kv: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """n points predicted; every array (n,). `values` by metric; `decode` and `prefill` hold the
    seconds that each of PARTS would take alone, and the `touched_bytes`; `kind` is the worst kind
    of efficiency used."""

    points: tuple[Point, ...]
    values: Mapping[str, Floats]
    decode: Mapping[str, Floats]
    prefill: Mapping[str, Floats]
    feasible: NDArray[np.bool_]
    kind: NDArray[np.str_]

    def __getitem__(self, metric: str) -> Floats:
        return self.values[metric]

    def largest(self, phase: str) -> NDArray[np.str_]:
        """(n,) which of PARTS is the largest of `decode` or `prefill`."""
        parts = getattr(self, phase)
        stacked = np.stack([parts[name] for name in PARTS])
        return np.array(PARTS)[np.argmax(stacked, axis=0)]

    def share(self, truth: NDArray[np.bool_], rows: NDArray[np.bool_] | bool = True) -> float:
        """The share of the feasible points, of those of `rows`, for which `truth` (n,) holds."""
        return float(truth[self.feasible & rows].mean())

    def largest_shares(
        self, phase: str, rows: NDArray[np.bool_] | bool = True
    ) -> tuple[float, ...]:
        """By PARTS, the share of those points in which it is the largest."""
        largest = self.largest(phase)
        return tuple(self.share(largest == part, rows) for part in PARTS)


@cache
def models() -> dict[str, Model]:
    return load_models()


def is_sparse(model: str) -> bool:
    return bool(models()[model].experts)


def usable_chips(catalog: Catalog | None = None) -> list[str]:
    """Chips with the figures of a roofline."""
    catalog = catalog or load_catalog()
    return [name for name in catalog.chips if catalog.refusal(name) is None]


def domain_of(chip: str, otherwise: int) -> int:
    """Chips of one scale-up domain; `otherwise` where it has no end."""
    catalog = load_catalog()
    return catalog.systems[catalog.chips[chip].system].levels[0].size or otherwise


def billions(low: float, high: float) -> str:
    """A range of parameters: `4 to 20`, `from 20`."""
    return f"{low / 1e9:g} to {high / 1e9:g}" if np.isfinite(high) else f"from {low / 1e9:g}"


def predict(
    points: Iterable[Point],
    prompt: float = 2048.0,
    output: float = 512.0,
    *,
    serving: str = "continuous",
    backend: str | None = None,
    catalog: Catalog | None = None,
    price_basis: str = "rental_3yr",
    power_cap_w: float | None = None,
) -> Answer:
    """Every point under one workload, with `backend` or else the one that its chip names; each chip
    draws at most `power_cap_w`, its rated power where None."""
    points, catalog = tuple(points), catalog or load_catalog()
    chips = sorted({point.chip for point in points})
    machines = compile_machines(catalog, chips, price_basis, power_cap_w=power_cap_w)
    batch = batch_at(points, chips)
    names = np.array([backend or catalog.chips[point.chip].backend for point in points])
    found: dict[str, dict[str, Floats]] = {}
    for name in sorted(set(names.tolist())):
        load = Workload.of(prompt, output, serving, catalog.backends[name])
        rows = np.flatnonzero(names == name)
        for at in (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)):
            for part, arrays in _arrays(evaluate(batch[at], load, machines)).items():
                whole = found.setdefault(part, {})
                for metric, values in arrays.items():
                    whole.setdefault(metric, np.empty(len(points)))[at] = values
    flags = found["flags"]
    return Answer(
        points,
        found["values"],
        found["decode"],
        found["prefill"],
        flags["feasible"] > 0.0,
        np.array(KINDS)[flags["kind"].astype(np.intp)],
    )


def _arrays(metrics: Metrics) -> dict[str, dict[str, Floats]]:
    performance = metrics.performance
    flags = {"feasible": metrics.feasible, "kind": metrics.provenance}
    found: dict[str, dict[str, Floats]] = {
        "values": dict(metrics.values),
        "flags": {name: array.astype(np.float64) for name, array in flags.items()},
    }
    decode = performance.detail.decode_ledger
    host = performance.decode_step_s - decode.seconds
    for phase, ledger, extra in (
        ("decode", decode, host),
        ("prefill", performance.detail.prefill_ledger, 0.0),
    ):
        found[phase] = {name: getattr(ledger, f"{name}_s") for name in PARTS}
        found[phase]["fixed"] = found[phase]["fixed"] + extra
        found[phase]["touched_bytes"] = ledger.touched_bytes
    return found


def batch_at(points: Sequence[Point], chips: Sequence[str]) -> CandidateBatch:
    """The points as a batch; `chip` indexes `chips`."""
    kinds = list(dict.fromkeys((point.model, point.weight, point.kv) for point in points))
    place = {kind: k for k, kind in enumerate(kinds)}
    shapes = [models()[name] for name, _, _ in kinds]
    one = batch_of(
        shapes,
        np.zeros(len(kinds), dtype=np.intp),
        [weight for _, weight, _ in kinds],
        [kv or shape.kv_dtype or "bf16" for (_, _, kv), shape in zip(kinds, shapes, strict=True)],
        dict.fromkeys(DEPLOYMENT_AXES, np.ones(1)),
    )
    rows = np.array([place[point.model, point.weight, point.kv] for point in points], dtype=np.intp)
    code = {chip: k for k, chip in enumerate(chips)}
    degrees = np.array([point[2:8] for point in points], dtype=np.float64)
    return replace(
        one[rows],
        chip=np.array([code[point.chip] for point in points], dtype=np.intp),
        tensor_parallel=degrees[:, 0],
        pipeline_parallel=degrees[:, 1],
        data_parallel=degrees[:, 2],
        expert_parallel=degrees[:, 3],
        replicas=degrees[:, 4],
        concurrency=degrees[:, 5],
    )


def smallest(
    names: Sequence[str],
    chips: Sequence[str],
    prompt: float = 2048.0,
    output: float = 512.0,
    most: int = 64,
    concurrency: float = 1.0,
) -> list[Point]:
    """For every model and chip the smallest tensor-parallel group, of at most `most` chips of one
    scale-up domain, that holds the model with `concurrency` requests; experts are spread over the
    group where they divide by it. Pairs that none holds are left out."""
    catalog = load_catalog()
    points = []
    for chip in chips:
        for tp in (2**k for k in range(12) if 2**k <= most):
            if tp > domain_of(chip, most) or catalog.refusal(chip, tp) is not None:
                continue
            for name in names:
                for ep in (tp, 1) if tp > 1 and is_sparse(name) else (1,):
                    points.append(Point(name, chip, tp, ep=ep, concurrency=concurrency))
    answer = predict(points, prompt, output, serving="static")
    found: dict[tuple[str, str], Point] = {}
    for point, feasible in zip(points, answer.feasible, strict=True):
        if feasible:
            found.setdefault((point.model, point.chip), point)
    return list(found.values())


@cache
def measured_rows() -> pd.DataFrame:
    """The shipped closed-loop, static and offline rows that count, `value` a number."""
    table = measurements.scored_rows(measurements.shipped()[0])
    return table.assign(value=table["value"].astype(float))


@cache
def predicted_rows() -> pd.DataFrame:
    """The same with predictions; rows that are not covered are left out."""
    return measurements.covered(measurements.predict(measurements.shipped()[0]))
