"""The study of record: an Optuna study that keeps every trial and that optuna-dashboard opens.

A trial's values are the objective metrics in the user's own direction and units. Its parameters
are the values of the axes as the space file gives them, each axis a category of its values; an axis
that does not apply to the point is absent, and so is one of a single value, which is no choice.
What a relative axis comes to at the point (`num_attention_heads` from a ratio) is a user attribute,
beside `id`, the point's rank in the space, `stage`, what brought it here (`sample`, `refused`,
`search` or `front`, whichever was first), and `violates`, the names of the constraints that it
breaks. Of its constraints a trial has those that are not 0, since most rules are kept exactly, and
the study has the names of all.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import (
    CategoricalDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from dse.errors import StorageError
from dse.problem.protocol import Problem
from dse.search.evaluator import SEARCH, Batch
from dse.search.storage import (
    DAMAGED,
    Row,
    Stored,
    Tables,
    damaged,
    failures,
    gathered_writes,
    in_use,
    in_words,
    is_url,
    journal_of,
    many_trials,
    open_storage,
    shown,
    tables_of,
)
from dse.space.space import Space

optuna.logging.set_verbosity(optuna.logging.WARNING)

# What the parts of an identity are called where they differ.
_DIFFERS = {
    "space": "another space",
    "fingerprint": "other content of the space file",
    "engine": "another engine",
    "seed": "another seed",
    "model_version": "another model version",
    "data_digest": "other hardware data",
}
_DIGITS = 12
_CONSTRAINTS = "constraints"
# How Optuna names the attribute of a constraint of a trial.
_NAMED = "constraints:"
# optuna-dashboard 0.21 knows constraints without a name alone, and marks trials that break one: of
# such a trial it is given the largest, as a number that JSON has; names are in `violates`.
_UNNAMED = "constraints"
_FINITE = 1e12
# Trials stored before the disk is synced and other processes have a turn.
_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class Recorded:
    """The trials of a record: `stages` (n,) says what proposed each point."""

    batch: Batch
    stages: tuple[str, ...]


class Record:
    """The Optuna study `name` in a journal file (a path) or a database (a URL).

    `identity` is what a study must share to be continued: the fingerprint of the space, seed,
    engine, versions. It is kept as user attributes and compared when the study exists; `explain`
    is given the attributes of a study of another fingerprint and says what differs. `fresh`
    deletes an existing study first. Raises StorageError for a storage that cannot be used and for
    a study of another identity.
    """

    def __init__(
        self,
        problem: Problem,
        location: str | Path,
        name: str,
        identity: Mapping[str, Any],
        fresh: bool = False,
        explain: Callable[[Mapping[str, Any]], str] = lambda attrs: "",
    ) -> None:
        self.location, self.name, self.seconds = str(location), name, 0.0
        self._problem = problem
        self._known: set[int] = set()
        self._searched: list[int] = []
        self._read, self._explain = 0, explain
        # A scale is no range of Optuna's, which would look for designs between its values, and make
        # an axis important by the gaps.
        kinds = map(CategoricalDistribution, problem.space.choices)
        self._kinds = [distribution_to_json(one) for one in kinds]
        self._of: dict[bytes, dict[str, str]] = {}
        try:
            with uninterrupted(), many_trials():
                self._storage = open_storage(self.location, fresh)
                self._study = self._open(fresh)
                study = self._storage.get_study_id_from_name(name)
                self._tables: Tables | None = None
                if journal_of(self._storage) is None:
                    self._tables = tables_of(self._storage, study)
                self._check(json.loads(json.dumps(dict(identity))))
                self._learn(self._new())
        except failures() as error:
            text = in_words(self.location, "cannot be used as storage", error)
            raise StorageError(text) from error

    @property
    def trials(self) -> int:
        """Trials in the record."""
        return self._read

    @property
    def duplicates(self) -> int:
        """Trials of a point that another trial holds too: two processes stored it at once."""
        return self._read - len(self._known)

    @property
    def attrs(self) -> dict[str, Any]:
        """The study's user attributes."""
        return self._study.user_attrs

    def others(self) -> NDArray[np.int64]:
        """Ids of what samplers of other processes, or of an earlier run, asked for and stored since
        the last call."""
        with in_use(self.location):
            self._learn(self._new())
        found, self._searched = self._searched, []
        return np.array(found, dtype=np.int64)

    def set_attr(self, key: str, value: Any) -> None:
        """Add or replace a user attribute of the study (a JSON value)."""
        self._study.set_user_attr(key, value)

    def add(self, batch: Batch, stage: str) -> int:
        """Store evaluated points that are not trials yet; return how many were new."""
        started = time.perf_counter()
        try:
            stored = sum(
                self._add(batch.take(np.arange(first, min(first + _TOGETHER, len(batch)))), stage)
                for first in range(0, len(batch), _TOGETHER)
            )
        except failures() as error:
            text = in_words(self.location, "a trial was not stored", error)
            raise StorageError(text) from error
        self.seconds += time.perf_counter() - started
        return stored

    def _add(self, batch: Batch, stage: str) -> int:
        """The look at what others stored and the writing are one step, so that no two processes
        store a point twice."""
        new: list[Row] = []

        def make(stored: Stored) -> list[Row]:
            self._learn(stored)
            fresh = np.array([int(i) not in self._known for i in batch.ids], dtype=bool)
            new.extend(self._rows(batch.take(fresh), stage))
            return new

        with uninterrupted(), gathered_writes(self._storage), many_trials():
            journal = journal_of(self._storage)
            if self._tables is not None:
                self._tables.add(make)
            elif journal is None:
                self._study.add_trials([frozen(row) for row in make(self._new())])
            else:
                assert isinstance(self._storage, JournalStorage)
                worker = self._storage._replay_result.worker_id
                of = {"worker_id": worker, "study_id": self._study._study_id}
                journal.append_trials(make(self._new()), **of)
            self._known.update(row.user_attrs["id"] for row in new)
            self._read += len(new)
        return len(new)

    def load(self) -> Recorded:
        """All trials in the order in which they were stored, extracted once. A constraint that a
        trial does not have is 0."""
        problem = self._problem
        held = self.attrs.get(_CONSTRAINTS)
        lacking = [] if held is None else [one for one in problem.constraints if one not in held]
        if lacking:
            raise StorageError(
                f"{shown(self.location)} holds study {self.name!r} of a version without the limit "
                f"{lacking[0]}; start it afresh (--fresh) or use another folder (--out)"
            )
        try:
            with many_trials():
                complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
                trials = [trial for trial in complete if "id" in trial.user_attrs]
                ids = np.array([trial.user_attrs["id"] for trial in trials], dtype=np.int64)
                stages = tuple(trial.user_attrs["stage"] for trial in trials)
                values = np.array([trial.values for trial in trials], dtype=float)
                of = [trial.constraints for trial in trials]
                limits = [[had.get(name, 0.0) for name in problem.constraints] for had in of]
                signs = [objective.sign for objective in problem.objectives]
                F = values.reshape(len(trials), len(signs)) * signs
                G = np.array(limits, dtype=float).reshape(len(trials), len(problem.constraints))
                return Recorded(Batch(ids, problem.space.unrank(ids), F, G), stages)
        except DAMAGED as error:
            said = f"{shown(self.location)}: cannot be read: {damaged(error)}"
            raise StorageError(said) from error

    def _open(self, fresh: bool) -> optuna.Study:
        storage = self._storage
        names = {study.study_name for study in storage.get_all_studies()}
        if fresh and self.name in names:
            optuna.delete_study(study_name=self.name, storage=storage)
            names.remove(self.name)
        if (others := names - {self.name}) and not is_url(self.location):
            raise StorageError(
                f"{self.location} holds study {min(others)!r}, not {self.name!r}; "
                "start it afresh (--fresh) or use another folder (--out)"
            )
        if self.name in names:
            return optuna.load_study(study_name=self.name, storage=storage)
        study = optuna.create_study(
            study_name=self.name,
            storage=storage,
            directions=[objective.direction for objective in self._problem.objectives],
            load_if_exists=True,  # another process was first
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([objective.metric for objective in self._problem.objectives])
        study.set_user_attr(_CONSTRAINTS, list(self._problem.constraints))
        return study

    def _check(self, identity: Mapping[str, Any]) -> None:
        have = self._study.user_attrs
        for key, value in identity.items():
            if key not in have:
                self._study.set_user_attr(key, value)
            elif have[key] != value:
                most = _DIGITS if key in ("fingerprint", "data_digest") else None
                there, asked = str(have[key])[:most], str(value)[:most]
                said = self._explain(have) if key == "fingerprint" else ""
                raise StorageError(
                    f"{shown(self.location)} holds study {self.name!r} with "
                    f"{_DIFFERS.get(key, f'another {key}')}: {there} there, {asked} asked for"
                    f"{f' ({said})' if said else ''}; start it afresh (--fresh) or use another "
                    + ("database" if is_url(self.location) else "folder (--out)")
                )

    def _learn(self, stored: Stored) -> None:
        self._searched += [i for i, stage in stored if stage == SEARCH and i not in self._known]
        self._known.update(i for i, _ in stored)
        self._read += len(stored)

    def _new(self) -> Stored:
        """(id, stage) of the trials that others stored since the last look."""
        if self._tables is not None:
            return self._tables.new()
        trials = self._study.get_trials(deepcopy=False)[self._read :]
        # A trial that somebody else put into the study is no point of the space.
        return [
            (trial.user_attrs.get("id", -1 - trial.number), trial.user_attrs.get("stage", ""))
            for trial in trials
        ]

    def _rows(self, batch: Batch, stage: str) -> list[Row]:
        problem, space = self._problem, self._problem.space
        active, values = space.active(batch.index), space.values(batch.index)
        several = active & (space.cardinalities > 1)
        signs = np.array([objective.sign for objective in problem.objectives])
        metrics, limits, index = (batch.F * signs).tolist(), batch.G, batch.index.tolist()
        names, derived = problem.constraints, [dict[str, float]() for _ in index]
        for axis, name in enumerate(space.names):
            if space.ordered[axis]:
                choices = space.choices[axis]
                for row in np.flatnonzero(active[:, axis]).tolist():
                    value = float(values[name][row])
                    if value != choices[index[row][axis]]:
                        derived[row][name] = value
        rows = []
        for row, point in enumerate(index):
            axes = np.flatnonzero(several[row]).tolist()
            held = {names[k]: float(limits[row, k]) for k in limits[row].nonzero()[0]}
            worst = min(max(held.values(), default=0.0), _FINITE)
            attrs: dict[str, Any] = {"id": int(batch.ids[row]), "stage": stage}
            if worst > 0:
                attrs["violates"] = [name for name, g in held.items() if g > 0]
            kinds = self._of.setdefault(several[row].tobytes(), {})
            if not kinds:
                kinds.update({space.names[axis]: self._kinds[axis] for axis in axes})
            rows.append(
                Row(
                    metrics[row],
                    {space.names[axis]: point[axis] for axis in axes},
                    kinds,
                    attrs | derived[row],
                    ({_UNNAMED: [worst]} if worst > 0 else {})
                    | {f"{_NAMED}{name}": g for name, g in held.items()},
                )
            )
        return rows


def frozen(row: Row) -> FrozenTrial:
    """A row as Optuna's own trial."""
    of = {name: json_to_distribution(kind) for name, kind in row.kinds.items()}
    return create_trial(
        values=row.values,
        params={name: of[name].to_external_repr(value) for name, value in row.params.items()},
        distributions=of,
        user_attrs=row.user_attrs,
        system_attrs=row.system_attrs,
    )


def active_axes(space: Space, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, d): whether the axis applies to the point; an axis of one value counts as applying."""
    return space.active(index) | (space.cardinalities == 1)


# Holding Ctrl-C back while something is stored.


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Runs its block to the end when the first Ctrl-C comes, then raises KeyboardInterrupt; a
    second one is raised at once. Other threads than the main one get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if held:
        raise KeyboardInterrupt
