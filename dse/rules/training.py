"""What a training framework refuses of a plan, beside how the shape divides. Divisions as
Megatron-Core asks for them; context parallelism splits each sequence in two chunks a rank."""

from __future__ import annotations

import numpy as np

from dse.physics.training.plan import SCHEDULES
from dse.rules.case import Case, Training
from dse.rules.kinds import Found, Part, rule, said, whole
from dse.schema.blocks import WEIGHT_PARTS

LEAST_GOODPUT = 0.01
_CORE = "megatron-core transformer/transformer_config.py, model_parallel_config.py"


def _of(case: Case) -> Training:
    assert case.training is not None
    return case.training


@rule("degrees_are_whole")
def DEGREES(case: Case) -> Found:
    deployed = _of(case).step.deployed
    runs = deployed.runs
    for title, degree in (
        ("tensor", deployed.tensor_parallel),
        ("context", runs.context_parallel),
        ("pipeline", deployed.pipeline_parallel),
        ("data", deployed.data_parallel),
        ("expert", deployed.expert_parallel),
        ("virtual stages", runs.virtual_stages),
        ("micro-batch", runs.micro_batch),
    ):
        yield Part(
            (degree % 1.0 > 0.0) | (degree < 1.0),
            lambda i, title=title, degree=degree: f"{title} {degree[i]:g}",
        )


@rule("batch_divides")
def BATCH(case: Case) -> Found:
    steps = _of(case).step.deployed.runs.micro_batches
    yield Part(
        (np.abs(steps - np.rint(steps)) > 1e-6) | (steps < 1.0 - 1e-6),
        lambda i: f"{steps[i]:.4g} micro-batches a rank",
    )


@rule("sequence_divides")
def SEQUENCE(case: Case) -> Found:
    runs = _of(case).step.deployed.runs
    cp, length = runs.context_parallel, runs.sequence_length
    words = said("{} tokens over 2 x {}", length, cp)
    yield Part((cp > 1.0) & (length % (2.0 * cp) > 0.0), words)


@rule("virtual_stages_need_pipeline")
def VIRTUAL(case: Case) -> Found:
    deployed = _of(case).step.deployed
    runs = deployed.runs
    needs = (runs.virtual_stages > 1.0) | (runs.schedule != SCHEDULES.index("1f1b"))
    yield Part(needs & (deployed.pipeline_parallel == 1.0), said("one pipeline stage"))


@rule("schedule_has_micro_batches")
def SCHEDULE(case: Case) -> Found:
    deployed = _of(case).step.deployed
    pp, runs = deployed.pipeline_parallel, deployed.runs
    steps = runs.micro_batches
    zero_bubble = (runs.schedule == SCHEDULES.index("zero_bubble")) & (steps < pp)
    dual = runs.schedule == SCHEDULES.index("dualpipe")
    yield Part(
        zero_bubble | (dual & ((pp % 2.0 > 0) | (steps < 2 * pp))),
        lambda i: f"{steps[i]:.4g} micro-batches in {whole(pp[i])} stages",
    )


@rule("sequence_parallel_experts")
def SEQUENCE_PARALLEL(case: Case) -> Found:
    deployed = _of(case).step.deployed
    tp = deployed.tensor_parallel
    split = (tp > 1.0) & (deployed.runs.sequence_parallel == 0.0)
    for _, used in case.having("experts"):
        yield Part(used & split, said("tensor parallelism {} without it", tp))


@rule("format_has_arithmetic")
def ARITHMETIC(case: Case) -> Found:
    machines, batch = _of(case).step.deployed.machines, case.batch
    for part in WEIGHT_PARTS:
        native = machines.native_dtype[batch.chip, batch.weight_dtype[part]]
        yield Part(~native, lambda i: f"{machines.ids[batch.chip[i]]} does not")


@rule("interruptions_leave_time")
def INTERRUPTIONS(case: Case) -> Found:
    run = _of(case).run
    if run is not None:
        stands = np.minimum(LEAST_GOODPUT / run.goodput.goodput - 1.0, 1.0)
        yield Part(np.maximum(stands, 0.0), lambda i: f"goodput {run.goodput.goodput[i]:.2%}")


@rule("sites_divide_ranks")
def SITES(case: Case) -> Found:
    of = _of(case)
    if of.conditions is None or of.plans is None or of.conditions.sites == 1.0:
        return
    sites, split, batch = of.conditions.sites, of.conditions.site_split, of.plans
    axis = "data_parallel" if split == "data" else "pipeline_parallel"
    ranks = getattr(batch.candidates, axis)
    words = said(f"{{}} chips, {axis.replace('_', ' ')} {{}}, {sites:g} sites", batch.chips, ranks)
    yield Part((batch.chips % sites > 0.0) | (ranks % sites > 0.0), words)


@rule("chips_divide")
def CHIPS(case: Case) -> Found:
    of = _of(case)
    if of.plans is not None and of.chips is not None:
        used = of.plans.chips
        yield Part(used != of.chips, said(f"{{}} of {of.chips:,} chips", used))
