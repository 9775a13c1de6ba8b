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

from optuna.distributions import distribution_to_json
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy import Connection, func, insert, select, update

SCHEMA = 12


class Tables:
    """The trials of one study in a database."""

    def __init__(self, storage: BaseStorage, study: int) -> None:
        self._engine, self._study = rdb(storage).engine, study
        self._last = -1

    def new_ids(self) -> list[int]:
        """`id` of the trials stored since the last look, by anyone."""
        with self._engine.connect() as connection:
            return self._new_ids(connection)

    def add(self, make: Callable[[list[int]], Sequence[FrozenTrial]]) -> None:
        """Store the trials that `make` gives when told of the ids stored meanwhile."""
        with self._engine.begin() as connection:
            study = models.StudyModel.__table__
            ours = study.c.study_id == self._study
            connection.execute(update(study).where(ours).values(study_name=study.c.study_name))
            trials = make(self._new_ids(connection))
            if trials:
                self._last = _insert(connection, self._study, trials)

    def _new_ids(self, connection: Connection) -> list[int]:
        trial, attr = models.TrialModel.__table__, models.TrialUserAttributeModel.__table__
        rows = connection.execute(
            select(attr.c.trial_id, attr.c.value_json)
            .join(trial, trial.c.trial_id == attr.c.trial_id)
            .where(
                trial.c.study_id == self._study, attr.c.key == "id", attr.c.trial_id > self._last
            )
        ).all()
        self._last = max((row.trial_id for row in rows), default=self._last)
        return [json.loads(row.value_json) for row in rows]


def rdb(storage: BaseStorage) -> RDBStorage:
    """The database behind the cache that Optuna puts around it."""
    backend = getattr(storage, "_backend", storage)
    assert isinstance(backend, RDBStorage)
    return backend


def usable(storage: BaseStorage) -> bool:
    """Whether the storage is a database of the tables known here."""
    known = models.SCHEMA_VERSION == SCHEMA
    return known and isinstance(getattr(storage, "_backend", storage), RDBStorage)


def _insert(connection: Connection, study: int, trials: Sequence[FrozenTrial]) -> int:
    """Write finished trials; return the largest trial id."""
    table = models.TrialModel.__table__
    ours = select(func.max(table.c.number)).where(table.c.study_id == study)
    last = connection.scalar(ours)
    first = 0 if last is None else last + 1
    connection.execute(
        insert(table),
        [
            {
                "number": first + row,
                "study_id": study,
                "state": trial.state,
                "datetime_start": _utc(trial.datetime_start),
                "datetime_complete": _utc(trial.datetime_complete),
            }
            for row, trial in enumerate(trials)
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
                    "param_value": distribution.to_internal_repr(trial.params[name]),
                    "distribution_json": distribution_to_json(distribution),
                }
                for i, trial in pairs
                for name, distribution in trial.distributions.items()
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


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC).replace(tzinfo=None)
