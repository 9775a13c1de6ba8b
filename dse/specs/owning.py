"""Which chips can be priced as owned (`owned_tco`), and the published prices that it rests on."""

from __future__ import annotations

from dse.specs.catalog import Catalog
from dse.specs.costs import Costs
from dse.specs.prices import PurchaseRow
from dse.specs.purchase import buyers_rows


def capital_rows(catalog: Catalog, chip: str) -> tuple[PurchaseRow, ...]:
    """Published prices of a whole system where there are any, else what a buyer pays."""
    system = tuple(
        row for row in catalog.purchases if row.chip == chip and row.kind == "purchase_system"
    )
    return system or buyers_rows(catalog.purchases, chip)


def lacks_for_owning(catalog: Catalog, chip: str, costs: Costs | None = None) -> str | None:
    """Why a chip cannot be priced as owned; None where it can."""
    costs = costs or catalog.costs
    spec = catalog.chips[chip]
    given = costs.of_chip(chip, "price") or costs.of_chip(chip, "server_price")
    if given is None and not capital_rows(catalog, chip):
        return (
            f"{chip} has no price that a buyer pays; a file for --costs may say one: "
            f"chips: {{{chip}: {{price: 30000 USD}}}}"
        )
    if spec.tdp_w is None and spec.system_w_per_chip is None and not costs.of_chip(chip, "power"):
        return (
            f"{chip} has no rated power, which its electricity needs; a file for --costs may say "
            f"it: chips: {{{chip}: {{power: 1.2 kW}}}}"
        )
    return None
