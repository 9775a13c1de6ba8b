"""Batches and machines for tests, from the shipped catalog."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from dse.catalog import load_catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.model_catalog import resolve_model
from dse.space.batches import batch_of
from dse.space.candidates import CandidateBatch

# Those whose every link is known, so that any deployment can be put on them.
CHIPS = tuple(chip for chip in load_catalog().chips if not load_catalog().refusal(chip, math.inf))
MODELS = (
    "llama-3-8b", "llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b",
    "qwen3-next-80b-a3b", "nemotron-3-super-120b-a12b", "jamba-v0.1", "deepseek-v3.2",
    "deepseek-v4-flash", "minimax-text-01", "kimi-k3", "minimax-m3", "hunyuan-large",
    "gemma-4-26b-a4b", "opt-66b",
)  # fmt: skip


@cache
def machines(price_basis: str | None = None) -> Machines:
    return compile_machines(load_catalog(), CHIPS, price_basis)


def deploy(
    model: str,
    chip: str,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str = "bf16",
    repeat: int = 1,
    **axes: float | Sequence[float],
) -> CandidateBatch:
    """`repeat` copies of one model; an axis is one number or one per copy."""
    shape = resolve_model(model)
    n = max([repeat, *(len(np.atleast_1d(value)) for value in axes.values())])
    deployment = {
        axis: np.broadcast_to(np.asarray(value, dtype=float), n) for axis, value in axes.items()
    }
    codes = np.full(n, CHIPS.index(chip), dtype=np.intp)
    return batch_of([shape] * n, codes, [weight_dtype] * n, [kv_dtype] * n, deployment)


def workload(prompt: float, output: float, serving: str = "continuous") -> Workload:
    return Workload.of(prompt, output, serving, load_catalog().backends["generic"])


def run(batch: CandidateBatch, load: Workload, on: Machines | None = None) -> Metrics:
    return evaluate(batch, load, on or machines())


def scaled(on: Machines, field: str, factor: float) -> Machines:
    """Machines with one physical quantity multiplied: `bandwidth`, `flops`, `links`, `capacity`."""
    if field == "capacity":
        return replace(on, capacity_bytes=on.capacity_bytes * factor)
    if field == "links":
        fabric = on.fabric
        tables = {
            name: getattr(fabric, name).scaled(1.0, factor)
            for name in ("all_reduce", "all_gather", "all_to_all")
        }
        networks = tuple(
            replace(
                one,
                s_per_byte=one.s_per_byte / factor,
                ring_s_per_byte={k: s / factor for k, s in one.ring_s_per_byte.items()},
            )
            for one in fabric.networks
        )
        both = ("link_bytes_per_s", "pair_bytes_per_s")
        links = {name: getattr(fabric, name) * factor for name in both}
        return replace(on, fabric=replace(fabric, **tables, **links, networks=networks))
    if field == "bandwidth":
        laws = {
            name: replace(law, s_per_byte=law.s_per_byte / factor) for name, law in on.laws.items()
        }
        return replace(on, laws=laws, floor_s_per_byte=on.floor_s_per_byte / factor)
    assert field == "flops"
    laws = {
        name: replace(
            law,
            s_per_flop=law.s_per_flop / factor,
        )
        for name, law in on.laws.items()
    }
    return replace(on, laws=laws)
