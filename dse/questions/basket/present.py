"""The Answer of one shape for several chips: its sentences, document, pictures and tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Cell, Column, Figure, Table, side_by_side, table_of
from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import NONE, number, show, significant
from dse.answer.plots import PALETTE, line, marks, plain
from dse.answer.sentences import listed
from dse.economics.priced import price_parts, rests_on
from dse.problem.words import SHOWN
from dse.questions.basket.answer import Basket
from dse.questions.rediscovery.table import DEGREES
from dse.questions.rediscovery.words import NAMES, value_words
from dse.schema.axes import AXES
from dse.schema.calibration import KINDS
from dse.schema.dtypes import DTYPES
from dse.schema.workloads import mix_words
from dse.space.candidates import Floats

SEEN = 5e-4  # regret that is not printed as 0.0%
MOST = 12  # rows of the front that a table shows
DENSE = "dense_equivalent_parameters"
WORDS = {
    "own best": "the shape that is cheapest on a chip, of all that are good enough",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
    "experts": GLOSSARY["experts"],
}


def basket_answer(found: Basket) -> Answer:
    """The shape that costs least over each chip's own best, and what it gives away."""
    said, made = lead(found), document(found)
    drawn = [_own_figure(found), _level_figure(found)]
    if not any(found.regret[row].max() >= SEEN for _, row in _columns_of(found)):
        drawn.reverse()  # where each chip's own best shape is as good everywhere, it shows nothing
    return Answer(
        question="compare",
        title=made["title"],
        asked=f"{made['title']}: {facts(found)}",
        headline=said[0],
        sentences=[*said[1:], MEANING],
        blocks=(*drawn, *tables(found)),
        document=made,
        data=(_data(found),),
        words=WORDS,
    )


def tables(found: Basket) -> list[Table]:
    made = [_own_table(found), _front_table(found), _level_table(found)]
    if found.price_parts:
        made.append(replace(price_parts(found.price_parts), notes=rests_on(found.price_parts)))
    return made


def _columns_of(found: Basket) -> list[tuple[str, int]]:
    """(title, row) of each chip's own best and of the shape for all."""
    own = [(f"best for {chip}", int(row)) for chip, row in zip(found.chips, found.own, strict=True)]
    return [*own, ("for all", found.least_worst)]


def _own_table(found: Basket) -> Table:
    """Each chip's own best and the shape for all, on every chip."""
    columns = _columns_of(found)
    picked = [row for _, row in columns]
    made: list[tuple[str, Sequence[Cell]]] = []
    for axis in found.shape(0):
        cells = [found.shape(row)[axis] for row in picked]
        if AXES[axis].kind == "size" and len(set(cells)) > 1:
            made.append((NAMES.get(axis, axis), [value_words(axis, cell) for cell in cells]))
    price = SHOWN.get(found.objective, found.objective)
    for j, chip in enumerate(found.chips):
        per_token = found.metrics[j].values["tpot_s"]
        made += [
            (f"on {chip}: regret", [regret_words(found.regret[row, j]) for row in picked]),
            (price, [_shown(found.objective, found.price[row, j]) for row in picked]),
            ("deployment", [deployment_words(found, row, j) for row in picked]),
            ("per token", [show("tpot_s", per_token[row]) for row in picked]),
        ]
    made.append(("dense-equivalent", [show(DENSE, found.equivalent[row]) for row in picked]))
    titles = {"name": "", **{title: title for title, _ in columns}}
    return side_by_side("own", "Each chip's own best shape, and one for all", titles, made)


def _shown(metric: str, value: float) -> str:
    return show(metric, value) if np.isfinite(value) else NONE


def _regret_columns(found: Basket, of: Callable[[Any], Floats]) -> list[Column]:
    """The regret on each chip; `of` gives those of a row on all chips."""

    def on(j: int) -> Callable[[Any], Cell]:
        return lambda row: regret_words(float(of(row)[j]))

    return [Column(chip, chip, right=True, of=on(j)) for j, chip in enumerate(found.chips)]


def _front_table(found: Basket) -> Table:
    """The shapes that are not dominated in (loss, worst regret), the first and others evenly."""
    count = len(found.front)
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(int))
    shown = [int(found.front[k]) for k in kept]
    differ = varying(found, shown)
    of = "" if len(kept) == count else f", {len(kept)} of {count:,}"
    return Table.of(
        "front",
        f"Better quality for more regret: shapes that no other beats in both{of}",
        shown,
        (
            Column("predicted_loss", "loss", "predicted_loss", of=lambda i: float(found.loss[i])),
            Column(DENSE, "dense equal", DENSE, of=lambda i: float(found.equivalent[i])),
            *_regret_columns(found, lambda i: found.regret[i]),
            Column("mean", "mean", right=True, of=lambda i: regret_words(float(found.mean[i]))),
            Column(
                "shape",
                "shape, where they differ",
                of=lambda i: shape_words(found.shape(i), differ),
            ),
        ),
    )


def _level_table(found: Basket) -> Table:
    """Where the shape for all changes."""
    changed = [
        level
        for level, before in zip(found.levels, (None, *found.levels), strict=False)
        if before is None or level.shape != before.shape
    ]
    differ = varying(found, [level.shape for level in changed])
    return Table.of(
        "levels",
        "The least worst regret where every chip's own best must be as good",
        changed,
        (
            Column(
                "predicted_loss",
                "loss at most",
                "predicted_loss",
                of=lambda one: one.loss,
                first=True,
            ),
            *(replace(one, first=True) for one in _regret_columns(found, lambda one: one.regret)),
            Column(
                "shape",
                "shape for all, where they differ",
                of=lambda one: shape_words(found.shape(one.shape), differ),
            ),
        ),
    )


def _data(found: Basket) -> Table:
    """Every shape of the front: its axes, loss, and regret on every chip."""
    return table_of(
        "data",
        [
            {**found.shape(i), "predicted_loss": float(found.loss[i])}
            | {chip: float(value) for chip, value in zip(found.chips, found.regret[i], strict=True)}
            | {"worst": float(found.worst[i]), "mean": float(found.mean[i])}
            for i in map(int, found.front)
        ],
    )


def _own_figure(found: Basket) -> Figure:
    """Regret on every chip of each chip's own best and of the shape for all, in percent."""
    traces = []
    for k, (name, row) in enumerate(_columns_of(found)):
        values = [float(value) for value in found.regret[row]]
        traces.append(
            {
                "type": "bar",
                "name": plain(name),
                "x": [plain(chip) for chip in found.chips],
                "y": [100.0 * value if np.isfinite(value) else None for value in values],
                "text": [regret_words(value) for value in values],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": PALETTE[k % len(PALETTE)]},
                "hoverinfo": "text",
                "hovertext": [
                    plain(f"{name} on {chip}: {regret_words(value)}")
                    for chip, value in zip(found.chips, values, strict=True)
                ],
            }
        )
    layout = {
        "height": 380,
        "barmode": "group",
        "xaxis": {"title": {"text": "served on"}},
        "yaxis": {"title": {"text": "regret (%)"}, "rangemode": "tozero"},
    }
    return Figure(
        "own-best",
        "Shapes made for one chip, served on another",
        {"data": traces, "layout": layout},
        "Regret on every chip of each chip's own best shape, and of one shape for all.",
    )


def _level_figure(found: Basket) -> Figure:
    """The least regret of one shape for all, against how good it must be."""
    losses = [level.loss for level in found.levels]
    traces = []
    for j, chip in enumerate(("worst of all", *found.chips)):
        values = [level.worst if j == 0 else float(level.regret[j - 1]) for level in found.levels]
        y = [100.0 * value for value in values]
        hover = [
            f"loss at most {show('predicted_loss', level.loss)} "
            f"({show(DENSE, float(found.equivalent[level.shape]))} dense-equivalent): "
            f"{chip} {regret_words(value)}"
            for level, value in zip(found.levels, values, strict=True)
        ]
        trace: dict[str, Any] = line(j - 1, chip, losses, y) | marks(j, chip, losses, y, hover)
        trace["mode"] = "lines+markers"
        trace["marker"]["size"] = 8 if j == 0 else 6
        of_all: Mapping[str, Any] = (
            {"color": "ink"} if j == 0 else {"color": PALETTE[(j - 1) % len(PALETTE)]}
        )
        trace["marker"] |= of_all
        trace["line"] |= {**of_all, "width": 3 if j == 0 else 1}
        traces.append(trace)
    layout = {
        "height": 380,
        "xaxis": {
            "title": {"text": "predicted loss at most (better to the right)"},
            "autorange": "reversed",
            "tickformat": ".3f",
        },
        "yaxis": {"title": {"text": "least regret of one shape (%)"}, "rangemode": "tozero"},
    }
    return Figure(
        "levels-plot",
        "The same where better quality is asked",
        {"data": traces, "layout": layout},
        "Every chip's own best must be as good as is asked. Few shapes are that good, so the line "
        "jumps with the grid of the space.",
    )


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
