"""What a study says of the prices of its chips."""

from __future__ import annotations

from typing import Any

from dse.catalog import Catalog
from dse.economics.prices import evidence_rows
from dse.economics.tco import usd_per_chip_hour
from dse.problem.objective import PhysicsProblem


def price_rows(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """The price of each chip of the space on its one basis."""
    prices = catalog.prices.select(problem.study.price_basis)
    return [
        {
            "chip": chip,
            "usd_per_chip_hour": price.usd_per_chip_hour,
            "date": price.dates,
            "source": "; ".join(price.sources),
            "rule": price.rule,
            "note": "; ".join(price.notes),
        }
        for chip in problem.machines.ids
        for price in (prices[chip],)
    ]


def price_evidence(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """What each of these prices rests on."""
    study = problem.study
    priced = [(chip, study.price_basis) for chip in problem.machines.ids]
    return evidence_rows(catalog, priced, study.costs)


def price_parts(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """The parts of each chip's price where chips are owned."""
    study = problem.study
    return [
        usd_per_chip_hour(catalog, chip, study.price_basis, study.costs).as_json()
        for chip in problem.machines.ids
    ]
