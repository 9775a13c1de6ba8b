"""fleet.html, fleet.json, fleet.csv and fleet.xlsx: the answer of `dse fleet`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.answer.glossary import GLOSSARY
from dse.answer.palette import PALETTE, hatch, plain
from dse.economics.fleet_cost import Counted
from dse.questions.fleet.answer import Answer, assumptions, percentile_words
from dse.questions.fleet.tables import CSV, csv_rows, tables
from dse.questions.fleet.words import value_words
from dse.render.page import answer_page
from dse.render.records import csv_text, kept, lines, sheet, write_answer
from dse.render.xlsx import Cell
from dse.schema.plan import Plan

WORDS = {
    "instance": "one copy of the model on as many chips as it is divided over",
    "option": "one way to serve a class: a model, its formats, a chip, and how an instance is "
    "divided, at its highest load within the latency limits",
    "capital charge": "the price of what is bought, with its share of server and network, as "
    "equal payments over its life, interest included",
    "upkeep": "maintenance, staff and space of owned chips that are on",
    "split": "counted as if instances need not be whole",
    "peak": "the highest demand of a quarter, for which the fleet is sized",
    "use": "demand over what the instances can serve within the latency limits",
    "at the meter": "with the share of a chip in server, network and cooling",
    "discounted": "later dollars counted for less, by the yearly rate of the plan",
    "on-demand": "rented by the hour, given back at will",
    **{
        word: GLOSSARY[word]
        for word in (
            "tensor parallel", "pipeline parallel", "attention data-parallel", "expert parallel",
            "time to first token", "time per output token", "tokens", "prefill", "decode",
            "KV cache", "assumed",
        )
    },
}  # fmt: skip


def write_fleet(folder: Path, answer: Answer, document: dict[str, Any]) -> Path:
    """Writes the page, the document and the tables into `folder`. Raises StorageError where they
    cannot be written."""
    rows = [] if answer.counted is None else csv_rows(answer, answer.counted)
    made, page = sheets(answer, document, rows), fleet_page(answer, document)
    return write_answer(folder, "fleet", document, csv_text(rows, CSV), made, page)


def sheets(
    answer: Answer, document: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> list[tuple[str, list[list[Cell]]]]:
    """The sheets of the workbook: sentences, the rows of fleet.csv as numbers, then what the other
    tables say."""
    return kept(
        ("Answer", lines([document["title"], *document["answer"]])),
        ("Chips by quarter", [list(CSV), *([row[name] for name in CSV] for row in rows)]),
        ("Spend by quarter", sheet([_flat(row) for row in document["by_quarter"]])),
        ("Instances", sheet(document["instances"])),
        ("Owned by the hour", sheet([_parts(one) for one in document["owned_prices"]])),
        ("Prices", sheet(document["prices"])),
        ("Limits", sheet(document["limits"])),
        ("Options", sheet(document["options"])),
        ("Rests on", lines(assumptions(answer))),
    )


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, dict)}


def _parts(price: dict[str, Any]) -> dict[str, Any]:
    """The price of an owned hour by its parts, in dollars."""
    parts = {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
    return {"chip": price["chip"], **parts, "in all": price["usd_per_chip_hour"]}


def fleet_page(answer: Answer, document: dict[str, Any]) -> str:
    """The page as HTML. `document` is that of `dse fleet --json`."""
    drawn = {} if answer.counted is None else figures(answer.plan, answer.counted)
    return answer_page(
        "fleet.html",
        WORDS,
        document=document,
        command=document.get("command"),
        plan=answer.plan,
        demand=demand_rows(answer.plan),
        limits=limit_rows(answer.plan),
        drawn=drawn,
        tables=tables(answer),
        answer=document["answer"],
        rests=list(dict.fromkeys(assumptions(answer))),
        plots=drawn,
    )


def demand_rows(plan: Plan) -> list[tuple[str, ...]]:
    """What is asked for, a row for each class."""
    return [
        (
            one.name, ", ".join(one.models), rate_words(one.requests_per_s),
            rate_words(one.peak_per_s(plan.quarters - 1)),
            f"{one.prompt_tokens:,.0f} + {one.output_tokens:,.0f}",
            f"{one.ttft_s:g} s ({percentile_words(one)})",
            f"{1e3 * one.tpot_s:g} ms",
        )
        for one in plan.demand
    ]  # fmt: skip


def rate_words(per_s: float) -> str:
    """Requests per second, three digits or whole."""
    return f"{per_s:,.0f}" if per_s >= 100.0 else f"{per_s:.3g}"


def limit_rows(plan: Plan) -> list[str]:
    """The limits that are given, and the stock."""
    names = {
        "usd_per_hour": "an hour", "usd_per_quarter": "a quarter", "usd_total": "in all",
        "watts": "", "racks": "racks", "chips": "chips",
    }  # fmt: skip
    found = [
        f"at most {value_words(name, getattr(plan.limits, name))} {words}".strip()
        for name, words in names.items()
        if getattr(plan.limits, name) != float("inf")
    ]
    found += [f"{chip.stock:,} {chip.chip} are owned" for chip in plan.chips if chip.stock]
    if plan.spare_servers:
        plural = "s" * (plan.spare_servers > 1)
        found.append(f"{plan.spare_servers} spare server{plural} of each chip that is used")
    if plan.spare_share:
        found.append(f"{plan.spare_share:.0%} spare chips")
    return found


def figures(plan: Plan, counted: Counted) -> dict[str, dict[str, Any]]:
    """Chips by quarter, and dollars by quarter, as stacked bars."""
    quarters = [f"Q{k + 1}" for k in range(plan.quarters)]
    chips, money = [], []
    for k, chip in enumerate(plan.chips):
        for name, of, shape in (
            ("rented", lambda one, c: one.rented.get(c.chip, 0), ""),
            ("owned", lambda one, c: one.owned_on.get(c.chip, 0), "/"),
        ):
            values = [of(one, chip) * chip.server for one in counted.quarters]
            if any(values):
                chips.append(_bar(f"{chip.chip}, {name}", quarters, values, k, shape, "{:,} chips"))
    for k, (name, of) in enumerate(
        (
            ("rent", lambda spend: spend.rent),
            ("capital charge", lambda spend: spend.capital),
            ("upkeep", lambda spend: spend.upkeep),
            ("electricity", lambda spend: spend.electricity),
        )
    ):
        values = [sum(of(spend) for spend in one.spend.values()) for one in counted.quarters]
        if any(values):
            money.append(_bar(name, quarters, values, k, "", "${:,.0f}"))
    return {
        "chips": {"data": chips, "layout": _layout("chips that are on")},
        "money": {"data": money, "layout": _layout("dollars a quarter")},
    }


def _bar(
    name: str, quarters: list[str], values: list[Any], k: int, shape: str, shown: str
) -> dict[str, Any]:
    texts = [shown.format(value) for value in values]
    return {
        "type": "bar", "name": plain(name), "x": quarters, "y": values,
        "marker": {"color": PALETTE[k % len(PALETTE)], "pattern": hatch(shape)},
        "hoverinfo": "text",
        "hovertext": [plain(f"{at}, {name}: {text}") for at, text in zip(quarters, texts,
                                                                         strict=True)],
    }  # fmt: skip


def _layout(title: str) -> dict[str, Any]:
    return {
        "height": 320, "barmode": "stack", "bargap": 0.4, "showlegend": True,
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": title}, "rangemode": "tozero", "tickformat": "~s"},
    }  # fmt: skip
