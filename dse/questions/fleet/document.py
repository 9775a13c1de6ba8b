"""`dse fleet --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dse.economics.fleet_cost import Counted, Option, Quarter
from dse.questions.fleet.answer import OneChip, Solution, owned_prices, per_million, split
from dse.questions.fleet.changes import Entry
from dse.schema.plan import BUY, QUARTER_HOURS, DemandClass, Plan
from dse.schema.traffic import Windows

OWN_FORMATS = "checkpoint format, its own cache"  # of an option whose class asks for none
MOST_SHOWN = 400  # windows of a trace


def document(
    found: Solution, sentences: Sequence[str], rests: Sequence[str] = ()
) -> dict[str, Any]:
    """`dse fleet --json`."""
    plan, solved, counted = found.plan, found.solved, found.counted
    return {
        "plan": plan.name,
        "title": plan.title,
        "demand": [_demand(plan, one) for one in plan.demand],
        "answer": list(sentences),
        "feasible": counted is not None,
        "status": solved.status,
        "price_basis": plan.price_basis,
        "quarters": plan.quarters,
        "usd": None if counted is None else counted.usd,
        "usd_undiscounted": None if counted is None else sum(q.usd for q in counted.quarters),
        "usd_per_million_tokens": None if counted is None else per_million(plan, counted),
        "usd_committed_beyond": None if counted is None else counted.committed_usd,
        "usd_bought": None if counted is None else counted.bought_usd,
        "usd_lower_bound": None if counted is None else solved.bound,
        "gap": None if counted is None else solved.gap,
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
        "refused": [
            {"class": r.klass, "chip": r.chip, "model": r.model, "reason": r.reason}
            for r in found.refused
        ],
        "options": [_option(option) for option in found.options],
        "assumed": list(rests),
    }


def _orders(found: Solution) -> list[dict[str, Any]]:
    if found.solved.mix is None:
        return []
    rows = []
    for (label, q), servers in found.solved.mix.orders.items():
        offer = next(one for one in found.plan.offers if one.label == label)
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


def _quarters(found: Solution, counted: Counted) -> list[dict[str, Any]]:
    plan = found.plan
    return [
        {
            "quarter": k + 1,
            "chips": {
                chip.chip: {
                    "rented": one.rented.get(chip.chip, 0) * chip.server,
                    "owned": one.owned[chip.chip] * chip.server,
                    "owned_on": one.owned_on.get(chip.chip, 0) * chip.server,
                    "serving": one.chips_used.get(chip.chip, 0),
                }
                for chip in plan.chips
                if one.rented.get(chip.chip) or one.owned[chip.chip]
            },
            "rent_usd": sum(spend.rent for spend in one.spend.values()),
            "capital_usd": sum(spend.capital for spend in one.spend.values()),
            "upkeep_usd": sum(spend.upkeep for spend in one.spend.values()),
            "electricity_usd": sum(spend.electricity for spend in one.spend.values()),
            "usd": one.usd,
            "cash_usd": one.cash_usd,
            "watts": one.watts,
            "racks": one.racks,
            "utilisation": {
                name: {
                    "peak": one.peak[name] / one.capacity[name],
                    "mean": one.mean[name] / one.capacity[name],
                }
                for name in one.peak
            },
        }
        for k, one in enumerate(counted.quarters)
    ]


def _instances(found: Solution) -> list[dict[str, Any]]:
    if found.solved.mix is None:
        return []
    return [
        {
            "quarter": q + 1,
            "instances": instances,
            "class": found.options[k].klass,
            **_option(found.options[k]),
        }
        for (k, q), instances in sorted(
            found.solved.mix.instances.items(), key=lambda item: (item[0][1], item[0][0])
        )
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


def _demand(plan: Plan, one: DemandClass) -> dict[str, Any]:
    """What a class asks for; `busy` is the peak of the last quarter."""
    return {
        "class": one.name,
        "models": list(one.models),
        "requests_per_s": {"mean": one.requests_per_s, "busy": one.peak_per_s(plan.quarters - 1)},
        "percentile": one.percentile,
        "ttft_s": one.ttft_s,
        "tpot_s": one.tpot_s,
        "prompt_tokens": one.prompt_tokens,
        "output_tokens": one.output_tokens,
        "classes": [asdict(part) for part in one.streams],
        "arrivals": None if one.windows is None else _arrivals(one.windows),
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


def _alone(found: Solution, row: OneChip) -> dict[str, Any]:
    """The fleet on one chip alone: dollars per million tokens at the mean rate, where part of it
    idles, and at the rate that it is sized for."""
    if row.counted is None:
        return {"chip": row.chip, "chips": None, "reason": row.reason}
    one = found.plan.demand[0]
    quarter = row.counted.quarters[0]
    usd = quarter.usd / QUARTER_HOURS
    mean = 3600.0 * one.mean_per_s(0) * (one.prompt_tokens + one.output_tokens)
    most = quarter.capacity[one.name]
    return {
        "chip": row.chip,
        "chips": sum(servers_of(quarter, row.chip)) * found.plan.chip(row.chip).server,
        "instances": sum(number for _, number in row.used),
        "usd_per_hour": usd,
        "ttft_percentile_s": max(option.ttft_s for option, _ in row.used),
        "tpot_s": max(option.tpot_s for option, _ in row.used),
        "load": one.peak_per_s(0) / most,
        "most_requests_per_s": most,
        "tokens_per_usd": mean / usd if usd else None,
        "usd_per_million_mean": 1e6 * usd / mean,
        "usd_per_million_busy": 1e6 * usd / (mean * one.peak),
        "words": ", ".join(option_words(option, number) for option, number in row.used),
        "reason": None,
    }


def servers_of(quarter: Quarter, chip: str) -> tuple[int, int]:
    """Servers of a chip that are rented, and owned ones that are on."""
    return quarter.rented.get(chip, 0), quarter.owned_on.get(chip, 0)


def option_words(option: Option, number: int) -> str:
    """`6 x 2 h100_sxm, tp 2, fp8, fp8 cache`: instances, chips of each, and how they are used."""
    each = option.label.replace(" x ", " ")
    formats = str(option.detail.get("formats", ""))
    given = "" if formats in ("", OWN_FORMATS) else f", {formats}"
    return f"{number:,} x {each}{division_of(option)}{given}"


def division_of(option: Option) -> str:
    """How an instance of several chips is divided."""
    division = str(option.detail.get("division", ""))
    return f", {division}" if division and sum(option.chips.values()) > 1 else ""
