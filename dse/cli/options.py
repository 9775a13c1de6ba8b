"""Options and printing that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document, no text.")


class Whole(click.ParamType):
    """A whole number from `least` to `most`."""

    name = "N"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            number = int(value)
        except (ValueError, OverflowError):
            number = self.least - 1
        if not self.least <= number <= self.most:
            self.fail(f"read {value!r} (accepted: {self.least:,} to {self.most:,})", param, ctx)
        return number


DEGREE, LOAD = Whole(1, 100_000), Whole(1, 100_000_000)

_POINT_OPTIONS = (
    click.option("--model", help="Catalog id, or the path of a config.json."),
    click.option("--chip", help="Chip id (dse hardware list), or the path of a chip file."),
    click.option("--tp", type=DEGREE, default=1, help="Tensor parallelism."),
    click.option("--pp", type=DEGREE, default=1, help="Pipeline stages."),
    click.option("--dp", type=DEGREE, default=1, help="Attention data parallelism."),
    click.option("--ep", type=DEGREE, default=1, help="Expert parallelism."),
    click.option("--replicas", type=DEGREE, default=1, help="Independent instances."),
    click.option("--weight-dtype", help="bf16, fp8, int8, int4, nvfp4, mxfp4; else the model's."),
    click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says."),
    click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length."),
    click.option("--output-tokens", type=LOAD, default=512, help="Output length."),
    click.option("--concurrency", type=LOAD, default=32, help="Requests in flight, all chips."),
    click.option(
        "--serving",
        metavar="KIND",
        type=click.Choice(["continuous", "static", "offline"]),
        default="continuous",
        help="continuous batching in a closed loop, static (one batch) or offline (all queued).",
    ),
    click.option("--backend", default="generic", help="Serving software (hardware/backends)."),
    click.option(
        "--price-basis", default="rental_3yr", help="Basis of hardware/prices.csv, or purchase."
    ),
    click.option("--training-tokens", help="Tokens the model was trained on, such as 15T."),
    click.option(
        "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
    ),
)
POINT_FLAGS = (
    "model", "chip", "tp", "pp", "dp", "ep", "replicas", "weight_dtype", "kv_dtype",
    "prompt_tokens", "output_tokens", "concurrency", "serving", "backend", "price_basis",
    "training_tokens", "chip_files",
)  # fmt: skip


def point_options(function: F) -> F:
    """The flags that describe one point."""
    for option in reversed(_POINT_OPTIONS):
        function = option(function)
    return function


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


def estimate_flags(flags: dict[str, Any], *, keep: bool = False):
    """The estimate that the flags of `point_options` ask for."""
    from dataclasses import replace

    from dse import units
    from dse.dtypes import ALIASES, DTYPES
    from dse.economics.ownership import with_purchase_prices
    from dse.errors import InputError
    from dse.perf.workload import Workload
    from dse.specs.backend import find_backend
    from dse.specs.catalog import chip_and_files, load_catalog
    from dse.specs.model_catalog import resolve_model
    from dse.specs.purchase import BASIS as PURCHASE
    from dse.specs.purchase import PurchaseTerms
    from dse.study.estimate import estimate

    for needed, listed in (("model", "models"), ("chip", "hardware")):
        if not flags[needed]:
            raise InputError(
                f"--{needed} is missing", accepted=f"an id that `dse {listed} list` prints"
            )
    for name in ("weight_dtype", "kv_dtype"):
        value = flags[name]
        if value is not None:
            value = ALIASES.get(value.lower(), value.lower())
            if value not in DTYPES:
                raise InputError(
                    f"unknown dtype {flags[name]!r}",
                    field=f"--{name.replace('_', '-')}",
                    accepted=", ".join(DTYPES),
                )
            flags[name] = value
    chip, chip_files = chip_and_files(flags["chip"], flags["chip_files"])
    catalog = load_catalog(extra_chip_files=chip_files)
    if flags["price_basis"] == PURCHASE:
        terms = PurchaseTerms(**(flags.get("purchase") or {}))
        catalog = with_purchase_prices(catalog, terms)
    model = resolve_model(flags["model"])
    if flags["training_tokens"]:
        tokens = units.parse(flags["training_tokens"], "tokens", field="--training-tokens")
        if not 1 <= tokens <= 1e18:
            raise InputError(
                f"read {flags['training_tokens']!r}",
                field="--training-tokens",
                accepted="1 to 1e18 tokens, such as 15T",
            )
        model = replace(model, training_tokens=tokens)
    workload = Workload.of(
        flags["prompt_tokens"],
        flags["output_tokens"],
        flags["serving"],
        find_backend(catalog.backends, flags["backend"]),
    )
    deployment = {
        "tensor_parallel": flags["tp"],
        "pipeline_parallel": flags["pp"],
        "data_parallel": flags["dp"],
        "expert_parallel": flags["ep"],
        "replicas": flags["replicas"],
        "concurrency": flags["concurrency"],
    }
    return estimate(
        catalog,
        model,
        chip,
        workload,
        deployment,
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        price_basis=flags["price_basis"],
        keep=keep,
    )


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def say(text: str, indent: str = "") -> None:
    """A sentence, wrapped at the console's width; further lines start with `indent`."""
    import textwrap

    lines = textwrap.wrap(
        text, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    click.echo("\n".join(lines))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """A plain table within the console's width; columns in `right` are right-aligned and stay on
    one line where half the width is enough for them."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    rows = list(rows)
    whole = sum(max(len(row[k]) for row in [header, *rows]) + 2 for k in right) <= width() // 2
    for k, title in enumerate(header):
        table.add_column(
            title,
            justify="right" if k in right else "left",
            overflow="fold",
            no_wrap=whole and k in right,
        )
    for row in rows:
        table.add_row(*row)
    console = Console(width=width(), highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    click.echo(f"\n{text}\n")


def width() -> int:
    """Columns of the console, at most 100."""
    import shutil

    return max(min(shutil.get_terminal_size((100, 24)).columns, 100), 40)
