"""Break-even: at which price, demand, utilisation or number of requests one choice overtakes
another.

The chips are compared by their cheapest deployments under the limits. A chip's cost per token is
its price times the chip-hours that a token takes, and its cheapest deployment is the one that takes
fewest, whatever the price. So chip B costs as much as chip A at

    price B = price A x chip-hours A / chip-hours B.

An owned chip that serves the share u of its hours costs, by the hour that it is owned,
A + E (1 - d + d u), on the costs of `dse.economics.tco`: A its capital and upkeep, E its
electricity when busy, d the share of that which depends on the load. One that is rented by use, at
r and paid only while it serves, costs r u. The two are equal at

    u = (A + E (1 - d)) / (r - E d).

A rent that is committed for years is paid whether or not the chip serves, as capital is; the two
are held against each other always busy. One instance that is owned and would serve R tokens/s at
most reaches that at a demand of u x R.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.numbers import dollars, number, share, tenths
from dse.answer.plots import PALETTE, decades, join, line, marks
from dse.catalog import Catalog
from dse.economics.priced import price_parts
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError
from dse.physics.workload import POISSON
from dse.questions.whatif.demand import TOTAL as COST
from dse.questions.whatif.solve import Best, Stand, best_of_each, described, words
from dse.questions.whatif.subject import Subject
from dse.questions.whatif.words import Json
from dse.schema.costs import BASIS, Costs
from dse.schema.owning import lacks_for_owning

CURVE_POINTS = 25
ON_DEMAND = "on_demand"  # the basis of a chip that is paid only while it is used
# Bases that are paid for years, used or not, and those of owned chips, which are no rent.
COMMITTED, OWNED = ("rental_", "reserved_"), ("owned_",)
MOST_CHIPS = 7  # drawn in one picture, as many as the palette tells apart


def break_even(stand: Stand) -> dict[str, Any]:
    """Everything of this page. Raises InputError for a study without prices or with one chip that
    cannot be priced as owned."""
    problem = stand.problem
    best = best_of_each(stand, lambda metrics, batch: metrics.values[COST])
    rows = price_rows(stand, best)
    together = None
    no_rate = all(one.workload.serving != POISSON for one in problem.mix)
    one_pool = problem.pools is None and "concurrency" in problem.space.names
    if len(rows) > 1 and no_rate and one_pool:
        codes = [problem.machines.code(row["chip"]) for row in rows]
        together = concurrency_rows(stand, codes[0], codes[1])
    owned = own_rows(stand.subject, rows)
    if len(rows) < 2 and not owned:
        raise InputError(
            "nothing to compare: one feasible chip, and no price to own it at",
            field="--break-even",
            accepted="two chips, or one with a rent and a price to buy it at",
        )
    known = [one["chip"] for one in owned]
    return {
        "chips": rows,
        "any_quality": problem.model is None,
        "infeasible_chips": [chip for k, chip in enumerate(problem.machines.ids) if k not in best],
        "concurrency": together,
        "owning": owned,
        "owning_left_out": [row["chip"] for row in rows if row["chip"] not in known],
    }


def price_rows(stand: Stand, best: Best) -> list[dict[str, Any]]:
    """Each chip against the cheapest one: the price at which it would cost as much, and that of
    the cheapest chip itself against the next."""
    machines, order = stand.problem.machines, sorted(best, key=lambda code: best[code][0])
    rows = []
    for code in order:
        other = order[0] if code != order[0] else next(iter(order[1:]), None)
        price, (cost, point) = float(machines.usd_per_chip_hour[code]), best[code]
        # chip-hours per million tokens are cost / price, so that the closed form is this ratio
        even = None if other is None else price * best[other][0] / cost
        rows.append(
            {
                "chip": machines.ids[code],
                "usd_per_chip_hour": price,
                "cost": cost,
                "chip_hours_per_million_tokens": cost / price,
                "against": None if other is None else machines.ids[other],
                "break_even_usd_per_chip_hour": even,
                "change": None if even is None else even / price - 1.0,
                "point": described(stand.problem, point),
            }
        )
    return rows


def concurrency_rows(stand: Stand, a: int, b: int) -> dict[str, Any]:
    """The lowest cost of two chips at each number of requests in flight a chip may be given, under
    the limits, and where one overtakes the other."""
    space, ids = stand.problem.space, stand.problem.machines.ids
    axis = space.names.index("concurrency")
    values = space.choices[axis]
    found = best_of_each(
        stand,
        lambda metrics, batch: metrics.values[COST],
        lambda batch, index: batch.chip * len(values) + index[:, axis],
    )

    def least(code: int, k: int) -> float | None:
        return number(found.get(code * len(values) + k, (math.inf, 0))[0])

    rows = [
        {"concurrency": value, "cost_a": least(a, k), "cost_b": least(b, k)}
        for k, value in enumerate(values)
    ]
    both = [row for row in rows if row["cost_a"] and row["cost_b"]]
    ahead = [row["cost_b"] < row["cost_a"] for row in both]
    return {
        "a": ids[a],
        "b": ids[b],
        "rows": rows,
        "compared": len(both),
        "b_is_ahead_at_first": ahead[0] if ahead else None,
        "overtakes_at": [
            both[k]["concurrency"] for k in range(1, len(both)) if ahead[k] != ahead[k - 1]
        ],
    }


def owning(catalog: Catalog, chip: str, rent: float | None, costs: Costs) -> dict[str, Any] | None:
    """Owned against rented by use at `rent` (None: nobody rents it so), dollars by the chip-hour;
    None where the chip cannot be priced as owned. `curve` and `owned_at_full_use` are by the hour
    that it serves, `price` is the latter by its parts."""
    if lacks_for_owning(catalog, chip, costs) is not None:
        return None
    price = usd_per_chip_hour(catalog, chip, BASIS, costs.changed({"utilisation": 1.0}))
    power = next(part.usd_per_chip_hour for part in price.parts if part.name == "electricity")
    held, by_load = price.usd_per_chip_hour - power, power * costs.value("load_share")
    idle = held + power - by_load
    even = idle / (rent - by_load) if rent is not None and rent > by_load else math.inf
    return {
        "chip": chip,
        "price": price.as_json(),
        "held_usd_per_hour": held,
        "electricity_usd_per_hour": power,
        "electricity_load_share": costs.value("load_share"),
        "rent_usd_per_hour": rent,
        "utilisation": even if even <= 1.0 else None,
        "owned_at_full_use": price.usd_per_chip_hour,
        "curve": [
            {"utilisation": u, "owned": idle / u + by_load}
            for u in np.linspace(0.04, 1.0, CURVE_POINTS).tolist()
        ],
    }


def own_rows(subject: Subject, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Owning each chip against renting it by use, with the demand on one instance at which they
    cost the same, and against a committed rent where the study's basis is one. Where the basis is
    committed, or owned, ON_DEMAND is the rent by use."""
    study, catalog = subject.problem.study, subject.catalog
    basis, costs = study.price_basis, study.costs or catalog.costs
    committed = basis.startswith(COMMITTED)
    other = committed or basis.startswith(OWNED)
    by_use = {}
    if other and ON_DEMAND in catalog.prices.bases():
        by_use = catalog.prices.select(ON_DEMAND)
    found = []
    for row in rows:
        chip, price = row["chip"], row["usd_per_chip_hour"]
        rent = price
        if other:
            rent = by_use[chip].usd_per_chip_hour if chip in by_use else None
        one = owning(catalog, chip, rent, costs)
        if one is None:
            continue
        point, even = row["point"], one["utilisation"]
        chips = point["deployment"]["chips"]
        full = point["metrics"]["output_tokens_per_s_per_chip"] * chips
        found.append(
            {
                **one,
                "rent_basis": ON_DEMAND if other else basis,
                "committed_basis": basis if committed else None,
                "committed_usd_per_hour": price if committed else None,
                "instance": point["words"],
                "instance_chips": chips,
                "instance_output_tokens_per_s": full,
                "demand_output_tokens_per_s": None if even is None else even * full,
            }
        )
    return found


def sentences(even: Json) -> list[str]:
    found, chips = [], even["chips"]
    if len(chips) > 1:
        first, other = chips[0], chips[1]
        found.append(
            f"{other['chip']} breaks even with {first['chip']} at "
            f"{dollars(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({tenths(other['change'], sign=True)} from {dollars(other['usd_per_chip_hour'])}); "
            f"{first['chip']} stays cheapest up to "
            f"{dollars(first['break_even_usd_per_chip_hour'])} "
            f"({tenths(first['change'], sign=True)})."
        )
    if together := even["concurrency"]:
        found.append(_requests(together))
    if even["owning"] and chips[0]["chip"] in even["owning_left_out"]:
        found.append(f"What owning {chips[0]['chip']} costs is not known (no price or no power).")
    return found + [_owning(row) for row in even["owning"][:1]]


def blocks(even: Json) -> list[Block]:
    together, owning = even["concurrency"], even["owning"]
    found: list[Block] = [_request_figure(together)] if together else []
    if owning:
        found.append(_owning_figure(owning[:MOST_CHIPS]))
    found.append(_price_table(even))
    if together:
        found.append(_request_table(together))
    if owning:
        caption = "An owned chip-hour by its parts, always busy"
        found += [_owning_table(even), price_parts([row["price"] for row in owning], caption)]
    return found


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


def _owning(row: Json) -> str:
    chip, rent, even = row["chip"], row["rent_usd_per_hour"], row["utilisation"]
    if rent is None:
        said = f"Nobody publishes a price for {chip} by use"
    elif even is None:
        said = f"Owning {chip} costs more than renting it by use at any utilisation"
    else:
        said = (
            f"Owning {chip} beats renting it by use ({dollars(rent)}, {row['rent_basis']}) "
            f"from {share(even)} utilisation: {row['demand_output_tokens_per_s']:,.0f} output "
            f"tokens/s on one instance of {row['instance_chips']} chips"
        )
    said += f"; always busy it costs {dollars(row['owned_at_full_use'])} per chip-hour"
    if row["committed_usd_per_hour"] is not None:
        said += f", against {dollars(row['committed_usd_per_hour'])} on {row['committed_basis']}"
    return f"{said}."


def _price_table(even: Json) -> Table:
    notes = ["Price x chip-hours of the other over its own, each deployed at its cheapest."]
    if even["any_quality"]:
        notes.append("Of any predicted loss: --limit 'predicted_loss <= ...' holds it.")
    if even["infeasible_chips"]:
        notes.append(f"Nothing feasible: {', '.join(even['infeasible_chips'])}.")
    columns = (
        Column("chip", "chip", first=True),
        Column("deployed", "deployed", of=lambda row: words(row["point"])),
        Column("cost", "$/M total", "dollars", first=True),
        Column("usd_per_chip_hour", "now", "dollars", first=True),
        Column("break_even_usd_per_chip_hour", "break-even", "dollars", first=True),
        Column("change", "change", "change"),
        Column("against", "with"),
    )
    caption = "Break-even prices per chip-hour"
    return Table.of("break-even", caption, even["chips"], columns, notes)


def _request_table(together: Json) -> Table:
    return Table(
        "requests in flight",
        "Lowest cost at each number of requests in flight",
        (
            Column("concurrency", "in flight", "count"),
            Column("cost_a", together["a"], "dollars"),
            Column("cost_b", together["b"], "dollars"),
        ),
        together["rows"],
        ("Dollars per million tokens, input and output.",),
    )


def _owning_table(even: Json) -> Table:
    first = even["owning"][0]
    committed, left = first["committed_basis"], even["owning_left_out"]
    notes = ["Owned: paid busy or not, but for the electricity that depends on the load."]
    if committed:
        notes.append(f"{committed} is paid busy or not, too; by use, only while it serves.")
    if left:
        notes.append(f"No price or power to own it at: {', '.join(left)}.")
    return Table(
        "owning",
        "Owning against renting, per chip-hour",
        (
            Column("chip", "chip"),
            Column("owned_at_full_use", "owned, always busy", "dollars"),
            *([Column("committed_usd_per_hour", committed, "dollars")] if committed else []),
            Column("rent_usd_per_hour", f"by use ({first['rent_basis']})", "dollars"),
            Column("utilisation", "owning wins from", "share"),
            Column("demand_output_tokens_per_s", "output tokens/s", "count"),
            Column("instance", "of an instance"),
        ),
        even["owning"],
        notes,
    )


def _request_figure(row: Json) -> Figure:
    traces = []
    for k, (key, chip) in enumerate((("cost_a", row["a"]), ("cost_b", row["b"]))):
        known = [one for one in row["rows"] if one[key] is not None]
        x, y = [one["concurrency"] for one in known], [one[key] for one in known]
        traces.append(marks(k, chip, x, y) | line(k, chip, x, y) | {"mode": "lines+markers"})
    ticks = [one["concurrency"] for one in row["rows"]]
    upwards = decades([y for trace in traces for y in trace["y"]])
    layout = {
        "height": 380,
        "xaxis": {
            "type": "log",
            "title": {"text": "requests in flight"},
            "tickvals": ticks,
            "ticktext": [str(tick) for tick in ticks],
        },
        "yaxis": {"title": {"text": "USD per million tokens"}} | upwards,
    }
    return Figure(
        "requests",
        "Cost by requests in flight",
        {"data": traces, "layout": layout},
        f"The lowest cost per million tokens of {row['a']} and {row['b']} within the limits, at "
        "each number of requests in flight.",
    )


def _owning_figure(rows: Sequence[Json]) -> Figure:
    """Dollars per hour of service of an owned chip against its utilisation, and its rent."""
    traces = []
    for k, row in enumerate(rows):
        x = [100.0 * one["utilisation"] for one in row["curve"]]
        traces.append(line(k, row["chip"], x, [one["owned"] for one in row["curve"]]))
        if (rent := row["rent_usd_per_hour"]) is not None:
            flat = join([x[0], x[-1]], [rent, rent], 1)
            flat["line"] |= {"color": PALETTE[k], "dash": "dash"}
            traces.append(flat)
    upwards = decades([y for trace in traces for y in trace["y"]])
    layout = {
        "height": 400,
        "xaxis": {"title": {"text": "utilisation (%)"}, "range": [0, 101]},
        "yaxis": {"title": {"text": "USD per chip-hour of service"}} | upwards,
    }
    return Figure(
        "owning",
        "Owning by utilisation",
        {"data": traces, "layout": layout},
        "What an owned chip costs per hour that it serves, by the share of its hours in which it "
        "does. Dashed: its rent by use.",
    )
