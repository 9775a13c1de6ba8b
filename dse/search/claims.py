"""Who does which work unit: a second Optuna study, `NAME.units`, with one trial for each attempt.

An attempt is a running trial that its worker touches every quarter of its lease. It completes in
one state change, which a storage accepts once, with what the unit brought as attributes. An attempt
that has not been touched for its lease, or whose process was on this machine and has ended, is
failed by whoever sees that, and the unit is free again; the time is taken on the clock of the one
who watches, so that clocks need not agree. Of two running attempts of one unit the one with the
lower number stands. This leans on nothing but trial numbers and states, so it holds on every
storage that Optuna has.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning, UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from dse.errors import StorageError
from dse.search.lock import is_gone, machine, process
from dse.search.record import UNITS
from dse.search.storage import failures, in_words, open_storage
from dse.search.units import Outcome, Unit

LEASE_S = 60.0
# The unit number under which the trials of the front are stored, by one process at a time.
FRONT = -1
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt of this process at a unit."""

    trial: int
    unit: Unit


class Board:
    """The attempts at the units of study `name`, in a storage of its own connection.

    Raises StorageError for a storage that cannot be used.
    """

    def __init__(self, location: str | Path, name: str, lease_s: float = LEASE_S) -> None:
        self.location, self.lease_s = str(location), lease_s
        self.worker = worker_name(os.getpid())
        self._seen: dict[int, tuple[object, float]] = {}
        self._done: dict[int, tuple[Unit, Outcome]] = {}
        try:
            self._storage = open_storage(self.location)
            self._study = _study(self._storage, name + UNITS)
        except failures() as error:
            raise StorageError(
                in_words(self.location, "cannot be used as storage", error)
            ) from error

    def claim(self, units: Iterable[Unit]) -> Claim | None:
        """The first unit that is neither done nor being done, now this worker's; None where there
        is no such unit at the moment."""
        done, taken = set(self.done()), self._taken()
        for unit in units:
            if unit in done or unit.number in taken:
                continue
            trial = self._begin(unit)
            if trial is not None:
                return Claim(trial, unit)
        return None

    def complete(self, claim: Claim, outcome: Outcome) -> bool:
        """Record what the unit brought; False where the attempt was given up for another."""
        try:
            for key, value in outcome.attrs().items():
                self._storage.set_trial_user_attr(claim.trial, key, value)
            return self._end(claim.trial, TrialState.COMPLETE, float(outcome.evaluations))
        except UpdateFinishedTrialError:
            return False

    def give_up(self, claim: Claim) -> None:
        """Free the unit at once."""
        self._end(claim.trial, TrialState.FAIL)

    def done(self) -> dict[Unit, Outcome]:
        """The completed units, each once."""
        found: dict[Unit, Outcome] = {}
        for trial in self._trials(TrialState.COMPLETE):
            if trial.user_attrs["unit"] == FRONT:
                continue
            if trial._trial_id not in self._done:
                self._done[trial._trial_id] = _unit(trial), Outcome.of(trial.user_attrs)
            unit, outcome = self._done[trial._trial_id]
            found.setdefault(unit, outcome)
        return found

    def counts(self) -> dict[str, int]:
        """Of the study so far: workers that completed a unit, and attempts that were begun and not
        completed, by a worker that was killed or failed."""
        complete = [t for t in self._trials(TrialState.COMPLETE) if t.user_attrs["unit"] != FRONT]
        return {
            "workers": len({trial.user_attrs["worker"] for trial in complete}),
            "attempts_lost": sum(
                "yielded" not in trial.user_attrs for trial in self._trials(TrialState.FAIL)
            ),
        }

    def forget(self, worker: str) -> None:
        """Free the units of a worker that is known to be gone."""
        for trial in self._trials(TrialState.RUNNING):
            if trial.user_attrs.get("worker") == worker:
                self._end(trial._trial_id, TrialState.FAIL)

    @contextmanager
    def kept(self, claim: Claim) -> Iterator[None]:
        """Touches the attempt while the block runs."""
        over = threading.Event()

        def touch() -> None:
            beat = 0
            while not over.wait(self.lease_s / 4):
                beat += 1
                try:
                    self._storage.set_trial_user_attr(claim.trial, "beat", beat)
                except UpdateFinishedTrialError:
                    return
                except failures():
                    continue  # a server that comes back within the lease is as good as ever

        thread = threading.Thread(target=touch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time: for storing the trials of the front."""
        unit = Unit(FRONT, 0, 0)
        while (trial := self._begin(unit) if FRONT not in self._taken() else None) is None:
            time.sleep(_POLL_S)
        claim = Claim(trial, unit)
        try:
            with self.kept(claim):
                yield
        finally:
            self._end(trial, TrialState.COMPLETE, 0.0)

    def _trials(self, state: TrialState) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study, deepcopy=False, states=(state,))

    def _taken(self) -> set[int]:
        """Numbers of the units that are being done, after those with a dead lease were failed."""
        now, taken = time.monotonic(), set()
        for trial in self._trials(TrialState.RUNNING):
            attrs = trial.user_attrs
            beat, since = self._seen.get(trial._trial_id, (None, now))
            gone = is_gone(*attrs.get("process", ("", "")))
            if not gone and (trial._trial_id not in self._seen or beat != attrs.get("beat")):
                self._seen[trial._trial_id] = (attrs.get("beat"), now)
            elif gone or now - since > attrs["lease_s"]:
                self._end(trial._trial_id, TrialState.FAIL)
                continue
            taken.add(attrs["unit"])
        return taken

    def _begin(self, unit: Unit) -> int | None:
        """The trial of a new attempt, unless another's came first."""
        trial = self._storage.create_new_trial(
            self._study,
            create_trial(
                state=TrialState.RUNNING,
                user_attrs={
                    "unit": unit.number,
                    "ranks": [unit.first, unit.last],
                    "asked": unit.trials,
                    "worker": self.worker,
                    "process": [machine(), process(os.getpid())],
                    "lease_s": self.lease_s,
                },
            ),
        )
        rivals = [
            other
            for other in self._trials(TrialState.RUNNING)
            if other.user_attrs["unit"] == unit.number
        ]
        # A rival that completed between the look and the beginning has done the unit.
        if rivals and rivals[0]._trial_id == trial and unit not in self.done():
            return trial
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial, "yielded", True)
        self._end(trial, TrialState.FAIL)
        return None

    def _end(self, trial: int, state: TrialState, value: float | None = None) -> bool:
        try:
            return self._storage.set_trial_state_values(
                trial, state, None if value is None else [value]
            )
        except UpdateFinishedTrialError:
            return False


def worker_name(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}"


def _unit(trial: FrozenTrial) -> Unit:
    attrs = trial.user_attrs
    first, last = attrs["ranks"]
    return Unit(attrs["unit"], first, last, attrs["asked"])


def _study(storage: optuna.storages.BaseStorage, name: str) -> int:
    try:
        study = storage.create_new_study([StudyDirection.MAXIMIZE], name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.load_study(study_name=name, storage=storage).set_metric_names(["evaluations"])
        return study
    except DuplicatedStudyError:
        return storage.get_study_id_from_name(name)


def exists(storage: optuna.storages.BaseStorage, name: str) -> bool:
    """Whether study `name` has been divided into units."""
    return any(study.study_name == name + UNITS for study in storage.get_all_studies())
