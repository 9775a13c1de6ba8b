"""What would have been predicted of a chip before anything was measured on it.

For each case the kernel laws of the new chip are those of an older one, or of a class of chips, and
neither the factors nor the intervals have seen a row of the new family: the fit, and the spread of
its held-out rows, are those of the other rows alone. The rows of the new chip are then predicted.

A format that the older chip has no arithmetic for (4 bits on Hopper) was measured there, if at all,
with weights unpacked to 16 bits; its law says nothing of a chip that computes in it, which gets the
law of fp8, as fractions of its own peak. Forms, rules of rows and backend files are today's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.fits import Problem, as_factors, linearise, pose, row_weights
from dse.accuracy.scores import score, speed_up
from dse.accuracy.serving_points import predict_rows
from dse.accuracy.tables import ADDED, machines_of
from dse.accuracy.validate import covered, ready
from dse.catalog import Catalog
from dse.data import hardware_dir
from dse.schema.backend import Calibration
from dse.schema.chip import Chip
from dse.schema.dtypes import arithmetic
from dse.schema.efficiency import Efficiency, Law, load_efficiency


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


def backtest(
    answer: pd.DataFrame,
    cases: tuple[Case, ...] = CASES,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """For each case whose chip has rows in `answer`, as `predict` leaves them:
    `chip, laws, left_out, fitted_rows, rows, interval_coverage, scores, speed_up`, the last the
    pair of the chip and the one whose laws it took, or None."""
    problem = pose(covered(answer).drop(columns=list(ADDED)).reset_index(drop=True))
    chips, found = problem.table["chip"], []
    for case in cases:
        if not (chips == case.chip).any():
            continue
        progress(f"as before {case.chip}, with the laws of {case.laws}")
        hidden = [c for c in sorted(set(chips)) if case.hides(problem.catalog.chips[c])]
        known = ~chips.isin(hidden).to_numpy()
        rows = covered(ready(predicted(problem, case, known)))
        mine = rows[rows["chip"] == case.chip]
        within = mine["value"].between(mine["predicted_low"], mine["predicted_high"])
        pairs = speed_up(rows[rows["chip"].isin([case.chip, case.laws])])["chips"]
        found.append(
            {
                "chip": case.chip,
                "laws": case.laws,
                "left_out": f"{case.field} {case.value}",
                "fitted_rows": int((known & problem.used).sum()),
                "rows": len(mine),
                "interval_coverage": float(within.mean()),
                "scores": [item for item in score(mine) if item["by"] == "all"],
                "speed_up": pairs[0] if pairs else None,
            }
        )
    return found


def predicted(problem: Problem, case: Case, known: NDArray[np.bool_]) -> pd.DataFrame:
    """The table of `problem` with the columns ADDED, by a fit to the `known` (n,) rows alone."""
    past = replace(problem, weight=row_weights(problem.table, known & (problem.weight > 0.0)))
    moves = past.fit()
    numbers = past.without_each("group", moves, linearise(past.logs, moves))
    spread, wider = past.spread(numbers)
    calibration = Calibration(as_factors(moves), spread, stock_wider=wider)
    catalog = before(problem.catalog, case, calibration)
    return problem.predicted(predict_rows(problem.readout, catalog, machines_of(catalog)))


def before(catalog: Catalog, case: Case, calibration: Calibration) -> Catalog:
    """The catalog with `calibration`, in which hidden chips have the laws of `case`."""
    laws = load_efficiency(hardware_dir() / "efficiency" / f"{case.laws}.yaml")
    chips, efficiencies = dict(catalog.chips), dict(catalog.efficiencies)
    for chip in catalog.chips.values():
        if case.hides(chip):
            lent = _lent(laws, catalog.chips.get(laws.id), chip)
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


def _lent(laws: Efficiency, owner: Chip | None, chip: Chip) -> Efficiency:
    """`laws`, measured on `owner` (None: of a class), for another chip; the module says what a
    format gets that the owner does not compute in."""
    lent = laws.of_chip(chip)
    if owner is None:
        return lent
    new = {name for name in chip.peak_flops_per_s if name not in owner.peak_flops_per_s}

    def of_the_chip(operator: str, dtype: str, law: Law) -> Law:
        return lent.operators[operator]["fp8"] if arithmetic(dtype) in new else law

    return replace(lent, operators=lent.each(of_the_chip))
