"""Small plans of a fleet for tests: chips, offers and options by hand."""

from __future__ import annotations

from typing import Any

from dse.catalog import load_catalog
from dse.economics.fleet_cost import (
    Option,
)
from dse.schema.costs import Cost, Owning
from dse.schema.plan import BUY, RENT, DemandClass, FleetChip, Limits, Offer, Plan
from dse.schema.traffic import Requests

YEAR_S = 8760.0 * 3600.0


def demand(name: str = "chat", per_s: float = 10.0, **more: Any) -> DemandClass:
    names = {"growth": "growth_per_quarter", "peak": "peak_over_average"}
    return DemandClass(
        name=name,
        models=("m",),
        streams=(Requests(1.0, 1000.0, 100.0),),
        requests_per_s=per_s,
        ttft_s=1.0,
        tpot_s=0.05,
        **{names[key]: value for key, value in more.items()},
    )


COSTS = load_catalog().costs.changed(
    {
        "life": 4.0 * YEAR_S,
        "cost_of_capital": 0.08,
        "resale": 0.0,
        "maintenance": 0.05,
        "staff": 150.0,
        "space": 100.0,
        "electricity": 0.1,
    }
)


FREE = COSTS.changed(dict.fromkeys(("maintenance", "staff", "space"), 0.0))


def rent(chip: str, usd: float, **more: Any) -> Offer:
    given: dict[str, Any] = {"term_quarters": 12} | more
    return Offer(chip, RENT, f"{chip}, rent", usd, "a test", **given)


def buy(chip: str, usd: float, **more) -> Offer:
    return Offer(chip, BUY, f"{chip}, bought", usd, "a test", **more)


def chip(name: str, *offers: Offer, server: int = 2, stock: int = 0, watts: float = 1e3):
    bought = [offer.usd for offer in offers if offer.way == BUY]
    figure = Cost("price", 1.0, "", "assumed", "a test", "", "")
    owning = Owning(bought[0] if bought else 1e4, 0.0, watts, watts, figure, figure)
    return FleetChip(
        chip=name,
        server=server,
        watts=watts,
        chips_per_rack=4 * server,
        stock=stock,
        offers=offers,
        owning=owning if bought or stock else None,
    )


def option(chips: dict[str, int], rate: float, klass: str = "chat") -> Option:
    return Option(klass, "m", chips, rate, 0.5, 0.04, " + ".join(chips))


def plan(*chips: FleetChip, **more) -> Plan:
    given = {
        "quarters": 2,
        "discount_rate": 0.08,
        "costs": COSTS,
        "spare_servers": 0,
        "spare_share": 0.0,
        "demand": (demand(),),
        "limits": Limits(),
        "used_after_end": 1.0,
    } | more
    return Plan(
        name="t",
        title="A test",
        description="",
        file="t.yaml",
        price_basis="rental_3yr",
        backend="generic",
        disaggregated=False,
        largest_instance=8,
        chips=chips,
        own=load_catalog().source,
        **given,
    )
