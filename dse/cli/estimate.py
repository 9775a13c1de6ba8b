"""dse estimate: one point from flags, a point of a study, or every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    POINT_FLAGS,
    estimate_flags,
    json_option,
    point_options,
    print_json,
    print_table,
    refuse,
    say,
)


@click.command("estimate")
@click.argument("study", required=False)
@click.argument("point", required=False)
@point_options
@click.option("--points", metavar="IN", help="A file in the measurement format.")
@click.option("--out", metavar="OUT", help="Where --points writes its answer.")
@json_option
def command(
    study: str | None,
    point: str | None,
    points: str | None,
    out: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Predict one point.

    \b
    dse estimate --model llama-3-70b --chip h100_sxm --tp 8 --concurrency 32
    dse estimate studies/quickstart knee      a point of a study again
    dse estimate --points IN.csv --out OUT.csv

    POINT is a number of front.csv or one of cheapest, fastest, best, knee.
    """
    from dse.errors import InputError

    if points is not None:
        from dse.validation.points import estimate_file

        refuse((*POINT_FLAGS, "study"), "--points")
        if out is None:
            raise InputError("--out is missing", accepted="dse estimate --points IN.csv --out OUT")
        counted = estimate_file(Path(points), Path(out))
        if as_json:
            print_json(counted)
        else:
            click.echo(f"{counted['ok']:,} of {counted['rows']:,} rows predicted, written to {out}")
        return
    refuse(["out"], "an estimate of one point: it prints its answer")
    if study is not None:
        from dse.study.again import estimate_again

        refuse(POINT_FLAGS, "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse estimate STUDY POINT")
        answer = estimate_again(Path(study), point)
    else:
        answer = estimate_flags(flags)
    if as_json:
        print_json(answer.as_json())
    else:
        _print(answer.as_json())


def _print(answer: dict[str, Any]) -> None:
    from dse.study.words import heading, known_words, metric_lines, verdict

    for line in heading(answer):
        say(line)
    print_table(
        ("metric", "predicted", "80% interval", "known as"),
        metric_lines(answer),
        right=(1, 2),
    )
    say(known_words(answer), "  ")
    for line in verdict(answer):
        say(line, "  ")
    click.echo("Rests on:")
    for sentence in answer["assumed"]:
        say(f"- {sentence}", "  ")
