"""Which chips can be priced as owned (`owned_tco`), and the published prices that it rests on."""

from __future__ import annotations

from collections.abc import Iterable

from dse.specs.catalog import Catalog
from dse.specs.costs import Cost, Costs
from dse.specs.prices import PurchaseRow

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
    spec = catalog.chips[chip]
    given = any(own_cost(catalog, costs, chip, name) for name in ("price", "server_price"))
    if not given and not capital_rows(catalog, chip):
        return (
            f"{chip} has no price that a buyer pays; a file for --costs may say one: "
            f"chips: {{{chip}: {{price: 30000 USD}}}}"
        )
    unknown = spec.tdp_w is None and spec.system_w_per_chip is None
    if unknown and own_cost(catalog, costs, chip, "power") is None:
        return (
            f"{chip} has no rated power, which its electricity needs; a file for --costs may say "
            f"it: chips: {{{chip}: {{power: 1.2 kW}}}}"
        )
    return None
