"""`dse.train`: a training run on given chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.questions.train.answer import train as train_on
from dse.questions.train.observed import observed, written
from dse.questions.train.present import train_answer
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.training_run import TRAINING, training_terms

# Arguments whose names differ from the fields of a `training:` section.
FIELDS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "vpp": "virtual_stages",
}
# The other way round.
OPTION_OF = {field: name for name, field in FIELDS.items()}


def train(
    model: str | Path | Mapping[str, Any] | Model,
    chip: str,
    chips: int,
    *,
    tokens: str | None = None,
    price_basis: str = "rental_3yr",
    only_memory: bool = False,
    observed_mfu: str | None = None,
    catalog: Catalog | None = None,
    **options: Any,
) -> Answer:
    """Evaluates every way to divide a run over the chips that a framework would accept, and gives
    the fastest that fits: memory, step time, days, dollars and energy.

        dse.train("llama-3.1-405b", "h100_sxm", 16384, tokens="15.6T").document["days"]

    `model` is a catalog id, the path of a config.json, or what such a file says. `tokens` are those
    that it was trained on where none are given. `options` are the other options of `dse train`,
    with _ for - (tp, precision, global_batch_tokens, ...). `observed_mfu` (11%) asks which causes
    explain it and what mending each would save. Raises InputError for what cannot be
    read or divided.
    """
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    catalog = with_basis(catalog, price_basis)
    found = load_model(model)
    amount = 1.0 if only_memory else found.training_tokens
    if tokens is not None:
        amount = units.parse(tokens, "tokens", field="--tokens")
        units.check_training_tokens(amount, tokens, field="--tokens")
    if amount is None:
        said = f"missing, and {found.name} has none of its own"
        raise InputError(said, field="--tokens", accepted=units.TRAINING_TOKENS)
    given = {"chip": chip, "chips": chips, **options}
    if unknown := [n for n in given if FIELDS.get(n, n) not in TRAINING.names]:
        raise InputError(f"unknown option {unknown[0]!r}", accepted="the options of dse train")
    try:
        terms = training_terms(**{FIELDS.get(name, name): v for name, v in given.items()})
        answer = train_on(catalog, found, terms, amount, price_basis)
    except InputError as error:
        if error.field is None or error.field not in TRAINING.names:
            raise
        flag = OPTION_OF.get(error.field, error.field).replace("_", "-")
        raise InputError(
            error.message, file=error.file, field=f"--{flag}", accepted=error.accepted
        ) from None
    if tokens is None and not only_memory:
        said = f"{amount:.4g} tokens, those that {found.name} was trained on: none were given"
        answer = replace(answer, assumed=(said, *answer.assumed))
    why = None if observed_mfu is None else observed(answer, catalog, written(observed_mfu))
    made = train_answer(answer, only_memory=only_memory, why=why)
    return replace(made, names=catalog.names)
