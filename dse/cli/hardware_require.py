"""dse hardware require: what a chip must have to enter the front of a study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from dse.cli.options import json_option, price_options, read_catalog
from dse.cli.printing import print_json, print_table, say

VARIED = "hbm_bandwidth,capacity,flops,link,domain,price,tdp"


@click.command("require")
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--from", "chip", required=True, metavar="CHIP", help="A chip, or its file.")
@click.option("--vary", default=VARIED, metavar="NAMES", help="Quantities, each changed alone.")
@click.option(
    "--margin",
    default="0%",
    metavar="SHARE",
    help="How much better than the front it must be in cost, time or energy, such as 2%.",
)
@click.option("--space", metavar="FILE", help="The space file of the study, where it has moved.")
@click.option("--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file.")
@price_options
@json_option
def require_chip(
    study: Path,
    chip: str,
    vary: str,
    margin: str,
    space: str | None,
    chip_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """What bandwidth, capacity, FLOP/s, domain or price must a chip have to enter this front?

    \b
    dse run deploy-llama-3-70b --out studies/llama
    dse hardware require studies/llama --from mi300x

    For each quantity alone: the smallest change at which a deployment of the chip keeps the study's
    constraints and is beaten by no point of the front (by --margin). Deployments are all those of
    the study's axes; where the study searches shapes, shapes are those of its front. Prices are
    those of the study, unless --prices, --as-of or --costs say otherwise.
    """
    from dse.errors import InputError
    from dse.questions.whatif.require import require
    from dse.schema.metrics import parse_limit

    try:
        share = parse_limit(margin.strip(), "fraction")
    except InputError:
        share = 1.0
    if share >= 1.0:
        message = f"read {margin!r}"
        raise InputError(message, field="--margin", accepted="a share below 100%, such as 2%")
    started = last = time.monotonic()

    def progress(name: str, done: int, total: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= 2.0 or (done and now - started >= 2.0):
            last = now
            click.echo(f"{name}: {done + 1} of {total} quantities", err=True)

    catalog, name = read_catalog(chip_files).with_chip(chip)
    names = [one.strip() for one in vary.split(",") if one.strip()]
    answer = require(
        study,
        name,
        catalog,
        tuple(dict.fromkeys(names)),
        space=space,
        margin=share,
        progress=progress,
    )
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _print(answer: dict[str, Any]) -> None:
    from dse.cli.costs import print_price
    from dse.questions.whatif.require_words import basis_words, lead, refused_lines, rows

    for line in lead(answer):
        say(line, "  ")
    found = rows(answer)
    if found:
        print_table(("quantity", "has", "needs", "factor", "enters as"), found, right=(1, 2, 3))
    for line in refused_lines(answer):
        say(f"- {line}", "  ")
    for line in basis_words(answer):
        say(line, "  ")
    if answer["price"]:
        print_price(answer["price"])
