"""The Answer of `dse whatif --uncertain`: its document, tables, pictures and commands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Block, Column, Commands, Figure, Opening, Table, table_of
from dse.answer.numbers import number, percent, share, show
from dse.answer.plots import BLUE, VERMILION, hatch, plain
from dse.economics.priced import price_documents, price_parts
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHORT, SHOWN
from dse.questions.risk.answer import Risk
from dse.questions.risk.measure_next import Measurement
from dse.questions.risk.words import (
    MEANING,
    advice,
    after,
    deployment,
    facts,
    is_held,
    lead,
    measured,
    rests_on,
)

Json = Mapping[str, Any]
MOST = 6  # measurements that are shown
FEW = 8  # choices on the first screen
WORDS = {
    "draw": "one guess of all that is not known: prices, errors of the model, demand",
    "choice": "a chip in the configuration that is cheapest on it at the prediction",
    "prediction": "what the model says, with every price as published",
    "regret": "what a choice costs over what the best choice of the same draw costs, less 1",
    "80% interval": "where the figure is taken to lie four times out of five",
    "configuration": "degrees and number formats; requests in flight are chosen again in every "
    "draw",
    "standard error": "how far a chance may be off because draws are random",
    "kernel laws": "how fast the chip runs matrix products, attention and collectives, by their "
    "size",
    "fitted": "the kernel laws were measured on the chip",
}


def risk_answer(found: Risk) -> Answer:
    made = document(found)
    steps = made["measure_next"][0]["commands"] if made["measure_next"] else []
    asked, several = f"{made['title']}: {made['asked']}", len(made["choices"]) > 1
    said = advice(found, in_full=True)
    first = Opening(asked, said, _margin(made), _often(made)) if several else None
    blocks: list[Block] = [_choices(found, made)]
    if made["measure_next"]:
        blocks.append(_measurements(made))
    if made["prices"]:
        blocks.append(_prices(made))
    if parts := price_documents(found.catalog, found.chips, found.study.price_basis):
        blocks.append(price_parts(parts))
    if steps:
        title = "To make the first measurement, of a server that runs the deployment named"
        blocks.append(Commands(title, steps))
    return Answer(
        question="risk",
        title=f"How sure: {made['title']}",
        asked=asked,
        headline=made["answer"][0],
        sentences=made["answer"][1:],
        blocks=blocks,
        rests=made["rests_on"],
        document=made,
        data=(table_of("data", _with_ends(made["choices"])),),
        words=WORDS,
        opening=first,
    )


def _with_ends(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Rows with the ends of their interval as `low` and `high`."""
    return [{**row, "low": row["interval"][0], "high": row["interval"][1]} for row in rows]


def _by_chance(made: Json) -> list[Json]:
    return sorted(made["choices"], key=lambda row: -row["chance_first"])


def _often(made: Json) -> Table:
    """The first few choices in four columns."""
    metric = made["objective"]
    columns = (
        Column("name", "take"),
        Column("predicted", SHORT.get(metric) or metric, metric),
        Column("chance_first", "best in", "share", bar=True, explain="share of the draws"),
        Column("expected_regret", "gives away", "share", explain="over the best of each draw"),
    )
    return Table.of("often", "", _by_chance(made)[:FEW], columns)


def _choices(found: Risk, made: Json) -> Table:
    metric = made["objective"]

    def between(row: Json) -> str:
        return " to ".join(show(metric, end) for end in row["interval"])

    key = DEPLOYMENT_KEY + (HELD_KEY if is_held(found) else "")
    return Table.of(
        "choices",
        "Choices, the one most often first on top",
        _by_chance(made),
        (
            Column("words", "choice, as predicted"),
            Column("efficiency", "laws"),
            Column("predicted", SHORT.get(metric) or metric, metric),
            Column("between", "80% of draws", of=between),
            Column("chance_first", "first", "share", bar=True),
            Column("expected_regret", "regret", "share"),
            Column("regret_95", "95%", "share"),
            Column("worst_regret", "worst", "share"),
            Column("chance_misses_limits", "misses limits", "share"),
        ),
        (
            f"{key}. laws: how the kernel laws of the chip are known. The figure is "
            f"{SHOWN.get(metric, metric)}. first: share of the draws in which it is the best. "
            "regret: in the mean, its 95th percentile, and the worst with every 80% interval at "
            "its end against it. misses limits: share of the draws in which no load keeps them.",
            MEANING,
        ),
    )


def _measurements(made: Json) -> Table:
    rows, regret = made["measure_next"], min(one["expected_regret"] for one in made["choices"])
    wrong = rows[0]["chance_wrong_now"]
    caption = (
        f"Measure next: now a choice is wrong in {share(wrong)}, its expected regret "
        f"{share(regret)}"
    )
    if len(rows) > MOST:
        caption += f" ({MOST} of {len(rows)} measurements)"

    def saved(key: str) -> Column:
        # what is less than the rounding of a sum over draws is nothing
        return Column(key, "saved", "share", of=lambda row: max(0.0, round(row[key], 9)))

    columns = (
        Column("words", "learn"),
        Column("chance_wrong_after", "wrong after", "share"),
        saved("chance_saved"),
        Column("expected_regret_after", "regret after", "share"),
        saved("expected_regret_saved"),
        Column("changes_choice", "changes the choice", "share"),
    )
    return Table.of("measure next", caption, rows[:MOST], columns)


def _prices(made: Json) -> Table:
    return Table.of(
        "prices",
        f"Prices that were drawn, per chip-hour on basis {made['price_basis']}",
        _with_ends(made["prices"]),
        (
            Column("chip", "chip"),
            Column("usd_per_chip_hour", "price", "dollars"),
            Column("low", "80% from", "dollars"),
            Column("high", "to", "dollars"),
            Column("rows", "rows", "count"),
            Column("kind", "interval"),
        ),
    )


def _margin(made: Json) -> Figure:
    """How far the best other choice lies above or below the one that is advised, in the draws."""
    take, rows = plain(made["advised"]), made["margin"]
    chance = {plain(one["name"]): one["chance_first"] for one in made["choices"]}[take]
    traces = []
    for name, wins, colour, shape in (
        (f"{take} is best: {percent(chance)}", True, BLUE, ""),
        (f"another is: {percent(1.0 - chance)}", False, VERMILION, "/"),
    ):
        mine = [row for row in rows if (row["to"] > 0.0) == wins]
        ends = [(math.log1p(row["from"]), math.log1p(row["to"])) for row in mine]
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": [(a + b) / 2.0 for a, b in ends],
                "width": [b - a for a, b in ends],
                "y": [100.0 * row["share"] for row in mine],
                "marker": {"color": colour, "pattern": hatch(shape)},
                "hoverinfo": "text",
                "hovertext": [
                    f"{100 * row['from']:+.0f}% to {100 * row['to']:+.0f}%: "
                    f"{100 * row['share']:.1f}%"
                    for row in mine
                ],
            }
        )
    low, high = rows[0]["from"], rows[-1]["to"]
    ticks = {low: f"{100 * low:.0f}%", -0.5: "-50%", 0.0: "same", 1.0: "+100%"}
    ticks[high] = f"+{100 * high:.0f}%"
    title = f"the best other choice costs, over {take}<br>(outermost bars: or beyond)"
    layout = {
        "height": 360,
        "barmode": "overlay",
        "bargap": 0,
        "xaxis": {
            "title": {"text": title},
            "range": [math.log1p(low) - 0.2, math.log1p(high) + 0.2],
            "tickvals": [math.log1p(tick) for tick in ticks],
            "ticktext": list(ticks.values()),
            "tickangle": 0,
        },
        "yaxis": {"title": {"text": "share of draws (%)"}},
    }
    return Figure(
        "margin",
        f"By how much {made['advised']} wins or loses",
        {"data": traces, "layout": layout},
        f"Shares of the draws by what the best other choice costs over {made['advised']}.",
    )


BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs
BINS, FARTHEST = 40, math.log(4.0)  # of the margin, as a logarithm


def commands(found: Risk, one: Measurement) -> list[str]:
    """Command lines that make a measurement and bring it in."""
    item = found.uncertain.items[one.i]
    if one.what == "price":
        return []
    at = item.deployments[one.row]
    lines = [_benchmark(load.row(), at) for load in found.study.workloads]
    reached = found.catalog.chips[item.chip].vendor in BY_TORCH
    if item.kind != "fitted" and reached:
        lines.insert(0, f"dse calibrate --chip {item.chip} --full")
    return [*lines, "dse validate --data measured.csv"]


def _benchmark(load: Mapping[str, Any], deployment: Mapping[str, Any]) -> str:
    """vLLM's own benchmark of a server that was started as `dse export` writes it."""
    flight = int(deployment["concurrency"])
    rate = load.get("requests_per_second")
    asked = f"--request-rate {rate:g}" if rate else f"--max-concurrency {flight}"
    return (
        f"vllm bench serve --dataset-name random --random-input-len {load['prompt_tokens']:.0f} "
        f"--random-output-len {load['output_tokens']:.0f} --ignore-eos {asked} --num-prompts "
        f"{max(10 * flight, 1000 if rate else 100)}"
    )


def document(found: Risk) -> dict[str, Any]:
    """`dse whatif --uncertain --json`."""
    robust, items, demand = found.robust, found.uncertain.items, found.uncertain.demand
    parts = price_documents(found.catalog, found.chips, found.study.price_basis)
    return {
        "space": found.study.name,
        "title": found.subject.title,
        "asked": facts(found),
        "meaning": MEANING,
        "point": ", ".join(shape.name for shape in found.shapes) or None,
        "objective": found.objective,
        "price_basis": found.study.price_basis,
        "draws": found.draws,
        "seed": found.seed,
        "standard_error": float(robust.standard_error.max()),
        "demand": None
        if demand is None
        else {"requests_per_s_low": demand.low, "requests_per_s_high": demand.high},
        "answer": lead(found),
        "advised": items[robust.least_regret].name,
        "predicted_best": items[robust.predicted].name,
        "most_often_first": items[robust.likeliest].name,
        "least_expected_regret": items[robust.least_regret].name,
        "least_worst_regret": items[robust.least_worst_regret].name,
        "least_worst_price": items[robust.least_worst_price].name,
        "chance_wrong": float(1.0 - robust.chance_first[robust.predicted]),
        "share_without_answer": robust.none,
        "margin": _margin_shares(found),
        "kin": [
            {"choice": item.name, "kin": kin}
            for item, kin in zip(items, found.uncertain.kin, strict=True)
        ],
        "choices": [_choice(found, i) for i in range(len(items))],
        "measure_next": [_measurement(found, one) for one in found.measurements],
        "prices": [
            {
                "chip": one.chip,
                "usd_per_chip_hour": one.usd_per_chip_hour,
                "interval": list(one.ends),
                "rows": one.rows,
                "kind": one.kind,
            }
            for one in found.prices
        ],
        "price_parts": [
            {"chip": price["chip"], "usd_per_chip_hour": price["usd_per_chip_hour"]}
            | {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
            for price in parts
        ],
        "prices_given": found.catalog.source.own_prices(),
        "left_out": {**found.study.why_left_out, **found.uncertain.choices.left_out},
        "rests_on": rests_on(found),
    }


def _margin_shares(found: Risk) -> list[dict[str, float]]:
    """Shares of the draws by what the best other choice costs over the advised one, less 1; what
    lies beyond the ends is in the first and the last."""
    margin = np.clip(found.robust.margin, -FARTHEST, FARTHEST)
    count, edges = np.histogram(margin, bins=BINS, range=(-FARTHEST, FARTHEST))
    ends = np.expm1(edges)
    ends[BINS // 2] = 0.0
    return [
        {"from": float(a), "to": float(b), "share": float(n) / len(margin)}
        for a, b, n in zip(ends[:-1], ends[1:], count, strict=True)
    ]


def _choice(found: Risk, i: int) -> dict[str, Any]:
    robust, item = found.robust, found.uncertain.items[i]
    return {
        "name": item.name,
        "chip": item.chip,
        "point": item.shape or None,
        "words": deployment(found, item, item.best),
        "deployment": dict(item.deployments[item.best]),
        "efficiency": item.kind,
        "predicted": number(robust.nominal[i]),
        "interval": [number(robust.low[i]), number(robust.high[i])],
        "chance_first": float(robust.chance_first[i]),
        "chance_first_as_deployed": float(robust.same_deployment[i]),
        "standard_error": float(robust.standard_error[i]),
        "expected_regret": number(robust.expected_regret[i]),
        "regret_95": number(robust.regret_95[i]),
        "worst_regret": number(robust.worst_regret[i]),
        "worst_price": number(robust.worst_price[i]),
        "chance_misses_limits": float(robust.chance_missed[i]),
    }


def _measurement(found: Risk, one: Measurement) -> dict[str, Any]:
    item = found.uncertain.items[one.i]
    wrong, regret = after(found, one)
    return {
        "what": one.what,
        "words": measured(found, one),
        "chip": item.chip,
        "deployment": dict(item.deployments[one.row]) if one.what == "serving" else None,
        "chance_wrong_now": float(1.0 - found.robust.chance_first.max()),
        "chance_wrong_after": wrong,
        "chance_saved": one.chance_saved,
        "expected_regret_after": regret,
        "expected_regret_saved": one.regret_saved,
        "changes_choice": one.changes,
        "commands": commands(found, one),
    }
