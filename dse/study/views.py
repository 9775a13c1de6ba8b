"""The views of a space: the cheapest design of each value of an axis at equal predicted loss.

Every point of the space is evaluated again, and of each group (a value of the axis, and a cell of
the map where there is one) the designs stay that no other of their group beats in predicted loss
and price under the limits of the space. Notation: n points, `group` (n,) int64, `loss` and `cost`
(n,), both minimised. What study.json has of it are rows by keys of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import number, show
from dse.catalog import Catalog
from dse.economics.tco import price_by_parts
from dse.errors import InputError
from dse.pareto import Floats, Ids
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.problem.shapes import model_at
from dse.problem.words import short_deployment, short_shape
from dse.quality.laws import LAWS
from dse.schema.backend import KINDS
from dse.schema.dtypes import CODE
from dse.schema.metrics import EVERY
from dse.schema.model import config_of
from dse.schema.space_sections import COSTS, QUALITY, View
from dse.search.evaluator import ENUMERATE, Progress
from dse.search.parallel import Executor
from dse.space.candidates import Rows, concatenated

CHUNK = 65_536
LEVELS = 16
# Levels of a map: one picture a value each.
MAP_LEVELS = 4
SHOWN = (QUALITY, "tpot_s", "active_parameters", "total_parameters", "training_tokens")
LAW_LEVELS = ("best loss that all reach", "half-way to the cheapest")


@dataclass(frozen=True, slots=True)
class Fronts(Rows):
    """The designs that stay, by group, cost, then loss: ids, group, loss, cost, each (n,)."""

    ids: Ids
    group: Ids
    loss: Floats
    cost: Floats

    @staticmethod
    def of(parts: Sequence[Fronts]) -> Fronts:
        """What stays of all `parts`."""
        every = concatenated(parts, [len(part.ids) for part in parts])
        order = np.lexsort((every.ids, every.loss, every.cost, every.group))
        return every.take(order[_improves(every.group[order], every.loss[order])])

    def among(self, groups: NDArray[np.bool_]) -> Fronts:
        """Of the groups (g,) that are chosen, as one."""
        chosen = self.take(groups[self.group])
        return Fronts.of([replace(chosen, group=np.zeros_like(chosen.group))])

    def cheapest(self, level: float) -> int | None:
        """Row of the least cost whose loss is at most `level`; None where there is none."""
        rows = np.flatnonzero(self.loss <= level)
        return int(rows[np.argmin(self.cost[rows])]) if len(rows) else None


def _improves(group: Ids, loss: Floats) -> NDArray[np.bool_]:
    """(n,) whether a loss is below all before it in its group; groups ascend."""
    rank = np.unique(loss, return_inverse=True)[1].reshape(-1)
    # Ranks of a later group lie below all of an earlier one, so that each begins anew.
    key = rank - group * (len(loss) + 1)
    least = np.minimum.accumulate(key)
    return np.concatenate([np.ones(min(len(key), 1), dtype=bool), key[1:] < least[:-1]])


def refuse_views(problem: PhysicsProblem) -> None:
    """Raises InputError where views are asked of a space too large to enumerate."""
    if problem.study.views and problem.space.size > ENUMERATE:
        raise InputError(
            f"views evaluate every point, and the space has {problem.space.size:,}",
            file=str(problem.study.path),
            field="views",
            accepted=f"a space of at most {ENUMERATE:,} points, or no views",
        )


def describe_view(
    problem: PhysicsProblem, view: View, *, executor: Executor, progress: Progress
) -> dict[str, Any]:
    """One of `views` of study.json. `designs`: the cheapest of each value at each level of
    predicted loss; `curves`: the designs that stay; `cells`: the least cost of each cell of the
    map; `laws`: the least cost of each value under each law."""
    axes = [problem.space.names.index(name) for name in (view.by, *view.map)]
    values = [problem.space.choices[axis] for axis in axes]
    names = [value_words(view.by, value) for value in values[0]]
    if view.by == "chip":
        names = [problem.study.systems.get(name, name) for name in names]
    sizes, cost = [len(choices) for choices in values], _cost(problem)
    found = enumerated(problem, axes, (QUALITY, cost), executor, progress)
    of_group = np.arange(math.prod(sizes)) // math.prod(sizes[1:])
    fronts = {name: found.among(of_group == k) for k, name in enumerate(names)}
    levels = _levels(list(fronts.values()), MAP_LEVELS if view.map else LEVELS)
    return {
        "by": view.by,
        "map": list(view.map),
        "cost": cost,
        "values": names,
        "designs": [row for level in levels for row in _designs(problem, view, fronts, level)],
        "curves": [
            {"case": name, QUALITY: loss, cost: usd}
            for name, front in fronts.items()
            for loss, usd in zip(front.loss.tolist(), front.cost.tolist(), strict=True)
        ],
        "cells": [
            row
            for level in (levels if view.map else ())
            for row in _cells(found, level, view, [names, *values[1:]], cost)
        ],
        "laws": _laws(problem, axes[0], names, executor, progress) if view.every_law else [],
    }


def value_words(axis: str, value: Any) -> str:
    """A value of an axis, as a person writes it."""
    if axis == "sparse":
        return "sparse" if value else "dense"
    if axis in EVERY:
        return show(axis, value)
    return f"{value:,}" if type(value) in (int, float) else str(value).lower()


def _cost(problem: PhysicsProblem) -> str:
    """The price that a view is about: the first that the study wants low."""
    wanted = [objective.metric for objective in problem.objectives]
    return next(cost for cost in COSTS if cost in wanted)


def enumerated(
    problem: PhysicsProblem,
    axes: Sequence[int],
    wanted: tuple[str, str],
    executor: Executor,
    progress: Progress,
) -> Fronts:
    """The fronts of all groups in two objectives, both minimised, the second the cost: groups are
    mixed-radix numbers of the positions on `axes`."""
    metrics = [objective.metric for objective in problem.objectives]
    loss, cost = map(metrics.index, wanted)
    size = problem.space.size

    def part(start: int) -> Fronts:
        ids = np.arange(start, min(start + CHUNK, size))
        index = problem.space.unrank(ids)
        found = problem.evaluate(index)
        rows, active = (found.G <= 0.0).all(axis=1), problem.space.active(index)
        group = np.zeros(len(ids), dtype=np.int64)
        for axis in axes:
            rows &= active[:, axis]
            group = group * int(problem.space.cardinalities[axis]) + index[:, axis]
        F = found.F[rows]
        return Fronts.of([Fronts(ids[rows], group[rows], F[:, loss], F[:, cost])])

    kept: list[Fronts] = []
    for done, one in enumerate(executor.map(part, range(0, size, CHUNK)), start=1):
        kept = [Fronts.of([*kept, one])]
        progress(min(done * CHUNK, size), size, len(kept[0].ids))
    return kept[0]


def _levels(fronts: Sequence[Fronts], most: int) -> list[float]:
    """Round losses from the best that any front reaches to the worst that its price still gains
    by, at most `most`, ascending."""
    losses = np.concatenate([front.loss for front in fronts])
    if not len(losses):
        return []
    low, high = float(losses.min()), float(losses.max())
    wanted = max((high - low) / most, 1e-4)
    base = 10.0 ** math.floor(math.log10(wanted))
    step = next(base * k for k in (1, 2, 5, 10) if base * k >= wanted * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 6) for k in range(first, last + 1)][:most]


def _cells(
    found: Fronts, level: float, view: View, values: Sequence[Sequence[Any]], cost: str
) -> Iterator[dict[str, Any]]:
    """Least cost at a level of each value and cell of the map; None where the loss is not
    reached."""
    sizes = [len(of) for of in values]
    least = np.full(math.prod(sizes), np.inf)
    rows = found.loss <= level
    np.minimum.at(least, found.group[rows], found.cost[rows])
    for (name, *at), usd in zip(product(*values), least, strict=True):
        row: dict[str, Any] = {"predicted_loss_at_most": level, "case": name}
        row |= {axis: value_words(axis, one) for axis, one in zip(view.map, at, strict=True)}
        yield row | {cost: number(usd)}


def _cheapest(
    problem: PhysicsProblem, fronts: Mapping[str, Fronts], level: float, shown: Sequence[str]
) -> tuple[list[dict[str, Any]], Ids, Metrics]:
    """The cheapest of each front that reaches a level: a row with the metrics that are `shown`, the
    index (n, d) and all metrics."""
    picks = {name: front.cheapest(level) for name, front in fronts.items()}
    ids = {name: int(fronts[name].ids[k]) for name, k in picks.items() if k is not None}
    index, cost = problem.space.unrank(np.array(list(ids.values()), dtype=np.int64)), _cost(problem)
    metrics, deployments = problem.metrics(index), problem.deployments(index)
    values = metrics.values
    rows = [
        {
            "case": name,
            **{key: number(values[key][i]) for key in (cost, *shown)},
            "over_cheapest": float(values[cost][i] / values[cost].min()),
            "deployed": short_deployment(deployments[i]),
        }
        for i, name in enumerate(ids)
    ]
    return rows, index, metrics


def _designs(
    problem: PhysicsProblem, view: View, fronts: Mapping[str, Fronts], level: float
) -> list[dict[str, Any]]:
    """The cheapest of each front that reaches a level. `memory_bytes` are the weights of one
    instance."""
    rows, index, metrics = _cheapest(problem, fronts, level, SHOWN)
    batch, space = problem.batch(index), problem.space
    weights = metrics.values["memory_weights_bytes_per_chip"] * metrics.values["chips"]
    for i, row in enumerate(rows):
        model = problem.model or model_at(batch, i, "", None)
        row |= {
            "predicted_loss_at_most": level,
            "memory_bytes": number(weights[i] / batch.replicas[i]),
            "shape": short_shape(config_of(model)),
        }
        for axis in view.map:
            at = space.names.index(axis)
            row[axis] = value_words(axis, space.choices[at][index[i, at]])
    return rows


def _laws(
    problem: PhysicsProblem, axis: int, names: Sequence[str], executor: Executor, progress: Progress
) -> list[dict[str, Any]]:
    """Under each law, the least cost of every value at the best loss that all values reach, and
    half-way from there to the loss of the cheapest; nothing where a value has no design."""
    rows, cost = [], _cost(problem)
    for law in LAWS:
        posed = replace(problem, study=replace(problem.study, quality_law=law))
        found = enumerated(posed, [axis], (QUALITY, cost), executor, progress)
        fronts = [found.among(np.arange(len(names)) == value) for value in range(len(names))]
        if not all(len(front.ids) for front in fronts):
            continue
        best = max(float(front.loss.min()) for front in fronts)
        worst = max(best, min(float(front.loss.max()) for front in fronts))
        for at, level in zip(LAW_LEVELS, (best, (best + worst) / 2), strict=True):
            for name, f in zip(names, fronts, strict=True):
                row = {"law": law, "at": at, "predicted_loss_at_most": level, "case": name}
                rows.append(row | {cost: float(f.cost[f.cheapest(level)])})
    return rows


# The systems of a space side by side: what each is, and its cheapest design at a few speeds.
#
# Every point is evaluated again, and of each system the designs stay that no other of that system
# beats in price and in time per output token, within the limits of the space.

SOFT = ("assumed", "estimated")  # kinds of a price that nobody published
SPEED, USER = "tpot_s", "output_tokens_per_s_per_user"
SHOWN_OF_SYSTEMS = (SPEED, "ttft_s", "output_tokens_per_s_per_chip")
# Tokens a second that a user sees.
SPEEDS = (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000)
MOST_SPEEDS = 12


def describe_systems(
    problem: PhysicsProblem, catalog: Catalog, *, executor: Executor, progress: Progress
) -> dict[str, Any] | None:
    """`systems` of study.json, None for a space that lists none. `rows` say what each is; `curves`
    and the cheapest `designs` at a few speeds are there where price and time per output token are
    objectives and the space can be enumerated."""
    study = problem.study
    if not study.systems:
        return None
    chips = [chip for chip in problem.machines.ids if chip in study.systems]
    document: dict[str, Any] = {
        "rows": [_row(problem, catalog, chip) for chip in chips],
        "left_out": [
            {"name": name, "why": study.why_left_out[chip]}
            for chip, name in study.systems.items()
            if chip in study.why_left_out
        ],
        "curves": [],
        "designs": [],
    }
    wanted = [objective.metric for objective in problem.objectives]
    cost = next((one for one in COSTS if one in wanted), None)
    if cost is None or SPEED not in wanted or problem.space.size > ENUMERATE:
        return document
    axis = problem.space.names.index("chip")
    found = enumerated(problem, [axis], (SPEED, cost), executor, progress)
    numbers, names = np.arange(len(problem.machines.ids)), [study.systems[chip] for chip in chips]
    fronts = [found.among(numbers == problem.machines.ids.index(chip)) for chip in chips]
    designs, of = [], dict(zip(names, fronts, strict=True))
    for speed in _speeds(fronts):
        rows, _, metrics = _cheapest(problem, of, 1.0 / speed, SHOWN_OF_SYSTEMS)
        usd_per_hour = metrics.values["chips"] * metrics.values["chip_usd_per_hour"]
        for i, row in enumerate(rows):
            known = {"usd_per_hour": float(usd_per_hour[i])}
            known |= {"efficiency": KINDS[int(metrics.provenance[i])]}
            designs.append({"system": row.pop("case"), USER: speed, **row, **known})
    return document | {
        "cost": cost,
        "curves": [
            {"system": name, USER: 1.0 / tpot_s, cost: usd}
            for name, front in of.items()
            for tpot_s, usd in zip(front.loss.tolist(), front.cost.tolist(), strict=True)
        ],
        "designs": designs,
    }


def _row(problem: PhysicsProblem, catalog: Catalog, chip: str) -> dict[str, Any]:
    """One system: chip, software, formats, and the price of its chip with what that rests on."""
    study, at = problem.study, problem.machines.ids.index(chip)

    def values(name: str) -> list[Any]:
        axis = next((one for one in study.deployment_axes if one.name == name), None)
        return [] if axis is None else [axis.values[k] for k in axis.positions(at)]

    formats = [CODE[str(one)] for one in values("weight_dtype")]
    if study.costs is not None:
        owned = price_by_parts(catalog, chip, study.price_basis, study.costs)
        usd = owned["usd_per_chip_hour"]
        facts = [one for one in owned["inputs"] if one["of"] == "chip" and "price" in one["name"]]
        kind = next((one["kind"] for one in facts if one["kind"] in SOFT), "claimed")
        notes = [f": {one['note']}" if one["note"] else "" for one in facts]
        price = "; ".join(
            f"{one['text']} ({one['kind']}, {one['date']}{note})"
            for one, note in zip(facts, notes, strict=True)
        )
    else:
        one = catalog.prices.select(study.price_basis)[chip]
        usd, price, kind = one.usd_per_chip_hour, "; ".join((one.rule, *one.notes)), "claimed"
    return {
        "system": study.systems[chip],
        "chip": chip,
        "software": ", ".join(values("backend") or [one.backend for one in study.workloads[:1]]),
        "weight_dtype": ", ".join(values("weight_dtype")),
        "kv_dtype": ", ".join(values("kv_dtype")),
        "usd_per_chip_hour": usd,
        "price_rule": price,
        "price_kind": kind,
        "efficiency": KINDS[int(problem.machines.law_kind[at, formats].max())],
    }


def _speeds(fronts: list[Fronts]) -> list[int]:
    """Round speeds that some system reaches, from the first that leaves one of them a choice."""
    reached = [1.0 / front.loss for front in fronts if len(front.loss)]
    if not reached:
        return []
    slowest, fastest = min(map(np.min, reached)), max(map(np.max, reached))
    found = [speed for speed in SPEEDS if speed <= fastest]
    found += [int(fastest)] * (int(fastest) > 1.05 * max(found, default=0))
    below = [speed for speed in found if speed <= slowest]
    found = found[max(len(below) - 1, 0) :]
    step = -(-len(found) // MOST_SPEEDS) if found else 1
    return found[::-1][::step][::-1]
