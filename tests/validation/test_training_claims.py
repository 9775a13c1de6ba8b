"""Claims 16 to 19, 23 and 26: verdicts follow the numbers, and the numbers their laws."""

from __future__ import annotations

import pytest
from dse.accuracy.claims.engine import CONFIRMED, CONTRADICTED, QUALIFIED, claim

from dse.accuracy.claims import training_memory


def known(number: int) -> dict[str, float]:
    """The figures of a claim that apply."""
    figures = claim(number).found().figures
    return {name: value for name, value in figures.items() if value is not None}


# The facts that the verdict of a claim rests on.
FACTS = {
    16: ("off", "held_over_claim"),
    17: ("about",),
    18: ("best_median", "best_least", "best_most", "careless_least"),
    19: ("least_margin", "rate_left_at_half_the_input"),
    23: ("training_keeps", "later_answer", "useful_share"),
    26: ("reached_at_100b", "reached_by_any"),
}


@pytest.mark.parametrize(
    ("number", "values", "expected"),
    [
        (16, (0.0, 1.5), CONFIRMED),
        (16, (0.0, 0.9), QUALIFIED),
        (16, (0.5, 1.5), CONTRADICTED),
        (17, (1.0,), CONFIRMED),
        (17, (0.5,), QUALIFIED),
        (17, (0.333,), CONTRADICTED),
        (18, (0.39, 0.38, 0.4, 0.12), CONFIRMED),
        (18, (0.57, 0.55, 0.6, 0.12), QUALIFIED),
        (18, (0.6, 0.2, 0.6, 0.3), QUALIFIED),
        (18, (0.6, 0.6, 0.6, 0.3), CONTRADICTED),
        (19, (0.5, 0.5), CONFIRMED),
        (19, (20.0, 0.5), QUALIFIED),
        (19, (0.5, 0.7), CONTRADICTED),
        (23, (0.7, 0.01, 1.0), CONFIRMED),
        (23, (0.9, 0.01, 1.0), QUALIFIED),
        (23, (0.9, 0.5, 0.0), CONTRADICTED),
        (26, (1.0, 1.0), CONFIRMED),
        (26, (0.5, 1.0), QUALIFIED),
        (26, (0.0, 0.0), CONTRADICTED),
    ],
)
def test_verdicts_follow_the_numbers(
    number: int, values: tuple[float | None, ...], expected: str
) -> None:
    assert claim(number).judge(dict(zip(FACTS[number], values, strict=True))) == expected


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
