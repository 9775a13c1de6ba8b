"""dse fleet: what to buy or rent for a plan of demand, quarter by quarter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    AS_ESTIMATE,
    DEPLOYED,
    LOAD,
    Between,
    NoModel,
    Sectioned,
    Whole,
    chip_files_option,
    deployed_options,
    json_option,
    options,
    out_option,
    pooled_options,
    price_options,
    read_catalog,
    refuse,
)
from dse.cli.printing import Progress, deliver, write

STEADY = "steady"


@click.command("fleet", cls=Sectioned, sections={AS_ESTIMATE: DEPLOYED}, brief=(AS_ESTIMATE,))
@click.argument("plan", required=False, type=NoModel())
@click.option("--model", help="Without a plan: a catalog id, or the path of a config.json.")
@click.option(
    "--chip", multiple=True, metavar="CHIPS", help="Ids or files of chips to choose from, or all."
)
@click.option("--trace", metavar="FILE", help="CSV of requests: time (s), prompt, output [cached].")
@click.option(
    "--requests-per-second", type=Between(1e-6, 1e9), help="Mean requests, in place of a trace."
)
@click.option("--demand", metavar="RATE", help="Mean tokens, prompt and output, such as 1B/day.")
@click.option(
    "--peak-over-average",
    type=Between(1.0, 1000.0),
    default=1.0,
    help="Peak over the mean, of --requests-per-second or --demand.",
)
@click.option("--prompt-tokens", type=LOAD, help="Prompt length, where no trace says it.")
@click.option("--output-tokens", type=LOAD, help="Output length, where no trace says it.")
@click.option("--ttft-limit", default="2s", help="Longest time to first token.")
@click.option("--tpot-limit", default="50ms", help="Longest time per output token.")
@click.option(
    "--percentile",
    type=click.Choice(["50", "90", "99", STEADY]),
    default="90",
    help="Percent of first tokens in time, of requests that come at random; steady: the median of "
    "an even load.",
)
@click.option("--window", default="60s", help="Arrivals of a trace are counted in such windows.")
@click.option(
    "--windows",
    type=Between(0.0, 1.0),
    default=1.0,
    help="Share of the windows that the fleet is large enough for; 1 is the busiest.",
)
@click.option(
    "--lengths",
    type=Whole(1, 32),
    help="Groups of prompt lengths of a trace, with two of output lengths in each; 1, 4 and 8 for "
    "the median, the 90th and the 99th percentile if left out.",
)
@options((*deployed_options(several=True), *pooled_options))
@click.option(
    "--largest-instance", type=Whole(1, 1024), default=16, help="Most chips of one instance."
)
@click.option(
    "--price-basis",
    default="rental_3yr",
    help="Basis of hardware/prices.csv, or owned_tco: chips are bought.",
)
@chip_files_option
@click.option(
    "--service-level", metavar="PERCENT", help="Order now what serves that share of futures: 80%."
)
@click.option("--seed", type=Whole(0, 2**31), default=0, help="Of the futures that are drawn.")
@click.option("--show", is_flag=True, help="Print the plan's file, a start for one of yours.")
@out_option("fleet")
@price_options
@json_option
def command(
    plan: str | None,
    chip_files: tuple[str, ...],
    show: bool,
    out: Path | None,
    as_json: bool,
    percentile: str,
    service_level: str | None,
    seed: int,
    **flags: Any,
) -> None:
    """The cheapest mix of chips for a plan: what to buy or rent, how much of it, and when.

    \b
    dse fleet dense-70b-billion-tokens
    dse fleet deepseek-v3-two-megawatts --out fleet
    dse fleet a100-owner-grows --service-level 80%
    dse fleet dense-70b-billion-tokens --show > plan.yaml
    dse fleet --model llama-3-70b --chip h100_sxm,mi300x --trace requests.csv --percentile 99
    dse fleet --model llama-3-8b --chip all --demand 1B/day --prompt-tokens 2048 --output-tokens 512

    PLAN is a shipped plan or the path of a file: demand by class, the chips on offer, what is owned
    already, and limits (docs/fleet.md). Without one, the other options make a plan of one quarter.
    Exit code 3: nothing keeps the plan; the answer says what must change.
    """
    from dse.errors import NothingFeasible
    from dse.questions.fleet.ask import fleet
    from dse.schema.plan_reader import find_plan, load_plan

    catalog = read_catalog(chip_files)
    if plan is not None:
        refuse({"percentile", *flags}, "a plan, which says it")
        flags = {}
    else:
        flags["percentile"] = None if percentile == STEADY else int(percentile)
        refuse(["show"], "a plan that is made from options")
    if show and plan is not None:
        from dse.files import read_bytes, text_of

        refuse(["out", "as_json", "service_level"], "--show, which prints the plan's file alone")
        read = load_plan(find_plan(plan), catalog)
        click.echo(text_of(read_bytes(read.file), read.file), nl=False)
        return
    flags |= {"service_level": service_level, "seed": seed}
    found = fleet(plan, catalog=catalog, progress=Progress(), **flags)
    feasible = found.document["feasible"]
    if feasible or as_json:
        deliver(found, out=out, as_json=as_json)
    elif out is not None:
        write(found, out)
    if not feasible:
        raise NothingFeasible("\n".join((found.headline, *found.sentences)))
