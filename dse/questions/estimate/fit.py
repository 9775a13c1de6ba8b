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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.phases import layer_imbalance
from dse.physics.workload import Workload
from dse.problem.describe import describe_deployment, number
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.loads import whole
from dse.problem.mix import alone as mix_alone
from dse.questions.estimate.point import assumptions, axes_of
from dse.schema.blocks import MIXERS
from dse.schema.model import Model
from dse.space.batches import batch_of
from dse.space.candidates import CandidateBatch

CHUNK = 10_000
ROWS = 8  # of the table from fewest chips to fastest
HEADS = ("heads", "key_heads", "value_heads")
MOST_DATA_PARALLEL = 64
# Sentences of an estimate that have no bearing on chips and seconds.
NOT_HERE = ("costs are null", "no loss is predicted", "80% intervals", "power is the chip's")


@dataclass(frozen=True, slots=True)
class _Found:
    """Splits that were evaluated, (n,) each: those that hold the requests, chips, seconds a token,
    the shares of a decode step and of a prefill that go to the interconnect."""

    batch: CandidateBatch
    holds: np.ndarray
    chips: np.ndarray
    tpot_s: np.ndarray
    ttft_s: np.ndarray
    network: np.ndarray
    memory: np.ndarray


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
    catalog.require(chip)
    spec = catalog.chip(chip)
    domain = catalog.systems[spec.system].levels[0].size or math.inf
    limit, reason = _largest_instance(catalog, chip, most_chips)
    machines = compile_machines(catalog, [chip])
    kv = kv_dtype or model.kv_dtype or "bf16"
    axes = axes_of({**(offload or {}), "concurrency": concurrency})
    one = batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes)
    found = _evaluated(_splits(one, model, limit), workload, machines, concurrency)
    alone = evaluate(one, workload, machines)
    by_bytes = _by_bytes(alone)
    order = np.lexsort((found.tpot_s, found.chips))
    order = order[found.holds[order]]
    front = _front(found, order)
    rows = [_row(found, i, machines, domain) for i in front]
    document = {
        "model": model.name,
        "chip": chip,
        "prompt_tokens": whole(workload.prompt_tokens[0]),
        "output_tokens": whole(workload.output_tokens[0]),
        "concurrency": concurrency,
        "backend": workload.backend.id,
        "splits": len(found.chips),
        "at_least_by_bytes": by_bytes,
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
        i = int(front[0])
        written = describe_deployment(found.batch[i : i + 1], 0, machines)
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


def _splits(one: CandidateBatch, model: Model, limit: int) -> CandidateBatch:
    """Every split of at most `limit` chips; which are legal, `dse.rules`
    say."""
    heads = max(
        (int(b.sizes[name]) for b in model.blocks for name in HEADS if b.sizes.get(name)), default=1
    )
    experts = max((int(b.sizes["experts"]) for b in model.blocks if b.kind == "moe"), default=0)
    layers = int(sum(b.count for b in model.blocks if b.kind in MIXERS))
    degrees = []
    for tp in (d for d in range(1, heads + 1) if heads % d == 0):
        for dp in [2**k for k in range(MOST_DATA_PARALLEL.bit_length())] if experts else [1]:
            group = tp * dp
            for ep in sorted({1, math.gcd(group, experts)}) if experts else [1]:
                stages = min(layers, limit // group)
                degrees += [(tp, pp, dp, ep) for pp in range(1, stages + 1)]
    tp, pp, dp, ep = (np.array(column, dtype=np.float64) for column in zip(*degrees, strict=True))
    return replace(
        one[np.zeros(len(tp), dtype=np.intp)],
        tensor_parallel=tp,
        pipeline_parallel=pp,
        data_parallel=dp,
        expert_parallel=ep,
    )


def _evaluated(
    batch: CandidateBatch, workload: Workload, machines: Machines, concurrency: int
) -> _Found:
    parts = []
    for start in range(0, len(batch), CHUNK):
        some = batch[slice(start, start + CHUNK)]
        metrics = evaluate(some, workload, machines)
        performance, values = metrics.performance, metrics.values
        step, ledger = performance.decode_step_s, performance.decode_ledger
        network = ledger.network_s * layer_imbalance(some) / step
        held = performance.memory.admitted >= concurrency
        used = values["memory_bytes_per_chip"] / values["memory_capacity_bytes_per_chip"]
        parts.append(
            (metrics.feasible & held, values["chips"], values["tpot_s"], values["ttft_s"],
             network, used)
        )  # fmt: skip
    return _Found(batch, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _by_bytes(alone: Metrics) -> int:
    """Chips whose memory adds up to the weights of the whole model."""
    memory = alone.performance.memory
    return max(math.ceil(float(memory.weights[0] / memory.capacity[0])), 1)


def _front(found: _Found, order: np.ndarray) -> list[int]:
    """From the fewest chips on, each split that is faster than all with fewer; at most ROWS, the
    ends among them."""
    best, front = math.inf, []
    for i in order.tolist():
        if found.tpot_s[i] < best * (1.0 - 1e-9):
            best = float(found.tpot_s[i])
            front.append(i)
    if len(front) <= ROWS:
        return front
    kept = np.unique(np.round(np.geomspace(1, len(front), ROWS)).astype(int) - 1)
    return [front[k] for k in kept]


def _row(found: _Found, i: int, machines: Machines, domain: float) -> dict[str, Any]:
    batch = found.batch
    chips = int(found.chips[i])
    return {
        "chips": chips,
        "tensor_parallel": int(batch.tensor_parallel[i]),
        "pipeline_parallel": int(batch.pipeline_parallel[i]),
        "data_parallel": int(batch.data_parallel[i]),
        "expert_parallel": int(batch.expert_parallel[i]),
        "scale_up_domains": 1 if math.isinf(domain) else math.ceil(chips / domain),
        "ttft_s": number(found.ttft_s[i]),
        "tpot_s": number(found.tpot_s[i]),
        "output_tokens_per_s_per_user": number(1.0 / found.tpot_s[i]),
        "interconnect_share": number(found.network[i]),
        "memory_share": number(found.memory[i]),
    }


def _command(document: Mapping[str, Any], written: Mapping[str, Any], model: Model) -> str:
    row = document["fewest"]
    words = ["dse", "estimate", "--model", model.id, "--chip", document["chip"]]
    for flag, name in (("--tp", "tensor_parallel"), ("--pp", "pipeline_parallel"),
                       ("--dp", "data_parallel"), ("--ep", "expert_parallel")):  # fmt: skip
        if row[name] > 1:
            words += [flag, str(row[name])]
    words += ["--weight-dtype", document["weight_dtype"], "--kv-dtype", document["kv_dtype"]]
    for flag in ("prompt_tokens", "output_tokens", "concurrency", "backend"):
        words += [f"--{flag.replace('_', '-')}", str(document[flag])]
    for flag, name in (("--weights-offload", "weights_offloaded"), ("--kv-offload", "kv_offloaded"),
                       ("--offload-tier", "offload_tier")):  # fmt: skip
        if name in written:
            words += [flag, str(written[name])]
    return shlex.join(words)
