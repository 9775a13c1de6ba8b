"""`dse whatif --uncertain` in sentences and tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dse.answer.numbers import number, percent, priced, share, tenths
from dse.economics.priced import prices_rest_on, unsold_rests, unsold_sentences
from dse.physics.kin import COMMON, MEASURED
from dse.problem.loads import held
from dse.problem.words import served_words, short_deployment
from dse.questions.risk.answer import Risk, quality_limits
from dse.questions.risk.choices import Choice
from dse.questions.risk.measure_next import Measurement
from dse.schema.workloads import load_words, mix_words

NAMED = 8  # chips that are left out for one reason and named
MEANING = (
    "Regret: what a choice costs in a draw over what the best choice of that draw costs, less 1. A "
    "choice that then keeps the limits with no deployment is counted with its own price and, on "
    "top, that of the best choice, which is bought after it."
)


def lead(found: Risk) -> list[str]:
    """The answer: what to take, how sure that is, what being wrong costs, what to measure."""
    robust, names = found.robust, [item.name for item in found.uncertain.items]
    chance, take = robust.chance_first, robust.least_regret
    words = [advice(found)]
    words += unsold_sentences(found.unsold, [found.uncertain.items[take].chip])
    if len(names) == 1:
        return [*words, "There is no other choice."]
    rest = [i for i in np.argsort(-chance, kind="stable") if i != take and chance[i] > 0.0][:3]
    if rest:
        others = ", ".join(f"{names[i]} in {percent(float(chance[i]))}" for i in rest)
        words.append(f"Next most often best: {others}.")
    follows = int(np.argsort(robust.expected_regret, kind="stable")[1])
    words.append(
        f"What it gives away to the best choice of each draw (its regret): "
        f"{_share(robust.expected_regret[take])} in the mean, {_share(robust.regret_95[take])} or "
        f"more in one draw of twenty. {names[follows]} follows with "
        f"{_share(robust.expected_regret[follows])} in the mean."
    )
    words.append(_worst(found, names))
    if robust.none > 0.0:
        words.append(f"In {percent(robust.none)} of the draws no choice keeps the limits.")
    return [*words, _measure(found)] if found.measurements else words


def advice(found: Risk, *, in_full: bool = False) -> str:
    """The choice of least expected regret, and the chance that another is better; `in_full` names
    its deployment in words, not in short."""
    names = [item.name for item in found.uncertain.items]
    robust = found.robust
    take, now = robust.least_regret, robust.predicted
    item, chance = found.uncertain.items[take], tenths(robust.chance_first[take])
    said = (
        f"Take {item.chip}, served on {deployment(found, item, item.best, in_full)}: "
        f"{priced(found.objective, number(robust.nominal[take]))} at the prediction"
    )
    if take == now:
        other = f"; in {tenths(1.0 - robust.chance_first[take])} another choice is better"
        only = len(names) == 1
        return (
            f"{said}, the best there and in {chance} of {found.draws:,} draws{other * (not only)}."
        )
    return (
        f"{said} and the best in {chance} of {found.draws:,} draws; it is the safest. {names[now]} "
        f"is best at the prediction and in {tenths(robust.chance_first[now])} of the draws, and "
        "costs more where it is not."
    )


def _worst(found: Risk, names: list[str]) -> str:
    robust = found.robust
    regret, price = robust.least_worst_regret, robust.least_worst_price
    said = (
        f"With every interval at its end against it, {names[regret]} has the least worst regret, "
        f"{_share(robust.worst_regret[regret])}"
    )
    if not np.isfinite(robust.worst_price[price]):
        return f"{said}; no choice then keeps the limits."
    name = "it has" if regret == price else f"{names[price]} has"
    worst = priced(found.objective, number(robust.worst_price[price]))
    return f"{said}; {name} the lowest worst figure, {worst}."


def _measure(found: Risk) -> str:
    best, robust = found.measurements[0], found.robust
    wrong, regret = after(found, best)
    if best.chance_saved < 0.0005:
        return "No single measurement would lower the chance of a wrong choice by 0.05 points."
    return (
        f"Before buying, measure {measured(found, best)}: a choice made after it is wrong in "
        f"{tenths(wrong)} instead of {tenths(1.0 - robust.chance_first.max())}, and its expected "
        f"regret is {_share(regret)} instead of {_share(robust.expected_regret.min())}."
    )


def after(found: Risk, one: Measurement) -> tuple[float, float]:
    """Chance of a wrong choice and least expected regret after a measurement."""
    wrong = 1.0 - float(found.robust.chance_first.max()) - one.chance_saved
    return max(wrong, 0.0), max(float(found.robust.expected_regret.min()) - one.regret_saved, 0.0)


def _share(regret: float) -> str:
    return "unbounded" if np.isinf(regret) else share(regret)


def measured(found: Risk, one: Measurement) -> str:
    """What is learned."""
    item = found.uncertain.items[one.i]
    if one.what == "price":
        return f"a quote for {item.chip}"
    return f"serving on {deployment(found, item, one.row)}"


def deployment(found: Risk, item: Choice, row: int, in_full: bool = False) -> str:
    """A row of a choice in short or in words, with its shape where several are compared."""
    shape = f" ({item.shape})" if item.shape else ""
    said = served_words if in_full else short_deployment
    return said(item.deployments[row], is_held(found)) + shape


def is_held(found: Risk) -> bool:
    return held([load.row() for load in found.study.workloads])


def facts(found: Risk) -> str:
    """What the answer was worked out from."""
    loads = [load.row() for load in found.study.workloads]
    choices = found.uncertain.choices
    limits = "; ".join(limit.text for limit in found.study.constraints) or "none"
    points, many = ", ".join(shape.name for shape in found.shapes), "s" * (len(found.shapes) > 1)
    shape = f"; shape{many} of point{many} {points}" if points else ""
    demand = found.uncertain.demand
    wanted = f"; demand {demand.low:g} to {demand.high:g} requests/s" if demand else ""
    chips = (len(choices.items) + len(choices.left_out)) // max(len(found.shapes), 1)
    return (
        f"{choices.points:,} deployments on {chips} chip{'s' if chips > 1 else ''}; "
        f"{load_words(loads[0]) if len(loads) == 1 else mix_words(loads)}; limits: {limits}; "
        f"prices: {found.study.price_basis}{wanted}{shape}. Seed {found.seed}; standard "
        f"error of a chance {100 * found.robust.standard_error.max():.2g}%."
    )


def rests_on(found: Risk) -> list[str]:
    """What is assumed, and how draws were made."""
    choices = found.uncertain.choices
    kinds = {one.kind for one in found.prices} if choices.priced else set()
    loose = dict.fromkeys(item.chip for item in choices.items if item.kind != "fitted")
    words = [
        "errors of times and costs: the 80% intervals of the model, log-normal on either side; "
        f"{choices.shared:.0%} of the variance is shared by all configurations of a chip (fitted), "
        "the rest is each configuration's own, whatever is in flight (assumed)",
    ]
    words += [*_kin(found), *_shapes(found)]
    if loose:
        words.append(f"kernel laws not measured on the chip, wider intervals: {', '.join(loose)}")
    words.append(
        "the configuration of a chip stays the one predicted best; requests in flight are "
        "chosen again in every draw"
    )
    said = {
        "published": "spread of three or more published rows of the chip",
        "pooled": "too few rows of a chip: pooled spread of the basis's chips that have three",
        "assumed": "no two chips of the basis have three rows: 15% either way (assumed)",
        "given": f"--price-interval, {100 * (found.price_interval or 0.0):g}% either way",
    }
    words += [f"price intervals: {text}" for kind, text in said.items() if kind in kinds]
    if found.uncertain.demand is not None:
        words.append(
            "demand: the interval given as 80%, log-normal; whole instances are paid, as many as "
            "the drawn rate needs"
        )
    words += unsold_rests(found.unsold)
    left = left_out({**found.study.why_left_out, **choices.left_out})
    return [*words, *prices_rest_on(found.catalog, found.chips, found.study.price_basis), *left]


def left_out(reasons: Mapping[str, str]) -> list[str]:
    """Chips of the space that are no choice, by reason."""
    chips: dict[str, list[str]] = {}
    for chip, why in reasons.items():
        reason = why.removeprefix(f"{chip} ").partition(";")[0]  # what follows is advice
        chips.setdefault(reason, []).append(chip)
    return [
        f"left out, {why}: {', '.join(names) if len(names) <= NAMED else f'{len(names)} chips'}"
        for why, names in chips.items()
    ]


def _kin(found: Risk) -> list[str]:
    """Chips that err together."""
    groups: dict[str, dict[str, None]] = {}
    for item, kin in zip(found.uncertain.items, found.uncertain.kin, strict=True):
        groups.setdefault(kin, {})[item.chip] = None
    names = "; ".join(", ".join(chips) for chips in groups.values() if len(chips) > 1)
    if not names:
        return []
    return [
        f"chips whose kernel laws have one origin err together in {COMMON:.0%} of that shared "
        f"part ({MEASURED}): {names}"
    ]


def _shapes(found: Risk) -> list[str]:
    """What is held and what is asked where shapes are compared."""
    if not found.shapes:
        return []
    each = "; ".join(f"{shape.name}: {shape.quality}" for shape in found.shapes)
    loss = found.uncertain.items[0].loss
    words = [f"quality is not judged, nor how sure it is ({each})"]
    if loss is not None:
        words = [
            f"whether a shape keeps a loss of {loss.limit:g} is drawn from what "
            f"{loss.doubt.posterior.runs} runs of yours leave of the law ({each})"
        ]
    if len(found.shapes) > 1:
        then = ", and within it" if loss is None else " as predicted;"
        words = [
            "all shapes keep the limit of the study on quality "
            f"({'; '.join(quality_limits(found.study))}){then} {words[0]}",
            "shapes on one chip have its price and its part of the error in common, and in one "
            "configuration all of the error, so that their order there is taken for sure (assumed)",
        ]
    return words
