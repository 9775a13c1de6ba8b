"""What moves between the ranks of a mixture of experts with attention data-parallel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.physics.deployed import Deployed
from dse.physics.step import Step, Work
from dse.space.candidates import Floats
from tests.helpers import deploy, machines

ON = machines()
EXCHANGE = ("gather tokens, scatter outputs", "dispatch to experts", "combine from experts")
LAYERS, HIDDEN, TOP_K = 58, 7168, 8  # DeepSeek-V3's layers of experts


def step_of(rows: float, tp: float, dp: float, ep: list[float], chip: str = "gb200_nvl72") -> Step:
    """A decode step of `rows` requests on each attention rank, one candidate per `ep`."""
    batch = deploy(
        "deepseek-v3", chip, tensor_parallel=tp, data_parallel=dp, expert_parallel=ep,
        weight_dtype="fp8",
    )  # fmt: skip
    n = len(ep)
    work = Work(
        decode_rows=np.full(n, rows),
        context=np.full(n, 1000.0),
        prefill_rows=np.zeros(n),
        prompt_tokens=np.ones(n),
    )
    return Step(Deployed(batch, ON), work, keep=True)


def exchanged_s(step: Step) -> Floats:
    """(n,) seconds of moving tokens to experts and outputs back."""
    assert step.ledger.entries is not None
    parts = [entry.network_s for entry in step.ledger.entries if entry.name in EXCHANGE]
    return np.sum(parts, axis=0)


@given(
    rows=st.integers(1, 512),
    degrees=st.sampled_from([(1.0, 8.0), (4.0, 8.0), (8.0, 8.0), (2.0, 4.0)]),
    chip=st.sampled_from(["gb200_nvl72", "h200_sxm"]),
)
def test_ranks_that_share_experts_gather_every_token(rows, degrees, chip) -> None:
    """A shared expert needs the token on all its ranks, so splitting experts further over ranks
    does not make less travel: from one expert-parallel rank to half of the group it is the same."""
    tp, dp = degrees
    shared = [2.0**k for k in range(int(np.log2(tp * dp)))]
    seconds = exchanged_s(step_of(float(rows), tp, dp, shared, chip))
    assert (seconds == seconds[0]).all()


def test_over_the_hosts_lanes_no_all_to_all_serves_whole_experts() -> None:
    """Every token goes to every card, 16 bits there and back: 7/8 of 8 x 64 tokens twice a layer,
    however few experts a token has on a card; on NVLink whole experts get what is theirs."""
    cards = step_of(64.0, 1.0, 8.0, [1.0, 8.0], "rtx_pro_6000")
    seconds = exchanged_s(cards)
    assert seconds[0] == seconds[1]
    least = 2 * LAYERS * 7 * 64 * HIDDEN * 2.0
    assert cards.ledger.link_bytes[1] >= least * (1 - 1e-12)
    linked = exchanged_s(step_of(64.0, 1.0, 8.0, [1.0, 8.0], "h200_sxm"))
    assert linked[0] != linked[1]


@given(rows=st.integers(1, 512), ep=st.sampled_from([2.0, 4.0, 8.0, 16.0]))
def test_a_token_reaches_every_rank_of_its_experts(rows, ep) -> None:
    """Its bytes over the links are no fewer than one copy to each of min(top_k, ep) x (group / ep)
    ranks, and as many partial outputs back (8 x 4 chips in one domain)."""
    group = 32.0
    step = step_of(float(rows), 4.0, 8.0, [ep])
    ranks = min(TOP_K, ep) * group / ep
    own = rows / 4.0  # tokens of a rank, over its 4 chips
    # Both ways in 16 bits; of the ranks, one of `group` is the sender itself.
    least = 2 * LAYERS * own * HIDDEN * 2.0 * ranks * (group - 1) / group
    assert step.ledger.link_bytes[0] >= least * (1 - 1e-12)


def test_whole_experts_are_sent_one_copy_a_rank() -> None:
    """With expert parallelism over the whole group: 8 copies of 8-bit numbers out (and their
    scales, some 0.1%), of 16-bit numbers back, times what the busiest rank gets over the mean of
    64 x 8 tokens: 256 experts on 32 ranks, chosen with a coefficient of variation of 1."""
    busiest = 1.0 + np.sqrt(2.0 * np.log(32.0) * (1.0 + 512 * 32 / 256) / 512)
    sent = LAYERS * 64 * TOP_K * HIDDEN * (1.0 + 2.0) * busiest * 31 / 32
    assert step_of(64.0, 1.0, 32.0, [32.0]).ledger.link_bytes[0] == pytest.approx(sent, rel=1e-3)


def test_ranks_with_one_expert_more_set_the_pace():
    """256 experts on 72 ranks: some hold four. Of even routing the busiest has the tokens of four,
    as each of 64 ranks has for as many tokens in all."""
    flops = []
    for ranks in (64, 72):
        batch = deploy("deepseek-v3", "h200_sxm", data_parallel=ranks, expert_parallel=ranks)
        batch = replace(batch, routing_skew=np.zeros(1))
        ones, rows = np.ones(1), np.array([64e6 / ranks])  # so many that chance is nothing
        work = Work(rows, context=ones, prefill_rows=0.0 * ones, prompt_tokens=ones)
        one = Step(Deployed(batch, ON), work, keep=True)
        assert one.ledger.entries is not None
        flops += [e.flops[0] for e in one.ledger.entries if e.name == "routed experts"]
    assert flops[1] == pytest.approx(flops[0], rel=1e-2)
