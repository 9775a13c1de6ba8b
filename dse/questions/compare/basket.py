"""One shape for several chips, and what it costs against each chip's own best.

Notation: k shapes, c chips. p[i, j] is the least price of shape i on chip j, over all deployments
that keep the limits. Chip j's own best is the cheapest shape on it, b[j] = min over i of p[i, j].

    regret[i, j] = p[i, j] / b[j] - 1        worst[i] = max over j        mean[i] = mean over j

A price level of a chip cancels. Only shapes that every chip can serve have a regret; own bests are
those of all shapes. The space bounds the quality from below, or else each chip's own best were the
smallest shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Answer
from dse.answer.frames import document, frame, lines
from dse.answer.numbers import tenths
from dse.answer.sentences import listed
from dse.catalog import Catalog
from dse.economics.prices import price_documents, price_parts, prices_rest_on
from dse.errors import InputError, NothingFeasible
from dse.pareto import non_dominated
from dse.problem.objective import on_terms, pose
from dse.problem.shapes import (
    QUALITY,
    best_deployments,
    metrics_of,
    price_metric,
    shapes_of,
)
from dse.schema.calibration import KINDS
from dse.schema.dtypes import DTYPES
from dse.schema.study import Study
from dse.schema.workloads import mix_words
from dse.space.candidates import Floats
from dse.vocabulary import quantity

DENSE = "dense_equivalent_parameters"
FLOORS = (QUALITY, DENSE)  # what bounds quality from below
LEVELS = 24  # of quality, at which the regret of one shape for all is worked out
DEPLOYED = ("tensor_parallel", "data_parallel", "expert_parallel", "replicas", "concurrency")
MEANING = (
    "Regret is what a shape costs on a chip over that chip's own cheapest shape, less 1; each on "
    "its cheapest deployment within the limits."
)
Progress = Callable[[str, int, int], None]


def basket_answer(
    study: Study, catalog: Catalog, progress: Progress = lambda what, done, total: None
) -> Answer:
    """Every shape of the space on every chip of it.

    Raises InputError for a space of one chip, without a limit on quality, or too large to
    enumerate, and NothingFeasible where no shape can be served on all chips.
    """
    catalog = on_terms(catalog, study)
    problem = pose(study, catalog)
    metric, chips = price_metric(problem), problem.machines.ids
    _check(study, chips)
    shapes = shapes_of(problem)
    served = [
        best_deployments(
            problem,
            shapes,
            code,
            progress=lambda done, total, chip=chip: progress(chip, done, total),
        )
        for code, chip in enumerate(chips)
    ]
    metrics = [metrics_of(problem, one.values) for one in served]
    price = np.stack([one.price for one in served], axis=1)
    ok = np.isfinite(price)
    losses = np.stack([one.values[QUALITY] for one in metrics], axis=1)
    equals = np.stack([one.values[DENSE] for one in metrics], axis=1)
    shared = ok.all(axis=1)
    if not shared.any():
        counts = ", ".join(f"{c} {n:,}" for c, n in zip(chips, ok.sum(axis=0), strict=True))
        raise NothingFeasible(
            f"none of {len(price):,} shapes can be served within the limits on all chips; served "
            f"on {counts}"
        )
    own = np.argmin(price, axis=0)
    regret = price / price[own, np.arange(len(own))] - 1.0
    worst = np.where(shared, regret.max(axis=1), np.inf)
    mean = np.where(shared, regret.mean(axis=1), np.inf)
    # A deployment may quantise: the loss of a shape is that on the chip where it is highest.
    loss = np.where(shared, losses.max(axis=1), np.inf)
    equivalent = np.where(shared, equals.min(axis=1), np.nan)
    rows = np.flatnonzero(shared)
    front = rows[non_dominated(np.stack([loss[rows], worst[rows]], axis=1))]
    front = front[np.lexsort((front, loss[front], worst[front]))]
    best, least_mean = int(np.argmin(worst)), int(np.argmin(mean))
    axes = [axis.name for axis in study.model_axes]

    def shape(picked: Any) -> dict[str, Floats]:
        return {name: served[0].values[name][np.asarray(picked)] for name in axes}

    def said(row: int) -> str:
        """The sizes of a shape that differ over the front."""
        of = shape([*front, row])
        parts = {n: v for n, v in of.items() if len(np.unique(v)) > 1 and v[-1]}
        return ", ".join(f"{quantity(n).title} {v[-1]:,.0f}" for n, v in parts.items())

    def quality(picked: Any) -> dict[str, Any]:
        at = np.asarray(picked)
        columns = {QUALITY: loss[at], DENSE: equivalent[at], "worst_regret": worst[at]}
        return {**shape(picked), **columns, "mean_regret": mean[at]}

    picked = [*own.tolist(), best, least_mean]
    names = [*(f"best for {chip}" for chip in chips), "least worst", "least mean"]
    on = [(i, j) for i in range(len(picked)) for j in range(len(chips))]
    at, chip_of = (np.array([pair[k] for pair in on]) for k in (0, 1))
    row_of = np.array(picked)[at]
    pairs = list(zip(row_of.tolist(), chip_of.tolist(), strict=True))
    choices = {
        "which": [names[i] for i in at],
        "chip": [chips[j] for j in chip_of],
        **shape(row_of),
        "regret": _known(regret[row_of, chip_of]),
        metric: _known(price[row_of, chip_of]),
        "tpot_s": [float(metrics[j].values["tpot_s"][r]) for r, j in pairs],
        **{
            name: [float(served[j].values[name][r]) for r, j in pairs]
            for name in DEPLOYED
            if name in served[0].values
        },
        "weight_dtype": [DTYPES[int(served[j].values["weight_dtype"][r])] for r, j in pairs],
        QUALITY: _known(loss[row_of]),
        DENSE: equivalent[row_of],
    }
    levels = _levels(price, np.where(ok, losses, np.inf), loss)
    level_rows = [row for _, row, _ in levels]
    made = [
        frame(
            "choices",
            "Each chip's own best shape, and one for all, on every chip",
            choices,
            shown=("which", "chip", "regret", metric, "tpot_s", "weight_dtype", "concurrency"),
            first=("which", "chip", "regret"),
        ),
        frame(
            "levels",
            "The least worst regret where every chip's own best must be as good",
            {
                "which": ["one shape for all"] * len(levels),
                "predicted_loss_at_most": [level for level, _, _ in levels],
                "worst_regret": [float(of.max()) for _, _, of in levels],
                "changes": [k == 0 or r != level_rows[k - 1] for k, r in enumerate(level_rows)],
                **shape(level_rows),
            },
            on_console=False,
        ),
        frame("front", "Shapes that no other beats in both", quality(front), on_console=False),
    ]
    parts = tuple(price_documents(catalog, chips, study.price_basis))
    each = ", ".join(f"{c} {tenths(float(regret[best, j]), True)}" for j, c in enumerate(chips))
    sentences = [
        f"One shape for {listed(chips)} costs at most {tenths(float(worst[best]))} more than each "
        f"chip's own best ({each}): {said(best)}."
    ]
    for j, chip in enumerate(chips):
        r = int(own[j])
        away = [
            f"{tenths(float(regret[r, k]), True)} on {other}"
            if ok[r, k]
            else f"cannot be served on {other}"
            for k, other in enumerate(chips)
            if k != j
        ]
        sentences.append(f"The shape that is best for {chip} alone: {listed(away)}.")
    kinds = [KINDS[of.provenance[best]] for of in metrics]
    rests = [
        *(f"{c}: kernel laws are {kind}" for c, kind in zip(chips, kinds, strict=True)),
        *prices_rest_on(catalog, chips, study.price_basis),
    ]
    return Answer(
        question="compare",
        title=study.title or study.name,
        asked=_asked(study, len(price), int(shared.sum()), len(chips)),
        headline=sentences[0],
        sentences=[*sentences[1:], MEANING],
        blocks=(_picture(made[1]), *made, *([price_parts(parts)] if parts else [])),
        rests=rests,
        document=document(
            {
                "space": study.name,
                "objective": metric,
                "price_basis": study.price_basis,
                **({"prices": list(parts)} if parts else {}),
                "quality_law": study.quality_law,
                "chips": list(chips),
                "shapes": len(price),
                "shared": int(shared.sum()),
                "answer": sentences,
                "assumed": rests,
            },
            made,
        ),
        data=(made[2],),
    )


def _known(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _picture(levels: Any) -> Any:
    shows = (
        "The least regret of one shape for all, by how good each chip's own best must be. Few "
        "shapes are that good, so the line jumps with the grid of the space."
    )
    title = "The regret of one shape where better quality is asked"
    return lines(
        "levels-plot", title, levels, "predicted_loss_at_most", "worst_regret", "which", shows
    )


def _check(study: Study, chips: Sequence[str]) -> None:
    if len(chips) < 2:
        raise InputError(
            f"one chip: {', '.join(chips)}",
            file=str(study.path),
            field="deployment.chip",
            accepted="two chips or more",
        )
    if not any(limit.metric in FLOORS for limit in study.constraints):
        raise InputError(
            "no limit on quality: each chip's own best would be the smallest shape",
            file=str(study.path),
            field="constraints",
            accepted="such as dense_equivalent_parameters >= 80B",
        )


def _levels(price: Floats, losses: Floats, loss: Floats) -> list[tuple[float, int, Floats]]:
    """(loss at most, the best shape for all there, its regret on each chip), from the loosest loss
    that a shape for all chips has to that which a tenth of these reach. `losses` (k, c) are those
    of each chip's deployment, inf where it cannot serve the shape."""
    reached = loss[np.isfinite(loss)]
    found = []
    for level in np.linspace(reached.max(), np.quantile(reached, 0.1), LEVELS):
        best = np.where(losses <= level, price, np.inf).min(axis=0)
        regret = price / best - 1.0
        worst = np.where(loss <= level, regret.max(axis=1), np.inf)
        row = int(np.argmin(worst))
        found.append((float(level), row, regret[row]))
    return found


def _asked(study: Study, shapes: int, shared: int, chips: int) -> str:
    """What was looked at, in one sentence."""
    load, *others = study.workloads
    tokens = f"{load.prompt_tokens:,} prompt and {load.output_tokens:,} output tokens"
    if others:
        tokens = mix_words([one.row() for one in study.workloads])
    limits = "; ".join(limit.text for limit in study.constraints)
    return (
        f"{study.title or study.name}: {shapes:,} shapes on {chips} chips, {shared:,} served on "
        f"all within the limits ({limits}); {tokens}; prices: {study.price_basis}"
    )
