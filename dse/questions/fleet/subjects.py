"""A class of a plan on a chip: its workload, its model in one format, and its quality floor."""

from __future__ import annotations

import numpy as np

from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate
from dse.problem.instances import Subject, subject_of
from dse.problem.mix import served
from dse.schema.backend import find_backend
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import DemandClass, Plan
from dse.schema.workloads import CURRENT_BACKEND


def workload_of(plan: Plan, catalog: Catalog, one: DemandClass, chip: str) -> Workload:
    """Served by the software of the plan, or the chip's own where it leaves that open."""
    backend = plan.backend if plan.backend != CURRENT_BACKEND else catalog.chip(chip).backend
    mean = one.traffic.mean
    return Workload.of(
        mean.prompt_tokens,
        mean.output_tokens,
        "continuous",
        find_backend(catalog.backends, backend),
        prefix_hit_rate=mean.prefix_hit_rate,
        **served(one.details),
    )


def subject_of_class(
    plan: Plan,
    catalog: Catalog,
    one: DemandClass,
    model: str,
    chip: str,
    weights: str | None,
    cache: str | None,
    drafted: int | None,
) -> Subject:
    """One of its models in one format, with so many tokens drafted a step."""
    return subject_of(
        catalog,
        resolve_model(model),
        chip,
        workload_of(plan, catalog, one, chip),
        weight_dtype=weights,
        kv_dtype=cache,
        price_basis=plan.price_basis,
        draft_tokens=drafted,
        redundant_experts=one.redundant_experts,
    )


def drafts_of(one: DemandClass) -> tuple[int | None, ...]:
    """Tokens drafted a step, to choose from; None where none are."""
    return tuple(count or None for count in one.draft_tokens) or (None,)


def below_floor(one: DemandClass, model: str, subject: Subject) -> str | None:
    """Why the quality floor refuses the model; None where it does not. Raises InputError where the
    loss of the model cannot be predicted."""
    if not np.isfinite(one.most_loss):
        return None
    loss = float(
        evaluate(subject.one, subject.workload, subject.machines).values["predicted_loss"][0]
    )
    if not np.isfinite(loss):
        raise InputError(
            f"{one.name}: {model} has no predicted loss: its training tokens are not known",
            field="predicted_loss_at_most",
            accepted="a model with known training tokens, or no floor",
        )
    if loss <= one.most_loss:
        return None
    return f"its predicted loss, {loss:.3f}, is above the floor of {one.most_loss:.3f}"
