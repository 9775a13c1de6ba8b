"""Front points that stand on an end of the space or of the quality law: there the search may have
been stopped by the frame, not by the physics."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse import units
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem


def at_bounds(problem: PhysicsProblem, metrics: Metrics, index: np.ndarray) -> list[dict[str, Any]]:
    """[{bound, points}], most points first: the lowest or highest value of an ordered model or
    deployment axis of three values or more, and the ends of the law."""
    rows = []
    space = problem.space
    for axis, name in enumerate(space.names):
        count = int(space.cardinalities[axis])
        if count < 3 or not space.ordered[axis]:
            continue
        choices = space.choices[axis]
        # An axis that does not apply to a point reads as its first value.
        other = index.copy()
        other[:, axis] = 1
        applies = space.canonical(other)[:, axis] == 1
        for end, value in ((0, choices[0]), (count - 1, choices[-1])):
            points = int(((index[:, axis] == end) & applies).sum())
            which = "lowest" if end == 0 else "highest"
            relative = space.axes[axis].ratio_of is not None
            if space.axes[axis].rule.kind == "tokens":
                value = units.format(float(value), "tokens")
            what = "for its shape" if relative else f"of the space ({value})"
            if points:
                rows.append({"bound": f"{which} {name} {what}", "points": points})
    for name, flags in metrics.quality.at_bound.items():
        if flags.any():
            rows.append(
                {"bound": f"{name} at the end of the quality law", "points": int(flags.sum())}
            )
    return sorted(rows, key=lambda row: -row["points"])
