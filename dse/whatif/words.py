"""The answer of `dse whatif` in sentences, and its tables as text, which console, page and markdown
show alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dse.specs.metrics import METRICS
from dse.study.numbers import NONE, digits, significant, tenths
from dse.study.scale.tables import Table
from dse.study.scale.words import chips_words
from dse.study.words import SHOWN, load_words, show
from dse.whatif.equal import RATE, level_words
from dse.whatif.solve import words

Json = Mapping[str, Any]
BAR = 9  # characters of half a bar
MOST_ROWS = 40


def dollars(metric: str, value: float | None) -> str:
    """A metric with its unit, dollars per million tokens with a dollar sign."""
    if value is not None and metric.startswith("usd_per_million"):
        return f"${significant(value)}"
    return show(metric, value)


def named(metric: str) -> str:
    words = SHOWN.get(metric, METRICS[metric].meaning)
    return words.replace("$ per million", "cost per million").replace(" total tokens", " tokens")


def _priced(metric: str, value: float | None) -> str:
    """`$0.069 per million tokens`."""
    of = named(metric).removeprefix("cost ")
    return f"{dollars(metric, value)} {of}"


def heading(document: Json) -> str:
    """What is asked of what, in a line."""
    loads = "; ".join(load_words(load) for load in document["workloads"])
    limits = ", ".join(document["limits"]) or "no limit"
    return f"{document['title']}: {loads}; {limits}; prices: {document['price_basis']}"


def sentences(document: Json) -> list[str]:
    """The answer, each question's in the order it was asked, the winner as things stand first."""
    metric = document["objective"]
    found = [_winner(document)]
    found += [_scenario(row, metric) for row in document["scenarios"]]
    found += [_sweep(row, metric) for row in document["sweeps"]]
    if document["sensitivities"] is not None:
        found += [_moves(document), *_shadows(document)]
    if document["break_even"] is not None:
        found += _break_even(document["break_even"])
    found += [_equal(row) for row in document["equal"]]
    return found


def _winner(document: Json) -> str:
    metric, winner = document["objective"], document["winner"]
    value = winner["metrics"][metric]
    if metric.startswith("usd_per_million"):
        said = f"{words(winner)} is cheapest: {_priced(metric, value)}"
    else:
        said = f"{words(winner)} is best: {named(metric)} {dollars(metric, value)}"
    ends = winner["intervals"].get(metric)
    sure = f"kernel laws {winner['provenance']}"
    if ends:
        low, high = (dollars(metric, end) for end in ends)
        sure = f"80% interval {low} to {high}, {sure}"
    return f"As things stand, {said} ({sure})."


def _by(metric: str, change: float | None) -> str:
    """`29.0% cheaper`, `4.1% more`."""
    if change is None:
        return ""
    if abs(change) < 5e-4:
        return "unchanged within 0.05%"
    if metric.startswith("usd_"):
        return f"{tenths(abs(change))} {'cheaper' if change < 0 else 'dearer'}"
    return f"{tenths(abs(change))} {'less' if change < 0 else 'more'}"


def _scenario(row: Json, metric: str) -> str:
    front = row["front"]
    moved = (
        f"{front['entered']['count']:,} enter the front and {front['left']['count']:,} leave it "
        f"({front['size_before']:,} before, {front['size']:,} after)"
    )
    if row["winner"] is None:
        return f"With {row['name']}, nothing is feasible: {row['infeasible_because']}."
    value = dollars(metric, row["winner"]["metrics"][metric])
    if row["same_winner"]:
        return (
            f"With {row['name']}, it stays first at {value}, {_by(metric, row['change'])}; {moved}."
        )
    old = row["old_winner"]
    was = (
        f"in its place the old one would be at {dollars(metric, old['metrics'][metric])}"
        if old["feasible"]
        else "the old one no longer keeps the limits"
    )
    return (
        f"With {row['name']}, {words(row['winner'])} wins at {value}, "
        f"{_by(metric, row['change'])}; {was}; {moved}."
    )


def _sweep(row: Json, metric: str) -> str:
    steps = row["rows"]
    ends = f"from {steps[0]['words']} to {steps[-1]['words']}"
    values = " to ".join(
        "nothing feasible" if steps[k]["winner"] is None else dollars(metric, steps[k]["objective"])
        for k in (0, -1)
    )
    found = f"{row['input']} {ends}: {values}"
    changes = [one for one in row["switches"] if one["chip"]]
    if not row["switches"]:
        return f"{found}; the winner stays {words(steps[0]['winner'])}."
    if not changes:
        count = len(row["switches"])
        times = "once" if count == 1 else f"{count} times"
        return f"{found}; the chip stays, its deployment changes {times}."
    return f"{found}; {', '.join(_switch(one, steps) for one in changes)}."


def _switch(one: Json, steps: list[Json]) -> str:
    k = one["after_step"]
    between = f"between {steps[k - 1]['words']} and {steps[k]['words']}"
    if one["to"] is None:
        return f"{between} nothing keeps the limits any more"
    if one["from"] is None:
        return f"{between} {one['to']['chip']} begins to keep the limits"
    at = f"at {one['words']}" if one["words"] else between
    return f"{one['to']['chip']} takes over from {one['from']['chip']} {at}"


def _moves(document: Json) -> str:
    rows = [row for row in document["sensitivities"] if row["elasticity_optimum"] is not None]
    few = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in rows[:4]
        if abs(row["elasticity_optimum"]) >= 0.005
    ]
    metric = named(document["objective"])
    if not few:
        return f"No input moves the {metric} near where it stands."
    return f"One percent more of an input moves the {metric}, deployed anew, by: {', '.join(few)}."


def _shadows(document: Json) -> list[str]:
    found = []
    for row in document["shadow_prices"]:
        if row["gain"] is None:
            continue
        if row["kind"] == "memory":
            chip = row["input"].split(".")[1]
            worth = row["usd_per_chip_hour"]
            found.append(
                f"{row['step']} on {chip} is worth nothing here: memory does not bind."
                if not row["binds"] or worth is None
                else f"{row['step']} on {chip} is worth ${significant(worth)} per chip-hour here "
                f"({tenths(row['gain'])} of the cost)."
            )
        elif row["binds"]:
            found.append(f"{row['step']} is worth {tenths(row['gain'])}.")
        else:
            found.append(f"{row['step']} is worth nothing here: the limit does not bind.")
    return found


def _break_even(document: Json) -> list[str]:
    found, chips = [], document["chips"]
    if len(chips) > 1:
        first, other = chips[0], chips[1]
        found.append(
            f"{other['chip']} breaks even with {first['chip']} at "
            f"${significant(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({_rise(other['change'])} from ${significant(other['usd_per_chip_hour'])}); "
            f"{first['chip']} stays cheapest up to "
            f"${significant(first['break_even_usd_per_chip_hour'])} "
            f"({_rise(first['change'])})."
        )
    if together := document["concurrency"]:
        found.append(_requests(together))
    for row in document["owning"][:1]:
        even = row["utilisation"]
        found.append(
            f"Owning {row['chip']} costs more than renting it at any utilisation."
            if even is None
            else f"Owning {row['chip']} beats renting it from {even:.0%} utilisation: from "
            f"{row['demand_output_tokens_per_s']:,.0f} output tokens/s on one instance of "
            f"{chips_words(row['instance_chips'])} (chip alone: no host, network, housing or "
            "interest)."
        )
    return found


def _rise(change: float) -> str:
    return f"{tenths(change, sign=True)}"


def _requests(row: Json) -> str:
    a, b = row["a"], row["b"]
    if not row["compared"]:
        return f"{a} and {b} keep the limits at no common number of requests in flight."
    ahead, behind = (b, a) if row["b_is_ahead_at_first"] else (a, b)
    if not row["overtakes_at"]:
        return f"{ahead} is cheaper than {behind} at every number of requests in flight."
    places = ", ".join(f"{one:,}" for one in row["overtakes_at"])
    return (
        f"{ahead} is cheaper than {behind} with few requests in flight; the lead changes at "
        f"{places}."
    )


def _equal(row: Json) -> str:
    first, rest = row["rows"][0], row["rows"][1:]
    more = row["metric"] == RATE
    value = (
        f"{first['value']:,.0f} output tokens/s from {first['chips']} chips"
        if more
        else _priced(row["metric"], first["value"])
    )
    verb = "serves most" if more else "is cheapest"
    then = "; no other chip does" if not rest else (
        f"; next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}"
    )  # fmt: skip
    return f"At equal {row['kind']} ({level_words(row)}), {first['chip']} {verb}: {value}{then}."


def tables(document: Json, bars: bool = True) -> list[Table]:
    """Every table, in the order of the questions; `bars`: with bars of text."""
    metric = document["objective"]
    found = [_scenario_table(document)] if document["scenarios"] else []
    for row in document["scenarios"]:
        found += _front_tables(row, document)
    found += [_sweep_table(row, metric) for row in document["sweeps"]]
    if document["sensitivities"] is not None:
        found += [_sensitivity_table(document, bars), _shadow_table(document)]
    if document["break_even"] is not None:
        found += _break_even_tables(document["break_even"])
    found += [_equal_table(row) for row in document["equal"]]
    return found


def _scenario_table(document: Json) -> Table:
    metric = document["objective"]
    extra = [name for name in ("tpot_s", "ttft_s") if name in document["winner"]["metrics"]]
    names = list(dict.fromkeys([metric, *extra]))

    def line(name: str, point: Json | None, change: str, front: str) -> tuple[str, ...]:
        cells = [NONE if point is None else dollars(n, point["metrics"].get(n)) for n in names]
        return (name, words(point), *cells, change, front)

    rows = [line("as things stand", document["winner"], "", f"{document['front_size']:,}")]
    for row in document["scenarios"]:
        change = NONE if row["change"] is None else tenths(row["change"], sign=True)
        rows.append(line(row["name"], row["winner"], change, f"{row['front']['size']:,}"))
        if row["winner"] is not None and not row["same_winner"]:
            old = row["old_winner"]
            name = "  the old winner then" + ("" if old["feasible"] else " (breaks a limit)")
            rows.append(line(name, old, "", ""))
    return Table(
        "scenarios", "Before and after: the winner",
        ("", "winner", *(named(name) for name in names), "change", "front"),
        rows, tuple(range(2, 4 + len(names))),
    )  # fmt: skip


def _front_tables(row: Json, document: Json) -> list[Table]:
    front = row["front"]
    metric = document["objective"]
    rows = []
    for kind in ("entered", "left"):
        for point in front[kind]["points"]:
            values = [dollars(name, point["metrics"].get(name)) for name in (metric, "tpot_s")]
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
            "front", f"What enters and leaves the front: {row['name']}",
            ("", "point", named(metric), named("tpot_s")), rows, (2, 3), (*chips, *more),
        )
    ]  # fmt: skip


def _sweep_table(row: Json, metric: str) -> Table:
    last, rows = None, []
    for one in row["rows"]:
        now = words(one["winner"])
        mark = "" if last is None or now == last else "*"
        rows.append((one["words"], dollars(metric, one["objective"]), now + mark))
        last = now
    notes = ("* another winner than a line above",) if row["switches"] else ()
    return Table(
        "sweep", f"Sweep of {row['input']}", (row["input"], named(metric), "winner"), rows, (0, 1),
        notes,
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
        "sensitivities", f"Elasticities of the {named(document['objective'])}, strongest first",
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
        "shadow", "Shadow prices: what a step of a limit is worth, deployed anew",
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
            "prices", "Break-even prices per chip-hour",
            ("chip", "deployed", "per million tokens", "now", "break-even", "change", "with"),
            rows, (2, 3, 4, 5), tuple(notes),
        )
    ]  # fmt: skip
    if together := document["concurrency"]:
        found.append(
            Table(
                "requests", "Lowest cost at each number of requests in flight",
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
        found.append(_owning_table(document))
    return found


def _owning_table(document: Json) -> Table:
    rows = [
        (
            row["chip"], f"${row['usd_to_buy']:,.0f}", f"${significant(row['rent_usd_per_hour'])}",
            f"${significant(row['owned_at_full_use'])}",
            NONE if row["utilisation"] is None else f"{row['utilisation']:.0%}",
            NONE if row["utilisation"] is None
            else f"{row['demand_output_tokens_per_s']:,.0f}",
            row["instance"],
        )
        for row in document["owning"]
    ]  # fmt: skip
    first = document["owning"][0]
    left = document["owning_left_out"]
    return Table(
        "owning", "Owning against renting, per chip-hour",
        ("chip", "to buy", "rent", "owned, always busy", "from utilisation", "output tokens/s",
         "of an instance"),
        rows, (1, 2, 3, 4, 5),
        (
            f"{first['life_years']:g} years of use, {first['usd_per_kwh']:g} USD per kWh while it "
            "serves (assumed); the chip alone: no host, network, housing, interest or resale, so "
            "that owning looks better than it is",
            *([f"no price to buy it at: {', '.join(left)}"] if left else []),
        ),
    )  # fmt: skip


def _equal_table(row: Json) -> Table:
    more = row["metric"] == RATE
    rows = []
    for one in row["rows"]:
        value = f"{one['value']:,.0f}" if more else dollars(row["metric"], one["value"])
        counts = (f"{one['deployments']:,}", f"{one['chips']:,}") if more else ()
        metrics = one["point"]["metrics"]
        cells = [dollars(name, metrics.get(name)) for name in
                 ("usd_per_million_total_tokens", "tpot_s")]  # fmt: skip
        rows.append(
            (one["chip"], value, tenths(one["over_best"], sign=True), *counts,
             words(one["point"]), *(cells if more else cells[1:]))
        )  # fmt: skip
    titles = (
        ("chip", "output tokens/s", "to best", "deployments", "chips", "each", "$/M total",
         "per token")
        if more else ("chip", named(row["metric"]), "to best", "deployed", "per token")
    )  # fmt: skip
    notes = list(row["assumed"])
    if row["level_is_the_winners"]:
        whose = "that of ten of the winner's deployments" if more else "the winner's"
        notes.append(f"without --at, the level is {whose}")
    if row["without"]:
        notes.append(f"no deployment: {', '.join(row['without'])}")
    right = (1, 2, 3, 4, 6, 7) if more else (1, 2, 4)
    return Table(
        "equal", f"At equal {row['kind']}: {level_words(row)}", titles, rows, right, tuple(notes)
    )


def inputs_table(document: Json) -> Table:
    """The inputs that have a value, for a question that changes none."""
    rows = [(row["input"], row["words"]) for row in document["inputs"] if row["now"] is not None]
    return Table(
        "inputs", "What --set and --sweep may change, and its value now", ("input", "now"), rows,
        (1,), ("also limit.METRIC of any metric, chip.all.FIGURE of every chip",),
    )  # fmt: skip
