"""The tables of `dse whatif` as text, which console, page and markdown show alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.answer.numbers import NONE, digits, show, significant, tenths
from dse.answer.text_table import Table
from dse.questions.whatif.equal import RATE, level_words
from dse.questions.whatif.inputs import ARRIVALS, DEMAND
from dse.questions.whatif.solve import words
from dse.questions.whatif.words import counted, money, named

Json = Mapping[str, Any]
# What a demand takes.
HELD = ("held", "chips", "an hour", "if busy")
HELD_NOTE = (
    "held: deployments bought for the demand, with their chips and dollars in all; if busy: the "
    "cost per million tokens of a deployment that never waits"
)
BAR = 9  # characters of half a bar


def tables(document: Json, bars: bool = True) -> list[Table]:
    """Every table, in the order of the questions, of the inputs where nothing was asked; then an
    hour of each recommended chip by its parts, where chips are owned. `bars`: with bars of text."""
    metric = document["objective"]
    found = [_scenario_table(document)] if document["scenarios"] else []
    for row in document["scenarios"]:
        found += _front_tables(row, document)
    found += [_sweep_table(row, metric) for row in document["sweeps"]]
    if document["sensitivities"] is not None:
        found += [_sensitivity_table(document, bars), _shadow_table(document)]
    if document["break_even"] is not None:
        found += _break_even_tables(document["break_even"])
    for row in document["equal"]:
        found += [_equal_table(row, document["winner"]["at_average_load"]), *_draw_tables(row)]
    found = found or [_inputs_table(document)]
    shown = document["break_even"] and document["break_even"]["owning"]
    if document["prices"] and not shown:
        found.append(_parts_table("An owned chip-hour by its parts", document["prices"]))
    return found


def _scenario_table(document: Json) -> Table:
    metric = document["objective"]
    points = [document["winner"], *(row["winner"] for row in document["scenarios"])]
    held = _held_titles(points)
    latencies = ("tpot_s",) if held else ("tpot_s", "ttft_s")
    extra = [name for name in latencies if name in document["winner"]["metrics"]]
    names = list(dict.fromkeys([metric, *extra]))

    def line(name: str, point: Json | None, change: str, front: str) -> tuple[str, ...]:
        cells = [NONE if point is None else show(n, point["metrics"].get(n)) for n in names]
        return (name, words(point), *_held(point, held), *cells, change, front)

    rows = [line("as things stand", document["winner"], "", f"{document['front_size']:,}")]
    for row in document["scenarios"]:
        change = NONE if row["change"] is None else tenths(row["change"], sign=True)
        rows.append(line(row["name"], row["winner"], change, f"{row['front']['size']:,}"))
        if row["winner"] is not None and not row["same_winner"]:
            old = row["old_winner"]
            name = "  the old winner then" + ("" if old["feasible"] else " (breaks a limit)")
            rows.append(line(name, old, "", ""))
    return Table(
        "Before and after: the winner",
        ("", "winner", *held, *(named(name) for name in names), "change", "front"),
        rows, tuple(range(2, 4 + len(held) + len(names))), (HELD_NOTE,) if held else (),
    )  # fmt: skip


def _held_titles(points: Iterable[Json | None]) -> tuple[str, ...]:
    """Columns of what a demand takes, where one of the points serves one."""
    loads = [point["at_average_load"] for point in points if point is not None]
    some = any(load and load["deployments"] is not None for load in loads)
    return HELD if some else ()


def _held(point: Json | None, titles: tuple[str, ...]) -> tuple[str, ...]:
    """The cells of these columns."""
    load = None if point is None else point["at_average_load"]
    if load is None or load["deployments"] is None:
        return (NONE,) * len(titles)
    return (
        f"{load['deployments']:,}", f"{load['chips']:,.0f}", f"${money(load['usd_per_hour'])}",
        f"${significant(load['busy_usd_per_million_total_tokens'])}",
    )  # fmt: skip


def _front_tables(row: Json, document: Json) -> list[Table]:
    front = row["front"]
    metric = document["objective"]
    rows = []
    for kind in ("entered", "left"):
        for point in front[kind]["points"]:
            values = [show(name, point["metrics"].get(name)) for name in (metric, "tpot_s")]
            rows.append((kind, words(point), *values))
    if not rows:
        return []
    chips = [
        f"{kind}: " + ", ".join(f"{count:,} {chip}" for chip, count in front[kind]["chips"].items())
        for kind in ("entered", "left")
        if front[kind]["count"]
    ]
    listed = sum(len(front[kind]["points"]) for kind in ("entered", "left"))
    total = front["entered"]["count"] + front["left"]["count"]
    more = [f"{listed} of {total:,} are shown, evenly along the front"] if listed < total else []
    return [
        Table(
            f"What enters and leaves the front: {row['name']}",
            ("", "point", named(metric), named("tpot_s")), rows, (2, 3), (*chips, *more),
        )
    ]  # fmt: skip


def _sweep_table(row: Json, metric: str) -> Table:
    last, rows = None, []
    held = _held_titles(one["winner"] for one in row["rows"])
    for one in row["rows"]:
        now = words(one["winner"])
        mark = "" if last is None or now == last else "*"
        cells = (show(metric, one["objective"]), *_held(one["winner"], held))
        rows.append((one["words"], *cells, now + mark))
        last = now
    title = row["input"].replace(".", " ") if held else row["input"]  # which may wrap
    notes = [HELD_NOTE] if held else []
    notes += ["* another winner than a line above"] if row["switches"] else []
    if row["input"] == DEMAND and held and len(row["switches"]) > 0:
        notes.append(
            "deployments are whole, so that between two lines the lead may change more than once"
        )
    return Table(
        f"Sweep of {row['input']}", (title, named(metric), *held, "winner"), rows,
        tuple(range(2 + len(held))), tuple(notes),
    )  # fmt: skip


def bar(less: float | None, more: float | None, widest: float) -> str:
    """A bar of text around a middle line: `-` where the input is 10% less, `+` where it is more;
    to the left, the objective falls."""
    cells = [" "] * (2 * BAR + 1)
    cells[BAR] = "|"
    for end, mark in ((less, "-"), (more, "+")):
        if end is None or widest == 0.0:
            continue
        length = round(abs(end) / widest * BAR)
        for k in range(1, length + 1):
            place = BAR + (k if end > 0 else -k)
            cells[place] = mark if cells[place] == " " else "*"
    return "".join(cells).rstrip()


def _sensitivity_table(document: Json, bars: bool) -> Table:
    ends = ("at_10_percent_less", "at_10_percent_more")
    shown = [row for row in document["sensitivities"] if _moves_at_all(row)]
    widest = max((abs(row[end] or 0.0) for row in shown for end in ends), default=0.0)

    def cell(value: float | None) -> str:
        return NONE if value is None else f"{value:+.2f}"

    rows = []
    for row in shown:
        less, more = (row[end] for end in ends)
        last = [bar(less, more, widest)] if bars else [
            NONE if end is None else tenths(end, sign=True) for end in (less, more)
        ]  # fmt: skip
        cells = [cell(row[k]) for k in ("elasticity", "elasticity_tpot", "elasticity_optimum")]
        cells[-1] += "~" if _bends(row) else ""
        rows.append((row["input"], row["words"], *cells, *last))
    notes = [
        "percent for one percent of the input, by central differences of 1%; winner: deployed as "
        "it is; optimum: deployed anew on either side, the envelope"
    ]
    if any(_bends(row) for row in shown):
        notes.append(
            "~ a step, or a bend, lies near: over 10% on either side, it moves by another half or "
            "more"
        )
    if bars:
        notes.append("bars: - with 10% less of the input, + with 10% more; to the left, it falls")
    if still := [row["input"] for row in document["sensitivities"] if not _moves_at_all(row)]:
        notes.append(f"less than 0.5% within 10%, and elasticities below 0.005: {', '.join(still)}")
    titles = [f"-10% +10%, full {widest:.1%}"] if bars else ["10% less", "10% more"]
    return Table(
        f"Elasticities of the {named(document['objective'])}, strongest first",
        ("input", "now", "winner", "its tpot", "optimum", *titles), rows,
        (1, 2, 3, 4) if bars else (1, 2, 3, 4, 5, 6), (*notes, document["sensitivities_how"]),
    )  # fmt: skip


def _moves_at_all(row: Json) -> bool:
    keys = (
        "elasticity", "elasticity_tpot", "elasticity_optimum", "at_10_percent_less",
        "at_10_percent_more",
    )  # fmt: skip
    return any(abs(row[key] or 0.0) >= 5e-3 for key in keys) or row["elasticity"] is None


def _bends(row: Json) -> bool:
    """Whether 10% on either side say otherwise than 1% do."""
    less, more, near = (
        row[key] for key in ("at_10_percent_less", "at_10_percent_more", "elasticity_optimum")
    )
    if None in (less, more, near) or min(less, more) <= -1.0:
        return False
    wide = (math.log1p(more) - math.log1p(less)) / math.log(1.1 / 0.9)
    return abs(wide - near) > 0.05 + 0.5 * min(abs(wide), abs(near))


def _shadow_table(document: Json) -> Table:
    rows = [
        (
            row["step"], NONE if row["gain"] is None else tenths(row["gain"]),
            NONE if row["usd_per_chip_hour"] is None else f"${digits(row['usd_per_chip_hour'])}",
            "yes" if row["binds"] else "no",
        )
        for row in document["shadow_prices"]
    ]  # fmt: skip
    return Table(
        "Shadow prices: what a step of a limit is worth, deployed anew",
        ("step", "gain", "worth per chip-hour", "binds"), rows, (1, 2),
    )  # fmt: skip


def _break_even_tables(document: Json) -> list[Table]:
    rows = [
        (
            row["chip"], words(row["point"]), f"${significant(row['cost'])}",
            f"${significant(row['usd_per_chip_hour'])}",
            NONE if row["against"] is None
            else f"${significant(row['break_even_usd_per_chip_hour'])}",
            NONE if row["change"] is None else tenths(row["change"], sign=True),
            row["against"] or NONE,
        )
        for row in document["chips"]
    ]  # fmt: skip
    notes = ["price x chip-hours of the other over its own, each deployed at its cheapest"]
    if document["any_quality"]:
        notes.append("of any predicted loss: --limit 'predicted_loss <= ...' holds it")
    if document["infeasible_chips"]:
        notes.append(f"nothing feasible: {', '.join(document['infeasible_chips'])}")
    found = [
        Table(
            "Break-even prices per chip-hour",
            ("chip", "deployed", "per million tokens", "now", "break-even", "change", "with"),
            rows, (2, 3, 4, 5), tuple(notes),
        )
    ]  # fmt: skip
    if together := document["concurrency"]:
        found.append(
            Table(
                "Lowest cost at each number of requests in flight",
                ("in flight", together["a"], together["b"]),
                [
                    (f"{row['concurrency']:,}", *(
                        NONE if row[key] is None else f"${significant(row[key])}"
                        for key in ("cost_a", "cost_b")
                    ))
                    for row in together["rows"]
                ],
                (0, 1, 2), ("dollars per million tokens, input and output",),
            )
        )  # fmt: skip
    if document["owning"]:
        prices = [row["price"] for row in document["owning"]]
        found += [
            _owning_table(document),
            _parts_table("An owned chip-hour by its parts, always busy", prices),
        ]
    return found


def _owning_table(document: Json) -> Table:
    def usd(value: float | None) -> str:
        return NONE if value is None else f"${significant(value)}"

    first = document["owning"][0]
    committed, left = first["committed_basis"], document["owning_left_out"]
    rows = [
        (
            row["chip"],
            usd(row["owned_at_full_use"]),
            *([usd(row["committed_usd_per_hour"])] if committed else []),
            usd(row["rent_usd_per_hour"]),
            NONE if row["utilisation"] is None else f"{row['utilisation']:.0%}",
            NONE if row["utilisation"] is None else f"{row['demand_output_tokens_per_s']:,.0f}",
            row["instance"],
        )
        for row in document["owning"]
    ]
    titles = (
        "chip", "owned, always busy", *([committed] if committed else []),
        f"by use ({first['rent_basis']})", "owning wins from", "output tokens/s", "of an instance",
    )  # fmt: skip
    notes = ["owned: paid busy or not, but for the electricity that depends on the load"]
    if committed:
        notes.append(f"{committed} is paid busy or not, too; by use, only while it serves")
    if left:
        notes.append(f"no price or power to own it at: {', '.join(left)}")
    return Table(
        "Owning against renting, per chip-hour", titles, rows,
        tuple(range(1, len(titles) - 1)), tuple(notes),
    )  # fmt: skip


def _parts_table(caption: str, prices: Sequence[Json]) -> Table:
    """Each chip's owned hour by its parts."""
    names = [part["name"] for part in prices[0]["parts"]]
    rows = [
        (
            price["chip"],
            *(f"${part['usd_per_chip_hour']:.3f}" for part in price["parts"]),
            f"${price['usd_per_chip_hour']:.3f}",
        )
        for price in prices
    ]
    return Table(
        caption, ("chip", *names, "total"), rows, tuple(range(1, len(names) + 2)),
        ("costs of hardware/costs.yaml, or yours in their place",),
    )  # fmt: skip


def _equal_table(row: Json, load: Json | None) -> Table:
    more = row["metric"] == RATE
    rows = []
    for one in row["rows"]:
        value = f"{one['value']:,.0f}" if more else show(row["metric"], one["value"])
        counts = (f"{one['deployments']:,}", f"{one['chips']:,}") if more else ()
        metrics = one["point"]["metrics"]
        cost = metrics["usd_per_million_total_tokens"]
        if own := one["point"]["at_average_load"]:  # a budget is served at the full rate
            cost = own["busy_usd_per_million_total_tokens"]
        cells = [
            show("usd_per_million_total_tokens", cost),
            show("tpot_s", metrics["tpot_s"]),
        ]
        rows.append(
            (one["chip"], value, tenths(one["over_best"], sign=True), *counts,
             words(one["point"]), *(cells if more else cells[1:]))
        )  # fmt: skip
    titles = (
        ("chip", "output tokens/s", "to best", "deployments", "chips", "each", "$/M total",
         "per token")
        if more else ("chip", named(row["metric"]), "to best", "deployed", "per token")
    )  # fmt: skip
    notes = []
    if row["level_is_the_winners"]:
        notes.append(f"without --at, the level is {_whose(row, load)}")
    if row["without"]:
        notes.append(f"no deployment: {', '.join(row['without'])}")
    right = (1, 2, 3, 4, 6, 7) if more else (1, 2, 4)
    return Table(f"At equal {row['kind']}: {level_words(row)}", titles, rows, right, tuple(notes))


def _whose(row: Json, load: Json | None) -> str:
    if row["metric"] != RATE:
        return "the winner's"
    if load is None or load["deployments"] is None:
        return "that of ten of the winner's deployments"
    return f"that of the winner's {counted(load['deployments'], 'deployment')} for the demand"


def _draw_tables(row: Json) -> list[Table]:
    """From which figure the watts of each chip follow; nothing where no watts are compared."""
    draws = [(one["chip"], one["draw"]) for one in row["rows"] if one["draw"]]
    if not draws:
        return []
    rows = []
    for chip, draw in draws:
        sign = "/" if draw["over"] else "x"
        known = " ".join(f"{sign} {value:.4g} {name}" for name, value in draw["factors"].items())
        rows.append(
            (chip, f"{draw['watts_per_chip']:,.0f} W", f"{draw['figure_w']:,.0f} W",
             f"{draw['of']} ({draw['kind']})", known or "as published")
        )  # fmt: skip
    where = "at the meter" if row["kind"] == "power" else "of the server"
    return [
        Table(
            f"What a chip draws, {where}",
            ("chip", "counted", "from", "what that counts", "how it follows"),
            rows, (1, 2), tuple(row["assumed"]),
        )
    ]  # fmt: skip


def _inputs_table(document: Json) -> Table:
    """The inputs that have a value, for a question that changes none."""
    rows = [(row["input"], row["words"]) for row in document["inputs"] if row["now"] is not None]
    notes = ["also limit.METRIC of any metric, chip.all.FIGURE of every chip"]
    if document["demand"] is None:
        notes.append("also demand=1B/day, input and output tokens, and peak_over_average")
    if any(row["unit"] == ARRIVALS for row in document["inputs"]):
        notes[-1] = (
            "demand is the rate at which requests arrive at one deployment with its replicas; "
            "--demand 1B/day buys as many deployments as a demand takes"
        )
    return Table(
        "What --set and --sweep may change, and its value now", ("input", "now"), rows,
        (1,), tuple(notes),
    )  # fmt: skip
