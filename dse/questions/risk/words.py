"""`dse risk` in sentences and tables."""

from __future__ import annotations

import numpy as np

from dse.answer.numbers import number, percent, priced, tenths
from dse.answer.text_table import Table
from dse.physics.kin import COMMON, MEASURED
from dse.problem.loads import held
from dse.problem.words import (
    DEPLOYMENT_KEY,
    HELD_KEY,
    SHORT,
    SHOWN,
    load_words,
    mix_words,
    short_deployment,
    show,
)
from dse.questions.risk.answer import Risk, quality_limits
from dse.questions.risk.measure_next import Measurement
from dse.questions.whatif.choices import Choice
from dse.questions.whatif.paid import left_out, paid_sentences, paid_tables, unsold_words

MOST = 6  # measurements that a table shows
MEANING = (
    "Regret: what a choice costs in a draw over what the best choice of that draw costs, less 1. A "
    "choice that then keeps the limits with no deployment is counted with its own price and, on "
    "top, that of the best choice, which is bought after it."
)


def lead(found: Risk) -> list[str]:
    """The answer: what to take, how sure that is, what being wrong costs, what to measure."""
    chips = [item.name for item in found.uncertain.items]
    chip = found.uncertain.items[found.robust.least_regret].chip
    words = [_advice(found, chips), *unsold_words(found.paid, chip)]
    if len(chips) == 1:
        return [*words, "There is no other choice."]
    robust = found.robust
    chance, advised = robust.chance_first, robust.least_regret
    rest = [i for i in np.argsort(-chance, kind="stable") if i != advised and chance[i] > 0.0][:3]
    if rest:
        others = ", ".join(f"{chips[i]} in {percent(float(chance[i]))}" for i in rest)
        words.append(f"Next most often best: {others}.")
    words += [_regret(found, chips), _worst(found, chips)]
    if robust.none > 0.0:
        words.append(f"In {percent(robust.none)} of the draws no choice keeps the limits.")
    if found.measurements:
        words.append(_measure(found))
    return words


def _advice(found: Risk, chips: list[str]) -> str:
    """The choice of least expected regret, and the chance that another is better."""
    robust = found.robust
    take, now = robust.least_regret, robust.predicted
    item = found.uncertain.items[take]
    said = (
        f"Take {item.chip}, served on {deployment(found, item, item.best)}: "
        f"{_figure(found.objective, robust.nominal[take])} at the prediction"
    )
    chance = tenths(robust.chance_first[take])
    draws = f"{found.asked.draws:,} draws"
    if take == now:
        said += f", the best there and in {chance} of {draws}"
        if len(chips) == 1:
            return f"{said}."
        return f"{said}; in {tenths(1.0 - robust.chance_first[take])} another choice is better."
    return (
        f"{said} and the best in {chance} of {draws}; it is the safest. {chips[now]} is best at "
        f"the prediction and in {tenths(robust.chance_first[now])} of the draws, and costs more "
        "where it is not."
    )


def _figure(objective: str, value: float) -> str:
    """`$0.07 per million tokens`, `time per output token 20 ms`."""
    return priced(objective, number(value))


def _regret(found: Risk, chips: list[str]) -> str:
    robust = found.robust
    order = np.argsort(robust.expected_regret, kind="stable")
    take, after_it = int(order[0]), int(order[1])
    return (
        f"What it gives away to the best choice of each draw (its regret): "
        f"{_share(robust.expected_regret[take])} in the mean, {_share(robust.regret_95[take])} or "
        f"more in one draw of twenty. {chips[after_it]} follows with "
        f"{_share(robust.expected_regret[after_it])} in the mean."
    )


def _worst(found: Risk, chips: list[str]) -> str:
    robust = found.robust
    regret, price = robust.least_worst_regret, robust.least_worst_price
    said = (
        f"With every interval at its end against it, {chips[regret]} has the least worst regret, "
        f"{_share(robust.worst_regret[regret])}"
    )
    worst = _figure(found.objective, robust.worst_price[price])
    name = "it has" if regret == price else f"{chips[price]} has"
    if not np.isfinite(robust.worst_price[price]):
        return said + "; no choice then keeps the limits."
    return said + f"; {name} the lowest worst figure, {worst}."


def _measure(found: Risk) -> str:
    best = found.measurements[0]
    wrong, regret = after(found, best)
    if best.chance_saved < 0.0005:
        return "No single measurement would lower the chance of a wrong choice by 0.05 points."
    return (
        f"Before buying, measure {measured(found, best)}: a choice made after it is wrong in "
        f"{tenths(wrong)} instead of {tenths(1.0 - found.robust.chance_first.max())}, and its "
        f"expected regret is {_share(regret)} instead of "
        f"{_share(found.robust.expected_regret.min())}."
    )


def after(found: Risk, one: Measurement) -> tuple[float, float]:
    """Chance of a wrong choice and least expected regret after a measurement."""
    wrong = 1.0 - float(found.robust.chance_first.max()) - one.chance_saved
    return max(wrong, 0.0), max(float(found.robust.expected_regret.min()) - one.regret_saved, 0.0)


def _share(value: float) -> str:
    """A regret in percent."""
    if not np.isfinite(value):
        return "unbounded"
    return f"{100 * value:.3g}%" if value < 1.0 else f"{100 * value:,.0f}%"


def measured(found: Risk, one: Measurement) -> str:
    """What is learned."""
    item = found.uncertain.items[one.i]
    if one.what == "price":
        return f"a quote for {item.chip}"
    return f"serving on {deployment(found, item, one.row)}"


def deployment(found: Risk, item: Choice, row: int) -> str:
    """A row of a choice in short, with its shape where several are compared."""
    shape = f" ({item.shape})" if item.shape else ""
    return short_deployment(item.deployments[row], held=_held(found)) + shape


def _held(found: Risk) -> bool:
    return held([load.row() for load in found.study.workloads])


def facts(found: Risk) -> str:
    """What the answer was worked out from."""
    loads = [load.row() for load in found.study.workloads]
    choices = found.uncertain.choices
    limits = "; ".join(limit.text for limit in found.study.constraints) or "none"
    points = ", ".join(shape.name for shape in found.shapes)
    shape = f"; {_plural(found, 'shape')} of {_plural(found, 'point')} {points}" if points else ""
    demand = found.asked.demand
    wanted = f"; demand {demand.low:g} to {demand.high:g} requests/s" if demand else ""
    chips = (len(choices.items) + len(choices.left_out)) // max(len(found.shapes), 1)
    return (
        f"{choices.points:,} deployments on {chips} chip{'s' if chips > 1 else ''}; "
        f"{load_words(loads[0]) if len(loads) == 1 else mix_words(loads)}; limits: {limits}; "
        f"prices: {found.study.price_basis}{wanted}{shape}. Seed {found.asked.seed}; standard "
        f"error of a chance {100 * found.robust.standard_error.max():.2g}%."
    )


def _plural(found: Risk, word: str) -> str:
    return f"{word}s" if len(found.shapes) > 1 else word


def tables(found: Risk) -> list[Table]:
    """Choices, measurements, prices."""
    return [
        _choices(found),
        *([_measurements(found)] if found.measurements else []),
        *([_prices(found)] if found.uncertain.choices.priced else []),
        *paid_tables(found.paid),
    ]


def _choices(found: Risk) -> Table:
    robust, items = found.robust, found.uncertain.items
    rows = [
        (
            deployment(found, items[i], items[i].best),
            items[i].kind,
            show(found.objective, number(robust.nominal[i])),
            f"{show(found.objective, number(robust.low[i]))} to "
            f"{show(found.objective, number(robust.high[i]))}",
            percent(robust.chance_first[i]),
            _times(robust.expected_regret[i]),
            _times(robust.regret_95[i]),
            _times(robust.worst_regret[i]),
            percent(robust.chance_missed[i]),
        )
        for i in map(int, np.argsort(-robust.chance_first, kind="stable"))
    ]
    titles = (
        "choice, as predicted", "laws", SHORT.get(found.objective, found.objective), "80% of draws",
        "first", "regret", "95%", "worst", "misses limits",
    )  # fmt: skip
    key = DEPLOYMENT_KEY + (HELD_KEY if _held(found) else "")
    return Table(
        "Choices, the one most often first on top", titles, rows, (2, 4, 5, 6, 7, 8),
        (
            f"{key}. laws: how the kernel laws of the chip are known. The figure is "
            f"{SHOWN.get(found.objective, found.objective)}. first: share of the draws in which it "
            "is the best. regret: in the mean, its 95th percentile, and the worst with every "
            "80% interval at its end against it. misses limits: share of the draws in which no "
            "load keeps them.",
        ),
    )  # fmt: skip


def _times(value: float) -> str:
    return f"{100 * value:,.0f}%" if np.isfinite(value) else "-"


def _measurements(found: Risk) -> Table:
    rows = []
    for one in found.measurements[:MOST]:
        wrong, regret = after(found, one)
        rows.append(
            (
                measured(found, one),
                f"{100 * wrong:.1f}%",
                f"{100 * max(one.chance_saved, 0.0):.1f}%",
                f"{100 * regret:.0f}%",
                f"{100 * max(one.regret_saved, 0.0):.0f}%",
                percent(one.changes),
            )
        )
    left = len(found.measurements) - len(rows)
    titles = ("learn", "wrong after", "saved", "regret after", "saved", "changes the choice")
    wrong = 100.0 * (1.0 - found.robust.chance_first.max())
    regret = 100.0 * found.robust.expected_regret.min()
    caption = (
        f"Measure next: now a choice is wrong in {wrong:.1f}%, its expected regret {regret:.0f}%"
        + (f" ({len(rows)} of {left + len(rows)} measurements)" if left else "")
    )
    return Table(caption, titles, rows, (1, 2, 3, 4, 5))


def _prices(found: Risk) -> Table:
    rows = [
        (
            one.chip, f"{one.usd_per_chip_hour:.3g}", f"{one.ends[0]:.3g} to {one.ends[1]:.3g}",
            f"{one.rows}", one.kind,
        )
        for one in found.prices
    ]  # fmt: skip
    caption = f"Prices that were drawn, dollars per chip-hour on basis {found.study.price_basis}"
    titles = ("chip", "price", "80% interval", "rows", "interval")
    return Table(caption, titles, rows, (1, 3))


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
        "the 12 cheapest configurations of each chip are all tried, and the best is chosen in "
        "every draw (--retune)"
        if found.asked.retune
        else "the configuration of a chip stays the one predicted best; requests in flight are "
        "chosen again in every draw"
    )
    said = {
        "published": "spread of three or more published rows of the chip",
        "pooled": "too few rows of a chip: pooled spread of the basis's chips that have three",
        "assumed": "no two chips of the basis have three rows: 15% either way (assumed)",
        "given": f"--price-interval, {100 * (found.asked.price_interval or 0.0):g}% either way",
    }
    words += [f"price intervals: {text}" for kind, text in said.items() if kind in kinds]
    if found.asked.demand is not None:
        words.append(
            "demand: the interval given as 80%, log-normal; whole instances are paid, as many as "
            "the drawn rate needs"
        )
    return [*words, *paid_sentences(found.paid), *left_out(found.study, choices.left_out)]


def _kin(found: Risk) -> list[str]:
    """Chips that err together."""
    groups: dict[str, dict[str, None]] = {}
    for item, kin in zip(found.uncertain.items, found.uncertain.kin, strict=True):
        groups.setdefault(kin, {})[item.chip] = None
    several = ["; ".join(", ".join(chips) for chips in groups.values() if len(chips) > 1)]
    return [
        f"chips whose kernel laws have one origin err together in {COMMON:.0%} of that shared "
        f"part ({MEASURED}): {names}"
        for names in several
        if names
    ]


def _shapes(found: Risk) -> list[str]:
    """What is held and what is asked where shapes are compared."""
    if not found.shapes:
        return []
    each = "; ".join(f"{shape.name}: {shape.quality}" for shape in found.shapes)
    words = [f"quality is not judged, nor how sure it is ({each})"]
    if len(found.shapes) > 1:
        words = [
            "all shapes keep the limit of the study on quality "
            f"({'; '.join(quality_limits(found.study))}), and within it {words[0]}",
            "shapes on one chip have its price and its part of the error in common, and in one "
            "configuration all of the error, so that their order there is taken for sure (assumed)",
        ]
    return words
