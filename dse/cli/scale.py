"""dse scale: one large instance against many small ones; collectives; what ends a rack's domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dse.cli.options import (
    AS_ESTIMATE,
    DEPLOYED,
    LOAD,
    Between,
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
from dse.cli.printing import Progress, deliver

if TYPE_CHECKING:
    from pathlib import Path

    from dse.answer.answer import Answer

MOST_CHIPS = 4096
# Flags of one of the three questions alone.
_OF_COLLECTIVES = ("system", "against_system", "sizes", "top_k", "hidden_size", "measured", "chips")
_OF_RACKS = ("rack", "cable", "racks", "chips")
SECTIONS = {
    AS_ESTIMATE: DEPLOYED,
    "Collectives of --chips on the fabric": ("collectives", *_OF_COLLECTIVES),
    "What ends the domain of a rack": _OF_RACKS[:-1],
}


@click.command("scale", cls=Sectioned, sections=SECTIONS, brief=(AS_ESTIMATE,))
@click.option("--model", help="Catalog id, or the path of a config.json.")
@click.option("--chip", help="Chip id (dse catalog chips list), or the path of a chip file.")
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
@options((*deployed_options(), *pooled_options))
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
@click.option("--pipeline", is_flag=True, help="Also print one request over pipeline stages.")
@click.option(
    "--price-basis",
    default="rental_3yr",
    help="Basis of hardware/prices.csv, or owned_tco, which is computed.",
)
@chip_files_option
@price_options
@click.option(
    "--collectives", is_flag=True, help="What collectives of --chips cost on the fabric, instead."
)
@click.option("--system", metavar="ID", help="Collectives on another system than the chip's.")
@click.option("--against-system", metavar="ID", help="The same of the chip of --against.")
@click.option(
    "--bytes", "sizes", multiple=True, metavar="SIZE", help="Size of a message of a collective."
)
@click.option("--top-k", type=Whole(1, 1024), default=8, help="Experts of a token, for all-to-all.")
@click.option("--hidden-size", type=Whole(1, 1_000_000), default=7168, help="Numbers of a token.")
@click.option("--measured", is_flag=True, help="The model beside every all-reduce measured here.")
@click.option("--rack", help="What ends the domain of a rack (an id, or a rack file), instead.")
@click.option("--cable", help="That rack with another cable: active_copper or optical.")
@click.option("--racks", type=Whole(1, 64), help="Its domains over up to so many racks.")
@click.option(
    "--chips",
    type=Whole(1, 16_384),
    help="Chips of a collective, 64 if left out; or of a domain of the rack, bound by bound.",
)
@out_option("scale")
@json_option
def command(as_json: bool, out: Path | None, **flags: Any) -> None:
    """Scale up or scale out: how large one instance should be, and what stops it.

    \b
    dse scale --model llama-3-70b --chip h100_sxm
    dse scale --model deepseek-v3 --chip gb200_nvl72 --against b200_sxm --out scale
    dse scale --model llama-3-8b --chip h100_sxm --jitter 0,10us --pipeline --json
    dse scale --collectives --chip gb200_nvl72 --chips 64 --against b200_sxm
    dse scale --rack gb200_nvl72 --chips 144 --cable optical --racks 2

    For every size of an instance, all ways to divide it: the lowest time per output token of one
    user, and the lowest cost within the limits. The ceiling is the size past which twice the chips
    save less than 5% of the time. Exit code 3: the model fits no instance.
    """
    if flags.pop("collectives"):
        answer = _collectives(flags)
    elif flags["rack"] is not None:
        answer = _rack(flags)
    else:
        refuse({*_OF_COLLECTIVES, *_OF_RACKS}, "sizes of an instance (see --collectives, --rack)")
        answer = _sizes(flags)
    deliver(answer, out=out, as_json=as_json)


_EVERYWHERE = ("collectives", "chip_files", "prices", "as_of", "costs", "out", "as_json")


def _only(names: Iterable[str], question: str) -> None:
    """Refuses every flag but these."""
    known = {str(param.name) for param in click.get_current_context().command.params}
    refuse(sorted(known - {*names, *_EVERYWHERE}), question)


def _given(flags: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The flags that the command line has; the library knows what the others are."""
    ctx = click.get_current_context()
    default = ParameterSource.DEFAULT
    return {name: flags[name] for name in names if ctx.get_parameter_source(name) is not default}


def _sizes(flags: dict[str, Any]) -> Answer:
    from dse.questions.scale.ask import scale

    mine = {name: v for name, v in flags.items() if name not in (*_OF_COLLECTIVES, *_OF_RACKS)}
    catalog = read_catalog(mine.pop("chip_files"))
    return scale(**mine, catalog=catalog, progress=Progress())


def _collectives(flags: dict[str, Any]) -> Answer:
    from dse.questions.scale.collective_tables import collective_times, collectives_measured

    names = ("against", *_OF_COLLECTIVES, "jitters", "distribution")
    _only(("chip", *names), "--collectives")
    chip = flags["chip"]
    if not chip:
        from dse.errors import InputError

        accepted = "an id that `dse catalog chips list` prints"
        raise InputError("--chip is missing", accepted=accepted)
    catalog = read_catalog(flags["chip_files"])
    if flags["measured"]:
        refuse(set(names) - {"system", "measured"}, "--measured")
        return collectives_measured(chip, system=flags["system"], catalog=catalog)
    given = _given(flags, names)
    if "jitters" in given:
        given["jitter"] = given.pop("jitters")
    return collective_times(chip, **given, catalog=catalog)


def _rack(flags: dict[str, Any]) -> Answer:
    from dse.questions.scale.rack import rack_bounds

    _only(_OF_RACKS, "--rack")
    return rack_bounds(**{name: flags[name] for name in _OF_RACKS})
