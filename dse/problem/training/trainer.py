"""From the terms of a training run to what its plans are judged on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.machines import compile_machines
from dse.physics.training.at_scale import Conditions
from dse.physics.training.plan import RECOMPUTES
from dse.physics.training.plans import Setting, default_batch_tokens
from dse.problem.training.search import Trainer
from dse.schema.model import Model
from dse.schema.training_run import TrainingTerms
from dse.schema.training_stack import training_stack
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch

DEFAULT_BATCH = 2048 * 8192  # Llama 3's largest (arXiv 2407.21783, table 4)


def trainer_of(
    catalog: Catalog, terms: TrainingTerms, price_basis: str | None, *, few: bool = False
) -> Trainer:
    """`few` plans for each of many shapes. Raises InputError for an unknown chip, stack or price
    basis, and for a chip that lacks a figure which so many of it need."""
    try:
        catalog.require(terms.chip, terms.chips / terms.sites)
    except InputError as error:
        if catalog.refusal(terms.chip) is not None:
            raise
        apart = f"{error.accepted}, or sites of fewer chips with a bandwidth between them"
        raise InputError(error.message, file=error.file, accepted=apart) from None
    machines = compile_machines(catalog, [terms.chip], price_basis)
    fixed = dict(terms.degrees)
    if terms.recompute is not None:
        fixed["recompute"] = RECOMPUTES.index(terms.recompute)
    if terms.zero is not None:
        fixed["zero_stage"] = terms.zero
    batch = terms.global_batch_tokens
    setting = Setting(
        sequence_length=terms.sequence_length,
        # "16M" is a round number of tokens: the nearest batch of whole sequences is meant.
        global_batch_tokens=default_batch_tokens(
            terms.chips, terms.sequence_length, batch or DEFAULT_BATCH
        )
        if batch is None or batch % terms.sequence_length
        else batch,
        precision=terms.precision,
        task=terms.task,
        optimizer=terms.optimizer,
        lora_rank=float(terms.lora_rank),
        offload=terms.offload,
        schedule=terms.schedule,
        fixed=fixed,
        few=few,
    )
    return Trainer(machines, terms.chips, _stack(terms), setting, _conditions(catalog, terms))


def _stack(terms: TrainingTerms):
    try:
        return training_stack(terms.stack)
    except InputError as error:
        raise InputError(error.message, field="stack", accepted=error.accepted) from None


def _conditions(catalog: Catalog, terms: TrainingTerms) -> Conditions:
    figures = catalog.reliability
    storage = terms.checkpoint_bytes_per_s
    return Conditions(
        chip_s_between=_or(terms.chip_s_between, figures.between(terms.chip).value),
        restart_s=_or(terms.restart_s, figures.figure("restart").value),
        storage_bytes_per_s_per_chip=figures.figure("checkpoint_bandwidth_per_chip").value
        if storage is None
        else storage / terms.chips,
        checkpoint_interval_s=terms.checkpoint_interval_s,
        straggler=_or(terms.straggler, 0.0),
        input_tokens_per_s=_or(terms.input_tokens_per_s, math.inf),
        sites=float(terms.sites),
        site_split=terms.site_split,
        site_bytes_per_s=_or(terms.site_bytes_per_s, math.inf),
        site_latency_s=terms.site_latency_s,
        local_steps=float(terms.local_steps),
    )


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def shape_of(model: Model) -> CandidateBatch:
    """The model as a batch of one, on chip 0, its deployment not said."""
    ones: Mapping[str, np.ndarray] = {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    return batch_of([model], np.zeros(1, dtype=np.intp), ["bf16"], ["bf16"], ones)
