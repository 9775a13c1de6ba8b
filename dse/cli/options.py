"""Options and printing that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document, no text.")

_POINT_OPTIONS = (
    click.option("--model", help="Catalog id, or the path of a config.json."),
    click.option("--chip", help="Chip id (dse hardware list)."),
    click.option("--tp", type=click.IntRange(1), default=1, help="Tensor parallelism."),
    click.option("--pp", type=click.IntRange(1), default=1, help="Pipeline stages."),
    click.option("--dp", type=click.IntRange(1), default=1, help="Attention data parallelism."),
    click.option("--ep", type=click.IntRange(1), default=1, help="Expert parallelism."),
    click.option("--replicas", type=click.IntRange(1), default=1, help="Independent instances."),
    click.option("--weight-dtype", help="bf16, fp8, int8, int4, nvfp4 or mxfp4."),
    click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says."),
    click.option("--prompt-tokens", type=click.FloatRange(1), default=2048, help="Prompt length."),
    click.option("--output-tokens", type=click.FloatRange(1), default=512, help="Output length."),
    click.option(
        "--concurrency", type=click.FloatRange(1), default=32, help="Requests in flight, all chips."
    ),
    click.option(
        "--serving",
        type=click.Choice(["continuous", "static", "offline"]),
        default="continuous",
        help="Closed loop with continuous batching, one fixed batch, or everything queued.",
    ),
    click.option("--backend", default="generic", help="Serving software (hardware/backends)."),
    click.option("--price-basis", default="rental_3yr", help="Basis of prices.csv."),
    click.option("--training-tokens", help="Tokens the model was trained on, such as 15T."),
    click.option(
        "--chip-file", "chip_files", multiple=True, type=click.Path(), help="A chip file of yours."
    ),
)  # fmt: skip


def point_options(function: F) -> F:
    """The flags that describe one point."""
    for option in reversed(_POINT_OPTIONS):
        function = option(function)
    return function


def estimate_flags(flags: dict[str, Any], *, keep: bool = False):
    """The estimate that the flags of `point_options` ask for."""
    from dataclasses import replace

    from dse import units
    from dse.dtypes import ALIASES, DTYPES
    from dse.errors import InputError
    from dse.perf.workload import Workload
    from dse.specs.backend import find_backend
    from dse.specs.catalog import load_catalog
    from dse.specs.model_catalog import resolve_model
    from dse.study.estimate import estimate

    for needed in ("model", "chip"):
        if not flags[needed]:
            raise InputError(f"--{needed} is missing", accepted=f"dse {needed_list(needed)}")
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
    catalog = load_catalog(extra_chip_files=flags["chip_files"])
    model = resolve_model(flags["model"])
    if flags["training_tokens"]:
        tokens = units.parse(flags["training_tokens"], "tokens", field="--training-tokens")
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
        flags["chip"],
        workload,
        deployment,
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        price_basis=flags["price_basis"],
        keep=keep,
    )


def needed_list(what: str) -> str:
    return {"model": "models list", "chip": "hardware list"}[what]


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """A plain table within 100 columns; columns in `right` are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for k, title in enumerate(header):
        table.add_column(title, justify="right" if k in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def console():
    """Standard output, at most 100 columns wide."""
    import shutil

    from rich.console import Console

    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    return Console(width=width, highlight=False, markup=False, soft_wrap=False)
