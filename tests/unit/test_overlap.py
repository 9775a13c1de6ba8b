"""Two micro-batches that hide the network, caps by attention rank, drafts as an axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.blocks.moe import busiest_rank
from dse.catalog import load_catalog
from dse.physics.ledger import sent_outside, taking_turns
from dse.physics.phases import case_of, decode_step, prefill_step, tokens_per_step
from dse.physics.workload import Speculation
from dse.schema.study import load_study
from tests.helpers import MODELS, deploy, machines, run, workload
from tests.helpers_files import refusal
from tests.helpers_spaces import LOAD as SHORT
from tests.helpers_spaces import space

SGLANG = load_catalog().backends["sglang"]
LOAD = replace(workload(2048, 256), backend=SGLANG)


def wide(chip="h100_sxm", **axes):
    copies = axes.pop("redundant_experts", 32.0)
    batch = deploy("deepseek-v3", chip, **{"data_parallel": 72, "expert_parallel": 72, **axes})
    return replace(batch, redundant_experts=np.full(len(batch), copies))


def taking(share):
    """SGLang whose messages take a share of the arithmetic; of all of it, none can be hidden."""
    return replace(SGLANG, overlap=replace(SGLANG.overlap, decode_taken=share, prefill_taken=share))


def test_turns_of_two_micro_batches() -> None:
    """A layer of both takes max(A, C) + max(A, D) + max(E, D) + max(E, C) of their halves."""
    attention, experts, dispatch, combine = 6.0, 2.0, 4.0, 8.0
    both = (6 + 2 + 4 + 8) - (8 + 6 + 4 + 8) / 2
    device, *turns = (np.array([x]) for x in (attention + experts, experts, dispatch, combine))
    assert taking_turns(device, *turns, 0.0)[0] == both
    # What computes beside messages that take a quarter of the arithmetic ends so much later.
    assert taking_turns(device, *turns, 0.25)[0] == (6 + 3 + 2 + 2) / 2


@settings(max_examples=25, deadline=None)
@given(rows=st.floats(1.0, 400.0), taken=st.floats(0.0, 1.0))
def test_overlap_hides_no_more_than_the_shorter(rows: float, taken: float) -> None:
    """Whatever is hidden, a step takes as long as its network and as its other time alone."""
    batch, load = wide(), replace(LOAD, backend=taking(taken))
    _, found = decode_step(case_of(batch, load, machines()), np.array([rows]))
    _, split = decode_step(
        case_of(batch, replace(load, backend=taking(1.0)), machines()), np.array([rows])
    )
    network, whole = split.ledger.network_s, split.ledger.seconds
    assert found.seconds <= whole
    assert found.seconds >= np.maximum(network, whole - network) * (1.0 - 1e-12)
    assert found.ledger.floor_s <= found.seconds


@pytest.mark.parametrize("given", [None, 1.0])
def test_overlap_never_helps_one_request(given: float | None) -> None:
    batch = wide()
    steps = []
    for overlap in (0.0, given):
        case = case_of(batch, replace(LOAD, network_overlap=overlap), machines())
        steps.append(decode_step(case, np.ones(1))[0])
    assert steps[0] == steps[1]
    alone = [
        run(wide(concurrency=1), replace(LOAD, network_overlap=x)).values for x in (0.0, given)
    ]
    assert alone[0]["tpot_s"] == alone[1]["tpot_s"]


def test_two_batches_where_experts_lie_outside_the_domain() -> None:
    """Not inside one (8 of a server, 72 of an NVL72), not for tensor parallelism, not where ranks
    share an expert, not for dense models."""
    server = deploy(
        "deepseek-v3",
        "h100_sxm",
        tensor_parallel=[1, 1, 16, 1],
        data_parallel=[8, 16, 1, 16],
        expert_parallel=[8, 16, 16, 8],
    )
    found = sent_outside(case_of(server, LOAD, machines()).deployed)
    assert found.tolist() == [False, True, False, False]
    rack = deploy("deepseek-v3", "gb200_nvl72", data_parallel=[64, 128], expert_parallel=[64, 128])
    assert sent_outside(case_of(rack, LOAD, machines()).deployed).tolist() == [False, True]
    dense = deploy("llama-3-70b", "h100_sxm", data_parallel=16, expert_parallel=16)
    assert not sent_outside(case_of(dense, LOAD, machines()).deployed).any()


def test_a_candidate_is_the_same_among_others_that_are_split() -> None:
    """Bit for bit: some of the batch are split, some are not."""
    batch = wide(data_parallel=[8, 16, 72, 72], expert_parallel=[8, 16, 72, 72], tensor_parallel=1)
    rows = np.array([200.0, 150.0, 256.0, 20.0])
    together = case_of(batch, LOAD, machines())
    for step in (decode_step, prefill_step):
        all_s = step(together, 32.0 * rows)[0]
        for i in range(4):
            one = case_of(batch[i : i + 1], LOAD, machines())
            assert step(one, 32.0 * rows[i : i + 1])[0] == all_s[i]


def test_halves_cost_what_they_read_twice() -> None:
    """Without anything hidden, two micro-batches are slower than one, and the floor is not."""
    backend = taking(1.0)
    whole, halves = (
        decode_step(case_of(wide(), load, machines()), np.array([256.0]))[1]
        for load in (replace(LOAD, network_overlap=0.0), replace(LOAD, backend=backend))
    )
    assert halves.seconds > whole.seconds
    assert halves.ledger.floor_s <= whole.ledger.floor_s * (1.0 + 1e-12)
    assert halves.ledger.bytes > whole.ledger.bytes


@given(
    mean=st.floats(1.0, 1e5),
    ranks=st.sampled_from([8, 32, 72, 144]),
    skew=st.floats(0.0, 2.0),
    more=st.floats(0.0, 256.0),
)
def test_more_copies_never_raise_the_busiest_load(mean, ranks, skew, more) -> None:
    few, many = (
        busiest_rank(np.array([mean]), np.array([float(ranks)]), np.array([256.0 + 9.0 * r]), skew)
        for r in (0.0, more)
    )
    assert many <= few


@pytest.mark.parametrize("ranks", [1, 8])
def test_the_cap_counts_requests_of_an_attention_rank(ranks: int) -> None:
    degrees = {"data_parallel": ranks, "expert_parallel": ranks, "tensor_parallel": 8 // ranks}
    batch = deploy("deepseek-v3", "b200_sxm", **degrees, concurrency=512)
    found = run(batch, replace(LOAD, max_running_requests=16.0)).performance
    assert found.running_per_instance == 16.0 * ranks
    own = replace(batch, max_running_requests=np.array([8.0]))
    assert run(own, LOAD).performance.running_per_instance == 8.0 * ranks


@pytest.mark.parametrize(
    "pools",
    [{}, {"serving": "disaggregated", "prefill_dp": 8, "prefill_ep": 8, "prefill_workers": 8}],
)
def test_a_cap_that_binds_is_named(pools) -> None:
    """Of one pool, and of the one that decodes."""
    point = {"dp": 8, "ep": 8, "concurrency": 4096, "backend": "sglang", "prompt_tokens": 500}
    bound, free = (
        dse.estimate("deepseek-v3", "b200_sxm", **point, **pools, max_running_requests=cap).assumed
        for cap in (16, 100_000)
    )
    assert any("the cap of 16 running requests" in text for text in bound)
    assert not any("the cap of" in text for text in free)


def test_a_point_says_whether_drafts_pay() -> None:
    """One drafted token that is nearly always accepted pays for one request, one that is refused
    does not; what is published is said."""
    for acceptance, says in ((0.9, "drafts on"), (0.0, "drafts off"), (None, "as published")):
        found = dse.estimate(
            "deepseek-v3", "b200_sxm", tp=8, concurrency=1, draft_tokens=1, acceptance=acceptance
        )
        assert any(says in text for text in found.assumed)


def drafting(tokens, gain=None, load=LOAD):
    batch = deploy("deepseek-v3", "b200_sxm", tensor_parallel=8, concurrency=[1.0, 64.0, 2048.0])
    some = np.full(3, float(tokens))
    gains = some + 1.0 if gain is None else np.full(3, gain)
    return run(replace(batch, draft_tokens=some, draft_gain=gains), load).values


def test_no_drafts_are_the_plain_model_bit_for_bit() -> None:
    batch = deploy("deepseek-v3", "b200_sxm", tensor_parallel=8, concurrency=[1.0, 64.0, 2048.0])
    plain, none = run(batch, LOAD).values, drafting(0, 1.0)
    for name in ("tpot_s", "ttft_s", "output_tokens_per_s", "memory_bytes_per_chip"):
        assert (plain[name] == none[name]).all()


@settings(max_examples=8, deadline=None)
@given(tokens=st.integers(1, 8))
def test_drafts_that_are_never_accepted_never_help(tokens: int) -> None:
    load = replace(LOAD, speculation=Speculation(acceptance=0.0))
    refused, plain = drafting(tokens, load=load), drafting(0, 1.0)
    assert (refused["tpot_s"] >= plain["tpot_s"]).all()
    assert (refused["output_tokens_per_s"] <= plain["output_tokens_per_s"]).all()
    assert (refused["memory_weights_bytes_per_chip"] > plain["memory_weights_bytes_per_chip"]).all()


def test_drafts_as_an_axis_are_those_of_the_workload() -> None:
    """One given by candidate, one by the workload: the same numbers."""
    load = replace(LOAD, speculation=Speculation(acceptance=0.8))
    batch = deploy("deepseek-v3", "b200_sxm", tensor_parallel=8, concurrency=[1.0, 64.0, 2048.0])
    by_load = run(batch, replace(LOAD, speculation=Speculation(2, 0.8))).values
    assert (drafting(2, load=load)["tpot_s"] == by_load["tpot_s"]).all()


def drafts(model="deepseek-v3", tokens=(0, 1), **more):
    server = {"chip": "b200_sxm", "tensor_parallel": 8, "weight_dtype": "fp8"}
    deployed = {**server, "draft_tokens": [*tokens]}
    return load_study(
        space(deployed, model=model, workload={**SHORT, "backend": "current", **more})
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tokens": (1, 2)}, "0 among the values"),
        ({"model": "llama-3-70b"}, "acceptance in the workload"),
        ({"draft_tokens": 2, "acceptance": 0.5}, "in the workload or in the deployment"),
    ],
)
def test_a_space_that_cannot_draft_says_why(changed, says) -> None:
    assert says in str(refusal(drafts, **changed))


def test_acceptance_of_the_user_stands_for_a_model_without_figures() -> None:
    drafts(model="llama-3-70b", acceptance=0.7)


# Speculative decoding and cached prefixes.


SERVED = workload(2048, 512)


def values(load, model="llama-3-70b", **axes):
    axes = {"tensor_parallel": 8, "concurrency": [1, 8, 64, 512]} | axes
    return run(deploy(model, "h200_sxm", **axes), load).values


def test_expected_tokens_are_those_of_a_simulation_of_drafts() -> None:
    """Draw drafts until the first that is refused; the model's own token follows."""
    rng = np.random.default_rng(1)
    for drafted, acceptance in ((1, 0.5), (3, 0.7), (7, 0.9)):
        accepted = rng.random((200_000, drafted)) < acceptance
        tokens = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
        found = tokens_per_step(drafted, acceptance)
        assert found == pytest.approx(tokens.mean(), rel=0.01)


def test_accepted_drafts_help_small_batches_most() -> None:
    plain = values(SERVED)["tpot_s"]
    drafted = values(replace(SERVED, speculation=Speculation(3, 0.8)))["tpot_s"]
    gain = plain / drafted
    assert gain[0] > 2.0
    assert gain[0] > gain[2]


@pytest.mark.parametrize("model", MODELS)
def test_a_module_weighs_about_one_layer(model) -> None:
    plain = values(SERVED, model, tensor_parallel=4, concurrency=1)
    drafted = values(
        replace(SERVED, speculation=Speculation(1, 0.7)), model, tensor_parallel=4, concurrency=1
    )
    batch = deploy(model, "h200_sxm", tensor_parallel=4)
    weights = "memory_weights_bytes_per_chip"
    more = drafted[weights][0] - plain[weights][0]
    assert 0.3 < more / (plain[weights][0] / batch.layers[0]) < 1.7


def test_a_cached_prefix_saves_its_prefill_and_no_memory() -> None:
    cold, warm = values(SERVED), values(replace(SERVED, prefix_hit_rate=0.75))
    assert (warm["prefill_s"] < 0.4 * cold["prefill_s"]).all()
    assert (warm["ttft_s"] < cold["ttft_s"]).all()
    assert (warm["output_tokens_per_s"] > cold["output_tokens_per_s"] * 0.999).all()
    assert warm["decode_step_s"][0] == cold["decode_step_s"][0]
    assert (warm["memory_bytes_per_chip"] == cold["memory_bytes_per_chip"]).all()


def test_the_rest_of_a_prompt_attends_to_what_is_cached() -> None:
    """A quarter of a prompt of 128k costs more than a prompt of 32k."""
    rest = values(replace(workload(131_072, 64), prefix_hit_rate=0.75), concurrency=1)
    short = values(workload(32_768, 64), concurrency=1)
    assert rest["prefill_s"][0] > 1.2 * short["prefill_s"][0]
