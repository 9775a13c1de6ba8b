"""Scores of small tables whose figures are worked out by hand, and what is counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from dse.accuracy import validate as measurements
from dse.accuracy.scores import rank_correlation, score, speed_up


def table(groups: dict[str, list[float]], **columns: object) -> pd.DataFrame:
    """Rows measured at 1, predicted at 1 + error, with an interval of 0.8 to 1.3 of it."""
    rows = [
        {
            "metric": "tpot_s", "serving": "continuous", "backend": "vllm", "group": group,
            "model": group.split("|")[0], "chip": group.split("|")[1], "value": 1.0,
            "predicted": 1.0 + error, "predicted_low": 0.8 * (1.0 + error),
            "predicted_high": 1.3 * (1.0 + error),
        }
        for group, errors in groups.items()
        for error in errors
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


def overall(scores: list[dict]) -> dict:
    (item,) = [item for item in scores if item["by"] == "all"]
    return item


def test_groups_weigh_the_same_whatever_their_rows() -> None:
    """Medians 0.10 of 5 rows and 0.40 of 7; the group of one row does not count."""
    rows = table({"a|x": [0.1, 0.0, 0.1, 0.2, -0.2], "b|x": [0.4] * 7, "b|y": [0.9]})
    item = overall(score(rows))
    assert item["groups"] == 3
    assert item["rows"] == 13
    assert item["group_median_error"] == pytest.approx((0.1 + 0.4) / 2)
    assert item["median_error"] == pytest.approx(0.4)
    assert item["bias"] == pytest.approx(0.4)


def test_all_groups_count_where_none_is_large() -> None:
    item = overall(score(table({"a|x": [0.1], "b|x": [-0.3, 0.3]})))
    assert item["group_median_error"] == pytest.approx(0.2)


def test_interval_coverage_and_width() -> None:
    """1 lies in [0.8 p, 1.3 p] for p from 1 / 1.3 to 1.25; its half-width is 0.25 of p."""
    item = overall(score(table({"a|x": [0.0, 0.24, 0.26, -0.23, -0.24]})))
    assert item["interval_coverage"] == pytest.approx(3 / 5)
    assert item["interval_width"] == pytest.approx(0.25)


@pytest.mark.parametrize("ties", [False, True])
def test_rank_correlation_is_spearmans(ties: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=40), rng.normal(size=40)
    if ties:
        a, b = a.round(), b.round()
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation(a[:2], b[:2]) is None
    assert rank_correlation(a, np.ones(40)) is None


def test_speed_up_of_pairs_that_differ_in_the_chip_alone() -> None:
    """x is predicted 2.0 and measured 1.6 times as fast as y: off by 20% in times."""
    rows = table({"a|x": [0.0], "a|y": [0.0]}, concurrency=["8", "8"], tp=["1", ""])
    rows["value"], rows["predicted"] = [1.0, 1.6], [1.0, 2.0]
    assert speed_up(rows)["pairs"] == 0
    rows["tp"] = "1"
    found = speed_up(rows)
    assert found["pairs"] == 1
    assert found["median_error"] == pytest.approx(abs(1.6 / 2.0 - 1.0))
    (pair,) = found["chips"]
    assert (pair["chip_a"], pair["chip_b"]) == ("x", "y")
    assert (pair["measured"], pair["predicted"]) == pytest.approx((1.6, 2.0))


def test_a_row_is_predicted_the_same_with_others_and_alone() -> None:
    """Bit for bit; what is not covered, or has no finite prediction, has none."""
    rows = measurements.shipped()[0].iloc[::40].reset_index(drop=True)
    names = ["predicted", "predicted_low", "predicted_high"]
    answer = measurements.estimate_table(rows)
    alone = measurements.estimate_table(rows[17:18])
    assert np.array_equal(alone[names], answer[17:18][names], equal_nan=True)
    ok = answer["status"] == "ok"
    low, high = answer["predicted_low"][ok], answer["predicted_high"][ok]
    assert ((low < answer["predicted"][ok]) & (answer["predicted"][ok] < high)).all()
    refused = answer[~ok & ~answer["status"].str.startswith("infeasible")]
    assert refused[names].isna().all(axis=None)


def test_shipped_rows_keep_source_and_licence() -> None:
    for rows in measurements.shipped():
        assert (rows["source"] != "").all()
        assert (rows["licence"] != "").all()
        assert (rows["value"].astype(float) > 0).all()
        assert (rows["group"] == rows["model"] + "|" + rows["chip"]).all()
    inference, pools, training = measurements.shipped()
    assert (len(inference), len(pools), len(training)) == (6051, 312, 604)
    assert len(measurements.scored_rows(inference)) == 6051 - 65 - 80 - 315


def test_a_value_that_is_no_number_is_not_covered() -> None:
    rows = table({"a|x": [0.1] * 3}, status="ok").assign(value=["1", "fast", "-2"], group="")
    answer = measurements.ready(rows.drop(columns=["backend"]))
    document = measurements.accuracy(answer)
    assert (document["rows"], document["covered"]) == (3, 1)
    assert document["not_covered"] == [{"reason": "value is not a positive number", "rows": 2}]
    assert overall(document["scores"])["rank_correlation"] is None


def test_one_user_on_consumer_apple_and_edge_chips() -> None:
    """Published tokens a second of llama.cpp: none entered a fit of the chips' laws, and two
    constants of the backend were chosen on them (hardware/backends/llama-cpp.yaml)."""
    table = measurements.shipped()[0]
    mine = table["engine"].str.contains("llama.cpp") & (table["metric"] == "decode_step_s")
    found = measurements.predict(table[mine].reset_index(drop=True))
    found = found[found["status"] == "ok"]
    assert set(found["backend"]) == {"llama-cpp"}
    ratio = found["predicted"].astype(float) / found["value"]
    off = (ratio - 1.0).abs().groupby(found["chip"]).median()
    assert set(off.index) == {
        "a100_80_sxm", "h100_pcie", "jetson_agx_orin", "m2_ultra", "rtx4090",
    }  # fmt: skip
    assert off.max() < 0.25
    assert off.mean() < 0.15
    assert ratio.between(0.6, 1.5).all()


def test_measured_software_serves_the_chips_that_it_was_measured_on() -> None:
    """Neuron on Trainium, llama.cpp on GPUs of every maker: a row proves that it runs."""
    table = measurements.shipped()[0]
    mine = table["engine"].str.contains("llama.cpp|euron")
    found = measurements.predict(table[mine].reset_index(drop=True))
    assert {"neuron", "llama-cpp"} == set(found["backend"])
    assert not found["status"].str.contains("backend_serves_chip").any()
