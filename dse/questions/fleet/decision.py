"""The decision of a plan: what a mix is and costs, as frames and pictures, and its sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dse.answer.answer import Figure, Table
from dse.answer.frames import bar_chart, frame, lines, of_rows, stacked_bars
from dse.answer.numbers import dollars, percent, share, significant, tenths, time
from dse.answer.sentences import listed
from dse.data import rows_beside
from dse.economics.fleet import DEMAND, MANY, NOTHING, Solved, settled, solve
from dse.economics.fleet_cost import (
    DOLLARS,
    Counted,
    Mix,
    Option,
    count,
    orders_of,
    tokens,
    unserved,
)
from dse.economics.prices import as_of_words, evidence_words, unsold_rests
from dse.economics.scenarios import Hedged
from dse.questions.fleet.changes import (
    NOTHING_KEEPS,
    Row,
    limit_words,
    offer_price,
    stock_words,
    value_words,
)
from dse.questions.fleet.finance import cash_figure
from dse.schema.plan import BUY, QUARTER_HOURS, FleetChip, Offer, Plan

MOST_SHOWN = 400  # windows of a trace
OWN_FORMATS = "checkpoint format, its own cache"  # of an option whose class asks for none
ROUNDING = 1e-6  # of a sum
BINDS = 1e-3  # of the cost: a limit that saves less when it is looser does not bind
# Costs of owning that the answer names, as `dse.schema.costs.RULES` does, and some in words.
OWNED_COSTS = ("resale", "server_factor", "network_share", "maintenance", "staff", "space")
OWNED_COSTS = (*OWNED_COSTS, "electricity")
IN_WORDS = {"server_factor": "server over chips", "network_share": "network"}
# By name the caption of each frame, and its columns on the terminal and the page (else all). Those
# of SHOWN stand there, in its order; the data has all.
FRAMES = {row["name"]: row for row in rows_beside(__file__, "frames.csv")}
# Keys of an option, each `key=place` where it has the value under another name.
OPTION = (
    "class=klass model on=label division requests_per_s ttft_s tpot_s percentile formats "
    "concurrency bound known=kind"
)
SHOWN = ("fleets", "chips", "by_quarter", "instances", "prices", "limits", "refused")


def single(plan: Plan) -> bool:
    """Whether the plan asks for one class in one quarter, so that chips compare one by one."""
    return plan.quarters == 1 and len(plan.demand) == 1


def alone(plan: Plan, options: Sequence[Option]) -> list[Row]:
    """The plan on each of its chips alone, the cheapest first: dollars per million tokens at the
    mean rate, where part of it idles, and at the rate that it is sized for."""
    rows = []
    (one,) = plan.demand
    for chip in plan.chips:
        mine = [option for option in options if set(option.chips) == {chip.chip}]
        only = replace(plan, chips=(chip,))
        solved = solve(only, mine) if mine else NOTHING
        if solved.mix is None:
            reason = "cannot keep the plan alone" if mine else "serves no class within its limits"
            rows.append((math.inf, {"chip": chip.chip, "chips": None, "reason": reason}))
            continue
        counted = count(only, mine, settled(only, mine, solved.mix))
        used = [(mine[k], number) for (k, _), number in counted.mix.instances.items()]
        hourly, capacity = counted.within_usd / QUARTER_HOURS, float(counted.capacity[0, 0])
        mean = 3600.0 * one.mean_per_s(0) * one.tokens
        servers = counted.by_chip["rented"] + counted.by_chip["on"]
        parts = []
        for option, number in used:
            formats = "" if option.formats in ("", OWN_FORMATS) else f", {option.formats}"
            parts.append(f"{number:,} x {option.divided.replace(' x ', ' ', 1)}{formats}")
        row = {
            "chip": chip.chip,
            "fleet": ", ".join(parts),
            "chips": round(servers.sum()) * chip.server,
            "instances": sum(number for _, number in used),
            "usd_per_hour": hourly,
            "ttft_percentile_s": max(option.ttft_s for option, _ in used),
            "tpot_s": max(option.tpot_s for option, _ in used),
            "load": one.peak_per_s(0) / capacity,
            "most_requests_per_s": capacity,
            "tokens_per_usd": mean / hourly if hourly else None,
            "usd_per_million_mean": 1e6 * hourly / mean,
            "usd_per_million_busy": 1e6 * hourly / (mean * one.peak_over_average),
            "reason": None,
        }
        rows.append((counted.usd, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def option_row(one: Option) -> Row:
    places = (word.partition("=") for word in OPTION.split())
    return {key: getattr(one, place or key) for key, _, place in places}


def mix_columns(
    plan: Plan, options: Sequence[Option], counted: Counted, spend: Mapping[str, Any]
) -> dict[str, Mapping[str, Any] | Sequence[Row]]:
    """Columns, or rows, of the frames that say what a mix is and costs. Quarters that follow each
    other with as many of the same instances share a row."""
    by, mix, quarters = counted.by_chip, counted.mix, range(plan.quarters)
    server = np.array([chip.server for chip in plan.chips])
    watts = np.array([chip.watts for chip in plan.chips])
    names = [chip.chip for chip in plan.chips]
    ordered, orders = np.zeros_like(by["rented"]), []
    for offer, q, servers, chips in orders_of(plan, mix):
        bought, usd = offer.way == BUY, offer.usd_in(q)
        ordered[q, names.index(offer.chip)] += servers
        row = {
            "order_quarter": q + 1,
            "first_quarter": q + 1 + offer.lead_quarters,
            "way": offer.way,
            "chip": offer.chip,
            "offer": offer.label,
            "servers": servers,
            "chips": chips,
            "term_quarters": None if bought else offer.term_quarters,
            "price_usd": usd,
            "per": "chip" if bought else "chip-hour",
            "commits_usd": chips * usd * (1.0 if bought else offer.term_quarters * QUARTER_HOURS),
        }
        orders.append(row)
    at = q, k = np.nonzero(ordered + by["rented"] + by["owned"])
    servers = {"ordered_chips": ordered, "rented_chips": by["rented"]}
    servers |= {"owned_chips": by["owned"], "owned_on_chips": by["on"]}
    held = {name: np.rint(of[at] * server[k]).astype(int) for name, of in servers.items()}
    peaks, means = (
        np.array([[per_s(q) for per_s in of] for q in quarters]) / counted.capacity
        for of in ([one.peak_per_s for one in plan.demand], [one.mean_per_s for one in plan.demand])
    )
    after = np.full(len(spend["quarter"]) - plan.quarters, np.nan)
    spans: list[tuple[int, int, int, float]] = []  # first and last quarter, option, instances
    for (place, quarter), instances in sorted(mix.instances.items()):
        if spans and spans[-1][1:] == (quarter - 1, place, instances):
            spans[-1] = (spans[-1][0], quarter, place, instances)
        else:
            spans.append((quarter, quarter, place, instances))
    return {
        "chips": {
            "quarter": q + 1,
            "chip": [names[column] for column in k],
            **held,
            "serving_chips": np.rint(by["serving_chips"][at]).astype(int),
            "kilowatts": (held["rented_chips"] + held["owned_on_chips"]) * watts[k] / 1e3,
            **{name: by[name][at] for name in DOLLARS},
            "usd": np.sum([by[name][at] for name in DOLLARS], axis=0),
            "bought_usd": by["bought_usd"][at],
        },
        "orders": sorted(orders, key=lambda row: (row["order_quarter"], row["offer"])),
        "by_quarter": {**spend, "peak_use": np.append(peaks.max(axis=1), after)},
        "use": {
            "quarter": np.repeat(np.arange(plan.quarters) + 1, len(plan.demand)),
            "class": [one.name for one in plan.demand] * plan.quarters,
            "peak_use": peaks.ravel(),
            "mean_use": means.ravel(),
        },
        "instances": [
            {
                "quarter": first + 1,
                "last_quarter": last + 1,
                "instances": instances,
                **option_row(options[place]),
            }
            for first, last, place, instances in sorted(spans)
        ],
    }


def demand_rows(plan: Plan) -> dict[str, Sequence[Row]]:
    """What is asked for, groups of requests, and requests per second by window; beyond MOST_SHOWN
    windows the busiest of several in a row."""
    demand, arrivals = [], []
    for one in plan.demand:
        row = {
            "class": one.name,
            "models": ", ".join(one.models),
            "mean_requests_per_s": one.requests_per_s,
            "peak_requests_per_s": one.peak_per_s(plan.quarters - 1),
            "prompt_tokens": one.mean.prompt_tokens,
            "output_tokens": one.mean.output_tokens,
            "percentile": one.percentile,
            "ttft_s": one.ttft_s,
            "tpot_s": one.tpot_s,
        }
        demand.append(row)
        if (windows := one.windows) is not None:
            each = -(-len(windows.requests) // MOST_SHOWN)
            starts = np.arange(0, len(windows.requests), each)
            busiest = np.maximum.reduceat(windows.per_s, starts)
            for start, rate in zip(starts.tolist(), busiest.tolist(), strict=True):
                row = {"class": one.name, "start_s": start * windows.seconds}
                row |= {"window_s": each * windows.seconds, "requests_per_s": rate}
                arrivals.append(row)
    streams = [{"class": one.name, **asdict(part)} for one in plan.demand for part in one.streams]
    return {"demand": demand, "streams": streams, "arrivals": arrivals}


def frames_of(
    made: Mapping[str, Mapping[str, Any] | Sequence[Row]], *, split: bool
) -> dict[str, Table]:
    """The frames that have rows, in the order of FRAMES."""
    frames = {}
    for name, row in FRAMES.items():
        if not (given := made.get(name)):
            continue
        caption = row["caption"] + ", instances split" * (split and name in ("prices", "limits"))
        if isinstance(given, Mapping):
            one = frame(name, caption, given)
        else:
            keys = dict.fromkeys(key for row in given for key in row)
            notes = [_next_words(given)] if name == "prices" else []
            one = of_rows(name, caption, given, tuple(keys), *filter(None, notes))
        known = {column.key for column in one.columns}
        shown = tuple(key for key in row["shown"].split() if key in known)
        frames[name] = replace(one, shown=shown)
    return frames


def pictures(
    plan: Plan, counted: Counted, made: Mapping[str, Any], frames: Mapping[str, Table]
) -> list[Figure]:
    """At most three: cash by quarter, or arrivals and chips beside each other in a plan of one;
    then chips that are on."""
    drawn = [cash_figure(frames)] if plan.quarters > 1 else []
    one = plan.demand[0]
    if one.windows is not None:
        levels = {
            f"sized for {significant(one.peak_per_s(0))}/s": one.peak_per_s(0),
            f"serves up to {significant(counted.capacity[0, 0])}/s": float(counted.capacity[0, 0]),
        }
        rows = [row for row in frames["arrivals"].rows if row["class"] == one.name]
        ends = [rows[0]["start_s"], rows[-1]["start_s"]]
        for words, rate in levels.items():
            rows += [{"class": words, "start_s": at, "requests_per_s": rate} for at in ends]
        drawn.append(
            lines(
                f"arrivals-{one.name}",
                f"Arrivals of {one.name} against what the fleet serves",
                of_rows("", "", rows, "class start_s requests_per_s"),
                "start_s",
                "requests_per_s",
                "class",
                "Requests per second over time, with two levels: what the fleet is sized for, and "
                "the most that it serves within the limits.",
                across="seconds since the first request",
            )
        )
    kept = [row for row in made.get("fleets", ()) if row["chips"]]
    if len(kept) > 1:
        drawn.append(
            bar_chart(
                "tokens",
                "Tokens per dollar by chip",
                [f"{row['chip']} ({row['chips']:,})" for row in kept],
                {"tokens per dollar": [(row["tokens_per_usd"] or 0.0) / 1e6 for row in kept]},
                "million tokens per dollar, at the mean rate",
                "Million tokens per dollar of the cheapest fleet on each chip alone.",
            )
        )
    held = {}
    for k, chip in enumerate(plan.chips):
        for way, name in (("rented", "rented"), ("owned", "on")):
            chips = counted.by_chip[name][:, k] * chip.server
            if chips.any():
                held[f"{chip.chip}, {way}"] = chips.tolist()
    shows = "Chips that are on by quarter, stacked by chip."
    chips = stacked_bars("chips", "Chips that are on", held, "chips that are on", shows)
    return [*drawn[:2], chips]


def headline(plan: Plan, counted: Counted) -> str:
    """`Rent 24 h100_sxm on rental_3yr (in quarter 1): $1.2M over 6 quarters, $0.31 per million
    tokens.`"""
    mix = counted.mix
    parts = [_ordered(plan, mix.orders, offer) for offer in ordered(plan, mix)]
    what = listed(parts) or "order nothing"
    kept = [_kept_on(counted, k, chip) for k, chip in enumerate(plan.chips) if chip.stock]
    what += f"; {listed(kept)}" if kept else ""
    within, usd = _several(plan.quarters, "quarter"), counted.within_usd
    cost = f"{dollars(usd)} over {within}"
    if counted.signed_usd > usd * (1.0 + ROUNDING):
        cost = f"{dollars(counted.signed_usd)} signed for in all, {dollars(usd)} of it the cost of "
        cost += f"the {within}"
    end = ""
    if abs(counted.usd - usd) > ROUNDING * usd:
        end = f"; discounted {dollars(counted.usd)}"
        if written_off := counted.written_off_usd:
            end += f", with {dollars(written_off)} written off when the plan ends"
    return f"{_upper(what)}: {cost}, {dollars(usd / tokens(plan) * 1e6)} per million tokens{end}."


def ordered(plan: Plan, mix: Mix) -> list[Offer]:
    labels = {label for label, _ in mix.orders}
    return [offer for offer in plan.offers if offer.label in labels]


def _ordered(plan: Plan, orders: Mapping[tuple[str, int], float], offer: Offer) -> str:
    """`rent 24 h100_sxm on rental_3yr (16 in quarter 1, 8 in quarter 3)`."""
    server = plan.chip(offer.chip).server
    when = sorted(
        (q, round(n * server)) for (label, q), n in orders.items() if label == offer.label
    )
    what = offer.label.replace(", rent", "").replace(", bought", "")
    each = [f"{chips:,} in quarter {q + 1}" for q, chips in when]
    said = listed(each) if len(when) > 1 else f"in quarter {when[0][0] + 1}"
    if offer.lead_quarters:
        said = f"ordered {said}, there {_several(offer.lead_quarters, 'quarter')} later"
    return f"{offer.way} {sum(chips for _, chips in when):,} {what} ({said})"


def _kept_on(counted: Counted, k: int, chip: FleetChip) -> str:
    """`run up to 496 of the 512 a100_80_sxm that are owned (496 in quarter 1, 72 in quarter 6)`."""
    on = [round(servers) * chip.server for servers in counted.by_chip["on"][:, k].tolist()]
    most = round(counted.by_chip["owned"][:, k].max()) * chip.server
    what = "owned" if most == chip.stock else "owned or bought"
    own = f"the {most:,} {chip.chip} that are {what}"
    if not any(on):
        return f"leave {own} off"
    if len(set(on)) == 1:
        return f"run {on[0]:,} of {own}"
    ends = f"{on[0]:,} in quarter 1, {on[-1]:,} in quarter {len(on)}"
    return f"run up to {max(on):,} of {own} ({ends})"


def sentences(
    plan: Plan, solved: Solved, counted: Counted, facts: Mapping[str, Any], made: Mapping[str, Any]
) -> list[str]:
    """What decides beside the headline and what is to be checked, the weightiest first."""
    said = []
    binding = [row for row in made["limits"] if row["usd"] and row["usd"] < -BINDS * solved.usd]
    if binding:
        row = min(binding, key=lambda row: row["usd"])
        said.append(f"{_upper(row['limit'].partition(' (')[0])} binds: {row['effect']}.")
    said += _against_renting(facts["finance"])
    said += [stock_words(row) for row in made["stock"]]
    if single(plan):
        one = plan.demand[0]
        first = "the median first token"
        if one.percentile not in (None, 50):
            first = f"the {one.percentile}th percentile of times to first token"
        said.append(
            f"It serves up to {significant(counted.capacity[0, 0])} requests/s with {first} within "
            f"{time(one.ttft_s)} and {time(one.tpot_s)} per token after it, and is sized for "
            f"{significant(one.peak_per_s(0))}."
        )
    return said


def hedged_sentences(plan: Plan, one: Hedged, counted: Counted | None) -> list[str]:
    """What to order now, how sure that is, what it costs, what it would save to know more."""
    assert plan.service_level is not None
    orders = {(label, 0): float(servers) for label, servers in one.order.items()}
    now = [_ordered(plan, orders, o) for o in plan.offers if o.label in one.order]
    said = [
        f"Order now: {listed(now) or 'nothing'}: it serves {tenths(one.share)} of futures, at "
        f"{dollars(one.usd)} in the mean, {dollars(one.low)} to {dollars(one.high)} in 80% of them."
    ]
    if not one.reached:
        said.append(
            f"No order was found that serves {percent(plan.service_level)} of futures within the "
            "limits; this one serves most."
        )
    said += [
        f"The first quarter's peak may be {percent(one.headroom)} higher than predicted.",
        f"To see the future before ordering would save {dollars(one.waiting_usd)} in the mean; to "
        f"measure throughput alone, {dollars(one.measuring_usd)}.",
    ]
    if counted is None:
        said.append("If all comes as predicted, no later order serves the plan.")
    return said


def served(facts: Mapping[str, Any]) -> list[str]:
    """How many futures the order serves where no service level is asked."""
    futures = facts["futures"]
    if futures is None or futures["service_level"] is not None:
        return []
    return [
        f"Of 100 futures, the first orders serve {round(100.0 * futures['share'])}; "
        "--service-level 80% orders what serves 80 of them."
    ]


def to_check(
    plan: Plan, mix: Mix, evidence: Sequence[Row], off_sale: Mapping[str, str]
) -> list[str]:
    """What to check of chips and prices before the orders are signed."""
    taken = ordered(plan, mix)
    chips = dict.fromkeys(offer.chip for offer in taken)
    unsold = [f"{chip} ({off_sale[chip]})" for chip in chips if chip in off_sale]
    said = [f"Not on general sale: {listed(unsold)}; the next may have to do."] if unsold else []
    priced = {(offer.chip, offer.basis) for offer in taken}
    return said + evidence_words([r for r in evidence if (r["chip"], r["basis"]) in priced])


def _next_words(rows: Sequence[Row]) -> str:
    """The offer that comes in first as prices fall; where none is left, the dearest that stays."""
    ratios = [
        (at / row["price_usd"], row)
        for row in rows
        if (at := row["usd_enters_or_leaves_at"]) and row["price_usd"] and row["reason"] is None
    ]
    if not ratios:
        return ""
    unused = [pair for pair in ratios if not pair[1]["used"]]
    _, row = max(unused, key=lambda pair: pair[0]) if unused else min(ratios, key=lambda p: p[0])
    at, now = offer_price(row, "usd_enters_or_leaves_at"), offer_price(row, "price_usd")
    if unused:
        return f"Next is {row['offer']}: it would be used below {at}; it costs {now} now."
    return f"{row['offer']} stays in the fleet up to {at}; it costs {now} now."


def _against_renting(money: Mapping[str, Any]) -> list[str]:
    """What buying returns against the cheapest order that only rents."""
    other, why = money["against_renting"], money["renting_alone"]
    if other is None:
        if why == NOTHING_KEEPS:
            return ["Nothing keeps the plan by renting alone, so that buying has no return."]
        return [f"What buying returns against renting alone is {why}."] if why else []
    saves, rate, back = (
        other[key] for key in ("present_usd_saved", "irr_per_year", "payback_quarter")
    )
    earns = "pays at any rate of interest" if saves > 0.0 else "pays at no rate of interest"
    if rate is not None:
        earns = f"returns {tenths(rate)} a year"
    paid = f"paid back in quarter {back}" if back else "paid back only by what is left"
    return [
        f"Buying, {dollars(money['capex_usd'])} in cash, {earns} against the cheapest order that "
        f"only rents and {'saves' if saves > 0.0 else 'costs'} {dollars(abs(saves))} of today's "
        f"worth; it is {paid}."
    ]


def nothing_keeps(
    plan: Plan, options: Sequence[Option], facts: Mapping[str, Any], refused: Sequence[Row]
) -> list[str]:
    """That nothing keeps the plan, why, and what must change."""
    said = []
    for one in unserved(plan, options):
        why = [row for row in refused if row["class"] == one.name]
        rows = [f"{row['model']} on {row['chip']}: {row['reason']}" for row in why]
        reason = "; ".join(rows) or "no chip may serve it"
        said.append(f"No fleet serves {one.name} within its limits. {reason}.")
    if said:
        return said
    if facts["status"] != "infeasible":
        return [f"No fleet was found; {facts['status']}, so that one may exist."]
    alone = [row for row in facts["must_give"] if len(row["limits"]) == 1]
    said = ["No fleet keeps this plan."]
    if alone:
        more = "Any one of these changes is enough:" if len(alone) > 1 else "One must change:"
        said = [f"{said[0]} {more}"]
    for row in facts["must_give"]:
        parts = []
        for name, given, needed in zip(row["limits"], row["given"], row["needed"], strict=True):
            moves = "falls" if name.startswith(DEMAND) else "rises"
            ends = f"{value_words(name, given)} to {value_words(name, needed)}"
            parts.append(f"{limit_words(name)} {moves} from {ends}")
        least = "" if row["proven_least"] else " (a smaller change may be enough)"
        start = "" if len(row["limits"]) == 1 else "no limit alone is enough; together: "
        said.append(_upper(f"{start}{listed(parts)}{least}."))
    said += [f"With no wait for {label}, the plan holds." for label in facts["lead_time_too_long"]]
    if len(said) == 1:
        said.append("Nothing that is listed arrives in time for the first quarter.")
    return said


def asked(plan: Plan) -> str:
    """The plan in one line."""
    basis = f"rents on the basis {plan.price_basis} unless a chip says otherwise"
    if all(offer.way == BUY for offer in plan.offers):
        basis = "chips are bought, at the costs of owned_tco"
    parts = [plan.title, plan.description, f"{_several(plan.quarters, 'quarter')}; {basis}"]
    for name, value in asdict(plan.limits).items():
        if value != math.inf:
            parts.append(f"{_upper(limit_words(name))}: at most {value_words(name, value)}")
    parts += [f"{chip.stock:,} {chip.chip} are owned" for chip in plan.chips if chip.stock]
    if plan.spare_servers:
        parts.append(f"{_several(plan.spare_servers, 'spare server')} of each chip that is used")
    if plan.spare_share:
        parts.append(f"{share(plan.spare_share)} spare chips")
    return "".join(f"{part.rstrip('.')}. " for part in parts if part).rstrip()


def assumptions(plan: Plan, facts: Mapping[str, Any], off_sale: Mapping[str, str]) -> list[str]:
    """What the answer rests on."""
    one = plan.uncertainty
    rests = [f"later quarters are discounted by {plan.discount_rate:.0%} a year"]
    if facts["futures"] is not None:
        prices = "the spread of published rows, 15% where there are too few (assumed)"
        if one.prices is not None:
            prices = f"{one.prices:.0%} either way"
        known = f" but for {listed(one.measured)}, measured" if one.measured else ""
        rests.append(
            f"futures: demand errs by {one.demand:.0%} either way (80% interval) in the first "
            "quarter and by as much more in each that follows; throughput by the model's 80% "
            f"intervals{known}; prices by {prices}; a delivery is a quarter late in {one.late:.0%} "
            "of them (uncertainty of the plan, assumed unless given)"
        )
    if facts["owned_prices"]:
        costs = plan.costs.inputs
        named = [f"{IN_WORDS.get(name, name)} {costs[name].text}" for name in OWNED_COSTS]
        assumed = [name for name in OWNED_COSTS if costs[name].kind == "assumed"]
        left = [name for name, line in plan.costs.lines.items() if not line.counted]
        rests += [
            "owned chips cost what the basis owned_tco says: capital as level payments over "
            f"{costs['life'].text} at {costs['cost_of_capital'].text} a year (that of stock is "
            "sunk), the rest at the mean load while they are on",
            f"costs of owning: {', '.join(named)} (maintenance a year, staff a chip)"
            + (f"; assumed: {', '.join(assumed)}" if assumed else ""),
            *([f"not counted unless the costs ask for them: {', '.join(left)}"] if left else []),
        ]
    rests.append("rates are predictions of the roofline model (dse validate says how close)")
    for each in plan.demand:
        load = "the highest steady load within the limits, in the median"
        if each.percentile is not None:
            load = (
                f"the highest rate of random (Poisson) arrivals that keeps {each.percentile}% of "
                "first tokens in time"
            )
        source = f"; from {each.source}" if each.source else ""
        rests.append(f"{each.name}: {load}{source}")
    if facts["changes_with_split_instances"]:
        rests.append(
            f"more than {MANY} instances: prices and limits at which the mix changes come from a "
            "program whose instances need not be whole (split)"
        )
    rests += [f"prices of {file} before the shipped ones" for file in plan.own.prices]
    rests += as_of_words(plan.own)
    rests += [f"costs of owning of {file}" for file in plan.costs.files]
    rests += unsold_rests(off_sale)
    rests += [f"{offer.label}: {offer.words}" for offer in plan.offers]
    rests += [
        f"{chip.chip}: {chip.watts / 1e3:.3g} kW a chip at the meter ({chip.power_words}); "
        f"{chip.chips_per_rack} chips a rack ({chip.rack_words})"
        for chip in plan.chips
    ]
    return list(dict.fromkeys([*rests, *plan.assumed]))


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _upper(text: str) -> str:
    """With a capital letter at its start."""
    return text[:1].upper() + text[1:]
