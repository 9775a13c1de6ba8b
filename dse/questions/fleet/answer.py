"""The answer to a plan: the mix, its cost counted a second time, and what would change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dse.catalog import Catalog
from dse.economics.fleet import MANY, Solved, many, settled, solve
from dse.economics.fleet_cost import Counted, Option, count
from dse.economics.tco import Breakdown, owned
from dse.errors import DseError
from dse.questions.fleet.changes import Entry, Loosened, entries, loosened
from dse.questions.fleet.infeasible import Gives, must_give, waits_for
from dse.questions.fleet.options import Refusal, options_of
from dse.schema.plan import BUY, QUARTER_HOURS, DemandClass, Plan

# Costs of owning that the answer names, as `dse.schema.costs.RULES` does, in words.
OWNED_COSTS = {
    "resale": "resale", "server_factor": "server over chips", "network_share": "network",
    "maintenance": "maintenance", "staff": "staff", "space": "space",
    "electricity": "electricity",
}  # fmt: skip
AGREES = 1e-6  # relative: the program's cost and the cost that is counted from its mix

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """`counted` is None where nothing keeps the plan: `gives` then says what must give, `waits`
    whose lead time is too long, `unserved` the classes that no chip serves."""

    plan: Plan
    options: tuple[Option, ...]
    refused: tuple[Refusal, ...]
    solved: Solved
    counted: Counted | None
    loosened: tuple[Loosened, ...] = ()
    entries: tuple[Entry, ...] = ()
    gives: tuple[Gives, ...] = ()
    waits: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()


def answered(plan: Plan, catalog: Catalog, progress: Progress = lambda _: None) -> Answer:
    """Solves a plan. Raises DseError where the cost or the limits of the mix, counted apart from
    the program, are not what the program says: a fault of this software."""
    options, refused = options_of(plan, catalog, progress)
    return answer_of(plan, options, refused, progress)


def answer_of(
    plan: Plan,
    options: Sequence[Option],
    refused: Sequence[Refusal] = (),
    progress: Progress = lambda _: None,
) -> Answer:
    """The same of given options."""
    kept = tuple(options), tuple(refused)
    unserved = tuple(
        one.name for one in plan.demand if not any(row.klass == one.name for row in options)
    )
    if unserved:
        nothing = Solved(None, 0.0, 0.0, 0.0, "infeasible", 0.0)
        return Answer(plan, *kept, nothing, None, unserved=unserved)
    progress(f"{len(options)} options over {plan.quarters} quarters")
    solved = solve(plan, options)
    if solved.mix is None:
        gives = tuple(must_give(plan, options, progress)) if solved.status == "infeasible" else ()
        waits = tuple(waits_for(plan, options)) if solved.status == "infeasible" else ()
        return Answer(plan, *kept, solved, None, gives=gives, waits=waits)
    solved = replace(solved, mix=settled(plan, options, solved.mix))
    assert solved.mix is not None
    counted = count(plan, options, solved.mix)
    if counted.broken or abs(counted.usd - solved.usd) > AGREES * max(solved.usd, 1.0):
        raise DseError(
            f"the program's answer does not stand: {counted.usd:.9g} USD counted against "
            f"{solved.usd:.9g}; {'; '.join(counted.broken)}"
        )
    return Answer(
        plan, *kept, solved, counted,
        tuple(loosened(plan, options, solved, progress)),
        tuple(entries(plan, options, solved, progress)),
    )  # fmt: skip


def tokens(plan: Plan) -> float:
    """Prompt and output tokens of the mean demand over the horizon."""
    return sum(
        one.mean_per_s(q) * (one.prompt_tokens + one.output_tokens) * QUARTER_HOURS * 3600.0
        for one in plan.demand
        for q in range(plan.quarters)
    )


def document(answer: Answer, sentences: Sequence[str]) -> dict[str, Any]:
    """`dse fleet --json`."""
    plan, solved, counted = answer.plan, answer.solved, answer.counted
    return {
        "plan": plan.name,
        "title": plan.title,
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
        "orders": _orders(answer),
        "by_quarter": [] if counted is None else _quarters(answer, counted),
        "instances": _instances(answer),
        "changes_with_split_instances": counted is not None and split(answer),
        "owned_prices": [one.as_json() for one in owned_prices(plan)],
        "prices": [_offer(answer, row) for row in answer.entries],
        "limits": [
            {
                "limit": row.what,
                "value": row.before,
                "more": row.after,
                "usd": row.usd,
                "usd_per_unit": None if row.usd is None else row.usd / (row.after - row.before),
            }
            for row in answer.loosened
        ],
        "must_give": [
            {
                "limits": list(row.limits),
                "given": list(row.given),
                "needed": list(row.needed),
                "proven_least": row.proven,
            }
            for row in answer.gives
        ],
        "lead_time_too_long": list(answer.waits),
        "refused": [
            {"class": r.klass, "chip": r.chip, "model": r.model, "reason": r.reason}
            for r in answer.refused
        ],
        "options": [_option(option) for option in answer.options],
        "assumed": assumptions(answer),
    }


def split(answer: Answer) -> bool:
    """Whether the prices and changes are those of instances that need not be whole."""
    return many(answer.plan, answer.options)


def per_million(plan: Plan, counted: Counted) -> float:
    """Undiscounted dollars per million tokens, prompt and output, of the mean demand."""
    return sum(one.usd for one in counted.quarters) / tokens(plan) * 1e6


def _orders(answer: Answer) -> list[dict[str, Any]]:
    if answer.solved.mix is None:
        return []
    rows = []
    for (label, q), servers in answer.solved.mix.orders.items():
        offer = next(one for one in answer.plan.offers if one.label == label)
        rows.append(
            {
                "way": offer.way,
                "chip": offer.chip,
                "offer": label,
                "order_quarter": q + 1,
                "first_quarter": q + 1 + offer.lead_quarters,
                "servers": servers,
                "chips": servers * answer.plan.chip(offer.chip).server,
                "usd_per_chip" if offer.way == BUY else "usd_per_chip_hour": offer.usd_in(q),
            }
        )
    return sorted(rows, key=lambda row: (row["order_quarter"], row["offer"]))


def _quarters(answer: Answer, counted: Counted) -> list[dict[str, Any]]:
    plan = answer.plan
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


def _instances(answer: Answer) -> list[dict[str, Any]]:
    if answer.solved.mix is None:
        return []
    return [
        {
            "quarter": q + 1,
            "instances": instances,
            "class": answer.options[k].klass,
            **_option(answer.options[k]),
        }
        for (k, q), instances in sorted(
            answer.solved.mix.instances.items(), key=lambda item: (item[0][1], item[0][0])
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


def _offer(answer: Answer, row: Entry) -> dict[str, Any]:
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


def assumptions(answer: Answer) -> list[str]:
    """What the answer rests on."""
    plan = answer.plan
    rests = [
        f"later quarters are discounted by {plan.discount_rate:.0%} a year",
        *_owned_words(plan),
        *_rate_words(plan),
        "every instance of a class stands ready for its peak; requests go to any of them",
    ]
    if answer.counted is not None and split(answer):
        rests.append(
            f"more than {MANY} instances: prices at which the mix changes, and what more of a "
            "limit, supply or demand does, are of a program whose instances need not be whole "
            "(split), before and after: one is small beside the fleet"
        )
    rests += _own_prices(plan)
    rests += [f"{offer.label}: {offer.words}" for offer in plan.offers]
    rests += [
        f"{chip.chip}: {chip.watts / 1e3:.3g} kW a chip at the meter ({chip.power_words}); "
        f"{chip.chips_per_rack} chips a rack ({chip.rack_words})"
        for chip in plan.chips
    ]
    return [*rests, *plan.assumed]


def percentile_words(one: DemandClass) -> str:
    """Of which first tokens the limit of a class holds."""
    return "the median" if one.percentile in (None, 50) else f"{one.percentile}%"


def _rate_words(plan: Plan) -> list[str]:
    """At which load each class is served."""
    found = ["rates are predictions of the roofline model (dse validate says how close they are)"]
    steady = [one.name for one in plan.demand if one.percentile is None]
    if steady:
        found.append(
            f"{', '.join(steady)}: the highest steady load within the limits, in the median; "
            "arrivals are taken as even within the peak"
        )
    found += [
        f"{one.name}: the highest rate of random (Poisson) arrivals that keeps "
        f"{percentile_words(one)} of first tokens in time; each instance takes its share at random"
        + (f", in {len(one.streams)} groups of lengths" if len(one.streams) > 1 else "")
        for one in plan.demand
        if one.percentile is not None
    ]
    found += [
        f"{one.name} from {one.source}" + (", at its mean lengths" if len(one.streams) == 1 else "")
        for one in plan.demand
        if one.source
    ]
    return found


def _owned_words(plan: Plan) -> list[str]:
    """How what is owned is counted, and what of it is assumed."""
    if not owned_prices(plan):
        return []
    costs = plan.costs.inputs
    given = ", ".join(f"{words} {costs[name].text}" for name, words in OWNED_COSTS.items())
    found = [
        "owned chips cost what the basis owned_tco says: capital as level payments over "
        f"{costs['life'].text} at {costs['cost_of_capital'].text} a year, that of stock is sunk; "
        "maintenance, staff, space and electricity at the mean load while they are on; one that "
        "is off pays its capital alone. Rents include all of it",
        f"costs of owning: {given} (maintenance a year, staff a chip)",
    ]
    assumed = [name for name, one in costs.items() if one.kind == "assumed" and name in OWNED_COSTS]
    if assumed:
        found.append(f"of these, assumed: {', '.join(assumed)}")
    return found


def _own_prices(plan: Plan) -> list[str]:
    """Files and the date of the user's own that the prices rest on."""
    own = plan.own
    found = [f"prices of {file} before the shipped ones" for file in own.prices]
    if own.as_of is not None:
        found.append(f"shipped prices as they were known in {own.as_of} (--as-of)")
    return found + [f"costs of owning of {file}" for file in plan.costs.files]


def owned_prices(plan: Plan) -> list[Breakdown]:
    """What an hour of each chip that is owned or may be bought costs, by its parts."""
    return [
        owned(chip.chip, chip.owning, plan.costs) for chip in plan.chips if chip.owning is not None
    ]
