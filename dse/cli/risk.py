"""dse risk: how sure the order of the chips is, and what to measure before buying."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import Between, Whole, json_option, out_option, price_options, space_catalog
from dse.cli.printing import (
    command_line,
    print_json,
    print_rests,
    print_tables,
    say,
    say_command,
)
from dse.cli.progress import CountProgress


@click.command("risk")
@click.argument("source", metavar="SPACE|STUDY")
@click.option(
    "--point",
    "points",
    multiple=True,
    metavar="POINT",
    help="Of a STUDY that searched shapes: the point whose shape it is. Given several times, the "
    "shapes are compared, where the study limits their quality.",
)
@click.option("--draws", type=Whole(1_000, 1_000_000), default=10_000, help="Draws.")
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="The same seed, the same answer.")
@click.option(
    "--objective",
    metavar="METRIC",
    help="What a choice is judged by; else the price among the space's objectives.",
)
@click.option(
    "--price-interval",
    type=Between(0.0, 10.0),
    help="80% interval of every price, as a share either way: 0.2 is 20%, 0 is certain. Else from "
    "the published rows of each chip.",
)
@click.option(
    "--demand",
    metavar="LOW..HIGH",
    help="80% interval of requests per second, served by whole instances; else they run full.",
)
@click.option(
    "--retune",
    is_flag=True,
    help="Choose configurations again in every draw, not only the load.",
)
@price_options
@out_option("risk")
@json_option
def command(
    source: str,
    points: tuple[str, ...],
    draws: int,
    seed: int,
    objective: str | None,
    price_interval: float | None,
    demand: str | None,
    retune: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """How often each chip stays the best choice when prices, efficiency and demand are drawn from
    their intervals, what a wrong choice costs, and which measurement would help most.

    \b
    dse risk deploy-llama-3-70b
    dse risk deploy-llama-3-70b --price-interval 0.25 --demand 5..40
    dse risk deploy-llama-3-70b --prices mine.csv --out risk
    dse risk studies/quickstart --point knee
    dse risk studies/shape-for-8xh200 --point cheapest --point knee

    SPACE is a shipped name or a path, with one model; STUDY is the folder of a finished study.
    Exit code 3: no chip keeps the limits.
    """
    from dse.questions.risk.ask import risk
    from dse.questions.risk.document import commands, document
    from dse.questions.risk.words import MEANING, facts, lead, rests_on, tables

    found = risk(
        source,
        points=points,
        draws=draws,
        seed=seed,
        objective=objective,
        price_interval=price_interval,
        demand=demand,
        retune=retune,
        catalog=space_catalog(source),
        progress=CountProgress(),
    )
    if as_json:
        print_json(document(found))
    else:
        say(found.study.title or found.study.name)
        for sentence in lead(found):
            say(f"- {sentence}", "  ")
        say(facts(found))
        print_tables(tables(found))
        say(MEANING)
        if found.measurements and (lines := commands(found, found.measurements[0])):
            click.echo("\nTo make the first measurement, of a server deployed so:")
            for line in lines:
                say_command(line)
        print_rests(rests_on(found))
    if out is not None:
        from dse.render.risk import write_risk

        page = write_risk(out, {**document(found), "command": command_line()}, tables(found))
        click.echo(f"Report: {page}", err=as_json)
