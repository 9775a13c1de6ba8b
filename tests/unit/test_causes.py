"""What a published design costs, by cause: the shares add up, and mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dse.questions.compare.designs import shapley


def score_of(gains: list[float]) -> np.ndarray:
    """Of choices that do not depend on each other: what each set leaves of nothing."""
    n = len(gains)
    return np.array([-sum(gains[k] for k in range(n) if s >> k & 1) for s in range(1 << n)])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5))
def test_independent_choices_have_their_own_gain(gains: list[float]) -> None:
    assert shapley(score_of(gains), len(gains)) == pytest.approx(gains, abs=1e-12)


@given(arrays(float, 16, elements=st.floats(-3, 3)))
def test_shares_add_up_to_the_whole(score: np.ndarray) -> None:
    found = shapley(score, 4)
    assert found is not None
    assert found.sum() == pytest.approx(score[0] - score[15], abs=1e-9)


def test_two_choices_that_only_work_together_share_alike() -> None:
    assert shapley(np.array([0.0, 0.0, 0.0, -1.0]), 2) == pytest.approx([0.5, 0.5])


def test_what_cannot_be_served_is_no_way() -> None:
    """Where the first choice alone cannot be served, it comes last."""
    assert shapley(np.array([0.0, np.inf, -0.2, -1.0]), 2) == pytest.approx([0.8, 0.2])
    assert shapley(np.array([0.0, np.inf, np.inf, -1.0]), 2) is None
