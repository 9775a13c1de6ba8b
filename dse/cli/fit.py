"""dse hardware fit: how many chips a model needs."""

from __future__ import annotations

import sys
from typing import Any

import click

from dse.cli.options import DEGREE, LOAD, Between, json_option, read_catalog
from dse.cli.printing import print_json, print_rests, print_table, say

NOTHING = 3  # exit code of a search with nothing feasible (`dse.errors.NothingFeasible`)


@click.command("fit")
@click.argument("chip")
@click.option("--model", required=True, help="Catalog id, or the path of a config.json.")
@click.option("--weight-dtype", help="bf16, fp8, int8, int4, nvfp4, mxfp4; else the model's.")
@click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says.")
@click.option("--prompt-tokens", type=LOAD, default=1536, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--concurrency", type=LOAD, default=1, help="Requests that must fit at once.")
@click.option("--weights-offload", type=Between(0.0, 1.0), help="Share of the weights in a tier.")
@click.option("--kv-offload", type=Between(0.0, 1.0), help="Share of the KV cache in a tier.")
@click.option("--offload-tier", metavar="TIER", help="host, flash, or a second memory of the chip.")
@click.option("--backend", help="Serving software; generic unless the chip names its own.")
@click.option("--most-chips", type=DEGREE, default=16_384, help="The largest instance tried.")
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@json_option
def command(chip: str, as_json: bool, **flags: Any) -> None:
    """The fewest chips that hold a model, and what more of them bring.

    \b
    dse hardware fit groq_lpu_v1 --model llama-3-70b --weight-dtype int8
    dse hardware fit wse3 --model gpt-neox-20b

    CHIP is an id, or the path of a chip file. All splits of one instance are tried: tensor
    parallelism by the heads, stages of whole layers, experts over data-parallel groups.
    """
    from dse.physics.workload import Workload
    from dse.questions.estimate.ask import known_dtypes, offload_of
    from dse.questions.estimate.fit import fit
    from dse.schema.backend import find_backend
    from dse.schema.model_catalog import resolve_model

    known_dtypes(flags)
    catalog, name = read_catalog(flags["chip_files"]).with_chip(chip)
    backend = find_backend(catalog.backends, flags["backend"] or catalog.chip(name).backend)
    lengths = flags["prompt_tokens"], flags["output_tokens"]
    answer = fit(
        catalog,
        resolve_model(flags["model"]),
        name,
        Workload.of(*lengths, "continuous", backend),
        concurrency=flags["concurrency"],
        most_chips=flags["most_chips"],
        weight_dtype=flags["weight_dtype"],
        kv_dtype=flags["kv_dtype"],
        offload=offload_of(flags, catalog, name),
    )
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    if not answer["fits"]:
        sys.exit(NOTHING)


def _print(answer: dict[str, Any]) -> None:
    from dse.questions.estimate.fit_words import heading, remarks, rows

    for line in heading(answer):
        say(line)
    if answer["fits"]:
        titles, table = rows(answer)
        print_table(titles, table, right=range(len(titles)))
    for line in remarks(answer):
        say(line, "  ")
    print_rests(answer["assumed"])
