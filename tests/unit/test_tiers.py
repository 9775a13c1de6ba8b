"""Weights and cache behind the device memory: bytes add up, time follows the tier's bandwidth."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.catalog import Catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics
from dse.problem.objective import pose
from dse.questions.estimate.point import Estimate, estimate
from dse.schema.constants import TIERS, TierDefaults, find_tier, tiers_of
from dse.schema.model_catalog import resolve_model
from dse.schema.study import load_study
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch
from tests.helpers import run
from tests.helpers_files import write

CHIPS = ("h100_sxm", "gh200_141", "sn40l", "groq_lpu_v1")
HOST, ATTACHED, FLASH = (TIERS.index(name) for name in ("host", "attached", "flash"))
MODELS = ("llama-3-8b", "deepseek-v3", "qwen3-next-80b-a3b", "deepseek-v4-flash", "mixtral-8x7b")
SERVINGS = ("continuous", "static", "offline")


@pytest.fixture(scope="module")
def on(catalog: Catalog) -> Machines:
    return compile_machines(catalog, CHIPS)


def batch(
    model: str,
    chip: str,
    *,
    weights: float | list[float] | None = None,
    kv: float | list[float] = 0.0,
    tier: int = HOST,
    dtype: str | None = None,
    n: int = 1,
    **axes: float,
) -> CandidateBatch:
    """n copies on one chip; without `weights` nothing is said of a tier."""
    degrees: dict[str, Any] = {axis: np.full(n, axes.get(axis, 1.0)) for axis in DEPLOYMENT_AXES}
    if weights is not None:
        degrees |= {"weights_offloaded": np.broadcast_to(weights, n)}
        degrees |= {"kv_offloaded": np.broadcast_to(kv, n), "offload_tier": np.full(n, tier)}
    codes = np.full(n, CHIPS.index(chip), dtype=np.intp)
    return batch_of([resolve_model(model)] * n, codes, [dtype] * n, ["bf16"] * n, degrees)


def load(catalog: Catalog, prompt: float = 1024, output: float = 256, serving: str = "continuous"):
    return Workload.of(prompt, output, serving, catalog.backends["generic"])


@pytest.mark.parametrize("serving", SERVINGS)
@pytest.mark.parametrize("model", MODELS)
def test_nothing_offloaded_changes_no_bit(
    catalog: Catalog, on: Machines, model: str, serving: str
) -> None:
    work = load(catalog, serving=serving)
    degrees = {"tensor_parallel": 8.0, "pipeline_parallel": 2.0, "concurrency": 64.0}
    plain = run(batch(model, "h100_sxm", **degrees), work, on)
    for tier in (HOST, ATTACHED, FLASH):
        same = run(batch(model, "h100_sxm", weights=0.0, tier=tier, **degrees), work, on)
        for name, values in plain.values.items():
            assert np.array_equal(same.values[name], values, equal_nan=True), name
        for name, values in plain.violations.items():
            if not name.startswith("offload"):
                assert np.array_equal(same.violations[name], values), name
        assert np.array_equal(same.provenance, plain.provenance)
        assert all((same.violations[name] <= 0.0).all() for name in same.violations)


@settings(max_examples=40, deadline=None)
@given(
    weights=st.floats(0.0, 1.0),
    kv=st.floats(0.0, 1.0),
    model=st.sampled_from(MODELS),
    stages=st.sampled_from([1.0, 4.0]),
)
def test_bytes_add_up(
    catalog: Catalog, on: Machines, weights: float, kv: float, model: str, stages: float
) -> None:
    work = load(catalog)
    degrees = {"tensor_parallel": 8.0, "pipeline_parallel": stages, "concurrency": 16.0}
    plain = run(batch(model, "h100_sxm", **degrees), work, on).performance.memory
    split = run(
        batch(model, "h100_sxm", weights=weights, kv=kv, **degrees), work, on
    ).performance.memory
    assert split.tier is not None
    for whole, here, there in (
        (plain.weights, split.weights, split.tier.weights),
        (plain.kv_per_request, split.kv_per_request, split.tier.kv_per_request),
        (plain.kv_reserved, split.kv_reserved, split.tier.kv_reserved),
    ):
        # A cache that lies in the tier whole still counts a thousandth of a byte here.
        assert here + there == pytest.approx(whole, rel=1e-12, abs=2e-3)
    assert split.tier.weights == pytest.approx(weights * plain.weights, rel=1e-12)
    assert (split.activations - plain.activations <= split.tier.weights).all()


@pytest.mark.parametrize("serving", SERVINGS)
@pytest.mark.parametrize("model", MODELS)
def test_more_in_the_tier_is_never_faster(
    catalog: Catalog, on: Machines, model: str, serving: str
) -> None:
    """One batch of shares; each member alone gives the same bits."""
    shares = [k / 10 for k in range(11)]
    degrees = {"tensor_parallel": 8.0, "data_parallel": 2.0, "concurrency": 16.0}
    work = load(catalog, serving=serving)
    for weights, kv in ((shares, [0.0] * 11), ([0.0] * 11, shares), (shares, shares)):
        for tier in (HOST, FLASH):
            many = batch(model, "gh200_141", weights=weights, kv=kv, tier=tier, n=11, **degrees)
            metrics = run(many, work, on)
            # How many run at once may grow with what is offloaded, so steps are compared.
            # The floor is not: two memories read at once are faster than one of them.
            steps = ("prefill_s",) if serving == "offline" else ("decode_step_s", "prefill_s")
            for name in steps:
                assert (np.diff(metrics.values[name]) >= -1e-15).all(), name
            assert (metrics.values["latency_floor_s"] <= metrics.values["decode_step_s"]).all()
            for i in (0, 4, 10):
                one = run(many[i : i + 1], work, on)
                for name, values in metrics.values.items():
                    assert np.array_equal(one.values[name], values[i : i + 1], equal_nan=True), name


def _faster(on: Machines, factor: float) -> Machines:
    return replace(on, tiers=replace(on.tiers, s_per_byte=on.tiers.s_per_byte / factor))


@pytest.mark.parametrize("model", MODELS)
def test_a_faster_tier_is_never_slower(catalog: Catalog, on: Machines, model: str) -> None:
    shares = {"weights": 0.5, "kv": 0.5, "tensor_parallel": 8.0, "concurrency": 8.0}
    one, work = batch(model, "h100_sxm", **shares), load(catalog)
    seconds = [run(one, work, _faster(on, factor)).values for factor in (0.5, 1.0, 2.0, 10.0, 1e6)]
    for name in ("decode_step_s", "prefill_s", "tpot_s", "latency_floor_s"):
        found = [values[name][0] for values in seconds]
        assert found == sorted(found, reverse=True), name
    # A tier that takes no time leaves what the device needs.
    plain = run(
        batch(model, "h100_sxm", weights=0.0, tensor_parallel=8.0, concurrency=8.0), work, on
    )
    if plain.feasible[0]:
        expected = plain.values["decode_step_s"]
        assert seconds[-1]["decode_step_s"] == pytest.approx(expected, rel=1e-3)


def test_a_step_bound_by_the_link_takes_the_time_of_its_bytes(
    catalog: Catalog, on: Machines
) -> None:
    """Closed form: all weights but the input table cross min(DRAM share, host link) at the reached
    share, and the step adds the backend's serial time alone."""
    model = resolve_model("llama-3-8b")
    work = load(catalog)
    found = run(batch("llama-3-8b", "h100_sxm", weights=1.0), work, on)
    table = model.vocab_size * model.hidden_size
    bytes_ = 2.0 * (found.parameters.total[0] - table)
    link = min(76.8e9, 64e9)
    backend = work.backend
    expected = bytes_ / (0.85 * link) + backend.gap_s_per_step + backend.host_s_per_request
    assert found.values["decode_step_s"][0] == pytest.approx(expected, rel=2e-3)
    assert found.values["latency_floor_s"][0] == pytest.approx(bytes_ / link, rel=2e-3)
    ledger = found.performance.detail.decode_ledger
    assert ledger.tier is not None
    assert ledger.tier.on_demand[0] == 0.0
    # The cache comes on demand: its bytes over the link on top of a step that is not shortened.
    both = run(batch("llama-3-8b", "h100_sxm", weights=1.0, kv=1.0), work, on)
    context = 1024 + 256 / 2
    cache = context * 32 * 2 * 8 * 128 * 2
    more = both.values["decode_step_s"][0] - found.values["decode_step_s"][0]
    assert more == pytest.approx(cache / (0.85 * link), rel=1e-6)


def test_weights_hide_behind_a_step_that_is_long_enough(catalog: Catalog, on: Machines) -> None:
    """A prompt of 8k tokens computes longer than a third of the weights takes to arrive."""
    work = load(catalog, prompt=8192)
    plain = run(batch("llama-3-8b", "gh200_141"), work, on)
    split = run(batch("llama-3-8b", "gh200_141", weights=0.33), work, on)
    assert split.values["prefill_s"] == plain.values["prefill_s"]
    assert split.values["decode_step_s"] > plain.values["decode_step_s"]


def test_experts_wait_for_the_router(catalog: Catalog, on: Machines) -> None:
    work = load(catalog)
    ledger = run(
        batch("mixtral-8x7b", "h100_sxm", weights=1.0, tensor_parallel=2.0), work, on
    ).performance.detail.decode_ledger
    assert ledger.tier is not None
    assert ledger.tier.on_demand[0] > ledger.tier.ahead[0] > 0.0
    assert ledger.tier.bytes[0] <= ledger.touched_bytes[0]


def test_what_leaves_the_device_makes_room_for_requests(catalog: Catalog, on: Machines) -> None:
    degrees = {"tensor_parallel": 2.0, "concurrency": 4096.0}
    work = load(catalog, prompt=4096, output=1024)

    def running(**shares: float) -> float:
        return float(
            run(batch("llama-3-70b", "h100_sxm", **shares, **degrees), work, on).values[
                "running_requests"
            ][0]
        )

    assert running(weights=0.0) < running(weights=0.5) < running(weights=1.0)
    assert running(weights=0.5) < running(weights=0.5, kv=0.5)
    refused = run(batch("llama-3-70b", "h100_sxm", dtype="bf16"), work, on)
    fits = run(batch("llama-3-70b", "h100_sxm", dtype="bf16", weights=0.8), work, on)
    assert not refused.feasible[0]
    assert fits.feasible[0]


def _broken(metrics: Metrics) -> set[str]:
    return {name for name, amount in metrics.violations.items() if amount[0] > 0.0}


def test_rules_are_named(catalog: Catalog, on: Machines) -> None:
    work = load(catalog)
    full = run(batch("deepseek-v3", "h100_sxm", weights=1.0), work, on)
    assert _broken(full) == {"offload_tier_capacity"}  # 690 GB in 256 GB
    assert full.violations["offload_tier_capacity"][0] == pytest.approx(
        full.performance.memory.tier.used(np.ones(1))[0] / 256e9 - 1.0  # type: ignore[union-attr]
    )
    flash = run(batch("deepseek-v3", "h100_sxm", weights=1.0, tier=FLASH), work, on)
    assert "offload_tier_capacity" not in _broken(flash)
    none = run(batch("llama-3-8b", "h100_sxm", weights=0.5, tier=ATTACHED), work, on)
    assert _broken(none) == {"offload_tier_exists"}
    assert np.isinf(none.values["decode_step_s"][0])


def test_tiers_of_chips(catalog: Catalog) -> None:
    def of(chip: str):
        return tiers_of(catalog.chips[chip], catalog.tiers)

    assert (of("h100_sxm")["host"].bytes, of("h100_sxm")["host"].bytes_per_s) == (256e9, 64e9)
    assert of("h100_sxm")["flash"].bytes_per_s == 6.8e9
    grace = of("gh200_141")["host"]
    assert (grace.bytes, grace.bytes_per_s, grace.assumed) == (480e9, 384e9, ())
    assert of("sn40l")["attached"].bytes == 1.5e12
    assert any("host link" in text for text in of("sn40l")["host"].assumed)
    assert set(of("h100_sxm")) == {"host", "flash"}
    assert "host" not in of("m4_max")  # its host's memory is its own
    assert of("wse3")["host"].bytes_per_s == 150e9
    chip = catalog.chips["sn40l"]
    assert find_tier(chip, catalog.tiers, "ddr5 third tier") == "attached"
    assert find_tier(chip, catalog.tiers, None) == "host"
    with pytest.raises(InputError, match="did you mean flash"):
        find_tier(chip, catalog.tiers, "flsh")


def test_the_file_of_defaults_says_what_is_wrong(tmp_path: Path) -> None:
    text = (hardware_dir() / "tiers.yaml").read_text(encoding="utf-8")
    for wrong, right, said in (
        ("value: 0.85", "value: 1.85", "reached.value.*1.85"),
        ("76.8 GB/s", "76.8 GB", "host.bandwidth.value"),
        ("link:", "lnik:", "did you mean link"),
    ):
        path = write(tmp_path, text.replace(wrong, right, 1))
        with pytest.raises(InputError, match=said):
            TierDefaults.load(path)


SPACE = """\
name: tiers
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}
price_basis: rental_3yr
model: llama-3-70b
deployment:
  chip: [h100_sxm, h200_sxm]
  replicas: 1
  tensor_parallel: 1
  weight_dtype: fp8
  kv_dtype: bf16
  concurrency: [1, 32]
  weights_offloaded_percent: [0, 50, 100]
  kv_offloaded_percent: [0, 50]
  offload_tier: [host, flash]
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
"""


def test_a_space_searches_tiers(tmp_path: Path, catalog: Catalog) -> None:
    problem = pose(load_study(write(tmp_path, SPACE)), catalog)
    index = problem.space.unrank(np.arange(problem.space.size))
    assert len(index) == 48
    made, metrics = problem.batch(index), problem.metrics(index)
    assert made.weights_offloaded is not None
    assert made.offload_tier is not None
    assert set(made.weights_offloaded) == {0.0, 0.5, 1.0}
    assert set(made.offload_tier) == {HOST, FLASH}
    nothing = (made.weights_offloaded == 0.0) & (made.kv_offloaded == 0.0)
    flash = made.offload_tier == FLASH
    assert (metrics.values["tier_wait_s"][nothing] == 0.0).all()
    assert (metrics.values["tier_wait_s"][~nothing] > 0.0).all()
    slower = metrics.values["decode_step_s"]
    assert slower[flash & ~nothing].min() > slower[nothing].min()


# Machines whose weights stay in SRAM: what fits, how many chips, what the links take.


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
