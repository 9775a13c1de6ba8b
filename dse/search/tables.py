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

from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb import models
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, func, insert, select, update

from dse.search.journal import Row

SCHEMA = 12
Stored = list[tuple[int, str]]  # (id, stage) of trials


class Tables:
    """The trials of one study in a database."""

    def __init__(self, engine: Engine, study: int) -> None:
        self._engine, self._study = engine, study
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
        stages = {row.trial_id: row.value_json for row in rows if row.key == "stage"}
        return [
            (json.loads(row.value_json), json.loads(stages.get(row.trial_id, '""')))
            for row in rows
            if row.key == "id"
        ]


def tables_of(storage: BaseStorage, study: int) -> Tables | None:
    """None where the storage is no database of the tables known here. Optuna puts a cache around
    it."""
    database = getattr(storage, "_backend", storage)
    if isinstance(database, RDBStorage) and models.SCHEMA_VERSION == SCHEMA:
        return Tables(database.engine, study)
    return None


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
