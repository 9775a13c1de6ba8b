"""`dse catalog prices`: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from collections.abc import Collection

from dse.answer.answer import Answer
from dse.catalog import Catalog
from dse.questions.compare.price_list import (
    price_changes_since,
    price_list,
    prices_answer,
    since_answer,
)


def list_prices(
    catalog: Catalog,
    chips: Collection[str] = (),
    basis: str | None = None,
    since: str | None = None,
) -> Answer:
    """Every price of an hour, oldest first, and what each chip costs by them; or (`since`) only
    what changed since a date. Raises InputError for a chip, a basis or a date that is none, and
    where no price is left."""
    if since is not None:
        return since_answer(price_changes_since(catalog, since, chips, basis))
    return prices_answer(price_list(catalog, chips, basis), bool(chips))
