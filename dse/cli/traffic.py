"""dse traffic: the fleet that a trace of requests needs."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import Between, Whole, json_option, out_option, price_options, space_catalog
from dse.cli.printing import command_line, print_json, print_rests, print_tables, say
from dse.cli.progress import CountProgress


@click.command("traffic")
@click.argument("space")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="CSV of requests: time (s), prompt, output and, where known, cached (tokens).",
)  # fmt: skip
@click.option(
    "--rate", type=Between(1e-6, 1e9),
    help="Requests per second at random, of the space's lengths, in place of a trace.",
)  # fmt: skip
@click.option(
    "--percentile", type=click.Choice(["50", "90", "99"]), default="90",
    help="Percentile of the time to first token that the target holds for.",
)  # fmt: skip
@click.option("--ttft", help="Longest time to first token; else the space's limit.")
@click.option("--tpot", help="Longest time per output token; else the space's limit.")
@click.option("--window", default="60s", help="Arrivals are counted in windows of this length.")
@click.option(
    "--windows", "share", type=Between(0.0, 1.0), default=1.0,
    help="Share of the windows that the fleet is large enough for; 1 is the busiest.",
)  # fmt: skip
@click.option(
    "--lengths", "groups", type=Whole(1, 32),
    help="Groups of prompt lengths, with two of output lengths in each; 1, 4 and 8 for the median, "
    "the 90th and the 99th percentile if left out.",
)  # fmt: skip
@price_options
@out_option("traffic")
@json_option
def command(
    space: str, trace: Path | None, rate: float | None, percentile: str, ttft: str | None,
    tpot: str | None, window: str, share: float, groups: int | None, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """The cheapest fleet on each chip of SPACE for a trace of requests, large enough that a
    percentile of first tokens comes in time, and its tokens per dollar.

    \b
    dse traffic deploy-llama-3-70b --trace requests.csv --percentile 99 --ttft 1s
    dse traffic deploy-llama-3-70b --rate 20 --percentile 90 --out traffic

    SPACE is a shipped name or a path, with one model. Exit code 3: no chip keeps the targets.
    """
    from dse.questions.traffic.ask import traffic
    from dse.questions.traffic.words import document, lead, rests_on, tables

    answer = traffic(
        space,
        trace=trace,
        rate=rate,
        percentile=int(percentile),
        ttft=ttft,
        tpot=tpot,
        window=window,
        share=share,
        groups=groups,
        catalog=space_catalog(space),
        progress=CountProgress(),
    )
    if as_json:
        print_json(document(answer))
    else:
        say(answer.study.title or answer.study.name)
        for sentence in lead(answer):
            say(f"- {sentence}", "  ")
        print_tables(tables(answer))
        print_rests(rests_on(answer))
    if out is not None:
        from dse.render.traffic import write_traffic

        written = {**document(answer), "command": command_line()}
        page = write_traffic(out, written, tables(answer))
        click.echo(f"Report: {page}", err=as_json)
