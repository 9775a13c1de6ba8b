"""One shape for several chips, in sentences and as a document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.numbers import number, significant
from dse.answer.sentences import listed
from dse.problem.words import mix_words
from dse.questions.basket.answer import Basket
from dse.questions.rediscovery.table import DEGREES
from dse.questions.rediscovery.words import NAMES, value_words
from dse.schema.axes import AXES
from dse.schema.calibration import KINDS
from dse.schema.dtypes import DTYPES

MEANING = (
    "Regret: what a shape costs on a chip over what the chip's own cheapest shape costs there, "
    "both on their cheapest deployments within the limits, less 1. A price level of a chip cancels."
)


def shape_words(values: Mapping[str, float], axes: Collection[str] | None = None) -> str:
    """`hidden size 5,120, layers 40, ...` of `axes`, else of all that say something."""
    said = [
        f"{NAMES.get(axis, axis)} {value_words(axis, value)}"
        for axis, value in values.items()
        if value and AXES[axis].kind == "size" and axis not in ("vocab_size", "head_dim")
        if axes is None or axis in axes
    ]
    return ", ".join(said)


def varying(found: Basket, rows: Sequence[int]) -> set[str]:
    """Axes in which some shapes differ."""
    shapes = [found.shape(i) for i in rows]
    return {axis for axis in shapes[0] if len({shape[axis] for shape in shapes}) > 1}


def regret_words(value: float) -> str:
    """A regret in percent; a price of twice the best or more as a multiple of it."""
    if not np.isfinite(value):
        return "not served"
    return f"{value:+.1%}" if value < 1.0 else f"{significant(1.0 + value)}x"


def lead(found: Basket) -> list[str]:
    """The answer."""
    best, chips = found.least_worst, found.chips
    each = ", ".join(
        f"{chip} {regret_words(found.regret[best, j])}" for j, chip in enumerate(chips)
    )
    sentences = [
        f"One shape for {listed(chips)} costs at most {found.worst[best]:.1%} more than each "
        f"chip's own best ({each}; mean {found.mean[best]:+.1%}): {shape_words(found.shape(best))}."
    ]
    if found.least_mean != best:
        other = found.least_mean
        sentences.append(
            f"The least mean regret is {found.mean[other]:.1%}, with {found.worst[other]:.1%} at "
            f"worst: {shape_words(found.shape(other))}."
        )
    for j, chip in enumerate(chips):
        row = int(found.own[j])
        away = [
            f"{regret_words(found.regret[row, k])} on {other}"
            if np.isfinite(found.price[row, k])
            else f"cannot be served on {other}"
            for k, other in enumerate(chips)
            if k != j
        ]
        sentences.append(f"The shape that is best for {chip} alone: {listed(away)}.")
    return sentences


def deployment_words(found: Basket, row: int, chip: int) -> str:
    if not np.isfinite(found.price[row, chip]):
        return "-"
    values = found.served[chip].values
    degrees = [
        f"{short}{values[name][row]:.0f}"
        for name, short in DEGREES.items()
        if name in values and values[name][row] > 1.0
    ]
    dtype = DTYPES[int(values["weight_dtype"][row])]
    return f"{' '.join(degrees) or 'tp1'} {dtype}, {values['concurrency'][row]:,.0f} in flight"


def facts(found: Basket) -> str:
    """What was looked at, in one sentence."""
    study = found.study
    load, *others = study.workloads
    tokens = f"{load.prompt_tokens:,} prompt and {load.output_tokens:,} output tokens"
    if others:
        tokens = mix_words([one.row() for one in study.workloads])
    limits = "; ".join(limit.text for limit in study.constraints)
    rests = f" Prices: {'; '.join(found.price_rests_on)}." if found.price_rests_on else ""
    return (
        f"{len(found.worst):,} shapes on {len(found.chips)} chips, {found.shared:,} of them served "
        f"on all within the limits ({limits}); {tokens}; prices: {study.price_basis}; quality law: "
        f"{study.quality_law}; kernel laws: {_known_as(found)}.{rests}"
    )


def _known_as(found: Basket) -> str:
    """How the times of the shape for all are known on each chip."""
    kinds = [KINDS[metrics.provenance[found.least_worst]] for metrics in found.metrics]
    return ", ".join(f"{chip} {kind}" for chip, kind in zip(found.chips, kinds, strict=True))


def document(found: Basket) -> dict[str, Any]:
    """What `dse compare SPACE --by chip --json` prints."""
    return {
        "space": found.study.name,
        "title": found.study.title or found.study.name,
        "objective": found.objective,
        "price_basis": found.study.price_basis,
        **({"prices": list(found.price_parts)} if found.price_parts else {}),
        "quality_law": found.study.quality_law,
        "chips": list(found.chips),
        "shapes": len(found.worst),
        "shared": found.shared,
        "answer": lead(found),
        "facts": facts(found),
        "meaning": MEANING,
        "least_worst": _row(found, found.least_worst),
        "least_mean": _row(found, found.least_mean),
        "own": {chip: _row(found, int(i)) for chip, i in zip(found.chips, found.own, strict=True)},
        "front": [_row(found, int(i)) for i in found.front],
        "levels": [
            {
                "loss": level.loss,
                "worst_regret": level.worst,
                "regret": dict(zip(found.chips, map(float, level.regret), strict=True)),
                "shape": found.shape(level.shape),
            }
            for level in found.levels
        ],
    }


def _row(found: Basket, i: int) -> dict[str, Any]:
    return {
        "shape": found.shape(i),
        "predicted_loss": number(found.loss[i]),
        "dense_equivalent_parameters": number(found.equivalent[i]),
        "worst_regret": number(found.worst[i]),
        "mean_regret": number(found.mean[i]),
        "chips": {
            chip: {
                "price": number(found.price[i, j]),
                "regret": number(found.regret[i, j]),
                "deployment": deployment_words(found, i, j),
            }
            for j, chip in enumerate(found.chips)
        },
    }
