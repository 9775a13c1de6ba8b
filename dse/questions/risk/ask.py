"""`dse.risk`: how sure the order of the chips is, and what to measure before buying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.problem.objective import on_terms
from dse.questions.risk.answer import Risk, rate_of, shapes_of
from dse.questions.risk.choices import Progress, choices_of, joined
from dse.questions.risk.measure_next import measure_next
from dse.questions.risk.present import risk_answer
from dse.questions.risk.price_spread import PriceSpread, price_spreads
from dse.questions.risk.robust import Uncertain, draw, robustness
from dse.questions.whatif.subject import of_study


def risk(
    study: Any,
    *,
    points: Sequence[str] = (),
    draws: int = 10_000,
    seed: int = 0,
    objective: str | None = None,
    price_interval: float | None = None,
    demand: str | None = None,
    limits: Sequence[str] = (),
    catalog: Catalog | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Answer:
    """How often each chip stays the best choice when prices, efficiency and demand are drawn from
    their intervals, what a wrong choice costs, and which measurement would help most.

        dse.risk("deploy-llama-3-70b", price_interval=0.25).headline

    `study` is as in `dse.whatif`; `points` of a study that searched shapes name the shape, or the
    shapes that are compared. `demand` is LOW..HIGH in tokens. The other arguments are the options
    of `dse whatif --uncertain`. Raises InputError for what cannot be read and for several shapes of
    a study that limits no quality, NothingFeasible where no chip keeps the limits.
    """
    source = study if isinstance(study, Mapping) else str(getattr(study, "folder", study))
    subject = of_study(source, catalog or load_catalog(), limits)
    problem, shapes = subject.problem.busy, shapes_of(source, points, subject.problem.study)
    if len(shapes) > 1:
        of = {one.name: choices_of(problem, objective, one.config, progress) for one in shapes}
        choices = joined(of)
    else:
        config = shapes[0].config if shapes else None
        choices = choices_of(problem, objective, config, progress)
    rate = None if demand is None else rate_of(demand, subject, choices)
    terms = on_terms(subject.catalog, problem.study)
    prices: tuple[PriceSpread, ...] = ()
    if choices.priced:
        chips = list(dict.fromkeys(item.chip for item in choices.items))
        prices = price_spreads(terms.prices, problem.study.price_basis, chips, price_interval)
    sd = {one.chip: one.sd for one in prices}
    moved = np.array([sd.get(item.chip, 0.0) for item in choices.items])
    kin_of = dict(zip(problem.machines.ids, problem.machines.kin, strict=True))
    kin = tuple(kin_of[item.chip] for item in choices.items)
    uncertain = Uncertain(choices, moved, rate, kin)
    drawn = draw(uncertain, draws, seed)
    robust = robustness(uncertain, drawn)
    found = Risk(
        subject=subject,
        catalog=terms,
        shapes=tuple(shapes),
        draws=draws,
        seed=seed,
        price_interval=price_interval,
        uncertain=uncertain,
        prices=prices,
        robust=robust,
        measurements=tuple(measure_next(uncertain, drawn, robust, progress)),
    )
    return replace(risk_answer(found), names=terms.names)
