"""The tables of `dse fleet`, and the rows of fleet.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Cell, Column, Table
from dse.answer.numbers import dollars
from dse.economics.fleet import DEMAND, SUPPLY
from dse.economics.fleet_cost import Counted, Quarter
from dse.economics.priced import price_parts
from dse.questions.fleet.answer import Solution, owned_prices, split
from dse.questions.fleet.changes import MORE, Loosened
from dse.questions.fleet.document import division_of, servers_of
from dse.questions.fleet.words import limit_words, percentile_words, price, value_words
from dse.schema.plan import BUY, Plan

Json = Mapping[str, Any]
CSV = (
    "quarter",
    "chip",
    "ordered_chips",
    "rented_chips",
    "owned_chips",
    "owned_on_chips",
    "serving_chips",
    "kilowatts",
    "rent_usd",
    "capital_usd",
    "upkeep_usd",
    "electricity_usd",
    "usd",
    "bought_usd",
)


def tables(found: Solution, document: Json) -> list[Table]:
    """Every table of an answer; without a mix, the demand and what is refused alone."""
    made = [demand_table(found.plan)]
    if found.counted is not None:
        if found.alone:
            made += [alone_table(document["fleets"]), class_table(document["demand"])]
        made += [
            chip_table(csv_rows(found, found.counted)),
            spend_table(document["by_quarter"]),
            use_table(found.counted.quarters),
            instance_table(found),
        ]
        if prices := [one.as_json() for one in owned_prices(found.plan)]:
            made.append(price_parts(prices))
        made += [price_table(found), change_table(found)]
    if found.refused:
        made.append(refused_table(found))
    return made


def demand_table(plan: Plan) -> Table:
    last = plan.quarters - 1
    return Table(
        "demand",
        "What is asked for",
        (
            Column("class", "class"),
            Column("models", "model"),
            Column("mean_per_s", "requests/s, mean of the first quarter", "rate"),
            Column("peak_per_s", "peak of the last", "rate"),
            Column("prompt_tokens", "prompt tokens", "count"),
            Column("output_tokens", "output tokens", "count"),
            Column("ttft_s", "first token within", "time"),
            Column("percentile", "of"),
            Column("tpot_s", "each token within", "time"),
        ),
        [
            {
                "class": one.name,
                "models": ", ".join(one.models),
                "mean_per_s": one.requests_per_s,
                "peak_per_s": one.peak_per_s(last),
                "prompt_tokens": round(one.prompt_tokens),
                "output_tokens": round(one.output_tokens),
                "ttft_s": one.ttft_s,
                "percentile": percentile_words(one),
                "tpot_s": one.tpot_s,
            }
            for one in plan.demand
        ],
        on_console=False,
    )


def alone_table(fleets: Sequence[Json]) -> Table:
    """The cheapest fleet on each chip by itself."""
    return Table(
        "fleets",
        "The cheapest fleet on each chip alone",
        (
            Column("words", "fleet"),
            Column("chips", "chips", "count"),
            Column("usd_per_hour", "$/h", "dollars"),
            Column("ttft_percentile_s", "first token", "time"),
            Column("tpot_s", "per token", "time"),
            Column("load", "load", "share"),
            Column("most_requests_per_s", "most/s", "rate"),
            Column("tokens_per_usd", "tokens/$", "tokens"),
            Column("usd_per_million_mean", "$/M tokens", "dollars"),
        ),
        [
            row if row["chips"] is not None else {"words": f"{row['chip']}: {row['reason']}"}
            for row in fleets
        ],
        (
            "First token: at the percentile of the limit, of the slowest group of lengths, at the "
            "highest load of an instance. Load: what the fleet is sized for over the most that it "
            "serves within the limits (most/s). tokens/$ and $/M tokens count prompt and output "
            "tokens at the mean rate, where part of the fleet idles.",
        ),
    )


def class_table(demand: Sequence[Json]) -> Table:
    return Table(
        "classes",
        "Groups of requests, mean tokens",
        (
            Column("share", "share", "share"),
            Column("prompt_tokens", "prompt", "count"),
            Column("output_tokens", "output", "count"),
            Column("prefix_hit_rate", "prompt cached", "share"),
        ),
        [
            {
                **row,
                "prompt_tokens": round(row["prompt_tokens"]),
                "output_tokens": round(row["output_tokens"]),
            }
            for one in demand
            for row in one["classes"]
        ],
    )


def chip_table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    return Table(
        "chips by quarter",
        "Chips by quarter",
        (
            Column("quarter", "quarter", "count"),
            Column("chip", "chip"),
            Column("ordered_chips", "ordered", "count"),
            Column("rented_chips", "rented", "count"),
            Column("owned_chips", "owned", "count"),
            Column("owned_on_chips", "owned and on", "count"),
            Column("serving_chips", "serving at peak", "count"),
            Column("kilowatts", "kW", "number"),
            Column("usd", "cost", "dollars"),
        ),
        rows,
        ("Chips that are on and do not serve at the peak are spare, or left over of servers.",),
    )


def data_table(found: Solution) -> Table:
    """fleet.csv."""
    rows = [] if found.counted is None else csv_rows(found, found.counted)
    return Table("data", "Chips and dollars by quarter", [Column(k, k) for k in CSV], rows)


def csv_rows(found: Solution, counted: Counted) -> list[dict[str, Cell]]:
    """One row for each quarter and chip that is there, by the columns of CSV."""
    plan, mix = found.plan, found.solved.mix
    assert mix is not None
    rows: list[dict[str, Cell]] = []
    for q, one in enumerate(counted.quarters):
        for chip in plan.chips:
            ordered = sum(
                mix.orders.get((offer.label, q), 0) * chip.server for offer in chip.offers
            )
            rented, on = (servers * chip.server for servers in servers_of(one, chip.chip))
            owned = one.owned[chip.chip] * chip.server
            if not (ordered or rented or owned):
                continue
            spend = one.spend[chip.chip]
            rows.append(
                {
                    "quarter": q + 1,
                    "chip": chip.chip,
                    "ordered_chips": ordered,
                    "rented_chips": rented,
                    "owned_chips": owned,
                    "owned_on_chips": on,
                    "serving_chips": one.chips_used.get(chip.chip, 0),
                    "kilowatts": (rented + on) * chip.watts / 1e3,
                    "rent_usd": spend.rent,
                    "capital_usd": spend.capital,
                    "upkeep_usd": spend.upkeep,
                    "electricity_usd": spend.electricity,
                    "usd": spend.usd,
                    "bought_usd": spend.bought,
                }
            )
    return rows


def spend_table(quarters: Sequence[Json]) -> Table:
    return Table(
        "spend by quarter",
        "Spend by quarter",
        (
            Column("quarter", "quarter", "count"),
            Column("rent_usd", "rent", "dollars"),
            Column("capital_usd", "capital charge", "dollars"),
            Column("upkeep_usd", "upkeep", "dollars"),
            Column("electricity_usd", "electricity", "dollars"),
            Column("usd", "cost", "dollars"),
            Column("cash_usd", "cash paid", "dollars"),
            Column("watts", "power", "power"),
            Column("racks", "racks", "count"),
        ),
        quarters,
        (
            "Cost charges what is bought over its life; cash pays for it in full when it arrives. "
            "Neither is discounted. Upkeep is maintenance, staff and space. Power and racks are "
            "those that count against limits.",
        ),
    )


def use_table(quarters: Sequence[Quarter]) -> Table:
    """The share of what the instances can serve, for classes by quarter."""
    rows: list[dict[str, Cell]] = []
    for name in quarters[0].peak:
        peak: dict[str, Cell] = {"class": name, "demand": "peak"}
        mean: dict[str, Cell] = {"class": name, "demand": "mean"}
        for q, one in enumerate(quarters, 1):
            peak[f"q{q}"] = one.peak[name] / one.capacity[name]
            mean[f"q{q}"] = one.mean[name] / one.capacity[name]
        rows += [peak, mean]
    each = [Column(f"q{q}", f"Q{q}", "share") for q in range(1, len(quarters) + 1)]
    return Table(
        "use",
        "Use of the instances by quarter",
        (Column("class", "class"), Column("demand", "demand"), *each),
        rows,
        ("Demand over what the instances can serve within the latency limits.",),
    )


def instance_table(found: Solution) -> Table:
    """Quarters that follow each other with as many of the same instances share a row."""
    mix = found.solved.mix
    assert mix is not None
    spans: list[tuple[int, int, int, int]] = []  # first and last quarter, option, instances
    for (k, q), instances in sorted(mix.instances.items()):
        if spans and spans[-1][1:] == (q - 1, k, instances):
            spans[-1] = (spans[-1][0], q, k, instances)
        else:
            spans.append((q, q, k, instances))
    rows: list[dict[str, Cell]] = []
    for first, last, k, instances in sorted(spans):
        option = found.options[k]
        rows.append(
            {
                "quarters": str(first + 1) if first == last else f"{first + 1} to {last + 1}",
                "class": option.klass,
                "model": option.model,
                "instances": instances,
                "on": f"{option.label}{division_of(option)}",
                "formats": str(option.detail.get("formats", "")).removesuffix(" cache"),
                "requests_per_s": option.requests_per_s,
                "ttft_s": option.ttft_s,
                "tpot_s": option.tpot_s,
            }
        )
    return Table(
        "instances",
        "Instances by quarter",
        (
            Column("quarters", "quarter", right=True),
            Column("class", "class"),
            Column("model", "model"),
            Column("instances", "number", "count"),
            Column("on", "each on"),
            Column("formats", "formats"),
            Column("requests_per_s", "rate", "rate"),
            Column("ttft_s", "first", "ttft_s"),
            Column("tpot_s", "token", "tpot_s"),
        ),
        rows,
        (
            "Formats: of weights and cache. Rate: requests per second, at most. First: time to the "
            "first token; token: time of each later one. tp, pp, dp, ep: tensor, pipeline, "
            "attention-data and expert parallel.",
        ),
    )


def _split(found: Solution) -> str:
    return ", instances split" if split(found) else ""


def price_table(found: Solution) -> Table:
    bought = ""
    if any(offer.way == BUY for offer in found.plan.offers):
        bought = " What is bought has its share of server and network in its price."
    return Table(
        "prices",
        f"Prices at which the mix changes{_split(found)}",
        (
            Column("offer", "offer"),
            Column("usd", "price", right=True),
            Column("used", "in the mix"),
            Column("usd_at", "enters or leaves at", right=True),
            Column("without", "cost without it", "change"),
            Column("reason", ""),
        ),
        [
            {
                "offer": row.offer.label,
                "usd": price(row.offer, row.offer.usd),
                "used": row.used,
                "usd_at": None if row.usd_at is None else price(row.offer, row.usd_at),
                "without": row.without,
                "reason": row.reason,
            }
            for row in found.entries
        ],
        (
            "An offer is in the mix below the price of the fourth column, all others as they are. "
            f"The fifth is of the discounted cost of the plan.{bought}",
        ),
    )


def _each(what: str, usd: float) -> str:
    """Dollars for one more of a limit, a supply or a demand: `$173 per kW`."""
    if what == "watts":
        return f"{dollars(1e3 * usd)} per kW"
    unit = "request/s" if what.startswith(DEMAND) else what.removesuffix("s")
    unit = "chip a quarter" if what.startswith(SUPPLY) else unit
    return f"{dollars(usd)} per {'dollar' if what.startswith('usd') else unit}"


def change_table(found: Solution) -> Table:
    return Table(
        "changes",
        f"What {MORE:.0%} more of each limit, supply and demand does{_split(found)}",
        (
            Column("what", "what"),
            Column("before", "now", right=True),
            Column("after", "with more", right=True),
            Column("plan", "the plan", right=True),
            Column("each", "that is", right=True),
        ),
        [
            {
                "what": limit_words(row.what),
                "before": value_words(row.what, row.before),
                "after": value_words(row.what, row.after),
                "plan": _change(row),
                "each": _each(row.what, abs(row.usd) / (row.after - row.before))
                if row.usd
                else None,
            }
            for row in found.loosened
        ],
        (
            "The plan is solved again with that alone changed. A change that moves no whole server "
            "does nothing.",
        ),
    )


def _change(row: Loosened) -> str:
    if row.usd is None:
        return "nothing keeps it" if row.status == "infeasible" else "not solved in time"
    if row.usd == 0.0:
        return "unchanged"
    return f"{'costs' if row.usd > 0 else 'saves'} {dollars(abs(row.usd))}"


def refused_table(found: Solution) -> Table:
    return Table(
        "refused",
        "What serves no class",
        (
            Column("class", "class"),
            Column("chip", "chip"),
            Column("model", "model"),
            Column("reason", "why"),
        ),
        [
            {"class": row.klass, "chip": row.chip, "model": row.model, "reason": row.reason}
            for row in found.refused
        ],
    )
