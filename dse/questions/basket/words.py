"""A basket in sentences, tables and JSON, for the console, Markdown and the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.numbers import significant
from dse.answer.text_table import Table
from dse.economics.priced import parts_table
from dse.problem.words import SHOWN, mix_words, show
from dse.questions.basket.answer import Basket
from dse.questions.rediscovery.table import DEGREES
from dse.questions.rediscovery.tables import markdown_table
from dse.questions.rediscovery.words import NAMES, billions, value_words
from dse.schema.axes import AXES
from dse.schema.calibration import KINDS
from dse.schema.dtypes import DTYPES

MEANING = (
    "Regret: what a shape costs on a chip over what the chip's own cheapest shape costs there, "
    "both on their cheapest deployments within the limits, less 1. A price level of a chip cancels."
)
MOST = 12  # rows of the front that a table shows


def shape_words(values: Mapping[str, float], axes: Collection[str] | None = None) -> str:
    """`hidden size 5,120, layers 40, ...` of `axes`, else of all that say something."""
    said = [
        f"{NAMES.get(axis, axis)} {value_words(axis, value)}"
        for axis, value in values.items()
        if value and AXES[axis].kind == "size" and axis not in ("vocab_size", "head_dim")
        if axes is None or axis in axes
    ]
    return ", ".join(said)


def _varying(found: Basket, rows: Sequence[int]) -> set[str]:
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
        f"One shape for {_and(chips)} costs at most {found.worst[best]:.1%} more than each chip's "
        f"own best ({each}; mean {found.mean[best]:+.1%}): {shape_words(found.shape(best))}."
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
            f"{regret_words(found.regret[row, k])} on {other}" if np.isfinite(found.price[row, k])
            else f"cannot be served on {other}"
            for k, other in enumerate(chips) if k != j
        ]  # fmt: skip
        sentences.append(f"The shape that is best for {chip} alone: {_and(away)}.")
    return sentences


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def own_table(found: Basket) -> Table:
    """Each chip's own best and the shape for all, on every chip."""
    columns = [(f"best for {chip}", int(row)) for chip, row in zip(found.chips, found.own,
                                                                  strict=True)]  # fmt: skip
    columns.append(("for all", found.least_worst))
    rows: list[tuple[str, ...]] = []
    for axis in found.shape(0):
        cells = [found.shape(row)[axis] for _, row in columns]
        if AXES[axis].kind == "size" and len(set(cells)) > 1:
            rows.append((NAMES.get(axis, axis), *(value_words(axis, cell) for cell in cells)))
    for j, chip in enumerate(found.chips):
        metrics = found.metrics[j]
        rows.append(
            (f"on {chip}: regret", *(regret_words(found.regret[row, j]) for _, row in columns))
        )
        rows.append(
            (SHOWN.get(found.objective, found.objective),
             *(show(found.objective, _finite(found.price[row, j])) for _, row in columns))
        )  # fmt: skip
        rows.append(("deployment", *(_deployment(found, row, j) for _, row in columns)))
        rows.append(
            ("per token", *(show("tpot_s", _finite(metrics.values["tpot_s"][row]))
                            for _, row in columns))
        )  # fmt: skip
    rows.append(("dense-equivalent", *(billions(_known(found, row)) for _, row in columns)))
    titles = ("", *(name for name, _ in columns))
    return Table("Each chip's own best shape, and one for all", titles, rows)


def _known(found: Basket, row: int) -> float | None:
    return _finite(found.equivalent[row])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _deployment(found: Basket, row: int, chip: int) -> str:
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


def front_table(found: Basket) -> Table:
    """The shapes that are not dominated in (loss, worst regret), the first and others evenly."""
    count = len(found.front)
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(int))
    shown_rows = [int(found.front[k]) for k in kept]
    differ = _varying(found, shown_rows)
    rows = [
        (
            f"{found.loss[i]:.4f}",
            billions(_known(found, i)),
            *(regret_words(found.regret[i, j]) for j in range(len(found.chips))),
            regret_words(found.mean[i]),
            shape_words(found.shape(i), differ),
        )
        for i in shown_rows
    ]
    titles = ("loss", "dense equal", *found.chips, "mean", "shape, where they differ")
    shown = "" if len(kept) == count else f", {len(kept)} of {count:,}"
    caption = f"Better quality for more regret: shapes that no other beats in both{shown}"
    return Table(caption, titles, rows, tuple(range(len(titles) - 1)))


def level_table(found: Basket) -> Table:
    """Where the shape for all changes."""
    changed = [
        level
        for level, before in zip(found.levels, (None, *found.levels), strict=False)
        if before is None or level.shape != before.shape
    ]
    differ = _varying(found, [level.shape for level in changed])
    rows = [
        (
            f"{level.loss:.4f}",
            *(regret_words(value) for value in level.regret),
            shape_words(found.shape(level.shape), differ),
        )
        for level in changed
    ]
    titles = ("loss at most", *found.chips, "shape for all, where they differ")
    return Table(
        "The least worst regret where every chip's own best must be as good", titles, rows,
        tuple(range(len(titles) - 1)),
    )  # fmt: skip


def tables(found: Basket) -> list[Table]:
    parts = [parts_table(found.price_parts)] if found.price_parts else []
    return [own_table(found), front_table(found), level_table(found), *parts]


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
    """What `dse basket --json` prints."""
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
        "predicted_loss": _finite(found.loss[i]),
        "dense_equivalent_parameters": _finite(found.equivalent[i]),
        "worst_regret": _finite(found.worst[i]),
        "mean_regret": _finite(found.mean[i]),
        "chips": {
            chip: {
                "price": _finite(found.price[i, j]),
                "regret": _finite(found.regret[i, j]),
                "deployment": _deployment(found, i, j),
            }
            for j, chip in enumerate(found.chips)
        },
    }


def markdown(found: Basket, command: str) -> str:
    """The answer with its tables; the same basket gives the same bytes."""
    parts = [
        f"<!-- {command} -->",
        f"# {found.study.title or found.study.name}",
        "\n".join(f"- {sentence}" for sentence in lead(found)),
        facts(found),
        MEANING,
    ]
    for table in tables(found):
        parts += [f"{table.caption}:", markdown_table(table)]
    return "\n\n".join(parts) + "\n"
