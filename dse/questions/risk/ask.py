"""`dse.risk`: how sure the order of the chips is, and what to measure before buying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.questions.risk.answer import Asked, found_of
from dse.questions.risk.present import risk_answer


def risk(
    study: Any,
    *,
    points: Sequence[str] = (),
    draws: int = 10_000,
    seed: int = 0,
    objective: str | None = None,
    price_interval: float | None = None,
    demand: str | None = None,
    retune: bool = False,
    limits: Sequence[str] = (),
    catalog: Catalog | None = None,
    command: str = "",
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Answer:
    """How often each chip stays the best choice when prices, efficiency and demand are drawn from
    their intervals, what a wrong choice costs, and which measurement would help most.

        dse.risk("deploy-llama-3-70b", price_interval=0.25).headline

    `study` is as in `dse.whatif`; `points` of a study that searched shapes name the shapes. The
    other arguments are the options of `dse whatif --uncertain`. Raises InputError for what cannot
    be read, NothingFeasible where no chip keeps the limits.
    """
    asked = Asked(
        draws=draws,
        seed=seed,
        objective=objective,
        price_interval=price_interval,
        demand=demand,
        retune=retune,
        limits=tuple(limits),
    )
    source = study if isinstance(study, Mapping) else str(getattr(study, "folder", study))
    found = found_of(source, catalog or load_catalog(), points, asked, progress)
    return risk_answer(found, command)
