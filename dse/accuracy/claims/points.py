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
from dse.problem.evaluate import evaluate
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
    seconds that each of PARTS would take alone, `floor_compute` and `floor_memory` those of the
    roofline; `kind` is the worst kind of efficiency used."""

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


@cache
def models() -> dict[str, Model]:
    return load_models()


def is_sparse(model: str) -> bool:
    return any(block.kind == "moe" for block in models()[model].blocks)


def usable_chips(catalog: Catalog | None = None) -> list[str]:
    """Chips with the figures of a roofline."""
    catalog = catalog or load_catalog()
    return [name for name in catalog.chips if catalog.refusal(name) is None]


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
    chunks, order = [], []
    for name in sorted(set(names.tolist())):
        load = Workload.of(prompt, output, serving, catalog.backends[name])
        rows = np.flatnonzero(names == name)
        order.append(rows)
        chunks += [
            _chunk(evaluate(batch[rows[start : start + CHUNK]], load, machines))
            for start in range(0, len(rows), CHUNK)
        ]
    place = np.argsort(np.concatenate(order))

    def joined(key: int) -> dict[str, Floats]:
        return {
            name: np.concatenate([chunk[key][name] for chunk in chunks])[place]
            for name in chunks[0][key]
        }

    last = joined(3)
    return Answer(
        points,
        joined(0),
        joined(1),
        joined(2),
        last["feasible"] > 0.0,
        np.array(KINDS)[last["kind"].astype(np.intp)],
    )


def _chunk(metrics) -> tuple[dict[str, Floats], ...]:
    performance = metrics.performance
    phases = []
    for ledger, extra in (
        (performance.decode_ledger, performance.decode_step_s - performance.decode_ledger.seconds),
        (performance.prefill_ledger, 0.0),
    ):
        parts = {name: getattr(ledger, f"{name}_s") for name in PARTS}
        parts["fixed"] = parts["fixed"] + extra
        floors = {"floor_compute": ledger.floor_compute_s, "floor_memory": ledger.floor_memory_s}
        phases.append(parts | floors | {"touched_bytes": ledger.touched_bytes})
    flags = {"feasible": metrics.feasible * 1.0, "kind": metrics.provenance * 1.0}
    return dict(metrics.values), phases[0], phases[1], flags


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
    degrees = [2**k for k in range(12) if 2**k <= most]
    points = []
    for chip in chips:
        domain = catalog.systems[catalog.chips[chip].system].levels[0].size or most
        for tp in degrees:
            if tp > domain or catalog.refusal(chip, tp) is not None:
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
