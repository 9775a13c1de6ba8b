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
from dse.physics.jitter import PARETO_SHAPE, expected_maximum, with_jitter
from dse.schema.system import DISTRIBUTIONS
from tests.helpers import deploy, machines, run, workload

ON = machines()
LOAD = workload(1024, 256)
# Distribution functions of delays whose mean is 1.
BELOW = {
    "exponential": lambda x: 1 - np.exp(-x),
    "normal": lambda x: erf(x / np.sqrt(np.pi)),
    "pareto": lambda x: 1 - (1 + x / (PARETO_SHAPE - 1)) ** -PARETO_SHAPE,
}
WITHIN = {"exponential": 1e-7, "normal": 0.006, "pareto": 1e-5}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [1.0, 2.0, 3.5, 8.0, 72.0, 1000.0, 16384.0])
def test_expected_maximum_is_that_of_the_integral(distribution: str, n: float) -> None:
    """E[max] is the integral of 1 - F^n."""
    below = BELOW[distribution]
    edges = [0, 1, 4, 10, 30, 100, 1000, 1e5, 1e7]
    exact = sum(
        quad(lambda x: 1 - below(x) ** n, low, high, limit=200)[0] for low, high in pairwise(edges)
    )
    found = expected_maximum(distribution, np.array([n]))[0]
    assert found == pytest.approx(exact, rel=WITHIN[distribution])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_one_participant_waits_the_mean(distribution: str) -> None:
    assert expected_maximum(distribution, np.ones(1))[0] == pytest.approx(1.0, rel=1e-9)


@given(st.floats(1, 1e5), st.floats(1e-3, 1e4))
def test_more_participants_wait_longer(n: float, more: float) -> None:
    for distribution in DISTRIBUTIONS:
        few, many = expected_maximum(distribution, np.array([n, n + more]))
        assert few < many


def test_heavier_tails_wait_longer_in_large_groups() -> None:
    n = np.array([1000.0])
    normal, exponential, pareto = (
        expected_maximum(name, n)[0] for name in ("normal", "exponential", "pareto")
    )
    assert normal < exponential < pareto


def test_no_jitter_changes_not_a_bit() -> None:
    batch = deploy("deepseek-v3", "gb200_nvl72", data_parallel=[1, 8, 16, 144], tensor_parallel=1)
    plain, still = run(batch, LOAD, ON), run(batch, LOAD, with_jitter(ON, 0.0, "pareto"))
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


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_batch_is_its_rows(distribution: str) -> None:
    on = with_jitter(ON, 2e-6, distribution)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    batch = deploy("deepseek-v3", "gb200_nvl72", data_parallel=sizes, expert_parallel=sizes)
    together = run(batch, LOAD, on)
    for i in range(len(sizes)):
        row = run(batch[i : i + 1], LOAD, on)
        for metric, values in together.values.items():
            assert np.array_equal(values[i : i + 1], row.values[metric], equal_nan=True)


def test_a_distribution_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="did you mean pareto"):
        with_jitter(ON, 1e-6, "paretto")
    with pytest.raises(InputError, match="read -1"):
        with_jitter(ON, -1.0)
