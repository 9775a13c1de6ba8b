"""Numbers in words: three significant digits, each metric in its unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.answer.labels import label
from dse.answer.numbers import show, significant
from dse.schema.metrics import EVERY


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0812345, "0.0812"),
        (9.996, "10.0"),
        (1234.5, "1,230"),
        (0.00535, "0.00535"),
        (2.1, "2.10"),
        (1.5e6, "1,500,000"),
        (0.0, "0.00"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(1e-9, 1e15))
def test_significant_digits_are_near_and_plain(value: float) -> None:
    text = significant(value)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001e-3)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("usd_per_million_total_tokens", 0.021415, "$0.0214"),
        ("tpot_s", 0.0294, "29.4 ms"),
        ("ttft_s", 1.25, "1.25 s"),
        ("latency_floor_s", 5.7e-4, "570 µs"),
        ("predicted_loss", 1.9123, "1.9123"),
        ("dense_equivalent_parameters", 61.2e9, "61.2B"),
        ("total_parameters", 1.026e12, "1.03T"),
        ("memory_bytes_per_chip", 141e9, "141 GB"),
        ("mfu", 0.413, "41%"),
        ("running_requests", 1024.0, "1,024"),
        ("predicted_loss", None, "–"),
    ],
)
def test_metrics_in_words(metric: str, value: float | None, text: str) -> None:
    assert show(metric, value) == text


def test_a_metric_that_is_not_listed_is_shown_by_its_own_name() -> None:
    assert "gap_s" not in EVERY
    assert label("gap_s").text == "gap"
    assert show("gap_s", 0.5) == "500 ms"
