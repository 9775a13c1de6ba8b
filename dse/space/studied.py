"""The deployments of a study on one chip: its deployment axes enumerated for given shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.schema.axes import AXES, POOLS, Axis
from dse.schema.model import Model
from dse.schema.study import Study
from dse.space.batches import (
    DEPLOYMENT_AXES,
    DRAFT_AXIS,
    batch_of,
    deployed_fields,
    drafts_of,
    weight_formats,
)
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments
from dse.space.space import AxisTable, Flags, Ints, Values

ROW = "shape"  # the column of the table that says which shape a deployment is of


def count_deployments(study: Study) -> int:
    """Points of the deployment axes but for the chip, conditions aside."""
    return math.prod(len(axis.values) for axis in _axes(study))


def deployments(
    study: Study,
    models: Sequence[Model],
    configs: Sequence[Mapping[str, Any]],
    chip: int | None = None,
) -> CandidateBatch:
    """Every distinct deployment that `study` allows of each of k shapes, on chip 0. `configs` are
    the shapes as front.json holds them: axes of the deployment may depend on theirs. `chip` as in
    `deployed_values`."""
    row, known = deployed_values(study, _of_shapes(configs), chip)
    return _batch(models, row, known)


def deployed_values(
    study: Study, shapes: Mapping[str, Values], chip: int | None = None
) -> tuple[Ints, dict[str, Values]]:
    """(row, values): every distinct deployment that `study` allows of each of k shapes, chip aside.
    `shapes` holds the values of the model axes, (k,) each, on the grid or off it; `row` (n,) says
    which shape a deployment is of, ascending, and `values` (n,) are those of all axes. Of axes that
    depend on the chip, the values of the study's chip number `chip`; None: those of any."""
    axes = _axes(study)
    # The first axis is the fastest, and those of one chip come last, as in `dse.space.space`.
    order = sorted(axes, key=lambda axis: bool(axis.by_chip))
    places = {axis.name: np.array(axis.positions(chip)) for axis in reversed(order)}
    table = Deployments.of(**{ROW: np.arange(len(next(iter(shapes.values()))))}).cross(**places)
    row = table[ROW]
    known = {name: values[row] for name, values in shapes.items()}
    positions: dict[str, Ints] = {}
    counts: dict[str, Flags | None] = {}
    first = np.ones(len(row), dtype=bool)  # one point for all positions of an axis without effect
    for axis in axes:
        positions[axis.name] = table[axis.name]
        active = counts[axis.name] = _active(study, axis, known, positions, counts)
        known[axis.name] = AxisTable(axis).values(positions[axis.name], active, known, len(row))
        if active is not None:
            first &= active | (positions[axis.name] == axis.positions(chip)[0])
    return row[first], {name: values[first] for name, values in known.items()}


def _axes(study: Study) -> list[Axis]:
    """Raises InputError for pools of their own: their deployments come from two tables, joined."""
    if any(axis.name == POOLS for axis in study.deployment_axes):
        raise InputError(
            f"{study.name} has prefill and decode pools",
            field="space",
            accepted="a space without them: this question is asked of aggregated designs",
        )
    return [axis for axis in study.deployment_axes if axis.name != "chip"]


def _of_shapes(configs: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """(k,) values of the model axes."""
    found: dict[str, Values] = {}
    for name, rule in AXES.items():
        if rule.section == "model":
            given = [config.get(name) or 0.0 for config in configs]
            if name == "sparse":
                given = [bool(config.get("num_experts")) for config in configs]
            found[name] = np.array([float(value) for value in given])
    return found


def _active(
    study: Study,
    axis: Axis,
    known: Mapping[str, Values],
    positions: Mapping[str, Ints],
    counts: Mapping[str, Flags | None],
) -> Flags | None:
    """(n,) whether the axis counts; None where it always does. `counts` says so of the axes before
    it."""
    active: Flags | None = None
    for condition in axis.when:
        if condition.axis in positions:
            held = np.isin(positions[condition.axis], condition.indices)
            if (flags := counts[condition.axis]) is not None:
                held &= flags
        else:
            other = next(one for one in study.model_axes if one.name == condition.axis)
            if other.ratio_of is not None:
                message = f"{axis.name} depends on the ratio {other.name}"
                raise InputError(message, field="space", accepted="a condition on a plain axis")
            allowed = [float(other.values[k]) for k in condition.indices]
            held = np.isin(known[condition.axis], allowed)
        active = held if active is None else active & held
    return active


def _batch(models: Sequence[Model], row: Ints, values: Mapping[str, Values]) -> CandidateBatch:
    """Shape `models[row[i]]` on the deployment of values[...][i]."""
    k, n = len(models), len(row)
    ones: dict[str, Floats] = {axis: np.ones(k) for axis in DEPLOYMENT_AXES}
    shapes = batch_of(models, np.zeros(k, dtype=np.intp), [None] * k, ["bf16"] * k, ones)
    weight = values["weight_dtype"].astype(np.intp)
    return replace(
        shapes[row],
        weight_dtype={part: of[row, weight] for part, of in weight_formats(models).items()},
        **(deployed_fields(values, n) | _drafts(models, row, values.get(DRAFT_AXIS))),
    )


def _drafts(models: Sequence[Model], row: Ints, drafted: Values | None) -> dict[str, Floats]:
    """The fields of `drafted` tokens a step, (n,), of model `row` (n,)."""
    if drafted is None:
        return {}
    tokens = drafted.astype(np.float64)
    found = {DRAFT_AXIS: tokens, "draft_gain": np.ones(len(row))}
    for k, model in enumerate(models):
        mine = row == k
        found["draft_gain"][mine] = drafts_of([model], tokens[mine], int(mine.sum()))["draft_gain"]
    return found
