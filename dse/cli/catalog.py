"""dse catalog: chips, models, search spaces, prices, racks: list, show, check, new, derive.

Examples:

    dse catalog prices list --chip h100_sxm --basis on_demand
    dse catalog prices list --basis on_demand --as-of 2026-06
    dse catalog prices list --basis owned_tco --costs my_costs.yaml
    dse catalog prices show h100_sxm
    dse catalog chips collectives b200_sxm --chips 64 --set system=hgx_b200_efa --detail
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dse.cli import Lazy
from dse.cli.options import chip_files_option, read_catalog
from dse.cli.printing import deliver

# Of each noun what it is, the module of its verbs, and these: `list` is `list_chips`, the others
# are of one, such as `show_chip`, which checks a file of the user's own, too.
NOUNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "chips": (
        "Chips, their systems and their prices; chip files of yours.",
        "hardware",
        ("list", "show", "check"),
    ),
    "models": ("Published model shapes, by id.", "search_spaces", ("list", "show")),
    "spaces": (
        "Search spaces: those that come with the project, and files of yours.",
        "search_spaces",
        ("list", "show", "check"),
    ),
    "prices": ("Prices of an hour of a chip.", "prices", ("list", "show")),
    "racks": ("Racks, and what bounds the scale-up domain of each.", "hardware", ("list", "show")),
}


@click.group("catalog")
def command() -> None:
    """What dse knows: chips, models, search spaces, prices and racks; every figure with its source.

    \b
    dse catalog chips list --vendor amd
    dse catalog models show deepseek-v3
    dse catalog prices list --chip h100_sxm --basis on_demand
    """


class _Noun(Lazy):
    """Imports the question of a verb when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        more = ["collectives"] if self.name == "chips" else []
        return [*NOUNS[str(self.name)][2], *super().list_commands(ctx), *more]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from dse.cli.signature import verb

        noun, of = str(self.name), f"dse catalog {self.name} {cmd_name} "
        lines = (__doc__ or "").splitlines()
        examples = "\n".join(line for line in lines if line.strip().startswith(of))
        _, module, verbs = NOUNS[noun]
        if cmd_name in verbs:
            what = noun if cmd_name == "list" else noun.removesuffix("s")
            name = f"{'show' if cmd_name == 'check' else cmd_name}_{what}"
            asks = getattr(import_module(f"dse.questions.catalog.{module}"), name)
            return verb(asks, name=cmd_name, stem=what, space="space", examples=examples)
        if (self.name, cmd_name) == ("chips", "collectives"):
            from dse.questions.collectives import SETTINGS, collectives

            return verb(collectives, fields=SETTINGS, examples=examples)
        return super().get_command(ctx, cmd_name)


nouns = {name: _Noun(name, help=words) for name, (words, _, _) in NOUNS.items()}
for group in nouns.values():
    command.add_command(group)


@nouns["chips"].command("new")
@click.argument("chip")
def new_chip(chip: str) -> None:
    """Write a commented chip file to fill in: dse catalog chips new my_chip > my_chip.yaml"""
    from dse.questions.catalog.hardware import new_chip

    click.echo(new_chip(read_catalog(), chip), nl=False)


@nouns["chips"].command("derive")
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
def derive_chip(chip_files: tuple[str, ...], **asked: Any) -> None:
    """Write the file of a hypothetical chip: a known one with some figures changed.

    \b
    dse catalog chips derive --from h200_sxm --set hbm_bandwidth=1.5x --set tdp=900W --out fast.yaml
    dse estimate --model llama-3-70b --chip ./fast.yaml --tp 8
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=1.5x --tp 8

    NAME is a figure of a chip file or hbm_bandwidth, capacity, flops (every peak), tdp, link
    (scale-up, per chip and direction), domain, link_latency, jitter, topology,
    scale_out_bandwidth, price.BASIS. Laws and prices are those of the parent unless set.
    """
    from dse.questions.catalog.hardware import derive_chip

    made = derive_chip(read_catalog(chip_files), **asked)
    if isinstance(made, str):
        click.echo(made, nl=False)
    else:
        deliver(made, out=None, as_json=False)


derive_chip.params.append(chip_files_option)
