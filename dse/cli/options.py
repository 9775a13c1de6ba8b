"""Options that several verbs share, and the values that they take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

TERMS = "dse.catalog"  # of the command, in the context: what `dse.load_catalog` takes
if TYPE_CHECKING:
    from dse.catalog import Catalog

json_option = click.Option(["--json", "as_json"], is_flag=True, help="One JSON document, no text.")
detail_option = click.Option(
    ["--detail"], is_flag=True, help="Print every table and what it rests on."
)
chip_files_option = click.Option(
    ["--chip-file", "chip_files"], multiple=True, metavar="FILE", help="A chip file of yours."
)


class NoModel(click.ParamType):
    """A study or a plan: in its place a model, which these verbs take as --model, is refused."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from dse.schema.model_catalog import load_models

        model = value.lower() in load_models() and not Path(value).exists()
        if model or Path(value).name == "config.json":
            self.fail(f"{value} is a model, which is given as --model {value}", param, ctx)
        return value


class Between(click.ParamType):
    """A number from `least` to `most`."""

    name, number, form = "X", float, "g"

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            number = self.number(value)
        except (ValueError, OverflowError):
            number = self.least - 1
        if not self.least <= number <= self.most:
            accepted = f"{self.least:{self.form}} to {self.most:{self.form}}"
            self.fail(f"read {value!r} (accepted: {accepted})", param, ctx)
        return number


class Whole(Between):
    """A whole number from `least` to `most`."""

    name, number, form = "N", int, ","


def out_option(stem: str) -> click.Option:
    """--out DIR of a verb that writes STEM in every format of `Answer.write`."""

    def given(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
        if value == "":
            from dse.errors import InputError

            raise InputError("--out is empty", accepted="a folder")
        return None if value is None else Path(value)

    text = f"Write {stem}.html, .md, .json, .csv, .xlsx there."
    return click.Option(["--out"], metavar="DIR", callback=given, help=text)


def _of_catalog(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value or value == "":
        ctx.meta.setdefault(TERMS, {})[str(param.name)] = value
    return value


def read_catalog(chip_files: Iterable[str] = ()) -> Catalog:
    """The catalog of the command: what its price and efficiency options say, and chip files."""
    from dse.catalog import load_catalog

    terms = click.get_current_context().meta.get(TERMS, {})
    return load_catalog(chips=tuple(chip_files), **terms)


def _catalog_option(*names: str, help: str, metavar: str = "FILE", multiple: bool = True) -> Any:
    """An option that `read_catalog` reads."""
    return click.Option(
        names,
        multiple=multiple,
        metavar=metavar,
        callback=_of_catalog,
        expose_value=False,
        is_eager=True,
        help=help,
    )


# Of which `read_catalog` makes the catalog; of some commands --as-of says more.
prices_option = _catalog_option("--prices", help="Prices of yours, like hardware/prices.csv.")
as_of_option = _catalog_option(
    "--as-of",
    metavar="DATE",
    multiple=False,
    help="Shipped prices known then: 2026-Q2, 2026-06-30.",
)
costs_option = _catalog_option(
    "--costs", multiple=False, help="What owning costs you (docs/costs.md); of owned_tco."
)
efficiency_option = _catalog_option(
    "--efficiency-file", "efficiency", help="Kernel laws of the chip by dse calibrate."
)


def refuse(names: Iterable[str], reason: str) -> None:
    """Raises InputError where the user gave one of the parameters `names`: nothing is ignored."""
    from dse.errors import InputError

    ctx = click.get_current_context()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
        if param.name in names and given:
            raise InputError(
                f"{param.opts[0]} does not go with {reason}", accepted="one of the two"
            )
