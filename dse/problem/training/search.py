"""The best plan of a training run: all plans evaluated, those that fit ranked by what they deliver.

A plan's rate is useful tokens per second: global batch / step x goodput. Of equal rates (a slow
input pipeline makes them all equal) the one whose chips are faster wins, then the first in the
order of `plans`, so that the choice does not depend on what else is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dse.physics.machines import Machines
from dse.physics.training.at_scale import Conditions, Run, at_scale, of_one_site
from dse.physics.training.evaluate import evaluate_training
from dse.physics.training.plan import TrainingBatch, TrainingMetrics
from dse.physics.training.plans import Setting, batch_of_plans, plans
from dse.record import record
from dse.rules.case import Case, Training
from dse.rules.registry import judge
from dse.schema.training_stack import TrainingStack
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments, stacked

CHUNK = 8192


@record
class Trainer:
    """What plans are judged on: one chip of `machines` (its code is in the shapes), `chips` of
    them, a stack, what every plan has in common and what surrounds the run."""

    machines: Machines
    chips: int
    stack: TrainingStack
    setting: Setting
    conditions: Conditions

    def evaluate(
        self, shapes: CandidateBatch, row: NDArray[np.intp], table: Deployments
    ) -> Evaluated:
        """The plans (n,) of the shapes at `row`."""
        batch = batch_of_plans(shapes, row, table, self.setting)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            alone = of_one_site(batch, self.conditions)
            metrics = evaluate_training(alone, self.machines, self.stack)
            run = at_scale(batch, metrics, self.conditions)
            case = Case.of_training(Training(metrics, batch, run, self.conditions, self.chips))
            return Evaluated(batch, metrics, run, case, judge(case))

    def plans(self, shapes: CandidateBatch) -> tuple[NDArray[np.intp], Deployments]:
        """Every plan of every shape: (n,) the shape's row, and the table."""
        domains = self.machines.fabric.domain[shapes.chip]
        tables = [
            plans(shapes[k : k + 1], self.chips, self.setting, float(domains[k]))
            for k in range(len(shapes))
        ]
        row = np.repeat(np.arange(len(shapes)), [len(table) for table in tables])
        return row, stacked(tables)

    def ranked(self, shapes: CandidateBatch) -> Ranked:
        """All plans of all shapes with their rates."""
        row, table = self.plans(shapes)
        rates, misses, steps = (np.empty(len(row)) for _ in range(3))
        for start in range(0, len(row), CHUNK):
            part = slice(start, start + CHUNK)
            found = self.evaluate(shapes, row[part], table.take(part))
            rates[part], misses[part] = found.rate, found.miss
            steps[part] = found.metrics.step_s
        return Ranked(row, table, rates, misses, steps)


@record
class Evaluated:
    """Plans, (n,), the step of each and the run around it; `violations[rule]` of
    `dse.rules.registry`."""

    batch: TrainingBatch
    metrics: TrainingMetrics
    run: Run
    case: Case
    violations: Mapping[str, Floats]

    @property
    def rate(self) -> Floats:
        """(n,) useful tokens per second of all chips."""
        return self.batch.global_batch_tokens / self.run.step_s * self.run.goodput.goodput

    @property
    def miss(self) -> Floats:
        """(n,) by how much rules are broken, added up; 0 where none is."""
        total = np.zeros(len(self.batch))
        for amount in self.violations.values():
            total = total + np.maximum(amount, 0.0)
        return total


@record
class Ranked:
    """Plans (n,) of shapes at `row`, their rates, by how much they miss the rules, and the step of
    the chips alone."""

    row: NDArray[np.intp]
    table: Deployments
    rate: Floats
    miss: Floats
    step_s: Floats

    def order(self) -> NDArray[np.intp]:
        """(n,) plans by shape, the best first: those that fit by rate, then the nearest misses."""
        place = np.arange(len(self.row))
        broken = self.miss > 0.0
        rate = np.where(broken, 0.0, self.rate)
        return np.lexsort((place, self.step_s, -rate, self.miss, self.row))

    def take(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Deployments]:
        return self.row[rows], self.table.take(rows)

    def best(self) -> NDArray[np.intp]:
        """(k,) the best plan of each shape, in the order of the shapes."""
        order = self.order()
        return order[np.searchsorted(self.row[order], np.arange(self.row.max() + 1))]
