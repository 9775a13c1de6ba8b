"""dse traffic: the fleet that a trace of requests needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import Between, Whole, json_option, out_option, price_options, space_catalog
from dse.cli.printing import command_line, print_json, print_rests, print_tables, say
from dse.cli.progress import CountProgress

if TYPE_CHECKING:
    from dse.questions.traffic.answer import Targets
    from dse.schema.study import Study
    from dse.schema.traffic import Traffic, Windows


@click.command("traffic")
@click.argument("space")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE",
    help="CSV of requests: time (s), prompt, output and, where known, cached (tokens).",
)  # fmt: skip
@click.option(
    "--rate", type=Between(1e-6, 1e9),
    help="Requests per second at random, of the space's lengths, in place of a trace.",
)  # fmt: skip
@click.option(
    "--percentile", type=click.Choice(["50", "90", "99"]), default="90",
    help="Percentile of the time to first token that the target holds for.",
)  # fmt: skip
@click.option("--ttft", help="Longest time to first token; else the space's limit.")
@click.option("--tpot", help="Longest time per output token; else the space's limit.")
@click.option("--window", default="60s", help="Arrivals are counted in windows of this length.")
@click.option(
    "--windows", "share", type=Between(0.0, 1.0), default=1.0,
    help="Share of the windows that the fleet is large enough for; 1 is the busiest.",
)  # fmt: skip
@click.option(
    "--lengths", "groups", type=Whole(1, 32),
    help="Groups of prompt lengths, with two of output lengths in each; 1, 4 and 8 for the median, "
    "the 90th and the 99th percentile if left out.",
)  # fmt: skip
@price_options
@out_option("traffic")
@json_option
def command(
    space: str, trace: Path | None, rate: float | None, percentile: str, ttft: str | None,
    tpot: str | None, window: str, share: float, groups: int | None, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """The cheapest fleet on each chip of SPACE for a trace of requests, large enough that a
    percentile of first tokens comes in time, and its tokens per dollar.

    \b
    dse traffic deploy-llama-3-70b --trace requests.csv --percentile 99 --ttft 1s
    dse traffic deploy-llama-3-70b --rate 20 --percentile 90 --out traffic

    SPACE is a shipped name or a path, with one model. Exit code 3: no chip keeps the targets.
    """
    from dse.errors import InputError
    from dse.problem.objective import on_terms
    from dse.questions.traffic.answer import Answer, size_fleets
    from dse.questions.traffic.words import document, lead, rests_on, tables
    from dse.questions.whatif.paid import paid_with
    from dse.schema.study import load_study
    from dse.schema.traffic import GROUPS

    if (trace is None) == (rate is None):
        said = "neither --trace nor --rate" if trace is None else "--trace and --rate"
        raise InputError(said, accepted="one of the two")
    catalog = space_catalog(space)
    study = load_study(space, catalog)
    targets = _targets(study, int(percentile), ttft, tpot)
    groups = groups or GROUPS[targets.percentile]
    known, windows = _traffic(study, trace, rate, window, share, groups)
    catalog = on_terms(catalog, study)
    found = size_fleets(study, catalog, known, targets, CountProgress())
    paid = paid_with(catalog, study, [one.chip for one in found.fleets])
    answer = Answer(study, known, targets, found, paid, windows, share)
    if as_json:
        print_json(document(answer))
    else:
        say(study.title or study.name)
        for sentence in lead(answer):
            say(f"- {sentence}", "  ")
        print_tables(tables(answer))
        print_rests(rests_on(answer))
    if out is not None:
        from dse.render.traffic import write_traffic

        written = {**document(answer), "command": command_line()}
        page = write_traffic(out, written, tables(answer))
        click.echo(f"Report: {page}", err=as_json)


def _traffic(
    study: Study, trace: Path | None, rate: float | None, window: str, share: float, groups: int
) -> tuple[Traffic, Windows | None]:
    from dse.questions.traffic.answer import traffic_of_study
    from dse.schema.trace import read_trace
    from dse.schema.traffic import traffic_of, windows_of

    seconds = _seconds(window, "--window")
    if trace is None:
        assert rate is not None
        return traffic_of_study(study, rate), None
    read = read_trace(trace)
    return traffic_of(read, seconds, share, groups), windows_of(read, seconds)


def _targets(study: Study, percentile: int, ttft: str | None, tpot: str | None) -> Targets:
    from dse.errors import InputError
    from dse.questions.traffic.answer import Targets

    def target(flag: str, given: str | None, prefix: str) -> float:
        if given is not None:
            return _seconds(given, flag)
        own = [
            one.limit
            for one in study.constraints
            if one.metric.startswith(prefix) and one.operator.startswith("<") and not one.workload
        ]
        if not own:
            raise InputError(
                f"{study.name} limits no {prefix}_s", field=flag, accepted="a time, such as 2s"
            )
        return min(own)

    return Targets(percentile, target("--ttft", ttft, "ttft"), target("--tpot", tpot, "tpot"))


def _seconds(text: Any, flag: str) -> float:
    from dse import units
    from dse.errors import InputError

    seconds = units.parse(text, "s", field=flag)
    if seconds <= 0.0:
        raise InputError(f"read {text!r}", field=flag, accepted="a time above 0")
    return seconds
