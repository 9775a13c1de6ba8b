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
from collections.abc import Mapping
from dataclasses import replace

from dse.catalog import Catalog
from dse.errors import InputError
from dse.record import record
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import YEAR_HOURS, Cost, Costs, Owning, lacks_for_owning, owning
from dse.schema.prices import PriceRow

MONTH_HOURS = YEAR_HOURS / 12.0
_YEAR_S = YEAR_HOURS * 3600.0


@record
class Part:
    """One line of a price: dollars per chip-hour, and how it follows."""

    name: str
    usd_per_chip_hour: float
    rule: str


@record
class Breakdown:
    """A price of a chip by its parts, whose sum it is. `facts` are the chip's own figures that it
    rests on, `inputs` the costs used (none where the chip is rented), `date` the newest price."""

    chip: str
    basis: str
    parts: tuple[Part, ...]
    facts: tuple[Cost, ...]
    inputs: tuple[Cost, ...]
    date: str

    @property
    def usd_per_chip_hour(self) -> float:
        total = 0.0
        for part in self.parts:
            total += part.usd_per_chip_hour
        return total

    @property
    def load_share(self) -> float:
        """Share of the price that an idle chip saves: its load-dependent electricity."""
        named = {one.name: one.value for one in self.inputs}
        if not named:
            return 0.0
        depends, busy = named["load_share"], named["utilisation"]
        share = depends * busy / (1.0 - depends + depends * busy)
        drawn = next(p.usd_per_chip_hour for p in self.parts if p.name == "electricity")
        return share * drawn / self.usd_per_chip_hour

    def as_json(self) -> dict:
        """The document: total, parts, and every input with its source."""
        rows = [(one, "chip") for one in self.facts] + [(one, "cost") for one in self.inputs]
        return {
            "chip": self.chip,
            "basis": self.basis,
            "usd_per_chip_hour": self.usd_per_chip_hour,
            "date": self.date,
            "parts": [
                {"name": p.name, "usd_per_chip_hour": p.usd_per_chip_hour, "rule": p.rule}
                for p in self.parts
            ],
            "inputs": [
                {
                    "name": one.name,
                    "of": of,
                    "value": one.value,
                    "text": one.text,
                    "kind": one.kind,
                    "source": one.source,
                    "date": one.date,
                    "note": one.note or None,
                }
                for one, of in rows
            ],
        }


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


def usd_per_chip_hour(
    catalog: Catalog, chip: str, basis: str, costs: Costs | None = None
) -> Breakdown:
    """The price of a chip on a basis, by its parts. `costs` take the place of the catalog's.

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
    rent = Part("rent", price.usd_per_chip_hour, price.rule)
    return Breakdown(chip, basis, (rent,), (), (), price.newest_date)


def with_basis(catalog: Catalog, basis: str, costs: Costs | None = None) -> Catalog:
    """The catalog with the prices of the computed basis `owned_tco` on `costs` (by default those of
    the catalog). Other bases are in it already. A chip that lacks a figure has no price."""
    if basis != OWNED:
        return catalog
    costs = costs or catalog.costs
    rows = tuple(
        _price_row(owned(chip, owning(catalog, chip, costs), costs))
        for chip in catalog.chips
        if lacks_for_owning(catalog, chip, costs) is None
    )
    others = tuple(row for row in catalog.prices.rows if row.basis != OWNED)
    prices = replace(catalog.prices, rows=(*others, *rows))
    return replace(catalog, prices=prices, costs=costs)


def _price_row(found: Breakdown) -> PriceRow:
    rule = " + ".join(f"{part.name} {part.usd_per_chip_hour:.3g}" for part in found.parts)
    sources = "; ".join(dict.fromkeys(one.source for one in found.facts))
    return PriceRow(
        chip=found.chip,
        basis=OWNED,
        usd_per_chip_hour=found.usd_per_chip_hour,
        provider=rule,
        date=found.date,
        source=sources,
    )


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


def life_years(costs: Costs) -> float:
    return costs.value("life") / _YEAR_S


def owned(chip: str, found: Owning, costs: Costs) -> Breakdown:
    """The price of an hour that a chip is owned, by its parts."""
    get: Mapping[str, float] = {name: one.value for name, one in costs.inputs.items()}
    years, rate, busy = life_years(costs), get["cost_of_capital"], get["utilisation"]
    hours = YEAR_HOURS * busy
    depreciation, interest = yearly_capital(1.0, rate, years, get["resale"])
    upkeep = {name: usd / busy for name, usd in upkeep_usd_per_hour(found, costs).items()}
    span = f"/ {years:.3g} years"
    whole = f"{found.capital_usd:,.0f} USD"
    rules = {
        "maintenance": f"{get['maintenance']:.3g} of {whole} a year",
        "staff": f"{get['staff']:,.0f} USD a year",
        "space": f"{found.server_w:,.0f} W of server x {get['space']:g} USD/kW-month",
        **{name: rule for name, (_, rule) in found.lines.items()},
    }
    parts = (
        Part(
            "server with chip",
            found.server_usd * depreciation / hours,
            f"{found.server_usd:,.0f} USD {span}",
        ),
        Part(
            "network",
            found.network_usd * depreciation / hours,
            f"{found.network_usd:,.0f} USD {span}",
        ),
        Part(
            "cost of capital", found.capital_usd * interest / hours, f"{rate:.3g} a year on {whole}"
        ),
        *(Part(name, upkeep[name], rule) for name, rule in rules.items()),
        Part(
            "electricity",
            electricity_usd_per_hour(found, costs, busy) / busy,
            f"{found.meter_w:,.0f} W at the meter x {get['electricity']:g} USD/kWh",
        ),
    )
    unused = {"worth_after_3_years"}
    unused |= {"server_factor"} if found.price.name == "server_price" else set()
    unused |= {"server_power_factor"} if found.power.name != "tdp" else set()
    inputs = [one for name, one in costs.inputs.items() if name not in unused]
    inputs += costs.counted.values()
    return Breakdown(chip, OWNED, parts, (found.price, found.power), (*inputs,), found.price.date)
