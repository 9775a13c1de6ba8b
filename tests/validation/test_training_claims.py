"""Claims 16 to 19, 23 and 26: verdicts follow the numbers, and the numbers their laws."""

from __future__ import annotations

import pytest

from dse.accuracy.claims import (
    claim,
    training_backward,
    training_input,
    training_memory,
    training_serving,
    training_sites,
    training_utilisation,
)
from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED

PARTS = training_memory.CLAIMED


def known(number: int) -> dict[str, float]:
    """The figures of a claim that apply."""
    figures = claim(number).found().figures
    return {name: value for name, value in figures.items() if value is not None}


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (training_memory.judge(PARTS, 1.5), CONFIRMED),
        (training_memory.judge(PARTS, 0.9), QUALIFIED),
        (training_memory.judge(PARTS | {"optimizer": 280e9}, 1.5), CONTRADICTED),
        (training_backward.judge([1.9, 2.1]), CONFIRMED),
        (training_backward.judge([1.9, 2.5]), QUALIFIED),
        (training_backward.judge([1.9, 2.5, 2.6]), CONTRADICTED),
        (training_utilisation.judge([0.38, 0.4], [0.12, 0.3]), CONFIRMED),
        (training_utilisation.judge([0.55, 0.6], [0.12, 0.3]), QUALIFIED),
        (training_utilisation.judge([0.2, 0.6, 0.6], [0.3]), QUALIFIED),
        (training_utilisation.judge([0.6, 0.6], [0.3]), CONTRADICTED),
        (training_input.judge([0.5, 100.0], [0.5]), CONFIRMED),
        (training_input.judge([20.0, 100.0], [0.5]), QUALIFIED),
        (training_input.judge([0.5], [0.7]), CONTRADICTED),
        (training_sites.judge([0.1, 0.7], 0.01, [0.5, 1.5]), CONFIRMED),
        (training_sites.judge([0.1, 0.9], 0.01, [0.5, 1.5]), QUALIFIED),
        (training_sites.judge([0.9], 0.5, [3.0]), CONTRADICTED),
        (training_serving.judge([[7000, 700, 70, 7]]), CONFIRMED),
        (training_serving.judge([[7000, 700, 70, 7], [9000, 900, 90, 9]]), QUALIFIED),
        (training_serving.judge([[9e6, 9e5, 9e4, 9e3]]), CONTRADICTED),
    ],
)
def test_verdicts_follow_the_numbers(verdict: str, expected: str):
    assert verdict == expected


def test_840_gb_is_counted():
    found = claim(16).found()
    assert found.verdict == CONFIRMED
    assert found.figures["bytes"] == pytest.approx(840e9)
    assert training_memory.states("adam_8bit", 2.0, 0.0)["optimizer"] == pytest.approx(140e9)


def test_half_the_input_is_half_the_rate():
    found = claim(19).found()
    assert found.figures["rate_left_at_half_the_input"] == pytest.approx(0.5, rel=1e-3)


def test_frozen_weights_save_half_of_the_backward_pass():
    figures = known(17)
    assert 1.8 < figures["least"] <= figures["median"]
    assert 1.0 < figures["lora_median"] < 1.6


def test_more_bandwidth_between_sites_keeps_more():
    figures = known(23)
    assert figures["kept_at_100_gbps"] < figures["kept_at_400_gbps"] < 1.0
