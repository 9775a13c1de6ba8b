"""Separate pools inside the search: the ratio, the joined tables, what an optimiser would try."""

from __future__ import annotations

from math import ceil, gcd
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog
from dse.errors import InputErrors
from dse.pareto import non_dominated
from dse.physics.disaggregated import TOLERANCE, balance, fill, predict_disaggregated
from dse.problem.objective import pose
from dse.schema.study import load_study
from dse.search.run import search
from dse.study.choices import choices_of, draw, robustness
from tests.helpers_spaces import space as small

LENGTHS = {"prompt_tokens": 4096, "output_tokens": 512, "serving": "continuous"}
WORKER: dict[str, Any] = {
    "chip": ["h200_sxm", "b200_sxm"],
    "tensor_parallel": [1, 4, 8],
    "data_parallel": [1, 4],
    "weight_dtype": ["fp8"],
    "kv_dtype": ["fp8", "bf16"],
}
ONE = {**WORKER, "replicas": 1, "concurrency": [1, 8, 64, 512]}
POOLS = {
    "pool_chips": [8, 64],
    "prefill": {**WORKER, "pipeline_parallel": [1, 2], "busy_percent": [70, 100]},
    "decode": {**WORKER, "concurrency": [8, 64, 512]},
}


def space(deployment: dict[str, Any], **more: Any) -> dict[str, Any]:
    metrics = ("usd_per_million_total_tokens", "tpot_s", "ttft_s")
    frame = {
        "workload": {**LENGTHS, "backend": "current"},
        "model": "llama-3-70b",
        "objectives": dict.fromkeys(metrics, "minimize"),
        "constraints": ["ttft_s <= 5 s"],
    }
    return {**small({}, **{**frame, **more}), "deployment": deployment}


def problem(deployment: dict[str, Any], **more: Any) -> Any:
    """A PhysicsProblem with pools."""
    catalog = load_catalog()
    return pose(load_study(space(deployment, **more), catalog), catalog)


@pytest.fixture(scope="module")
def both() -> Any:
    return problem({**ONE, **POOLS})


@pytest.fixture(scope="module")
def index(both: Any) -> np.ndarray:
    """Every design of separate pools that may be feasible, and some others."""
    every = both.space.unrank(np.arange(both.space.size))
    return every[both.pools.separate(every)]


def keeps(designs: Any) -> np.ndarray:
    """(n,) whether every rule is kept."""
    return np.all(np.stack(list(designs.violations.values())) <= 0.0, axis=0)


@given(
    ratio=st.floats(1e-3, 1e3)
    | st.builds(lambda x, n: x / n, st.integers(1, 40), st.integers(1, 12)),
    prefill=st.sampled_from([1, 2, 4, 6, 8, 72]),
    decode=st.sampled_from([1, 3, 4, 8, 16, 64]),
    chips=st.integers(2, 700),
)
def test_the_ratio_wastes_least_of_all_whole_numbers(ratio, prefill, decode, chips) -> None:
    a, b = (int(one[0]) for one in balance(*(np.array([float(x)]) for x in (
        ratio, prefill, decode, chips))))  # fmt: skip
    tried = [(max(ceil(ratio * n), 1), n) for n in range(1, chips // decode + 1)]
    fit = [(x, n) for x, n in tried if x * prefill + n * decode <= chips and x >= ratio * n]
    if not fit:
        assert a * prefill + b * decode > chips
        return
    assert a * prefill + b * decode <= chips
    assert a >= ratio * b
    assert gcd(a, b) == 1
    wasted = {(x, n): (x / n * prefill + decode) / (ratio * prefill + decode) - 1 for x, n in fit}
    if min(wasted.values()) > TOLERANCE:
        assert a / b == pytest.approx(min(x / n for x, n in fit), rel=1e-12)
        return
    assert wasted[a, b] < TOLERANCE * (1 + 1e-9)
    near = [pair for pair, waste in wasted.items() if waste < TOLERANCE * (1 - 1e-9)]
    assert all(a <= x and b <= n for x, n in near)


def test_no_design_of_thousands_of_workers_for_a_hair_of_balance() -> None:
    """Of pools without a bound, the fewest workers within the tolerance of an exact balance."""
    ratio, chips = np.array([np.pi]), np.array([1e9])
    a, b = balance(ratio, np.array([8.0]), np.array([8.0]), chips)
    assert (a[0], b[0]) == (22.0, 7.0)  # 3.1428, 0.03% of 4.1416 above


def test_the_front_is_that_of_every_design_one_by_one(both, index) -> None:
    """Aggregated and separate designs on one front, none left out by what spares the search work:
    every design judged on all of its metrics."""
    found = search(both, "exhaustive")
    every = both.space.unrank(np.arange(both.space.size))
    direct = both.judge(both.metrics(every))
    feasible = np.flatnonzero((direct.G <= 0.0).all(axis=1))
    true = feasible[non_dominated(direct.F[feasible])]
    assert set(found.front.ids) == set(true)
    separate = both.pools.separate(every)[true]
    assert separate.any()
    assert not separate.all()


def test_designs_that_are_not_joined_are_infeasible(both, index) -> None:
    _, dead, amounts, _ = both.pools.screened(index)
    assert len(dead)
    assert (np.stack(list(amounts.values())) > 0.0).any(axis=0).all()
    direct = both.judge(both.metrics(index[dead]))
    assert (direct.G > 0.0).any(axis=1).all()


def test_a_joined_design_is_the_pair_of_pools_with_its_requests_in_flight(both, index) -> None:
    """As `dse estimate --serving disaggregated` finds it, which solves for the batch."""
    rows, *_ = both.pools.screened(index)
    rows = rows[:: max(len(rows) // 400, 1)]
    designs = both.pools.joined(index[rows])
    fits = keeps(designs)
    rows = rows[fits]
    designs = both.pools.joined(index[rows])
    first, second = (
        both.batch_of(both.pools.pool(pool, index[rows])) for pool in ("prefill", "decode")
    )
    on = both.machines
    pair = predict_disaggregated(first, second, both.mix[0].workload, on, on)
    for name in ("tpot_s", "ttft_s", "output_tokens_per_s", "e2e_s", "transfer_s"):
        joined, alone = getattr(designs.met, name), getattr(pair, name)
        apart = np.abs(joined / alone - 1.0)
        # Where the time of a step jumps, two batches may lead to the same requests in flight.
        assert np.median(apart) < 1e-8, name
        assert (apart < 1e-3).mean() > 0.95, name
    assert (designs.met.utilisation <= designs.first.busy + 1e-9).all()


def test_nothing_is_had_for_nothing(both, index) -> None:
    """What a search would reach for where ratios are free."""
    rows, *_ = both.pools.screened(index)
    designs = both.pools.joined(index[rows])
    a, b, met = designs.a, designs.b, designs.met
    assert (a == np.round(a)).all()
    assert (b == np.round(b)).all()
    assert (a >= 1).all()
    assert (b >= 1).all()
    # Whole pools are paid, waits included: dollars are chips x hours over the tokens served.
    hours = 1e6 / (met.requests_per_s * (4096 + 512)) / 3600.0
    usd = hours * designs.chips * designs.values["chip_usd_per_hour"]
    np.testing.assert_allclose(designs.values["usd_per_million_total_tokens"], usd, rtol=1e-12)
    assert (met.transfer_s > 0.0).all()
    # Little's law: no request is served that is not in flight.
    assert (met.requests_per_s * met.e2e_s <= designs.in_flight * (1.0 + 1e-9)).all()
    # Prefill keeps up with what decode takes.
    mu = a * designs.first.workers.prompts_per_s
    assert (b * designs.second.workers.requests_per_s <= mu * (1.0 + 1e-9)).all()


def test_caches_of_two_formats_do_not_meet(both, index) -> None:
    designs = both.pools.joined(index)
    other = designs.first.kv != designs.second.kv
    at = both.constraints.index("pools_share_cache_format")
    assert other.any()
    np.testing.assert_array_equal(both.pools.joined(index).violations[at] > 0.0, other)


def test_two_kinds_of_chip_meet_in_the_network(both, index) -> None:
    """A scale-up domain has chips of one kind: the cache takes the network, and its time."""
    designs = both.pools.joined(index)
    mixed = designs.first.workers.chip != designs.second.workers.chip
    assert mixed.any()
    assert not designs.inside[mixed].any()
    assert designs.inside[~mixed].any()


def test_the_loss_of_the_narrower_pool_counts() -> None:
    narrow = {**WORKER, "weight_dtype": ["int4"], "kv_dtype": ["fp8"]}
    wide = {**WORKER, "weight_dtype": ["bf16"], "kv_dtype": ["fp8"]}

    def loss(first: dict[str, Any], second: dict[str, Any]) -> float:
        pools = {"pool_chips": 64, "prefill": first, "decode": {**second, "concurrency": 8}}
        one = problem(pools, training_tokens="15T")
        found = one.metrics(one.space.unrank(np.arange(8))).values["predicted_loss"]
        return float(np.nanmax(found))

    assert loss(narrow, wide) == loss(wide, narrow) == loss(narrow, narrow) > loss(wide, wide)


def test_a_pipeline_prefills_as_many_prompts_as_it_has_stages() -> None:
    """Prompts follow one another through the stages: in each chunk's time of a stage, one more."""
    pools = {
        "pool_chips": 64,
        "prefill": {**WORKER, "chip": "h200_sxm", "tensor_parallel": 4, "data_parallel": 1,
                    "pipeline_parallel": [1, 2], "kv_dtype": "fp8"},
        "decode": {**WORKER, "chip": "h200_sxm", "tensor_parallel": 8, "data_parallel": 1,
                   "kv_dtype": "fp8", "concurrency": 8},
    }  # fmt: skip
    one = problem(pools)
    workers = one.pools.joined(one.space.unrank(np.arange(2))).first.workers
    gained = workers.prompts_per_s[1] / workers.prompts_per_s[0]
    assert 1.8 < gained <= 2.0
    assert workers.alone_s[1] <= workers.alone_s[0] * 1.05


def test_more_time_for_prefill_is_more_workers_and_less_waiting(both, index) -> None:
    at = both.space.names.index("prefill_busy_percent")
    eased = index[index[:, at] == 0]
    full = eased.copy()
    full[:, at] = 1
    easy, hard = both.pools.joined(eased), both.pools.joined(full)
    assert (easy.a / easy.b >= hard.a / hard.b - 1e-12).all()
    busy = easy.met.requests_per_s / (easy.a * easy.first.workers.prompts_per_s)
    fits = keeps(easy)
    assert (busy[fits] <= 0.7 + 1e-9).all()


def test_a_space_may_have_pools_alone() -> None:
    one = problem(POOLS)
    assert one.space.names[0] == "pools"
    found = one.evaluate(one.space.sample(np.random.default_rng(0), 500))
    assert (found.G <= 0.0).all(axis=1).any()
    few = {**POOLS, "pool_chips": 16}
    few["decode"] = {**few["decode"], "tensor_parallel": {
        "values_by": "chip", "of": {"h200_sxm": [4, 8], "b200_sxm": [4]}}}  # fmt: skip
    study = dse.run(space(few))
    assert all("prefill" in point.deployment for point in study.front)
    split = {(p.deployment["chip"], p.deployment["tensor_parallel"]) for p in study.front}
    assert split <= {("h200_sxm", 4), ("h200_sxm", 8), ("b200_sxm", 4)}


def test_a_study_of_pools_is_told_and_estimated_again(tmp_path) -> None:
    few = {**POOLS, "pool_chips": 32, "prefill": {**POOLS["prefill"], "chip": "h200_sxm"}}
    study = dse.run(space({**ONE, **few}), out=tmp_path / "study")
    separate = [p for p in study.front if "prefill" in p.deployment]
    assert separate
    assert len(separate) < len(study.front)
    for point in separate[:: max(len(separate) // 8, 1)]:
        again = dse.estimate(study, point.point)
        assert again.feasible
        told = {**again.document, **{
            name: again.document["decode_pool"][name]
            for name in ("memory_bytes_per_chip", "memory_base_bytes_per_chip")}}  # fmt: skip
        both = {name for name, value in point.metrics.items() if isinstance(value, int | float)}
        both &= {*told}
        assert {"ttft_s", "tpot_s", "usd_per_million_total_tokens", "joules_per_output_token",
                "output_tokens_per_s_per_chip", "mfu", "mbu", "memory_bytes_per_chip",
                "e2e_s"} <= both  # fmt: skip
        for name in both:
            assert told[name] == pytest.approx(point.metrics[name], rel=1e-9), name
        deployment = point.deployment
        workers = deployment["prefill"]["chips"] + deployment["decode_chips"]
        assert deployment["chips"] == point.metrics["chips"] == workers
        made = dse.export(study, point.point, format="sglang").document
        for pool, described in (("prefill", deployment["prefill"]), ("decode", deployment)):
            assert made[f"{pool}_pool"]["instances"] == described["replicas"]
            assert made[f"{pool}_pool"]["chip"] == described["chip"]
    table = study.front.to_pandas()
    assert table["prefill_chips"].notna().sum() == len(separate)
    page = study.report().to_markdown()
    assert "->" in page


def test_decode_workers_may_draft_and_have_a_cap() -> None:
    """Drafting is an axis of the decode pool: its steps give the published tokens, its workers hold
    the module, its cap holds their batch; with neither, designs are as of a space without."""
    prefill = {"chip": "b200_sxm", "tensor_parallel": 8, "weight_dtype": "fp8", "kv_dtype": "fp8"}
    decode = {**prefill, "concurrency": 64}
    alike = {**decode, "data_parallel": 1, "replicas": 1}
    plain = problem({**alike, "pool_chips": 64, "prefill": prefill, "decode": decode},
                    model="deepseek-v3")  # fmt: skip
    drafts = {"draft_tokens": [0, 1], "max_running_requests": [32, 1024]}
    one = problem({**alike, "pool_chips": 64, "prefill": prefill, "decode": {**decode, **drafts}},
                  model="deepseek-v3")  # fmt: skip
    rows = {(item["decode_concurrency"], item["draft_tokens"]): i
            for i, item in enumerate(one.deployments(one.space.unrank(np.arange(5))))
            if "prefill" in item}  # fmt: skip
    assert set(rows) == {(32, 0), (32, 1), (64, 0), (64, 1)}
    every = one.metrics(one.space.unrank(np.arange(5))).values
    values = {name: every[name] for name in ("tpot_s", "decode_step_s", "memory_bytes_per_chip")}
    alone = plain.metrics(plain.space.unrank(np.arange(2))).values
    for name, value in values.items():
        assert value[rows[64, 0]] == alone[name][1]
        assert value[0] == alone[name][0]  # one pool, where neither axis counts
    step, token = values["decode_step_s"], values["tpot_s"]
    assert step[rows[64, 1]] > step[rows[64, 0]]
    assert token[rows[64, 1]] == pytest.approx(step[rows[64, 1]] / 1.85, rel=1e-9)
    assert token[rows[32, 0]] < token[rows[64, 0]]
    memory = values["memory_bytes_per_chip"]
    assert memory[rows[64, 1]] > memory[rows[64, 0]]


@given(
    ratio=st.floats(1e-3, 1e2),
    prefill=st.sampled_from([1, 2, 4, 6, 8]),
    decode=st.sampled_from([1, 3, 4, 8, 16, 64]),
    chips=st.integers(2, 200),
)
def test_a_whole_system_is_filled_with_the_most_decode_workers(
    ratio, prefill, decode, chips
) -> None:
    a, b = (int(one[0]) for one in fill(*(np.array([float(x)]) for x in (
        ratio, prefill, decode, chips))))  # fmt: skip
    full = [n for n in range(1, chips // decode + 1)
            if (chips - n * decode) % prefill == 0
            and (chips - n * decode) // prefill >= max(ratio * n, 1.0)]  # fmt: skip
    if not full:
        assert (a, b) == (max(ceil(ratio), 1), 1)
        return
    assert a * prefill + b * decode == chips
    assert b == max(full)


SYSTEMS = {
    "systems": [
        {"name": "8 B200", "chip": "b200_sxm", "chips": 8, "backend": ["trtllm", "sglang"],
         "decode": {"tensor_parallel": [1, 4], "concurrency": [8, 64]}},
        {"name": "8 H200", "chip": "h200_sxm", "chips": 8, "backend": "vllm",
         "decode": {"tensor_parallel": [2, 4], "concurrency": [8, 32]}},
    ],
    "tensor_parallel": [1, 8],
    "weight_dtype": "fp8",
    "kv_dtype": "fp8",
    "concurrency": [8, 64, 512],
    "prefill": {"tensor_parallel": [1, 2, 4], "weight_dtype": "fp8", "kv_dtype": "fp8"},
    "decode": {"weight_dtype": "fp8", "kv_dtype": "fp8"},
}  # fmt: skip


MIXED = {**ONE, **POOLS}
BY_CHIP = {"values_by": "chip", "of": {"h200_sxm": "vllm", "b200_sxm": "trtllm"}}
FIRST, SECOND = SYSTEMS["systems"]


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        ({**MIXED, "decode": None}, "one pool without the other"),
        ({**MIXED, "pool_chips": None}, "the axis pool_chips is missing"),
        ({**ONE, "pool_chips": 8}, "without pools"),
        ({**MIXED, "pools": ["separate"]}, "unknown axis 'pools'"),
        *(
            ({**MIXED, "prefill": {**POOLS["prefill"], **more}}, message)
            for more, message in (
                ({"concurrency": 8}, "unknown axis 'concurrency'"),
                ({"replicas": 2}, "unknown axis 'replicas'"),
                ({"draft_tokens": 0}, "it belongs under decode"),
                ({"max_running_requests": 8}, "it belongs under decode"),
                ({"busy_percent": 0}, "from 1 to 100"),
            )
        ),
        *(
            ({**MIXED, "decode": {**POOLS["decode"], **more}}, message)
            for more, message in (
                ({"busy_percent": 80}, "belongs under prefill"),
                ({"draft_tokens": [1, 2]}, "drafting is never off"),
                ({"draft_tokens": 1}, "no figure for the model"),
            )
        ),
        ({**SYSTEMS, "prefill": {**SYSTEMS["prefill"], "chip": "b200_sxm"}}, "chips of its system"),
        ({**SYSTEMS, "decode": {**SYSTEMS["decode"], "concurrency": 8}}, "below the systems, too"),
        (
            {**SYSTEMS, "systems": [FIRST, {**SECOND, "decode": {}}]},
            "decode tensor_parallel is missing in 8 H200",
        ),
        ({**MIXED, "backend": BY_CHIP}, "both pools run one"),
    ],
)
def test_mistakes_name_their_field(deployment, message) -> None:
    given = {name: value for name, value in deployment.items() if value is not None}
    own_software = "systems" in given or "backend" in given
    with pytest.raises(InputErrors, match=message):
        load_study(space(given, **({"workload": LENGTHS} if own_software else {})), load_catalog())


def test_pools_take_one_closed_loop() -> None:
    served = {**LENGTHS, "serving": "static", "backend": "current"}
    with pytest.raises(InputErrors, match="pools serve static"):
        load_study(space(MIXED, workload=served), load_catalog())


def test_systems_are_searched_with_pools(tmp_path) -> None:
    """Both pools are on the chips of one system, all of them, under one of its software; what is
    searched is what each software alone finds, and what the estimate of a point says."""
    one = problem(SYSTEMS, workload=LENGTHS)
    every = one.space.unrank(np.arange(one.space.size))
    separate = one.pools.separate(every)
    found = one.evaluate(every)
    fits = separate & (found.G <= 0.0).all(axis=1)
    assert fits.any()
    seen = set()
    for item in one.deployments(every[fits]):
        first = item["prefill"]
        assert item["chips"] == first["chips"] + item["decode_chips"] == 8
        assert item["chip"] == first["chip"]
        assert item["backend"] == first["backend"]
        degrees = {"b200_sxm": (1, 4), "h200_sxm": (2, 4)}
        assert item["tensor_parallel"] in degrees[item["chip"]]
        seen.add((item["chip"], item["backend"]))
    assert seen == {("b200_sxm", "trtllm"), ("b200_sxm", "sglang"), ("h200_sxm", "vllm")}
    alone = {key: value for key, value in SYSTEMS.items() if key != "systems"}
    alone |= {"chip": "b200_sxm", "chips": 8}
    alone["decode"] = {**SYSTEMS["decode"], **SYSTEMS["systems"][0]["decode"]}
    sglang = problem(alone, workload={**LENGTHS, "backend": "sglang"})
    expected = {tuple(row) for row in sglang.evaluate(
        sglang.space.unrank(np.arange(sglang.space.size))).F}  # fmt: skip
    rows = [item.get("backend") == "sglang" for item in one.deployments(every)]
    assert {tuple(row) for row in found.F[rows]} == expected
    study = dse.run(space(SYSTEMS, workload=LENGTHS), out=tmp_path / "study")
    told = [point for point in study.front if "prefill" in point.deployment]
    assert told
    for point in told:
        again = dse.estimate(study, point.point)
        for name in ("ttft_s", "tpot_s", "usd_per_million_total_tokens"):
            assert getattr(again, name) == pytest.approx(point.metrics[name], rel=1e-9), name


def test_a_choice_under_uncertainty_is_the_cheapest_of_one_kind_of_chip():
    """`dse whatif --uncertain` compares chips: of each the cheapest deployment, pools included."""
    posed = problem({**ONE, **POOLS})
    choices = choices_of(posed)
    columns, *_ = robustness(choices, draw(choices, 10, 0))
    predicted = columns[choices.objective]
    found = dict(zip((item.chip for item in choices.items), predicted, strict=True))
    index = posed.space.unrank(np.arange(posed.space.size, dtype=np.int64))
    judged, deployments = posed.evaluate(index), posed.deployments(index)
    kept = (judged.G <= 0.0).all(axis=1)
    cheapest: dict[str, float] = {}
    for usd, ok, one in zip(judged.F[:, 0], kept, deployments, strict=True):
        chips = {one["chip"], one.get("prefill", one)["chip"]}
        if ok and len(chips) == 1:
            cheapest[one["chip"]] = min(usd, cheapest.get(one["chip"], np.inf))
    assert set(found) == set(cheapest) == {"h200_sxm", "b200_sxm"}
    assert found == pytest.approx(cheapest, rel=1e-12)
    assert any("prefill" in item.deployment for item in choices.items)
