"""dse fleet: what to buy or rent for a plan of demand, quarter by quarter."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import json_option, out_option, price_options, read_catalog, refuse
from dse.cli.printing import command_line, print_json, print_rests, print_tables, say
from dse.cli.progress import Progress


@click.command("fleet")
@click.argument("plan")
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@click.option("--show", is_flag=True, help="Print the plan's file, a start for one of yours.")
@out_option("fleet")
@price_options
@json_option
def command(
    plan: str, chip_files: tuple[str, ...], show: bool, out: Path | None, as_json: bool
) -> None:
    """The cheapest mix of chips for a plan: what to buy or rent, how much of it, and when.

    \b
    dse fleet dense-70b-billion-tokens
    dse fleet deepseek-v3-two-megawatts --out fleet
    dse fleet dense-70b-billion-tokens --show > plan.yaml
    dse fleet plan.yaml --json

    PLAN is a shipped plan or the path of a file: demand by class, the chips on offer, what is owned
    already, and limits (docs/fleet.md). Exit code 3: nothing keeps the plan; what must give is
    said.
    """
    from dse.errors import NothingFeasible
    from dse.questions.fleet.answer import assumptions, document
    from dse.questions.fleet.ask import fleet
    from dse.questions.fleet.tables import tables
    from dse.questions.fleet.words import lead
    from dse.schema.plan_reader import find_plan, load_plan

    catalog = read_catalog(chip_files)
    if show:
        refuse(["out", "as_json"], "--show, which prints the plan's file alone")
        read = load_plan(find_plan(plan), catalog)
        click.echo(Path(read.file).read_text(encoding="utf-8"), nl=False)
        return
    answer = fleet(plan, catalog=catalog, progress=Progress())
    sentences = lead(answer)
    written = document(answer, sentences)
    if as_json:
        print_json(written)
    elif answer.counted is not None:
        say(f"{answer.plan.title}")
        for sentence in sentences:
            say(f"- {sentence}", "  ")
        print_tables(tables(answer))
        print_rests(assumptions(answer))
    if out is not None:
        from dse.render.fleet import write_fleet

        page = write_fleet(out, answer, {**written, "command": command_line()})
        click.echo(f"Report: {page}", err=as_json)
    if answer.counted is None:
        raise NothingFeasible("\n".join(sentences))
