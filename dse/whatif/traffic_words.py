"""`dse traffic` in sentences, tables and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dse.specs.study import Study
from dse.specs.traffic import Traffic
from dse.study.numbers import percent, significant
from dse.study.text_table import Table
from dse.study.words import DEPLOYMENT_KEY, short_deployment, show
from dse.whatif.traffic import Fleet, Sized, Targets


def lead(study: Study, traffic: Traffic, targets: Targets, found: Sized) -> list[str]:
    """The answer."""
    best = found.fleets[0]
    prompt, output = traffic.tokens_per_request
    words = [
        f"{best.instances:,} x {_deployment(best)} serves {significant(best.tokens_per_usd / 1e6)} "
        f"million tokens per dollar, {_first(targets)} within {show('ttft_s', targets.ttft_s)} and "
        f"{show('tpot_s', targets.tpot_s)} per token: {best.chips:,} {best.chip} at "
        f"{significant(best.usd_per_hour)} USD an hour ({study.price_basis})."
    ]
    if len(found.fleets) > 1:
        second = found.fleets[1]
        ratio = second.usd_per_hour / best.usd_per_hour - 1.0
        words.append(
            f"Next is {second.chip}, {100 * ratio:.3g}% dearer: {second.instances:,} x "
            f"{_deployment(second)}."
        )
    if best.instances_by_means != best.instances and best.instances_by_means:
        words.append(
            f"Planned by means (mean lengths at the mean rate, median first token) it would be "
            f"{best.instances_by_means:,} instead of {best.instances:,}."
        )
    words.append(
        f"{significant(traffic.mean_per_s)} requests a second in the mean, "
        f"{significant(traffic.busy_per_s)} in the window that it is sized for; {prompt:,.0f} "
        f"prompt and {output:,.0f} output tokens in the mean, in {len(traffic.classes)} "
        f"class{'es' if len(traffic.classes) > 1 else ''} of lengths."
    )
    return words


def _deployment(fleet: Fleet) -> str:
    """Of one instance."""
    one: dict[str, Any] = {**fleet.deployment, "replicas": 1}
    one["chips"] = fleet.chips // fleet.instances
    return short_deployment(one, held=False)


def _first(targets: Targets) -> str:
    name = "median" if targets.percentile == 50 else f"{targets.percentile}th percentile"
    return f"{name} first token"


def tables(study: Study, traffic: Traffic, targets: Targets, found: Sized) -> list[Table]:
    """Fleets and classes."""
    rows = [
        (
            f"{one.instances:,} x {_deployment(one)}",
            f"{one.chips:,}",
            significant(one.usd_per_hour),
            show("ttft_s", one.first_s),
            show("tpot_s", one.tpot_s),
            percent(one.load),
            significant(one.tokens_per_usd / 1e6),
            significant(one.usd_per_million_mean),
            significant(one.usd_per_million_busy),
        )
        for one in found.fleets
    ]
    first = "first token" if targets.percentile == 50 else f"first, p{targets.percentile}"
    titles = (
        "fleet", "chips", "$/h", first, "per token", "load", "M tok/$", "$/M mean", "$/M busy",
    )  # fmt: skip
    fleets = Table(
        "The cheapest fleet on each chip", titles, rows, tuple(range(1, 9)),
        (
            f"{DEPLOYMENT_KEY}. Latencies are those of the slowest class, and the load that of the "
            "window that the fleet is sized for. Tokens are input and output: $/M mean at the mean "
            "rate, where the fleet is partly idle, $/M busy at the rate that it is sized for.",
        ),
    )  # fmt: skip
    cells = [
        (
            percent(one.share), f"{one.prompt:,.0f}", f"{one.output:,.0f}", percent(one.cached),
        )
        for one in traffic.classes
    ]  # fmt: skip
    classes = Table(
        "Classes of requests", ("share", "prompt", "output", "cached"), cells, (0, 1, 2, 3)
    )
    return [fleets, classes]


def rests_on(traced: bool, found: Sized) -> list[str]:
    """What is assumed."""
    words = [
        "arrivals within the window are random and independent (Poisson), spread evenly over the "
        "instances; first tokens by docs/physics.md",
        "classes are served beside each other, their loads add, and a request waits as long as it "
        "would among its own kind at that load; the slowest class stands for the percentile of all",
        "the fleet is paid for by the hour, busy or not, and nothing is spare for failures",
    ]
    if traced:
        words.append("the windows of the trace stand for those to come; no growth")
    return [*words, *(f"left out: {chip}, {why}" for chip, why in found.left_out.items())]


def document(
    study: Study, traffic: Traffic, targets: Targets, found: Sized, traced: bool
) -> dict[str, Any]:
    """`dse traffic --json`."""
    prompt, output = traffic.tokens_per_request
    return {
        "space": study.name,
        "price_basis": study.price_basis,
        "percentile": targets.percentile,
        "ttft_s": targets.ttft_s,
        "tpot_s": targets.tpot_s,
        "requests_per_s": {"mean": traffic.mean_per_s, "busy": traffic.busy_per_s},
        "prompt_tokens": prompt,
        "output_tokens": output,
        "classes": [asdict(one) for one in traffic.classes],
        "answer": lead(study, traffic, targets, found),
        "fleets": [_fleet(one) for one in found.fleets],
        "left_out": found.left_out,
        "rests_on": rests_on(traced, found),
    }


def _fleet(one: Fleet) -> dict[str, Any]:
    row = asdict(one)
    row["ttft_percentile_s"] = row.pop("first_s")
    row["instances_by_means"] = row["instances_by_means"] or None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
