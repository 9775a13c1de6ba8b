"""`dse.check`: what software and hardware make of a model on a chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.questions.check.answer import Load, subject_of
from dse.questions.check.answer import check as check_subject
from dse.questions.check.nearest import nearest
from dse.questions.check.present import check_answer
from dse.schema.dtypes import known_dtypes
from dse.schema.model import Model, trained_on
from dse.schema.model_catalog import load_model


def check(
    model: str | Path | Mapping[str, Any] | Model,
    chip: str | None,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    concurrency: int = 32,
    training_tokens: str | None = None,
    catalog: Catalog | None = None,
) -> Answer:
    """What software refuses, alignment and waste, legal degrees and the nearest better shapes.

        dse.check("qwen2.5-7b", "h100_sxm", tp=8).headline

    `model` is a catalog id, the path of a config.json, or what such a file says. The other
    arguments are the options of `dse check`. Raises InputError for what cannot be read.
    """
    if not chip:
        raise InputError("--chip is missing", accepted="an id that `dse catalog chips list` prints")
    dtypes: dict[str, Any] = {"weight_dtype": weight_dtype, "kv_dtype": kv_dtype}
    known_dtypes(dtypes)
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    found = load_model(model)
    if ep > 1 and not found.experts:
        raise InputError(f"{found.name} has no experts", field="--ep", accepted="no such flag")
    if training_tokens:
        found = trained_on(found, training_tokens)
    degrees = {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "expert_parallel": ep,
    }
    load = Load(prompt_tokens, output_tokens, concurrency)
    subject = subject_of(catalog, found, chip, degrees, load, **dtypes)
    document = check_subject(subject)
    document["nearest"] = nearest(subject, catalog.backends[subject.chip.backend])
    return replace(check_answer(document, load), names=catalog.names)
