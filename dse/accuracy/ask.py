"""`dse.validate`: predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from dse.accuracy import measurements
from dse.catalog import Catalog


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
