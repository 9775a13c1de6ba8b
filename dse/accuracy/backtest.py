"""What would have been predicted of a chip before anything was measured on it.

For each case the kernel laws of the new chip are those of an older one, or of a class of chips, and
neither the factors nor the intervals have seen a row of the new family: the fit, and the spread of
its held-out rows, are those of the other rows alone. The rows of the new chip are then predicted.

A format that the older chip has no arithmetic for (4 bits on Hopper) was measured there, if at all,
with weights unpacked to 16 bits; its law says nothing of a chip that computes in it, which gets the
law of fp8, as fractions of its own peak. Forms, rules of rows and backend files are today's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.calibrate import Problem, as_factors, pose, row_weights
from dse.accuracy.measurements import covered, ready
from dse.accuracy.saturating_fit import linearise
from dse.accuracy.scores import score, speed_up
from dse.accuracy.serving_points import predict_rows
from dse.accuracy.tables import ADDED, machines_of
from dse.catalog import Catalog
from dse.data import hardware_dir
from dse.schema.calibration import Calibration
from dse.schema.chip import Chip
from dse.schema.dtypes import arithmetic
from dse.schema.efficiency import Efficiency, load_efficiency


@dataclass(frozen=True, slots=True)
class Case:
    """`chip`, predicted with the laws of the file `laws`; chips whose `field` is `value` are
    unknown."""

    chip: str
    laws: str
    field: str
    value: str

    def hides(self, chip: Chip) -> bool:
        return getattr(chip, self.field) == self.value


# The class of any GPU is the median of NVIDIA's chips; that of MI300X has in addition its best
# published matrix product and all-reduce.
CASES = (
    Case("b200_sxm", "h200_sxm", "family", "blackwell"),
    Case("gb200_nvl72", "b200_sxm", "id", "gb200_nvl72"),
    Case("mi300x", "class_gpu", "vendor", "AMD"),
    Case("mi300x", "class_mi300x", "vendor", "AMD"),
)


@dataclass(frozen=True, slots=True)
class Known:
    """What the rows of `rows` (n,) say: factors, and the spread of held-out rows."""

    rows: NDArray[np.bool_]
    calibration: Calibration


def backtest(
    answer: pd.DataFrame,
    held_out: list[dict[str, Any]],
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """For each case with rows: `chip, laws, left_out, fitted_rows, rows, interval_coverage, scores,
    speed_up`.

    `answer`: rows as `measurements.predict` leaves them; `held_out`: the scores of today's fits
    without one chip, of which each score gets that of its chip as `held_out_by_chip` (None where
    there is none). `speed_up` is the pair of the chip and the one whose laws it took, or None.
    """
    rows = covered(answer).drop(columns=list(ADDED)).reset_index(drop=True)
    problem = pose(rows)
    return [
        _outcome(case, known, covered(ready(table)), held_out)
        for case, known, table in predictions(problem, progress)
    ]


def predictions(
    problem: Problem, progress: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[Case, Known, pd.DataFrame]]:
    """Every case whose chip has rows, with the table and the columns ADDED."""
    found: dict[tuple[str, str], Known] = {}
    chips = problem.table["chip"]
    for case in CASES:
        if not (chips == case.chip).any():
            continue
        key = (case.field, case.value)
        if key not in found:
            progress(f"as before {case.chip}: fit without {case.field} {case.value}")
            hidden = [c for c in sorted(set(chips)) if case.hides(problem.catalog.chips[c])]
            found[key] = learn(problem, ~chips.isin(hidden).to_numpy())
        known = found[key]
        catalog = before(problem.catalog, case, known.calibration)
        numbers = predict_rows(problem.readout, catalog, machines_of(catalog))
        yield case, known, problem.predicted(numbers)


def learn(problem: Problem, known: NDArray[np.bool_]) -> Known:
    """What the fit makes of the `known` (n,) rows alone."""
    weight = row_weights(problem.table, known & (problem.weight > 0.0))
    past = replace(problem, weight=weight)
    moves = past.fit()
    numbers = past.without_each("group", moves, linearise(past.logs, moves))
    spread, wider = past.spread(numbers)
    return Known(past.used, Calibration(as_factors(moves), spread, stock_wider=wider))


def before(catalog: Catalog, case: Case, calibration: Calibration) -> Catalog:
    """The catalog with `calibration`, in which hidden chips have the laws of `case`."""
    laws = load_efficiency(hardware_dir() / "efficiency" / f"{case.laws}.yaml")
    chips, efficiencies = dict(catalog.chips), dict(catalog.efficiencies)
    for chip in catalog.chips.values():
        if case.hides(chip):
            lent = _lend(laws, catalog.chips.get(laws.id), chip)
            efficiencies[lent.id] = lent
            chips[chip.id] = replace(chip, efficiency=lent.id)
    backends = {name: calibration.backend(backend) for name, backend in catalog.backends.items()}
    return replace(
        catalog,
        chips=chips,
        efficiencies=efficiencies,
        backends=backends,
        calibration=calibration,
    )


def _lend(laws: Efficiency, owner: Chip | None, chip: Chip) -> Efficiency:
    """`laws`, measured on `owner` (None: of a class), for another chip; see the module for formats
    that the owner does not compute in."""
    lent = laws.of_chip(chip)
    if owner is None:
        return lent
    new = {name for name in chip.peak_flops_per_s if name not in owner.peak_flops_per_s}
    operators = {
        operator: {
            dtype: of["fp8"] if arithmetic(dtype) in new else law for dtype, law in of.items()
        }
        for operator, of in lent.operators.items()
    }
    return replace(lent, operators=operators)


def _outcome(
    case: Case, known: Known, rows: pd.DataFrame, held_out: list[dict[str, Any]]
) -> dict[str, Any]:
    mine = rows[rows["chip"] == case.chip]
    inside = (mine["predicted_low"] <= mine["value"]) & (mine["value"] <= mine["predicted_high"])
    today = {
        (item["metric"], item["serving"]): item
        for item in held_out
        if item["by"] == "chip" and item["key"] == case.chip
    }
    pairs = speed_up(rows[rows["chip"].isin([case.chip, case.laws])])["chips"]
    return {
        "chip": case.chip,
        "laws": case.laws,
        "left_out": f"{case.field} {case.value}",
        "fitted_rows": int(known.rows.sum()),
        "rows": len(mine),
        "interval_coverage": float(inside.mean()),
        "scores": [
            item | {"held_out_by_chip": today.get((item["metric"], item["serving"]))}
            for item in score(mine)
            if item["by"] == "all"
        ],
        "speed_up": pairs[0] if pairs else None,
    }
