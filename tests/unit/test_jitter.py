"""Waiting for the slowest: closed forms against quadrature, and what jitter does to a point."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erf

from dse.errors import InputError
from dse.physics.collectives import expected_half_normal_maximum, expected_maximum
from dse.physics.machines import with_jitter
from tests.helpers import deploy, machines, run, workload

ON = machines()
LOAD = workload(1024, 256)
# The expected maximum over the mean of one delay, its distribution function, and how near it is.
LAWS = [
    (expected_maximum, lambda x: 1 - np.exp(-x), 1e-7),
    (expected_half_normal_maximum, lambda x: erf(x / np.sqrt(np.pi)), 0.006),
]


@pytest.mark.parametrize(("law", "below", "within"), LAWS)
@pytest.mark.parametrize("n", [1.0, 2.0, 3.5, 8.0, 72.0, 1000.0, 16384.0])
def test_expected_maximum_is_that_of_the_integral(law, below, within: float, n: float) -> None:
    """E[max] is the integral of 1 - F^n."""
    edges = [0, 1, 4, 10, 30, 100, 1000, 1e5, 1e7]
    exact = sum(
        quad(lambda x: 1 - below(x) ** n, low, high, limit=200)[0] for low, high in pairwise(edges)
    )
    assert law(np.array([n]))[0] == pytest.approx(exact, rel=within)


@given(st.floats(1, 1e5), st.floats(1e-3, 1e4))
def test_one_participant_waits_the_mean_and_more_wait_longer(n: float, more: float) -> None:
    for law, _, _ in LAWS:
        one, few, many = law(np.array([1.0, n, n + more]))
        assert one == pytest.approx(1.0, rel=1e-9)
        assert few < many


def test_no_jitter_changes_not_a_bit() -> None:
    batch = deploy("deepseek-v3", "gb200_nvl72", data_parallel=[1, 8, 16, 144], tensor_parallel=1)
    plain, still = run(batch, LOAD, ON), run(batch, LOAD, with_jitter(ON, 0.0))
    for metric, values in plain.values.items():
        assert np.array_equal(values, still.values[metric], equal_nan=True), metric


def test_every_collective_of_a_step_waits() -> None:
    """Llama 3 8B over 8 chips: two all-reduces a layer and the gather of the logits wait for the
    slowest of 8, which is H_8 means."""
    batch = deploy("llama-3-8b", "h100_sxm", tensor_parallel=8)
    plain, late = run(batch, LOAD, ON), run(batch, LOAD, with_jitter(ON, 1e-5))
    harmonic = sum(1 / k for k in range(1, 9))
    added = late.values["decode_step_s"] - plain.values["decode_step_s"]
    assert added[0] == pytest.approx((2 * 32 + 1) * harmonic * 1e-5, rel=1e-6)


def test_across_domains_a_member_is_late_once() -> None:
    """32 chips in 4 boxes wait for the slowest of 32, not for that of each box besides."""
    batch = deploy("llama-3-8b", "h100_sxm", tensor_parallel=32)
    plain, late = run(batch, LOAD, ON), run(batch, LOAD, with_jitter(ON, 1e-5))
    waits = sum(1 / k for k in range(1, 33))
    added = late.values["decode_step_s"] - plain.values["decode_step_s"]
    assert added[0] == pytest.approx((2 * 32 + 1) * waits * 1e-5, rel=1e-6)


def test_one_chip_waits_for_nobody() -> None:
    batch = deploy("llama-3-8b", "h100_sxm")
    plain, late = run(batch, LOAD, ON), run(batch, LOAD, with_jitter(ON, 1e-3))
    assert np.array_equal(plain.values["tpot_s"], late.values["tpot_s"])


def test_a_delay_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="read -1"):
        with_jitter(ON, -1.0)
