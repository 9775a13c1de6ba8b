"""Constants of the training stacks from measured runs, and predictions of runs that no fit saw.

The fit (`dse.accuracy.saturating_fit`) minimises, over logarithms (of factors and seconds) and
log-odds (of shares) t around the priors of PARAMETERS, a loss of the errors |predicted / measured -
1|, rounded below 5%, that saturates near 25%, and a ridge of t over each one's sd. A constant is
shared by all the stacks that it names; none belongs to one model or group. A run counts once
(tokens per second where a source has that, else FLOPs or utilisation by its convention), every
group (model and chip) weighs the same, whole runs in chip-hours not at all.

An interval is the 10th and the 90th percentile of measured over predicted speed on held-out rows.
Whole runs in chip-hours enter no fit: their own few rows give the spread of runs whose
configuration nobody published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.saturating_fit import Objective, Posed, SpreadTable, spread_of_kinds
from dse.accuracy.scores import ENOUGH_ROWS
from dse.accuracy.tables import machines_of
from dse.accuracy.training_rows import (
    TRAINED,
    Known,
    TrainingReadout,
    predict_training,
    runs_of,
    with_training,
)
from dse.catalog import Catalog, load_catalog
from dse.physics.training.evaluate import RATE, RATES, RUN, WHOLE_RUNS, training_interval
from dse.schema.training import CLOCK, TrainingStack, training_stacks
from dse.space.candidates import Floats

MAIN = ("tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu")
RIDGE = 0.006
ROUNDED, SATURATION = 0.05, 0.25


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of `stacks` (or, a clock, of chips) that the fit moves together; `sd` of the ridge
    towards `prior`. A `shared` one is a factor on those that stacks have of their own: what one
    stack shows moves the prior of the others."""

    constant: str
    stacks: tuple[str, ...]
    prior: float
    sd: float
    shared: bool = False

    @property
    def share(self) -> bool:
        return self.constant.endswith("_overlap")

    def moved(self, t: float) -> float:
        """The constant at `t` from its prior."""
        if not self.share:
            return self.prior * float(np.exp(t))
        odds = self.prior / (1.0 - self.prior) * float(np.exp(t))
        return odds / (1.0 + odds)


MEGATRON = ("megatron", "megatron-eager", "megatron-fused")
GPU = (*MEGATRON, "fsdp", "generic")
ALL = (*GPU, "maxtext")
PARAMETERS: tuple[Parameter, ...] = (
    Parameter("gemm_bf16", GPU, 1.0, 0.2),
    Parameter("gemm_bf16", ("maxtext",), 1.0, 0.2),
    Parameter("gemm_fp8", ALL, 1.0, 0.2),
    Parameter("gemm_fp4", ALL, 1.0, 0.3),
    Parameter("attention", ALL, 1.0, 0.2),
    Parameter("states", ALL, 3.0, 0.5),
    Parameter("experts", ("megatron", "generic"), 1.0, 0.4),
    Parameter("experts", ("megatron-eager",), 1.0, 0.4),
    Parameter("experts", ("megatron-fused",), 1.0, 0.4),
    Parameter("experts", ("maxtext", "fsdp"), 1.0, 0.4),
    Parameter("elementwise", (*MEGATRON, "generic"), 1.0, 0.45),
    Parameter("elementwise", ("maxtext",), 1.0, 0.45),
    Parameter("elementwise", ("fsdp",), 1.5, 0.45),
    Parameter("moe_elementwise", ("megatron", "generic"), 1.0, 0.75),
    Parameter("moe_elementwise", ("megatron-eager",), 1.0, 0.75),
    Parameter("moe_elementwise", ("megatron-fused",), 1.0, 0.75),
    Parameter("moe_elementwise", ("maxtext",), 1.0, 0.75),
    Parameter("dispatch", ("megatron", "megatron-fused", "generic"), 1.0, 0.3),
    Parameter("dispatch", ("megatron-eager",), 1.0, 0.3),
    Parameter("collectives", ALL, 1.0, 0.3),
    Parameter("elementwise", ALL, 1.0, 0.45, shared=True),
    Parameter("moe_elementwise", (*MEGATRON, "generic", "maxtext"), 1.0, 0.75, shared=True),
    Parameter("dispatch", (*MEGATRON, "generic"), 1.0, 0.3, shared=True),
    Parameter("data_overlap", ("fsdp",), 0.85, 0.7),
    Parameter("expert_overlap", ("megatron", "generic"), 0.3, 0.7),
    Parameter("expert_overlap", ("megatron-fused",), 0.8, 0.7),
    Parameter("tensor_overlap", (*MEGATRON, "generic"), 0.5, 0.7),
    Parameter(CLOCK, ("b200_sxm", "gb200_nvl72"), 1.0, 0.1),
    Parameter(CLOCK, ("b300_sxm", "gb300_nvl72"), 1.0, 0.1),
    Parameter("host_s_per_layer", ("megatron-eager",), 0.008, 0.5),
)


def moved_stacks(stacks: Mapping[str, TrainingStack], moves: Floats) -> dict[str, TrainingStack]:
    """The stacks with every fitted constant at its place."""
    changes: dict[str, dict[str, float]] = {}
    clocks: dict[str, float] = {}
    placed = list(zip(PARAMETERS, map(float, moves), strict=True))
    shared = {(p.constant, name): t for p, t in placed if p.shared for name in p.stacks}
    for parameter, t in placed:
        for name in parameter.stacks if not parameter.shared else ():
            of = clocks if parameter.constant == CLOCK else changes.setdefault(name, {})
            value = parameter.moved(t + shared.get((parameter.constant, name), 0.0))
            of[name if of is clocks else parameter.constant] = value
    return {
        name: replace(stack, clocks=clocks, **changes.get(name, {}))
        for name, stack in stacks.items()
    }


@dataclass(frozen=True, slots=True)
class TrainingProblem(Posed):
    """Rows of training; `counted` (n,) are those that a fit or a spread may see."""

    objective: ClassVar[Objective] = Objective(
        np.array([p.sd for p in PARAMETERS]), RIDGE, ROUNDED, SATURATION
    )
    words: ClassVar[str] = "training: "

    readout: TrainingReadout
    stacks: Mapping[str, TrainingStack]
    counted: NDArray[np.bool_]
    known: Known = field(default_factory=dict, init=False, compare=False)

    def predict(self, moves: Floats) -> Floats:
        stacks = moved_stacks(self.stacks, moves)
        return predict_training(self.readout, self.machines, stacks, self.known)

    def predicted(self, numbers: Floats) -> pd.DataFrame:
        return with_training(self.table, self.readout, numbers)

    def names(self, by: str) -> list[str]:
        return sorted(set(self.keys(by)))

    def backends(self) -> Sequence[str]:
        return self.readout.text(lambda run: run.stack)

    def set_intervals(
        self, numbers: Floats, rows: NDArray[np.bool_], others: NDArray[np.bool_]
    ) -> None:
        spread = {
            name: np.array(list(kinds.values()))
            for name, kinds in self.spread(numbers, others & self.counted).items()
        }
        for metric in sorted(set(self.table["metric"][rows])):
            where = np.flatnonzero(rows & (self.table["metric"] == metric).to_numpy())
            kind = numbers[where, 4].astype(np.intp)
            ends = training_interval(metric, numbers[where, 0], kind, spread)
            numbers[where, 1:3] = np.stack(ends, axis=1)

    def spread(self, numbers: Floats, rows: NDArray[np.bool_]) -> SpreadTable:
        """By class and kind, (low, high) of measured over predicted speed, of held-out `rows`."""
        metric = self.table["metric"]
        ratio = np.log(self.measured / numbers[:, 0])
        frame = pd.DataFrame(
            {
                "log": np.where(metric.isin(RATES), ratio, -ratio),
                "kind": numbers[:, 4],
                "group": self.table["group"].to_numpy(),
            }
        )
        whole = rows & metric.isin(WHOLE_RUNS).to_numpy()
        return {RATE: spread_of_kinds(frame[rows & self.used]), RUN: spread_of_kinds(frame[whole])}


def pose_training(
    table: pd.DataFrame, counted: NDArray[np.bool_], catalog: Catalog | None = None
) -> TrainingProblem:
    """The fitting problem of a table of training rows, of which the fit sees those `counted`."""
    catalog = catalog or load_catalog()
    readout = TRAINED.read(table, catalog)
    covered = np.array([status == "ok" for status in readout.status], dtype=bool)
    measured = pd.to_numeric(table["value"], errors="coerce").to_numpy(dtype=np.float64)
    main = one_row_a_run(table, readout) & counted & covered & (measured > 0.0)
    return TrainingProblem(
        table=table,
        readout=readout,
        machines=machines_of(catalog),
        stacks=training_stacks(),
        measured=measured,
        weight=group_weights(table, main),
        counted=counted,
    )


def one_row_a_run(table: pd.DataFrame, readout: TrainingReadout) -> NDArray[np.bool_]:
    """(n,) the row of each measurement of a run whose metric comes first in MAIN: a repeated figure
    of one metric is a measurement of its own."""
    rank = table["metric"].map({name: place for place, name in enumerate(MAIN)}).fillna(np.inf)
    frame = pd.DataFrame({"run": runs_of(readout), "rank": rank.to_numpy()})
    best = frame.groupby("run")["rank"].transform("min")
    return np.asarray((frame["rank"] == best) & np.isfinite(frame["rank"]) & (frame["run"] >= 0))


def group_weights(table: pd.DataFrame, used: NDArray[np.bool_]) -> Floats:
    """(n,) each group of 5 rows or more weighs 1 over all groups, smaller ones in proportion."""
    weight = np.zeros(len(table))
    groups = table["group"][used]
    size = groups.map(groups.value_counts()).to_numpy(dtype=np.float64)
    weight[used] = np.minimum(size / ENOUGH_ROWS, 1.0) / size
    return weight / max(groups.nunique(), 1)


def cross_validate_training(
    rows: pd.DataFrame,
    fitted: pd.DataFrame | None,
    progress: Callable[[str], None] = lambda _: None,
    catalog: Catalog | None = None,
) -> dict[str, pd.DataFrame]:
    """By fold, the table `rows` with the columns that `with_predictions` adds. With `fitted`, the
    fits are to these rows and never to `rows`."""
    table = rows if fitted is None else pd.concat([fitted, rows], ignore_index=True)
    table = table.fillna("").reset_index(drop=True)
    first = 0 if fitted is None else len(fitted)
    counted = np.arange(len(table)) < (len(table) if fitted is None else first)
    table["group"] = table["model"] + "|" + table["chip"]
    folds = pose_training(table, counted, catalog).cross_validate(progress)
    return {by: answer.iloc[first:].reset_index(drop=True) for by, answer in folds.items()}
