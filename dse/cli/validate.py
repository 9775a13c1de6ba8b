"""dse validate: predictions against measurements, and what people claim, as numbers."""

from __future__ import annotations

import time

import click

from dse.cli.options import efficiency_option, json_option, read_catalog, refuse
from dse.cli.printing import command_line, deliver
from dse.cli.progress import Progress


@click.command("validate")
@click.argument("numbers", metavar="[N]...", nargs=-1, type=int)
@click.option(
    "--claims", is_flag=True, help="What people claim of models and hardware, instead; or claim N."
)
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
    numbers: tuple[int, ...],
    claims: bool,
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
    dse validate --claims            what people claim of models and hardware, one line each
    dse validate --claims 2          one claim, with its rule and its evidence

    Rows are of serving or of training, told apart by their columns: the format is described in
    hardware/measurements/README.md. Errors are fractions of the measured value; a group is one
    model on one chip. The verdict on a claim is computed from predictions and measured rows by a
    rule that is printed with it.
    """
    if claims:
        refuse(("data", "cross_validate", "efficiency"), "--claims")
        _claims(numbers, out, as_json)
        return
    refuse(("numbers",), "measurements: a number is that of a claim (--claims)")
    from dse.accuracy import measurements
    from dse.accuracy.ask import held_out, predicted
    from dse.accuracy.present import validate_answer

    catalog = read_catalog()
    rows = predicted(data, catalog)
    document = measurements.accuracy(rows)
    if cross_validate:
        document |= held_out(rows, data, catalog, Progress())
    answer = validate_answer(document, rows, data, command_line())
    deliver(answer, out=out, as_json=as_json)


def _claims(numbers: tuple[int, ...], out: str | None, as_json: bool) -> None:
    """The claims `numbers`, or all of them."""
    from dse.accuracy.claims import engine
    from dse.accuracy.claims.present import claim_answer, claims_answer

    asked = [engine.claim(n) for n in numbers or engine.claims()]
    last, found = time.monotonic(), []
    for k, one in enumerate(asked):
        if time.monotonic() - last > 2.0:
            last = time.monotonic()
            click.echo(f"{k} of {len(asked)} done, now claim {one.number}", err=True)
        found.append((one, one.found()))
    line = command_line()
    if len(numbers) == 1:
        (one, finding) = found[0]
        answer = claim_answer(one, finding, line)
    else:
        answer = claims_answer(found, line)
    deliver(answer, out=out, as_json=as_json)
