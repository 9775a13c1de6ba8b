"""dse validate: predictions against measurements."""

from __future__ import annotations

from dataclasses import replace

import click

from dse.cli.options import efficiency_option, json_option, read_catalog
from dse.cli.printing import Progress, deliver


@click.command("validate")
@click.option("--data", metavar="FILE", help="A CSV file in the measurement format.")
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Also score groups, chips and models that a fit left out; takes minutes.",
)
@click.option("--out", metavar="DIR", help="Write validate.html, .md, .json, .csv and .xlsx there.")
@efficiency_option
@json_option
def command(
    data: str | None,
    cross_validate: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Compare predictions with measurements.

    \b
    dse validate                     the measurements that come with dse
    dse validate --data rows.csv     your own rows, in the same format
    dse validate --out accuracy      also writes accuracy/validate.html

    Rows are of serving or of training, told apart by their columns: the format is described in
    hardware/measurements/README.md. Errors are fractions of the measured value; a group is one
    model on one chip.
    """
    from dse.accuracy import measurements
    from dse.accuracy.ask import held_out, predicted
    from dse.accuracy.present import validate_answer

    catalog = read_catalog()
    rows = predicted(data, catalog)
    document = measurements.accuracy(rows)
    if cross_validate:
        document |= held_out(rows, data, catalog, Progress())
    answer = validate_answer(document, rows, data)
    answer = replace(answer, names=catalog.names)
    deliver(answer, out=out, as_json=as_json)
