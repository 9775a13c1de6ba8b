"""Fronts, hypervolume and choices against closed forms."""

import math
import time

import moocore
import numpy as np
import pytest

from dse.pareto import (
    REFERENCE,
    Archive,
    Scale,
    additive_epsilon,
    choose,
    hypervolume,
    non_dominated,
    resolved,
    share,
)


def unit(objectives: int) -> Scale:
    """A scale that leaves the objectives as they are."""
    return Scale((0.0,) * objectives, (1.0,) * objectives, (False,) * objectives)


def test_no_rows_one_objective_and_infinity() -> None:
    assert non_dominated(np.empty((0, 3))).tolist() == []
    assert non_dominated(np.array([[2.0], [1.0], [1.0]])).tolist() == [False, True, False]
    F = np.array([[0, np.inf], [1, 1], [np.inf, np.inf], [np.inf, 0]])
    assert non_dominated(F).tolist() == [True, True, False, True]


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        non_dominated(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match="NaN"):
        Archive(2).add(np.array([[np.nan, 1.0]]), np.array([0]))


def test_archive_of_a_million_rows_in_two_seconds() -> None:
    F = np.random.default_rng(7).random((1_000_000, 3))
    ids = np.arange(len(F))
    archive = Archive(3)
    start = time.process_time()
    for rows in np.split(ids, 100):
        archive.add(F[rows], rows)
    front = archive.F
    assert time.process_time() - start < 2
    assert np.array_equal(archive.ids, np.flatnonzero(non_dominated(F)))
    assert np.array_equal(front, F[archive.ids])


def test_hypervolume_of_a_staircase() -> None:
    """n steps on x + y = 1 dominate 1/2 less n triangles of 1/(2 n^2), and the border of 0.1."""
    n = 50
    x = np.arange(n + 1) / n
    F = np.stack([x, 1 - x], axis=1)
    closed = (0.5 - 1 / (2 * n)) + 2 * 0.1 + 0.1**2
    assert hypervolume(F, unit(2)) == pytest.approx(closed, rel=1e-12)


def test_hypervolume_by_inclusion_and_exclusion() -> None:
    rng = np.random.default_rng(3)
    for objectives in (2, 3):
        F = rng.random((6, objectives)) * 1.2
        total = 0.0
        for mask in range(1, 2 ** len(F)):
            rows = F[[i for i in range(len(F)) if mask >> i & 1]]
            box = math.prod(max(0.0, REFERENCE - value) for value in rows.max(axis=0))
            total += box if len(rows) % 2 else -box
        assert hypervolume(F, unit(objectives)) == pytest.approx(total)


def test_rows_outside_the_reference_and_no_rows_count_nothing() -> None:
    inside = np.array([[0.5, 0.5]])
    outside = np.array([[1.2, 0.0], [np.inf, 0.1]])
    assert hypervolume(np.concatenate([inside, outside]), unit(2)) == pytest.approx(0.36)
    assert hypervolume(outside, unit(2)) == 0
    assert hypervolume(np.empty((0, 2)), unit(2)) == 0


def test_scale_of_a_front_leaves_dominated_rows_out() -> None:
    F = np.array([[1.0, 100.0], [2.0, 10.0], [9.0, 900.0]])
    scale = Scale.of(F, (False, True))
    assert scale.ideal == (1.0, 10.0)
    assert scale.nadir == (2.0, 100.0)
    expected = [[0, 1], [1, 0], [8, 1 + math.log10(9)]]
    assert scale(F) == pytest.approx(np.array(expected))


def test_logarithm_of_a_maximised_metric_keeps_its_order() -> None:
    F = -np.array([[1000.0, 1.0], [100.0, 2.0], [10.0, 4.0]])
    scaled = Scale.of(F, (True, True))(F)
    assert scaled == pytest.approx(np.array([[0, 1], [0.5, 0.5], [1, 0]]))


@pytest.mark.parametrize("log", [False, True])
def test_an_objective_without_spread_still_counts(log: bool) -> None:
    """One value everywhere: it scales to 0, and twice the value to 1."""
    scale = Scale.of(np.array([[1.0, 7.0], [3.0, 7.0]])[:1], (False, log))
    assert scale(np.array([[1.0, 7.0], [1.0, 14.0]]))[:, 1] == pytest.approx([0, 1])
    assert hypervolume(np.array([[1.0, 7.0]]), scale) == pytest.approx(REFERENCE**2)


@pytest.mark.parametrize("F", [np.empty((0, 2)), np.array([[np.inf, 1.0]])])
def test_a_reference_front_must_be_there_and_finite(F: np.ndarray) -> None:
    with pytest.raises(ValueError, match="empty or not finite"):
        Scale.of(F, (False, False))


def test_additive_epsilon() -> None:
    """The example of the indicator's documentation in moocore, and the empty set."""
    A = np.array([[3.5, 5.5], [3.6, 4.1], [4.1, 3.2], [5.5, 1.5]])
    B = np.array([[1, 6], [2, 5], [3, 4], [4, 3], [5, 2], [6, 1]], float)
    assert additive_epsilon(A, B, unit(2)) == 2.5
    assert additive_epsilon(A, A, unit(2)) == 0
    assert additive_epsilon(B - 1, B, unit(2)) == -1
    assert additive_epsilon(np.empty((0, 2)), B, unit(2)) == math.inf


def test_share_of_the_true_front() -> None:
    """The middle of (0, 1), (1/2, 1/2), (1, 0) alone: 0.36 of 0.46."""
    F = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    assert share(F, F, (False, False)) == 1
    assert share(F[1:2], F, (False, False)) == pytest.approx(0.36 / 0.46)
    assert share(np.empty((0, 2)), F, (False, False)) == 0


def test_share_does_not_depend_on_units() -> None:
    F = np.array([[1.0, 50.0], [2.0, 20.0], [4.0, 10.0]])
    expected = share(F[:2], F, (False, True))
    assert share(F[:2] * [1e6, 1e-3], F * [1e6, 1e-3], (False, True)) == pytest.approx(expected)


def test_choice_on_a_bent_front() -> None:
    F = np.array([[5.0, 1.0], [1.5, 1.5], [1.0, 5.0], [2.5, 1.2]])
    assert choose(F, ("cost", "latency"), (False, False)) == {"cost": 2, "latency": 0, "knee": 1}


def test_choice_in_logarithm_moves_the_knee() -> None:
    """On x y = 1000 every row lies on the chord of the logarithms; one below it is the knee."""
    F = np.array([[1.0, 1000.0], [10.0, 100.0], [31.0, 31.0], [200.0, 4.5], [1000.0, 1.0]])
    assert choose(F, ("a", "b"), (True, True))["knee"] == 3
    assert choose(F, ("a", "b"), (False, False))["knee"] == 2


def test_the_knee_is_farthest_from_the_chord() -> None:
    """Against the distance from a point to a line, for two objectives."""
    rng = np.random.default_rng(11)
    F = moocore.filter_dominated(rng.random((300, 2)) ** 2)
    x = (F - F.min(axis=0)) / np.ptp(F, axis=0)
    ends = x[[x[:, 0].argmin(), x[:, 1].argmin()]]
    along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    away = x - ends[0]
    distance = away[:, 0] * along[1] - away[:, 1] * along[0]
    assert choose(F, ("a", "b"), (False, False))["knee"] == int(np.argmax(np.abs(distance)))


def test_ties_go_to_the_better_row_then_to_the_first() -> None:
    F = np.array([[1, 4, 3], [1, 2, 4], [2, 2, 2], [1, 4, 3]], float)
    chosen = choose(F, ("a", "b", "c"), (False,) * 3)
    assert chosen == {"a": 1, "b": 1, "c": 2, "knee": 1}


def test_a_sliver_of_loss_does_not_buy_a_design_five_times_as_dear() -> None:
    """0.0002 nats are no gain at 0.001; a saving of 0.3% is none at 0.5%, of 0.6% it is one."""
    F = np.array([[1.8998, 5.0], [1.9, 1.0], [1.95, 0.997], [1.96, 0.994]])
    step, relative = [0.001, 0.005], [False, True]
    assert resolved(F, step, relative).tolist() == [False, True, False, True]
    assert resolved(F, [0.0001, 0.001], relative).all()
