"""`dse fleet --json`, whose rows the tables and pictures show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dse.answer.answer import Cell
from dse.economics.fleet_cost import Counted, Option, site_kwh
from dse.questions.fleet.answer import OneChip, Solution, owned_prices, per_million, split
from dse.questions.fleet.changes import Entry
from dse.schema.plan import BUY, QUARTER_HOURS, DemandClass, Plan
from dse.schema.traffic import Windows

OWN_FORMATS = "checkpoint format, its own cache"  # of an option whose class asks for none
MOST_SHOWN = 400  # windows of a trace
SPENT = ("rent", "capital", "upkeep", "electricity")


def document(
    found: Solution, sentences: Sequence[str], rests: Sequence[str] = ()
) -> dict[str, Any]:
    """`dse fleet --json`."""
    plan, solved, counted = found.plan, found.solved, found.counted
    carbon = plan.costs.carbon
    kwh = None if counted is None else site_kwh(plan, counted)
    return {
        "plan": plan.name,
        "title": plan.title,
        "demand": [_demand(plan, one) for one in plan.demand],
        "answer": list(sentences),
        "feasible": counted is not None,
        "status": solved.status,
        "price_basis": plan.price_basis,
        "price_evidence": list(found.priced),
        "quarters": plan.quarters,
        "usd": None if counted is None else counted.usd,
        "usd_undiscounted": None if counted is None else counted.within_usd,
        "usd_per_million_tokens": None if counted is None else per_million(plan, counted),
        "usd_signed": None if counted is None else counted.signed_usd,
        "usd_committed_beyond": None if counted is None else counted.committed_usd,
        "usd_written_off": None if counted is None else counted.written_off_usd,
        "usd_bought": None if counted is None else counted.bought_usd,
        "usd_lower_bound": None if counted is None else solved.bound,
        "gap": None if counted is None else solved.gap,
        "kwh_on_site": kwh,
        "co2_kg": None if carbon is None or kwh is None else kwh * carbon.value / 1e3,
        "futures": _futures(found),
        "orders": _orders(found),
        "by_quarter": [] if counted is None else _quarters(found, counted),
        "instances": _instances(found),
        "fleets": [_alone(found, one) for one in found.alone],
        "chips_by_means": found.by_means,
        "changes_with_split_instances": counted is not None and split(found),
        "owned_prices": [one.as_json() for one in owned_prices(plan)],
        "prices": [_offer(row) for row in found.entries],
        "limits": [
            {
                "limit": row.what,
                "value": row.before,
                "more": row.after,
                "usd": row.usd,
                "usd_per_unit": None if row.usd is None else row.usd / (row.after - row.before),
            }
            for row in found.loosened
        ],
        "must_give": [
            {
                "limits": list(row.limits),
                "given": list(row.given),
                "needed": list(row.needed),
                "proven_least": row.proven,
            }
            for row in found.gives
        ],
        "lead_time_too_long": list(found.waits),
        "not_searched": [one.as_json() for one in found.untried],
        "refused": [
            {"class": r.klass, "chip": r.chip, "model": r.model, "reason": r.reason}
            for r in found.refused
        ],
        "options": [_option(option) for option in found.options],
        "assumed": list(rests),
    }


def _futures(found: Solution) -> dict[str, Any] | None:
    """What futures say of the orders of the first quarter."""
    if found.hedged is not None:
        said = asdict(found.hedged)
        servers = said.pop("order")
        return {"service_level": found.plan.service_level, "servers_now": servers, **said}
    return None if found.served is None else {"service_level": None, "share": found.served}


def _demand(plan: Plan, one: DemandClass) -> dict[str, Any]:
    """What a class asks for; `busy` is the peak of the last quarter."""
    traffic, mean = one.traffic, one.traffic.mean
    return {
        "class": one.name,
        "models": list(one.models),
        "requests_per_s": {
            "mean": traffic.requests_per_s,
            "busy": traffic.peak_per_s(plan.quarters - 1),
        },
        "percentile": one.percentile,
        "ttft_s": one.ttft_s,
        "tpot_s": one.tpot_s,
        "prompt_tokens": mean.prompt_tokens,
        "output_tokens": mean.output_tokens,
        "classes": [asdict(part) for part in traffic.streams],
        "arrivals": None if traffic.windows is None else _arrivals(traffic.windows),
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


def _orders(found: Solution) -> list[dict[str, Any]]:
    if found.solved.mix is None:
        return []
    rows = []
    for (label, q), servers in found.solved.mix.orders.items():
        offer = found.plan.offer(label)
        rows.append(
            {
                "way": offer.way,
                "chip": offer.chip,
                "offer": label,
                "order_quarter": q + 1,
                "first_quarter": q + 1 + offer.lead_quarters,
                "servers": servers,
                "chips": servers * found.plan.chip(offer.chip).server,
                "usd_per_chip" if offer.way == BUY else "usd_per_chip_hour": offer.usd_in(q),
            }
        )
    return sorted(rows, key=lambda row: (row["order_quarter"], row["offer"]))


def chip_rows(found: Solution) -> list[dict[str, Cell]]:
    """One row for each quarter and chip that is there: the rows of fleet.csv."""
    mix, counted = found.solved.mix, found.counted
    if mix is None or counted is None:
        return []
    rows: list[dict[str, Cell]] = []
    for q, one in enumerate(counted.quarters):
        for chip in found.plan.chips:
            name, spend = chip.chip, one.spend[chip.chip]
            ordered = sum(mix.orders.get((offer.label, q), 0) for offer in chip.offers)
            rented, owned, on = (of.get(name, 0) for of in (one.rented, one.owned, one.owned_on))
            if ordered or rented or owned:
                rows.append(
                    {
                        "quarter": q + 1,
                        "chip": name,
                        "ordered_chips": ordered * chip.server,
                        "rented_chips": rented * chip.server,
                        "owned_chips": owned * chip.server,
                        "owned_on_chips": on * chip.server,
                        "serving_chips": one.chips_used.get(name, 0),
                        "kilowatts": (rented + on) * chip.server * chip.watts / 1e3,
                        **{f"{part}_usd": getattr(spend, part) for part in SPENT},
                        "usd": spend.usd,
                        "bought_usd": spend.bought,
                    }
                )
    return rows


def _quarters(found: Solution, counted: Counted) -> list[dict[str, Any]]:
    rows = chip_rows(found)
    return [
        {
            "quarter": k,
            "chips": {
                row["chip"]: {
                    name: row[f"{name}_chips"]
                    for name in ("rented", "owned", "owned_on", "serving")
                }
                for row in rows
                if row["quarter"] == k and (row["rented_chips"] or row["owned_chips"])
            },
            **{
                f"{part}_usd": sum(getattr(spend, part) for spend in one.spend.values())
                for part in SPENT
            },
            "usd": one.usd,
            "cash_usd": one.cash_usd,
            "watts": one.watts,
            "racks": one.racks,
            "utilisation": {
                name: {"peak": one.peak[name] / most, "mean": one.mean[name] / most}
                for name, most in one.capacity.items()
            },
        }
        for k, one in enumerate(counted.quarters, 1)
    ]


def _instances(found: Solution) -> list[dict[str, Any]]:
    if found.solved.mix is None:
        return []
    ordered = sorted((q, k, count) for (k, q), count in found.solved.mix.instances.items())
    return [
        {
            "quarter": q + 1,
            "instances": instances,
            "class": found.options[k].klass,
            **_option(found.options[k]),
        }
        for q, k, instances in ordered
    ]


def _option(option: Option) -> dict[str, Any]:
    return {
        "class": option.klass,
        "model": option.model,
        "on": option.label,
        "chips": dict(option.chips),
        "requests_per_s": option.requests_per_s,
        "ttft_s": option.ttft_s,
        "tpot_s": option.tpot_s,
        **option.detail,
    }


def _alone(found: Solution, row: OneChip) -> dict[str, Any]:
    """The fleet on one chip alone: dollars per million tokens at the mean rate, where part of it
    idles, and at the rate that it is sized for."""
    if row.counted is None:
        return {"chip": row.chip, "chips": None, "reason": row.reason}
    one, quarter = found.plan.demand[0], row.counted.quarters[0]
    usd = quarter.usd / QUARTER_HOURS
    mean = 3600.0 * one.traffic.mean_per_s(0) * one.traffic.tokens
    most = quarter.capacity[one.name]
    servers = quarter.rented.get(row.chip, 0) + quarter.owned_on.get(row.chip, 0)
    return {
        "chip": row.chip,
        "chips": servers * found.plan.chip(row.chip).server,
        "instances": sum(number for _, number in row.used),
        "usd_per_hour": usd,
        "ttft_percentile_s": max(option.ttft_s for option, _ in row.used),
        "tpot_s": max(option.tpot_s for option, _ in row.used),
        "load": one.traffic.peak_per_s(0) / most,
        "most_requests_per_s": most,
        "tokens_per_usd": mean / usd if usd else None,
        "usd_per_million_mean": 1e6 * usd / mean,
        "usd_per_million_busy": 1e6 * usd / (mean * one.traffic.peak),
        "words": ", ".join(_words(option, number) for option, number in row.used),
        "reason": None,
    }


def _words(option: Option, number: float) -> str:
    """`6 x 2 h100_sxm, tp 2, fp8, fp8 cache`: instances, chips of each, and how they are used."""
    formats = str(option.detail.get("formats", ""))
    given = "" if formats in ("", OWN_FORMATS) else f", {formats}"
    return f"{number:,} x {divided(option).replace(' x ', ' ', 1)}{given}"


def divided(option: Option) -> str:
    """`2 x h100_sxm, tp2`: the chips of an instance, and how it is divided over several."""
    division = str(option.detail.get("division", ""))
    several = division and sum(option.chips.values()) > 1
    return f"{option.label}, {division}" if several else option.label


def _offer(row: Entry) -> dict[str, Any]:
    return {
        "offer": row.offer.label,
        "way": row.offer.way,
        "usd": row.offer.usd,
        "per": "chip" if row.offer.way == BUY else "chip-hour",
        "used": row.used,
        "usd_enters_or_leaves_at": row.usd_at,
        "fleet_costs_more_without": row.without,
        "reason": row.reason or None,
        "price": row.offer.words,
    }
