"""The economics of a model's whole life, against closed forms and Sardana et al. 2023."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.economics.tokens import (
    LossLaw,
    break_even_tokens,
    cheapest_shape,
    cost,
    lifetime,
    lower_envelope,
    tokens_over_years,
)
from dse.quality import DEFAULT, LAWS, predicted_loss

LAW = LossLaw(*map(float, LAWS[DEFAULT].coefficients[0].value.split(",")))
# Hoffmann et al. 2022, with which Sardana et al. 2023 draw their figures.
CHINCHILLA = LossLaw(1.69, 406.4, 0.336, 410.7, 0.283)


def test_the_law_is_the_one_of_the_quality_model():
    n, d = np.array([7e9, 70e9]), np.array([2e12, 1.4e12])
    assert LAW.tokens(n, predicted_loss(n, d)) == pytest.approx(d, rel=1e-9)


@given(st.floats(1.95, 2.6), st.floats(0.0, 1e15))
def test_first_order_condition(loss: float, served: float):
    """Sardana et al. 2023: eps_N / eps_D = 1 + T / (3 D), and no neighbour is cheaper."""
    n, d = cheapest_shape(LAW, np.array([loss]), np.array([served]))
    assert LAW.elasticity_ratio(n, d) == pytest.approx(1.0 + served / (3.0 * d), rel=1e-6)
    cost = 6.0 * n * d + 2.0 * n * served
    for factor in (0.97, 1.03):
        other = n * factor
        assert 6.0 * other * LAW.tokens(other, loss) + 2.0 * other * served >= cost * (1 - 1e-12)


def test_without_demand_it_is_the_compute_optimal_model():
    """At eps_N = eps_D, alpha a / N^alpha = beta b / D^beta (Hoffmann et al. 2022, equation 4)."""
    n, d = cheapest_shape(CHINCHILLA, np.array([2.0]), np.array([0.0]))
    g = (0.336 * 406.4 / (0.283 * 410.7)) ** (1.0 / (0.336 + 0.283))
    flops = 6.0 * n * d
    assert n == pytest.approx(g * (flops / 6.0) ** (0.283 / (0.336 + 0.283)), rel=1e-6)


def test_break_even():
    cheap_to_serve = break_even_tokens(
        np.array([3e6, 1e6, 3e6, 3e6]),
        np.array([0.2, 0.2, 0.5, 0.5]),
        np.array([1e6, 3e6, 1e6, 3e6]),
        np.array([0.5, 0.5, 0.5, 0.2]),
    )
    assert cheap_to_serve == pytest.approx([2e6 / 0.3e-6, 0.0, np.inf, np.inf])


def test_both_halves_add_up():
    life = lifetime(
        np.array([70e9]), np.array([15e12]), np.array([1e7]), np.array([6e6]), 30e12,
        np.array([0.4]), np.array([1e-4]),
    )  # fmt: skip
    assert life["lifetime_usd"] == pytest.approx([1e7 + 12e6])
    assert life["lifetime_flops"] == pytest.approx([6 * 70e9 * 15e12 + 2 * 70e9 * 30e12])
    assert life["lifetime_serving_share"] == pytest.approx([12 / 22])
    assert life["lifetime_chip_hours"] == pytest.approx([6e6 + 30e12 * 1e-4 / 3600])


def test_growth_of_a_forecast():
    assert tokens_over_years(1e12, 3, 0.0) == pytest.approx(3e12)
    assert tokens_over_years(1e12, 3, 1.0) == pytest.approx(7e12)
    assert tokens_over_years(1e12, 2.5, 1.0) == pytest.approx(3e12 + 2e12)


def test_the_cheapest_as_demand_grows():
    training = np.array([1e6, 2e6, 4e6, 9e6, 1.5e6])
    price = np.array([1.0, 0.6, 0.5, 0.1, 0.99])
    rows, starts = lower_envelope(training, price)
    assert rows == [0, 1, 3]  # rows 2 and 4 are never the cheapest
    assert starts[0] == 0.0
    for tokens in np.geomspace(1e10, 1e15, 60):
        least = int(np.argmin(training + tokens * price / 1e6))
        assert rows[int(np.searchsorted(starts, tokens, side="right")) - 1] == least


# Prices and energy against sums done by hand.


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
