"""Factors, the fit that finds them and the spread that it leaves: laws, known truths, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dse.accuracy import validate as measurements
from dse.accuracy.fits import (
    PARAMETERS,
    Problem,
    SpreadTable,
    linearise,
    pose,
    row_weights,
    spread_table,
    weighted_quantile,
)
from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.intervals import CLASSES
from dse.physics.kernels import BACKENDS, KERNELS
from dse.physics.machines import Machines, calibrated_machines, compile_machines
from dse.schema.backend import CALIBRATION, KINDS, UNCALIBRATED, Calibration
from dse.schema.dtypes import CODE
from tools.fits import serving

CHIPS = ("h100_sxm", "b200_sxm", "mi300x", "trn1", "gaudi2")
SHIPPED = hardware_dir() / "efficiency" / CALIBRATION


@pytest.fixture(scope="module")
def machines() -> Machines:
    return compile_machines(replace(load_catalog(), calibration=UNCALIBRATED), CHIPS)


def arrays(machines: Machines) -> dict[str, np.ndarray]:
    found = {
        f"{name} {field}": getattr(law, field)
        for name, law in machines.laws.items()
        for field in ("s_per_flop", "s_per_byte", "fixed_s", "floor_of_compute")
    }
    links = ("latency_s", "s_per_byte")
    return found | {
        f"{name} {field}": getattr(getattr(machines.fabric, name), field)
        for name in ("all_reduce", "all_gather", "all_to_all")
        for field in links
    }


def moved(before: Machines, after: Machines) -> set[str]:
    """Arrays that differ by more than rounding."""
    old, new = arrays(before), arrays(after)
    return {name for name in old if not np.allclose(old[name], new[name], rtol=1e-12, atol=0.0)}


def test_a_factor_of_one_changes_nothing(machines: Machines) -> None:
    assert not moved(machines, calibrated_machines(machines, {p.name: 1.0 for p in KERNELS}))
    backends = load_catalog().backends
    for backend in backends.values():
        assert Calibration({p.name: 1.0 for p in BACKENDS}, {}).backend(backend) == backend


@pytest.mark.parametrize("factor", [1.3, 100.0])
def test_no_fraction_passes_the_peak(machines: Machines, factor: float) -> None:
    """Compute and memory at most the data sheet's, whatever the factors."""
    catalog = load_catalog()
    after = calibrated_machines(machines, {p.name: factor for p in KERNELS})
    for name, law in after.laws.items():
        peak_s = law.s_per_flop * law.floor_of_compute
        before = machines.laws[name]
        assert peak_s == pytest.approx(before.s_per_flop * before.floor_of_compute)
        assert (law.floor_of_compute <= 1.0).all()
        assert (law.s_per_flop <= before.s_per_flop).all()
        for row, chip in enumerate(CHIPS):
            bandwidth = catalog.chips[chip].memories[0].bytes_per_s
            assert (law.s_per_byte[row] >= 1.0 / bandwidth * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("parameter", [p.name for p in KERNELS])
def test_a_factor_moves_its_own_law_alone(machines: Machines, parameter: str) -> None:
    """Half the fraction takes twice the time; a factor of 0.5 of a time halves it."""
    owner, _, part = parameter.partition(".")
    after = calibrated_machines(machines, {parameter: 0.5})
    field = {
        "compute": "s_per_flop", "memory": "s_per_byte", "fixed": "fixed_s",
        "latency": "latency_s", "bandwidth": "s_per_byte",
    }[part]  # fmt: skip
    laws = {
        "gemm": ["gemm"], "gemm_narrow": ["gemm"], "experts": ["experts"],
        "prefill_attention": ["prefill_attention", "mla_prefill_attention"],
        "decode_attention": ["decode_attention", "mla_decode_attention"],
        "cdna3_experts": ["experts"], "cdna3_block": ["gemm"], "experts_unpacked": ["experts"],
        "all_reduce": ["all_reduce"], "exchange": ["all_gather", "all_to_all"],
    }.get(owner, list(machines.laws))  # fmt: skip
    expected = {f"{law} {field}" for law in laws}
    floors = {f"{law} floor_of_compute" for law in laws} if part == "compute" else set()
    assert moved(machines, after) == expected | floors
    for name in expected:
        ratio = arrays(after)[name] / arrays(machines)[name]
        slower = 0.5 if field in ("fixed_s", "latency_s") else 2.0
        if ratio.shape == machines.native_dtype.shape:
            # A format that is unpacked may be held behind a native one, and moves less or with it;
            # so may the compute of one that was never measured, where it is as fast as the best.
            held = ~machines.native_dtype
            if part == "compute":
                law = name.partition(" ")[0]
                inherits = machines.inherits.get(law, np.zeros_like(held))
                floors = (each.laws[law].floor_of_compute for each in (machines, after))
                best = (np.where(inherits, 0.0, f).max(axis=1, keepdims=True) <= f for f in floors)
                held = held | (inherits & np.logical_or(*best))
            low, high = sorted((1.0, slower))
            assert ((ratio[held] >= low - 1e-12) & (ratio[held] <= high + 1e-12)).all()
            ratio = ratio[~held]
        assert set(np.unique(ratio.round(12))) <= {1.0, slower}
        if owner == "experts_unpacked":
            whole = arrays(after)[name] / arrays(machines)[name]
            assert (whole[machines.native_dtype] == 1.0).all()
            assert (whole[~machines.native_dtype] > 1.0).any()
        if owner.startswith("class_"):
            rows = [f"class_{'trainium' if 'trn' in c else 'gaudi'}" for c in CHIPS]
            mine = np.array([c in ("trn1", "gaudi2") for c in CHIPS]) & (np.array(rows) == owner)
            whole = arrays(after)[name] / arrays(machines)[name]
            assert (whole[mine] == slower).all()
            assert (whole[~mine] == 1.0).all()
        if owner.startswith("cdna3_"):
            whole = arrays(after)[name] / arrays(machines)[name]
            assert (np.delete(whole, CHIPS.index("mi300x"), axis=0) == 1.0).all()
            block = whole[CHIPS.index("mi300x")] == slower
            assert block[CODE["fp8_block"]]
            assert block[CODE["bf16"]] == (owner == "cdna3_experts")


def test_the_shipped_file_is_within_the_room_of_its_factors() -> None:
    calibration = Calibration.load(SHIPPED)
    assert set(calibration.factors) == {p.name for p in PARAMETERS}
    for parameter in KERNELS:
        if not parameter.name.startswith(("class_", "cdna3_")):
            moved_by = abs(np.log(calibration.factors[parameter.name]))
            assert moved_by < 3.0 * parameter.sd, parameter.name
    assert set(calibration.spread) == set(CLASSES)
    for kinds in calibration.spread.values():
        widths = [kinds[kind][1] / kinds[kind][0] for kind in KINDS]
        assert widths == sorted(widths)
        assert all(low < 1.0 < high for low, high in kinds.values())


def test_a_wrong_calibration_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    text = SHIPPED.read_text(encoding="utf-8")
    path.write_text(text.replace("gemm.fixed: ", "gemm.fixed: much ", 1), encoding="utf-8")
    with pytest.raises(InputError, match=r"gemm\.fixed"):
        Calibration.load(path)


# The fit


PRIORS = np.zeros(len(PARAMETERS))


@pytest.fixture(scope="module")
def small() -> Problem:
    """A few rows of every group of two chips."""
    table = measurements.scored_rows(measurements.shipped()[0])
    table = table[table["serving"].isin(["continuous", "offline"])]
    table = table[table["chip"].isin(["h100_sxm", "h200_sxm"])]
    return pose(table.groupby(["group", "engine", "metric"]).head(6).reset_index(drop=True))


def test_a_known_truth_is_recovered(small: Problem) -> None:
    """Rows made by the model itself with other factors: predicted again within 1% at the median,
    and factors that many rows depend on come back within a tenth."""
    truth = np.zeros(len(PARAMETERS))
    names = [p.name for p in PARAMETERS]
    told = {"sglang.first_token_s": 0.45, "trtllm.first_token_s": -0.45, "gemm.memory": -0.1}
    for name, log in told.items():
        truth[names.index(name)] = log
    made = replace(small, measured=small.predict(truth)[:, 0])
    found = made.fit()
    error = np.abs(np.expm1(made.logs(found)))
    assert np.median(error) < 0.01
    assert error.mean() < np.abs(np.expm1(made.logs(np.zeros_like(truth)))).mean() / 3
    for name, log in told.items():
        both = found[names.index(name)]
        if name.endswith("first_token_s"):  # what all backends share counts too
            both += found[names.index("backend.first_token_s")]
        assert both == pytest.approx(log, abs=0.1), name


def test_a_row_that_is_far_off_pulls_less_than_one_that_is_near(small: Problem) -> None:
    """Ten times as slow as predicted, a row moves the fit by little: it is a stalled server."""
    measured = small.predict(PRIORS)[:, 0]
    used = np.flatnonzero(small.weight > 0.0)
    stalled = measured.copy()
    stalled[used[::10]] *= 10.0
    assert np.abs(replace(small, measured=stalled).fit()).max() < 0.3


@pytest.fixture(scope="module")
def linear(small: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Log ratios of the rows and their slopes, at the priors."""
    return linearise(small.logs, PRIORS)


def test_rows_of_no_weight_do_not_enter(small: Problem, linear: tuple[np.ndarray, ...]) -> None:
    """Three times as slow or not, they leave the fit where it was."""
    ratio, slopes = linear
    rows = (small.table["group"] == small.table["group"].iloc[0]).to_numpy()[small.used]
    weight = np.where(rows, 0.0, small.weight[small.used])
    slower = ratio - np.where(rows, np.log(3.0), 0.0)
    one, other = (small.objective.refit(PRIORS, r, slopes, weight) for r in (ratio, slower))
    assert one == pytest.approx(other, abs=1e-9)
    assert np.abs(one).max() > 0.01


def test_every_row_is_predicted_by_a_fit_without_it(
    small: Problem, linear: tuple[np.ndarray, np.ndarray]
) -> None:
    numbers = small.without_each("model", PRIORS, linear)[small.used]
    assert np.isfinite(numbers[:, :3]).all()
    assert (numbers[:, 1] <= numbers[:, 0]).all()
    assert (numbers[:, 0] <= numbers[:, 2]).all()
    assert (numbers[:, 1] < numbers[:, 2]).all()


def test_groups_weigh_the_same_and_small_ones_less() -> None:
    table = pd.DataFrame(
        {
            "metric": "tpot_s",
            "serving": "continuous",
            "group": ["a"] * 20 + ["b"] * 5 + ["c"] * 2 + ["d"],
        }
    )
    counted = np.ones(len(table), dtype=bool)
    counted[-1] = False
    weight = row_weights(table, counted)
    by = pd.Series(weight).groupby(table["group"]).sum()
    assert by["a"] == by["b"] == pytest.approx(1.0 / 3.0)
    assert by["c"] == pytest.approx(2.0 / 5.0 / 3.0)
    assert by["d"] == 0.0
    offline = row_weights(table.assign(serving="offline", metric="output_tokens_per_s"), counted)
    assert offline == pytest.approx(0.6 * weight)


# The spread


def test_quantiles_by_hand() -> None:
    """A value stands at the middle of its weight: 1, 2, 3, 4 at 1/8, 3/8, 5/8, 7/8."""
    values, equal = pd.Series([3.0, 1.0, 4.0, 2.0]), pd.Series([1.0] * 4)
    for share, expected in ((0.5, 2.5), (0.125, 1.0), (0.25, 1.5), (0.9, 4.0), (0.0, 1.0)):
        assert weighted_quantile(values, equal, share) == pytest.approx(expected)
    # 0 at 3/8, 10 at 7/8 of the weight: the middle is a quarter of the way.
    heavy = weighted_quantile(pd.Series([0.0, 10.0]), pd.Series([3.0, 1.0]), 0.5)
    assert heavy == pytest.approx(2.5)


def spread_rows(kinds: list[str], logs: list[list[float]]) -> tuple[pd.DataFrame, np.ndarray]:
    """One group of tpot_s for each list; throughput rows, and ttft_s rows of either scheduler, with
    the same errors."""
    rows = [
        {
            **{"metric": metric, "scheduler": scheduler, "serving": "continuous"},
            **{"group": f"m{k}|x", "kind": kind, "log": log},
        }
        for metric, scheduler in (
            ("tpot_s", "mixed"),
            ("ttft_s", "mixed"),
            ("ttft_s", "prefill_first"),
            ("prefill_s", "mixed"),
            ("output_tokens_per_s", "mixed"),
        )
        for k, (kind, group) in enumerate(zip(kinds, logs, strict=True))
        for log in group
    ]
    table = pd.DataFrame(rows)
    return table, table["kind"].map(KINDS.index).to_numpy(dtype=float)


def spread_of_tuned(table: pd.DataFrame, kind: np.ndarray) -> tuple[SpreadTable, float]:
    return spread_table(
        table, np.exp(table["log"].to_numpy()), kind, np.zeros(len(table), dtype=bool)
    )


def test_spread_by_hand() -> None:
    """Errors of 0.1 and -0.1 in turn are the ends; derived ones three
    times as large widen threefold; assumed ones, which came out smaller, stay as wide."""
    table, kind = spread_rows(
        ["fitted", "derived", "assumed"], [[0.1, -0.1] * 5, [0.3, -0.3] * 5, [0.01] * 5]
    )
    found, wider = spread_of_tuned(table, kind)
    assert wider == 1.0
    assert set(found) == set(CLASSES)
    for name in CLASSES:
        assert found[name]["fitted"] == pytest.approx((np.exp(-0.1), np.exp(0.1)))
        assert found[name]["derived"] == pytest.approx((np.exp(-0.3), np.exp(0.3)))
        assert found[name]["assumed"] == found[name]["derived"]


def test_a_large_group_weighs_by_the_root_of_its_rows() -> None:
    """100 exact rows weigh 10, 9 rows off by 0.5 weigh 3, of 13: no 80% is without some of the
    latter, which it would be if rows counted alike."""
    table, kind = spread_rows(["fitted", "fitted"], [[0.0] * 100, [0.5] * 9])
    found = spread_of_tuned(table, kind)[0]["step"]["fitted"]
    assert found[0] == pytest.approx(1.0)
    assert found[1] == pytest.approx(np.exp(0.5))


def test_the_ends_are_the_narrowest_that_hold_the_share() -> None:
    """Of 100 rows 85 lie within 10% and 15 are twice as slow: the ends leave out these, not ten
    rows on either side."""
    table, kind = spread_rows(["fitted"], [[*np.linspace(-0.1, 0.1, 85), *[0.7] * 15]])
    low, high = spread_of_tuned(table, kind)[0]["step"]["fitted"]
    assert low == pytest.approx(np.exp(-0.1), abs=0.01)
    assert high == pytest.approx(np.exp(-0.1 + 0.2 * 80 / 85), abs=0.01)


@pytest.mark.parametrize(("error", "power"), [(0.05, 1.0), (0.15, 1.5), (5.0, 2.0)])
def test_stock_launches_widen_by_their_own_error(error: float, power: float) -> None:
    """Of tuned rows off by 0.1, and never narrower than those nor beyond the second power."""
    table, kind = spread_rows(["fitted"] * 2, [[0.1, -0.1] * 5, [error] * 10])
    stock = (table["group"] == "m1|x").to_numpy()
    found, wider = spread_table(table, np.exp(table["log"].to_numpy()), kind, stock)
    assert wider == pytest.approx(power)
    assert found["step"]["fitted"] == pytest.approx((np.exp(-0.1), np.exp(0.1)))


@pytest.mark.extra
def test_the_shipped_file_is_written_from_the_shipped_rows() -> None:
    """Byte for byte, but for the last digit that another machine may round otherwise."""
    rows = hardware_dir() / "measurements" / serving.DATA
    assert serving.text(rows) == SHIPPED.read_text(encoding="utf-8")


@pytest.mark.parametrize("truth", [0.0, 0.5, 0.9])
def test_the_correlation_of_two_chips_comes_back(truth: float) -> None:
    """Normal errors of 400 models on two chips of one family and one of another."""
    rng = np.random.default_rng(1)
    common, own = rng.standard_normal((400, 1)), rng.standard_normal((400, 2))
    kin = np.sqrt(truth) * common + np.sqrt(1.0 - truth) * own
    logs = np.concatenate([kin, rng.standard_normal((400, 1))], axis=1)
    rows = [
        {"metric": "tpot_s", "serving": "continuous", "model": f"m{k}", "chip": chip, "log": log}
        for k, line in enumerate(logs)
        for chip, log in zip("abc", line, strict=True)
        for _ in range(5)
    ]
    table = pd.DataFrame(rows)
    found = serving.correlations(
        table, np.exp(table["log"].to_numpy()), {"a": "x", "b": "x", "c": "y"}
    )
    assert found["same"] == (400, pytest.approx(truth, abs=0.15))
    assert found["other"] == (800, pytest.approx(0.0, abs=0.15))
