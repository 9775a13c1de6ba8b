"""dse estimate: one point from flags, a point of a study, or every row of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import json_option, law_option, read_catalog, refuse
from dse.cli.point import POINT_FLAGS, POOL_FLAGS, estimate_flags, point_options, pool_options
from dse.cli.printing import print_json, print_rests, print_table, print_workloads, say


@click.command("estimate")
@click.argument("study", required=False)
@click.argument("point", required=False)
@point_options
@pool_options
@law_option(
    "Quality law of the loss (docs/quality.md): leverage, hoffmann, cautious, joint, abnar."
)
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
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=2x --tp 8
    dse estimate studies/quickstart knee      a point of a study again
    dse estimate --points IN.csv --out OUT.csv
    dse estimate --serving disaggregated --model deepseek-v3 --chip h200_sxm --dp 8 --ep 8
      --prefill-tp 8 --prefill-workers 2

    POINT is a number of front.csv or one of cheapest, fastest, best, knee.
    """
    from dse.errors import InputError

    if points is not None:
        from dse.accuracy.measurements import estimate_file

        refuse((*POINT_FLAGS, *POOL_FLAGS, "study", "law"), "--points")
        if out is None:
            raise InputError("--out is missing", accepted="dse estimate --points IN.csv --out OUT")
        counted = estimate_file(Path(points), Path(out), read_catalog())
        if as_json:
            print_json(counted)
        else:
            click.echo(f"{counted['ok']:,} of {counted['rows']:,} rows predicted, written to {out}")
        return
    refuse(["out"], "an estimate of one point: it prints its answer")
    if study is not None:
        from dse.questions.estimate.again import estimate_again

        refuse((*POINT_FLAGS, *POOL_FLAGS), "STUDY POINT")
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse estimate STUDY POINT")
        answer = estimate_again(Path(study), point, read_catalog(), law=flags["law"])
    elif flags["serving"] == "disaggregated":
        _pools(flags, as_json)
        return
    else:
        refuse(POOL_FLAGS, "one pool: it takes --serving disaggregated")
        answer = estimate_flags(flags)
    if as_json:
        print_json(answer.as_json())
    else:
        _print(answer.as_json())


def _pools(flags: dict[str, Any], as_json: bool) -> None:
    """Prefill and decode on pools of their own."""
    from dse.problem.words import pool_heading, pool_lines
    from dse.questions.estimate.pools import pools

    refuse(["law"], "--serving disaggregated: it predicts no loss")
    refuse(["pp"], "--serving disaggregated: its pools have no pipeline stages")
    refuse(["settings"], "--serving disaggregated: it takes the file of `dse catalog chips derive`")
    refuse(["replicas"], "--serving disaggregated: it has --prefill-workers and --decode-workers")
    refuse(("workloads", "requests_per_second"), "--serving disaggregated: one closed loop")
    refuse(("average_load", "peak_over_average"), "--serving disaggregated: two pools")
    flags["serving"] = "continuous"
    degrees = {axis: flags[f"prefill_{axis}"] for axis in ("tp", "dp", "ep")}
    first = {"chip": flags["prefill_chip"] or flags["chip"], "replicas": flags["prefill_workers"]}
    answer = pools(
        estimate_flags(flags | degrees | first),
        estimate_flags(flags | {"replicas": flags["decode_workers"]}),
    )
    if as_json:
        print_json(answer)
        return
    for line in pool_heading(answer):
        say(line)
    print_table(("metric", "predicted", "80% interval"), pool_lines(answer), right=(1, 2))
    words = "; ".join(row["constraint"] for row in answer["violations"])
    click.echo(f"Not feasible: {words}." if words else "Feasible.")
    print_rests(answer["assumed"])


def _print(answer: dict[str, Any]) -> None:
    from dse.cli.costs import load_words, print_price
    from dse.problem.quality import quality_words
    from dse.problem.words import heading, known_words, metric_lines, verdict

    for line in heading(answer):
        say(line)
    print_workloads(answer)
    print_table(
        ("metric", "predicted", "80% interval", "known as"),
        metric_lines(answer),
        right=(1, 2),
    )
    say(known_words(answer), "  ")
    if "at_average_load" in answer:
        say(load_words(answer["at_average_load"]), "  ")
    if "price" in answer:
        print_price(answer["price"])
    for sentence in quality_words(answer):
        say(sentence, "  ")
    for line in verdict(answer):
        say(line, "  ")
    print_rests(answer["assumed"])
