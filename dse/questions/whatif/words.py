"""The answer of `dse whatif` in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse import units
from dse.answer.numbers import percent, significant, tenths
from dse.physics.workload import POISSON
from dse.problem.words import load_words, show
from dse.questions.scale.words import chips_words
from dse.questions.whatif.equal import RATE, level_words
from dse.questions.whatif.solve import words
from dse.schema.metrics import METRICS

Json = Mapping[str, Any]


def named(metric: str) -> str:
    return METRICS[metric].label


def _priced(metric: str, value: float | None) -> str:
    """`$0.069 per million tokens`."""
    of = named(metric).removeprefix("cost ")
    return f"{show(metric, value)} {of}"


def heading(document: Json) -> str:
    """What is asked of what, in a line."""
    loads = "; ".join(load_words(load) for load in document["workloads"])
    limits = ", ".join(document["limits"]) or "no limit"
    demand = f"demand: {document['demand']['words']}; " if document["demand"] else ""
    return f"{document['title']}: {loads}; {demand}{limits}; prices: {document['price_basis']}"


def sentences(document: Json) -> list[str]:
    """The answer, each question's in the order it was asked, the winner as things stand first."""
    metric = document["objective"]
    found = [_winner(document), *_demand(document)]
    found += [_scenario(row, metric) + _requests_kept(row) for row in document["scenarios"]]
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
    load = winner["at_average_load"]
    if not metric.startswith("usd_per_million"):
        said = f"{words(winner)} is best: {named(metric)} {show(metric, value)}"
    elif load is None or load["deployments"] is None:
        said = f"{words(winner)} is cheapest: {_priced(metric, value)}"
    else:
        verb = "is" if load["deployments"] == 1 else "are"
        said = (
            f"{counted(load['deployments'], 'deployment')} of {words(winner)} {verb} cheapest for "
            f"the demand: {_priced(metric, value)}"
        )
    ends = winner["intervals"].get(metric)
    sure = f"kernel laws {winner['provenance']}"
    if ends:
        low, high = (show(metric, end) for end in ends)
        same = "the same at both ends of the 80% interval"
        sure = f"{same if low == high else f'80% interval {low} to {high}'}, {sure}"
    return f"As things stand, {said} ({sure})."


def _demand(document: Json) -> list[str]:
    """What the demand takes of the winner; nothing without a demand."""
    demand, load = document["demand"], document["winner"]["at_average_load"]
    if demand is None:
        return []
    arrive = any(one["serving"] == POISSON for one in document["workloads"])
    of, full = ("given", " of the study's arrivals") if arrive else ("busy", "")
    share = f"{of} {percent(load['busy_share'])}{full} on average"
    busy = (
        f"{share}, where one that {'gets them all' if arrive else 'never waits'} would cost "
        f"${significant(load['busy_usd_per_million_total_tokens'])} per million tokens"
    )
    said = demand["words"]
    said = f"{said[0].upper()}{said[1:]}"
    if load["deployments"] is None:
        return [f"{said}: deployments of any size, {busy}."]
    who = "it" if load["deployments"] == 1 else "each"
    ends = load["deployments_interval"]
    between = (
        "" if ends is None or ends[0] == ends[1] else f" (80% interval {ends[0]:,} to {ends[1]:,})"
    )
    parts = [f"{counted(load['deployments'], 'deployment')}{between}"]
    parts.append(f"{counted(load['chips'], 'chip')} in all")
    if load["meter_w"] is not None:
        parts.append(f"{units.format(load['meter_w'], 'W', 3)} at the meter")
    if demand["racks"] is not None:
        parts.append(
            f"{counted(demand['racks'], 'rack')} of {units.format(demand['rack_w'], 'W', 3)}"
        )
    paid = (
        f"${money(load['usd_per_hour'])} an hour, ${load['usd_per_year']:,.0f} a year, "
        f"${significant(load['usd_per_million_total_tokens'])} per million tokens"
    )
    return [f"{said}, takes {', '.join(parts)}: {paid}; {who} is {busy}."]


def counted(count: float, what: str) -> str:
    """`1 chip`, `1,024 chips`."""
    return f"{count:,.0f} {what}{'' if count == 1 else 's'}"


def money(usd: float) -> str:
    """Dollars an hour: 8.40, 1,230."""
    return f"{usd:,.2f}" if usd < 1000.0 else f"{usd:,.0f}"


def taking(point: Json | None) -> str:
    """` with 4 deployments, 8 chips, $8.40 an hour`; nothing without a demand."""
    load = None if point is None else point["at_average_load"]
    if load is None or load["deployments"] is None:
        return ""
    return (
        f" with {counted(load['deployments'], 'deployment')}, {counted(load['chips'], 'chip')}, "
        f"${money(load['usd_per_hour'])} an hour"
    )


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
        f"{_moving(front['entered']['count'], 'enter')} the front and "
        f"{_moving(front['left']['count'], 'leave')} it "
        f"({front['size_before']:,} before, {front['size']:,} after)"
    )
    if row["winner"] is None:
        return f"With {row['name']}, nothing is feasible: {row['infeasible_because']}."
    value = show(metric, row["winner"]["metrics"][metric]) + taking(row["winner"])
    if row["same_winner"]:
        return (
            f"With {row['name']}, it stays first at {value}, {_by(metric, row['change'])}; {moved}."
        )
    old = row["old_winner"]
    was = (
        f"in its place the old one would be at {show(metric, old['metrics'][metric])}"
        if old["feasible"]
        else "the old one no longer keeps the limits"
    )
    return (
        f"With {row['name']}, {words(row['winner'])} wins at {value}, "
        f"{_by(metric, row['change'])}; {was}; {moved}."
    )


def _requests_kept(row: Json) -> str:
    """That a demand in tokens is of fewer, longer requests, or of more that are shorter."""
    times = row["demand_of_as_many_requests"]
    if times is None:
        return ""
    other = "longer requests are fewer" if times > 1.0 else "shorter requests are more"
    return f" The demand is of tokens, so that {other}: as many as before are demand={times:.3g}x."


def _moving(count: int, verb: str) -> str:
    """`1 enters`, `14 enter`."""
    return f"{count:,} {verb}{'s' if count == 1 else ''}"


def _sweep(row: Json, metric: str) -> str:
    steps = row["rows"]
    ends = f"from {steps[0]['words']} to {steps[-1]['words']}"
    values = " to ".join(
        "nothing feasible"
        if steps[k]["winner"] is None
        else show(metric, steps[k]["objective"]) + taking(steps[k]["winner"])
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
    whole = _whole(document["sensitivities"])
    if not few:
        return f"No input moves the {metric} near where it stands{whole}."
    moved = f"One percent more of an input moves the {metric}, deployed anew, by"
    return f"{moved}: {', '.join(few)}{whole}."


def _whole(rows: list[Json]) -> str:
    """What a tenth of the demand does, which buys or saves a whole deployment or none."""
    for row in rows:
        less, more = row["at_10_percent_less"], row["at_10_percent_more"]
        if row["input"] == "demand" and None not in (less, more):
            ends = f"10% less {tenths(less, sign=True)}, 10% more {tenths(more, sign=True)}"
            return f"; of demand, since deployments are whole, {ends}"
    return ""


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
    if document["owning"] and chips[0]["chip"] in document["owning_left_out"]:
        found.append(f"What owning {chips[0]['chip']} costs is not known (no price or no power).")
    found += [_owning(row) for row in document["owning"][:1]]
    return found


def _owning(row: Json) -> str:
    chip, rent, even = row["chip"], row["rent_usd_per_hour"], row["utilisation"]
    if rent is None:
        said = f"nobody's price says what {chip} costs by use"
    elif even is None:
        said = f"owning {chip} costs more than renting it by use at any utilisation"
    else:
        said = (
            f"owning {chip} beats renting it by use (${significant(rent)}, {row['rent_basis']}) "
            f"from {even:.0%} utilisation: {row['demand_output_tokens_per_s']:,.0f} output "
            f"tokens/s on one instance of {chips_words(row['instance_chips'])}"
        )
    said += f"; always busy it costs ${significant(row['owned_at_full_use'])} per chip-hour"
    if row["committed_usd_per_hour"] is not None:
        committed = row["committed_usd_per_hour"]
        said += f", against ${significant(committed)} on {row['committed_basis']}"
    return f"{said[0].upper()}{said[1:]}."


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
        f"{first['value']:,.0f} output tokens/s from {counted(first['chips'], 'chip')}"
        if more
        else _priced(row["metric"], first["value"])
    )
    verb = "serves most" if more else "is cheapest"
    none = "; no deployment of another chip fits" if more else "; no other chip keeps it"
    then = none if not rest else (
        f"; next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}"
    )  # fmt: skip
    return f"At equal {row['kind']} ({level_words(row)}), {first['chip']} {verb}: {value}{then}."
