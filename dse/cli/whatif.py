"""dse whatif: what changes the answer, how sure it is, and what a chip would need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    DEGREE,
    DEPLOYED,
    LOAD,
    Between,
    NoModel,
    Sectioned,
    Whole,
    chip_files_option,
    deployed_options,
    efficiency_option,
    json_option,
    options,
    out_option,
    pooled_options,
    price_options,
    read_catalog,
    refuse,
    space_catalog,
)
from dse.cli.printing import CountProgress, Progress, deliver

KINDS = ("cost", "power", "chips", "racks", "quality", "latency")
# Options of a model in place of a STUDY, of changes, of --uncertain and of --require.
DEPLOYMENT = (
    *("tp", "pp", "dp", "ep", "replicas", "concurrency", *DEPLOYED, "disaggregated"),
    *("prompt_tokens", "output_tokens", "requests_per_second"),
)
OF_A_MODEL = (*DEPLOYMENT, "price_basis")
OF_CHANGES = (
    "settings",
    "scenario",
    "sweeps",
    "sensitivities",
    "break_even",
    "equal",
    "at",
    "rack_power",
    "peak_over_average",
    "whole_servers",
)
OF_BOTH = ("limits", "objective", "demand")
OF_UNCERTAIN = ("points", "draws", "seed", "price_interval")
OF_REQUIRE = ("space",)
OF_POINTS = "With --model, as in dse estimate --help; what is left out is looked for"
SECTIONS = {
    "A model in place of a STUDY": ("model", "chips", "price_basis", "chip_files"),
    OF_POINTS: DEPLOYMENT,
    "How sure the winner is": ("uncertain", *OF_UNCERTAIN),
    "What a chip needs": ("require", *OF_REQUIRE),
}


@click.command("whatif", cls=Sectioned, sections=SECTIONS, brief=(OF_POINTS,))
@click.argument("study", required=False, type=NoModel(), metavar="[STUDY]")
@click.option("--model", help="Catalog id, or the path of a config.json.")
@click.option("--chip", "chips", multiple=True, help="A chip of it, once for each.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="INPUT=CHANGE",
    help="Change an input: chip.h100_sxm.price=-20%, limit.tpot_s=30ms, costs.electricity=+50%.",
)
@click.option("--scenario", metavar="FILE", help="Scenarios of a YAML file.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="INPUT=A..B:N",
    help="The winner at N steps of an input: chip.h100_sxm.price=1USD/h..4USD/h:7.",
)
@click.option("--sensitivities", is_flag=True, help="Elasticities and shadow prices.")
@click.option("--break-even", is_flag=True, help="Prices, use, demand and load at which chips tie.")
@click.option(
    "--equal",
    multiple=True,
    metavar="KIND",
    help=f"Who wins at equal {', '.join(KINDS)}.",
)
@click.option("--at", help="Of --equal: 100kW, 64, 30ms; else the winner's.")
@click.option("--rack-power", default="40kW", help="Of a rack, for --equal racks.")
@click.option(
    "--demand",
    metavar="TOKENS/TIME",
    help="Tokens: 1B/day; of --uncertain 1B/day..4B/day.",
)
@click.option("--peak-over-average", metavar="X", help="Of the demand; else 1.")
@click.option("--whole-servers", is_flag=True, help="Buy whole servers for it, not single chips.")
@click.option("--limit", "limits", multiple=True, help='Another limit: "predicted_loss <= 1.9".')
@click.option("--objective", help="What the winner is best in; else the cost.")
@click.option("--uncertain", is_flag=True, help="Also what to measure next.")
@click.option(
    "--point",
    "points",
    multiple=True,
    metavar="POINT",
    help="STUDY's point whose shape it is; several compare.",
)
@click.option(
    "--draws",
    type=Whole(1_000, 1_000_000),
    default=10_000,
    help="Of prices, efficiency and demand.",
)
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="Of the draws.")
@click.option(
    "--price-interval",
    type=Between(0.0, 10.0),
    help="80%, of every price: 0.2 is 20% either way; else as published for each chip.",
)
@click.option("--require", metavar="CHIP", help="What it must have to enter STUDY's front.")
@click.option("--space", metavar="FILE", help="The study's space file, if moved.")
@click.option("--tp", type=DEGREE, help="Tensor parallelism; else looked for.")
@click.option("--pp", type=DEGREE, help="Pipeline stages; else 1.")
@click.option("--dp", type=DEGREE, help="Attention data parallelism; else looked for with experts.")
@click.option("--ep", type=DEGREE, help="Expert parallelism; else looked for with experts.")
@click.option("--replicas", type=DEGREE, help="Independent instances; else 1.")
@click.option("--concurrency", type=LOAD, help="Requests in flight; else looked for.")
@options((*deployed_options(several=True), *pooled_options))
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--requests-per-second", type=Between(1e-9, 1e9), help="Poisson arrivals.")
@click.option(
    "--price-basis", default="rental_3yr", help="Basis of hardware/prices.csv, or owned_tco."
)
@chip_files_option
@price_options
@efficiency_option
@out_option("whatif")
@json_option
def command(
    study: str | None,
    as_json: bool,
    out: Path | None,
    uncertain: bool,
    require: str | None,
    **flags: Any,
) -> None:
    """What if a price, a figure, the demand or a limit changes: what enters and leaves the front,
    who wins, by how much. How sure the winner is, and what another chip would need.

    \b
    dse whatif deploy-llama-3-70b                            the winner and every input
    dse whatif deploy-llama-3-70b --set chip.h100_sxm.price=-30%
    dse whatif studies/tiny --sweep chip.all.memory_bandwidth=0.5x..2x:7
    dse whatif --model llama-3-70b --chip h100_sxm --chip mi300x
    dse whatif deploy-llama-3-70b --demand 1B/day --peak-over-average 2.5 --sweep demand=1x..9x:5
    dse whatif deploy-llama-3-70b --sensitivities --equal power --out whatif
    dse whatif deploy-llama-3-70b --uncertain --demand 1B/day..4B/day
    dse whatif studies/llama --require mi300x

    STUDY is a folder of dse run, a shipped space or a space file. The winner is the cheapest point
    under the limits, deployed anew. Under a demand it is the one whose deployments, as many as the
    peak takes, cost least. --uncertain draws prices, efficiency and demand from their intervals.
    --require changes each quantity of CHIP alone, until a deployment keeps the limits and no point
    of the front beats it. Several chips without a question are ranked (--break-even). Exit code 3:
    no point keeps the limits.
    """
    _check(study, uncertain, require, flags)
    chip_files = flags.pop("chip_files")
    if require is not None:
        from dse.questions.whatif.ask import require as required

        found = required(
            study,
            require,
            space=flags["space"],
            catalog=read_catalog(chip_files),
            progress=CountProgress(),
        )
        deliver(found, out=out, as_json=as_json)
        return
    space: Any = study
    model = {name: flags[name] for name in ("model", "chips", *OF_A_MODEL)}
    shared = {name: flags[name] for name in OF_BOTH}
    catalog = space_catalog(study) if study else read_catalog(chip_files)
    if study is None:
        from dse.questions.whatif.served import space_of_model

        limits, objective = shared["limits"], shared["objective"]
        space = space_of_model(**model, limits=limits, objective=objective, catalog=catalog)
        shared["limits"] = ()
    asked: dict[str, Any] = {**shared, "catalog": catalog}
    if uncertain:
        from dse.questions.risk.ask import risk

        asked |= {name: flags[name] for name in OF_UNCERTAIN}
        found = risk(space, **asked, progress=CountProgress())
    else:
        from dse.questions.whatif.ask import whatif

        asked |= {name: flags[name] for name in OF_CHANGES}
        found = whatif(space, **asked, progress=Progress())
    deliver(found, out=out, as_json=as_json)


def _check(study: str | None, uncertain: bool, require: str | None, flags: dict[str, Any]) -> None:
    """Raises InputError for options of another question than the one that is asked."""
    from dse.errors import InputError

    if study is not None:
        for name, given in (("--model", flags["model"]), ("--chip", flags["chips"])):
            if given:
                raise InputError(f"{name} does not go with a STUDY", accepted="one of the two")
        own = OF_A_MODEL if require else (*OF_A_MODEL, "chip_files")
        refuse(own, "a STUDY, which says it itself")
    if require is None:
        refuse(OF_REQUIRE, "a question without --require")
    else:
        if study is None:
            raise InputError("--require needs a STUDY", accepted="the folder of a finished study")
        refuse(("uncertain", *OF_CHANGES, *OF_BOTH, *OF_UNCERTAIN), "--require")
    if uncertain:
        refuse(OF_CHANGES, "--uncertain")
    else:
        refuse(OF_UNCERTAIN, "a question without --uncertain")
