"""Prices and energy against sums done by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.economics.tokens import cost

amounts = st.floats(1e-6, 1e6)
counts = st.floats(1, 1e6)


def one(
    prefill: float, decode: float, prompt: float, output: float, price: float | np.ndarray
) -> SimpleNamespace:
    return SimpleNamespace(**cost(np.array([prefill]), np.array([decode]), prompt, output, price))


def test_a_million_tokens_by_hand() -> None:
    """8 chips at $3: one prompt of 1,000 in 0.5 s, 500 tokens in 10 s among 20 requests."""
    result = one(8 * 0.5, 8 * 10 / 20, 1000, 500, 3.0)
    per_chip_second = 3.0 / 3600
    assert result.usd_per_million_input_tokens[0] == pytest.approx(4 * per_chip_second * 1000)
    assert result.usd_per_million_output_tokens[0] == pytest.approx(4 * per_chip_second * 2000)
    assert result.usd_per_million_total_tokens[0] == pytest.approx(8 * per_chip_second * 1e6 / 1500)
    assert result.usd_per_million_output_tokens_all_in[0] == pytest.approx(
        8 * per_chip_second * 2000
    )


def test_one_chip_hour_for_a_million_tokens_costs_the_hourly_price() -> None:
    assert one(0, 3600, 1, 1e6, 2.49).usd_per_million_output_tokens[0] == pytest.approx(2.49)


@given(amounts, amounts, counts, counts, st.floats(0.01, 100))
def test_both_conventions_bill_the_same_request(
    prefill: float, decode: float, prompt: float, output: float, price: float
) -> None:
    result = one(prefill, decode, prompt, output, price)
    bill = (
        result.usd_per_million_input_tokens * prompt + result.usd_per_million_output_tokens * output
    )
    assert bill == pytest.approx(result.usd_per_million_total_tokens * (prompt + output))
    assert bill == pytest.approx(result.usd_per_million_output_tokens_all_in * output)


def test_price_of_each_candidate_and_a_missing_one() -> None:
    result = cost(np.full(3, 1.0), np.full(3, 1.0), 10, 10, np.array([1.0, 2.0, np.nan]))
    prices = result["usd_per_million_output_tokens"]
    assert prices[1] == 2 * prices[0]
    assert np.isnan(prices[2])
