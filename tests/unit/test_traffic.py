"""A trace as classes and rates, and the fleet that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.errors import InputError, NothingFeasible
from dse.physics.poisson import equilibrium, percentile, response
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.questions.traffic.answer import Targets, size_fleets, traffic_of_study
from dse.schema.model_catalog import resolve_model
from dse.schema.study import Study, load_study, resolve_space
from dse.schema.trace import Trace, read_trace
from dse.schema.traffic import GROUPS, Class, Traffic, traffic_of
from tests import simulation
from tests.cli.conftest import SMALL
from tests.unit.test_poisson import rank
from tests.unit.test_queueing import BUDGET, ROW, TOKEN, law

REQUESTS = 8_000


def trace(time, prompt, output, cached=None) -> Trace:
    arrays = [np.asarray(one, dtype=float) for one in (time, prompt, output)]
    arrays.append(np.zeros(len(arrays[0])) if cached is None else np.asarray(cached, dtype=float))
    return Trace("trace.csv", *arrays)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 50_000), st.integers(1, 5_000), st.floats(0, 1)),
        min_size=2, max_size=60,
    ),
    groups=st.integers(1, 6),
)  # fmt: skip
def test_classes_keep_all_tokens_and_requests(rows, groups) -> None:
    prompt, output, share = np.array(rows).T
    time = np.linspace(0.0, 100.0, len(rows))
    found = traffic_of(trace(time, prompt, output, np.floor(share * prompt)), 10.0, 1.0, groups)
    assert sum(one.share for one in found.classes) == pytest.approx(1.0)
    assert found.tokens_per_request == pytest.approx((prompt.mean(), output.mean()))
    assert len(found.classes) <= 2 * groups
    assert all(0.0 <= one.cached < 1.0 for one in found.classes)


def test_equal_requests_are_one_class() -> None:
    found = traffic_of(trace(range(101), [512] * 101, [64] * 101, [256] * 101), 10.0, 1.0, 8)
    assert found.classes == (Class(1.0, 512.0, 64.0, 0.5),)


def test_the_busy_window_is_counted() -> None:
    """100 s at one a second, with twenty more in the window from 30 s to 40 s."""
    times = np.sort(np.concatenate([np.arange(0.0, 101.0), np.linspace(30.1, 39.9, 20)]))
    of = trace(times, [100] * len(times), [10] * len(times))
    busiest, typical = (traffic_of(of, 10.0, share, 1).busy_per_s for share in (1.0, 0.5))
    assert (busiest, typical) == (3.0, 1.0)
    assert traffic_of(of, 10.0, 1.0, 1).mean_per_s == pytest.approx(1.2)


def test_short_prompts_and_long_ones_are_told_apart() -> None:
    prompt = [100] * 50 + [10_000] * 50
    found = traffic_of(trace(range(100), prompt, [10] * 100), 10.0, 1.0, 2)
    assert [(one.share, one.prompt) for one in found.classes] == [(0.5, 100.0), (0.5, 10_000.0)]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    path = tmp_path_factory.mktemp("spaces") / "small.yaml"
    path.write_text(SMALL.replace("chip: h100_sxm", "chip: [h100_sxm, l40s]"), "utf-8")
    return load_study(path)


TARGETS = Targets(90, 0.5, 0.03)


def test_the_fleet_is_the_smallest_that_keeps_the_targets(study: Study) -> None:
    """Every count below the answer, as one instance at its share of the rate, fails."""
    catalog = load_catalog()
    best = size_fleets(study, catalog, traffic_of_study(study, 60.0), TARGETS).fleets[0]
    assert best.instances > 1
    of = best.deployment
    for count in range(1, best.instances + 1):
        alone = estimate(
            catalog,
            resolve_model("llama-3-8b"),
            best.chip,
            Workload.of(
                1024, 256, "poisson", catalog.backends["generic"], requests_per_second=60.0 / count
            ),
            {"tensor_parallel": float(str(of["tensor_parallel"])), "concurrency": 1.0},
            weight_dtype=str(of["weight_dtype"]),
            kv_dtype=str(of["kv_dtype"]),
        ).metrics
        first, last = (float(alone.values[name][0]) for name in ("ttft_p90_s", "tpot_s"))
        kept = alone.feasible[0] and first <= TARGETS.ttft_s and last <= TARGETS.tpot_s
        assert kept == (count == best.instances), count


def test_no_deployment_alone_is_cheaper_than_the_cheapest_of_all(
    study: Study, tmp_path: Path
) -> None:
    """Dear deployments are dropped unfinished; each alone has nothing to be dropped for."""
    catalog = load_catalog()
    traffic = traffic_of_study(study, 150.0)
    together = size_fleets(study, catalog, traffic, TARGETS)
    alone: dict[str, float] = {}
    text = study.path.read_text("utf-8")
    for tensor_parallel in (1, 2, 4):
        for dtype in ("bf16", "fp8"):
            path = tmp_path / "one.yaml"
            one = text.replace("[1, 2, 4]", str(tensor_parallel)).replace("[bf16, fp8]", dtype)
            path.write_text(one, "utf-8")
            for fleet in size_fleets(load_study(path), catalog, traffic, TARGETS).fleets:
                known = alone.get(fleet.chip, np.inf)
                alone[fleet.chip] = min(known, fleet.usd_per_hour)
    assert {one.chip: one.usd_per_hour for one in together.fleets} == alone


def test_more_requests_and_higher_percentiles_need_no_smaller_fleet(study: Study) -> None:
    def cheapest(rate: float, percentile: int) -> float:
        targets = replace(TARGETS, percentile=percentile)
        found = size_fleets(study, load_catalog(), traffic_of_study(study, rate), targets)
        return found.fleets[0].usd_per_hour

    by_rate = [cheapest(rate, 90) for rate in (5.0, 50.0, 200.0)]
    by_percentile = [cheapest(50.0, percentile) for percentile in (50, 90, 99)]
    assert by_rate == sorted(by_rate)
    assert by_rate[0] < by_rate[-1]
    assert by_percentile == sorted(by_percentile)


def test_a_little_more_traffic_needs_no_smaller_fleet(tmp_path: Path) -> None:
    """Where an instance more is needed, each is loaded near what it bears."""
    text = resolve_space("deploy-llama-3-70b").read_text("utf-8")
    path = tmp_path / "one-chip.yaml"
    path.write_text(text.replace("chip: all", "chip: gb300_nvl72"), "utf-8")
    study, catalog = load_study(path), load_catalog()
    usd = [
        size_fleets(study, catalog, traffic_of_study(study, rate), Targets(90, 2.0, 0.05))
        for rate in np.arange(102.15, 102.25, 0.01)
    ]
    usd = [sized.fleets[0].usd_per_hour for sized in usd]
    assert usd == sorted(usd)


def test_money_and_tokens_agree(study: Study) -> None:
    traffic = Traffic((Class(1.0, 1000.0, 250.0, 0.0),), 10.0, 40.0)
    for one in size_fleets(study, load_catalog(), traffic, TARGETS).fleets:
        assert one.tokens_per_usd == pytest.approx(10.0 * 1250.0 * 3600.0 / one.usd_per_hour)
        assert one.usd_per_million_mean * one.tokens_per_usd == pytest.approx(1e6)
        assert one.usd_per_million_mean == pytest.approx(4.0 * one.usd_per_million_busy)
        assert one.chips == one.instances * float(str(one.deployment["tensor_parallel"]))
        assert one.first_s <= TARGETS.ttft_s
        assert one.load < 1.0


def test_cached_prompts_need_no_larger_fleet(study: Study) -> None:
    def usd(cached: float) -> float:
        traffic = Traffic((Class(1.0, 4000.0, 50.0, cached),), 100.0, 100.0)
        return size_fleets(study, load_catalog(), traffic, TARGETS).fleets[0].usd_per_hour

    assert usd(0.9) < usd(0.0)


def test_targets_that_no_chip_keeps(study: Study) -> None:
    with pytest.raises(NothingFeasible, match="no deployment"):
        size_fleets(study, load_catalog(), traffic_of_study(study, 1.0), Targets(99, 1e-6, 1.0))


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_the_slowest_class_stands_for_the_percentile_of_all(load: float) -> None:
    """Against the discrete-event simulation, with lengths that spread widely: never much below,
    and mean lengths alone far below."""
    rng = np.random.default_rng(2)
    prompt = np.clip(np.rint(rng.lognormal(6.8, 1.1, REQUESTS)), 1, 32_000)
    output = np.clip(np.rint(rng.lognormal(5.3, 0.8, REQUESTS)), 1, 4_000)
    per_s = load / (TOKEN * prompt.mean() + ROW * output.mean())
    served = simulation.open_loop(
        law, prompt.astype(int), output.astype(int), simulation.poisson(per_s, REQUESTS, 3),
        budget=BUDGET,
    )  # fmt: skip
    measured = served.ttft_s[REQUESTS // 5 : -REQUESTS // 20]
    of = trace(np.linspace(0.0, 1000.0, REQUESTS), prompt, output)
    for percentile_, groups in GROUPS.items():
        share = percentile_ / 100.0
        ratio = _slowest(of, groups, load, share) / np.quantile(measured, share)
        assert 0.75 < ratio < 1.6, (percentile_, ratio)
    assert _slowest(of, 1, load, 0.9) < 0.55 * np.quantile(measured, 0.9)


def _slowest(of: Trace, groups: int, load: float, share: float) -> float:
    """Percentile of the time to first token of the slowest class, each alone at the whole load."""
    found = []
    for one in traffic_of(of, 10.0, 1.0, groups).classes:
        per_s = np.array([load / (TOKEN * one.prompt + ROW * one.output)])

        def met(rows: np.ndarray, one: Class = one, per_s: np.ndarray = per_s):
            shape = (round(one.prompt), round(one.output))
            return response(rank(rows, *shape, "mixed"), per_s)

        rows = equilibrium(
            lambda rows, per_s=per_s, met=met, one=one: 1 + per_s * one.output * met(rows).tpot_s,
            np.array([4096.0]),
        )
        at = met(rows)
        found.append(percentile(at.own_s, at.wait, share)[0])
    return float(max(found))


HEAD = "time,prompt,output,cached\n"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "time"),
        ("when,prompt,output\n1,2,3\n", 1, "time"),
        ("time,promt,output\n1,2,3\n", 1, "promt"),
        (HEAD, None, "no row"),
        (HEAD + "0,10,10,0\n", None, "one row"),
        (HEAD + "0,10,10,0\n-1,10,10,0\n", 3, "-1"),
        (HEAD + "5,10,10,0\n4,10,10,0\n", 3, "order of arrival"),
        (HEAD + "0,10,10,0\nnan,10,10,0\n", 3, "nan"),
        (HEAD + "0,10,10,0\n1,1e99,10,0\n", 3, "prompt"),
        (HEAD + "0,10,0,0\n1,10,10,0\n", 2, "output"),
        (HEAD + "0,10,1.5,0\n1,10,10,0\n", 2, "whole number"),
        (HEAD + "0,10,10,11\n1,10,10,0\n", 2, "at most the prompt"),
        (HEAD + "0,10,10\n1,10,10,0\n", 2, "3 cells"),
        (HEAD + "7,10,10,0\n7,10,10,0\n", None, "same time"),
        (HEAD + '0,"10,10,0\n', None, "cannot be read"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, line: int | None, told: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.line == line


def test_a_trace_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\ufeffid,Output,time,prompt\na,5,0.5,7\n\nb,6,2,8\n", "utf-8")
    found = read_trace(path)
    assert found.time_s.tolist() == [0.5, 2.0]
    assert (found.prompt.tolist(), found.output.tolist()) == ([7.0, 8.0], [5.0, 6.0])
    assert found.cached.tolist() == [0.0, 0.0]
