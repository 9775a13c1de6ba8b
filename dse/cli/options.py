"""Options that several verbs share, and the values that they take."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

TERMS = "dse.catalog"  # of the command, in the context: what `dse.load_catalog` takes
if TYPE_CHECKING:
    from dse.catalog import Catalog

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document, no text.")


model_option = click.option(
    "--model", help="Catalog id (dse catalog models list), or the path of a config.json."
)
chip_option = click.option(
    "--chip", help="Chip id (dse catalog chips list), or the path of a chip file."
)
chip_files_option = click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)


def named_model(argument: str | None, option: str | None, name: str = "MODEL") -> str:
    """The model of a verb that takes it as an argument or as --model. Raises InputError where
    neither is given, or both."""
    from dse.errors import InputError

    if argument and option:
        raise InputError(f"read {argument!r} and --model {option}", accepted="one of the two")
    if not (found := argument or option):
        raise InputError(
            f"{name} is missing",
            accepted="a catalog id (dse catalog models list), or the path of a config.json",
        )
    return found


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


def out_option(stem: str) -> Callable[[F], F]:
    """--out DIR of a verb that writes STEM in every format of `Answer.write`."""

    def given(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
        if value == "":
            from dse.errors import InputError

            raise InputError("--out is empty", accepted="a folder")
        return None if value is None else Path(value)

    text = f"Write {stem}.html, .md, .json, .csv, .xlsx there."
    return click.option("--out", metavar="DIR", callback=given, help=text)


def law_option(text: str) -> Callable[[F], F]:
    """--law NAME."""
    return click.option("--law", metavar="NAME", help=text)


loss_runs_option = click.option(
    "--loss-runs",
    metavar="FILE",
    help="Training runs of yours, to which the quality law is moved (docs/quality.md).",
)


DEGREE, LOAD = Whole(1, 100_000), Whole(1, 100_000_000)
degree_options = (
    click.option("--tp", type=DEGREE, default=1, help="Tensor parallelism."),
    click.option("--pp", type=DEGREE, default=1, help="Pipeline stages."),
    click.option("--dp", type=DEGREE, default=1, help="Attention data parallelism."),
    click.option("--ep", type=DEGREE, default=1, help="Expert parallelism."),
)


class Several(click.ParamType):
    """Values of a kind with commas between, or one: a tuple."""

    def __init__(self, kind: click.ParamType) -> None:
        self.kind, self.name = kind, f"{kind.name},.."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Any, ...]:
        words = [word.strip() for word in str(value).split(",")]
        return tuple(self.kind.convert(word, param, ctx) for word in words if word)


# How a model is deployed and served, alike in every verb. Names are those of
# `dse.schema.workloads`, and of a space and a plan (`dse.schema.axes.AXES`,
# `dse.schema.workloads.SERVED`).
_CHOICES: tuple[tuple[str, click.ParamType, str], ...] = (
    ("--redundant-experts", Whole(0, 100_000), "Copies of busy experts a layer, on all ranks."),
    (
        "--weight-dtype",
        click.STRING,
        "bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4, q4_0, q4_k_m, q8_0; else "
        "the model's.",
    ),
    ("--kv-dtype", click.STRING, "Of the KV cache; bf16 unless the checkpoint says."),
    ("--draft-tokens", Whole(0, 64), "Drafted a step (speculative); 0: none."),
)
_SERVED: tuple[tuple[str, click.ParamType, str], ...] = (
    ("--acceptance", Between(0.0, 1.0), "Share of drafts accepted; else as published."),
    ("--prefix-hit-rate", Between(0.0, 0.999), "Share of prompt tokens in the cache."),
    (
        "--network-overlap",
        Between(0.0, 1.0),
        "Share of the shorter of network and device time that hides behind the other; else what "
        "the backend does.",
    ),
    ("--max-running-requests", Whole(1, 10**6), "At once on an attention rank; else its cap."),
    ("--backend", click.STRING, "Serving software; else the chip's own, or current."),
    ("--tuning", click.Choice(("tuned", "stock")), "How it is launched; else tuned."),
)
_PREFILL: tuple[tuple[str, click.ParamType, str], ...] = (
    ("--prefill-chip", click.STRING, "Chip of the prefill pool; else that of decode."),
    ("--prefill-tp", DEGREE, "Its tensor parallelism."),
    ("--prefill-pp", DEGREE, "Its pipeline stages; else those of decode."),
    ("--prefill-dp", DEGREE, "Its attention data parallelism."),
    ("--prefill-ep", DEGREE, "Its expert parallelism."),
)
disaggregated_option = click.option(
    "--disaggregated", is_flag=True, help="Prefill and decode on pools of their own, too."
)


def _made(
    rows: Iterable[tuple[str, click.ParamType, str]], *, several: bool = False
) -> tuple[Callable[[F], F], ...]:
    return tuple(
        click.option(name, type=Several(kind) if several else kind, help=text)
        for name, kind, text in rows
    )


def deployed_options(*, several: bool = False) -> tuple[Callable[[F], F], ...]:
    """The options of how a model is deployed and served; formats, drafts and copies take `several`
    values where the verb chooses among them."""
    return (*_made(_CHOICES, several=several), *_made(_SERVED))


prefill_options = _made(_PREFILL)
pooled_options = (disaggregated_option, *prefill_options)
DEPLOYED = tuple(
    name.removeprefix("--").replace("-", "_") for name, _, _ in (*_CHOICES, *_SERVED, *_PREFILL)
)
# The title of these in the help of a verb that has no more to say of them.
AS_ESTIMATE = "Deployment, as in dse estimate --help (one or several where it ends in ..)"


class Sectioned(click.Command):
    """A verb whose help has `sections`, names of parameters by title; of those of `brief`, which
    another verb's help tells, it has the names alone."""

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Iterable[str]],
        brief: Iterable[str] = (),
        **attrs: Any,
    ) -> None:
        super().__init__(*args, **attrs)
        self.sections, self.brief = {"Options": (), **sections}, frozenset(brief)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        place = {name: title for title, names in self.sections.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in self.sections}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                found[place.get(str(param.name), "Options")].append(record)
        for title, records in found.items():
            with formatter.section(title):
                if title in self.brief:
                    names = ", ".join(name.replace(" ", "\xa0") for name, _ in records)
                    room = formatter.width - formatter.current_indent
                    for line in textwrap.wrap(names, room, break_on_hyphens=False):
                        formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                else:
                    formatter.write_dl(records)


def options(every: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    """All of them as one decorator."""

    def given(function: F) -> F:
        for option in reversed(every):
            function = option(function)
        return function

    return given


def _of_catalog(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value or value == "":
        ctx.meta.setdefault(TERMS, {})[str(param.name)] = value
    return value


def read_catalog(chip_files: Iterable[str] = ()) -> Catalog:
    """The catalog of the command: what its price and efficiency options say, and chip files."""
    from dse.catalog import load_catalog

    terms = click.get_current_context().meta.get(TERMS, {})
    return load_catalog(chips=tuple(chip_files), **terms)


def space_catalog(space: str | Path) -> Catalog:
    """The same with the chip files that a space names, whose prices the command may give."""
    from dse.schema.study import chip_files_of

    return read_catalog(chip_files_of(space))


def _catalog_option(*names: str, help: str, metavar: str = "FILE", multiple: bool = True) -> Any:
    """An option that `read_catalog` reads."""
    return click.option(
        *names,
        multiple=multiple,
        metavar=metavar,
        callback=_of_catalog,
        expose_value=False,
        is_eager=True,
        help=help,
    )


_PRICE_OPTIONS = (
    _catalog_option(
        "--prices",
        help="Prices of yours, like hardware/prices.csv.",
    ),
    _catalog_option(
        "--as-of",
        metavar="DATE",
        multiple=False,
        help="Shipped prices known then: 2026-Q2, 2026-06-30.",
    ),
    _catalog_option(
        "--costs",
        multiple=False,
        help="What owning costs you (docs/costs.md); of owned_tco.",
    ),
)


def price_options(function: F) -> F:
    """--prices, --as-of and --costs, of which `read_catalog` makes the catalog."""
    return options(_PRICE_OPTIONS)(function)


def own_price_options(function: F) -> F:
    """--prices and --costs alone, of a command for which --as-of says more."""
    prices, _, costs = _PRICE_OPTIONS
    return prices(costs(function))


efficiency_option = _catalog_option(
    "--efficiency-file",
    "efficiency",
    help="Kernel laws of the chip by dse calibrate.",
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
