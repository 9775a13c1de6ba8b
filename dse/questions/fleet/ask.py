"""`dse.fleet`: what to buy or rent for a plan of demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dse.catalog import Catalog, load_catalog
from dse.questions.fleet.answer import Answer, answered
from dse.schema.plan_reader import find_plan, load_plan


def fleet(
    plan: str | Path,
    *,
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """The cheapest mix of chips for a plan: what to buy or rent, how much of it, and when.

        dse.fleet("dense-70b-billion-tokens").counted

    `plan` is a shipped plan or the path of a file (docs/fleet.md). Where nothing keeps the plan,
    `counted` of the answer is None. Raises InputError for a plan that is wrong.
    """
    catalog = catalog or load_catalog()
    return answered(load_plan(find_plan(str(plan)), catalog), catalog, progress)
