"""dse whatif: what changes when a price, a figure, a demand or a limit does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    DEGREE,
    LOAD,
    Between,
    efficiency_option,
    json_option,
    out_option,
    price_options,
    read_catalog,
    refuse,
    space_catalog,
)
from dse.cli.printing import command_line, print_json, print_rests, print_tables, say
from dse.cli.progress import Progress

KINDS = ("cost", "power", "chips", "racks", "quality", "latency")
OF_A_MODEL = (
    "tp", "pp", "dp", "ep", "replicas", "concurrency", "weight_dtype", "kv_dtype", "prompt_tokens",
    "output_tokens", "prefix_hit_rate", "requests_per_second", "backend", "price_basis",
    "chip_files",
)  # fmt: skip


@click.command("whatif")
@click.argument("study", required=False, metavar="[STUDY]")
@click.option("--model", help="In place of a STUDY: catalog id, or the path of a config.json.")
@click.option("--chip", "chips", multiple=True, help="With --model: a chip, once for each.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="INPUT=CHANGE",
    help="Change an input: chip.h100_sxm.price=-20%, limit.tpot_s=30ms, costs.electricity=+50%.",
)
@click.option("--scenario", metavar="FILE", help="Scenarios of a YAML file, each against today.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="INPUT=A..B:N",
    help="N steps of an input, the winner at each: chip.h100_sxm.price=1USD/h..4USD/h:7.",
)
@click.option("--sensitivities", is_flag=True, help="Elasticities and shadow prices.")
@click.option(
    "--break-even", is_flag=True, help="Prices, utilisation, demand and load at which chips tie."
)
@click.option(
    "--equal",
    multiple=True,
    metavar="KIND",
    help=f"At equal {', '.join(KINDS)}: which chip wins, by how much.",
)
@click.option("--at", help="The amount of --equal: 100kW, 64, 30ms; else that of the winner.")
@click.option("--rack-power", default="40kW", help="What one rack carries, for --equal racks.")
@click.option("--demand", metavar="TOKENS/TIME", help="Input and output tokens to serve: 1B/day.")
@click.option("--peak-over-average", metavar="X", help="Of the demand; else 1.")
@click.option(
    "--whole-servers", is_flag=True, help="Chips for the demand in whole servers, not one by one."
)
@click.option("--limit", "limits", multiple=True, help='Another limit: "predicted_loss <= 1.9".')
@click.option("--objective", help="What the winner is best in; else the cost.")
@click.option("--tp", type=DEGREE, help="With --model: tensor parallelism; else looked for.")
@click.option("--pp", type=DEGREE, help="Pipeline stages; else 1.")
@click.option("--dp", type=DEGREE, help="Attention data parallelism; else looked for with experts.")
@click.option("--ep", type=DEGREE, help="Expert parallelism; else looked for with experts.")
@click.option("--replicas", type=DEGREE, help="Independent instances; else 1.")
@click.option("--concurrency", type=LOAD, help="Requests in flight; else looked for.")
@click.option("--weight-dtype", help="Format of the weights; else the model's.")
@click.option("--kv-dtype", help="Format of the KV cache; bf16 unless the checkpoint says.")
@click.option("--prompt-tokens", type=LOAD, default=2048, help="Prompt length.")
@click.option("--output-tokens", type=LOAD, default=512, help="Output length.")
@click.option("--prefix-hit-rate", type=Between(0.0, 0.999), help="Share of prompts in the cache.")
@click.option("--requests-per-second", type=Between(1e-9, 1e9), help="Poisson arrivals.")
@click.option("--backend", help="Serving software (hardware/backends); else a current one.")
@click.option(
    "--price-basis", default="rental_3yr", help="Basis of hardware/prices.csv, or owned_tco."
)
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@price_options
@efficiency_option
@out_option("whatif", "md")
@json_option
def command(study: str | None, as_json: bool, out: Path | None, **flags: Any) -> None:
    """What if a price, a figure, the demand or a limit changes: what enters and leaves the front,
    who wins, by how much.

    \b
    dse whatif deploy-llama-3-70b                            the winner and every input
    dse whatif deploy-llama-3-70b --set chip.h100_sxm.price=-30%
    dse whatif studies/tiny --sweep chip.all.memory_bandwidth=0.5x..2x:7
    dse whatif --model llama-3-70b --chip h100_sxm --chip mi300x --break-even
    dse whatif deploy-llama-3-70b --demand 1B/day --peak-over-average 2.5 --sweep demand=1x..9x:5
    dse whatif deploy-llama-3-70b --sensitivities --equal power --out whatif

    STUDY is a folder of dse run, a shipped space or a space file. The winner is the cheapest point
    under the limits, deployed anew; under a demand, the one that is cheapest to buy as often as the
    peak takes. Exit code 3: no point keeps the limits.
    """
    from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY
    from dse.questions.whatif.ask import whatif
    from dse.questions.whatif.tables import tables
    from dse.questions.whatif.words import heading

    if study is not None and not (flags["model"] or flags["chips"]):
        refuse(OF_A_MODEL, "a STUDY, which says it itself")
    chip_files = flags.pop("chip_files")
    catalog = read_catalog(chip_files) if study is None else space_catalog(study)
    document = whatif(study, **flags, catalog=catalog, progress=Progress())
    if as_json:
        print_json(document)
    else:
        for sentence in document["answer"]:
            say(f"- {sentence}", "  ")
        click.echo()
        say(heading(document), "  ")
        print_tables(tables(document))
        print_rests(document["assumed"])
        click.echo()
        for note in [document["how"], *document["notes"]]:
            say(f"{note[0].upper()}{note[1:]}.", "  ")
        say(f"{DEPLOYMENT_KEY}{HELD_KEY}.", "  ")
    if out is not None:
        from dse.render.whatif import write_whatif

        document["command"] = command_line()
        plain = tables(document, bars=False)
        page = write_whatif(out, document, plain, heading(document))
        click.echo(f"Page: {page}", err=as_json)
