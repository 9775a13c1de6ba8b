"""What a chip costs by the hour on every basis: rented, or owned with everything around it.

Owned (`owned_tco`), dollars for an hour that a chip is owned:

    capital K    = (price of the chip x server factor) x (1 + network share)
    recovery     = (K - S / (1 + r)^L) x ln(1 + r) / (1 - (1 + r)^-L)      S = resale x K, after L
                                                                         years
    depreciation = (K - S) / L,  cost of capital = recovery - depreciation
    maintenance  = share of K a year,  staff = dollars a chip and year
    space        = dollars a kW and month x kW of the server
    electricity  = kW at the meter x dollars a kWh x (1 - d + d x utilisation)

recovery is the level payment a year that repays K with interest r and leaves S, paid through the
year, hour by hour, as a rent is, so that the two compare (the capital recovery factor of a
continuous flow; any text of engineering economics, e.g. Park, Contemporary Engineering Economics).
d is the share of the power that depends on the load. All is divided by the share of the owned hours
that carry the cost, `utilisation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.catalog import Catalog
from dse.errors import InputError
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import YEAR_HOURS, Cost, Costs, Owning, lacks_for_owning, owning
from dse.schema.prices import PriceRow

MONTH_HOURS = YEAR_HOURS / 12.0
_YEAR_S = YEAR_HOURS * 3600.0


def recovery_factor(rate: float, years: float) -> float:
    """Level payment a year, through the year, that repays a dollar over `years` at an effective
    `rate` a year; 1 / years without interest."""
    if rate == 0.0:
        return 1.0 / years
    flow = math.log1p(rate)
    return flow / -math.expm1(-years * flow)


def yearly_capital(usd: float, rate: float, years: float, resale: float) -> tuple[float, float]:
    """(depreciation, cost of capital), dollars a year, of `usd` that leaves the share `resale`."""
    worth_now = resale * math.exp(-years * math.log1p(rate))
    depreciation = usd * (1.0 - resale) / years
    return depreciation, usd * (1.0 - worth_now) * recovery_factor(rate, years) - depreciation


def book_and_worth(costs: Costs, years: float, age: float) -> tuple[float, float]:
    """(what is not yet repaid, what a buyer pays), shares of the capital, of what is bought for
    `years` and `age` years old: the payments of `yearly_capital` that are left at that day's worth,
    and `worth_after_3_years` to the power of age / 3, at least `resale`; both 0 at the end."""
    rate, resale = costs.value("cost_of_capital"), costs.value("resale")
    left = years - age
    if left <= 0.0:
        return 0.0, 0.0
    owed = sum(yearly_capital(1.0, rate, years, resale)) / recovery_factor(rate, left)
    owed += resale * math.exp(-left * math.log1p(rate))
    worth = costs.value("worth_after_3_years") ** (age / 3.0)
    return owed, max(worth, resale)


def price_by_parts(
    catalog: Catalog, chip: str, basis: str, costs: Costs | None = None
) -> dict[str, Any]:
    """The price of a chip on a basis as a document: `usd_per_chip_hour`, the `parts` whose sum it
    is, each with its rule, the `inputs` that they rest on (`of` the chip, or a cost of all chips;
    none where the chip is rented), and the `date` of the newest price. `costs` take the place of
    the catalog's.

    Raises InputError for an unknown chip or basis, and for a chip without a price on it.
    """
    catalog.chip(chip)
    if basis == OWNED:
        costs = costs or catalog.costs
        return owned(chip, owning(catalog, chip, costs), costs)
    price = catalog.prices.select(basis).get(chip)
    if price is None:
        raise InputError(
            f"{chip} has no price on basis {basis}",
            field="chip",
            accepted="a chip that has one, or --prices FILE with a row of yours",
        )
    rent = [("rent", price.usd_per_chip_hour, price.rule)]
    return _document(chip, basis, rent, [], price.newest_date)


def _document(
    chip: str,
    basis: str,
    parts: Sequence[tuple[str, float, str]],
    inputs: Sequence[tuple[str, Cost]],
    date: str,
) -> dict[str, Any]:
    names = ("name", "value", "text", "kind", "source", "date")
    total = 0.0
    for _, usd, _ in parts:  # `sum` rounds otherwise from Python 3.12 on
        total += usd
    return {
        "chip": chip,
        "basis": basis,
        "usd_per_chip_hour": total,
        "date": date,
        "parts": [
            {"name": name, "usd_per_chip_hour": usd, "rule": rule} for name, usd, rule in parts
        ],
        "inputs": [
            {"of": of, **{name: getattr(one, name) for name in names}, "note": one.note or None}
            for of, one in inputs
        ],
    }


def load_share(price: Mapping[str, Any]) -> float:
    """Share of a `price_by_parts` that an idle chip saves: its load-dependent electricity."""
    named = {one["name"]: one["value"] for one in price["inputs"]}
    if not named:
        return 0.0
    depends, busy = named["load_share"], named["utilisation"]
    share = depends * busy / (1.0 - depends + depends * busy)
    drawn = next(p["usd_per_chip_hour"] for p in price["parts"] if p["name"] == "electricity")
    return share * drawn / price["usd_per_chip_hour"]


def with_basis(catalog: Catalog, basis: str, costs: Costs | None = None) -> Catalog:
    """The catalog with the prices of the computed basis `owned_tco` on `costs` (by default those of
    the catalog). Other bases are in it already. A chip that lacks a figure has no price."""
    if basis != OWNED:
        return catalog
    costs = costs or catalog.costs
    rows = []
    for chip in catalog.chips:
        if lacks_for_owning(catalog, chip, costs) is not None:
            continue
        price = owned(chip, owning(catalog, chip, costs), costs)
        figures = [one["source"] for one in price["inputs"] if one["of"] == "chip"]
        rows.append(
            PriceRow(
                chip=chip,
                basis=OWNED,
                usd_per_chip_hour=price["usd_per_chip_hour"],
                provider=" + ".join(
                    f"{part['name']} {part['usd_per_chip_hour']:.3g}" for part in price["parts"]
                ),
                date=price["date"],
                source="; ".join(dict.fromkeys(figures)),
            )
        )
    others = tuple(row for row in catalog.prices.rows if row.basis != OWNED)
    prices = replace(catalog.prices, rows=(*others, *rows))
    return replace(catalog, prices=prices, costs=costs)


def upkeep_usd_per_hour(found: Owning, costs: Costs) -> dict[str, float]:
    """What an owned chip costs by the hour beside its capital and its electricity, by part."""
    return {
        "maintenance": found.capital_usd * costs.value("maintenance") / YEAR_HOURS,
        "staff": costs.value("staff") / YEAR_HOURS,
        "space": found.server_w / 1000.0 * costs.value("space") / MONTH_HOURS,
        **{name: usd / YEAR_HOURS for name, (usd, _) in found.lines.items()},
    }


def electricity_usd_per_hour(found: Owning, costs: Costs, busy: float = 1.0) -> float:
    """Hourly electricity of an owned chip that serves in the share `busy` of its time."""
    return found.meter_w / 1000.0 * costs.value("electricity") * drawn_share(costs, busy)


def drawn_share(costs: Costs, busy: float) -> float:
    """Of its power at the meter, what a chip draws that serves in the share `busy` of its time."""
    return 1.0 - costs.value("load_share") + costs.value("load_share") * busy


def owned(chip: str, found: Owning, costs: Costs) -> dict[str, Any]:
    """The price of an hour that a chip is owned (`price_by_parts`)."""
    get = {name: one.value for name, one in costs.inputs.items()}
    years, rate, busy = get["life"] / _YEAR_S, get["cost_of_capital"], get["utilisation"]
    hours = YEAR_HOURS * busy
    depreciation, interest = yearly_capital(1.0, rate, years, get["resale"])
    span = f"/ {years:.3g} years"
    whole = f"{found.capital_usd:,.0f} USD"
    rules = {
        "maintenance": f"{get['maintenance']:.3g} of {whole} a year",
        "staff": f"{get['staff']:,.0f} USD a year",
        "space": f"{found.server_w:,.0f} W of server x {get['space']:g} USD/kW-month",
        **{name: rule for name, (_, rule) in found.lines.items()},
    }
    drawn = electricity_usd_per_hour(found, costs, busy) / busy
    power = f"{found.meter_w:,.0f} W at the meter x {get['electricity']:g} USD/kWh"
    parts = [
        (name, usd * depreciation / hours, f"{usd:,.0f} USD {span}")
        for name, usd in (("server with chip", found.server_usd), ("network", found.network_usd))
    ]
    interest_usd = found.capital_usd * interest / hours
    parts.append(("cost of capital", interest_usd, f"{rate:.3g} a year on {whole}"))
    for name, usd in upkeep_usd_per_hour(found, costs).items():
        parts.append((name, usd / busy, rules[name]))
    parts.append(("electricity", drawn, power))
    unused = {"worth_after_3_years"}
    unused |= {"server_factor"} if found.price.name == "server_price" else set()
    unused |= {"server_power_factor"} if found.power.name != "tdp" else set()
    inputs = [("chip", found.price), ("chip", found.power)]
    inputs += [("cost", one) for name, one in costs.inputs.items() if name not in unused]
    inputs += [("cost", one) for one in costs.counted.values()]
    return _document(chip, OWNED, parts, inputs, found.price.date)
