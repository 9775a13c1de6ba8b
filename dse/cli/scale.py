"""dse scale: one large instance against many small ones."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import LOAD, Between, Whole, json_option, price_options, read_catalog
from dse.cli.printing import command_line, deliver
from dse.cli.progress import Progress

MOST_CHIPS = 4096


@click.command("scale")
@click.option("--model", help="Catalog id, or the path of a config.json.")
@click.option("--chip", help="Chip id (dse hardware list), or the path of a chip file.")
@click.option("--against", metavar="CHIP", help="A second chip, compared with the first.")
@click.option(
    "--chips-up-to",
    type=Whole(1, MOST_CHIPS),
    default=512,
    help="The largest instance to look at.",
)
@click.option(
    "--demand",
    type=Whole(1, 10_000_000),
    help="Chips in all, for replicas against one instance; else those of --chips-up-to.",
)
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--tpot-limit", default="50ms", help="Longest time per output token.")
@click.option("--ttft-limit", default="2s", help="Longest time to first token.")
@click.option(
    "--weight-dtype",
    help="bf16, fp8, fp8_block (128 x 128), int8, int4, nvfp4, mxfp4; else the model's.",
)
@click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says.")
@click.option(
    "--routing-skew",
    type=Between(0.0, 10.0),
    help="Spread of how often experts are chosen: standard deviation over mean; 0 is uniform.",
)
@click.option(
    "--requests-per-chip",
    type=Whole(1, 100_000),
    default=32,
    help="Requests that decode on each chip, for the table of experts.",
)
@click.option(
    "--jitter",
    "jitters",
    metavar="TIMES",
    default="0,1us,3us,10us,30us,100us,300us",
    help="Jitter of each member of a collective, several with commas between.",
)
@click.option(
    "--jitter-distribution",
    "distribution",
    type=click.Choice(["exponential", "normal", "pareto"]),
    default="exponential",
    help="Distribution of that jitter.",
)
@click.option(
    "--network-overlap",
    type=Between(0.0, 1.0),
    default=0.0,
    help="Share of the shorter of a step's network and other device time that is hidden.",
)
@click.option("--pipeline", is_flag=True, help="Also print one request over pipeline stages.")
@click.option("--backend", default="generic", help="Serving software (hardware/backends).")
@click.option(
    "--price-basis",
    default="rental_3yr",
    help="Basis of hardware/prices.csv, or owned_tco, which is computed.",
)
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@price_options
@click.option("--out", metavar="DIR", help="Write scale.html, .json, .csv and .xlsx there.")
@json_option
def command(as_json: bool, out: str | None, **flags: Any) -> None:
    """Scale up or scale out: how large one instance should be, and what stops it.

    \b
    dse scale --model llama-3-70b --chip h100_sxm
    dse scale --model deepseek-v3 --chip gb200_nvl72 --against b200_sxm --out scale
    dse scale --model llama-3-8b --chip h100_sxm --jitter 0,10us --pipeline --json

    For every size of an instance, all ways to divide it: the lowest time per output token of one
    user, and the lowest cost within the limits. The ceiling is the size past which twice the chips
    save less than 5% of the time. Exit code 3: the model fits no instance.
    """
    from dse.questions.scale.ask import scale

    catalog, command = read_catalog(flags.pop("chip_files")), command_line()
    answer = scale(**flags, catalog=catalog, command=command, progress=Progress())
    deliver(answer, out=out, as_json=as_json)
