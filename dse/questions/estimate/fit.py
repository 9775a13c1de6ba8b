"""The smallest number of chips that holds a model, and what more of them bring.

Every legal split of one instance is evaluated at once: tensor parallelism by the divisors of the
heads, stages that hold whole layers, and for experts attention data-parallel and expert-parallel
degrees. Among those that hold the requests asked for, the one with fewest chips is chosen, of
equals the fastest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Column, Table
from dse.catalog import Catalog
from dse.physics.workload import Workload
from dse.problem.describe import describe_deployment, number
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.instances import Evaluated, Subject, evaluated, subject_of
from dse.problem.mix import alone as mix_alone
from dse.problem.mix import whole
from dse.problem.words import SHORT_DEGREES
from dse.questions.estimate.point import assumptions
from dse.schema.model import Model
from dse.space.batches import axes_of
from dse.space.candidates import Codes, Floats
from dse.space.deployments import Deployments, divisors, powers_of_two

ROWS = 8  # of the table from fewest chips to fastest
HEADS = ("heads", "key_heads", "value_heads")
MOST_DATA_PARALLEL = 64
FLAGS = {
    "--tp": "tensor_parallel",
    "--pp": "pipeline_parallel",
    "--dp": "data_parallel",
    "--ep": "expert_parallel",
}
OFFLOAD_FLAGS = {
    "--weights-offload": "weights_offloaded",
    "--kv-offload": "kv_offloaded",
    "--offload-tier": "offload_tier",
}
# Sentences of an estimate that have no bearing on chips and seconds.
NOT_HERE = ("costs are null", "no loss is predicted", "80% intervals", "power is the chip's")


def fit(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload,
    *,
    concurrency: int,
    most_chips: int,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    offload: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of `dse estimate --fit --json`. `workload` is continuous; `concurrency` requests
    of its lengths are held at once. Raises InputError for a chip that lacks what an estimate needs.
    """
    subject = subject_of(
        catalog,
        model,
        chip,
        workload,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        capped=True,
        axes=axes_of({**(offload or {}), "concurrency": concurrency}),
    )
    one, machines = subject.one, subject.machines
    domain = catalog.systems[catalog.chip(chip).system].levels[0].size or math.inf
    limit, reason = _largest_instance(catalog, chip, most_chips)
    splits = _splits(subject, limit)
    found = evaluated(subject, splits, concurrency)
    alone = evaluate(one, workload, machines)
    order = np.lexsort((found.tpot_s, splits.chips))
    holds = found.runs & (found.admitted >= concurrency)
    front = _front(found.tpot_s, order[holds[order]])
    rows = [_row(splits, found, i, domain) for i in front]
    document = {
        "model": model.name,
        "chip": chip,
        "prompt_tokens": whole(workload.prompt_tokens[0]),
        "output_tokens": whole(workload.output_tokens[0]),
        "concurrency": concurrency,
        "backend": workload.backend.id,
        "splits": len(splits),
        "at_least_by_bytes": _by_bytes(alone),
        "scale_up_chips": None if math.isinf(domain) else int(domain),
        "most_chips": limit,
        "limited_by": reason,
        "fits": bool(rows),
        "beyond_scale_up": bool(rows) and rows[0]["chips"] > domain,
        "fewest": rows[0] if rows else None,
        "fastest": rows[-1] if rows else None,
        "rows": rows,
    }
    written = describe_deployment(one, 0, machines)
    if rows:
        written = describe_deployment(splits.take(front[:1]).placed(one), 0, machines)
    document["weight_dtype"], document["kv_dtype"] = written["weight_dtype"], written["kv_dtype"]
    document["command"] = _command(document, written, model) if rows else None
    document["assumed"] = [
        text
        for text in assumptions(
            catalog, model, written, mix_alone(workload), int(alone.provenance[0]), "rental_3yr"
        )
        if not any(words in text for words in NOT_HERE)
    ]
    return document


def _largest_instance(catalog: Catalog, chip: str, most: int) -> tuple[int, str | None]:
    """The largest instance whose links are all known, and what is missing beyond it."""
    reason = catalog.refusal(chip, most)
    if reason is None:
        return most, None
    inner = catalog.systems[catalog.chip(chip).system].levels[0].size or most
    return (inner if catalog.refusal(chip, inner) is None else 1), reason


def _splits(subject: Subject, limit: int) -> Deployments:
    """Every split of at most `limit` chips; which are legal, `dse.rules` says. Experts are on all
    ranks of a group alike, or on as many as divide them."""
    blocks = subject.model.blocks
    heads = [int(b.sizes[name]) for b in blocks for name in HEADS if b.sizes.get(name)]
    experts = max(subject.experts, default=0)
    table = Deployments.of(
        tensor_parallel=divisors(max(heads, default=1)),
        data_parallel=powers_of_two(MOST_DATA_PARALLEL) if experts else 1,
        spread=[0, 1] if experts else 0,
    )
    ranks = np.where(table["spread"] == 1, np.gcd(table.group, experts), 1)
    table = table.with_columns(expert_parallel=ranks)
    table = table.where(lambda t: (t["spread"] == 0) | (t["expert_parallel"] > 1))
    stages = np.arange(1, int(subject.one.layers[0]) + 1)
    return table.cross(pipeline_parallel=stages).where(lambda t: t.chips <= limit)


def _by_bytes(alone: Metrics) -> int:
    """Chips whose memory adds up to the weights of the whole model."""
    memory = alone.performance.memory
    return max(math.ceil(float(memory.weights[0] / memory.capacity[0])), 1)


def _front(tpot_s: Floats, order: Codes) -> Codes:
    """From the fewest chips on, each split that is faster than all with fewer; at most ROWS, the
    ends among them."""
    best, front = math.inf, []
    for i in order.tolist():
        if tpot_s[i] < best * (1.0 - 1e-9):
            best = float(tpot_s[i])
            front.append(i)
    shown = np.array(front, dtype=np.intp)
    if len(front) <= ROWS:
        return shown
    return shown[np.unique(np.round(np.geomspace(1, len(front), ROWS)).astype(int) - 1)]


def _row(splits: Deployments, found: Evaluated, i: int, domain: float) -> dict[str, Any]:
    chips = int(splits.chips[i])
    return {
        "chips": chips,
        **{axis: int(splits[axis][i]) for axis in FLAGS.values()},
        "scale_up_domains": 1 if math.isinf(domain) else math.ceil(chips / domain),
        "ttft_s": number(found.ttft_s[i]),
        "tpot_s": number(found.tpot_s[i]),
        "output_tokens_per_s_per_user": number(1.0 / found.tpot_s[i]),
        "interconnect_share": number(found.network_share[i]),
        "memory_share": number(found.memory_share[i]),
    }


def _command(document: Mapping[str, Any], written: Mapping[str, Any], model: Model) -> str:
    row = document["fewest"]
    words = ["dse", "estimate", "--model", model.id, "--chip", document["chip"]]
    for flag, name in FLAGS.items():
        if row[name] > 1:
            words += [flag, str(row[name])]
    words += ["--weight-dtype", document["weight_dtype"], "--kv-dtype", document["kv_dtype"]]
    for flag in ("prompt_tokens", "output_tokens", "concurrency", "backend"):
        words += [f"--{flag.replace('_', '-')}", str(document[flag])]
    for flag, name in OFFLOAD_FLAGS.items():
        if name in written:
            words += [flag, str(written[name])]
    return shlex.join(words)


def fit_answer(document: Mapping[str, Any]) -> Answer:
    """The answer of `dse estimate --fit` (`dse.questions.estimate.fit.fit`)."""
    model, chip, row = document["model"], document["chip"], document["fewest"]
    said = [
        f"Does not fit: {model}, on up to {document['most_chips']:,} {chip}."
        if row is None
        else f"{chip}: {_count(row['chips'])} at least.",
        f"The weights alone fill the memory of {_count(document['at_least_by_bytes'])}; "
        f"{document['splits']:,} splits were tried.",
    ]
    if document["beyond_scale_up"]:
        domain = document["scale_up_chips"]
        said.append(
            f"More chips than one scale-up domain has ({domain:,}): the network joins them."
        )
    if document["limited_by"] and not document["fits"]:
        said.append(f"No larger instance was tried: {document['limited_by']}.")
    if document["command"]:
        said.append(f"The first row again: {document['command']}")
    return Answer(
        question="estimate",
        title=f"The fewest {chip} that hold {model}",
        asked=f"{model} with {document['weight_dtype']} weights and {document['kv_dtype']} KV, "
        f"{document['concurrency']:,} in flight of {document['prompt_tokens']:,} prompt and "
        f"{document['output_tokens']:,} output tokens, on {chip}; backend {document['backend']}",
        headline=said[0],
        sentences=said[1:],
        blocks=(split_table(document),) if document["fits"] else (),
        rests=document["assumed"],
        document=document,
    )


def split_table(document: Mapping[str, Any]) -> Table:
    """From the fewest chips to the fastest; degrees that are 1 throughout are left out."""
    rows = document["rows"]
    degrees = [
        Column(name, short, "count")
        for name, short in SHORT_DEGREES.items()
        if any(row.get(name, 1) > 1 for row in rows)
    ]
    return Table(
        "splits",
        "From the fewest chips to the fastest split",
        (
            Column("chips", "chips", "count"),
            *degrees,
            Column("tpot_s", "per token", "tpot_s"),
            Column("output_tokens_per_s_per_user", "tokens/s per user", "rate"),
            Column("interconnect_share", "interconnect", "share"),
            Column("memory_share", "memory", "share"),
            Column("scale_up_domains", "domains", "count"),
        ),
        rows,
        notes=(
            "interconnect: share of a decode step in collectives and hops between stages; memory: "
            "used of the fullest chip; domains: scale-up domains that an instance spans.",
        ),
    )


def _count(chips: int) -> str:
    return "one chip" if chips == 1 else f"{chips:,} chips"
