"""Machines whose weights stay in SRAM: what fits, how many chips, what the links take."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import dse
from dse.catalog import Catalog
from dse.physics.workload import Workload
from dse.questions.estimate.point import Estimate, estimate
from dse.schema.model_catalog import resolve_model


def point(
    catalog: Catalog, model: str, chip: str, dtype: str | None = None, **deployment: float
) -> Estimate:
    """A single user at a context of 2,048 tokens, on the chip's own backend."""
    backend = catalog.backends[catalog.chips[chip].backend]
    work = Workload.of(1536, 512, "continuous", backend)
    return estimate(catalog, resolve_model(model), chip, work, deployment, weight_dtype=dtype)


def fitted(
    catalog: Catalog, model: str, chip: str, dtype: str | None = None, **asked: Any
) -> dict[str, Any]:
    given = {"concurrency": 1, "prompt_tokens": 1536, **asked}
    return dse.fewest_chips(model, chip, weight_dtype=dtype, catalog=catalog, **given).document


def test_a_wafer_runs_20b_alone_and_refuses_30b(catalog: Catalog) -> None:
    """FP16 (2 bytes a weight), batch 1, context 2,048: 44 GB hold 20B parameters and no 30B."""
    for model in ("gpt-neox-20b", "llama-2-13b", "gpt-oss-20b"):
        assert point(catalog, model, "wse3", "bf16").metrics.feasible[0], model
    for model in ("mpt-30b", "qwen3-30b-a3b"):
        broken = point(catalog, model, "wse3", "bf16").as_json()["violations"]
        assert [row["constraint"] for row in broken] == ["memory_capacity"], model


def test_a_wafer_is_one_chip_without_collectives(catalog: Catalog) -> None:
    metrics = point(catalog, "llama-3-8b", "wse3").metrics
    assert metrics.performance.detail.decode_ledger.network_s[0] == 0.0
    assert metrics.performance.detail.prefill_ledger.network_s[0] == 0.0


def test_the_chips_name_a_compiled_backend_and_launch_no_kernels(catalog: Catalog) -> None:
    for chip in ("groq_lpu_v1", "groq3_lp30", "wse2", "wse3"):
        assert catalog.chips[chip].backend == "compiled"
        laws = catalog.efficiencies[catalog.chips[chip].efficiency]
        kinds = {law.kind for table in laws.operators.values() for law in table.values()}
        assert kinds == {"assumed"}
        assert laws.elementwise_fixed_s < 1e-6
        assert "peak_bf16" in {text.split(":")[0] for text in catalog.chips[chip].assumed}
    assert {c.backend for c in catalog.chips.values() if c.family == "hopper"} == {"generic"}


# (model, chip, format, published tokens/s of one user): techpowerup.com/news-tags/Processor (Groq,
# 2024: Llama 2 7B and 70B, Mixtral); cerebras.ai/blog/introducing-cerebras-inference-ai-at-instant-
# speed (2024: its own two, and Groq's Llama 3.1 8B as 1,800 / 2.4).
PUBLISHED = [
    ("llama-2-7b", "groq_lpu_v1", "int8", 750),
    ("llama-3-8b", "groq_lpu_v1", "int8", 750),
    ("llama-2-70b", "groq_lpu_v1", "int8", 300),
    ("mixtral-8x7b", "groq_lpu_v1", "int8", 480),
    ("llama-3-8b", "wse3", "bf16", 1800),
    ("llama-3-70b", "wse3", "bf16", 450),
]


@pytest.mark.parametrize(("model", "chip", "dtype", "published"), PUBLISHED)
def test_published_speeds_of_one_user(
    catalog: Catalog, model: str, chip: str, dtype: str, published: float
) -> None:
    """Within a factor of two; docs/tiers.md prints each error."""
    speed = fitted(catalog, model, chip, dtype)["fewest"]["output_tokens_per_s_per_user"]
    assert 0.8 < speed / published < 2.0


@pytest.mark.parametrize(
    ("model", "chip", "dtype", "low", "high"),
    [
        ("llama-3-70b", "groq_lpu_v1", "int8", 316, 576),  # bytes alone; Groq's own deployment
        ("llama-3-70b", "groq_lpu_v1", "bf16", 614, 1152),
        ("llama-3-70b", "groq3_lp30", "fp8", 146, 256),
        ("llama-3-70b", "groq3_lp30", "bf16", 283, 512),
        ("deepseek-v3", "groq_lpu_v1", None, 2918, 8000),
        ("deepseek-v3", "groq3_lp30", None, 1343, 2048),
        ("llama-3-70b", "wse3", "bf16", 4, 4),  # "distributed across four of its CS-3" (Cerebras)
    ],
)
def test_chips_that_a_model_needs(
    catalog: Catalog, model: str, chip: str, dtype: str | None, low: int, high: int
) -> None:
    answer = fitted(catalog, model, chip, dtype)
    fewest = answer["fewest"]
    assert low <= fewest["chips"] <= high
    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    assert fewest["chips"] == np.prod([fewest[name] for name in degrees])
    assert answer["at_least_by_bytes"] <= fewest["chips"]
    assert 0.0 < fewest["interconnect_share"] < 1.0
    assert 0.5 < fewest["memory_share"] <= 1.0
    beyond = fewest["chips"] > answer["scale_up_chips"]
    assert answer["beyond_scale_up"] is beyond
    assert fewest["scale_up_domains"] == -(-fewest["chips"] // answer["scale_up_chips"])
    json.dumps(answer, allow_nan=False)
    # The row is what an estimate of that deployment says, and the next smaller splits do not hold.
    same = point(
        catalog, model, chip, dtype, **{k: fewest[k] for k in (*degrees, "expert_parallel")}
    )
    assert same.metrics.feasible[0]
    assert same.metrics.values["tpot_s"][0] == fewest["tpot_s"]
    for axis in degrees:
        if fewest[axis] > 1:
            fewer = {k: fewest[k] for k in degrees} | {axis: fewest[axis] - 1}
            assert not point(catalog, model, chip, dtype, **fewer).metrics.feasible[0], axis


def test_rows_of_a_fit_trade_chips_for_speed(catalog: Catalog) -> None:
    rows = fitted(catalog, "llama-3-70b", "h100_sxm")["rows"]
    assert len(rows) >= 3
    for fewer, more in itertools.pairwise(rows):
        assert fewer["chips"] < more["chips"]
        assert fewer["tpot_s"] > more["tpot_s"]


def test_more_to_hold_never_takes_fewer_chips(catalog: Catalog) -> None:
    def chips(dtype: str, **asked: int) -> int:
        return fitted(catalog, "llama-3-70b", "groq3_lp30", dtype, **asked)["fewest"]["chips"]

    assert chips("nvfp4") <= chips("fp8") <= chips("bf16")
    counts = [chips("fp8", concurrency=held) for held in (1, 8, 64)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_tier_relieves_the_chips(catalog: Catalog) -> None:
    shares = {"weights_offloaded": 1.0, "kv_offloaded": 0.0, "offload_tier": "host"}
    plain = fitted(catalog, "llama-3-70b", "h100_sxm", "bf16")["fewest"]
    split = fitted(catalog, "llama-3-70b", "h100_sxm", "bf16", **shares)["fewest"]
    assert (plain["chips"], split["chips"]) == (2, 1)
    assert split["tpot_s"] > 10 * plain["tpot_s"]


def test_what_does_not_fit_says_so(catalog: Catalog) -> None:
    alone = fitted(catalog, "deepseek-v3", "h200_nvl")  # no link to another was published
    assert alone["most_chips"] == 1
    assert "no bandwidth_per_direction" in alone["limited_by"]
