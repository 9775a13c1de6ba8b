"""`dse.fewest_chips`: the smallest number of chips that holds a model, and what more of them bring.

Every legal split of one instance is evaluated at once: tensor parallelism by the divisors of the
heads, stages that hold whole layers, and for experts attention data-parallel and expert-parallel
degrees. Among those that hold the requests asked for, the one with fewest chips is chosen, of
equals the fastest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dse.answer.answer import Answer
from dse.answer.frames import of_rows
from dse.catalog import Catalog, load_catalog
from dse.options import CHIP, Tokens
from dse.physics.workload import Workload
from dse.problem.describe import describe_deployment, number
from dse.problem.evaluate import evaluate
from dse.problem.instances import Evaluated, Subject, evaluated, subject_of
from dse.problem.mix import alone as mix_alone
from dse.questions.estimate.estimate import (
    OFFLOAD_FIELDS,
    SUBJECT,
    Backend,
    Dtype,
    KvDtype,
    check_needed,
    offload_of,
)
from dse.questions.estimate.point import assumptions
from dse.schema.axes import DEGREES
from dse.schema.backend import find_backend
from dse.schema.dtypes import known_dtypes
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.reader import Field
from dse.schema.reader import Table as Fields
from dse.schema.workloads import DEGREE
from dse.space.candidates import Codes, Floats
from dse.space.deployments import Deployments, divisors, powers_of_two

ROWS = 8  # of the table from fewest chips to fastest
HEADS = ("heads", "key_heads", "value_heads")
MOST_DATA_PARALLEL = 64
MOST_CHIPS = 16_384  # of the largest instance that is tried
# What `--set` takes.
SETTINGS = Fields(*OFFLOAD_FIELDS, Field("most_chips", DEGREE, MOST_CHIPS))
# Sentences of an estimate that have no bearing on chips and seconds.
NOT_HERE = ("costs are null", "no loss is predicted", "80% intervals", "power is the chip's")


def fewest_chips(
    model: Annotated[str | Path | Mapping[str, Any] | Model | None, SUBJECT] = None,
    chip: Annotated[str | None, CHIP] = None,
    *,
    weight_dtype: Dtype = None,
    kv_dtype: KvDtype = None,
    prompt_tokens: Tokens = 2048,
    output_tokens: Tokens = 512,
    concurrency: Tokens = 32,
    backend: Backend = None,
    catalog: Catalog | None = None,
    **fields: Any,
) -> Answer:
    """The fewest chips that hold a model with `concurrency` requests, and what more of them bring.

        dse.fewest_chips("llama-3-70b", "groq_lpu_v1", weight_dtype="int8").document["fewest"]

    All splits of one instance of at most `most_chips` are tried. `fields` are those of
    SETTINGS, the other arguments those of `estimate`. Raises InputError for what cannot be
    read, and for a chip that lacks what an estimate needs.
    """
    settings = SETTINGS.of(fields)
    check_needed(model, chip)
    assert model is not None
    assert chip is not None
    dtypes: dict[str, Any] = {"weight_dtype": weight_dtype, "kv_dtype": kv_dtype}
    known_dtypes(dtypes)
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    served = find_backend(catalog.backends, backend or catalog.chip(chip).backend)
    found = load_model(model)
    workload = Workload.of(prompt_tokens, output_tokens, "continuous", served)
    offload = offload_of(settings, catalog, chip)
    subject = subject_of(
        catalog,
        found,
        chip,
        workload,
        capped=True,
        deployment={**offload, "concurrency": concurrency},
        **dtypes,
    )
    domain = catalog.systems[catalog.chip(chip).system].levels[0].size or math.inf
    limit, reason = _largest_instance(catalog, chip, settings["most_chips"])
    splits = _splits(subject, limit)
    tried = evaluated(subject, splits, concurrency)
    alone = evaluate(subject.one, workload, subject.machines)
    order = np.lexsort((tried.tpot_s, splits.chips))
    holds = tried.runs & (tried.admitted >= concurrency)
    front = _front(tried.tpot_s, order[holds[order]])
    rows = [_row(splits, tried, i, domain) for i in front]
    fewest = rows[0] if rows else None
    placed = splits.take(front[:1]).placed(subject.one) if rows else subject.one
    written = describe_deployment(placed, 0, subject.machines)
    # Chips whose memory adds up to the weights of the whole model.
    memory = alone.performance.memory
    by_bytes = max(math.ceil(float(memory.weights[0] / memory.capacity[0])), 1)
    known = assumptions(
        catalog, found, written, mix_alone(workload), int(alone.provenance[0]), "rental_3yr"
    )
    facts = {
        "model": found.name,
        "chip": chip,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "concurrency": concurrency,
        "backend": served.id,
        "splits": len(splits),
        "at_least_by_bytes": by_bytes,
        "scale_up_chips": None if math.isinf(domain) else int(domain),
        "most_chips": limit,
        "limited_by": reason,
        "fits": bool(rows),
        "beyond_scale_up": fewest is not None and fewest["chips"] > domain,
        "fewest": fewest,
        "fastest": rows[-1] if rows else None,
        "rows": rows,
        "weight_dtype": written["weight_dtype"],
        "kv_dtype": written["kv_dtype"],
        "command": None,
        "assumed": [text for text in known if not any(words in text for words in NOT_HERE)],
    }
    said = [f"The weights alone fill the memory of {_count(by_bytes)}."]
    if facts["beyond_scale_up"]:
        said.append(
            f"More chips than one scale-up domain has ({domain:,.0f}): the network joins them."
        )
    if reason and not rows:
        said.append(f"No larger instance was tried: {reason}.")
    if fewest is not None:
        facts["command"] = _command(facts, written, found)
        said.append(f"The first row again: {facts['command']}")
    degrees = [name for name in DEGREES.values() if any(row[name] > 1 for row in rows)]
    table = of_rows(
        "splits",
        "From the fewest chips to the fastest split",
        rows,
        f"chips {' '.join(degrees)} tpot_s output_tokens_per_s_per_user "
        "network_share=interconnect_share used_memory_share=memory_share domains=scale_up_domains",
    )
    return Answer(
        question="estimate",
        title=f"The fewest {chip} that hold {found.name}",
        asked=f"{found.name} with {facts['weight_dtype']} weights and {facts['kv_dtype']} KV, "
        f"{concurrency:,} in flight of {prompt_tokens:,} prompt and {output_tokens:,} output "
        f"tokens, on {chip}; backend {served.id}",
        headline=f"Does not fit: {found.name}, on up to {limit:,} {chip}."
        if fewest is None
        else f"{chip}: {_count(fewest['chips'])} at least.",
        sentences=said,
        blocks=(table,) if rows else (),
        rests=facts["assumed"],
        document=facts,
        names=catalog.names,
    )


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
        **{axis: int(splits[axis][i]) for axis in DEGREES.values()},
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
    for option, name in DEGREES.items():
        if row[name] > 1:
            words += [f"--{option}", str(row[name])]
    words += ["--weight-dtype", document["weight_dtype"], "--kv-dtype", document["kv_dtype"]]
    for name in ("prompt_tokens", "output_tokens", "concurrency", "backend"):
        words += [f"--{name.replace('_', '-')}", str(document[name])]
    for field in OFFLOAD_FIELDS:
        if field.name in written:
            words += ["--set", f"{field.name}={written[field.name]}"]
    return shlex.join(words)


def _count(chips: int) -> str:
    return "one chip" if chips == 1 else f"{chips:,} chips"
