"""The tables of `dse fleet`: rows of its document, and those of fleet.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Cell, Column, Table
from dse.answer.numbers import dollars
from dse.economics.fleet import DEMAND, SUPPLY
from dse.economics.fleet_cost import Option
from dse.economics.prices import price_parts
from dse.questions.fleet.answer import Solution, split
from dse.questions.fleet.cash import cash_table
from dse.questions.fleet.changes import MORE, Loosened
from dse.questions.fleet.document import divided
from dse.questions.fleet.words import limit_words, percentile_words, price, value_words
from dse.schema.plan import BUY

Json = Mapping[str, Any]
# Of fleet.csv; the table of chips leaves the dollars but their sum out.
CHIPS = (
    Column("quarter", "quarter", "count"),
    Column("chip", "chip"),
    Column("ordered_chips", "ordered", "count"),
    Column("rented_chips", "rented", "count"),
    Column("owned_chips", "owned", "count"),
    Column("owned_on_chips", "owned and on", "count"),
    Column("serving_chips", "serving at peak", "count"),
    Column("kilowatts", "kW", "number"),
    Column("rent_usd", "rent", "dollars"),
    Column("capital_usd", "capital charge", "dollars"),
    Column("upkeep_usd", "upkeep", "dollars"),
    Column("electricity_usd", "electricity", "dollars"),
    Column("usd", "cost", "dollars"),
    Column("bought_usd", "bought", "dollars"),
)


def tables(found: Solution, document: Json, chips: Sequence[Mapping[str, Cell]]) -> list[Table]:
    """Every table of an answer; without a mix, the demand and what is refused alone. `chips` are
    the rows of `chip_rows`."""
    made = [_demand(document["demand"])]
    if found.counted is not None:
        if found.alone:
            made += [_alone(document["fleets"]), _classes(document["demand"])]
        made += [_chips(chips), _spend(document["by_quarter"]), _use(document["by_quarter"])]
        made.insert(-1, cash_table(found, document))
        made.append(_instances(found))
        if document["owned_prices"]:
            made.append(price_parts(document["owned_prices"]))
        if found.hedged is None:
            made += [_prices(found, document["prices"]), _changes(found)]
    if found.refused:
        made.append(_refused(document["refused"]))
    return made


def data_table(chips: Sequence[Mapping[str, Cell]]) -> Table:
    """fleet.csv."""
    return Table("data", "Chips and dollars by quarter", CHIPS, chips)


def _rounded(key: str, title: str) -> Column:
    return Column(key, title, "count", of=lambda row: round(row[key]))


def _demand(demand: Sequence[Json]) -> Table:
    def rate(key: str, title: str, which: str) -> Column:
        return Column(key, title, "rate", of=lambda row: row["requests_per_s"][which])

    return Table.of(
        "demand",
        "What is asked for",
        demand,
        (
            Column("class", "class"),
            Column("models", "model", of=lambda row: ", ".join(row["models"])),
            rate("mean_per_s", "requests/s, mean of the first quarter", "mean"),
            rate("peak_per_s", "peak of the last", "busy"),
            _rounded("prompt_tokens", "prompt tokens"),
            _rounded("output_tokens", "output tokens"),
            Column("ttft_s", "first token within", "time"),
            Column("percentile", "of", of=lambda row: percentile_words(row["percentile"])),
            Column("tpot_s", "each token within", "time"),
        ),
        on_console=False,
    )


def _alone(fleets: Sequence[Json]) -> Table:
    def words(row: Json) -> str:
        return f"{row['chip']}: {row['reason']}" if row["chips"] is None else row["words"]

    return Table.of(
        "fleets",
        "The cheapest fleet on each chip alone",
        fleets,
        (
            Column("words", "fleet", of=words),
            Column("chips", "chips", "count"),
            Column("usd_per_hour", "$/h", "dollars"),
            Column("ttft_percentile_s", "first token", "time"),
            Column("tpot_s", "per token", "time"),
            Column("load", "load", "share"),
            Column("most_requests_per_s", "most/s", "rate"),
            Column("tokens_per_usd", "tokens/$", "tokens"),
            Column("usd_per_million_mean", "$/M tokens", "dollars"),
        ),
        (
            "First token: at the percentile of the limit, of the slowest group of lengths, at the "
            "highest load of an instance. Load: what the fleet is sized for over the most that it "
            "serves within the limits (most/s). tokens/$ and $/M tokens count prompt and output "
            "tokens at the mean rate, where part of the fleet idles.",
        ),
    )


def _classes(demand: Sequence[Json]) -> Table:
    return Table.of(
        "classes",
        "Groups of requests, mean tokens",
        [row for one in demand for row in one["classes"]],
        (
            Column("share", "share", "share"),
            _rounded("prompt_tokens", "prompt"),
            _rounded("output_tokens", "output"),
            Column("prefix_hit_rate", "prompt cached", "share"),
        ),
    )


def _chips(rows: Sequence[Mapping[str, Cell]]) -> Table:
    return Table(
        "chips by quarter",
        "Chips by quarter",
        [column for column in CHIPS if not column.key.endswith("_usd")],
        rows,
        ("Chips that are on and do not serve at the peak are spare, or left over of servers.",),
    )


def _spend(quarters: Sequence[Json]) -> Table:
    return Table(
        "spend by quarter",
        "Spend by quarter",
        (
            Column("quarter", "quarter", "count"),
            *CHIPS[8:13],
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


def _use(quarters: Sequence[Json]) -> Table:
    """The share of what the instances can serve, for classes by quarter."""

    def in_quarter(one: Json) -> Column:
        q = one["quarter"]
        return Column(f"q{q}", f"Q{q}", "share", of=lambda row: one["utilisation"][row[0]][row[1]])

    return Table.of(
        "use",
        "Use of the instances by quarter",
        [(name, which) for name in quarters[0]["utilisation"] for which in ("peak", "mean")],
        (
            Column("class", "class", of=lambda row: row[0]),
            Column("demand", "demand", of=lambda row: row[1]),
            *map(in_quarter, quarters),
        ),
        ("Demand over what the instances can serve within the latency limits.",),
    )


def _instances(found: Solution) -> Table:
    """Quarters that follow each other with as many of the same instances share a row."""
    mix, options = found.solved.mix, found.options
    assert mix is not None
    spans: list[tuple[int, int, int, float]] = []  # first and last quarter, option, instances
    for (k, q), instances in sorted(mix.instances.items()):
        if spans and spans[-1][1:] == (q - 1, k, instances):
            spans[-1] = (spans[-1][0], q, k, instances)
        else:
            spans.append((q, q, k, instances))

    def quarters(row: tuple[int, int, Option, float]) -> str:
        first, last = row[0] + 1, row[1] + 1
        return f"{first}" if first == last else f"{first} to {last}"

    def formats(row: tuple[int, int, Option, float]) -> str:
        return str(row[2].detail.get("formats", "")).removesuffix(" cache")

    return Table.of(
        "instances",
        "Instances by quarter",
        [(first, last, options[k], count) for first, last, k, count in sorted(spans)],
        (
            Column("quarters", "quarter", right=True, of=quarters),
            Column("class", "class", of=lambda row: row[2].klass),
            Column("model", "model", of=lambda row: row[2].model),
            Column("instances", "number", "count", of=lambda row: row[3]),
            Column("on", "each on", of=lambda row: divided(row[2])),
            Column("formats", "formats", of=formats),
            Column("requests_per_s", "rate", "rate", of=lambda row: row[2].requests_per_s),
            Column("ttft_s", "first", "ttft_s", of=lambda row: row[2].ttft_s),
            Column("tpot_s", "token", "tpot_s", of=lambda row: row[2].tpot_s),
        ),
        (
            "Formats: of weights and cache. Rate: requests per second, at most. First: time to the "
            "first token; token: time of each later one. tp, pp, dp, ep: tensor, pipeline, "
            "attention-data and expert parallel.",
        ),
    )


def _prices(found: Solution, prices: Sequence[Json]) -> Table:
    bought = ""
    if any(row["way"] == BUY for row in prices):
        bought = " What is bought has its share of server and network in its price."

    def paid(key: str, name: str, title: str) -> Column:
        return Column(name, title, right=True, of=lambda row: price(row["way"], row[key]))

    return Table.of(
        "prices",
        f"Prices at which the mix changes{_split(found)}",
        prices,
        (
            Column("offer", "offer"),
            paid("usd", "usd", "price"),
            Column("used", "in the mix"),
            paid("usd_enters_or_leaves_at", "usd_at", "enters or leaves at"),
            Column(
                "without",
                "cost without it",
                "change",
                of=lambda row: row["fleet_costs_more_without"],
            ),
            Column("reason", "", of=lambda row: row["reason"] or ""),
        ),
        (
            "An offer is in the mix below the price of the fourth column, all others as they are. "
            f"The fifth is of the discounted cost of the plan.{bought}",
        ),
    )


def _split(found: Solution) -> str:
    return ", instances split" if split(found) else ""


def _changes(found: Solution) -> Table:
    def each(row: Loosened) -> str | None:
        """Dollars for one more of a limit, a supply or a demand: `$173 per kW`."""
        if not row.usd:
            return None
        usd = abs(row.usd) / (row.after - row.before)
        if row.what == "watts":
            return f"{dollars(1e3 * usd)} per kW"
        unit = "request/s" if row.what.startswith(DEMAND) else row.what.removesuffix("s")
        unit = "chip a quarter" if row.what.startswith(SUPPLY) else unit
        return f"{dollars(usd)} per {'dollar' if row.what.startswith('usd') else unit}"

    def change(row: Loosened) -> str:
        if row.usd is None:
            return "nothing keeps it" if row.status == "infeasible" else "not solved in time"
        if row.usd == 0.0:
            return "unchanged"
        return f"{'costs' if row.usd > 0 else 'saves'} {dollars(abs(row.usd))}"

    return Table.of(
        "changes",
        f"What {MORE:.0%} more of each limit, supply and demand does{_split(found)}",
        found.loosened,
        (
            Column("what", "what", of=lambda row: limit_words(row.what)),
            Column("before", "now", right=True, of=lambda row: value_words(row.what, row.before)),
            Column(
                "after",
                "with more",
                right=True,
                of=lambda row: value_words(row.what, row.after),
            ),
            Column("plan", "the plan", right=True, of=change),
            Column("each", "that is", right=True, of=each),
        ),
        (
            "The plan is solved again with that alone changed. A change that moves no whole server "
            "does nothing.",
        ),
    )


def _refused(refused: Sequence[Json]) -> Table:
    return Table(
        "refused",
        "What serves no class",
        (
            Column("class", "class"),
            Column("chip", "chip"),
            Column("model", "model"),
            Column("reason", "why"),
        ),
        refused,
    )
