"""Quantities: published spellings, refusals, and a round trip over random values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse import units
from dse.answer.numbers import KINDS, NONE, label, show, show_as, significant
from dse.errors import InputError
from dse.schema.metrics import EVERY
from tests.helpers_files import refusal

# Dimensions with the units that a person writes, and their SI factor.
FACTORS = {
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "GiB": 2**30, "MiB": 2**20},
    "bytes/s": {"GB/s": 1e9, "TB/s": 1e12, "GiB/s": 2**30, "Gb/s": 1e9 / 8, "Gbit/s": 1e9 / 8},
    "flop/s": {"TFLOP/s": 1e12, "PFLOP/s": 1e15, "TFLOPS": 1e12, "TOP/s": 1e12},
    "flop": {"FLOP": 1, "PFLOP": 1e15, "ZFLOP": 1e21},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "h": 3600, "days": 86400},
    "Hz": {"MHz": 1e6, "GHz": 1e9},
    "W": {"W": 1, "kW": 1e3, "MW": 1e6},
    "usd/h": {"USD/h": 1, "$/h": 1},
    "usd": {"USD": 1, "kUSD": 1e3},
    "tokens": {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "T tokens": 1e12},
    "count": {"": 1},
    "m": {"mm": 1e-3, "cm": 1e-2, "m": 1, "km": 1e3},
    "m2": {"mm2": 1e-6, "cm2": 1e-4, "m2": 1},
    "kg": {"g": 1e-3, "kg": 1, "t": 1e3, "lb": 0.45359237},
    "kg/m2": {"kg/m2": 1, "kN/m2": 1000 / 9.80665, "kPa": 1000 / 9.80665},
}
UNITS = [(dimension, unit) for dimension, known in FACTORS.items() for unit in known]


@pytest.mark.parametrize(
    ("text", "dimension", "si"),
    [
        ("400 Gb/s", "bytes/s", 50e9),
        ("189471 MiB", "bytes", 198_674_743_296),
        ("30ms", "s", 0.03),
        ("$2.5/h", "usd/h", 2.5),
        ("$30000", "usd", 30000.0),
        ("15.6T", "tokens", 15.6e12),
        (8192, "tokens", 8192.0),
        ("8", "count", 8.0),
    ],
)
def test_published_spellings_are_exact(text: str | float, dimension: str, si: float) -> None:
    assert units.parse(text, dimension) == si


@given(
    value=st.floats(0, 1e6, allow_nan=False).filter(lambda x: x == 0 or x > 1e-6),
    pair=st.sampled_from(UNITS),
)
def test_a_written_unit_scales_the_number(value: float, pair: tuple[str, str]) -> None:
    dimension, unit = pair
    expected = value * FACTORS[dimension][unit]
    assert units.parse(f"{value!r} {unit}", dimension) == pytest.approx(expected, rel=1e-12)


@given(
    value=st.one_of(st.just(0.0), st.floats(1e-9, 1e27)),
    dimension=st.sampled_from([d for d in units.DIMENSIONS if d != "count"]),
    digits=st.integers(3, 17),
)
def test_what_is_printed_is_read_back(value: float, dimension: str, digits: int) -> None:
    text = units.format(value, dimension, digits)
    rounding = max(0.51 * 10.0 ** (1 - digits), 4e-16)  # no finer than a double
    assert units.parse(text, dimension) == pytest.approx(value, rel=rounding)


@given(st.integers(0, 10**14))
def test_counts_are_printed_in_full(value: int) -> None:
    assert units.format(value, "count") == str(value)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (3.35e12, "bytes/s", "3.35 TB/s"),
        (999.7e9, "bytes", "1 TB"),
        (1.5e-6, "s", "1.5 us"),
        (0.0, "s", "0 s"),
        (15.6e12, "tokens", "15.6T"),
        (1.979e15, "flop/s", "1.98 PFLOP/s"),
    ],
)
def test_printing_chooses_the_prefix(value: float, dimension: str, text: str) -> None:
    assert units.format(value, dimension) == text


@given(number=st.floats(0, 1e6), dimension=st.sampled_from([*FACTORS]), pair=st.sampled_from(UNITS))
def test_a_unit_of_another_dimension_is_refused(
    number: float, dimension: str, pair: tuple[str, str]
) -> None:
    other, unit = pair
    if unit in FACTORS[dimension]:
        return
    with pytest.raises(InputError, match="accepted: "):
        units.parse(f"{number!r} {unit}", dimension)
    assert other != dimension


@pytest.mark.parametrize(
    ("text", "dimension", "reason"),
    [
        ("80", "bytes", "a bare number"),
        (0, "s", "a bare number"),
        (0.0, "bytes", "a bare number"),
        ("80 GB", "bytes/s", "a size, not a bandwidth"),
        ("80 Gb", "bytes", "unknown unit 'Gb'"),
        ("3 TB/S", "bytes/s", "did you mean TB/s?"),
        ("-3 GB", "bytes", "negative"),
        ("nan GB", "bytes", "not a finite number"),
        ("inf GB", "bytes", "not a finite number"),
        (float("nan"), "count", "not a finite number"),
        ("1e999 GB", "bytes", "not a finite number"),
        ("1e308 TB", "bytes", "not a finite number"),
        ("1e40 W", "W", "beyond every figure of the field"),
        ("1e-40 s", "s", "beyond every figure of the field"),
        ("1,000 GB", "bytes", "unknown unit"),
        ("", "s", "not a finite number"),
        (True, "count", "not a finite number"),
    ],
)
def test_refusals_say_why_and_what_is_accepted(
    text: str | float, dimension: str, reason: str
) -> None:
    message = str(refusal(units.parse, text, dimension, field="memory"))
    assert reason in message
    assert message.startswith(f"memory: read {text!r}")
    assert "(accepted: " in message


@given(st.text(max_size=20), st.sampled_from(units.DIMENSIONS))
def test_any_text_is_a_quantity_or_an_input_error(text: str, dimension: str) -> None:
    try:
        value = units.parse(text, dimension)
    except InputError:
        return
    assert 0 <= value < float("inf")


# The one formatter: monotone, read back within its digits, never NaN, the same in every format.


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
    ("kind", "value", "text"),  # a kind, or a metric of that kind
    [
        ("predicted_loss", 1.9123, "1.9123"),
        ("total_parameters", 1.026e12, "1.03T"),
        ("memory_bytes_per_chip", 141e9, "141 GB"),
        ("mfu", 0.413, "41%"),
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
    assert (show if kind in EVERY else show_as)(kind, value) == text


# Numbers in words: three significant digits, each metric in its unit.


@given(st.floats(1e-9, 1e15))
def test_significant_digits_are_near_and_plain(value: float) -> None:
    text = significant(value)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001e-3)


def test_a_metric_that_is_not_listed_is_shown_by_its_own_name() -> None:
    assert "gap_s" not in EVERY
    assert label("gap_s").text == "gap"
    assert show("gap_s", 0.5) == "500 ms"
