"""Pools of tables of workers: what `dse estimate --serving disaggregated` says of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dse
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.problem.instances import Subject, subject_of
from dse.problem.paired import best_pairs, decode_pool, prefill_pool, with_degrees
from dse.schema.backend import find_backend
from dse.schema.metrics import Limit
from dse.schema.model_catalog import resolve_model
from dse.space.deployments import Deployments

SIZES = (1, 2, 4, 8)
LIMITS = (Limit("ttft_s", "<=", 2.0, ""), Limit("tpot_s", "<=", 0.05, ""))
FLAGS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "ep": "expert_parallel",
}


def subject(model: str, chip: str) -> Subject:
    catalog = load_catalog()
    backend = find_backend(catalog.backends, "vllm")
    load = Workload.of(2048, 512, "continuous", backend)
    return subject_of(
        catalog, resolve_model(model), chip, load, capped=True, redundant_experts=(0,)
    )


def degrees(table: Deployments, row: int) -> dict[str, Any]:
    return {flag: int(table[axis][row]) for flag, axis in FLAGS.items()}


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [("llama-3-70b", "h100_sxm", "h200_sxm"), ("deepseek-v3", "b200_sxm", "b200_sxm")],
)
def test_a_pair_is_what_estimate_says_of_the_same_workers(model: str, first: str, second: str):
    before, after = subject(model, first), subject(model, second)
    ahead = prefill_pool(before, before.divided(SIZES), LIMITS)
    behind = decode_pool(after, after.divided(SIZES), LIMITS)
    for pair in best_pairs(ahead, behind, (16, 32), LIMITS):
        assert pair is not None
        prefill = degrees(ahead.table, pair["prefill"])
        said = dse.estimate(
            model,
            second,
            **degrees(behind.table, pair["decode"]),
            **{f"prefill_{flag}": degree for flag, degree in prefill.items()},
            prefill_chip=first,
            prefill_workers=pair["prefill_workers"],
            decode_workers=pair["decode_workers"],
            concurrency=round(pair["concurrency"]),
            serving="disaggregated",
            backend="vllm",
        )
        assert said.feasible
        assert said.chips == pair["chips"]
        assert said.tpot_s == pytest.approx(pair["tpot_s"], rel=0.02)
        assert said.output_tokens_per_s == pytest.approx(pair["output_tokens_per_s"], rel=0.02)


def test_more_chips_are_never_worse_and_degrees_bind():
    one = subject("llama-3-70b", "h200_sxm")
    table = one.divided(SIZES)
    behind = decode_pool(one, table, LIMITS)

    def rates(chosen: Deployments, chips: Sequence[int]) -> list[float]:
        pairs = best_pairs(prefill_pool(one, chosen, LIMITS), behind, chips, LIMITS)
        return [0.0 if p is None else p["output_tokens_per_s"] / p["chips"] for p in pairs]

    free = rates(table, (4, 8, 16, 32, 64))
    assert free == sorted(free)
    bound = with_degrees(table, {"tensor_parallel": [8], "chip": ["h200_sxm"]})
    assert set(bound["tensor_parallel"]) == {8}
    assert np.all(np.array(rates(bound, (16, 64))) <= np.array(free)[[2, 4]])
    assert rates(with_degrees(table, {"tensor_parallel": 3}), (16,)) == [0.0]
