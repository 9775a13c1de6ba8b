"""The Answer of `dse whatif --uncertain`: its tables, pictures and commands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Answer, Block, Column, Commands, Figure, Opening, Table, table_of
from dse.answer.numbers import percent, share, show
from dse.answer.palette import BLUE, VERMILION, hatch, plain
from dse.economics.priced import price_documents, price_parts
from dse.problem.words import DEPLOYMENT_KEY, HELD_KEY, SHORT, SHOWN
from dse.questions.risk.answer import Risk
from dse.questions.risk.document import document
from dse.questions.risk.words import MEANING, advice, is_held

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


def risk_answer(found: Risk, command: str = "") -> Answer:
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
        command=command,
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
