"""Several workloads on one deployment: closed forms, the worst latencies, limits, mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.errors import InputError
from dse.physics.workload import Workload
from dse.problem.describe import describe_workloads, violations
from dse.problem.evaluate import MEMORY_PARTS, Metrics
from dse.problem.mix import Share, alone, evaluate_mix
from dse.problem.objective import pose
from dse.problem.protocol import Evaluation
from dse.problem.words import violation_words
from dse.schema.metrics import Limit
from dse.schema.study import Study, load_study
from tests.helpers import CHIPS, deploy, machines, run, workload
from tests.helpers_files import changed, mistakes, write

ON = machines("rental_3yr")
PRICE = float(ON.usd_per_chip_hour[CHIPS.index("h100_sxm")])
CHAT, RETRIEVAL = workload(1000, 250), workload(6000, 400)
COSTS = tuple(
    f"usd_per_million_{name}" for name in
    ("input_tokens", "output_tokens", "total_tokens", "output_tokens_all_in")
)  # fmt: skip
LATENCIES = ("ttft_s", "tpot_s", "e2e_s", "prefill_s", "decode_step_s", "latency_floor_s")


def batch(**axes):
    axes = {"tensor_parallel": [1, 2, 4, 8], "concurrency": [4, 64, 16, 256], "replicas": 2} | axes
    return deploy("llama-3-8b", "h100_sxm", **axes)


def mix(*parts: tuple[float, Workload]) -> tuple[Share, ...]:
    return tuple(Share(f"part {k}", weight, load) for k, (weight, load) in enumerate(parts))


def both(weight: float = 0.7) -> Metrics:
    return evaluate_mix(batch(), mix((weight, CHAT), (1 - weight, RETRIEVAL)), ON)


def test_one_workload_is_itself_bit_for_bit() -> None:
    single, found = run(batch(), CHAT, ON), evaluate_mix(batch(), alone(CHAT), ON)
    assert not found.members
    for name, array in single.values.items():
        assert array.tobytes() == found.values[name].tobytes(), name


def test_halves_of_the_same_workload_are_that_workload() -> None:
    single, found = run(batch(), CHAT, ON), evaluate_mix(batch(), mix((0.5, CHAT), (0.5, CHAT)), ON)
    for name, array in single.values.items():
        assert found.values[name] == pytest.approx(array, rel=1e-12, nan_ok=True), name
    for name, array in single.violations.items():
        assert found.violations[name].tobytes() == array.tobytes()


def test_a_thousand_requests_by_hand() -> None:
    """700 of one kind and 300 of the other take the time and the money that each takes alone."""
    chat, retrieval, found = run(batch(), CHAT, ON), run(batch(), RETRIEVAL, ON), both()
    chips = batch().chips
    seconds = 700 / chat.performance.requests_per_s + 300 / retrieval.performance.requests_per_s
    answers, prompts = 700 * 250 + 300 * 400, 700 * 1000 + 300 * 6000
    dollars = seconds * chips * PRICE / 3600
    assert found.values["output_tokens_per_s"] == pytest.approx(answers / seconds, rel=1e-12)
    for name, tokens in (("total_tokens", answers + prompts), ("output_tokens_all_in", answers)):
        expected = dollars / tokens * 1e6
        assert found.values[f"usd_per_million_{name}"] == pytest.approx(expected, rel=1e-12)
    joules = (
        700 * chat.performance.energy.joules + 300 * retrieval.performance.energy.joules
    ) / answers
    watts = found.values["watts_per_chip"]
    assert chips * watts * seconds == pytest.approx(joules * answers, rel=1e-12)
    assert found.values["joules_per_output_token"] == pytest.approx(joules, rel=1e-12)
    # Input and output prices pay for the whole between them.
    paid = (
        found.values["usd_per_million_input_tokens"] * prompts
        + found.values["usd_per_million_output_tokens"] * answers
    )
    assert paid == pytest.approx(dollars * 1e6, rel=1e-12)


def test_a_limit_that_the_mix_keeps_is_kept_by_each() -> None:
    chat, retrieval, found = run(batch(), CHAT, ON), run(batch(), RETRIEVAL, ON), both()
    for name in (*LATENCIES, "memory_bytes_per_chip", "distance_to_floor"):
        worst = np.maximum(chat.values[name], retrieval.values[name])
        assert found.values[name].tobytes() == worst.tobytes(), name
    for name in ("running_requests", "output_tokens_per_s_per_user"):
        worst = np.minimum(chat.values[name], retrieval.values[name])
        assert found.values[name].tobytes() == worst.tobytes(), name
    for name, amount in found.violations.items():
        each = (chat.violations[name], retrieval.violations[name])
        assert amount.tobytes() == np.maximum(*each).tobytes()


def test_memory_parts_are_of_one_workload() -> None:
    found = both()
    parts = sum(found.values[f"memory_{part}_bytes_per_chip"] for part in MEMORY_PARTS)
    assert parts == pytest.approx(found.values["memory_bytes_per_chip"], rel=1e-12)


def test_what_does_not_apply_to_a_workload_is_passed_over() -> None:
    offline = workload(1000, 250, "offline")
    night = evaluate_mix(batch(), mix((0.5, CHAT), (0.5, offline)), ON).values["ttft_s"]
    assert night.tobytes() == run(batch(), CHAT, ON).values["ttft_s"].tobytes()
    never = evaluate_mix(batch(), mix((0.5, offline), (0.5, offline)), ON).values["ttft_s"]
    assert np.isnan(never).all()


def test_the_heaviest_workload_names_the_bottleneck() -> None:
    found = both()
    rows = [describe_workloads(found, i) for i in range(len(batch()))]
    for i, (chat, retrieval) in enumerate(rows):
        assert chat["chip_seconds_share"] + retrieval["chip_seconds_share"] == pytest.approx(1.0)
        heavier = chat["chip_seconds_share"] < retrieval["chip_seconds_share"]
        metrics, row = found.heaviest(i)
        assert metrics is found.members[heavier].metrics
        assert row == i
    # Cost over its own total, weighted by tokens, gives the shares back.
    cost = [row["usd_per_million_total_tokens"] for row in rows[0]]
    spent = [0.7 * 1250 * cost[0], 0.3 * 6400 * cost[1]]
    assert rows[0][0]["chip_seconds_share"] == pytest.approx(spent[0] / sum(spent), rel=1e-12)


def test_a_limit_of_one_workload_looks_at_that_one() -> None:
    found = both()
    first, second = (member.metrics.values["ttft_s"] for member in found.members)
    assert (second > first).all()
    limit = float(first[0] + second[0]) / 2
    amounts = [
        Limit("ttft_s", "<=", limit, "", name).amount(found)[0] for name in ("part 0", "part 1", "")
    ]
    assert amounts[0] < 0.0 < amounts[1] == amounts[2]


def test_an_unknown_value_breaks_a_limit_by_no_amount() -> None:
    offline = evaluate_mix(batch(), alone(workload(1000, 250, "offline")), ON)
    row = violations(offline, 0, (Limit("ttft_s", "<=", 2.0, "ttft_s <= 2 s"),))[-1]
    assert (row["amount"], row["value"]) == (None, None)
    assert violation_words(row) == "breaks the limit ttft_s <= 2 s: it has no finite value"


def stream(per_s: float, prompt: float = 1000, output: float = 250) -> Workload:
    return replace(workload(prompt, output, "poisson"), requests_per_s=np.array([per_s]))


def streams(*loads: Workload) -> Metrics:
    rates = [float(load.requests_per_s[0]) for load in loads]
    parts = [(rate / sum(rates), load) for rate, load in zip(rates, loads, strict=True)]
    return evaluate_mix(batch(), mix(*parts), ON)


def test_a_stream_split_in_two_is_that_stream() -> None:
    for rate in (0.5, 4.0, 1000.0):
        whole, halves = run(batch(), stream(rate), ON), streams(stream(rate / 2), stream(rate / 2))
        for name, array in whole.values.items():
            assert halves.values[name] == pytest.approx(array, rel=1e-9, nan_ok=True), name
        for name, array in whole.violations.items():
            assert halves.violations[name] == pytest.approx(array, rel=1e-9), name


def test_loads_of_streams_add_up_and_all_their_tokens_are_served() -> None:
    both, rates = streams(stream(4.0), stream(1.0, 6000, 400)), (4.0, 1.0)
    alone = [run(batch(), one, ON) for one in (stream(4.0), stream(1.0, 6000, 400))]
    load = alone[0].values["utilisation"] + alone[1].values["utilisation"]
    assert (both.values["utilisation"] >= load).all()
    assert both.values["utilisation"] == pytest.approx(load, rel=0.1)
    fine = both.feasible
    assert fine.any()
    offered = 4.0 * 250 + 1.0 * 400
    assert both.values["output_tokens_per_s"][fine] == pytest.approx(offered, rel=1e-9)
    dollars = PRICE / 3600 * batch().chips / offered * 1e6
    found = both.values["usd_per_million_output_tokens_all_in"]
    assert found[fine] == pytest.approx(dollars[fine], rel=1e-9)
    for member, one, rate in zip(both.members, alone, rates, strict=True):
        assert (member.metrics.values["tpot_s"] > one.values["tpot_s"]).all(), rate


def test_streams_that_fit_alone_may_be_too_much_together() -> None:
    rates = [
        0.8 * float(one.requests_per_s[0]) / run(batch(), one, ON).values["utilisation"][-1]
        for one in (stream(1.0), stream(0.2, 6000, 400))
    ]
    first, second = stream(rates[0]), stream(rates[1], 6000, 400)
    for one in (first, second):
        assert run(batch(), one, ON).violations["arrivals_within_capacity"][-1] < 0.0
    together = streams(first, second)
    assert together.violations["arrivals_within_capacity"][-1] > 0.5
    assert not together.feasible[-1]
    assert np.isinf(together.values["ttft_s"][-1])


@pytest.mark.parametrize(
    "loads", [(CHAT, RETRIEVAL, workload(3000, 30)), (stream(4.0), stream(1.0, 6000, 400))]
)
def test_a_candidate_does_not_depend_on_its_batch(loads: tuple[Workload, ...]) -> None:
    parts = mix(*zip((0.5, 0.2, 0.3)[: len(loads)], loads, strict=True))
    whole = evaluate_mix(batch(), parts, ON)
    for i in range(len(batch())):
        single = evaluate_mix(batch()[i : i + 1], parts, ON)
        for table in ("values", "violations"):
            for name, array in getattr(whole, table).items():
                assert array[i].tobytes() == getattr(single, table)[name][0].tobytes(), name


tokens = st.integers(16, 20_000)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 1.0), tokens, tokens), min_size=2, max_size=4),
    st.sampled_from(["continuous", "static"]),
    st.sampled_from([1.0, 32.0, 512.0]),
)
def test_cost_energy_and_rate_lie_between_the_members(parts, serving, concurrency) -> None:
    total = sum(weight for weight, _, _ in parts)
    shares = mix(*((w / total, workload(p, o, serving)) for w, p, o in parts))
    found = evaluate_mix(batch(concurrency=concurrency), shares, ON)
    for name in (*COSTS, "joules_per_output_token", "output_tokens_per_s", "mfu", "mbu"):
        each = np.stack([member.metrics.values[name] for member in found.members])
        assert (found.values[name] >= each.min(axis=0) * (1 - 1e-9)).all(), name
        assert (found.values[name] <= each.max(axis=0) * (1 + 1e-9)).all(), name


SPACE = """\
name: mixed
workloads:
  - {name: chat, weight: 7, prompt_tokens: 1000, output_tokens: 250, serving: continuous}
  - {name: retrieval, weight: 3, prompt_tokens: 6000, output_tokens: 400, serving: continuous,
     constraints: [ttft_s <= 2 s]}
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: h100_sxm
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: bf16
  kv_dtype: bf16
  concurrency: [1, 16, 64]
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
constraints: [ttft_s <= 3 s]
"""


def read(tmp_path: Path, *changes: tuple[str, str]) -> Study:
    return load_study(write(tmp_path, changed(SPACE, *changes)))


def test_weights_are_scaled_and_limits_know_their_workload(tmp_path: Path) -> None:
    study = read(tmp_path)
    assert [(load.name, load.weight) for load in study.workloads] == [
        ("chat", 0.7), ("retrieval", 0.3),
    ]  # fmt: skip
    assert [(limit.text, limit.workload) for limit in study.constraints] == [
        ("ttft_s <= 3 s", ""), ("retrieval: ttft_s <= 2 s", "retrieval"),
    ]  # fmt: skip
    problem = pose(study, load_catalog())
    assert problem.constraints[-2] == "retrieval: ttft_s <= 2 s"
    index = problem.space.unrank(np.arange(problem.space.size))
    found: Evaluation = problem.evaluate(index)
    slow = problem.metrics(index).members[1].metrics.values["ttft_s"]
    assert found.G[:, -2] == pytest.approx(slow / 2.0 - 1.0)


def test_fingerprint_is_of_weights_and_lengths_not_of_names(tmp_path: Path) -> None:
    first = read(tmp_path).fingerprint
    assert read(tmp_path, ("name: chat", "name: talk")).fingerprint == first
    scaled = read(tmp_path, ("weight: 7", "weight: 0.7"), ("weight: 3", "weight: 0.3"))
    assert scaled.fingerprint == first
    changes = (
        ("weight: 7", "weight: 8"), ("prompt_tokens: 6000", "prompt_tokens: 6001"),
        (",\n     constraints: [ttft_s <= 2 s]", ""), ("<= 2 s", "<= 2.5 s"),
    )  # fmt: skip
    prints = {read(tmp_path, change).fingerprint for change in changes}
    assert len(prints | {first}) == 5


def test_a_list_of_one_is_a_workload(tmp_path: Path) -> None:
    lines = SPACE.splitlines(keepends=True)
    load = "{prompt_tokens: 1000, output_tokens: 250, serving: continuous}"
    plain = read(tmp_path, ("".join(lines[1:5]), f"workload: {load}\n"))
    listed = read(tmp_path, ("".join(lines[3:5]), ""))
    assert listed.fingerprint == plain.fingerprint
    assert len(pose(listed, load_catalog()).mix) == 1


ARRIVALS = """\
workloads:
  - {name: chat, prompt_tokens: 1000, output_tokens: 250, serving: poisson, requests_per_second: 6}
  - {name: retrieval, prompt_tokens: 6000, output_tokens: 400, serving: poisson,
     requests_per_second: 2}
"""


def arriving(tmp_path: Path, *changes: tuple[str, str]) -> Study:
    loads = ("".join(SPACE.splitlines(keepends=True)[1:5]), changed(ARRIVALS, *changes))
    return read(tmp_path, loads, ("concurrency: [1, 16, 64]", "concurrency: 1"))


def test_weights_of_arrivals_follow_from_their_rates(tmp_path: Path) -> None:
    written = (("name: chat", "name: chat, weight: 75"), ("retrieval,", "retrieval, weight: 25,"))
    for changes in ((), written):
        study = arriving(tmp_path, *changes)
        assert [load.weight for load in study.workloads] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([("name: chat", "name: chat, weight: 7"), ("retrieval,", "retrieval, weight: 3,")],
         "workloads[0].weight", "its rate 0.75 of the requests"),
        ([("name: chat", "name: chat, weight: 0.75")], "workloads[0].weight", "no weight"),
        ([("serving: poisson,\n     requests_per_second: 2", "serving: continuous")],
         "workloads[1].serving", "poisson for all workloads or for none"),
    ],
)  # fmt: skip
def test_mistake_of_arrivals(tmp_path: Path, changes: list, field: str, said: str) -> None:
    errors = mistakes(arriving, tmp_path, *changes)
    assert any(one.field == field and said in str(one) for one in errors), [*map(str, errors)]


@pytest.mark.parametrize("written", ["workloads: []\n", "", "workload:\n", "workloads:\n"])
def test_no_workload(tmp_path: Path, written: str) -> None:
    lines = SPACE.splitlines(keepends=True)
    with pytest.raises(InputError, match="no workload"):
        read(tmp_path, ("".join(lines[1:5]), written))
