"""The one formatter: monotone, read back within its digits, never NaN, the same in every format."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse import units
from dse.answer.labels import label
from dse.answer.numbers import KINDS, NONE, show, show_as, significant
from dse.schema.metrics import EVERY

# What each kind is read back by: the dimension of dse.units and the factor to its SI value.
READ = {
    "time": ("s", 1.0),
    "days": ("s", 1 / 86_400.0),
    "bytes": ("bytes", 1.0),
    "binary": ("bytes", 1.0),
    "bandwidth": ("bytes/s", 1.0),
    "power": ("W", 1.0),
    "energy": ("J", 1.0),
    "large": ("tokens", 1.0),
    "tokens": ("tokens", 1.0),
    "parameters": ("tokens", 1.0),
    "flop": ("flop", 1.0),
    "dollars": ("tokens", 1.0),
}
# Kinds of so many decimals and not of so many digits: half of the last place.
PLACES = {"year": 0.5, "signed": 5.001e-3, "change": 5.001e-4, "tenths": 5.001e-4}
SIZES = st.floats(1e-4, 1e14)


def read(kind: str, text: str) -> float:
    """The value of a printed number."""
    text = text.replace(",", "").replace("$", "")
    if text.endswith("%"):
        return float(text.removesuffix("%")) / 100.0
    if kind == "kwh":
        number, unit = text.split()
        return float(number) * {"kWh": 1.0, "MWh": 1e3, "GWh": 1e6}[unit]
    if kind == "tera":
        return float(text) * 1e12
    if kind in READ:
        dimension, factor = READ[kind]
        return units.parse(text, dimension) * factor
    return float(text.removesuffix(" x"))


@pytest.mark.parametrize("kind", KINDS)
@given(value=SIZES)
def test_a_number_is_read_back_within_its_digits(kind: str, value: float) -> None:
    off = 6e-3 if kind not in ("share", "count", "dollars", "large") else 6e-2
    if kind == "share":
        value = min(value, 1.0)
    assert read(kind, show_as(kind, value)) == pytest.approx(
        value, rel=off, abs=PLACES.get(kind, 1e-12)
    )


@pytest.mark.parametrize("kind", KINDS)
@given(pair=st.tuples(SIZES, SIZES))
def test_a_larger_number_never_reads_smaller(kind: str, pair: tuple[float, float]) -> None:
    low, high = (read(kind, show_as(kind, value)) for value in sorted(pair))
    assert low <= high * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(value=st.floats() | st.none())
def test_nothing_is_printed_as_nan(kind: str, value: float | None) -> None:
    text = show_as(kind, value)
    assert "nan" not in text.lower()
    if value is None or math.isnan(value):
        assert text == NONE


@pytest.mark.parametrize("metric", EVERY)
def test_every_metric_is_printed(metric: str) -> None:
    assert show(metric, None) == NONE
    assert show(metric, 1.0) not in ("", NONE)
    row = EVERY[metric]
    assert all((row.title, row.short, row.meaning))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("time", 12.3e-6, "12.3 µs"),
        ("time", 8.01e-3, "8.01 ms"),
        ("time", 1.24, "1.24 s"),
        ("time", 2.3 * 3600, "2.3 h"),
        ("days", 65.0, "65 days"),
        ("time", 0.05, "50 ms"),
        ("time", 0.05002, "50.0 ms"),
        ("dollars", 0.069, "$0.0690"),
        ("dollars", 2.4, "$2.40"),
        ("dollars", 546_624.0, "$546,624"),
        ("dollars", 61.7e6, "$61.7M"),
        ("parameters", 8.03e9, "8.03B"),
        ("tokens", 8192, "8,192"),
        ("share", 0.99999, "99.9%"),
        ("share", 0.0043, "0.43%"),
        ("power", 132_000.0, "132 kW"),
        ("count", 1024, "1,024"),
    ],
)
def test_the_unit_is_the_one_that_a_person_would_use(kind: str, value: float, text: str) -> None:
    assert show_as(kind, value) == text


# Numbers in words: three significant digits, each metric in its unit.


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
