"""dse basket: one shape for several chips, and what it gives away on each."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import json_option, law_option, price_options, space_catalog
from dse.cli.printing import command_line, print_json, print_tables, say
from dse.cli.progress import CountProgress


@click.command("basket")
@click.argument("space")
@law_option("Quality law that predicts the loss; else that of the space.")
@click.option("--out", metavar="DIR", help="Write basket.html, basket.md and basket.json there.")
@price_options
@json_option
def command(space: str, law: str | None, out: str | None, as_json: bool) -> None:
    """One shape for every chip of a space, with its regret against each chip's own best.

    \b
    dse basket basket-h200-tpu-trn2
    dse basket my-space.yaml --out studies/my-basket

    SPACE is a shipped name or a path; it names several chips, bounds the quality from below, and
    has two objectives: predicted_loss and a price. Every shape is served on its cheapest deployment
    on every chip. Exit code 3: no shape can be served on all of them.
    """
    from dse.questions.basket.answer import basket
    from dse.questions.basket.words import MEANING, document, facts, lead, tables
    from dse.schema.study import load_study

    catalog = space_catalog(space)
    study = load_study(space, catalog, law)
    found = basket(study, catalog, CountProgress("shapes served"))
    if as_json:
        print_json(document(found))
    else:
        say(study.title or study.name)
        for sentence in lead(found):
            say(f"- {sentence}", "  ")
        say(facts(found))
        print_tables(tables(found))
        say(MEANING)
    if out is not None:
        from dse.render.basket import write_basket

        page = write_basket(Path(out), found, command_line())
        click.echo(f"Page: {page}", err=as_json)
