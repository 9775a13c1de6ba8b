"""Scale-up against scale-out: laws, closed forms, and agreement with a single estimate."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.errors import InputError, NothingFeasible
from dse.problem.instances import Subject, evaluated, subject_of
from dse.questions.estimate.point import estimate
from dse.questions.scale.experts import expert_answer, expert_domain
from dse.questions.scale.pools import pipeline_latency
from dse.questions.scale.sizes import (
    DIVIDED,
    Point,
    Size,
    ceiling,
    divisions,
    instance_sizes,
    replica_size,
    replication,
)
from dse.questions.scale.uniform import evenness, jitter_limit
from dse.schema.model_catalog import resolve_model
from dse.space.deployments import Deployments, with_redundant_experts
from tests.helpers import workload

DENSE, SPARSE = ("llama-3-70b", "h100_sxm"), ("deepseek-v3", "b200_sxm")
UP_TO = 64


@cache
def subject(model: str, chip: str) -> Subject:
    return subject_of(load_catalog(), resolve_model(model), chip, workload(1024, 256))


@cache
def rows(model: str, chip: str) -> list[Size]:
    return instance_sizes(subject(model, chip), chips_up_to=UP_TO)


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_a_division_uses_every_chip_and_dense_models_have_no_data_ranks(case: tuple[str, str]):
    table = subject(*case).divided(16)
    expert = table["expert_parallel"]
    assert (table.chips == 16).all()
    assert (table.group % expert == 0).all()
    spread = table["data_parallel"] > 1
    if case == DENSE:
        assert not spread.any()
        assert (expert == 1).all()
    else:
        assert ((expert == 1) | (expert == table.group))[spread].all()


def test_copies_fill_the_experts_up():
    def copies(one: Subject, expert_parallel: int) -> list[int]:
        groups = Deployments.of(expert_parallel=expert_parallel)
        return with_redundant_experts(groups, one.experts)["redundant_experts"].tolist()

    sparse = subject(*SPARSE)  # 256 experts
    assert copies(sparse, 72) == [32, 104]
    assert copies(sparse, 64) == [0, 64]
    assert copies(sparse, 1) == [0]
    assert copies(sparse, 512) == [256]
    assert copies(sparse, 1024) == []
    assert copies(subject(*DENSE), 1) == [0]


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_the_best_division_is_no_slower_than_any_subset(case: tuple[str, str]):
    one = subject(*case)
    for row in rows(*case):
        if row.single is None:
            continue
        every = one.divided(row.chips)
        of = evaluated(one, every)
        assert row.single.tpot_s == np.min(of.tpot_s[of.runs])
        tensor_alone = of.runs & (every["pipeline_parallel"] == 1)
        assert row.single.tpot_s <= np.min(of.tpot_s[tensor_alone], initial=np.inf)
        assert row.choices == of.runs.sum()


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_points_are_those_of_an_estimate(case: tuple[str, str]):
    one = subject(*case)
    for row in rows(*case)[3:5]:
        for point in (row.single, row.within):
            assert point is not None
            deployment = {
                "tensor_parallel": point.tensor_parallel,
                "pipeline_parallel": point.pipeline_parallel,
                "data_parallel": point.data_parallel,
                "expert_parallel": point.expert_parallel,
                "concurrency": point.concurrency,
            }
            if one.experts:
                deployment["redundant_experts"] = point.redundant_experts
            answer = estimate(one.catalog, one.model, one.chip, one.workload, deployment).as_json()
            assert answer["feasible"]
            assert answer["tpot_s"] == point.tpot_s
            assert answer["intervals"]["tpot_s"] == list(point.tpot_interval)
            assert answer["usd_per_million_total_tokens"] == point.usd_per_million_total_tokens
            assert answer["bottleneck"] == point.bottleneck


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_a_point_does_not_depend_on_its_neighbours(case: tuple[str, str]):
    one = subject(*case)
    every = one.divided(16)
    load = np.arange(1.0, len(every) + 1.0)
    together = evaluated(one, every, load)
    for i in (0, len(every) // 2, len(every) - 1):
        alone = evaluated(one, every.take(np.array([i])), load[i : i + 1])
        for field in dataclasses.fields(together):
            assert getattr(alone, field.name)[0] == getattr(together, field.name)[i], field.name


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_points_keep_the_limits_and_shares_are_shares(case: tuple[str, str]):
    for row in rows(*case):
        for point in (row.single, row.within):
            if point is not None:
                assert 0.0 <= point.network_share <= 1.0
                assert point.tpot_interval[0] < point.tpot_s < point.tpot_interval[1]
        if row.within is not None:
            assert row.within.tpot_s <= 0.05
            assert row.within.ttft_s <= 2.0
        assert row.crosses_domain == (row.chips > 8)
        assert (row.single is None) == (row.reason is not None)
        assert (row.within is None) == (row.within_reason is not None)


@settings(max_examples=10, deadline=None)
@given(loose=st.floats(0.012, 0.2), tighter=st.floats(0.4, 1.0))
def test_a_tighter_limit_is_never_cheaper(loose: float, tighter: float):
    def most(limit: float) -> float:
        found = instance_sizes(subject(*DENSE), chips_up_to=8, tpot_limit_s=limit)[-1].within
        return 0.0 if found is None else found.output_tokens_per_s_per_chip

    # Requests in flight are searched in steps of 1%.
    assert most(loose * tighter) <= most(loose) * 1.01


def _row(chips: int, milliseconds: float | None) -> Size:
    found = None
    if milliseconds is not None:
        seconds = milliseconds / 1e3
        found = Point(
            chips,
            1,
            1,
            1,
            0,
            1,
            seconds,
            (seconds, seconds),
            0.1,
            1 / seconds,
            1 / seconds / chips,
            None,
            0.0,
            "memory",
            "decode: memory bandwidth",
            1.0,
            None,
            "fitted",
        )
    return Size(chips, False, 1, found, found, None, None)


def test_the_ceiling_of_known_curves():
    halving = [_row(2**k, 16.0 / 2**k) for k in range(5)]
    assert ceiling(halving).chips is None
    flat = [*halving[:3], _row(8, 4.0), _row(16, 4.0), _row(32, 5.0)]
    found = ceiling(flat)
    assert (found.chips, found.tpot_s, found.minimum_chips) == (4, 4e-3, 4)
    assert (found.smallest_chips, found.group_chips) == (1, 4)
    # A plateau and then a gain: 4 -> 16 saves 19% in two doublings, so the ceiling is not at 4.
    later = [*halving[:3], _row(8, 4.0), _row(16, 3.2), _row(32, 3.2)]
    assert ceiling(later).chips == 16
    # 4.9% a doubling does not pay, 5.1% does.
    assert ceiling([_row(1, 10.0), _row(2, 9.51)]).chips == 1
    assert ceiling([_row(1, 10.0), _row(2, 9.49)]).chips is None
    # 72 is no doubling of 64: what it saves counts towards 128.
    assert ceiling([_row(64, 10.0), _row(72, 9.6), _row(128, 9.6)]).chips == 64
    assert ceiling([_row(1, None), _row(2, 10.0)]).chips is None


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_the_ceiling_lies_among_the_sizes(case: tuple[str, str]):
    found = ceiling(rows(*case))
    by_size = {row.chips: row.single for row in rows(*case)}
    assert found.chips is not None
    assert found.tpot_s is not None
    at = by_size[found.chips]
    assert at is not None
    assert found.minimum_tpot_s <= found.tpot_s <= at.tpot_s <= found.smallest_tpot_s
    for doublings in (1, 2):
        larger = by_size.get(found.chips * 2**doublings)
        if larger is not None:
            assert larger.tpot_s > found.tpot_s * 0.95**doublings


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_twice_the_replicas_give_twice_the_tokens_at_one_cost(case: tuple[str, str]):
    one, found = subject(*case), rows(*case)
    once, twice = ({r.chips: r for r in replication(one, found, n)} for n in (64, 128))
    assert once
    for chips, row in once.items():
        assert twice[chips].replicas == 2 * row.replicas
        assert twice[chips].output_tokens_per_s == pytest.approx(2 * row.output_tokens_per_s)
        assert twice[chips].usd_per_million_total_tokens == pytest.approx(
            row.usd_per_million_total_tokens
        )
        assert twice[chips].tpot_s == pytest.approx(row.tpot_s)
    best = replica_size(found)
    assert best is not None
    assert once[best].of_best > 0.99
    assert max(row.of_best for row in once.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_the_size_past_which_replication_wins_counts_the_chips_left_idle(case: tuple[str, str]):
    one, found = subject(*case), rows(*case)
    for demand in (64, 72, 100):
        chosen = replica_size(found, demand)
        by_size = {row.chips: row for row in replication(one, found, demand)}
        assert chosen in by_size
        most = max(row.output_tokens_per_s for row in by_size.values())
        assert by_size[chosen].output_tokens_per_s > 0.985 * most


def test_chips_left_over_are_paid_for():
    one, found = subject(*DENSE), rows(*DENSE)
    even, odd = ({r.chips: r for r in replication(one, found, n)} for n in (16, 20))
    assert odd[8].idle_chips == 4
    assert odd[8].output_tokens_per_s == even[8].output_tokens_per_s
    costs = [row[8].usd_per_million_total_tokens or 0.0 for row in (odd, even)]
    assert costs[0] == pytest.approx(costs[1] * 20 / 16)


def test_inside_the_domain_experts_are_not_slowed():
    found = expert_domain(subject(*SPARSE), chips_up_to=64)
    for row in found:
        if row.domains == 1:
            assert row.all_to_all_s == row.all_to_all_one_domain_s
            assert row.decode_step_s == row.decode_step_one_domain_s
        else:
            assert row.slowdown is not None
            assert row.slowdown > 1.0
            assert row.decode_step_s > row.decode_step_one_domain_s
    said = expert_answer(found)
    assert said.inside is not None
    assert said.across is not None
    assert said.inside.expert_parallel <= 8 < said.across.expert_parallel


def test_a_larger_domain_holds_a_larger_expert_layer():
    rack, boxes = (
        {r.expert_parallel: r for r in expert_domain(subject("deepseek-v3", chip), chips_up_to=64)}
        for chip in ("gb200_nvl72", "b200_sxm")
    )
    assert rack[64].domains == 1
    assert boxes[64].domains == 8
    assert rack[64].decode_step_s < boxes[64].decode_step_s
    assert rack[64].all_to_all_share < boxes[64].all_to_all_share


def test_a_dense_model_has_no_expert_layer():
    with pytest.raises(InputError, match="no experts"):
        expert_domain(subject(*DENSE))


@pytest.mark.parametrize("case", [DENSE, SPARSE, ("llama-3-8b", "h100_sxm")])
def test_stages_divide_memory_and_not_the_time_of_one_request(case: tuple[str, str]):
    found = pipeline_latency(subject(*case))
    assert [row.pipeline_parallel for row in found] == [1, 2, 4, 8]
    assert found[0].fits
    for before, after in pairwise(found):
        assert after.tpot_s >= before.tpot_s
        assert after.memory_bytes_per_chip < before.memory_bytes_per_chip
    assert found[1].tensor_tpot_s is not None
    assert found[1].tensor_tpot_s < found[1].tpot_s


def test_no_jitter_is_no_jitter_and_more_is_never_faster():
    one = subject(*DENSE)
    found = jitter_limit(one, (1e-4, 0.0, 1e-6, 1e-5), chips_up_to=16)
    assert [row.jitter_s for row in found] == [0.0, 1e-6, 1e-5, 1e-4]
    none = ceiling(instance_sizes(one, chips_up_to=16, single_only=True))
    assert found[0].minimum_tpot_s == none.minimum_tpot_s
    assert found[0].ceiling_chips == none.chips
    times = [row.minimum_tpot_s for row in found]
    assert times == sorted(times)
    groups = [row.group_chips for row in found]
    assert groups == sorted(groups, reverse=True)


def test_faster_links_and_less_jitter_are_never_slower():
    one = subject(*DENSE)
    points = [p for row in rows(*DENSE) for p in (row.single, row.within) if p is not None]
    found = evenness(one, points, (0.0, 1e-6, 1e-5))
    assert len(found) == 2 * len(points)
    for row in found:
        assert row.twice_bandwidth_s <= row.tpot_s
        assert row.half_jitter_s <= row.tpot_s
        assert 0.0 <= row.bandwidth_elasticity <= 1.0
        assert 0.0 <= row.jitter_elasticity <= 1.0


def test_one_chip_is_an_instance_too():
    found = instance_sizes(subject("llama-3-8b", "h100_sxm"), chips_up_to=1)
    assert [row.chips for row in found] == [1]
    assert found[0].single is not None
    assert found[0].single.network_share == 0.0
    assert found[0].single.widest is None
    assert ceiling(found).chips is None


def test_a_model_that_fits_nowhere_says_why():
    with pytest.raises(NothingFeasible, match="memory: at best a chip needs") as raised:
        instance_sizes(subject("deepseek-v3", "l4"), chips_up_to=4)
    assert raised.value.exit_code == 3


def test_a_size_that_needs_an_unknown_link_says_so():
    catalog = load_catalog()
    chip = next(c for c in catalog.chips if not catalog.refusal(c) and catalog.refusal(c, 4096))
    one = subject_of(catalog, resolve_model("gpt-oss-20b"), chip, workload(1024, 256))
    last = instance_sizes(one, chips_up_to=512)[-1]
    assert last.single is None
    assert "bandwidth" in str(last.reason)


def test_evenly_chosen_experts_let_more_chips_pay():
    skewed, even = (
        subject_of(
            load_catalog(),
            resolve_model("deepseek-v3"),
            "gb200_nvl72",
            workload(128, 2048),
            routing_skew=skew,
        )
        for skew in (1.0, 0.0)
    )
    sizes = [replica_size(instance_sizes(one, chips_up_to=72)) for one in (skewed, even)]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0] <= sizes[1]


@pytest.mark.parametrize("case", [DENSE, SPARSE])
def test_points_are_divided_as_their_table_says(case: tuple[str, str]):
    points = [row.single for row in rows(*case) if row.single]
    table = divisions(points)
    assert table.chips.tolist() == [point.chips for point in points]
    for i, point in enumerate(points):
        assert {axis: int(table[axis][i]) for axis in DIVIDED} == {
            axis: getattr(point, axis) for axis in DIVIDED
        }
