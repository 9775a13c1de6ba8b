"""Chips that are bought: the terms on which a purchase becomes a price per hour, and which of the
prices that were published for a chip is the buyer's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from dse import units
from dse.errors import InputError
from dse.specs.catalog import Catalog
from dse.specs.metrics import parse_limit
from dse.specs.prices import PurchaseRow

# The price basis of chips that are bought.
BASIS = "purchase"
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


@dataclass(frozen=True, slots=True)
class PurchaseTerms:
    """Years of use (`life_s`), the share of them in which the chip serves (`utilisation`), and the
    price of electricity. The defaults are assumed."""

    life_s: float = 4 * YEAR_HOURS * HOUR
    utilisation: float = 0.6
    usd_per_kwh: float = 0.12


class PurchaseFile(BaseModel):
    """The terms as a space file writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    life: Any = "4 years"
    utilisation: Any = "60 %"
    usd_per_kwh: Any = 0.12

    def terms(self) -> PurchaseTerms:
        """Raises InputError, its field one of this class."""
        life = units.parse(self.life, "s", field="life")
        share = self._number("utilisation", "more than 0 % and at most 100 %")
        price = self._number("usd_per_kwh", "dollars per kilowatt-hour, such as 0.12")
        if life < HOUR:
            raise InputError(f"read {self.life!r}", field="life", accepted="at least 1 h")
        if not 0.0 < share <= 1.0:
            message, accepted = f"read {self.utilisation!r}", "more than 0 % and at most 100 %"
            raise InputError(message, field="utilisation", accepted=accepted)
        return PurchaseTerms(life, share, price)

    def _number(self, field: str, accepted: str) -> float:
        try:
            return parse_limit(str(getattr(self, field)), "fraction")
        except InputError:
            message = f"read {getattr(self, field)!r}"
            raise InputError(message, field=field, accepted=accepted) from None


def buyers_rows(rows: Iterable[PurchaseRow], chip: str) -> tuple[PurchaseRow, ...]:
    """The rows of a chip that are of the first kind of KINDS that it has any of."""
    mine = [row for row in rows if row.chip == chip]
    for kinds in KINDS:
        if found := tuple(row for row in mine if row.kind in kinds):
            return found
    return ()


def lacks_for_purchase(catalog: Catalog, chip: str) -> str | None:
    """Why a chip cannot be priced as bought; None where it can."""
    if not buyers_rows(catalog.purchases, chip):
        return f"{chip} has no price that a buyer pays in hardware/purchases.csv"
    if catalog.chips[chip].tdp_w is None:
        return f"{chip} has no rated power, which its electricity needs"
    return None
