"""dse check: a shape against the rules of a chip and of the software that serves it."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import DEGREE, LOAD, json_option, read_catalog
from dse.cli.printing import print_json, print_rests, print_table, say


@click.command("check")
@click.argument("config")
@click.option("--chip", help="Chip id (dse catalog chips list), or the path of a chip file.")
@click.option("--tp", type=DEGREE, default=1, help="Tensor parallelism.")
@click.option("--pp", type=DEGREE, default=1, help="Pipeline stages.")
@click.option("--dp", type=DEGREE, default=1, help="Attention data parallelism.")
@click.option("--ep", type=DEGREE, default=1, help="Expert parallelism.")
@click.option(
    "--weight-dtype",
    help="bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4; else the model's.",
)
@click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says.")
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--concurrency", type=LOAD, default=32, help="Requests in a decode step.")
@click.option("--training-tokens", help="Tokens the model was trained on, such as 15T.")
@json_option
def command(config: str, as_json: bool, **flags: Any) -> None:
    """What of a shape software refuses, what it wastes, and which shapes near it do not.

    \b
    dse check qwen2.5-7b --chip h200_sxm --tp 8
    dse check path/to/config.json --chip mi300x --tp 4
    dse check qwen3-30b-a3b --chip h100_sxm --tp 4 --weight-dtype fp8_block

    CONFIG is a config.json or its folder, or a catalog id (dse catalog models list). A shape that
    nothing takes is an answer too: "ok": false, exit code 0.
    """
    from dse.questions.check.ask import check

    document = check(config, **flags, catalog=read_catalog())
    if as_json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    from dse.answer.numbers import in_ms
    from dse.questions.check.words import (
        NEAR_TITLES,
        degree_lines,
        gemm_table,
        near_lines,
        rule_lines,
    )

    say(document["answer"])
    for title, sentences in rule_lines(document):
        click.echo(f"\n{title}")
        for sentence in sentences:
            say(f"- {sentence}", "  ")
    click.echo("\nDegrees that it admits")
    for line in degree_lines(document):
        say(line, "    ")
    click.echo()
    if document["nearest"]:
        click.echo("Nearest that all of this software takes, against this one (steps with costs)")
        print_table(NEAR_TITLES, near_lines(document), right=range(1, len(NEAR_TITLES)))
        if not document["ok"]:
            say("Of the refused shape, a rank has its share of heads and widths rounded up.")
            click.echo()
    elif not document["ok"]:
        say("Nothing near is taken by all of it: up to three sizes changed, by at most half each.")
        click.echo()
    for phase in ("prefill", "decode"):
        step = document[phase]
        if step is not None:
            rows = f"{step['rows']:,.0f} {'tokens' if phase == 'prefill' else 'requests'}"
            title = f"Products of a {phase} step of {rows} on one chip, {in_ms(step['seconds'])}"
            click.echo(f"{title}; shares of the step")
            titles, lines = gemm_table(document, phase)
            print_table(titles, lines, right=range(1, len(titles)))
    print_rests(document["assumed"])
