"""dse fleet: what to buy or rent for a plan of demand, quarter by quarter.

Examples:

    dse fleet dense-70b-billion-tokens
    dse fleet deepseek-v3-two-megawatts --out fleet
    dse fleet a100-owner-grows --service-level 80%
    dse fleet dense-70b-billion-tokens --show > plan.yaml
    dse fleet --model llama-3-70b --chip h100_sxm,mi300x --trace requests.csv --percentile 99
    dse fleet --model llama-3-8b --chip all --demand 1B/day --prompt-tokens 2048 --output-tokens 512
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import read_catalog, refuse
from dse.cli.printing import deliver, write
from dse.cli.signature import verb
from dse.questions.fleet.fleet import SETTINGS, fleet

if TYPE_CHECKING:
    from dse.answer.answer import Answer

WITH_PLAN = ("plan", "service_level", "seed", "show")  # other options make a plan


@wraps(fleet)
def answered(show: bool = False, **given: Any) -> Answer:
    """The answer of `dse.fleet`. Where nothing keeps the plan, its document and files alone are
    given, and NothingFeasible says what must change."""
    from dse.errors import NothingFeasible

    context, plan = click.get_current_context(), given.get("plan")
    if plan is not None:
        own = {one.name for one in context.command.params if one.name in {*given, "set"}}
        refuse(own - {*WITH_PLAN}, "a plan, which says it")
    else:
        refuse(["show"], "a plan that is made from options")
    if show and plan is not None:
        refuse(["out", "as_json", "service_level"], "--show, which prints the plan's file alone")
        print_plan(plan)
    found = fleet(**given)
    if found.document["feasible"]:
        return found
    out, as_json = context.params["out"], context.params["as_json"]
    if as_json:
        deliver(found, out=out, as_json=True)
    elif out is not None:
        write(found, out)
    raise NothingFeasible("\n".join((found.headline, *found.sentences)))


def print_plan(plan: str) -> None:
    """Prints the file of a plan, and ends."""
    from dse.files import read_bytes, text_of
    from dse.schema.plan_reader import find_plan, load_plan

    read = load_plan(
        find_plan(plan), read_catalog(click.get_current_context().params["chip_files"])
    )
    click.echo(text_of(read_bytes(read.file), read.file), nl=False)
    raise click.exceptions.Exit(0)


command = verb(answered, fields=SETTINGS, name="fleet", examples=__doc__)
command.params.append(
    click.Option(["--show"], is_flag=True, help="Print the plan's file, a start for one of yours.")
)
