"""The systems of a study side by side (`dse.study.views`): which is cheapest at which speed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from dse.answer.answer import Block, Column, Figure, Section, Table
from dse.answer.labels import axis_title, label
from dse.answer.numbers import dollars, show, significant
from dse.answer.plots import PALETTE, SYMBOLS, plain, scaled
from dse.answer.sentences import listed
from dse.problem.mix import loads_of
from dse.questions.study.chosen import Json
from dse.schema.metrics import EVERY

ABOUT = (
    "Of every design of a system that meets the limits, the least {0} at which each user gets at "
    "least the tokens a second of the row. Every system is priced per token at its own chip-hour, "
    "so that systems of different sizes compare per dollar; a larger one needs more requests to be "
    "filled. The least of a row is marked with *. Differences may be smaller than the errors: "
    "dse whatif {1} --uncertain draws these."
)
HEIGHT_PX = 440
OF_OUTPUT = ("output_tokens_per_s", "output_tokens_per_s_per_chip")
SOFT = ("assumed", "estimated")


def software_words(study: Mapping[str, Any]) -> str:
    """`backend vllm`, or that each chip has its own."""
    backend = loads_of(study)[0]["backend"]
    lines = (study.get("definition") or {}).get("axis backend")
    if lines is None:
        return f"backend {backend}"
    values = lines if isinstance(lines, list) else lines["values"]
    by_chip = isinstance(lines, Mapping) and any(key.startswith("on ") for key in lines)
    return f"backend by {'chip' if by_chip else 'design'} ({', '.join(values)})"


def system_answers(study: Mapping[str, Any]) -> list[str]:
    """Which system is cheapest at which speed, in a sentence; empty without systems."""
    found = study.get("systems")
    if not found:
        return []
    if not found["speeds"]:
        named = {row["name"] for row in found["rows"]}
        return [*_by_loss(study), *_soft(found, named), *_left_out(found)]
    cost, parts = found["cost"], list[str]()
    for k, run in enumerate(found["wins"]):
        first, last = (significant(run[end], 2) for end in ("from", "to"))
        speeds = f"from {first} to {last}" if k else f"up to {last}"
        prices = dict.fromkeys(show(cost, run[f"cost_{end}"]) for end in ("from", "to"))
        near = f", {listed(run['near'])} within 10% of it" if run["near"] else ""
        parts.append(f"{run['name']} {speeds} ({' to '.join(prices)}{near})")
    said = f"Cheapest per token, by tokens a second that each user gets: {listed(parts)}."
    won = {name for run in found["wins"] for name in (run["name"], *run["near"])}
    never = [row["name"] for row in found["rows"] if row["name"] not in won]
    if never:
        said += f" Never the cheapest, or hardly: {listed(never)}."
    return [said, *_soft(found, won), *_left_out(found)]


def _by_loss(study: Mapping[str, Any]) -> list[str]:
    """Which system is cheapest at which predicted loss, where a view compares them."""
    view = next((one for one in study.get("views") or () if "names" in one), None)
    won: list[tuple[str, float, str]] = []
    if view is None:
        return []
    for row in view["levels"]:
        best = [(one["metrics"][view["cost"]], k) for k, one in enumerate(row["best"]) if one]
        if best:
            cost, k = min(best)
            won.append((view["names"][k], row["level"], show(view["cost"], cost)))
    parts = []
    for name, rows in groupby(won, key=lambda one: one[0]):
        mine = list(rows)
        ends = [mine[0]] if len(mine) == 1 else [mine[0], mine[-1]]
        losses, prices = (" to ".join(f"{end[j]}" for end in ends) for j in (1, 2))
        parts.append(f"{name} at {losses} ({prices})")
    return [f"Cheapest per token, by predicted loss: {listed(parts)}."] if parts else []


def _soft(found: Json, named: set[str]) -> list[str]:
    """What of a winner nobody measured or paid, where there is anything."""
    said = []
    for row in found["rows"]:
        lacks = [f"an {row['price_kind']} price"] * (row["price_kind"] in SOFT)
        lacks += [f"{row['kernels']} kernel times"] * (row["kernels"] in SOFT)
        if row["name"] in named and lacks:
            said.append(f"{row['name']}: {' and '.join(lacks)}")
    return [f"These rest on what nobody published or measured: {'; '.join(said)}."] if said else []


def unpriced(study: Mapping[str, Any]) -> list[str]:
    """That chips of different prices are compared by their output alone, where they are."""
    wanted = [row["metric"] for row in study["objectives"]]
    rates = {row["chip"]: row["usd_per_chip_hour"] for row in study["price"]["rows"]}
    by_output = [name for name in wanted if name in OF_OUTPUT]
    if not by_output or any("usd" in name for name in wanted) or len(set(rates.values())) < 2:
        return []
    low, high = (of(rates, key=lambda chip: rates[chip]) for of in (min, max))
    return [
        f"No price is an objective: {label(by_output[0]).text} counts a chip of {high} as one of "
        f"{low}, whose hour costs {significant(rates[high] / rates[low], 2)} times less."
    ]


def _left_out(found: Json) -> list[str]:
    return [f"Left out: {row['name']}, {row['why']}." for row in found["left_out"]]


def system_sections(study: Mapping[str, Any]) -> list[Section]:
    """What the systems are, their least price at a few speeds, and a line for each."""
    found = study.get("systems")
    if not found:
        return []
    blocks: list[Block] = []
    about: list[str] = []
    if found["speeds"]:
        blocks += [_speed_table(found), _figure(found)]
        about = [ABOUT.format(label(found["cost"]).text, study["space"])]
    blocks.append(_system_table(found))
    if found["speeds"]:
        blocks.append(Section("The designs", [_design_table(found)], folded=True))
    title = "Which system" if found["speeds"] else "The systems"
    return [Section(title, blocks, about, "systems")]


def _system_table(found: Json) -> Table:
    """A row a system: what it is, and what its price and its kernels rest on."""
    columns = (
        Column("name", "system"),
        Column("chip", "chip"),
        Column("backends", "software", of=lambda row: ", ".join(row["backends"])),
        Column("formats", "weights / cache", of=_formats),
        Column("usd", "a chip-hour", of=lambda row: dollars(row["usd_per_chip_hour"])),
        Column("price", "the price rests on"),
        Column("kernels", "kernel times are", explain="the least certain of those it may use"),
    )
    return Table.of("systems", "What is compared", found["rows"], columns)


def _formats(row: Json) -> str:
    return " / ".join(", ".join(row[key]) for key in ("weight_dtypes", "kv_dtypes"))


def _speed_table(found: Json) -> Table:
    """A row a speed: the least price of each system."""
    cost = found["cost"]

    def price(row: Json, k: int) -> str:
        best = row["best"][k]
        if best is None:
            return "not reached"
        least = min(one["metrics"][cost] for one in row["best"] if one)
        value = best["metrics"][cost]
        return f"{show(cost, value)}{' *' if value == least else ''}"

    columns = [
        Column("speed", "tokens/s a user", right=True, of=lambda row: f"{row['tokens_per_s']:,}")
    ]
    columns += [
        Column(f"price_{k}", one["name"], right=True, of=lambda row, k=k: price(row, k))
        for k, one in enumerate(found["rows"])
    ]
    caption = f"Least {label(cost).text} at each speed"
    return Table.of("system-speeds", caption, found["speeds"], columns)


def _design_table(found: Json) -> Table:
    """A row for each speed and system: the cheapest design."""
    rows = [
        {
            "speed": f"{row['tokens_per_s']:,}",
            "name": one["name"],
            **best["metrics"],
            "hour": dollars(best["usd_per_hour"]),
            "kernels": best["kernels"],
            "deployment": best["deployment"],
        }
        for row in found["speeds"]
        for one, best in zip(found["rows"], row["best"], strict=True)
        if best is not None
    ]
    metrics = (found["cost"], "tpot_s", "ttft_s", "output_tokens_per_s_per_chip")
    columns = (
        Column("speed", "tokens/s a user", right=True),
        Column("name", "system"),
        *(Column(name, EVERY[name].title, name) for name in metrics),
        Column("hour", "an hour", right=True),
        Column("kernels", "kernel times are"),
        Column("deployment", "deployment"),
    )
    return Table("system-designs", "", columns, rows, on_console=False)


def _figure(found: Json) -> Figure:
    """The least price at each speed, a line a system."""
    cost = found["cost"]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(row["name"]),
            "x": [1.0 / tpot for tpot in curve["tpot_s"]],
            "y": scaled(cost, curve["cost"]),
            "line": {"color": PALETTE[k % len(PALETTE)], "width": 2},
            "marker": {"symbol": SYMBOLS[k % len(SYMBOLS)], "size": 7},
        }
        for k, (row, curve) in enumerate(zip(found["rows"], found["curves"], strict=True))
        if curve["cost"]
    ]
    layout = {
        "height": HEIGHT_PX,
        "showlegend": True,
        "xaxis": {"title": {"text": "tokens a second that each user gets"}, "type": "log"},
        "yaxis": {"title": {"text": axis_title(cost)}, "type": "log"},
    }
    shows = "The least price of each system at each speed: down and to the right is better."
    return Figure("systems-plot", "", {"data": traces, "layout": layout}, shows)
