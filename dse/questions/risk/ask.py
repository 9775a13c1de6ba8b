"""`dse.risk`: how sure the order of the chips is, and what to measure before buying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dse.catalog import Catalog, load_catalog
from dse.questions.risk.answer import Asked, Risk, demand_of
from dse.questions.risk.answer import risk as risk_of


def risk(
    source: Any,
    *,
    points: Sequence[str] = (),
    draws: int = 10_000,
    seed: int = 0,
    objective: str | None = None,
    price_interval: float | None = None,
    demand: str | None = None,
    retune: bool = False,
    catalog: Catalog | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Risk:
    """How often each chip stays the best choice when prices, efficiency and demand are drawn from
    their intervals, what a wrong choice costs, and which measurement would help most.

        dse.risk("deploy-llama-3-70b", price_interval=0.25).robust

    `source` is a shipped space, the path of a space file, what `dse.run` returned or a folder of
    it. The other arguments are the options of `dse risk`. Raises InputError for what cannot be
    read, NothingFeasible where no chip keeps the limits.
    """
    asked = Asked(
        draws=draws,
        seed=seed,
        objective=objective,
        price_interval=price_interval,
        demand=None if demand is None else demand_of(demand),
        retune=retune,
    )
    folder: str | Path = getattr(source, "folder", source)
    return risk_of(str(folder), catalog or load_catalog(), points, asked, progress)
