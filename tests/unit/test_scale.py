"""Scale-up against scale-out: laws, closed forms, and agreement with a single estimate."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog
from dse.problem.instances import (
    DIVIDED,
    RATE,
    USD,
    Instances,
    Subject,
    best_instances,
    evaluated,
    replication,
    subject_of,
)
from dse.questions.scale import ceiling, experts
from dse.schema.model_catalog import resolve_model
from dse.space.deployments import Deployments, with_redundant_experts
from tests.helpers import workload

DENSE, SPARSE = ("llama-3-70b", "h100_sxm"), ("deepseek-v3", "b200_sxm")
BOTH = pytest.mark.parametrize("case", [DENSE, SPARSE])
UP_TO = 64


@cache
def subject(model: str, chip: str) -> Subject:
    return subject_of(load_catalog(), resolve_model(model), chip, workload(1024, 256))


@cache
def found(model: str, chip: str) -> Instances:
    return best_instances(subject(model, chip), chips_up_to=UP_TO)


def rows(table: Deployments) -> list[dict[str, Any]]:
    """Python's values by column, with the chips of each row."""
    columns = {name: values.tolist() for name, values in table.columns.items()}
    columns["chips"] = table.chips.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@BOTH
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


@BOTH
def test_the_best_division_is_no_slower_than_any_subset(case: tuple[str, str]):
    one = subject(*case)
    for row in rows(found(*case).alone):
        every = one.divided(row["chips"])
        of = evaluated(one, every)
        assert row["tpot_s"] == np.min(of.tpot_s[of.runs])
        tensor_alone = of.runs & (every["pipeline_parallel"] == 1)
        assert row["tpot_s"] <= np.min(of.tpot_s[tensor_alone], initial=np.inf)
        assert found(*case).choices[row["chips"]] == of.runs.sum()


@BOTH
def test_points_are_those_of_an_estimate(case: tuple[str, str]):
    for point in (rows(found(*case).alone)[2], rows(found(*case).within)[2]):
        copies = {"redundant_experts": point["redundant_experts"]} if case == SPARSE else {}
        answer = dse.estimate(
            *case,
            tp=point["tensor_parallel"],
            pp=point["pipeline_parallel"],
            dp=point["data_parallel"],
            ep=point["expert_parallel"],
            concurrency=point["concurrency"],
            prompt_tokens=1024,
            output_tokens=256,
            **copies,
        ).document
        assert answer["feasible"]
        assert answer["tpot_s"] == point["tpot_s"]
        assert answer["intervals"]["tpot_s"] == [point["tpot_s.low"], point["tpot_s.high"]]
        assert answer[USD] == point[USD]
        assert answer["bottleneck"] == point["bottleneck"]


@BOTH
def test_points_keep_the_limits_and_shares_are_shares(case: tuple[str, str]):
    table = found(*case)
    for point in (*rows(table.alone), *rows(table.within)):
        assert 0.0 <= point["network_share"] <= 1.0
        assert point["tpot_s.low"] < point["tpot_s"] < point["tpot_s.high"]
        degrees = [point[axis] for axis in DIVIDED[:3]]
        assert np.prod(degrees) == point["chips"]
    assert (table.within["tpot_s"] <= 0.05).all()
    assert (table.within["ttft_s"] <= 2.0).all()
    assert {*table.alone.chips, *table.why_not} == set(table.sizes)
    assert {*table.within.chips, *table.why_not, *table.why_late} == set(table.sizes)


@settings(max_examples=10, deadline=None)
@given(loose=st.floats(0.012, 0.2), tighter=st.floats(0.4, 1.0))
def test_a_tighter_limit_is_never_cheaper(loose: float, tighter: float):
    def most(limit: float) -> float:
        within = best_instances(subject(*DENSE), chips_up_to=8, tpot_limit_s=limit).within
        return within[RATE][within.chips == 8].max(initial=0.0) if len(within) else 0.0

    # Requests in flight are searched in steps of 1%.
    assert most(loose * tighter) <= most(loose) * 1.01


def _curve(points: dict[int, float]) -> Deployments:
    """One user's times per token, in milliseconds, by size; every size one tensor group."""
    return Deployments(
        {
            "tensor_parallel": np.array(list(points)),
            "data_parallel": np.ones(len(points), dtype=int),
            "tpot_s": np.array(list(points.values())) / 1e3,
            "bound": np.full(len(points), "memory", dtype=object),
            "network_share": np.zeros(len(points)),
        }
    )


def test_the_ceiling_of_known_curves():
    def at(points: dict[int, float]) -> int | None:
        return ceiling(_curve(points))["ceiling_chips"]

    assert at({2**k: 16.0 / 2**k for k in range(5)}) is None
    flat = ceiling(_curve({1: 16.0, 2: 8.0, 4: 4.0, 8: 4.0, 16: 4.0, 32: 5.0}))
    assert (flat["ceiling_chips"], flat["tpot_s"], flat["fastest_chips"]) == (4, 4e-3, 4)
    assert (flat["smallest_chips"], flat["group_chips"]) == (1, 4)
    # A plateau and then a gain: 4 -> 16 saves 19% in two doublings, so the ceiling is not at 4.
    assert at({1: 16.0, 2: 8.0, 4: 4.0, 8: 4.0, 16: 3.2, 32: 3.2}) == 16
    # 4.9% a doubling does not pay, 5.1% does.
    assert at({1: 10.0, 2: 9.51}) == 1
    assert at({1: 10.0, 2: 9.49}) is None
    # 72 is no doubling of 64: what it saves counts towards 128.
    assert at({64: 10.0, 72: 9.6, 128: 9.6}) == 64
    assert at({2: 10.0}) is None


def replicas(case: tuple[str, str], demand: int) -> tuple[dict[int, dict[str, Any]], int | None]:
    columns, best = replication(subject(*case), found(*case).within, demand)
    cells = {key: np.asarray(values).tolist() for key, values in columns.items()}
    each = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    return {row["chips"]: row for row in each}, best


@BOTH
def test_twice_the_replicas_give_twice_the_tokens_at_one_cost(case: tuple[str, str]):
    (once, best), (twice, _) = replicas(case, 64), replicas(case, 128)
    for chips, row in once.items():
        assert twice[chips]["replicas"] == 2 * row["replicas"]
        for key, factor in (("output_tokens_per_s", 2.0), (USD, 1.0), ("tpot_s", 1.0)):
            assert twice[chips][key] == pytest.approx(factor * row[key])
    assert best is not None
    assert once[best]["of_best"] > 0.99
    assert max(row["of_best"] for row in once.values()) == pytest.approx(1.0)


@BOTH
def test_the_size_past_which_replication_wins_counts_the_chips_left_idle(case: tuple[str, str]):
    for demand in (64, 72, 100):
        by_size, best = replicas(case, demand)
        assert best is not None
        most = max(row["output_tokens_per_s"] for row in by_size.values())
        assert by_size[best]["output_tokens_per_s"] > 0.985 * most


def test_chips_left_over_are_paid_for():
    (even, _), (odd, _) = replicas(DENSE, 16), replicas(DENSE, 20)
    assert odd[8]["idle_chips"] == 4
    assert odd[8]["output_tokens_per_s"] == even[8]["output_tokens_per_s"]
    assert odd[8][USD] == pytest.approx(even[8][USD] * 20 / 16)


def test_inside_the_domain_experts_are_not_slowed():
    found = experts(subject(*SPARSE), 64, 32)
    inside = found["domains"] == 1
    assert (found["expert_parallel"][inside] <= 8).all()
    assert (found["all_to_all_s"] == found["all_to_all_one_domain_s"])[inside].all()
    assert (found["decode_step_s"] == found["decode_step_one_domain_s"])[inside].all()
    assert (found["slowdown"][~inside] > 1.0).all()
    assert (found["decode_step_s"] > found["decode_step_one_domain_s"])[~inside].all()


def test_a_larger_domain_holds_a_larger_expert_layer():
    tables = [experts(subject("deepseek-v3", c), 64, 32) for c in ("gb200_nvl72", "b200_sxm")]
    rack, boxes = ({key: values[-1] for key, values in table.items()} for table in tables)
    assert rack["expert_parallel"] == boxes["expert_parallel"] == 64
    assert (rack["domains"], boxes["domains"]) == (1, 8)
    assert rack["decode_step_s"] < boxes["decode_step_s"]
    assert rack["all_to_all_share"] < boxes["all_to_all_share"]


def test_a_dense_model_has_no_expert_layer():
    assert experts(subject(*DENSE), 64, 32) == {}


def test_no_jitter_is_no_jitter_and_more_is_never_faster():
    answer = dse.scale(*DENSE, chips_up_to=16).document
    still, later = answer["jitter"][0], answer["jitter"][1:]
    for key in ("tpot_s.fastest", "ceiling_chips", "group_chips"):
        assert still[key] == answer["chips"][0][key]
    times = [row["tpot_s.fastest"] for row in (still, *later)]
    assert times == sorted(times)
    groups = [row["group_chips"] for row in (still, *later)]
    assert groups == sorted(groups, reverse=True)
    late = dse.scale(*DENSE, chips_up_to=16, jitter="10us").document
    same = next(row for row in later if row["jitter_s"] == 1e-5)
    assert late["chips"][0]["tpot_s.fastest"] == pytest.approx(same["tpot_s.fastest"], rel=1e-12)


def test_a_size_that_needs_an_unknown_link_says_so():
    catalog = load_catalog()
    chip = next(c for c in catalog.chips if not catalog.refusal(c) and catalog.refusal(c, 4096))
    one = subject_of(catalog, resolve_model("gpt-oss-20b"), chip, workload(1024, 256))
    found = best_instances(one, chips_up_to=512)
    assert 512 not in found.alone.chips
    assert "bandwidth" in found.why_not[512]


def test_evenly_chosen_experts_let_more_chips_pay():
    asked = {"chips_up_to": 72, "prompt_tokens": 128, "output_tokens": 2048}
    skewed, even = (
        dse.scale("deepseek-v3", "gb200_nvl72", routing_skew=skew, **asked).document["chips"][0]
        for skew in (1.0, 0.0)
    )
    assert skewed["replica_chips"] <= even["replica_chips"]
