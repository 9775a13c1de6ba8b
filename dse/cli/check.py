"""dse check: a shape on a chip: what refuses it, what it wastes, shapes near it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    LOAD,
    chip_option,
    degree_options,
    json_option,
    named_model,
    options,
    out_option,
    read_catalog,
)
from dse.cli.printing import deliver


@click.command("check")
@click.argument("config", required=False)
@click.option("--model", "option", metavar="MODEL", help="The same as the argument.")
@chip_option
@options(degree_options)
@click.option(
    "--weight-dtype",
    help="bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4, q4_0, q4_k_m, q8_0; else "
    "the model's.",
)
@click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says.")
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--concurrency", type=LOAD, default=32, help="Requests in a decode step.")
@click.option("--training-tokens", help="Tokens the model was trained on, such as 15T.")
@out_option("check")
@json_option
def command(
    config: str | None, option: str | None, out: Path | None, as_json: bool, **flags: Any
) -> None:
    """What software refuses of a shape, what the shape wastes, and which shapes near it do better.

    \b
    dse check qwen2.5-7b --chip h200_sxm --tp 8
    dse check path/to/config.json --chip mi300x --tp 4
    dse check qwen3-30b-a3b --chip h100_sxm --tp 4 --weight-dtype fp8_block

    CONFIG (or --model) is a config.json or its folder, or a catalog id (dse catalog models list). A
    shape that all software refuses is an answer too: "ok": false, exit code 0.
    """
    from dse.questions.check.ask import check

    model = named_model(config, option, "CONFIG")
    answer = check(model, **flags, catalog=read_catalog())
    deliver(answer, out=out, as_json=as_json)
