"""`dse traffic` in sentences, tables and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from dse.answer.numbers import percent, significant
from dse.answer.text_table import Table
from dse.problem.words import DEPLOYMENT_KEY, short_deployment, show
from dse.questions.traffic.answer import Answer, Fleet, Targets
from dse.questions.whatif.paid import left_out, paid_rows, paid_sentences, paid_tables, unsold_words
from dse.schema.traffic import Windows

MOST_SHOWN = 400


def lead(answer: Answer) -> list[str]:
    """The answer."""
    best, targets = answer.sized.fleets[0], answer.targets
    each = best.chips // best.instances
    several = f"{best.instances:,} instances" if best.instances > 1 else "one instance"
    chips = f"{each:,} chips" if each > 1 else "one chip"
    words = [
        f"Take {best.chips:,} {best.chip} at ${significant(best.usd_per_hour)} an hour "
        f"({answer.paid.basis}): {several} of {chips} ({deployment(best)}) "
        f"serve{'' if best.instances > 1 else 's'} {significant(best.tokens_per_usd / 1e6)} "
        f"million tokens per dollar, with the {first_words(targets)} within "
        f"{show('ttft_s', targets.ttft_s)} and {show('tpot_s', targets.tpot_s)} per token after it."
    ]
    words += unsold_words(answer.paid, best.chip)
    if len(answer.sized.fleets) > 1:
        second = answer.sized.fleets[1]
        ratio = second.usd_per_hour / best.usd_per_hour - 1.0
        words.append(
            f"Next is {second.chip}, {100 * ratio:.3g}% dearer: {second.chips:,} at "
            f"${significant(second.usd_per_hour)} an hour."
        )
    words += _traffic(answer, best)
    if best.instances_by_means != best.instances and best.instances_by_means:
        words.append(
            f"Planned by means (mean lengths at the mean rate, median first token) it would be "
            f"{best.instances_by_means:,} instances instead of {best.instances:,}."
        )
    return words


def _traffic(answer: Answer, best: Fleet) -> list[str]:
    """What comes, and what the best fleet could serve."""
    traffic, windows = answer.traffic, answer.windows
    prompt, output = traffic.tokens_per_request
    lengths = f"{prompt:,.0f} prompt and {output:,.0f} output tokens in the mean"
    most = f"it serves up to {significant(best.most_per_s)} within the targets"
    if windows is None:
        rate = f"{significant(traffic.busy_per_s)} requests a second come at random"
        return [f"{rate}; the fleet is sized for them, and {most}.", f"A request has {lengths}."]
    which = (
        "busiest window"
        if answer.share == 1.0
        else f"window that {percent(answer.share)} are no busier than"
    )
    return [
        f"The trace brings {significant(traffic.mean_per_s)} requests a second in the mean and "
        f"{significant(traffic.busy_per_s)} in the {which} of {windows.seconds:g} s, for which the "
        f"fleet is sized; {most}.",
        f"A request has {lengths}; {len(traffic.classes)} "
        f"class{'es' if len(traffic.classes) > 1 else ''} of lengths stand for all.",
    ]


def deployment(fleet: Fleet) -> str:
    """Of one instance, without the chip."""
    one: dict[str, Any] = {**fleet.deployment, "replicas": 1}
    one["chips"] = fleet.chips // fleet.instances
    return short_deployment(one, held=False).split(" ", 2)[2]


def fleet_words(fleet: Fleet) -> str:
    """`2 x 4 h100_sxm TP4 fp8/bf16`: instances, chips of each, and how they are used."""
    each = fleet.chips // fleet.instances
    return f"{fleet.instances:,} x {each:,} {fleet.chip} {deployment(fleet)}"


def first_words(targets: Targets) -> str:
    if targets.percentile == 50:
        return "median time to first token"
    return f"{targets.percentile}th percentile of times to first token"


def tables(answer: Answer) -> list[Table]:
    """Fleets, classes, and the parts of prices where these are computed."""
    targets, fleets = answer.targets, answer.sized.fleets
    rows = [
        (
            fleet_words(one),
            f"{one.chips:,}",
            significant(one.usd_per_hour),
            show("ttft_s", one.first_s),
            show("tpot_s", one.tpot_s),
            percent(one.load),
            significant(one.most_per_s),
            significant(one.tokens_per_usd / 1e6),
            significant(one.usd_per_million_mean),
        )
        for one in fleets
    ]
    first = "first token" if targets.percentile == 50 else f"first, p{targets.percentile}"
    titles = (
        "fleet", "chips", "$/h", first, "per token", "load", "most/s", "M tok/$", "$/M tok",
    )  # fmt: skip
    notes = (
        f"2 x 4: two instances of four chips; {DEPLOYMENT_KEY}. Latencies are those of the slowest "
        "class; they and the load are at the rate that the fleet is sized for. most/s: requests a "
        "second up to which the targets are kept. M tok/$ and $/M tok: millions of input and "
        "output tokens per dollar, and dollars per million, at the mean rate, where the fleet is "
        "partly idle.",
    )
    right = tuple(range(1, len(titles)))
    found = [Table("The cheapest fleet on each chip", titles, rows, right, notes)]
    cells = [
        (
            percent(one.share), f"{one.prompt:,.0f}", f"{one.output:,.0f}", percent(one.cached),
        )
        for one in answer.traffic.classes
    ]  # fmt: skip
    found.append(
        Table(
            "Classes of requests, mean tokens", ("share", "prompt", "output", "prompt cached"),
            cells, (0, 1, 2, 3),
        )
    )  # fmt: skip
    return [*found, *paid_tables(answer.paid)]


def rests_on(answer: Answer) -> list[str]:
    """What is assumed."""
    words = [
        "arrivals within the window are random and independent (Poisson), spread evenly over the "
        "instances; first tokens by docs/physics.md",
        "classes are served beside each other, their loads add, and a request waits as long as it "
        "would among its own kind at that load; the slowest class stands for the percentile of all",
        f"the fleet is paid for by the hour on basis {answer.paid.basis}, busy or not, chip by "
        "chip (whole servers may be more); nothing is spare for failures",
        "predictions are taken at their word; dse whatif --uncertain asks how sure the order of "
        "the chips is",
    ]
    if answer.windows is not None:
        words.append("the windows of the trace stand for those to come; no growth")
    return [*words, *paid_sentences(answer.paid), *left_out(answer.study, answer.sized.left_out)]


def document(answer: Answer) -> dict[str, Any]:
    """`dse traffic --json`."""
    traffic, targets, windows = answer.traffic, answer.targets, answer.windows
    prompt, output = traffic.tokens_per_request
    return {
        "space": answer.study.name,
        "title": answer.study.title or answer.study.name,
        "asked": f"The cheapest fleet on each chip that keeps the {first_words(targets)} within "
        f"{show('ttft_s', targets.ttft_s)} and every class of requests within "
        f"{show('tpot_s', targets.tpot_s)} per output token.",
        "price_basis": answer.paid.basis,
        "prices_given": answer.paid.own.own_prices(),
        "percentile": targets.percentile,
        "ttft_s": targets.ttft_s,
        "tpot_s": targets.tpot_s,
        "requests_per_s": {"mean": traffic.mean_per_s, "busy": traffic.busy_per_s},
        "arrivals": None if windows is None else _arrivals(windows),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "classes": [asdict(one) for one in traffic.classes],
        "answer": lead(answer),
        "fleets": [_fleet(one) for one in answer.sized.fleets],
        "price_parts": paid_rows(answer.paid),
        "left_out": {**answer.study.why_left_out, **answer.sized.left_out},
        "rests_on": rests_on(answer),
    }


def _arrivals(windows: Windows) -> dict[str, Any]:
    """Requests per second by window; beyond MOST_SHOWN windows the busiest of several in a row."""
    each = -(-len(windows.requests) // MOST_SHOWN)
    starts = np.arange(0, len(windows.requests), each)
    return {
        "window_s": windows.seconds,
        "windows_each": each,
        "start_s": (starts * windows.seconds).tolist(),
        "busiest_per_s": np.maximum.reduceat(windows.per_s, starts).tolist(),
    }


def _fleet(one: Fleet) -> dict[str, Any]:
    row = asdict(one)
    row["ttft_percentile_s"] = row.pop("first_s")
    row["words"] = fleet_words(one)
    row["most_requests_per_s"] = row.pop("most_per_s")
    row["instances_by_means"] = row["instances_by_means"] or None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
