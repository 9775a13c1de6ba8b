"""The systems of a space side by side: what each is, and its cheapest design at a few speeds.

Every point is evaluated again, and of each system the designs stay that no other of that system
beats in price and in time per output token, within the limits of the space.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.catalog import Catalog
from dse.economics.tco import usd_per_chip_hour
from dse.problem.objective import PhysicsProblem
from dse.problem.words import short_deployment
from dse.schema.calibration import KINDS
from dse.schema.dtypes import CODE
from dse.schema.views import COSTS
from dse.search.engine import ENUMERATE, Progress
from dse.search.parallel import Executor
from dse.study.views import Fronts, enumerated

SPEED = "tpot_s"
# Tokens a second that a user sees.
SPEEDS = (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000)
MOST_SPEEDS = 12
STEP, NEAR = 1.1, 1.1


def describe_systems(
    problem: PhysicsProblem, catalog: Catalog, *, executor: Executor, progress: Progress
) -> dict[str, Any] | None:
    """`systems` of study.json, None for a space that lists none. `rows` say what each is; `curves`
    and `speeds` are there where price and time per output token are objectives and the space can be
    enumerated."""
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
        "speeds": [],
        "wins": [],
    }
    wanted = [objective.metric for objective in problem.objectives]
    cost = next((one for one in COSTS if one in wanted), None)
    if cost is None or SPEED not in wanted or problem.space.size > ENUMERATE:
        return document
    axis = problem.space.names.index("chip")
    found = enumerated(problem, [axis], (SPEED, cost), executor, progress)
    numbers = np.arange(len(problem.machines.ids))
    fronts = [found.among(numbers == problem.machines.ids.index(chip)) for chip in chips]
    speeds = _speeds(fronts)
    return document | {
        "cost": cost,
        "wins": _wins(fronts, [study.systems[chip] for chip in chips]),
        "curves": [{"tpot_s": f.loss.tolist(), "cost": f.cost.tolist()} for f in fronts],
        "speeds": [
            {"tokens_per_s": speed, "best": [_best(problem, cost, f, speed) for f in fronts]}
            for speed in speeds
        ],
    }


def _row(problem: PhysicsProblem, catalog: Catalog, chip: str) -> dict[str, Any]:
    """One system: chip, software, formats, and the price of its chip with what that rests on."""
    study, at = problem.study, problem.machines.ids.index(chip)

    def values(name: str) -> list[Any]:
        axis = next((one for one in study.deployment_axes if one.name == name), None)
        return [] if axis is None else [axis.values[k] for k in axis.positions(at)]

    formats = [CODE[str(one)] for one in values("weight_dtype")]
    if study.costs is not None:
        owned = usd_per_chip_hour(catalog, chip, study.price_basis, study.costs)
        usd, facts = owned.usd_per_chip_hour, [one for one in owned.facts if "price" in one.name]
        kind = next((one.kind for one in facts if one.kind in ("assumed", "estimated")), "claimed")
        price = "; ".join(
            f"{one.text} ({one.kind}, {one.date}{': ' if one.note else ''}{one.note})"
            for one in facts
        )
    else:
        one = catalog.prices.select(study.price_basis)[chip]
        usd, price, kind = one.usd_per_chip_hour, "; ".join((one.rule, *one.notes)), "claimed"
    return {
        "name": study.systems[chip],
        "chip": chip,
        "backends": values("backend") or [load.backend for load in study.workloads[:1]],
        "weight_dtypes": values("weight_dtype"),
        "kv_dtypes": values("kv_dtype"),
        "usd_per_chip_hour": usd,
        "price": price,
        "price_kind": kind,
        "kernels": KINDS[int(problem.machines.law_kind[at, formats].max())],
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


def _wins(fronts: list[Fronts], names: list[str]) -> list[dict[str, Any]]:
    """Which system is cheapest from which speed to which, slow to fast, with the least cost at both
    ends, and which others are `near`: within NEAR of it at most of these speeds. A lead over less
    than STEP in speed is not told."""
    reached = [1.0 / front.loss for front in fronts if len(front.loss)]
    if not reached:
        return []
    low, high = min(map(np.min, reached)), max(map(np.max, reached))
    steps = max(int(np.log(high / low) / np.log(STEP)), 1) + 1
    speeds = np.geomspace(low, high, steps)
    # (systems, speeds); the fastest design is as fast as itself, rounding aside
    cost = np.array(
        [[_least(front, speed * (1.0 - 1e-12)) for speed in speeds] for front in fronts]
    )
    winner, least = np.argmin(cost, axis=0), np.min(cost, axis=0)
    turns = [0, *(np.flatnonzero(np.diff(winner)) + 1), steps]
    runs: list[tuple[int, int]] = []  # from, to of the grid, both included
    for start, end in pairwise(turns):
        if runs and winner[runs[-1][0]] == winner[start]:
            runs[-1] = (runs[-1][0], end - 1)
        elif not runs or end - start > 1:
            runs.append((start, end - 1))
    found = []
    for start, end in runs:
        close = cost[:, start : end + 1] <= NEAR * least[start : end + 1]
        own = winner[start]
        near = [i for i, share in enumerate(close.mean(axis=1)) if share > 0.5 and i != own]
        found.append(
            {
                "name": names[own],
                "from": float(speeds[start]),
                "to": float(speeds[end]),
                "cost_from": float(least[start]),
                "cost_to": float(least[end]),
                "near": [names[i] for i in near],
            }
        )
    return found


def _least(front: Fronts, tokens_per_s: float) -> float:
    """The least cost of a system at a speed, infinite where it is not reached."""
    row = front.cheapest(1.0 / tokens_per_s)
    return np.inf if row is None else float(front.cost[row])


def _best(
    problem: PhysicsProblem, cost: str, front: Fronts, tokens_per_s: float
) -> dict[str, Any] | None:
    """The cheapest design of a system that is at least that fast; None where none is."""
    row = front.cheapest(1.0 / tokens_per_s)
    if row is None:
        return None
    index = problem.space.unrank(front.ids[row : row + 1])
    metrics = problem.metrics(index)
    shown = (cost, SPEED, "ttft_s", "output_tokens_per_s_per_chip", "chips", "chip_usd_per_hour")
    values = {name: number(metrics.values[name][0]) for name in shown}
    return {
        "deployment": short_deployment(problem.deployments(index)[0]),
        "kernels": KINDS[int(metrics.provenance[0])],
        "metrics": values,
        "usd_per_hour": float(metrics.values["chips"][0] * metrics.values["chip_usd_per_hour"][0]),
    }
