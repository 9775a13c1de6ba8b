"""The study of record: an Optuna study that keeps every trial and that optuna-dashboard opens.

A trial's values are the objective metrics in the user's own direction and units. Its parameters
are the axis values as the space file gives them: numbers on a scale, categories by name; an axis
that does not apply to the point is absent. What a relative axis comes to at the point
(`num_attention_heads` from a ratio) is a user attribute, beside `id`, the point's rank in the
space, and `stage`, what proposed it.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.storages.journal import (
    JournalFileBackend,
    JournalFileOpenLock,
    JournalFileSymlinkLock,
)
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from dse.errors import StorageError
from dse.problem import Problem, SpaceProtocol
from dse.search.evaluator import Batch
from dse.search.interrupt import uninterrupted

optuna.logging.set_verbosity(optuna.logging.WARNING)

LOG_SCALE_SPAN = 16.0
# What the parts of an identity are called where they differ.
_DIFFERS = {
    "space": "another space", "fingerprint": "other content of the space file",
    "engine": "another engine", "seed": "another seed", "model_version": "another model version",
    "data_digest": "other hardware data",
}  # fmt: skip
_DIGITS = 12
_FAILURES = (OSError, ImportError, KeyError, ValueError, SQLAlchemyError, StorageInternalError)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The trials of a record: `stages` (n,) says what proposed each point."""

    batch: Batch
    stages: tuple[str, ...]


class Record:
    """The Optuna study `name` in a journal file (a path) or a database (a URL).

    `identity` is what a study must share to be continued: the fingerprint of the space, seed,
    engine, versions. It is kept as user attributes and compared when the study exists. `fresh`
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
    ) -> None:
        self.location, self.name, self.seconds = str(location), name, 0.0
        self._problem = problem
        self._known: set[int] = set()
        self._read = 0
        self._distributions = [
            distribution(choices, ordered)
            for choices, ordered in zip(problem.space.choices, problem.space.ordered, strict=True)
        ]
        try:
            with uninterrupted():
                self._study = self._open(fresh)
                self._check(json.loads(json.dumps(dict(identity))))
                self._sync()
        except _FAILURES as error:
            raise StorageError(f"{self.location}: cannot be used as storage: {error}") from error

    @property
    def trials(self) -> int:
        """Trials in the record."""
        return len(self._known)

    @property
    def attrs(self) -> dict[str, Any]:
        """The study's user attributes."""
        return self._study.user_attrs

    def set_attrs(self, attrs: Mapping[str, Any]) -> None:
        """Add or replace user attributes of the study (JSON values)."""
        for key, value in attrs.items():
            self._study.set_user_attr(key, value)

    def add(self, batch: Batch, stage: str) -> int:
        """Store evaluated points that are not trials yet; return how many were new."""
        started = time.perf_counter()
        try:
            self._sync()
            new = batch.take(np.array([int(i) not in self._known for i in batch.ids], dtype=bool))
            with uninterrupted():
                self._study.add_trials(self._trials(new, stage))
        except _FAILURES as error:
            raise StorageError(f"{self.location}: a trial was not stored: {error}") from error
        self._known.update(new.ids.tolist())
        self.seconds += time.perf_counter() - started
        return len(new)

    def load(self) -> Recorded:
        """All trials in the order in which they were stored, extracted once."""
        problem = self._problem
        trials = [
            trial
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            if "id" in trial.user_attrs
        ]
        n, signs = len(trials), np.array([objective.sign for objective in problem.objectives])
        ids = np.array([trial.user_attrs["id"] for trial in trials], dtype=np.int64)
        values = np.array([trial.values for trial in trials], dtype=float)
        limits = [[trial.constraints[name] for name in problem.constraints] for trial in trials]
        return Recorded(
            Batch(
                ids,
                problem.space.unrank(ids),
                values.reshape(n, len(signs)) * signs,
                np.array(limits, dtype=float).reshape(n, len(problem.constraints)),
            ),
            tuple(trial.user_attrs["stage"] for trial in trials),
        )

    def _open(self, fresh: bool) -> optuna.Study:
        storage = open_storage(self.location, fresh)
        names = {study.study_name for study in storage.get_all_studies()}
        if fresh and self.name in names:
            optuna.delete_study(study_name=self.name, storage=storage)
            names.remove(self.name)
        if names - {self.name} and "://" not in self.location:
            raise StorageError(
                f"{self.location} holds study {min(names)!r}, not {self.name!r}; "
                "start it afresh (--fresh) or use another folder (--out)"
            )
        if self.name in names:
            return optuna.load_study(study_name=self.name, storage=storage)
        study = optuna.create_study(
            study_name=self.name,
            storage=storage,
            directions=[objective.direction for objective in self._problem.objectives],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([objective.metric for objective in self._problem.objectives])
        return study

    def _check(self, identity: Mapping[str, Any]) -> None:
        have = self._study.user_attrs
        for key, value in identity.items():
            if key not in have:
                self._study.set_user_attr(key, value)
            elif have[key] != value:
                there, asked = str(have[key])[:_DIGITS], str(value)[:_DIGITS]
                raise StorageError(
                    f"{self.location} holds study {self.name!r} with "
                    f"{_DIFFERS.get(key, f'another {key}')}: {there} there, {asked} asked for; "
                    "start it afresh (--fresh) or use another folder (--out)"
                )

    def _sync(self) -> None:
        """Learn of trials that others stored since the last look."""
        trials = self._study.get_trials(deepcopy=False)
        self._known.update(
            trial.user_attrs["id"] for trial in trials[self._read :] if "id" in trial.user_attrs
        )
        self._read = len(trials)

    def _trials(self, batch: Batch, stage: str) -> list[optuna.trial.FrozenTrial]:
        problem, space = self._problem, self._problem.space
        active = active_axes(space, batch.index)
        values = space.values(batch.index)
        signs = np.array([objective.sign for objective in problem.objectives])
        metrics, limits = (batch.F * signs).tolist(), batch.G.tolist()
        trials = []
        for row, point in enumerate(batch.index):
            params, distributions = {}, {}
            attrs: dict[str, Any] = {"id": int(batch.ids[row]), "stage": stage}
            for axis, name in enumerate(space.names):
                if not active[row, axis]:
                    continue
                choice = space.choices[axis][point[axis]]
                params[name], distributions[name] = choice, self._distributions[axis]
                if space.ordered[axis] and (value := float(values[name][row])) != choice:
                    attrs[name] = value
            trials.append(
                create_trial(
                    values=metrics[row],
                    params=params,
                    distributions=distributions,
                    constraints=dict(zip(problem.constraints, limits[row], strict=True)),
                    user_attrs=attrs,
                )
            )
        return trials


def open_storage(location: str, fresh: bool = False) -> BaseStorage:
    """A database for a URL, else a journal file at a path, created when missing.

    A last line that an interrupted run left unfinished is cut off. A lock that a killed run left
    is taken over after Optuna's grace period of 30 s; that needs an absolute path, because the lock
    is a link to the journal. Raises StorageError for a file that is not a journal.
    """
    if "://" in location:
        return get_storage(location)
    path = Path(location).resolve()
    location = str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.unlink(missing_ok=True)
    lock = JournalFileOpenLock if os.name == "nt" else JournalFileSymlinkLock
    if path.exists() and path.stat().st_size:
        _mend(path, lock(location))
    return JournalStorage(JournalFileBackend(location, lock_obj=lock(location)))


def _mend(path: Path, lock: JournalFileOpenLock | JournalFileSymlinkLock) -> None:
    with path.open("rb") as file:
        if not file.readline().startswith(b'{"op_code":'):
            raise StorageError(f"{path}: not an Optuna journal; name another file")
    lock.acquire()
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()


def distribution(choices: Sequence[bool | int | float | str], ordered: bool) -> BaseDistribution:
    """The distribution in which an axis is stored: a scale as a range of numbers (logarithmic
    when it spans a factor of 16 or more), anything else as categories."""
    if not ordered:
        return CategoricalDistribution(tuple(choices))
    numbers = [float(choice) for choice in choices]
    low, high = min(numbers), max(numbers)
    log = low > 0 and high >= LOG_SCALE_SPAN * low
    if all(isinstance(choice, int) for choice in choices):
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(low, high, log=log)


def active_axes(space: SpaceProtocol, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, d): whether the axis applies to the point. Canonical form keeps a changed position on
    an axis that applies and resets it on one that does not; an axis of one value counts as
    applying."""
    active = np.ones(index.shape, dtype=bool)
    for axis, cardinality in enumerate(space.cardinalities):
        if cardinality > 1:
            changed = index.copy()
            changed[:, axis] = 1
            active[:, axis] = space.canonical(changed)[:, axis] == 1
    return active
