"""A trace as classes and rates, and the fleet that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse import fleet
from dse.catalog import load_catalog
from dse.errors import InputError
from dse.physics.queueing import equilibrium, percentile, response
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.schema.backend import find_backend
from dse.schema.model_catalog import resolve_model
from dse.schema.traffic import GROUPS, Requests, Trace, _read, mean_of, read_trace, traffic_of
from dse.schema.workloads import CURRENT_BACKEND
from tests import simulation
from tests.helpers_files import refusal, write
from tests.unit.test_queueing import BUDGET, ROW, TOKEN, law
from tests.unit.test_queueing import open_rank as rank

REQUESTS = 8_000


def trace(time, prompt, output, cached=None) -> Trace:
    arrays = [np.asarray(one, dtype=float) for one in (time, prompt, output)]
    arrays.append(np.zeros(len(arrays[0])) if cached is None else np.asarray(cached, dtype=float))
    return Trace("trace.csv", *arrays)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 50_000), st.integers(1, 5_000), st.floats(0, 1)),
        min_size=2,
        max_size=60,
    ),
    groups=st.integers(1, 6),
)
def test_classes_keep_all_tokens_and_requests(rows, groups) -> None:
    prompt, output, share = np.array(rows).T
    time = np.linspace(0.0, 100.0, len(rows))
    found = traffic_of(trace(time, prompt, output, np.floor(share * prompt)), 10.0, 1.0, groups)
    assert sum(one.share for one in found["streams"]) == pytest.approx(1.0)
    mean = mean_of(found["streams"])
    assert mean.prompt_tokens == pytest.approx(prompt.mean())
    assert mean.output_tokens == pytest.approx(output.mean())
    assert len(found["streams"]) <= 2 * groups
    assert all(0.0 <= one.prefix_hit_rate < 1.0 for one in found["streams"])


def test_equal_requests_are_one_class() -> None:
    found = traffic_of(trace(range(101), [512] * 101, [64] * 101, [256] * 101), 10.0, 1.0, 8)
    assert found["streams"] == (Requests(1.0, 512.0, 64.0, 0.5),)


def test_the_busy_window_is_counted() -> None:
    """100 s at one a second, with twenty more in the window from 30 s to 40 s."""

    def busy(of: Trace, share: float) -> float:
        found = traffic_of(of, 10.0, share, 1)
        return found["requests_per_s"] * found["peak_over_average"]

    times = np.sort(np.concatenate([np.arange(0.0, 101.0), np.linspace(30.1, 39.9, 20)]))
    of = trace(times, [100] * len(times), [10] * len(times))
    busiest, typical = (busy(of, share) for share in (1.0, 0.5))
    assert (busiest, typical) == (3.0, 1.0)
    assert traffic_of(of, 10.0, 1.0, 1)["requests_per_s"] == pytest.approx(1.2)


def test_short_prompts_and_long_ones_are_told_apart() -> None:
    prompt = [100] * 50 + [10_000] * 50
    found = traffic_of(trace(range(100), prompt, [10] * 100), 10.0, 1.0, 2)
    assert [(one.share, one.prompt_tokens) for one in found["streams"]] == [
        (0.5, 100.0),
        (0.5, 10_000.0),
    ]


LIMITS = {"ttft_limit": "500ms", "tpot_limit": "30ms"}


def fleets(per_s: float, percentile: int = 90, **more: Any) -> list[dict[str, Any]]:
    """The fleet on each chip alone, for requests of 1,024 and 256 tokens; the cheapest first."""
    asked = {"chip": ["h100_sxm", "mi300x"], "prompt_tokens": 1024, "output_tokens": 256, **LIMITS}
    found = fleet(
        model="llama-3-8b", requests_per_second=per_s, percentile=percentile, **asked | more
    )
    return found.document["fleets"]


def test_the_fleet_is_the_smallest_that_keeps_the_limits() -> None:
    """One instance fewer, each at its share of the rate, fails."""
    catalog = load_catalog()
    best = fleets(120.0, largest_instance=1)[0]
    count = best["instances"]
    assert count > 1
    for each in (count, count - 1):
        alone = estimate(
            catalog,
            resolve_model("llama-3-8b"),
            best["chip"],
            Workload.of(
                1024,
                256,
                "poisson",
                find_backend(catalog.backends, CURRENT_BACKEND),
                requests_per_second=120.0 / each,
            ),
            {"concurrency": 1.0},
        ).metrics
        first, last = (float(alone.values[name][0]) for name in ("ttft_p90_s", "tpot_s"))
        kept = alone.feasible[0] and first <= 0.5 and last <= 0.03
        assert kept == (each == count), each


def test_no_format_alone_is_cheaper_than_the_cheapest_of_all() -> None:
    together = {one["chip"]: one for one in fleets(150.0, weight_dtype="bf16,fp8")}
    for dtype in ("bf16", "fp8"):
        for one in fleets(150.0, weight_dtype=dtype):
            assert together[one["chip"]]["usd_per_hour"] <= one["usd_per_hour"] * (1.0 + 1e-9)


def test_more_requests_and_higher_percentiles_need_no_smaller_fleet() -> None:
    def cheapest(rate: float, percentile: int) -> float:
        return fleets(rate, percentile, chip="h100_sxm")[0]["usd_per_hour"]

    by_rate = [cheapest(rate, 90) for rate in (5.0, 300.0, 302.0, 900.0)]
    by_percentile = [cheapest(600.0, percentile) for percentile in (50, 90, 99)]
    assert by_rate == sorted(by_rate)
    assert by_rate[0] < by_rate[-1]
    assert by_percentile == sorted(by_percentile)


def test_money_and_tokens_agree() -> None:
    for one in fleets(10.0, peak_over_average=4.0):
        assert one["tokens_per_usd"] == pytest.approx(10.0 * 1280 * 3600.0 / one["usd_per_hour"])
        assert one["usd_per_million_mean"] * one["tokens_per_usd"] == pytest.approx(1e6)
        assert one["usd_per_million_mean"] == pytest.approx(4.0 * one["usd_per_million_busy"])
        assert one["ttft_percentile_s"] <= 0.5
        assert one["tpot_s"] <= 0.03
        assert one["load"] == pytest.approx(40.0 / one["most_requests_per_s"])
        assert one["load"] <= 1.0


def test_cached_prompts_need_no_larger_fleet() -> None:
    asked = {"chip": "h100_sxm", "prompt_tokens": 4000, "output_tokens": 50}
    some, none = (fleets(100.0, prefix_hit_rate=cached, **asked)[0] for cached in (0.9, 0.0))
    assert some["chips"] < none["chips"]


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_the_slowest_class_stands_for_the_percentile_of_all(load: float) -> None:
    """Against the discrete-event simulation, with lengths that spread widely: never much below,
    and mean lengths alone far below."""
    rng = np.random.default_rng(2)
    prompt = np.clip(np.rint(rng.lognormal(6.8, 1.1, REQUESTS)), 1, 32_000)
    output = np.clip(np.rint(rng.lognormal(5.3, 0.8, REQUESTS)), 1, 4_000)
    per_s = load / (TOKEN * prompt.mean() + ROW * output.mean())
    served = simulation.open_loop(
        law,
        prompt.astype(int),
        output.astype(int),
        simulation.poisson(per_s, REQUESTS, 3),
        budget=BUDGET,
    )
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
    for one in traffic_of(of, 10.0, 1.0, groups)["streams"]:
        per_s = np.array([load / (TOKEN * one.prompt_tokens + ROW * one.output_tokens)])

        def met(rows: np.ndarray, one: Requests = one, per_s: np.ndarray = per_s):
            shape = (round(one.prompt_tokens), round(one.output_tokens))
            return response(rank(rows, *shape, "mixed"), per_s)

        rows = equilibrium(
            lambda rows, per_s=per_s, met=met, one=one: (
                1 + per_s * one.output_tokens * met(rows).tpot_s
            ),
            np.array([4096.0]),
        )
        at = met(rows)
        found.append(percentile(at.own_s, at.wait, share)[0])
    return float(max(found))


HEAD = "time,prompt,output,cached\n"


@pytest.mark.parametrize(
    "rows",
    [
        ("time", "0", "1.5", "4"),
        ("time", "1700000000", "1700000001.5", "1700000004"),
        ("time_ms", "0", "1500", "4000"),
        ("time_s", "0", "1.5", "4"),
        ("time", "1700000000000", "1700000001500", "1700000004000"),
        ("time", "1700000000000000000", "1700000001500000000", "1700000004000000000"),
        ("time", "2026-11-23T10:00:00", "2026-11-23T10:00:01.5", "2026-11-23T10:00:04"),
        ("time", "2026-11-23 11:00:00+01:00", "2026-11-23T10:00:01.500Z", "2026-11-23T10:00:04Z"),
    ],
)
def test_times_are_read_in_the_unit_that_they_are_in(tmp_path: Path, rows: tuple[str, ...]) -> None:
    """Four seconds, however they are written."""
    head, *times = rows
    text = f"{head},prompt,output\n" + "".join(f"{t},9,9\n" for t in times)
    found = read_trace(write(tmp_path, text)).time_s
    assert found - found[0] == pytest.approx([0.0, 1.5, 4.0])


@given(st.integers(6, 500))
def test_whole_numbers_far_apart_ask_for_their_unit(gap: int) -> None:
    """A request in `gap` seconds or in as many milliseconds: demand differs a thousandfold."""
    rows = [[str(gap * k), "9", "9"] for k in range(30)]
    with pytest.raises(InputError, match="if they are seconds"):
        _read(iter([["time", "prompt", "output"], *rows]), "trace.csv")
    for name, unit in (("time_s", 1.0), ("time_ms", 1e-3)):
        found = _read(iter([[name, "prompt", "output"], *rows]), "trace.csv")
        assert found.span_s == pytest.approx(29 * gap * unit)


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
    path = write(tmp_path, text)
    error = refusal(read_trace, path)
    assert told in str(error)
    assert str(path) in str(error)
    assert error.line == line


def test_a_trace_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    found = read_trace(write(tmp_path, "\ufeffid,Output,time,prompt\na,5,0.5,7\n\nb,6,2,8\n"))
    assert found.time_s.tolist() == [0.5, 2.0]
    assert (found.prompt.tolist(), found.output.tolist()) == ([7.0, 8.0], [5.0, 6.0])
    assert found.cached.tolist() == [0.0, 0.0]
