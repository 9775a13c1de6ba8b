"""dse train: training: the best parallelism on given chips, memory, days, dollars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    DEGREE,
    Between,
    Whole,
    efficiency_option,
    json_option,
    named_model,
    out_option,
    price_options,
    read_catalog,
)
from dse.cli.printing import deliver


@click.command("train")
@click.argument("model", required=False)
@click.option("--model", "option", metavar="MODEL", help="The same as the argument.")
@click.option("--chip", required=True, help="Chip id (dse catalog chips list), or a chip file.")
@click.option("--chips", type=Whole(1, 10_000_000), required=True, help="Chips in all.")
@click.option("--tokens", help="Tokens to train on, such as 15.6T; else the model's own.")
@click.option("--sequence-length", type=Whole(1, 10**8), default=8192, help="Of a sequence.")
@click.option("--global-batch-tokens", help="Tokens of a step, such as 16M; else 2,048 sequences.")
@click.option("--precision", default="bf16", help="bf16, fp8, fp8_block, mxfp8, nvfp4 or int8.")
@click.option("--task", default="pretrain", help="pretrain, sft or lora.")
@click.option("--lora-rank", type=Whole(1, 1_000_000), default=16, help="With --task lora.")
@click.option("--optimizer", default="adam_fp32", help="adam_fp32, adam_bf16 or adam_8bit.")
@click.option("--recompute", help="none, selective, mlp, moe or full; else searched.")
@click.option("--zero", type=Whole(0, 3), help="ZeRO stage, 3 is FSDP; else 1 and 3 are searched.")
@click.option("--tp", type=DEGREE, help="Tensor parallelism; else searched, as all degrees.")
@click.option("--pp", type=DEGREE, help="Pipeline stages.")
@click.option("--cp", type=DEGREE, help="Context parallelism.")
@click.option("--ep", type=DEGREE, help="Expert parallelism.")
@click.option("--vpp", type=DEGREE, help="Virtual stages, chunks of layers a stage.")
@click.option("--micro-batch", type=DEGREE, help="Sequences of a micro-batch.")
@click.option("--schedule", help="1f1b, interleaved, zero_bubble or dualpipe; else by --vpp.")
@click.option(
    "--offload", type=Between(0.0, 1.0), default=0.0, help="Share of optimizer states in the host."
)
@click.option("--stack", default="generic", help="Training software (hardware/training).")
@click.option("--mtbf-chip-hours", type=Between(1e-3, 1e12), help="Between interruptions.")
@click.option("--restart", metavar="TIME", help="From an interruption to the next step: 10min.")
@click.option("--checkpoint-bandwidth", help="Of the whole storage, such as 2TB/s.")
@click.option("--checkpoint-interval", metavar="TIME", help="Else the best one.")
@click.option(
    "--straggler", type=Between(0.0, 10.0), help="Mean delay of a rank, a share of the step."
)
@click.option("--input-tokens-per-s", help="That the input pipeline delivers, such as 20M.")
@click.option("--sites", type=Whole(1, 1000), default=1, help="Data centres that share the chips.")
@click.option("--site-bandwidth", help="Of each site to the others, one way: 400Gb/s.")
@click.option("--site-latency", default="0 s", help="From site to site.")
@click.option("--site-split", default="data", help="What lies apart: data or pipeline ranks.")
@click.option(
    "--local-steps",
    type=Whole(1, 1_000_000),
    default=1,
    help="Steps between two exchanges of sites (DiLoCo).",
)
@click.option(
    "--price-basis", default="rental_3yr", help="Basis of hardware/prices.csv, or owned_tco."
)
@click.option(
    "--memory",
    "only_memory",
    is_flag=True,
    help="Only the memory, of the model whole and of a chip.",
)
@click.option("--observed-mfu", help="That a run reached, such as 11%: its likely causes.")
@efficiency_option
@price_options
@out_option("train")
@json_option
def command(
    model: str | None, option: str | None, out: Path | None, as_json: bool, **flags: Any
) -> None:
    """Train MODEL, a catalog id or the path of a config.json, on given chips.

    \b
    dse train llama-3.1-405b --chip h100_sxm --chips 16384 --tokens 15.6T
    dse train llama-3-70b --chip h200_sxm --chips 512 --memory
    dse train deepseek-v3 --chip h800_sxm --chips 2048 --tokens 14.8T --precision fp8_block
    dse train llama-3-70b --chip h100_sxm --chips 2048 --observed-mfu 11%

    Evaluates every way to divide the run over the chips that a framework would accept, and shows
    the fastest that fits: memory, step time with every loss named, days, dollars, energy.
    """
    from dse.questions.train.ask import train

    model = named_model(model, option)
    answer = train(model, catalog=read_catalog(), **flags)
    deliver(answer, out=out, as_json=as_json)
