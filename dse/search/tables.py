"""Many trials into Optuna's database tables in one transaction.

Optuna's own `add_trial` is a transaction of some 60 statements, 0.1 to 0.3 s on a server. The
tables are those of schema 12, of Optuna 3 to 5; another schema is left to Optuna. A transaction
holds the row of the study, as Optuna does when it numbers a trial, so that what others stored is
known before a trial is: no point is stored twice, and of a killed writer nothing stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import TrialState
from sqlalchemy import Connection, func, insert, select, update

from dse.search.journal import Row

SCHEMA = 12
_SYSTEM = models.TrialSystemAttributeModel.__table__
_CONSTRAINT = "constraints:"
_INFINITE = {"INF_POS": np.inf, "INF_NEG": -np.inf}
# ids (n,), stages (n,), values (n, m) as stored, constraints (n, c)
Stored = list[tuple[int, str]]  # (id, stage) of trials
Loaded = tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]


class Tables:
    """The trials of one study in a database."""

    def __init__(self, storage: BaseStorage, study: int) -> None:
        self._engine, self._study = rdb(storage).engine, study
        self._last = -1

    def new(self) -> Stored:
        """What anyone stored since the last look."""
        with self._engine.connect() as connection:
            return self._new(connection)

    def add(self, make: Callable[[Stored], Sequence[Row]]) -> None:
        """Store the trials that `make` gives when told of those stored meanwhile."""
        with self._engine.begin() as connection:
            study = models.StudyModel.__table__
            ours = study.c.study_id == self._study
            connection.execute(update(study).where(ours).values(study_name=study.c.study_name))
            trials = make(self._new(connection))
            if trials:
                self._last = _insert(connection, self._study, trials)

    def load(self, objectives: int, constraints: Sequence[str]) -> Loaded:
        """Every complete trial that has an `id`, in the order of numbers. A constraint that is not
        there is 0."""
        attr, system = models.TrialUserAttributeModel.__table__, _SYSTEM
        value = models.TrialValueModel.__table__
        with self._engine.connect() as connection:
            found = self._rows(connection, attr, attr.c.value_json, attr.c.key == "id")
            trials = np.array([row[0] for row in found], dtype=np.int64)
            ids = np.array([json.loads(row[1]) for row in found], dtype=np.int64)
            stages = np.full(len(trials), "", dtype=object)
            for trial, text in self._rows(
                connection, attr, attr.c.value_json, attr.c.key == "stage"
            ):
                stages[np.searchsorted(trials, trial)] = json.loads(text)
            values = np.empty((len(trials), objectives))
            for k in range(objectives):
                rows = self._rows(
                    connection, value, value.c.value, value.c.objective == k, value.c.value_type
                )
                column = [_INFINITE.get(kind.name, number) for _, number, kind in rows]
                values[np.searchsorted(trials, [row[0] for row in rows]), k] = column
            limits = np.zeros((len(trials), len(constraints)))
            for k, name in enumerate(constraints):
                rows = self._rows(
                    connection, system, system.c.value_json, system.c.key == f"{_CONSTRAINT}{name}"
                )
                column = [float(text) for _, text in rows]
                limits[np.searchsorted(trials, [row[0] for row in rows]), k] = column
        return ids, tuple(stages), values, limits

    def _rows(
        self, connection: Connection, table: Any, column: Any, which: Any, *more: Any
    ) -> Sequence[Any]:
        """(trial id, column, more...) of `which` rows of complete trials, by trial id."""
        trial, ident = models.TrialModel.__table__, models.TrialUserAttributeModel.__table__
        ours = (
            select(trial.c.trial_id)
            .join(ident, ident.c.trial_id == trial.c.trial_id)
            .where(
                trial.c.study_id == self._study,
                trial.c.state == TrialState.COMPLETE,
                ident.c.key == "id",
            )
        )
        return connection.execute(
            select(table.c.trial_id, column, *more)
            .where(table.c.trial_id.in_(ours), which)
            .order_by(table.c.trial_id)
        ).all()

    def _new(self, connection: Connection) -> Stored:
        trial, attr = models.TrialModel.__table__, models.TrialUserAttributeModel.__table__
        rows = connection.execute(
            select(attr.c.trial_id, attr.c.key, attr.c.value_json)
            .join(trial, trial.c.trial_id == attr.c.trial_id)
            .where(
                trial.c.study_id == self._study,
                attr.c.key.in_(("id", "stage")),
                attr.c.trial_id > self._last,
            )
        ).all()
        self._last = max((row.trial_id for row in rows), default=self._last)
        columns = {key: {one.trial_id: one.value_json for one in rows if one.key == key}
                   for key in ("id", "stage")}  # fmt: skip
        return [
            (json.loads(text), json.loads(columns["stage"].get(one, '""')))
            for one, text in columns["id"].items()
        ]


def rdb(storage: BaseStorage) -> RDBStorage:
    """The database behind the cache that Optuna puts around it."""
    backend = getattr(storage, "_backend", storage)
    assert isinstance(backend, RDBStorage)
    return backend


def usable(storage: BaseStorage) -> bool:
    """Whether the storage is a database of the tables known here."""
    known = models.SCHEMA_VERSION == SCHEMA
    return known and isinstance(getattr(storage, "_backend", storage), RDBStorage)


def _insert(connection: Connection, study: int, trials: Sequence[Row]) -> int:
    """Write finished trials; return the largest trial id."""
    table = models.TrialModel.__table__
    ours = select(func.max(table.c.number)).where(table.c.study_id == study)
    last = connection.scalar(ours)
    first = 0 if last is None else last + 1
    now = datetime.now(UTC).replace(tzinfo=None)
    connection.execute(
        insert(table),
        [
            {
                "number": first + row,
                "study_id": study,
                "state": TrialState.COMPLETE,
                "datetime_start": now,
                "datetime_complete": now,
            }
            for row in range(len(trials))
        ],
    )
    written = select(table.c.trial_id).where(table.c.study_id == study, table.c.number >= first)
    ids = connection.scalars(written.order_by(table.c.number)).all()
    pairs = list(zip(ids, trials, strict=True))
    stored = models.TrialValueModel.value_to_stored_repr
    rows = (
        (
            models.TrialValueModel,
            [
                {"trial_id": i, "objective": k, "value": value, "value_type": kind}
                for i, trial in pairs
                for k, (value, kind) in enumerate(map(stored, trial.values))
            ],
        ),
        (
            models.TrialParamModel,
            [
                {
                    "trial_id": i,
                    "param_name": name,
                    "param_value": trial.params[name],
                    "distribution_json": kind,
                }
                for i, trial in pairs
                for name, kind in trial.kinds.items()
            ],
        ),
        (models.TrialUserAttributeModel, _attrs((i, t.user_attrs) for i, t in pairs)),
        (models.TrialSystemAttributeModel, _attrs((i, t.system_attrs) for i, t in pairs)),
    )
    for model, values in rows:
        if values:
            connection.execute(insert(model.__table__), values)
    return ids[-1]


def _attrs(pairs: Iterable[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"trial_id": i, "key": key, "value_json": json.dumps(value)}
        for i, attrs in pairs
        for key, value in attrs.items()
    ]
