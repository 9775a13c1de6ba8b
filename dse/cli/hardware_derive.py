"""dse hardware derive: a hypothetical chip from a known one."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dse.cli.options import read_catalog
from dse.cli.printing import say


@click.command("derive")
@click.option(
    "--from", "parent", required=True, metavar="CHIP", help="The chip to start from, or its file."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="What changes, once for each figure: 1.5x, +20% or a value with its unit.",
)
@click.option("--name", help="Its id, which begins with hypothetical_ in any case.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there.")
@click.option("--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file.")
def derive_chip(
    parent: str,
    settings: tuple[str, ...],
    name: str | None,
    out: Path | None,
    chip_files: tuple[str, ...],
) -> None:
    """Write the file of a hypothetical chip: a known one with some figures changed.

    \b
    dse hardware derive --from h200_sxm --set hbm_bandwidth=1.5x --set tdp=900W --out fast.yaml
    dse estimate --model llama-3-70b --chip ./fast.yaml --tp 8
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=1.5x --tp 8

    NAME is a figure of a chip file or hbm_bandwidth, capacity, flops (every peak), tdp, link
    (scale-up, per chip and direction), domain, link_latency, jitter, topology,
    scale_out_bandwidth, price.BASIS. Laws and prices are those of the parent unless set.
    """
    from dse.errors import InputError
    from dse.schema.catalog import is_chip_file
    from dse.schema.derive import as_yaml, derive, write_chip

    catalog, chip = read_catalog(chip_files).with_chip(parent)
    own = derive(catalog, chip, settings, name)
    parts = ["dse", "hardware", "derive", "--from", parent]
    for setting in settings:
        parts += ["--set", setting]
    text = as_yaml(own, shlex.join(parts))
    if out is None:
        click.echo(text, nl=False)
        return
    if not is_chip_file(out.name):
        raise InputError(f"read {str(out)!r}", field="--out", accepted="a name that ends in .yaml")
    write_chip(out, text)
    click.echo(f"{out}: {own.chip.id}")
    for change in own.chip.changes:
        say(f"- {change}", "  ")
    if not any(one.startswith("price") for one in own.chip.changes):
        say(f"Prices are those of {chip}, assumed." if own.prices else "It has no price.")
