"""Where the figures of a study come from: prices and chip figures with source, date and kind."""

from __future__ import annotations

from typing import Any

from dse.catalog import Catalog
from dse.economics.evidence import evidence_rows
from dse.economics.tco import usd_per_chip_hour
from dse.problem.objective import PhysicsProblem

# Figures that the physics reads; the rest of a chip file is not named in a report.
READ = ("peak_", "memory_", "tdp", "scale", "bandwidth", "latency")


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


def source_rows(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """Every figure of the space's chips and systems that the physics reads."""
    rows = []
    for name in problem.machines.ids:
        chip = catalog.chips[name]
        system = catalog.systems[chip.system]
        for owner, figures in ((name, chip.figures), (system.id, system.figures)):
            for figure in figures:
                if any(part in figure.name for part in READ):
                    rows.append(
                        {
                            "figure": f"{owner} {figure.name}: {figure.text}",
                            "source": figure.source,
                            "date": str(figure.date),
                            "kind": figure.kind,
                        }
                    )
        efficiency = catalog.efficiencies[chip.efficiency]
        for operator, laws in efficiency.operators.items():
            law = next(iter(laws.values()))
            rows.append(
                {
                    "figure": f"{name} kernel efficiency of {operator}",
                    "source": law.source,
                    "date": "",
                    "kind": law.kind,
                }
            )
    return rows
