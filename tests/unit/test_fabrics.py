"""Fabrics: closed forms by topology, levels, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erf

from dse.catalog import load_catalog, with_own_chips
from dse.errors import InputError
from dse.physics.collectives import (
    Group,
    expected_half_normal_maximum,
    expected_maximum,
    point_to_point,
)
from dse.physics.deployed import Deployed
from dse.physics.fabrics import Algorithm, Fabric, algorithms, axes, compile_fabric
from dse.physics.machines import Machines, compile_machines, with_jitter
from dse.physics.phases import case_of, decode_step
from dse.physics.step import Step, Work
from dse.schema.derive import derive
from dse.schema.system import FabricLevel
from dse.space.candidates import Floats
from tests.helpers import CHIPS, deploy, machines, run, workload

ON = machines()
CATALOG = load_catalog()
KIB, MIB = 1024.0, 1024.0**2
TOPOLOGIES = ("switched", "full_mesh", "ring", "torus_2d", "torus_3d", "dragonfly", "pcie")
GATHERED = {"two-shot": "direct", "halving and doubling": "recursive doubling"}

powers = st.sampled_from([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0])


def level(topology: str, **fields) -> FabricLevel:
    """Links of 600 GB/s in all, 100 GB/s a pair, in a domain of 256 chips."""
    pair = 100e9 if topology in ("ring", "torus_2d", "torus_3d") else None
    plain = FabricLevel("links", topology, 256, 600e9, pair, 1e-6, 0.0)  # pyright: ignore
    return replace(plain, **fields)


def named(level: FabricLevel, collective: str, n: float) -> dict[str, Algorithm]:
    return {one.name: one for one in algorithms(level, collective, np.array([n]))}


def fabric(chip: str, *levels: FabricLevel) -> Fabric:
    """The kernels of a chip on other levels."""
    row = CATALOG.chip(chip)
    system = replace(CATALOG.systems[row.system], levels=levels)
    return compile_fabric([system], [CATALOG.efficiencies[row.efficiency]])


def test_without_peer_to_peer_a_chip_gets_what_was_measured_so() -> None:
    """`dse catalog chips derive CHIP --set topology=through_host`: pairs as before, 4 and 8 cards
    at a fraction of their link; the bytes of one card, 2 (n - 1) / n of 64 MiB, over the time."""
    rates = {}
    for parent in ("l40s", "rtx_pro_6000"):
        own = derive(CATALOG, parent, ["topology=through_host"])
        both = with_own_chips(CATALOG, [own])
        on = compile_machines(both, [parent, own.chip.id], None).fabric
        for code, how in enumerate(("direct", "through host")):
            for n in (2.0, 4.0, 8.0):
                took = seconds(group(on, n, code).all_reduce(np.array([64 * MIB])))
                rates[parent, how, n] = 2 * (n - 1) / n * 64 * MIB / took / 1e9
    assert rates["l40s", "direct", 4.0] == pytest.approx(20, rel=0.1)
    assert rates["l40s", "direct", 8.0] == pytest.approx(20, rel=0.1)
    assert rates["l40s", "through host", 2.0] == pytest.approx(20, rel=0.1)  # measured
    assert rates["l40s", "through host", 4.0] == pytest.approx(5.1, rel=0.1)
    assert rates["l40s", "through host", 8.0] == pytest.approx(1.5, rel=0.2)
    assert rates["rtx_pro_6000", "through host", 8.0] < rates["rtx_pro_6000", "direct", 8.0] / 3


def group(on: Fabric, n: float, code: int = 0) -> Group:
    return Group(on, np.array([code]), np.array([n]))


def seconds(cost) -> float:
    return float((cost.latency_s + cost.transfer_s)[0])


@pytest.mark.parametrize("topology", TOPOLOGIES)
@given(n=powers)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(topology: str, n: float) -> None:
    """Of every algorithm but two: one-shot sends everything to everyone in one step, and a network
    that adds sends both ways at the same time."""
    of = level(topology, in_network_reduction=True)
    gathers = named(of, "all_gather", n)
    for name, reduce in named(of, "all_reduce", n).items():
        if name in ("one-shot", "in network"):
            continue
        gather = gathers[GATHERED.get(name, name)]
        for part in ("steps", "hops", "peers", "wire"):
            assert getattr(reduce, part)[0] == 2 * getattr(gather, part)[0], (name, part)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@given(n=powers)
def test_no_chip_receives_a_gather_faster_than_its_links(topology: str, n: float) -> None:
    for one in algorithms(level(topology), "all_gather", np.array([n])):
        assert one.wire[0] >= (n - 1) / n * (1 - 1e-12)


def test_steps_of_the_textbook() -> None:
    """Thakur et al. 2005, section 4: n - 1 steps of a ring, log2 n of recursive doubling."""
    of = named(level("switched"), "all_gather", 64.0)
    assert (of["ring"].hops[0], of["recursive doubling"].hops[0], of["direct"].hops[0]) == (
        63,
        6,
        1,
    )
    assert named(level("switched"), "all_reduce", 64.0)["halving and doubling"].hops[0] == 12


def test_a_pair_of_a_mesh_has_one_link() -> None:
    of = level("full_mesh", size=8, bytes_per_s_per_direction=700e9)
    pair = named(of, "all_gather", 2.0)["direct"].wire[0]
    all_eight = named(of, "all_gather", 8.0)["direct"].wire[0]
    assert pair == pytest.approx(0.5 * 7)  # half of the bytes over one of seven links
    assert all_eight == pytest.approx(7 / 8)
    code = CHIPS.index("mi300x")
    cost = point_to_point(ON.fabric, np.array([code]), np.array([64e9]), np.ones(1))[0]
    assert cost.transfer_s[0] == pytest.approx(1.0)  # 64 GB/s of the 448 that a chip has


@given(n=st.sampled_from([16.0, 64.0, 128.0, 256.0]))
def test_an_all_to_all_crosses_the_middle_of_a_torus(n: float) -> None:
    """Half of the chips send half of their bytes over the links that cut the longest axis."""
    for topology in ("ring", "torus_2d", "torus_3d"):
        of = level(topology)
        lengths, closed = axes(of, np.array([n]))
        longest = max(length[0] for length in lengths)
        links = n / longest * (2 if closed[0] else 1)
        bound = n / 2 * 0.5 / (links * 100e9)
        found = named(of, "all_to_all", n)["direct over the axes"].wire[0] / 600e9
        assert found >= bound * (1 - 1e-12)


def test_a_cube_of_a_torus_is_that_of_the_scaling_book() -> None:
    """A gather over three closed axes uses six links: V / (6 x 90 GB/s); 2 hops an axis of 4."""
    of = level("torus_3d", size=8960, bytes_per_s_per_direction=540e9, bytes_per_s_per_pair=90e9)
    ring = named(of, "all_gather", 64.0)["ring per axis"]
    assert ring.wire[0] == pytest.approx(63 / 64)
    assert ring.hops[0] == 6
    line = named(of, "all_gather", 4.0)["ring per axis"]  # 2 x 2, open: one link an axis
    assert line.wire[0] == pytest.approx(3 / 4 * 3)


def test_a_dragonfly_crosses_three_routers_at_most() -> None:
    """Kim et al. 2008: p = 4 makes groups of 32 and 1,056 chips in all."""
    of = level("dragonfly", size=1056)
    hops = [named(of, "all_to_all", n)["direct"].hops[0] for n in (2.0, 16.0, 1056.0)]
    assert hops == [1, 2, 3]


def test_stages_on_groqs_dragonfly_hand_over_on_one_link() -> None:
    """14 MB from chip to chip over one link of 14 GB/s, not over all seven."""
    groq = CATALOG.chips["groq_lpu_v1"]
    of = compile_fabric([CATALOG.systems[groq.system]], [CATALOG.efficiencies[groq.efficiency]])
    inside = point_to_point(of, np.array([0]), np.array([14e6]), np.array([1.0]))[0]
    assert inside.transfer_s[0] == pytest.approx(1e-3)


@given(n=st.floats(3, 4096))
def test_a_network_that_adds_moves_long_messages_no_slower_than_a_ring(n: float) -> None:
    of = named(level("switched", in_network_reduction=True), "all_reduce", n)
    assert of["in network"].wire[0] <= of["ring"].wire[0] + 1e-12
    assert of["in network"].hops[0] <= of["ring"].hops[0]


# 8 GiB or more over n chips: bus bandwidth with NVLS over that without, and the wire of both
# (github:stas00/ml-engineering network/README.md).
@pytest.mark.parametrize(
    ("link", "measured"),
    [
        (450e9, {5: 414.2, 6: 435.6, 7: 460.0, 8: 473.1}),  # H200
        (900e9, {6: 778.2, 7: 811.2, 8: 838.0}),  # B200
    ],
)
def test_bus_bandwidth_in_the_switch_grows_with_the_group_as_measured(link, measured) -> None:
    """One share of the link explains every group size: within 2.5%."""
    of = level("switched", in_network_reduction=True, bytes_per_s_per_direction=link)
    reached = [
        bus
        * 1e9
        / link
        * named(of, "all_reduce", float(n))["in network"].wire[0]
        / (2 * (n - 1) / n)
        for n, bus in measured.items()
    ]
    assert max(reached) / min(reached) < 1.025


def test_an_nvl72_is_extrapolated_to_what_was_measured() -> None:
    """850 GB/s of bus bandwidth over 72 chips with SHARP, 680 without (NVIDIA GTC25 s72583): the
    kernels were measured up to 8."""
    for supported, measured in ((True, 850e9), (False, 680e9)):
        first, last = CATALOG.systems["gb200_nvl72"].levels
        on = fabric("gb200_nvl72", replace(first, in_network_reduction=supported), last)
        took = seconds(group(on, 72.0).all_reduce(np.array([8 * 1024.0**3])))
        assert 2 * 71 / 72 * 8 * 1024**3 / took == pytest.approx(measured, rel=0.07)


@pytest.mark.parametrize(
    "chip", ["h100_sxm", "gb200_nvl72", "mi300x", "tpu_v5p", "ascend_910c_cm384"]
)
@given(n=st.sampled_from([2.0, 6.0, 8.0, 16.0, 64.0, 72.0, 512.0]), size=st.floats(1, 1e10))
def test_time_grows_with_the_bytes(chip: str, n: float, size: float) -> None:
    code = CHIPS.index(chip)
    pair = Group(ON.fabric, np.array([code, code]), np.array([n, n]))
    for call in (pair.all_reduce, pair.all_gather, pair.all_to_all):
        latency, transfer, _ = call(np.array([size, 1.5 * size]))
        few, more = latency + transfer
        assert few < more


def test_a_group_of_one_chip_sends_nothing() -> None:
    for code in range(len(CHIPS)):
        one = group(ON.fabric, 1.0, code)
        for call in (one.all_reduce, one.all_gather, one.all_to_all):
            cost = call(np.array([MIB]))
            assert seconds(cost) == 0.0
            assert cost.sent.inside_bytes()[0] == cost.sent.outside_bytes()[0] == 0.0


def three_levels() -> tuple[FabricLevel, ...]:
    box = level("switched", size=8)
    rack = level("switched", size=64, bytes_per_s_per_direction=200e9, latency_s=2e-6)
    cluster = level("switched", size=None, bytes_per_s_per_direction=50e9, latency_s=5e-6)
    return box, rack, cluster


def test_a_group_pays_for_the_levels_that_it_spans() -> None:
    box, rack, cluster = three_levels()
    deep, flat = fabric("h100_sxm", box, rack, cluster), fabric("h100_sxm", box, cluster)
    bytes_ = np.array([64 * MIB])
    assert seconds(group(deep, 8.0).all_reduce(bytes_)) == seconds(
        group(flat, 8.0).all_reduce(bytes_)
    )
    in_a_rack = seconds(group(deep, 64.0).all_reduce(bytes_))
    assert in_a_rack < seconds(group(flat, 64.0).all_reduce(bytes_))
    beyond = group(deep, 256.0)
    assert [domains[0] for domains in beyond.domains] == [32.0, 4.0]
    latency, transfer, sent = beyond.all_reduce(bytes_)
    assert seconds(beyond.all_reduce(bytes_)) > in_a_rack
    # The slowest level sets a long message; an eighth of it goes to the rack, a 64th beyond.
    box_s = 2 * 7 / 8 * deep.all_reduce.s_per_byte[0, 3]
    parts = [box_s, 2 * 7 / 8 / 8 / (0.74 * 200e9), 2 * 3 / 4 / 64 / (0.74 * 50e9)]
    assert transfer[0] == pytest.approx(bytes_[0] * max(parts), rel=1e-9)
    assert sent.outside_bytes()[0] == pytest.approx(bytes_[0] * (2 * 7 / 8 / 8 + 2 * 3 / 4 / 64))
    assert latency[0] > (2 * 3 * 12 + 2 * 2 * 15) * 1e-6


def test_a_level_that_joins_nothing_costs_nothing() -> None:
    box, _, cluster = three_levels()
    idle = replace(box, size=9, latency_s=1e-3)  # holds one box
    plain, deep = fabric("h100_sxm", box, cluster), fabric("h100_sxm", box, idle, cluster)
    sizes = np.array([1.0, 4.0, 8.0])
    for name in ("all_reduce", "all_gather", "all_to_all"):
        both = [
            getattr(Group(on, np.zeros(3, dtype=np.intp), sizes), name)(np.full(3, MIB))
            for on in (plain, deep)
        ]
        assert np.array_equal(both[0].latency_s, both[1].latency_s)
        assert np.array_equal(both[0].transfer_s, both[1].transfer_s)


def test_expert_tokens_leave_each_level_once() -> None:
    """8 experts over 4 racks of 8 boxes: of 8 copies as many leave as there are other boxes of the
    rack, and other racks, among them."""
    from dse.blocks.moe import leaving_share

    on = fabric("h100_sxm", *three_levels())
    chosen = np.array([8.0])
    across = group(on, 256.0)
    leaving = [leaving_share(domains, chosen, chosen) for domains in across.domains]
    sent = across.all_to_all(np.array([8.0]), leaving).sent
    boxes = 7 * (1 - (1 - 1 / 32) ** 8)
    racks = 3 * (1 - (1 - 1 / 4) ** 8)
    assert sent.outside_bytes()[0] == pytest.approx(boxes + racks)
    assert sent.inside_bytes()[0] == pytest.approx(8 * 7 / 256)


# All-reduce of B200 over 4 nodes of 8 on EFA (github:stas00/ml-engineering network/README.md): bus
# bandwidth in GB/s by message; 39 us of it are the launch from Python. The first two opened
# connections and the third was still slow.
EFA = {
    256 * KIB: 1.33,
    512 * KIB: 2.84,
    MIB: 5.37,
    2 * MIB: 10.38,
    4 * MIB: 18.9,
    8 * MIB: 35.12,
    16 * MIB: 64.43,
    32 * MIB: 91.19,
    64 * MIB: 156.74,
    128 * MIB: 197.94,
    256 * MIB: 229.09,
    512 * MIB: 326.9,
    1024 * MIB: 361.99,
    16384 * MIB: 381.8,
}


def efa() -> Machines:
    chip = replace(CATALOG.chip("b200_sxm"), system="hgx_b200_efa")
    return compile_machines(CATALOG, [chip])


def test_four_boxes_on_efa_as_measured() -> None:
    spans = group(efa().fabric, 32.0)
    off = []
    for size, bus in EFA.items():
        measured = 2 * 31 / 32 * size / (bus * 1e9)
        off.append(abs((seconds(spans.all_reduce(np.array([size]))) + 39e-6) / measured - 1))
    assert np.median(off) < 0.06
    assert max(off) < 0.15


def test_two_boxes_on_infiniband_as_measured() -> None:
    """30 to 35 us for 8 KiB between two boxes of one chip (NVIDIA/dgx-spark-playbooks pull 103)."""
    spans = group(ON.fabric, 16.0, CHIPS.index("h100_sxm"))
    inside = group(ON.fabric, 8.0, CHIPS.index("h100_sxm"))
    bytes_ = np.array([8 * 8 * KIB])
    assert 28e-6 < seconds(spans.all_reduce(bytes_)) - seconds(inside.all_reduce(bytes_)) < 35e-6


def test_bytes_sent_by_a_step() -> None:
    """Llama 3 8B on 16 chips of two boxes, 4 requests: two all-reduces a layer of 4 x 4096 numbers,
    and the gather of the logits."""
    batch = deploy("llama-3-8b", "h100_sxm", tensor_parallel=16, concurrency=4)
    case = case_of(batch, workload(100, 20), ON)
    _, step = decode_step(case, np.array([4.0]))
    reduced, vocabulary = 4 * 4096 * 2.0, np.ceil(128256 / (64 * 16)) * 64 * 16
    inside = 64 * 2 * 7 / 8 * reduced + 7 / 8 * 4 * vocabulary * 2
    outside = 64 * 2 / 2 / 8 * reduced + 1 / 2 / 8 * 4 * vocabulary * 2
    assert step.ledger.link_bytes[0] == pytest.approx(inside)
    assert step.ledger.scale_out_bytes[0] == pytest.approx(outside)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_overlap_hides_a_share_of_the_shorter(share: float) -> None:
    batch = deploy("deepseek-v3", "h200_sxm", data_parallel=32, expert_parallel=32)
    load = workload(2048, 256)
    steps = []
    for overlap in (0.0, share):
        case = case_of(batch, replace(load, network_overlap=overlap), ON)
        steps.append(decode_step(case, np.array([64.0]))[1].ledger)
    plain, hidden = steps
    shorter = np.minimum(plain.network_s, plain.seconds - plain.network_s)
    assert hidden.seconds == pytest.approx(plain.seconds - share * shorter)
    assert hidden.network_s == pytest.approx(plain.network_s - share * shorter)


def test_stages_hand_over_on_the_levels_between_them() -> None:
    """4 stages of 8 chips, boxes of 8, racks of 16: one hop in each of two racks, one between."""
    box, rack, cluster = three_levels()
    chip = CATALOG.chip("h100_sxm")
    systems = {
        **CATALOG.systems,
        chip.system: replace(
            CATALOG.systems[chip.system], levels=(box, replace(rack, size=16), cluster)
        ),
    }
    on = compile_machines(replace(CATALOG, systems=systems), [chip])
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, pipeline_parallel=4)
    object.__setattr__(batch, "chip", np.zeros(1, dtype=np.intp))
    hops = Deployed(batch, on).stage_hops(np.array([MIB]))
    assert [count[0] for count, _ in hops] == [0.0, 2.0, 1.0]


# What moves between the ranks of a mixture of experts with attention data-parallel.


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


# Waiting for the slowest: closed forms against quadrature, and what jitter does to a point.


LATE = workload(1024, 256)
# The expected maximum over the mean of one delay, its distribution function, and how near it is.
LAWS = [
    (expected_maximum, lambda x: 1 - np.exp(-x), 1e-7),
    (expected_half_normal_maximum, lambda x: erf(x / np.sqrt(np.pi)), 0.006),
]


@pytest.mark.parametrize(("law", "below", "within"), LAWS)
@pytest.mark.parametrize("n", [1.0, 2.0, 3.5, 8.0, 72.0, 1000.0, 16384.0])
def test_expected_maximum_is_that_of_the_integral(law, below, within: float, n: float) -> None:
    """E[max] is the integral of 1 - F^n."""
    edges = [0, 1, 4, 10, 30, 100, 1000, 1e5, 1e7]
    exact = sum(
        quad(lambda x: 1 - below(x) ** n, low, high, limit=200)[0] for low, high in pairwise(edges)
    )
    assert law(np.array([n]))[0] == pytest.approx(exact, rel=within)


@given(st.floats(1, 1e5), st.floats(1e-3, 1e4))
def test_one_participant_waits_the_mean_and_more_wait_longer(n: float, more: float) -> None:
    for law, _, _ in LAWS:
        one, few, many = law(np.array([1.0, n, n + more]))
        assert one == pytest.approx(1.0, rel=1e-9)
        assert few < many


@pytest.mark.parametrize("chips", [8, 32])
def test_every_collective_of_a_step_waits_once(chips: int) -> None:
    """Llama 3 8B over n chips: two all-reduces a layer and the gather of the logits wait for the
    slowest of n, which is H_n means; in 4 boxes not for that of each box besides."""
    batch = deploy("llama-3-8b", "h100_sxm", tensor_parallel=chips)
    plain, late = run(batch, LATE, ON), run(batch, LATE, with_jitter(ON, 1e-5))
    harmonic = sum(1 / k for k in range(1, chips + 1))
    added = late.values["decode_step_s"] - plain.values["decode_step_s"]
    assert added[0] == pytest.approx((2 * 32 + 1) * harmonic * 1e-5, rel=1e-6)


def test_a_delay_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="read -1"):
        with_jitter(ON, -1.0)
