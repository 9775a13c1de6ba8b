"""A problem whose metrics come from a function of the user: a simulator, or a measured run.

    dse run my-space --evaluator mypackage.bench:measure

imports `mypackage.bench` (from the current folder too) and calls `measure(values)` for one point at
a time: naming a function runs its code, which is why it stands on the command line and never in a
space file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.problem.mix import whole
from dse.problem.objective import PhysicsProblem
from dse.problem.protocol import Evaluation, Objective
from dse.schema.loader import did_you_mean
from dse.schema.metrics import METRICS
from dse.search.evaluator import SEARCH, Batch
from dse.search.record import Record, active_axes
from dse.search.samplers import imported
from dse.space.space import Space

FIELD = "--evaluator"
# values of the axes that apply to one point -> metrics in SI units, by the names of METRICS
Function = Callable[[dict[str, Any]], Mapping[str, float | None]]


class ExternalProblem:
    """Problem of `dse.problem.protocol` over the space of a `PhysicsProblem`, evaluated by
    the function `entry`, `package.module:function`.

    The rules of `dse.rules` still hold: a point that breaks one is not given to the
    function. Limits and objectives are those of the space file, of the metrics that the function
    returns; one that it returns as None or NaN has no value there. What `record` holds is not
    evaluated again, and each point is stored as soon as it is known.
    """

    def __init__(self, physics: PhysicsProblem, entry: str) -> None:
        """Raises InputError where there is no such function, and for a limit of one workload of
        several."""
        accepted = "package.module:function"
        self._function: Function = imported(entry, FIELD, accepted)
        if not callable(self._function):
            raise InputError(f"{entry} is no function", field=FIELD, accepted=accepted)
        self.physics, self.entry = physics, entry
        self.space: Space = physics.space
        self.objectives: tuple[Objective, ...] = physics.objectives
        self._needed = {o.metric for o in self.objectives} | {x.metric for x in physics.limits}
        self._known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._record: Record | None = None
        for limit in physics.limits:
            if limit.workload:
                raise InputError(
                    f"the limit {limit.text!r} is of one workload",
                    field=FIELD,
                    accepted="limits of the whole: the function returns one value a metric",
                )

    @property
    def constraints(self) -> tuple[str, ...]:
        return self.physics.constraints

    def keep(self, record: Record) -> None:
        """Take over what `record` holds, and store there what is evaluated from now on."""
        batch = record.load().batch
        self._known.update(
            (int(i), (batch.F[row], batch.G[row])) for row, i in enumerate(batch.ids)
        )
        self._record = record

    def evaluate(self, index: NDArray[np.int64]) -> Evaluation:
        """Index (n, d) -> F (n, m), G (n, c), a point at a time."""
        rows = [self._point(index[i : i + 1]) for i in range(len(index))]
        objectives, constraints = len(self.objectives), len(self.constraints)
        return Evaluation(
            np.array([F for F, _ in rows]).reshape(len(rows), objectives),
            np.array([G for _, G in rows]).reshape(len(rows), constraints),
        )

    def metrics_of(self, F: NDArray[np.float64], G: NDArray[np.float64]) -> dict[str, float]:
        """What the function said of a point of the front, from its F (m,) and G (c,)."""
        own = {o.metric: o.sign * float(F[j]) for j, o in enumerate(self.objectives)}
        for k, limit in enumerate(self.physics.limits, len(self.physics.rules)):
            used = limit.limit + limit.sign * float(G[k]) * (abs(limit.limit) or 1.0)
            own.setdefault(limit.metric, used)
        return own

    def _point(self, index: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        point = int(self.space.rank(index)[0])
        if point not in self._known:
            F, G = self._evaluated(index)
            self._known[point] = (F, G)
            if self._record is not None:
                batch = Batch(np.array([point]), index, F[None, :], G[None, :])
                self._record.add(batch, SEARCH)
        return self._known[point]

    def _evaluated(
        self, index: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rules = self.physics.evaluate(index).G[0, : len(self.physics.rules)]
        limits = self.physics.limits
        if (rules > 0).any():
            return np.full(len(self.objectives), np.inf), np.append(
                rules, [0.0] * len(limits) + [1]
            )
        metrics = self._call(point_values(self.physics, index))
        F = np.array([o.sign * metrics[o.metric] for o in self.objectives])
        used = np.array([limit.sign * (metrics[limit.metric] - limit.limit) for limit in limits])
        scale = np.array([abs(limit.limit) or 1.0 for limit in limits])
        amounts = np.where(np.isnan(used), 1.0, used / scale)
        unknown = float(np.isnan(F).any())
        return np.where(np.isnan(F), np.inf, F), np.concatenate([rules, amounts, [unknown]])

    def _call(self, values: dict[str, Any]) -> dict[str, float]:
        """The needed metrics of a point, NaN where there is none. Raises InputError when the
        function fails or returns something else."""
        try:
            answer = self._function(dict(values))
        except Exception as error:  # and the user's function anything while it runs
            raise InputError(
                f"{self.entry} failed at {values}: {type(error).__name__}: {error}", field=FIELD
            ) from error
        if not isinstance(answer, Mapping):
            raise InputError(
                f"{self.entry} returned {answer!r:.60}",
                field=FIELD,
                accepted=f"a dict with {', '.join(sorted(self._needed))}",
            )
        for name in answer:
            if name not in METRICS:
                raise InputError(
                    f"{self.entry} returned an unknown metric {name!r}"
                    f"{did_you_mean(str(name), METRICS)}",
                    field=FIELD,
                    accepted=f"among others {', '.join(sorted(self._needed))}",
                )
        if missing := sorted(self._needed - set(answer)):
            raise InputError(
                f"{self.entry} returned no {', '.join(missing)}",
                field=FIELD,
                accepted=f"{', '.join(sorted(self._needed))}; None where there is no value",
            )
        try:
            return {name: _number(answer[name]) for name in self._needed}
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{self.entry} returned no number at {values}: {error}", field=FIELD
            ) from error


def point_values(problem: PhysicsProblem, index: NDArray[np.int64]) -> dict[str, Any]:
    """The axes that apply at one point, index (1, d): sizes and degrees as numbers (a ratio as the
    size that it comes to), chips and dtypes by name; `model` where the space file fixes one."""
    space = problem.space
    sizes = space.values(index)
    active = active_axes(space, index)[0]
    found: dict[str, Any] = {} if problem.model is None else {"model": problem.model.name}
    for j, name in enumerate(space.names):
        if active[j]:
            size, kind = whole(sizes[name][0]), space.choices[j][int(index[0, j])]
            found[name] = size if space.ordered[j] else kind
    return found


def _number(value: Any) -> float:
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else math.nan


def say_external(
    problem: ExternalProblem, front: Batch, items: list[dict[str, Any]], document: dict[str, Any]
) -> None:
    """What the function said of the front, in place of what the model says of the same metrics;
    intervals and the chance to be on the front are the model's and do not apply."""
    document["evaluator"] = problem.entry
    for row, item in enumerate(items):
        own = problem.metrics_of(front.F[row], front.G[row])
        metrics = item["metrics"]
        metrics |= {**own, "feasible": True, "violations": [], "evaluated": sorted(own)}
        metrics["intervals"] = {
            name: span for name, span in (metrics.get("intervals") or {}).items() if name not in own
        }
        item["front_probability"] = None
