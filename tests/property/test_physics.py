"""Laws that hold for every model and deployment, at random configurations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.blocks.moe import distinct_experts
from dse.catalog import load_catalog
from dse.physics.deployed import Deployed
from dse.physics.machines import compile_machines
from dse.physics.step import TILE_ROWS, Step, Work
from dse.problem.evaluate import evaluate
from dse.space.candidates import CandidateBatch
from tests.helpers import CHIPS, MODELS, deploy, machines, run, scaled, workload

ON = machines()
ROUNDING = 1e-12

degrees = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def deployments(draw, sizes: int = 1, **fixed) -> CandidateBatch:
    """A random model on a random deployment; `fixed` axes may hold one value per copy."""
    model = draw(st.sampled_from(MODELS))
    tp, dp = draw(degrees), draw(st.sampled_from([1, 2, 8]))
    axes = {
        "tensor_parallel": tp,
        "data_parallel": dp,
        "expert_parallel": draw(st.sampled_from([1, tp * dp])),
        "pipeline_parallel": draw(st.sampled_from([1, 2, 4])),
        "replicas": draw(st.sampled_from([1, 3])),
        "concurrency": draw(st.sampled_from([1, 4, 32, 256, 2048])),
    }
    axes.update(fixed)
    chip = draw(st.sampled_from(CHIPS))
    weights = draw(st.sampled_from([None, "fp8"]))
    kv = draw(st.sampled_from(["bf16", "fp8"]))
    return deploy(model, chip, weight_dtype=weights, kv_dtype=kv, repeat=sizes, **axes)


def decode(batch: CandidateBatch, rows, context, on=ON) -> Step:
    n = len(batch)
    work = Work(
        decode_rows=np.broadcast_to(np.asarray(rows, float), n),
        context=np.broadcast_to(np.asarray(context, float), n),
        prefill_rows=np.zeros(n),
        prompt_tokens=np.ones(n),
    )
    return Step(Deployed(batch, on), work)


def prefill(batch: CandidateBatch, tokens, on=ON) -> Step:
    n = len(batch)
    rows = np.broadcast_to(np.asarray(tokens, float), n)
    zeros = np.zeros(n)
    return Step(Deployed(batch, on), Work(zeros, zeros, prefill_rows=rows, prompt_tokens=rows))


@given(deployments(), st.sampled_from(["bandwidth", "flops", "links"]), st.floats(1.0, 8.0))
def test_a_step_never_gets_slower_on_better_hardware(batch, field, factor) -> None:
    better = scaled(ON, field, factor)
    for step in (lambda on: decode(batch, 32, 4096, on), lambda on: prefill(batch, 2048, on)):
        assert step(better).seconds <= step(ON).seconds * (1 + ROUNDING)


@given(deployments(sizes=2), st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 100_000))
def test_a_step_never_gets_faster_with_batch(batch, rows, more, context) -> None:
    seconds = decode(batch, [rows, rows + more], context).seconds
    assert seconds[1] >= seconds[0] * (1 - ROUNDING)


@given(deployments(sizes=2), st.integers(1, 512), st.integers(1, 100_000), st.integers(0, 100_000))
def test_a_step_never_gets_faster_with_context(batch, rows, context, more) -> None:
    seconds = decode(batch, rows, [context, context + more]).seconds
    assert seconds[1] >= seconds[0] * (1 - ROUNDING)


@given(deployments(sizes=2), st.integers(16, 65_536), st.integers(0, 65_536))
def test_prefill_never_gets_faster_with_the_prompt(batch, tokens, more) -> None:
    seconds = prefill(batch, [tokens, tokens + more]).seconds
    assert seconds[1] >= seconds[0] * (1 - ROUNDING)


@given(deployments(), st.integers(1, 4096), st.integers(1, 100_000))
def test_a_step_is_never_under_its_floor(batch, rows, context) -> None:
    for step in (decode(batch, rows, context), prefill(batch, context)):
        assert step.ledger.floor_s <= step.seconds * (1 + ROUNDING)


@given(deployments(pipeline_parallel=[1, 2, 4, 8]), st.integers(1, 512), st.integers(1, 32_768))
def test_stages_never_shorten_the_path_of_a_token(batch, rows, context) -> None:
    seconds = decode(batch, rows, context).seconds
    assert (np.diff(seconds) >= -ROUNDING * seconds[:-1]).all()


@given(deployments(), st.floats(1.0, 4.0), st.sampled_from([256, 4096, 32_768]))
def test_more_memory_never_admits_fewer_requests(batch, factor, prompt) -> None:
    load = workload(prompt, 512)
    before = run(batch, load).performance.memory.admitted
    after = run(batch, load, scaled(ON, "capacity", factor)).performance.memory.admitted
    assert after >= before


def saturated(batch: CandidateBatch, prompt: float, factor: float) -> tuple[float, float, float]:
    """Tokens a second of a full instance as it is and with `factor` times the memory, and requests
    of a micro-batch on an attention rank with that."""
    load = workload(prompt, 512)
    before = run(batch, load).values["output_tokens_per_s"][0]
    after = run(batch, load, scaled(ON, "capacity", factor))
    rank = np.ceil(after.performance.running_per_instance / batch.data_parallel)
    rows = rank / batch.pipeline_parallel
    return before, after.values["output_tokens_per_s"][0], float(rows[0])


@given(deployments(concurrency=1e6), st.floats(1.0, 4.0), st.sampled_from([256, 4096, 32_768]))
def test_more_memory_never_lowers_throughput_where_kernels_do_not_pad(
    batch, factor, prompt
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dse.physics.step.computed_rows", lambda rows: rows)
        before, after, _ = saturated(batch, prompt, factor)
    assert after >= before * (1 - 1e-9)


@given(deployments(concurrency=1e6), st.floats(1.0, 4.0), st.sampled_from([256, 4096, 32_768]))
@example(deploy("llama-3-8b", CHIPS[0], concurrency=1e6), 1.21, 256)
@example(deploy("llama-3-8b", "gb300_nvl72", tensor_parallel=2, concurrency=1e6), 2.0, 4096)
def test_more_memory_lowers_throughput_by_a_tile_at_most(batch, factor, prompt) -> None:
    """A scheduler admits all that fits, and one request beyond a whole tile of 128 rows makes a
    GEMM compute up to 64 rows more (`dse.physics.step.computed_rows`)."""
    before, after, rows = saturated(batch, prompt, factor)
    full = max(rows, TILE_ROWS)
    assert after >= before * full / (full + TILE_ROWS / 2.0)


def test_a_request_beyond_a_tile_costs_throughput() -> None:
    """The step that the law above allows for: 385 requests are slower than 384."""
    batch = deploy("llama-3-8b", "h100_sxm", concurrency=[384, 385])
    tokens = run(batch, workload(256, 128)).values["output_tokens_per_s"]
    assert 384 / (384 + 64) < tokens[1] / tokens[0] < 1.0


POWERS = [2.0**k for k in range(14)]


@given(
    deployments(concurrency=POWERS, replicas=1),
    st.sampled_from([128, 2048, 16_384]),
    st.sampled_from(["static", "continuous"]),
)
def test_throughput_at_twice_the_batch_is_at_least_that_at_the_batch(
    batch, prompt, serving
) -> None:
    roomy = scaled(ON, "capacity", 1e6)
    throughput = run(batch, workload(prompt, 512, serving), roomy).values["output_tokens_per_s"]
    assert (throughput[1:] >= 0.98 * throughput[:-1]).all()


@given(st.integers(1, 512), st.integers(1, 16), st.integers(1, 5000))
def test_distinct_experts_lie_between_their_bounds(experts, top_k, tokens) -> None:
    top_k = min(top_k, experts)
    e, k, t = (np.array([float(v)]) for v in (experts, top_k, tokens))
    distinct = distinct_experts(e, k, t)[0]
    assert top_k * (1 - 1e-9) <= distinct <= min(experts, tokens * top_k) * (1 + 1e-9)


def test_distinct_experts_match_a_simulation_of_uniform_routing() -> None:
    rng = np.random.default_rng(1)
    draws = [
        len(np.unique([rng.choice(64, 6, replace=False) for _ in range(12)])) for _ in range(400)
    ]
    expected = distinct_experts(np.array([64.0]), np.array([6.0]), np.array([12.0]))[0]
    assert np.mean(draws) == pytest.approx(expected, rel=0.01)


@settings(max_examples=20)
@given(st.data())
def test_a_candidate_does_not_depend_on_its_batch(data) -> None:
    """evaluate(batch)[i] equals evaluate(batch[i:i+1]) bit for bit."""
    serving = data.draw(st.sampled_from(["continuous", "static", "offline"]))
    load = workload(1000, 300, serving)
    batch = data.draw(
        deployments(
            concurrency=[1, 7, 64, 1000, 33],
            tensor_parallel=[1, 2, 8, 4, 16],
            replicas=[1, 2, 1, 3, 1],
        )
    )
    whole = run(batch, load, ON)
    for i in range(len(batch)):
        alone = run(batch[i : i + 1], load, ON)
        for table in ("values", "violations"):
            for name, array in getattr(whole, table).items():
                assert array[i].tobytes() == getattr(alone, table)[name][0].tobytes(), name


def test_models_of_different_kinds_share_a_batch_without_touching_each_other() -> None:
    """Padding a dense model with an empty expert block changes none of its bits."""
    from dse.schema.model_catalog import resolve_model
    from dse.space.batches import DEPLOYMENT_AXES, batch_of

    models = [resolve_model(name) for name in MODELS]
    n = len(models)
    on = compile_machines(load_catalog(), ["h200_sxm"])
    ones = dict.fromkeys(DEPLOYMENT_AXES, np.full(n, 1.0)) | {"tensor_parallel": np.full(n, 8.0)}
    mixed = batch_of(models, np.zeros(n, np.intp), [None] * n, ["bf16"] * n, ones)
    together = evaluate(mixed, workload(512, 128), on).values
    for i, model in enumerate(models):
        one = {axis: values[:1] for axis, values in ones.items()}
        single = batch_of([model], np.zeros(1, np.intp), [None], ["bf16"], one)
        alone = evaluate(single, workload(512, 128), on).values
        for name, array in together.items():
            assert array[i].tobytes() == alone[name][0].tobytes(), (model.id, name)
