"""What a chip takes to own, in dollars and watts, the published figures that these rest on, and
which chips can be priced as owned (`owned_tco`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from dse.errors import InputError
from dse.record import record
from dse.schema.catalog import Catalog
from dse.schema.costs import Cost, Costs
from dse.schema.prices import PurchaseRow

# What a buyer pays, most telling kind first: the street, the list, a share of a whole system, the
# list at launch. Ends of a range, what a chip costs to make and guesses are no buyer's price.
KINDS = (
    ("purchase_street", "purchase_new"),
    ("msrp", "purchase_msrp", "purchase_kit", "list_single_unit"),
    ("purchase_system",),
    ("msrp_launch",),
)
HOUR = 3600.0
YEAR_HOURS = 8760.0


def buyers_rows(rows: Iterable[PurchaseRow], chip: str) -> tuple[PurchaseRow, ...]:
    """The rows of a chip that are of the first kind of KINDS that it has any of."""
    mine = [row for row in rows if row.chip == chip]
    for kinds in KINDS:
        if found := tuple(row for row in mine if row.kind in kinds):
            return found
    return ()


def capital_rows(catalog: Catalog, chip: str) -> tuple[PurchaseRow, ...]:
    """Published prices of a whole system where there are any, else what a buyer pays."""
    system = tuple(
        row for row in catalog.purchases if row.chip == chip and row.kind == "purchase_system"
    )
    return system or buyers_rows(catalog.purchases, chip)


def own_cost(catalog: Catalog, costs: Costs, chip: str, name: str) -> Cost | None:
    """What is said of a chip itself, or of the one that it was derived from."""
    return costs.of_chip(chip, name) or costs.of_chip(catalog.chips[chip].derived_from, name)


def lacks_for_owning(catalog: Catalog, chip: str, costs: Costs | None = None) -> str | None:
    """Why a chip cannot be priced as owned; None where it can."""
    costs = costs or catalog.costs
    given = any(own_cost(catalog, costs, chip, name) for name in ("price", "server_price"))
    if not given and not capital_rows(catalog, chip):
        return (
            f"{chip} has no price that a buyer pays; a file for --costs may say one: "
            f"chips: {{{chip}: {{price: 30000 USD}}}}"
        )
    return lacks_power(catalog, chip, costs)


def lacks_power(catalog: Catalog, chip: str, costs: Costs | None = None) -> str | None:
    """Why the power at the meter of a chip is not known; None where it is."""
    spec = catalog.chips[chip]
    unknown = spec.tdp_w is None and spec.system_w_per_chip is None
    if unknown and own_cost(catalog, costs or catalog.costs, chip, "power") is None:
        return (
            f"{chip} has no rated power, which its electricity needs; a file for --costs may say "
            f"it: chips: {{{chip}: {{power: 1.2 kW}}}}"
        )
    return None


@record
class Owning:
    """What an owned chip takes: dollars of the chip with its share of the server and of the network
    between them, watts of the server and at the meter, and the figures that these rest on; `lines`
    of one's own are dollars a chip and year, with what they follow from."""

    server_usd: float
    network_usd: float
    server_w: float
    meter_w: float
    price: Cost
    power: Cost
    lines: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def capital_usd(self) -> float:
        return self.server_usd + self.network_usd


def owning(catalog: Catalog, chip: str, costs: Costs | None = None) -> Owning:
    """What a chip takes to own, on the catalog's costs or others.

    Raises InputError for a chip that lacks a price or a power.
    """
    _refuse(lacks_for_owning(catalog, chip, costs))
    costs = costs or catalog.costs
    price, server = _server_price(catalog, chip, costs)
    power, server_w, meter_w = power_at_meter(catalog, chip, costs)
    network = server * costs.value("network_share")
    lines = _lines(catalog, chip, costs, server + network)
    return Owning(server, network, server_w, meter_w, price, power, lines)


def _lines(
    catalog: Catalog, chip: str, costs: Costs, capital_usd: float
) -> dict[str, tuple[float, str]]:
    """(dollars a chip and year, what they follow from) of the lines of one's own."""
    server = server_of(catalog, chip)
    chips = {"chip": 1, "server": server, "rack": rack_of(server)[0], "GB": 1}
    years = costs.value("life") / HOUR / YEAR_HOURS
    found = {}
    for name, one in costs.counted.items():
        if one.per == "capital":
            found[name] = one.value * capital_usd, f"{one.text} of {capital_usd:,.0f} USD a year"
            continue
        usd = one.value / chips[one.per] * (one.gb if one.per == "GB" else 1.0)
        words = f"{one.text}, {chips[one.per]} chips" if chips[one.per] > 1 else one.text
        words += f" x {one.gb:,.0f} GB" if one.per == "GB" else ""
        found[name] = (usd / years, f"{words} / {years:.3g} years") if one.once else (usd, words)
    return found


def power_at_meter(
    catalog: Catalog, chip: str, costs: Costs | None = None
) -> tuple[Cost, float, float]:
    """(what it rests on, watts of a chip with its share of the server, watts at the meter), for a
    chip that has a price and for one that has none.

    Raises InputError for a chip without a power.
    """
    _refuse(lacks_power(catalog, chip, costs))
    costs = costs or catalog.costs
    facility, spec = costs.value("facility_factor"), catalog.chips[chip]
    if (given := own_cost(catalog, costs, chip, "power")) is not None:
        return given, given.value / facility, given.value
    figure = spec.figure("system_power") or spec.figure("tdp")
    assert figure is not None, "a chip without power lacks_power"
    rest = (figure.kind, figure.source, str(figure.date), figure.note or "")
    cost = Cost(figure.name, figure.value, figure.text, *rest)
    names = {chip, spec.derived_from}
    if names & costs.all_in_power and figure.name == "system_power":
        return cost, figure.value / facility, figure.value
    server_w = figure.value
    if figure.name == "tdp" and not names & costs.whole_machines:
        server_w *= costs.value("server_power_factor")
    return cost, server_w, server_w * facility


def _refuse(lack: str | None) -> None:
    if lack is not None:
        raise InputError(lack, field="chip", accepted="a chip with that figure")


def _server_price(catalog: Catalog, chip: str, costs: Costs) -> tuple[Cost, float]:
    """(what the capital rests on, dollars of a chip with its share of the server)."""
    names = {chip, catalog.chips[chip].derived_from}
    factor = 1.0 if names & costs.whole_machines else costs.value("server_factor")
    if (given := own_cost(catalog, costs, chip, "server_price")) is not None:
        return given, given.value
    if (given := own_cost(catalog, costs, chip, "price")) is not None:
        return given, given.value * factor
    rows = capital_rows(catalog, chip)
    from statistics import median  # noqa: PLC0415 - 7 ms that few commands need

    usd = median(row.usd_per_chip for row in rows)
    kinds = ", ".join(dict.fromkeys(f"{row.kind}, {row.provider}" for row in rows))
    cost = Cost(
        name="server_price" if rows[0].kind == "purchase_system" else "price",
        value=usd,
        text=f"{usd:,.0f} USD",
        kind="claimed",
        source="; ".join(dict.fromkeys(row.source for row in rows)),
        date=max(row.date for row in rows),
        note=f"median of {len(rows)}: {kinds}" if len(rows) > 1 else kinds,
    )
    return cost, usd if cost.name == "server_price" else usd * factor


# The fewest chips that are had at once.

LARGEST_DOMAIN = 72  # a larger scale-up domain is not sold whole
SERVERS_PER_RACK = 4


def server_of(catalog: Catalog, chip: str) -> int:
    """Chips of the scale-up domain, which up to LARGEST_DOMAIN is a server or a rack (assumed to be
    had whole)."""
    return catalog.systems[catalog.chip(chip).system].levels[0].size or 1


def rack_of(server: int) -> tuple[int, str]:
    """(chips of a rack, why) of servers of so many."""
    if server < LARGEST_DOMAIN:
        return SERVERS_PER_RACK * server, f"assumed: {SERVERS_PER_RACK} servers in a rack"
    return server, "a server that fills a rack"
