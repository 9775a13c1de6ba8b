"""accuracy.html, predictions against measurements on one page, and the same as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import tenths
from dse.answer.palette import PALETTE, SYMBOLS
from dse.files import write_text
from dse.render.accuracy_markdown import accuracy_markdown
from dse.render.accuracy_svg import pictures
from dse.render.accuracy_words import (
    HEADER,
    HELD_HEADER,
    NAMES,
    held_out_rows,
    score_row,
    speed_words,
    unit,
)
from dse.render.page import answer_page

PAGE = "accuracy.html"
DRAWN_ROWS = 8_000  # rows that a page below 6 MB carries
WORDS = {
    "group": "all rows of one model on one chip",
    "error": "|predicted / measured - 1|, as a percentage of the measured value",
    "median error": "half of the rows are off by less",
    "90th percentile": "nine of ten rows are off by less",
    "bias": "median of predicted / measured - 1: above 0, predicted too large",
    "rank correlation": "Spearman's: 1 where predictions put the rows in the measured order",
    "80% interval": GLOSSARY["80% interval"],
    "half-width": "half of (high end - low end), as a share of the prediction: comparable with an "
    "error",
    "static": "serving one fixed batch from its first to its last token",
    "continuous": "serving a closed loop: so many requests are always in flight",
    "offline": "serving requests that are all queued at the start",
    "disaggregated": "one pool of chips reads prompts, another writes answers",
    "pretrain": "training from scratch",
    "sft": "training all weights on examples",
    "lora": "training low-rank adapters beside frozen weights",
    "held out": "predicted by a model whose constants were fitted without that row's group, chip "
    "or model",
    "backend": "the serving software",
    **{
        word: GLOSSARY[word]
        for word in (
            "time to first token", "time per output token", "prefill", "decode",
            "requests in flight", "tokens", "fitted", "tensor parallel", "pipeline parallel",
            "attention data-parallel", "expert parallel", "KV cache",
        )
    },
}  # fmt: skip
NUMBERS = ("value", "predicted", "predicted_low", "predicted_high")
LOADS = ("concurrency", "prompt_tokens", "output_tokens", "n_chips")
TEXTS = (
    "metric", "serving", "chip", "backend", "model", "group", "engine", "weight_dtype", "kv_dtype",
    "split", "source",
)  # fmt: skip
DEGREES = (
    "tp", "pp", "cp", "dp", "ep",
    *(
        f"{pool}_{name}"
        for pool in ("prefill", "decode")
        for name in ("workers", "tp", "pp", "dp", "ep")
    ),
)  # fmt: skip


def write_accuracy(
    folder: Path, document: dict[str, Any], answer: pd.DataFrame, lead: Sequence[str]
) -> Path:
    """Writes accuracy.html into `folder`. Raises StorageError where it cannot be written."""
    write_text(folder, PAGE, accuracy_page(document, answer, lead))
    return folder / PAGE


def write_tables(
    path: Path,
    document: dict[str, Any],
    answer: pd.DataFrame,
    worst: Sequence[dict[str, Any]],
    lead: Sequence[str],
    command: str,
    own: bool,
) -> None:
    """Writes the Markdown page `path` and its pictures beside it. Raises StorageError where they
    cannot be written."""
    drawn = {
        f"{path.stem}-{name}.svg": picture
        for name, picture in pictures(document["scores"], answer[answer["status"] == "ok"]).items()
    }
    for name, picture in drawn.items():
        write_text(path.parent, name, picture)
    write_text(
        path.parent, path.name, accuracy_markdown(document, worst, lead, command, drawn, own)
    )


def accuracy_page(document: dict[str, Any], answer: pd.DataFrame, lead: Sequence[str]) -> str:
    """The page as HTML. `document` is that of `dse validate --json`, `answer` the predicted rows
    and `lead` the sentences that answer the question first."""
    scores = [item for item in document["scores"] if item["by"] == "all"]
    scored = answer[answer["status"] == "ok"]
    data = _data(scored)
    return answer_page(
        "accuracy.html", WORDS,
        document=document,
        lead=lead,
        header=HEADER,
        scores=[(NAMES[item["metric"]], *score_row(item)[1:]) for item in scores],
        more=speed_words(document),
        held_header=HELD_HEADER,
        held_out=held_out_rows(document)
        if "cross_validation" in document
        else None,
        drawn=len(data["value"]),
        percent=tenths,
        sources=_sources(answer),
        data=data,
        plots={},
        settings=
            {
                "palette": PALETTE, "symbols": SYMBOLS, "names": NAMES,
                "units": {metric: unit(metric) for metric in NAMES},
                "scores": [
                    {
                        key: item[key]
                        for key in ("metric", "serving", "rows", "interval_coverage")
                    } | {"error": item["group_median_error"]}
                    for item in sorted(scores, key=lambda item: -item["rows"])
                ],
            },
        script="accuracy.js",
    )  # fmt: skip


def _data(scored: pd.DataFrame) -> dict[str, Any]:
    """Columns of the rows that the page draws, evenly thinned to DRAWN_ROWS: numbers as they are,
    texts as codes into `levels`, the most frequent first."""
    keep = np.unique(np.linspace(0, len(scored) - 1, min(len(scored), DRAWN_ROWS)).astype(int))
    rows = scored.iloc[keep].copy()
    rows["split"] = _splits(rows)
    data: dict[str, Any] = {}
    for name in NUMBERS:
        data[name] = [float(f"{value:.4g}") for value in rows[name]]
    for name in LOADS:
        column = rows[name] if name in rows else pd.Series("", index=rows.index)
        numbers = pd.to_numeric(column, errors="coerce")
        data[name] = [None if np.isnan(value) else float(f"{value:.6g}") for value in numbers]
    texts: dict[str, Any] = {}
    for name in TEXTS:
        column = rows[name].fillna("") if name in rows else pd.Series("", index=rows.index)
        counted = Counter(column.astype(str)).most_common()
        codes = {level: code for code, (level, _) in enumerate(counted)}
        texts[name] = {"codes": [codes[str(cell)] for cell in column], "levels": list(codes)}
    return data | {"texts": texts}


def _splits(rows: pd.DataFrame) -> list[str]:
    """How each row is divided over its chips, degrees of 1 left out: `tp 8, ep 8`."""
    named = [name for name in DEGREES if name in rows]
    cells = rows[named].fillna("").astype(str).itertuples(index=False, name=None)
    return [
        ", ".join(
            f"{name.replace('_', ' ')} {degree}"
            for name, degree in zip(named, row, strict=True)
            if degree not in ("", "1")
        )
        for row in cells
    ]


def _sources(answer: pd.DataFrame) -> list[tuple[str, str, str]]:
    """(rows, source without its commit and file, licence) of the rows, most rows first."""
    if "source" not in answer:
        return []
    licences = answer["licence"] if "licence" in answer else pd.Series("", index=answer.index)
    owners = answer["source"].astype(str).str.split("@").str[0].str.split("/").str[:2].str.join("/")
    counted = Counter(zip(owners, licences.fillna("").astype(str), strict=True))
    return [(f"{rows:,}", *key) for key, rows in counted.most_common(40)]
