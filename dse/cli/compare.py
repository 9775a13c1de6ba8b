"""dse compare: two studies, dates, plans or chips side by side; a space and a published model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    Sectioned,
    json_option,
    law_option,
    out_option,
    own_price_options,
    read_catalog,
    refuse,
)
from dse.cli.point import OF_POINT, POINT_FLAGS, check_load, point_options
from dse.cli.printing import Progress, deliver

FIGURES = ("settings", "price_basis", "chip_files")  # of chips without a model


@click.command("compare", cls=Sectioned, sections=OF_POINT, brief=OF_POINT)
@click.argument("what", nargs=-1, required=True, metavar="A [B ...]")
@click.option(
    "--as-of",
    "dates",
    multiple=True,
    metavar="DATE",
    help="Shipped prices as they were known then. Of a SPACE, given twice: two studies of it.",
)
@click.option(
    "--by", metavar="chip", help="Of a SPACE of several chips: one shape for all of them."
)
@click.option("--merge", is_flag=True, help="Two studies, too, as one front, like three or more.")
@law_option("Quality law that predicts the loss; else that of the space.")
@partial(point_options, prices=own_price_options)
@out_option("compare")
@json_option
def command(
    what: tuple[str, ...],
    dates: tuple[str, ...],
    by: str | None,
    merge: bool,
    law: str | None,
    out: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """What differs between two of anything: studies, dates, fleets, chips, a published model.

    \b
    dse compare studies/june studies/now --out changes           two studies
    dse compare studies/gpu studies/tpu studies/wafer            several studies as one front
    dse compare fleets/june fleets/now                           two fleets
    dse compare dense-70b-billion-tokens my-plan.yaml            two plans: what each buys
    dse compare quickstart --as-of 2026-06 --as-of 2026-11       a SPACE at two dates
    dse compare h200_sxm b200_sxm mi355x                         chips: figures and prices
    dse compare h200_sxm b200_sxm --model deepseek-v3 --tp 8     and a model on each
    dse compare h200_sxm --set hbm_bandwidth=2x                  a chip and a hypothetical one
    dse compare basket-h200-tpu-trn2 --by chip                   one shape for several chips
    dse compare rediscovery/llama-3-70b                          a published model and the front
    dse compare rediscovery                                      all shipped cases, a line each
    dse compare my-space.yaml llama-3-8b                         a SPACE or STUDY and a model

    Studies and fleets are folders that `dse run` or `dse fleet --out` wrote. Both studies have one
    price basis. entered and left are points of B and A that the other does not have.

    CHIP is an id or the path of a chip file; the options of a point (--tp, --concurrency, ...) go
    with --model. rediscovery/NAME is a shipped case, and a file of the same kind one of yours: a
    published model, the SPACE that it is held against, and what was known when it was designed.
    Exit code 3: nothing is feasible.
    """
    from dse.questions.compare.compare import SAID, compare, kind_of

    catalog = read_catalog(flags["chip_files"])
    kind = kind_of(what, dates, by, catalog, merge)
    given = {}
    if kind == "chips":
        refuse(["chip"], "chips that are compared, which are arguments")
        if flags["model"] is None:
            asked = [*(name for name in POINT_FLAGS if name not in FIGURES), "law"]
            refuse(asked, "a comparison of figures: it takes --model")
        check_load(flags)
        given = {name: flags[name] for name in flags if name not in ("chip", "chip_files")}
    else:
        refuse(POINT_FLAGS, SAID[kind])
    answer = compare(
        *what,
        as_of=dates,
        by=by,
        law=law,
        merge=merge,
        out=out,
        catalog=catalog,
        progress=Progress(),
        **given,
    )
    deliver(answer, out=out, as_json=as_json)
