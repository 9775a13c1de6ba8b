"""dse validate: predicted against measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from dse.cli.options import efficiency_option, json_option, read_catalog
from dse.cli.printing import print_json, print_table, say, width

WORST = 10
WIDE, NARROW = 100, (0, 1, 3, 4, 7, 9)  # columns of the console; columns of the scores below it


@click.command("validate")
@click.option("--data", metavar="FILE", help="A CSV file in the measurement format.")
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Also score groups, chips and models that a fit left out; takes minutes.",
)
@click.option("--out", metavar="DIR", help="Write accuracy.html, with plots, to this folder.")
@click.option(
    "--markdown", metavar="FILE", help="Write the tables as Markdown, pictures beside it."
)
@efficiency_option
@json_option
def command(
    data: str | None, cross_validate: bool, out: str | None, markdown: str | None, as_json: bool
) -> None:
    """Compare predictions with measurements.

    \b
    dse validate                     the measurements that come with dse
    dse validate --data rows.csv     your own rows, in the same format
    dse validate --out accuracy      also writes accuracy/accuracy.html

    Rows are of serving or of training, told apart by their columns: the format is described in
    hardware/measurements/README.md. Errors are fractions of the measured value; a group is one
    model on one chip.
    """
    from dse.accuracy import measurements
    from dse.accuracy.ask import predicted
    from dse.render.accuracy_words import lead

    catalog = read_catalog()
    answer = predicted(data, catalog)
    document = measurements.accuracy(answer)
    if cross_validate:
        document |= _held_out(answer, data, catalog)
    words = lead(document, data)
    written = []
    if out is not None:
        from dse.render.accuracy import write_accuracy

        written.append(f"Plots: {write_accuracy(Path(out), document, answer, words)}")
    if markdown is not None:
        from dse.render.accuracy import write_tables

        worst = measurements.worst_groups(answer)[:WORST]
        own = data is not None
        write_tables(Path(markdown), document, answer, worst, words, _given(catalog), own)
        written.append(f"Tables: {markdown}")
    if as_json:
        print_json(document)
    else:
        _print(document, answer, words)
    for line in written:
        click.echo(line, err=as_json)


def _given(catalog: Any) -> str:
    """The command as it was given, flags alone."""
    import shlex

    ctx = click.get_current_context()
    words = ["dse validate"]
    for param in ctx.command.params:
        value = ctx.params.get(str(param.name))
        if value:
            words.append(
                param.opts[0] if value is True else f"{param.opts[0]} {shlex.quote(value)}"
            )
    return " ".join([*words, *map(shlex.quote, catalog.source.flags())])


def _held_out(answer: Any, data: str | None, catalog: Any) -> dict[str, Any]:
    """Scores of predictions by fits that never saw the group, chip or model of a row; of the
    shipped rows, the backtest too."""
    from dse.accuracy import measurements
    from dse.errors import InputError

    rows = answer[answer["serving"] != "disaggregated"]
    if measurements.covered(rows).empty:
        raise InputError(
            "no row that a fit could leave out",
            file=data,
            field="--cross-validate",
            accepted="covered rows of static, continuous or offline serving, or of training",
        )
    last = time.monotonic()

    def progress(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= 2.0:
            last = time.monotonic()
            click.echo(text, err=True)

    held = measurements.cross_validated(rows, progress, own=data is not None, catalog=catalog)
    if data is not None:
        return {"cross_validation": held}
    from dse.accuracy.backtest import backtest
    from dse.accuracy.tables import training_rows

    served = rows[~training_rows(rows)]
    return {"cross_validation": held, "backtest": backtest(served, held["chip"], progress)}


def _print(document: dict[str, Any], answer: Any, words: list[str]) -> None:
    from dse.accuracy import measurements
    from dse.render.accuracy_claims import backtest_words
    from dse.render.accuracy_words import (
        COLUMNS,
        HEADER,
        HELD_HEADER,
        RIGHT,
        held_out_rows,
        score_row,
        speed_words,
        worst_row,
    )

    for line in words:
        say(line, "  ")
    overall = [item for item in document["scores"] if item["by"] == "all"]
    if overall:
        shown = range(len(HEADER)) if width() >= WIDE else NARROW
        print_table(
            [HEADER[k] for k in shown],
            [[score_row(item)[k] for k in shown] for item in overall],
            right=[place for place, k in enumerate(shown) if k in RIGHT],
        )
        say(COLUMNS)
        large = {(w["metric"], w["serving"]) for w in measurements.worst_groups(answer)}
        small = [
            f"{item['metric']} ({item['serving']})"
            for item in overall
            if (item["metric"], item["serving"]) not in large
        ]
        if small:
            say(f"No group of {', '.join(small)} has 5 rows: theirs is over all groups.")
    if "cross_validation" in document:
        click.echo("\nHeld out (fitted without the row's group, chip or model), error by group:")
        print_table(HELD_HEADER, held_out_rows(document), right=(2, 3, 4, 5))
    if "backtest" in document:
        click.echo("\nBefore the chip was measured (docs/accuracy.md, On the day of purchase):")
        for line in backtest_words(document["backtest"]):
            say(line, "  ")
    worst = measurements.worst_groups(answer)[:WORST]
    if worst:
        click.echo("\nWorst groups with 5 rows or more:")
        print_table(
            ("metric", "serving", "group", "rows", "median", "bias"),
            [worst_row(w) for w in worst],
            right=(3, 4, 5),
        )
    for line in speed_words(document):
        say(line, "  ")
    if document["not_covered"]:
        click.echo("\nNot covered:")
        print_table(
            ("rows", "reason"),
            [(f"{item['rows']:,}", item["reason"]) for item in document["not_covered"]],
            right=(0,),
        )
