"""dse catalog: chips, models, search spaces, prices, racks: list, show, check, new, derive."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    chip_files_option,
    efficiency_option,
    json_option,
    price_options,
    read_catalog,
    space_catalog,
)
from dse.cli.printing import deliver


@click.group("catalog")
def command() -> None:
    """What dse knows: chips, models, search spaces, prices and racks; every figure with its source.

    \b
    dse catalog chips list --vendor amd
    dse catalog models show deepseek-v3
    dse catalog prices list --chip h100_sxm --basis on_demand
    """


class _Chips(click.Group):
    """Imports the physics for `collectives` alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "collectives"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "collectives":
            return super().get_command(ctx, cmd_name)
        from dse.cli.signature import verb
        from dse.questions.collectives import SETTINGS, collectives

        example = "dse catalog chips collectives gb200_nvl72 --chips 64 --against b200_sxm"
        return verb(collectives, fields=SETTINGS, examples=(example,))


@command.group("chips", cls=_Chips)
def chips() -> None:
    """Chips, their systems and their prices; chip files of yours."""


@command.group("models")
def models() -> None:
    """Published model shapes, by id."""


@command.group("spaces")
def spaces() -> None:
    """Search spaces: those that come with the project, and files of yours."""


@command.group("prices")
def prices() -> None:
    """Prices of an hour of a chip."""


@command.group("racks")
def racks() -> None:
    """Racks, and what bounds the scale-up domain of each."""


Files = tuple[str, ...]


def _tell(as_json: bool, noun: str, question: str, *given: Any, **asked: Any) -> None:
    """Prints the answer of a question of `dse.questions.catalog`, which is read only now."""
    asks = getattr(import_module(f"dse.questions.catalog.{noun}"), question)
    deliver(asks(*given, **asked), out=None, as_json=as_json)


@chips.command("list")
@click.option("--vendor", help="Chips of one vendor only.")
@click.option("--family", help="Chips of one family only, such as hopper or tpu.")
@click.option(
    "--sort",
    metavar="COLUMN",
    help="By one of id, vendor, family, year, memory, bandwidth, bf16, fp8, domain, link, price, "
    "efficiency.",
)
@click.option("--missing", is_flag=True, help="Which figures each chip lacks, instead.")
@chip_files_option
@efficiency_option
@json_option
def list_chips(chip_files: Files, as_json: bool, **asked: Any) -> None:
    """Every chip id with its main figures."""
    _tell(as_json, "chips", "list_chips", read_catalog(chip_files), **asked)


@chips.command("show")
@click.argument("chip")
@chip_files_option
@efficiency_option
@price_options
@json_option
def show_chip(chip: str, chip_files: Files, as_json: bool) -> None:
    """Every figure of a chip with its source, date and kind. CHIP is an id, or the path of a chip
    file."""
    _tell(as_json, "chips", "show_chip", read_catalog(chip_files), chip)


@chips.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@efficiency_option
@json_option
def check_chip(file: Path, as_json: bool) -> None:
    """Read a chip file of yours and explain every mistake with its line and field."""
    _tell(as_json, "chips", "check_chip", read_catalog(), file)


@chips.command("new")
@click.argument("chip")
def new_chip(chip: str) -> None:
    """Write a commented chip file to fill in: dse catalog chips new my_chip > my_chip.yaml"""
    from dse.questions.catalog.chips import new_chip

    click.echo(new_chip(read_catalog(), chip), nl=False)


@chips.command("derive")
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
    dse catalog chips derive --from h200_sxm --set hbm_bandwidth=1.5x --set tdp=900W --out fast.yaml
    dse estimate --model llama-3-70b --chip ./fast.yaml --tp 8
    dse estimate --model llama-3-70b --chip h200_sxm --set hbm_bandwidth=1.5x --tp 8

    NAME is a figure of a chip file or hbm_bandwidth, capacity, flops (every peak), tdp, link
    (scale-up, per chip and direction), domain, link_latency, jitter, topology,
    scale_out_bandwidth, price.BASIS. Laws and prices are those of the parent unless set.
    """
    from dse.questions.catalog.chips import derive_chip

    made = derive_chip(read_catalog(chip_files), parent, settings, name, out)
    if isinstance(made, str):
        click.echo(made, nl=False)
    else:
        deliver(made, out=None, as_json=False)


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """Every model id with its size."""
    _tell(as_json, "models", "list_models")


@models.command("show")
@click.argument("model")
@json_option
def show_model(model: str, as_json: bool) -> None:
    """One model, by id or by the path of a config.json."""
    _tell(as_json, "models", "show_model", model)


@spaces.command("list")
@json_option
def list_spaces(as_json: bool) -> None:
    """Every shipped space with its size."""
    _tell(as_json, "spaces", "list_spaces", space_catalog)


@spaces.command("show")
@click.argument("space")
@json_option
def show_space(space: str, as_json: bool) -> None:
    """Axes, size, objectives and constraints of a space; its mistakes in plain words."""
    _tell(as_json, "spaces", "show_space", space, space_catalog(space))


@spaces.command("check")
@click.argument("space")
@json_option
def check_space(space: str, as_json: bool) -> None:
    """Say whether a space file is well-formed; exit code 2 and every mistake if not."""
    _tell(as_json, "spaces", "check_space", space, space_catalog(space))


@prices.command("list")
@click.option(
    "--chip", "chips", multiple=True, metavar="CHIP", help="Of one chip; may be repeated."
)
@click.option("--basis", metavar="BASIS", help="On one basis only.")
@click.option(
    "--since", metavar="DATE", help="Only what changed since then: by prices known then, and now."
)
@chip_files_option
@price_options
@json_option
def list_prices(chip_files: Files, as_json: bool, **asked: Any) -> None:
    """Every price of an hour, oldest first, and what each chip costs by them.

    \b
    dse catalog prices list --chip h100_sxm --basis on_demand
    dse catalog prices list --basis on_demand --as-of 2026-06
    dse catalog prices list --basis owned_tco --costs my_costs.yaml
    dse catalog prices list --since 2026-Q2

    A chip with several prices on a basis costs their median, of a provider the newest; a row that
    another has superseded is listed and not counted. Computed prices are shown by parts with what
    they rest on, those of a chip asked for by name input by input.
    """
    _tell(as_json, "prices", "list_prices", read_catalog(chip_files), **asked)


@prices.command("show")
@click.argument("chip")
@chip_files_option
@price_options
@json_option
def show_prices(chip: str, chip_files: Files, as_json: bool) -> None:
    """What CHIP costs by commitment: spot, on demand, one year, three years, owned, as far as there
    are quotes, each with how many, how far apart, of when, and what to check.

    \b
    dse catalog prices show h100_sxm
    """
    _tell(as_json, "prices", "show_prices", read_catalog(chip_files), chip)


@racks.command("list")
@json_option
def list_racks(as_json: bool) -> None:
    """Every rack with its domain and where it ends."""
    _tell(as_json, "racks", "list_racks")


@racks.command("show")
@click.argument("rack")
@json_option
def show_rack(rack: str, as_json: bool) -> None:
    """What bounds the domain of a rack, and every figure with its source. RACK is an id, or the
    path of a rack file."""
    _tell(as_json, "racks", "show_rack", rack)
