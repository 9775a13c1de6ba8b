"""dse estimate: one point from flags, a point of a study, or every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import estimate_flags, json_option, point_options, print_json, print_table


@click.command("estimate")
@click.argument("study", required=False)
@click.argument("point", required=False)
@point_options
@click.option("--points", type=click.Path(path_type=Path), help="A file in the measurement format.")
@click.option("--out", type=click.Path(path_type=Path), help="Where --points writes its answer.")
@json_option
def command(
    study: str | None,
    point: str | None,
    points: Path | None,
    out: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Predict one point.

    \b
    dse estimate --model llama-3-70b --chip h100_sxm --tp 8 --concurrency 32
    dse estimate studies/quickstart knee      a point of a study again
    dse estimate --points IN.csv --out OUT.csv
    """
    from dse.errors import InputError

    if points is not None:
        from dse.validation.points import estimate_file

        if out is None:
            raise InputError("--out is missing", accepted="dse estimate --points IN.csv --out OUT")
        counted = estimate_file(points, out)
        if as_json:
            print_json(counted)
        else:
            click.echo(f"{counted['ok']:,} of {counted['rows']:,} rows predicted, written to {out}")
        return
    if study is not None:
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse estimate STUDY POINT")
        from dse.study.again import estimate_again

        answer = estimate_again(Path(study), point)
    else:
        answer = estimate_flags(flags)
    if as_json:
        print_json(answer.as_json())
    else:
        _print(answer.as_json())


def _print(answer: dict[str, Any]) -> None:
    from dse.study.words import deployment_words, metric_lines

    click.echo(f"{answer['model']} on {deployment_words(answer['deployment'])}")
    load = answer["workload"]
    click.echo(
        f"{load['prompt_tokens']:,.0f} prompt and {load['output_tokens']:,.0f} output tokens, "
        f"{load['serving']} serving, backend {load['backend']}; prices: {answer['price_basis']}"
    )
    print_table(
        ("metric", "predicted", "80% interval (assumed)", "known as"),
        metric_lines(answer),
        right=(1, 2),
    )
    click.echo(f"Bound by {answer['bottleneck']}.")
    if answer["feasible"]:
        click.echo("Feasible.")
    for broken in answer["violations"]:
        click.echo(
            f"Violates {broken['constraint']} ({broken['meaning']}): {broken['amount']:+.1%}"
        )
    click.echo("Rests on:")
    for sentence in answer["assumed"]:
        click.echo(f"- {sentence}")
