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
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError
from dse.questions.whatif.demand import Demanded
from dse.questions.whatif.inputs import Subject
from dse.questions.whatif.solve import Points, chunks, describe
from dse.schema.costs import BASIS, Costs
from dse.schema.owning import lacks_for_owning

COST = "usd_per_million_total_tokens"
CURVE_POINTS = 25
ON_DEMAND = "on_demand"  # the basis of a chip that is paid only while it is used
# Bases that are paid for years, used or not, and those of owned chips, which are no rent.
COMMITTED, OWNED = ("rental_", "reserved_"), ("owned_",)
Best = dict[int, tuple[float, int]]  # chip code: (cost, point)


def cheapest(problem: Demanded, points: Points) -> Best:
    """The cheapest feasible point of every chip, by the code of the chip."""
    found: Best = {}
    for ids, metrics, judged in chunks(problem, points.ids):
        feasible = (judged.G <= 0.0).all(axis=1)
        keep_better(found, problem, ids, np.where(feasible, metrics.values[COST], np.inf))
    return found


def keep_better(found: Best, problem: Demanded, ids: np.ndarray, value: np.ndarray) -> None:
    """Puts the smallest value of each chip, and of equal ones the first point, into `found`."""
    chip = problem.batch(problem.space.unrank(ids)).chip
    for code in np.unique(chip):
        rows = np.flatnonzero(chip == code)
        row = int(rows[np.argmin(value[rows])])
        if value[row] < found.get(int(code), (np.inf, 0))[0]:
            found[int(code)] = (float(value[row]), int(ids[row]))


def price_rows(problem: Demanded, best: Best) -> list[dict[str, Any]]:
    """Each chip against the cheapest one: the price at which it would cost as much, and that of
    the cheapest chip itself against the next."""
    order = sorted(best, key=lambda code: best[code][0])
    points = {code: describe(problem, np.array([best[code][1]]))[0] for code in order}
    rows = []
    for code in order:
        other = order[0] if code != order[0] else (order[1] if len(order) > 1 else None)
        price = float(problem.machines.usd_per_chip_hour[code])
        cost = best[code][0]
        # chip-hours per million tokens are cost / price, so that the closed form is this ratio
        even = None if other is None else price * best[other][0] / cost
        rows.append(
            {
                "chip": problem.machines.ids[code],
                "usd_per_chip_hour": price,
                "cost": cost,
                "chip_hours_per_million_tokens": cost / price,
                "against": None if other is None else problem.machines.ids[other],
                "break_even_usd_per_chip_hour": even,
                "change": None if even is None else even / price - 1.0,
                "point": points[code],
            }
        )
    return rows


def concurrency_rows(problem: Demanded, points: Points, a: int, b: int) -> dict[str, Any]:
    """The lowest cost of two chips at each number of requests in flight a chip may be given, under
    the limits, and where one overtakes the other."""
    axis = problem.space.names.index("concurrency")
    values = problem.space.choices[axis]
    found: dict[tuple[int, int], float] = {}
    for ids, metrics, judged in chunks(problem, points.ids):
        index = problem.space.unrank(ids)
        chip = problem.batch(index).chip
        feasible = (judged.G <= 0.0).all(axis=1)
        cost = np.where(feasible, metrics.values[COST], np.inf)
        for code in (a, b):
            for k in range(len(values)):
                rows = (chip == code) & (index[:, axis] == k)
                if rows.any():
                    least = float(cost[rows].min())
                    found[code, k] = min(least, found.get((code, k), np.inf))
    rows = [
        {
            "concurrency": values[k],
            "cost_a": _finite(found.get((a, k), math.inf)),
            "cost_b": _finite(found.get((b, k), math.inf)),
        }
        for k in range(len(values))
    ]
    both = [row for row in rows if row["cost_a"] and row["cost_b"]]
    ahead = [row["cost_b"] < row["cost_a"] for row in both]
    switches = [both[k]["concurrency"] for k in range(1, len(both)) if ahead[k] != ahead[k - 1]]
    return {
        "a": problem.machines.ids[a],
        "b": problem.machines.ids[b],
        "rows": rows,
        "compared": len(both),
        "b_is_ahead_at_first": ahead[0] if ahead else None,
        "overtakes_at": switches,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
        point = row["point"]
        chips = point["deployment"]["chips"]
        full = point["metrics"]["output_tokens_per_s_per_chip"] * chips
        even = one["utilisation"]
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


def break_even(subject: Subject, points: Points) -> dict[str, Any]:
    """Everything of this page. Raises InputError for a study without prices or with one chip that
    cannot be priced as owned."""
    problem = subject.problem
    best = cheapest(problem, points)
    rows = price_rows(problem, best)
    codes = [problem.machines.code(row["chip"]) for row in rows]
    together = None
    if len(codes) > 1 and _held(problem):
        together = concurrency_rows(problem, points, codes[0], codes[1])
    owned = own_rows(subject, rows)
    if len(rows) < 2 and not owned:
        raise InputError(
            "nothing to compare: one feasible chip, and no price to own it at",
            field="--break-even",
            accepted="two chips, or one with a rent and a price to buy it at",
        )
    silent = [chip for k, chip in enumerate(problem.machines.ids) if k not in best]
    return {
        "chips": rows,
        "any_quality": problem.model is None,
        "infeasible_chips": silent,
        "concurrency": together,
        "owning": owned,
        "owning_left_out": [
            row["chip"] for row in rows if row["chip"] not in [one["chip"] for one in owned]
        ],
    }


def _held(problem: Demanded) -> bool:
    return "concurrency" in problem.space.names and all(
        share.workload.serving != "poisson" for share in problem.mix
    )
