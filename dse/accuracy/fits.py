"""Fits of constants to measured rows, and predictions of rows that no fit saw.

Gauss-Newton steps of a fit whose loss saturates, over moves t of constants from their priors:

    sum over rows of weight * (1 - exp(-h / saturation)) + ridge / 2 * sum of (t / sd)^2

where h is the error |predicted / measured - 1|, rounded below `rounded`: a row that is wrong by a
factor of two pulls hardly more than one that is wrong by `saturation`.

Rows are held out by fits without one group (model and chip), chip, model, backend or source at a
time. Each
such fit takes the logarithms of the predictions as linear around the fit to all rows; the held-out
predictions themselves are made by the full model. The interval of a row is the spread of the other
folds' held-out rows.

80% intervals from held-out rows: what holds measured / predicted, by class of metrics.

Rows weigh by the inverse root of the rows of their group (model and chip), between rows alike and
groups alike. The ends are the narrowest that hold 80% of tuned rows with fitted kernel
efficiencies; for derived and assumed ones, of which few groups were measured, they are widened by
how much larger the error of the median group was, over all classes, and never narrower than those
of the kind before: that a few groups came out close is no reason to trust the next one more.

Factors of `dse.physics.kernels` from measured serving.

The fit minimises a loss of the errors |predicted / measured - 1|,
rounded below 8%, that saturates near 60%, so that a stalled server does not bend the physics, and a
ridge of the logarithms of the factors towards 0. Every group (model and chip) of a metric and
serving weighs the same, and every metric and serving as WEIGHTS says. No row is left out but those
that the data itself excludes.

Constants of the training stacks from measured runs, and predictions of runs that no fit saw.

The fit minimises, over logarithms (of factors and seconds) and log-odds (of shares) t around the
priors of constants.csv, a loss of the errors |predicted / measured - 1|, rounded below 5%, that
saturates near 25%, and a ridge of t over each one's sd. A constant is shared by all the stacks that
it names; none belongs to one model or group. A run counts once (tokens per second where a source
has that, else FLOPs or utilisation by its convention), every group (model and chip) weighs the
same, whole runs in chip-hours not at all.

An interval is the 10th and the 90th percentile of measured over predicted speed on held-out rows.
Whole runs in chip-hours enter no fit: their own few rows give the spread of runs whose
configuration nobody published.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.serving_points import SERVED, Served, infeasible_rows, predict_rows
from dse.accuracy.serving_rows import Row, interval_metric
from dse.accuracy.tables import ENOUGH_ROWS, Readout, campaigns, machines_of, with_predictions
from dse.accuracy.training_rows import (
    TRAINED,
    Known,
    TrainingReadout,
    predict_training,
    runs_of,
    with_training,
)
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir, rows_beside
from dse.physics.intervals import (
    CLASS,
    CLASSES,
    FIRST_TOKEN,
    PREFILL,
    UNKNOWN,
    first_token_class,
)
from dse.physics.kernels import BACKENDS, KERNELS, Parameter
from dse.physics.machines import Machines, calibrated_machines
from dse.physics.training.evaluate import RATE, RATES, RUN, WHOLE_RUNS, training_interval
from dse.schema.backend import KINDS, STOCK, UNCALIBRATED, Calibration, load_backends
from dse.schema.training import CLOCK, TrainingStack, training_stacks
from dse.space.candidates import Floats

FOLDS = ("group", "chip", "model", "backend", "source")

STEP = 0.03  # of a move, for the difference quotients
LARGEST_MOVE = 0.4
SHARES = (1.0, 0.5, 0.25, 0.1)  # of a step, the first that makes the loss smaller
Logs = Callable[[Floats], Floats]  # moves -> logarithms of predicted / measured, (rows,)


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss; `sd` (constants,)."""

    sd: Floats
    ridge: float
    rounded: float
    saturation: float

    def _rounded(self, error: Floats) -> Floats:
        root = np.sqrt(error * error + self.rounded**2)
        return np.asarray(root - self.rounded, dtype=np.float64)

    def loss(self, log_ratio: Floats, weight: Floats, moves: Floats) -> float:
        rows = weight * (1.0 - np.exp(-self._rounded(np.expm1(log_ratio)) / self.saturation))
        return float(rows.sum()) + self.ridge / 2.0 * float(np.sum((moves / self.sd) ** 2))

    def move(self, log_ratio: Floats, slopes: Floats, weight: Floats, moves: Floats) -> Floats:
        """One Gauss-Newton step, iteratively reweighted."""
        ratio = np.exp(log_ratio)
        error = ratio - 1.0
        pull = np.exp(-self._rounded(error) / self.saturation) / self.saturation
        pull = weight * pull / np.sqrt(error * error + self.rounded**2)
        curvature = (slopes * (pull * ratio * ratio)[:, None]).T @ slopes
        curvature += self.ridge * np.diag(1.0 / self.sd**2)
        gradient = slopes.T @ (pull * error * ratio) + self.ridge * moves / self.sd**2
        step = np.asarray(-np.linalg.solve(curvature, gradient), dtype=np.float64)
        return np.minimum(np.maximum(step, -LARGEST_MOVE), LARGEST_MOVE)

    def fit(self, logs: Logs, weight: Floats, rounds: int = 12) -> Floats:
        """The best moves."""
        moves = np.zeros(len(self.sd))
        for _ in range(rounds):
            log_ratio, slopes = linearise(logs, moves)
            before = self.loss(log_ratio, weight, moves)
            step = self.move(log_ratio, slopes, weight, moves)
            for share in SHARES:
                tried = moves + share * step
                after = self.loss(logs(tried), weight, tried)
                if after < before:
                    break
            else:
                return moves
            moves = tried
            if before - after < 2e-4 * before:
                return moves
        return moves

    def refit(
        self, start: Floats, log_ratio: Floats, slopes: Floats, weight: Floats, rounds: int = 30
    ) -> Floats:
        """The fit with other row weights, with log ratios taken as linear around `start`."""
        moves, here = start.copy(), log_ratio
        for _ in range(rounds):
            step = self.move(here, slopes, weight, moves)
            before = self.loss(here, weight, moves)
            for share in SHARES:
                tried = moves + share * step
                ratio = log_ratio + slopes @ (tried - start)
                if self.loss(ratio, weight, tried) < before:
                    break
            else:
                return moves
            moves, here = tried, ratio
            if float(np.max(np.abs(share * step))) < 1e-3:
                return moves
        return moves


def linearise(logs: Logs, moves: Floats) -> tuple[Floats, Floats]:
    """(log ratios (rows,), their derivatives (rows, constants)) at `moves`."""
    here = logs(moves)
    slopes = np.empty((len(here), len(moves)))
    for k in range(len(moves)):
        moved = moves.copy()
        moved[k] += STEP
        slopes[:, k] = (logs(moved) - here) / STEP
    return here, slopes


@dataclass(frozen=True, slots=True)
class Posed(ABC):
    """n rows to predict; `weight` is 0 for rows that the fit leaves out."""

    objective: ClassVar[Objective]
    words: ClassVar[str] = ""  # before what is said of its progress

    table: pd.DataFrame
    machines: Machines
    measured: Floats
    weight: Floats

    @property
    def used(self) -> NDArray[np.bool_]:
        return self.weight > 0.0

    @abstractmethod
    def predict(self, moves: Floats) -> Floats:
        """(n, 5) as `dse.accuracy.tables.Readout.predicted`, with the constants moved."""

    @abstractmethod
    def predicted(self, numbers: Floats) -> pd.DataFrame:
        """The table with the columns that `with_predictions` adds."""

    @abstractmethod
    def set_intervals(
        self, numbers: Floats, rows: NDArray[np.bool_], others: NDArray[np.bool_]
    ) -> None:
        """Those of `rows` in `numbers` (n, 5), by the spread of `others`, held out too."""

    @abstractmethod
    def names(self, by: str) -> list[str]:
        """The keys of a fold that are left out in turn."""

    @abstractmethod
    def backends(self) -> Sequence[str]:
        """(n,) the software of each row, "" where it is not covered."""

    def keys(self, by: str) -> NDArray[np.object_]:
        """(n,) what a fold of FOLDS goes by."""
        if by == "source":
            return np.array(campaigns(self.table), dtype=object)
        if by == "backend":
            return np.array(self.backends(), dtype=object)
        return self.table[by].to_numpy(dtype=object)

    def logs(self, moves: Floats) -> Floats:
        """(rows with a weight,) logarithms of predicted / measured."""
        return np.log(self.predict(moves)[self.used, 0] / self.measured[self.used])

    def fit(self, rounds: int = 12) -> Floats:
        """(constants,) the best moves."""
        return self.objective.fit(self.logs, self.weight[self.used], rounds)

    def without_each(
        self,
        by: str,
        start: Floats,
        linear: tuple[Floats, Floats],
        progress: Callable[[str], None] = lambda _: None,
    ) -> Floats:
        """(n, 5), each row predicted by a fit without its fold, one of FOLDS; `linear` is
        `linearise` at `start`, the fit to all rows."""
        numbers = np.full((len(self.table), 5), np.nan)
        keys, names = self.keys(by), self.names(by)
        for k, name in enumerate(names):
            progress(f"{self.words}without one {by}: {k + 1} of {len(names)}")
            weight = self.weight[self.used] * (keys[self.used] != name)
            rows = keys == name
            numbers[rows] = self.predict(self.objective.refit(start, *linear, weight))[rows]
        known = np.isfinite(numbers[:, 0])
        for name in names:
            self.set_intervals(numbers, (keys == name) & known, (keys != name) & known)
        return numbers

    def held_out(
        self, progress: Callable[[str], None] = lambda _: None, start: Floats | None = None
    ) -> dict[str, Floats]:
        """By fold, as `without_each`; `start` is made where it is not given."""
        if start is None:
            progress(f"{self.words}fit to all rows")
            start = self.fit()
        linear = linearise(self.logs, start)
        return {by: self.without_each(by, start, linear, progress) for by in FOLDS}

    def cross_validate(
        self, progress: Callable[[str], None] = lambda _: None
    ) -> dict[str, pd.DataFrame]:
        """By fold, the table with the columns that `with_predictions` adds."""
        return {by: self.predicted(numbers) for by, numbers in self.held_out(progress).items()}


# Of a stock launch at most: of few sources, the one that is left may be an outlier.
MOST_WIDER = 2.0
INSIDE = 0.8  # share of the rows between the ends
BELOW = np.linspace(0.0, 1.0 - INSIDE, 41)  # share below the lower end that is tried

# Prefill alone was measured by few sources, too few for a class: its rows count with first tokens'.
JOINED = {PREFILL: FIRST_TOKEN}

SpreadTable = dict[str, dict[str, tuple[float, float]]]


def class_of(metric: str, serving: str, scheduler: str) -> str:
    """The class of a metric of the measurement format under a backend's scheduler."""
    name = CLASS[interval_metric(metric)]
    return first_token_class(serving, scheduler) if name == FIRST_TOKEN else name


def spread_table(
    table: pd.DataFrame, ratio: Floats, kind: Floats, stock: NDArray[np.bool_]
) -> tuple[SpreadTable, float]:
    """By class and kind, (low, high) of measured / predicted: `ratio`, `kind` (index of KINDS) and
    `stock`, (n,) each, of the rows of `table` (with the `scheduler` of each), from those that are
    not stock; and by how much larger the error of the median group of stock launches is, from 1 to
    MOST_WIDER."""
    frame = pd.DataFrame(
        {
            "class": list(map(class_of, table["metric"], table["serving"], table["scheduler"])),
            "group": (table["metric"] + table["serving"] + table["group"]).to_numpy(),
            "kind": kind,
            "stock": stock,
            "log": np.log(ratio),
        }
    )
    frame["weight"] = frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5
    tuned, launched = ~frame["stock"], frame["stock"]
    fitted = frame[tuned & (frame["kind"] == 0)]
    ends, typical = {}, {}
    for name in sorted(set(fitted["class"])):
        rows = fitted[fitted["class"].isin((name, JOINED.get(name)))]
        ends[name] = narrowest(rows["log"], rows["weight"])
        typical[name] = weighted_quantile(rows["log"].abs(), rows["weight"], 0.5)
    found: SpreadTable = {name: {} for name in CLASSES}
    wider = 1.0
    for name in CLASSES:  # a class without such a row: as wide as a factor of two
        ends.setdefault(name, list(np.log(UNKNOWN)))
        typical.setdefault(name, float(np.log(UNKNOWN[1])) / 2.0)
    frame["error"] = frame["log"].abs() / frame["class"].map(typical)
    for code, label in enumerate(KINDS):
        groups = frame[tuned & (frame["kind"] == code)].groupby("group")["error"].median()
        if code and len(groups):
            wider = max(wider, float(groups.median()))
        for name in CLASSES:
            low, high = (float(np.exp(end * wider)) for end in ends[name])
            found[name][label] = (low, high)
    groups = frame[launched].groupby("group")["error"].median()
    wider = float(groups.median()) if len(groups) else 1.0
    return found, min(max(wider, 1.0), MOST_WIDER)


def spread_of_kinds(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The same of one class alone, by kind: the percentiles are those of the best kind that has
    rows. `frame` has `kind` (index of KINDS), `group` and `log` of each row."""
    if frame.empty:
        return dict.fromkeys(KINDS, UNKNOWN)
    frame = frame.assign(weight=frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5)
    best = frame[frame["kind"] == frame["kind"].min()]
    ends = narrowest(best["log"], best["weight"])
    typical = weighted_quantile(best["log"].abs(), best["weight"], 0.5)
    wider, found = 1.0, {}
    for code, label in enumerate(KINDS):
        groups = frame[frame["kind"] == code].groupby("group")["log"].median().abs()
        if len(groups) and typical > 0.0:
            wider = max(wider, float(groups.median()) / typical)
        found[label] = (float(np.exp(ends[0] * wider)), float(np.exp(ends[1] * wider)))
    return found


def narrowest(logs: pd.Series, weights: pd.Series) -> list[float]:
    """[low, high] of the logarithms: of all intervals that hold INSIDE of the weight, the one that
    is narrowest in the ratio itself; made to hold the prediction, 0, where it does not."""
    tried = [[weighted_quantile(logs, weights, s) for s in (b, b + INSIDE)] for b in BELOW]
    low, high = min(tried, key=lambda ends: float(np.exp(ends[1]) - np.exp(ends[0])))
    return [min(low, 0.0), max(high, 0.0)]


def weighted_quantile(values: pd.Series, weights: pd.Series, share: float) -> float:
    """The value below which `share` of the weight lies, interpolated."""
    order = np.argsort(values.to_numpy(), kind="stable")
    weight = weights.to_numpy()[order]
    below = (np.cumsum(weight) - weight / 2.0) / weight.sum()
    return float(np.interp(share, below, values.to_numpy()[order]))


PARAMETERS: tuple[Parameter, ...] = (*KERNELS, *BACKENDS)
WEIGHTS = {
    ("tpot_s", "continuous"): 1.0,
    ("ttft_s", "continuous"): 0.6,
    ("output_tokens_per_s", "offline"): 0.6,
}
OTHER_WEIGHT = 0.2
RIDGE = 0.0015
ROUNDED, SATURATION = 0.08, 0.6


@dataclass(frozen=True, slots=True)
class Problem(Posed):
    """Rows of serving; the moves are logarithms of the factors."""

    objective: ClassVar[Objective] = Objective(
        np.array([p.sd for p in PARAMETERS]), RIDGE, ROUNDED, SATURATION
    )

    readout: Readout[Row, Served]
    catalog: Catalog

    def predict(self, moves: Floats) -> Floats:
        factors = as_factors(moves)
        calibration = Calibration(factors, {})
        backends = {
            name: calibration.backend(backend) for name, backend in self.catalog.backends.items()
        }
        machines = calibrated_machines(self.machines, factors)
        return predict_rows(self.readout, replace(self.catalog, backends=backends), machines)

    def predicted(self, numbers: Floats) -> pd.DataFrame:
        return with_predictions(self.table, self.readout, numbers)

    def names(self, by: str) -> list[str]:
        """Those of the rows that the fit sees: no other fold is a fit of its own."""
        return sorted(set(self.keys(by)[self.used]))

    def backends(self) -> Sequence[str]:
        return self.readout.text(lambda row: row.backend)

    def set_intervals(
        self, numbers: Floats, rows: NDArray[np.bool_], others: NDArray[np.bool_]
    ) -> None:
        spread, wider = self.spread(numbers, others)
        stock = self.stock
        names = list(map(class_of, self.table["metric"], self.table["serving"], self.schedulers))
        for row in np.flatnonzero(rows):
            power = wider if stock[row] else 1.0
            low, high = np.power(spread[names[row]][KINDS[int(numbers[row, 4])]], power)
            numbers[row, 1:3] = numbers[row, 0] * low, numbers[row, 0] * high

    @property
    def schedulers(self) -> NDArray[np.object_]:
        """(n,) the scheduler of the row's backend, "" where it is not covered."""
        backends = self.catalog.backends
        named = [backends[name].scheduler if name else "" for name in self.backends()]
        return np.array(named, dtype=object)

    @property
    def stock(self) -> NDArray[np.bool_]:
        """(n,) whether the row is of a stock launch."""
        return np.array(self.readout.text(lambda row: row.tuning)) == STOCK

    def spread(
        self, numbers: Floats, rows: NDArray[np.bool_] | bool = True
    ) -> tuple[SpreadTable, float]:
        """As `spread_table`, of those of `rows` that the fit sees."""
        seen = self.used & rows & np.isfinite(numbers[:, 0])
        ratio = self.measured[seen] / numbers[seen, 0]
        table = self.table[seen].assign(scheduler=self.schedulers[seen])
        return spread_table(table, ratio, numbers[seen, 4], self.stock[seen])


def as_factors(logs: Floats) -> dict[str, float]:
    return {p.name: float(np.exp(x)) for p, x in zip(PARAMETERS, logs, strict=True)}


def pose(table: pd.DataFrame, catalog: Catalog | None = None) -> Problem:
    """The fitting problem of a table in the measurement format."""
    written = load_backends(hardware_dir() / "backends")
    catalog = replace(catalog or load_catalog(), calibration=UNCALIBRATED, backends=written)
    readout = SERVED.read(table, catalog)
    machines = machines_of(catalog)
    covered = np.array([status == "ok" for status in readout.status])
    covered[list(infeasible_rows(readout, catalog, machines))] = False
    counted = covered & (table["exclude"] == "").to_numpy()
    return Problem(
        table=table,
        readout=readout,
        catalog=catalog,
        machines=machines,
        measured=np.asarray(table["value"].astype(float), dtype=np.float64),
        weight=row_weights(table, counted),
    )


def row_weights(table: pd.DataFrame, counted: NDArray[np.bool_]) -> Floats:
    """(n,) a group of 5 rows or more weighs its metric's and serving's weight over its groups;
    smaller groups in proportion to their rows."""
    weight = np.zeros(len(table))
    used = table[counted]
    for (metric, serving), part in used.groupby(["metric", "serving"]):
        groups = part.groupby("group").groups
        for rows in groups.values():
            share = min(len(rows) / ENOUGH_ROWS, 1.0) / len(groups)
            where = table.index.get_indexer(rows)
            of = WEIGHTS.get((str(metric), str(serving)), OTHER_WEIGHT)
            weight[where] = of * share / len(rows)
    return weight


MAIN = ("tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu")
TRAINING_RIDGE = 0.006
TRAINING_ROUNDED, TRAINING_SATURATION = 0.05, 0.25


@dataclass(frozen=True, slots=True)
class Constant:
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


CONSTANTS: tuple[Constant, ...] = tuple(
    Constant(
        row["constant"],
        tuple(row["stacks"].split()),
        float(row["prior"]),
        float(row["sd"]),
        row["shared"] == "yes",
    )
    for row in rows_beside(__file__, "constants.csv")
)


def moved_stacks(stacks: Mapping[str, TrainingStack], moves: Floats) -> dict[str, TrainingStack]:
    """The stacks with every fitted constant at its place."""
    changes: dict[str, dict[str, float]] = {}
    clocks: dict[str, float] = {}
    placed = list(zip(CONSTANTS, map(float, moves), strict=True))
    shared = {(p.constant, name): t for p, t in placed if p.shared for name in p.stacks}
    for one, t in placed:
        for name in one.stacks if not one.shared else ():
            of = clocks if one.constant == CLOCK else changes.setdefault(name, {})
            value = one.moved(t + shared.get((one.constant, name), 0.0))
            of[name if of is clocks else one.constant] = value
    return {
        name: replace(stack, clocks=clocks, **changes.get(name, {}))
        for name, stack in stacks.items()
    }


@dataclass(frozen=True, slots=True)
class TrainingProblem(Posed):
    """Rows of training; `counted` (n,) are those that a fit or a spread may see."""

    objective: ClassVar[Objective] = Objective(
        np.array([p.sd for p in CONSTANTS]), TRAINING_RIDGE, TRAINING_ROUNDED, TRAINING_SATURATION
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
