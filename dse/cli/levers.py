"""dse levers: what each figure of a chip does for training and for serving."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import LOAD, Whole, json_option, out_option, price_options, read_catalog
from dse.cli.printing import Progress, deliver


@click.command("levers")
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option("--chip", default="h100_sxm", help="Chip id, or the path of a chip file.")
@click.option("--chips", type=Whole(1, 1_000_000), default=1024, help="That train each MODEL.")
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--tpot-limit", default="50ms", help="Longest time per output token under load.")
@click.option("--price-basis", default="rental_3yr", help="Basis of hardware/prices.csv.")
@price_options
@out_option("levers")
@json_option
def command(chip: str, out: str | None, as_json: bool, **asked: Any) -> None:
    """Twice the FLOP/s, bandwidth, capacity, link and power of a chip: how much shorter training, a
    token of one user and a served token become, and what that may cost.

    \b
    dse levers                          four models on an H100: small, large, dense, sparse
    dse levers llama-3-70b --chip mi300x --chips 2048
    dse levers --chip b200_sxm --out levers
    """
    from dse.questions.levers.ask import levers

    catalog = read_catalog()
    answer = levers(chip, **asked, catalog=catalog, progress=Progress())
    deliver(answer, out=out, as_json=as_json)
