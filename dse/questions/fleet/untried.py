"""What a plan was not free to choose and usually pays (`dse.problem.words`): solved again with the
options that it would add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, inf

import numpy as np

from dse.answer.numbers import dollars
from dse.catalog import Catalog
from dse.economics.fleet import DEMAND, divisible, limits_of, solve
from dse.economics.fleet_cost import Mix, Option, count
from dse.problem.evaluate import evaluate
from dse.problem.instances import Subject, subject_of
from dse.problem.words import (
    FP8,
    Untried,
    draft_counts,
    draft_words,
    format_words,
    wide,
)
from dse.questions.fleet.answer import Solution
from dse.questions.fleet.changes import LOOSE, QUICK, Progress
from dse.questions.fleet.options import options_of
from dse.questions.fleet.pools import Pays
from dse.questions.fleet.subjects import workload_of
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import DemandClass, FleetChip, Plan

MOST_CHIPS = 6  # that are tried with what a plan did not choose from, those of least price a rate


def with_untried(found: Solution, catalog: Catalog, progress: Progress) -> Solution:
    """The solution with what its plan did not choose from and would pay."""
    ways = (_formats, _drafts, _pools)
    tried = (way(found, catalog, progress) for way in ways)
    return replace(found, untried=tuple(one for one in tried if one is not None))


def _formats(found: Solution, catalog: Catalog, progress: Progress) -> Untried | None:
    computing = [c for c in _chips(found) if catalog.chip(c.chip).computes(FP8)]
    lacks = {one.name: _wide(one) for one in found.plan.demand}
    classes = tuple(
        replace(
            one,
            weight_dtypes=(FP8,) if lacks[one.name][0] else one.weight_dtypes,
            kv_dtypes=(FP8,) if lacks[one.name][1] else one.kv_dtypes,
        )
        for one in found.plan.demand
        if any(lacks[one.name])
    )
    if not classes or not computing:
        return None
    weights, cache = (any(one[k] for one in lacks.values()) for k in (0, 1))
    part = replace(found.plan, demand=classes, chips=tuple(computing))
    what = format_words(weights, cache)
    one = _again(found, catalog, progress, what, part)
    if one is None:
        return None
    nats = [_nats(part, catalog, one, computing[0].chip) for one in classes]
    return replace(one, nats=max(nats) if np.isfinite(nats).all() else None)


def _wide(one: DemandClass) -> tuple[bool, bool]:
    """Whether weights and cache of a class are in formats of more than 8 bits alone."""
    models = [resolve_model(name) for name in one.models]
    return (
        all(wide(one.weight_dtypes or _own(model)) for model in models),
        all(wide(one.kv_dtypes or (model.kv_dtype or "bf16",)) for model in models),
    )


def _own(model: Model) -> set[str]:
    """Formats of the checkpoint, but for embedding and output head."""
    return {name for part, name in model.weight_dtypes.items() if part != "embedding"}


def _nats(plan: Plan, catalog: Catalog, one: DemandClass, chip: str) -> float:
    """What the formats of a class add to the loss over the checkpoint's, the most of its models."""

    def loss(model: Model, weight: str | None, kv: str | None) -> float:
        load = workload_of(plan, catalog, one, chip)
        basis = plan.price_basis
        at: Subject = subject_of(
            catalog, model, chip, load, weight_dtype=weight, kv_dtype=kv, price_basis=basis
        )
        return float(evaluate(at.one, at.workload, at.machines).values["predicted_loss"][0])

    weight, kv = next(iter(one.weight_dtypes), None), next(iter(one.kv_dtypes), None)
    models = [resolve_model(name) for name in one.models]
    return max(loss(model, weight, kv) - loss(model, None, None) for model in models)


def _drafts(found: Solution, catalog: Catalog, progress: Progress) -> Untried | None:
    classes, counts = [], []
    for one in found.plan.demand:
        known = {count for name in one.models for count in draft_counts(resolve_model(name))}
        if known and not one.draft_tokens and all(resolve_model(m).drafts for m in one.models):
            classes.append(replace(one, draft_tokens=tuple(sorted(known))))
            counts += sorted(known)
    if not classes:
        return None
    part = replace(found.plan, demand=tuple(classes), chips=tuple(_chips(found)))
    return _again(found, catalog, progress, draft_words(counts), part)


def _pools(found: Solution, catalog: Catalog, progress: Progress) -> Untried | None:
    plan = found.plan
    classes = tuple(one for one in plan.demand if one.percentile is None)
    if plan.disaggregated or not classes:
        return None
    part = replace(plan, demand=classes, chips=tuple(_chips(found)), disaggregated=True)
    return _again(found, catalog, progress, "pools for prefill and decode", part)


def _chips(found: Solution) -> list[FleetChip]:
    """Chips to try: all of a short plan, else those whose options cost least a request."""
    plan = found.plan
    if len(plan.chips) <= MOST_CHIPS:
        return list(plan.chips)

    def least(chip: FleetChip) -> float:
        """Dollars an hour of a request a second, at best."""
        mine = [option for option in found.options if chip.chip in option.chips]
        rate = max((o.requests_per_s / o.chips[chip.chip] for o in mine), default=0.0)
        usd = min((offer.usd_per_chip_hour for offer in chip.offers), default=0.0)
        return usd / rate if rate else np.inf

    return sorted(plan.chips, key=least)[:MOST_CHIPS]


def _again(
    found: Solution, catalog: Catalog, progress: Callable[[str], None], what: str, part: Plan
) -> Untried | None:
    """The plan solved with the options of `part`, too; None where that saves nothing that the
    program tells."""
    progress(f"not searched: {what}")
    plan = found.plan
    # As the plan's own options say: pools may be larger, and are small beside the fleet as well.
    split = divisible(plan, found.options) if found.counted is not None else ()
    pays = _pays(plan, found.options) if found.counted is not None else lambda _: True
    more, _ = options_of(part, catalog, known=found.known, largest=bool(split), pays=pays)
    options = [*found.options, *(option for option in more if option not in found.options)]
    served = {option.klass for option in options}
    if len(options) == len(found.options) or any(one.name not in served for one in plan.demand):
        return None
    base = inf if found.base is None else found.base.usd
    below = inf if split else (1.0 - LOOSE) * base
    again = solve(plan, options, nodes=QUICK, gap=LOOSE, split=split, below=below)
    if again.mix is None or again.gap > LOOSE:
        return None
    saves = 1.0 - again.usd / base if base > 0.0 else 0.0
    if saves <= LOOSE:
        return None
    return Untried(what, saves if base < inf else None, _result(plan, options, again.mix))


def _pays(plan: Plan, options: Sequence[Option]) -> Pays:
    """Whether an option can save: where all is rented and nothing scarce, only if a request costs
    less on it than on the best of the plan's own."""
    scarce = any(not name.startswith(DEMAND) for name in limits_of(plan))
    if scarce or any(chip.stock or chip.owning for chip in plan.chips):
        return lambda _: True
    hour = {one.chip: min(o.usd_per_chip_hour for o in one.offers) for one in plan.chips}

    def each(option: Option) -> float:
        return sum(n * hour[chip] for chip, n in option.chips.items()) / option.requests_per_s

    least = {one.name: min(each(o) for o in options if o.klass == one.name) for one in plan.demand}
    return lambda option: each(option) < least[option.klass]


def _result(plan: Plan, options: Sequence[Option], mix: Mix) -> str:
    """`10 h100_sxm, $114,000`: most chips at once by kind, of whole servers, and dollars not
    discounted."""
    counted = count(plan, options, mix)
    most: Counter[str] = Counter()
    for quarter in counted.quarters:
        for chip in (*quarter.rented, *quarter.owned_on):
            servers = quarter.rented.get(chip, 0) + quarter.owned_on.get(chip, 0)
            most[chip] = max(most[chip], ceil(servers - 1e-6) * plan.chip(chip).server)
    chips = [f"{n:,} {chip}" for chip, n in most.items() if n]
    return ", ".join([*chips, dollars(sum(one.usd for one in counted.quarters))])
