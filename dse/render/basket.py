"""basket.html: one shape for several chips, with the tables of `dse basket`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.glossary import GLOSSARY
from dse.answer.palette import PALETTE, SYMBOLS, plain
from dse.files import write_json, write_text
from dse.questions.basket.answer import Basket
from dse.questions.basket.words import (
    MEANING,
    document,
    facts,
    lead,
    markdown,
    regret_words,
    tables,
)
from dse.questions.rediscovery.words import billions
from dse.render.page import answer_page

PAGE, DATA, TEXT = "basket.html", "basket.json", "basket.md"
WORDS = {
    "regret": "what a shape costs on a chip over what the chip's own cheapest shape costs there, "
    "less 1",
    "own best": "the shape that is cheapest on a chip, of all that are good enough",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
    **{
        word: GLOSSARY[word]
        for word in (
            "experts",
            "tokens",
            "tensor parallel",
            "expert parallel",
            "requests in flight",
        )
    },
}


def write_basket(folder: Path, found: Basket, command: str) -> Path:
    """Writes basket.html, basket.md and basket.json into `folder`. Raises StorageError where they
    cannot be written."""
    write_json(folder, DATA, {**document(found), "command": command})
    write_text(folder, TEXT, markdown(found, command))
    write_text(folder, PAGE, basket_page(found, command))
    return folder / PAGE


def basket_page(found: Basket, command: str) -> str:
    """The page as HTML."""
    return answer_page(
        "basket.html",
        WORDS,
        title=found.study.title or found.study.name,
        description=found.study.description,
        command=command,
        answer=lead(found),
        facts=facts(found),
        meaning=MEANING,
        tables=tables(found),
        drawn=True,
        rests=(),
        plots={"own": own_figure(found), "levels": level_figure(found)},
    )


def own_figure(found: Basket) -> dict[str, Any]:
    """Regret on every chip of each chip's own best and of the shape for all, in percent."""
    rows = [*(int(row) for row in found.own), found.least_worst]
    names = [*(f"best for {chip}" for chip in found.chips), "one for all"]
    traces = []
    for k, (name, row) in enumerate(zip(names, rows, strict=True)):
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
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "barmode": "group",
            "xaxis": {"title": {"text": "served on"}},
            "yaxis": {"title": {"text": "regret (%)"}, "rangemode": "tozero"},
        },
    }


def level_figure(found: Basket) -> dict[str, Any]:
    """The least regret of one shape for all, against how good it must be."""
    losses = [level.loss for level in found.levels]
    traces = []
    for j, chip in enumerate(("worst of all", *found.chips)):
        values = [level.worst if j == 0 else float(level.regret[j - 1]) for level in found.levels]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(chip),
                "x": losses,
                "y": [100.0 * value for value in values],
                "line": {"color": "ink" if j == 0 else PALETTE[j - 1], "width": 3 if j == 0 else 1},
                "marker": {
                    "color": "ink" if j == 0 else PALETTE[j - 1],
                    "size": 8 if j == 0 else 6,
                    "symbol": SYMBOLS[j % len(SYMBOLS)],
                },
                "hoverinfo": "text",
                "hovertext": [
                    plain(
                        f"loss at most {level.loss:.4f} "
                        f"({billions(float(found.equivalent[level.shape]))} dense-equivalent): "
                        f"{chip} {regret_words(value)}"
                    )
                    for level, value in zip(found.levels, values, strict=True)
                ],
            }
        )
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "xaxis": {
                "title": {"text": "predicted loss at most (better to the right)"},
                "autorange": "reversed",
                "tickformat": ".3f",
            },
            "yaxis": {"title": {"text": "least regret of one shape (%)"}, "rangemode": "tozero"},
        },
    }
