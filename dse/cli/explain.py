"""dse explain: where time, memory, money and energy of one point go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import estimate_flags, json_option, point_options, print_json, print_table


@click.command("explain")
@click.argument("study", required=False)
@click.argument("point", required=False)
@click.option(
    "--why-not",
    "why_not",
    type=click.Path(path_type=Path),
    help="A study: why is it not on its front?",
)
@point_options
@json_option
def command(
    study: str | None, point: str | None, why_not: Path | None, as_json: bool, **flags: Any
) -> None:
    """Where time, memory, money and energy of one point go, operator by operator.

    \b
    dse explain studies/quickstart knee
    dse explain --model deepseek-v3 --chip h200_sxm --tp 8 --concurrency 64
    dse explain --why-not studies/deploy-llama-3-70b --model llama-3-70b --chip h100_sxm --tp 4
    """
    from dse.errors import InputError

    if study is not None:
        if point is None:
            raise InputError("which point?", field="POINT", accepted="dse explain STUDY POINT")
        from dse.study.again import estimate_again

        answer = estimate_again(Path(study), point, keep=True)
    elif why_not is not None:
        from dse.study.folder import STUDY, read_json
        from dse.study.why_not import why_not as reasons

        study_document = read_json(why_not, STUDY)
        flags |= {"price_basis": study_document["price_basis"], **study_document["workload"]}
        document = reasons(why_not, estimate_flags(flags))
        if as_json:
            print_json(document)
        else:
            for line in document["reasons"]:
                click.echo(line)
        return
    else:
        answer = estimate_flags(flags, keep=True)
    _explain(answer, as_json)


def _explain(answer: Any, as_json: bool) -> None:
    from dse.study.breakdown import breakdown
    from dse.study.words import deployment_words, show

    document = answer.as_json()
    where = breakdown(answer.metrics, 0)
    if as_json:
        print_json({**document, **where})
        return
    click.echo(f"{document['model']} on {deployment_words(document['deployment'])}")
    prefill = sum(row["prefill_s"] for row in where["breakdown"])
    decode = sum(row["decode_s"] for row in where["breakdown"])
    print_table(
        ("operator", "prefill", "share", "decode step", "share", "decode bound by", "efficiency"),
        [
            (
                row["operator"],
                show("prefill_s", row["prefill_s"]),
                f"{row['prefill_s'] / prefill:.1%}",
                show("decode_step_s", row["decode_s"]),
                f"{row['decode_s'] / decode:.1%}",
                row["bound"],
                row["efficiency"],
            )
            for row in where["breakdown"]
        ],
        right=(1, 2, 3, 4),
    )
    capacity = where["capacity_bytes"]
    print_table(
        ("memory per chip", "GB", "of capacity"),
        [
            (
                row["part"].replace("_", " "),
                f"{row['bytes'] / 1e9:.2f}",
                f"{row['bytes'] / capacity:.1%}",
            )
            for row in where["memory"]
        ]
        + [("capacity", f"{capacity / 1e9:.2f}", "")],
        right=(1, 2),
    )
    click.echo(
        f"A decode step takes {show('tpot_s', where['decode_step_s'])}; its floor on these chips "
        f"is {show('tpot_s', where['floor_s'])} "
        f"({where['decode_step_s'] / where['floor_s']:.2f} times the floor)."
    )
    click.echo(f"Bound by {document['bottleneck']}.")
    click.echo(
        "Dollars per million tokens: "
        f"input {show('usd', document['usd_per_million_input_tokens'])}, "
        f"output {show('usd', document['usd_per_million_output_tokens'])}, "
        f"total {show('usd', document['usd_per_million_total_tokens'])} "
        f"({document['price_basis']}); "
        f"all cost on output {show('usd', document['usd_per_million_output_tokens_all_in'])}."
    )
    click.echo(f"Joules per output token: {show('joules', document['joules_per_output_token'])}.")
    for broken in document["violations"]:
        click.echo(
            f"Violates {broken['constraint']} ({broken['meaning']}): {broken['amount']:+.1%}"
        )
