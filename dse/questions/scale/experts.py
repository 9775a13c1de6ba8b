"""Where an expert layer outgrows its scale-up domain.

One instance of so many chips, each an attention rank of its own with the same requests, the experts
spread over all of them. With more chips a chip reads fewer experts a step, and sends the same
tokens farther: dispatch and combine, the two all-to-alls of a sparse layer, stay inside the domain
or leave it. The slowdown compares with a domain that holds the whole group, all else equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.blocks.operators import Role
from dse.errors import InputError
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.instances import MEMORY, Subject, batch_at
from dse.questions.scale.sizes import rows_of
from dse.questions.scale.uniform import one_domain
from dse.space.candidates import Floats
from dse.space.deployments import Deployments, sizes_up_to, with_redundant_experts

ALL_TO_ALL = (Role.DISPATCH, Role.COMBINE)
EXPERTS = Role.EXPERTS


@dataclass(frozen=True, slots=True)
class ExpertGroup:
    """One expert parallelism. Seconds of one decode step: in all, of all dispatches and combines,
    of the routed experts; what the all-to-alls and the step would take if the domain held the whole
    group (equal to the former inside). `all_to_all_share` is of the step. `fits`: the weights and
    these requests fit the memory."""

    expert_parallel: int
    redundant_experts: int
    domains: int
    fits: bool
    decode_step_s: float
    all_to_all_s: float
    experts_s: float
    all_to_all_share: float
    all_to_all_one_domain_s: float
    decode_step_one_domain_s: float
    output_tokens_per_s_per_chip: float

    @property
    def slowdown(self) -> float | None:
        """All-to-all time over that in one domain; None without any all-to-all."""
        inside = self.all_to_all_one_domain_s
        return self.all_to_all_s / inside if inside else None


def expert_domain(
    subject: Subject, *, chips_up_to: int = 512, requests_per_chip: int = 32
) -> list[ExpertGroup]:
    """One row for each expert parallelism up to `chips_up_to`, at `requests_per_chip` requests that
    decode on every chip, at context prompt + output / 2, with the copies of busy experts that make
    the step shorter; a degree is left out where no number of copies makes the experts divide.
    Raises InputError for a model without experts."""
    if not subject.experts:
        raise InputError(
            f"{subject.model.name} has no experts", field="model", accepted="a sparse model"
        )
    sizes = sizes_up_to(subject.domain, chips_up_to)
    linked = [size for size in sizes if subject.catalog.refusal(subject.chip, size) is None]
    groups = Deployments.of(expert_parallel=linked)
    groups = groups.with_columns(data_parallel=groups["expert_parallel"])
    groups = with_redundant_experts(groups, subject.experts)
    static = replace(subject, workload=replace(subject.workload, serving="static"))
    batch = batch_at(static, groups, groups.chips * requests_per_chip)
    as_is, one = (
        evaluate(batch, static.workload, machines, keep=True)
        for machines in (subject.machines, one_domain(subject.machines))
    )
    exchanged, alone = (operators_s(metrics, ALL_TO_ALL) for metrics in (as_is, one))
    computed, fits = operators_s(as_is, (EXPERTS,)), as_is.violations[MEMORY] <= 0.0
    steps, undivided = (metrics.values["decode_step_s"] for metrics in (as_is, one))
    rows = rows_of(
        ExpertGroup,
        expert_parallel=groups["expert_parallel"],
        redundant_experts=groups["redundant_experts"],
        domains=-(-groups["expert_parallel"] // subject.domain),
        fits=fits,
        decode_step_s=steps,
        all_to_all_s=exchanged,
        experts_s=computed,
        all_to_all_share=exchanged / steps,
        all_to_all_one_domain_s=alone,
        decode_step_one_domain_s=undivided,
        output_tokens_per_s_per_chip=requests_per_chip / steps,
    )
    return [
        min(
            (row for row in rows if row.expert_parallel == chips),
            key=lambda row: (not row.fits, row.decode_step_s),
        )
        for chips in dict.fromkeys(row.expert_parallel for row in rows)
    ]


def operators_s(metrics: Metrics, roles: Sequence[Role]) -> Floats:
    """(n,) seconds of the operators of these roles in one decode step; evaluated with `keep`."""
    ledger = metrics.performance.detail.decode_ledger
    total = np.zeros(len(metrics.provenance))
    for entry in ledger.entries or ():
        if entry.role in roles:
            total = total + entry.seconds
    return total


@dataclass(frozen=True, slots=True)
class ExpertAnswer:
    """The best group of chips for the expert layer, and what leaving the domain costs.

    `best` has the most tokens per second and chip, of those that fit; `inside` is the largest group
    in one domain, `across` the first in several, `widest` the largest looked at; None where there
    is none."""

    best: ExpertGroup | None
    inside: ExpertGroup | None
    across: ExpertGroup | None
    widest: ExpertGroup | None


def expert_answer(rows: Sequence[ExpertGroup]) -> ExpertAnswer:
    """What the rows of `expert_domain` say."""
    kept = [row for row in rows if row.fits]
    across = [row for row in kept if row.domains > 1]
    return ExpertAnswer(
        best=max(kept, key=lambda row: row.output_tokens_per_s_per_chip, default=None),
        inside=next((row for row in reversed(kept) if row.domains == 1), None),
        across=across[0] if across else None,
        widest=across[-1] if across else None,
    )
