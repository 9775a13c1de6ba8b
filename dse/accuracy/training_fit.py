"""Constants of the training stacks from measured runs, and predictions of runs that no fit saw.

The fit (`dse.accuracy.saturating_fit`) minimises, over logarithms (of factors and seconds) and
log-odds (of shares) t around the priors of PARAMETERS, a loss of the errors |predicted / measured -
1|, rounded below 5%, that saturates near 25%, and a ridge of t over each one's sd. A constant is
shared by all the stacks that it names; none belongs to one model or group. A run counts once
(tokens per second where a source has that, else FLOPs or utilisation by its convention), every
group (model and chip) weighs the same, whole runs in chip-hours not at all.

Folds: the constants are fitted again without one group, chip or model at a time, with predictions
linear in t around the fit to all rows; the held-out predictions are the full model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.saturating_fit import Objective, linearise
from dse.accuracy.tables import machines_of
from dse.accuracy.training_points import (
    TrainingReadout,
    predict_training,
    read_training,
    runs_of,
)
from dse.catalog import Catalog, load_catalog
from dse.physics.machines import Machines
from dse.schema.training_stack import CLOCK, TrainingStack, training_stacks
from dse.space.candidates import Floats

FOLDS = ("group", "chip", "model")
MAIN = ("tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu")
RIDGE = 0.006
ENOUGH_ROWS = 5
ROUNDED, SATURATION = 0.05, 0.25


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of `stacks` (or, a clock, of chips) that the fit moves together; `sd` of the ridge
    towards `prior`."""

    constant: str
    stacks: tuple[str, ...]
    prior: float
    sd: float

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
    Parameter("gemm_fp8", GPU, 1.0, 0.2),
    Parameter("gemm_fp8", ("maxtext",), 1.0, 0.2),
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
    Parameter("data_overlap", ("fsdp",), 0.85, 0.7),
    Parameter("expert_overlap", ("megatron", "generic"), 0.3, 0.7),
    Parameter("expert_overlap", ("megatron-fused",), 0.8, 0.7),
    Parameter("tensor_overlap", (*MEGATRON, "generic"), 0.5, 0.7),
    Parameter(CLOCK, ("b200_sxm", "gb200_nvl72"), 1.0, 0.1),
    Parameter(CLOCK, ("b300_sxm", "gb300_nvl72"), 1.0, 0.1),
    Parameter("host_s_per_layer", ("megatron-eager",), 0.008, 0.5),
)


@dataclass(frozen=True, slots=True)
class TrainingProblem:
    """n rows to predict; `weight` is 0 for rows that the fit leaves out."""

    table: pd.DataFrame
    readout: TrainingReadout
    machines: Machines
    stacks: Mapping[str, TrainingStack]
    measured: Floats
    weight: Floats

    def predict(self, moves: Floats) -> Floats:
        """(n, 5) as `predict_training`, with the constants moved."""
        stacks = moved_stacks(self.stacks, moves)
        return predict_training(self.readout, self.machines, stacks)

    def logs(self, moves: Floats) -> Floats:
        """(rows with a weight,) logarithms of predicted / measured."""
        used = self.weight > 0.0
        return np.log(self.predict(moves)[used, 0] / self.measured[used])


def moved_stacks(stacks: Mapping[str, TrainingStack], moves: Floats) -> dict[str, TrainingStack]:
    """The stacks with every fitted constant at its place."""
    changes: dict[str, dict[str, float]] = {}
    clocks: dict[str, float] = {}
    for parameter, t in zip(PARAMETERS, moves, strict=True):
        for name in parameter.stacks:
            of = clocks if parameter.constant == CLOCK else changes.setdefault(name, {})
            of[name if of is clocks else parameter.constant] = parameter.moved(float(t))
    return {
        name: replace(stack, clocks=clocks, **changes.get(name, {}))
        for name, stack in stacks.items()
    }


def pose_training(
    table: pd.DataFrame, counted: NDArray[np.bool_], catalog: Catalog | None = None
) -> TrainingProblem:
    """The fitting problem of a table of training rows, of which the fit sees those `counted`."""
    catalog = catalog or load_catalog()
    readout = read_training(table, catalog)
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


OBJECTIVE = Objective(np.array([p.sd for p in PARAMETERS]), RIDGE, ROUNDED, SATURATION)


def fit_training(problem: TrainingProblem) -> Floats:
    """(parameters,) the best moves."""
    return OBJECTIVE.fit(problem.logs, problem.weight[problem.weight > 0.0])


def held_out_training(
    problem: TrainingProblem,
    progress: Callable[[str], None] = lambda _: None,
    start: Floats | None = None,
) -> dict[str, Floats]:
    """By fold, (n, 5) as `predict_training`, each row predicted by a fit without its fold; `start`
    is the fit to all rows, made where it is not given."""
    if start is None:
        progress("training: fit to all rows")
        start = fit_training(problem)
    here, slopes = linearise(problem.logs, start)
    used = problem.weight > 0.0
    found = {}
    for by in FOLDS:
        numbers = np.full((len(problem.readout), 5), np.nan)
        keys = problem.table[by].to_numpy()
        names = sorted(set(keys.tolist()))
        for k, name in enumerate(names):
            progress(f"training: without one {by}: {k + 1} of {len(names)}")
            weight = problem.weight[used] * (keys[used] != name)
            rows = keys == name
            moves = OBJECTIVE.refit(start, here, slopes, weight)
            numbers[rows] = problem.predict(moves)[rows]
        found[by] = numbers
    return found
