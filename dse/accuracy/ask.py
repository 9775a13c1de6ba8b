"""`dse.validate`: predictions against measurements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from dse.accuracy import measurements
from dse.accuracy.backtest import backtest
from dse.accuracy.tables import training_rows
from dse.catalog import Catalog
from dse.errors import InputError


def validate(data: Path | str | None = None, *, catalog: Catalog | None = None) -> dict[str, Any]:
    """Error and coverage by metric, serving, chip, model and backend: the document of
    `dse validate --json`.

        dse.validate()["scores"][0]["group_median_error"]

    Of the measurements that come with dse, or of the rows of `data` in their format
    (hardware/measurements/README.md). Errors are fractions of the measured value. Raises InputError
    for a file that is none.
    """
    return measurements.accuracy(predicted(data, catalog))


def predicted(data: Path | str | None, catalog: Catalog | None) -> pd.DataFrame:
    """The rows with their predictions, as `measurements.ready` leaves them."""
    tables = [measurements.read(Path(data))] if data else measurements.shipped()
    answers = [measurements.predict(table, catalog) for table in tables]
    return pd.concat(answers, ignore_index=True)


def held_out(
    answer: pd.DataFrame,
    data: Path | str | None,
    catalog: Catalog | None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Scores of predictions by fits that never saw the group, chip or model of a row; of the
    shipped rows, the backtest too. Raises InputError where no row could be left out."""
    rows = answer[answer["serving"] != "disaggregated"]
    if measurements.covered(rows).empty:
        raise InputError(
            "no row that a fit could leave out",
            file=None if data is None else str(data),
            field="--cross-validate",
            accepted="covered rows of static, continuous or offline serving, or of training",
        )
    held = measurements.cross_validated(rows, progress, own=data is not None, catalog=catalog)
    if data is not None:
        return {"cross_validation": held}
    served = rows[~training_rows(rows)]
    return {"cross_validation": held, "backtest": backtest(served, held["chip"], progress)}
