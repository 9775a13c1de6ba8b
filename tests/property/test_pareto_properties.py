"""Laws that every front obeys, on random rows with many ties."""

from __future__ import annotations

import math
from unittest import mock

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dse import pareto
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

Rows = st.integers(1, 6).flatmap(
    lambda m: arrays.arrays(
        float, st.tuples(st.integers(1, 40), st.just(m)), elements=st.integers(1, 6).map(float)
    )
)


def by_definition(F: np.ndarray) -> list[bool]:
    """Every pair compared; of equal rows the first."""
    keep = []
    for i, row in enumerate(F):
        dominated = any((other <= row).all() and (other < row).any() for other in F)
        repeated = any((other == row).all() for other in F[:i])
        keep.append(not dominated and not repeated)
    return keep


@given(Rows, st.booleans(), st.booleans())
def test_non_dominated_is_its_definition(F: np.ndarray, endless: bool, none: bool) -> None:
    F = np.where(endless & (F > 4.0), np.inf, np.where(none & (F < 2.0), -np.inf, F))
    assert non_dominated(F).tolist() == by_definition(F)


@given(Rows, st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_archive_depends_on_neither_order_nor_chunks(F: np.ndarray, seed: int, chunk: int) -> None:
    ids = np.arange(len(F)) * 3 + 5
    order = np.random.default_rng(seed).permutation(len(F))
    archive = Archive(F.shape[1])
    for start in range(0, len(F), chunk):
        rows = order[start : start + chunk]
        archive.add(F[rows], ids[rows])
        seen = np.sort(order[: start + chunk])
        assert archive.ids.tolist() == ids[seen][by_definition(F[seen])].tolist()
        assert np.array_equal(archive.F, F[(archive.ids - 5) // 3])


@given(Rows, st.integers(0, 2**32 - 1), st.integers(1, 10), st.integers(1, 9), st.booleans())
def test_a_large_front_takes_rows_in_as_a_small_one(
    F: np.ndarray, seed: int, chunk: int, places: int, endless: bool
) -> None:
    """What is compared with a large front alone, and what all with all, leave the same rows."""
    rng = np.random.default_rng(seed)
    F = np.where(F == 1.0, rng.choice([0.0, -0.0], F.shape), F)
    F = np.where(endless & (F == 6.0), np.inf, F)
    ids, order = rng.permutation(len(F)), rng.permutation(len(F))
    small, large = Archive(F.shape[1]), Archive(F.shape[1])
    for start in range(0, len(F), chunk):
        rows = order[start : start + chunk]
        small.add(F[rows], ids[rows])
        large.add(F[rows], ids[rows])
        expected = small.ids.tolist()
        large_from = int(rng.choice([1, 4, 10**6]))  # at times it counts as a small one
        with mock.patch.multiple(
            pareto, LARGE=large_from, MANY_OBJECTIVES=1, PLACES=places, BATCH=2
        ):
            assert large.ids.tolist() == expected
        assert np.array_equal(large.F, small.F)


def test_a_front_of_thousands_in_five_objectives() -> None:
    rng = np.random.default_rng(5)
    F = np.abs(rng.normal(size=(20_000, 5)))
    F = np.round(1.0 - F / np.linalg.norm(F, axis=1)[:, None], 3)
    archive = Archive(5)
    for start in range(0, len(F), 2_500):
        archive.add(F[start : start + 2_500], np.arange(start, start + 2_500))
        assert len(archive) > 0
    assert len(archive) > 2 * pareto.LARGE
    assert archive.ids.tolist() == np.flatnonzero(non_dominated(F)).tolist()


@given(Rows, st.data())
def test_more_rows_never_lower_the_hypervolume(F: np.ndarray, data: st.DataObject) -> None:
    log = data.draw(st.lists(st.booleans(), min_size=F.shape[1], max_size=F.shape[1]))
    scale = Scale.of(F, log)
    part = F[: data.draw(st.integers(0, len(F)))]
    assert hypervolume(part, scale) <= hypervolume(F, scale) * (1 + 1e-12)
    assert hypervolume(F, scale) <= 1.1 ** F.shape[1] * (1 + 1e-12)


@given(Rows)
def test_dominated_rows_change_no_indicator(F: np.ndarray) -> None:
    log = [False] * F.shape[1]
    scale = Scale.of(F, log)
    front = F[non_dominated(F)]
    assert np.isclose(hypervolume(front, scale), hypervolume(F, scale), rtol=1e-12)
    assert additive_epsilon(front, F, scale) == 0
    assert (scale(front) >= 0).all()
    assert (scale(front) <= 1).all()


@given(Rows)
def test_choices_are_on_the_front(F: np.ndarray) -> None:
    names = [f"objective_{j}" for j in range(F.shape[1])]
    chosen = choose(F, names, [True] * F.shape[1])
    keep = non_dominated(F)
    front = {tuple(row) for row in F[keep]}
    assert {tuple(F[i]) for i in chosen.values()} <= front
    for j, name in enumerate(names):
        assert F[chosen[name], j] == F[:, j].min()


@st.composite
def fronts(draw: st.DrawFn) -> tuple[np.ndarray, list[float], list[bool]]:
    """A front with rows close together, the step of each objective and whether it is a share."""
    objectives = draw(st.integers(1, 4))
    spread = draw(st.sampled_from([0.01, 0.3, 3.0]))
    F = draw(
        arrays.arrays(
            float,
            st.tuples(st.integers(1, 60), st.just(objectives)),
            elements=st.integers(0, 40).map(lambda k: 1.0 + spread * k / 40),
        )
    )
    steps = st.sampled_from([0.0, 0.001, 0.02, 0.2])
    step = draw(st.lists(steps, min_size=objectives, max_size=objectives))
    relative = draw(st.lists(st.booleans(), min_size=objectives, max_size=objectives))
    maximised = draw(st.lists(st.booleans(), min_size=objectives, max_size=objectives))
    F = F * np.where(maximised, -1.0, 1.0)
    return F[non_dominated(F)], step, relative


def stands_for(a: np.ndarray, b: np.ndarray, step: list[float], relative: list[bool]) -> bool:
    """By definition: at most a step is given away in each objective, and more is gained."""
    gain = 0.0
    for mine, other, by, ratio in zip(a, b, step, relative, strict=True):
        if ratio:
            sign = np.sign(mine)
            mine, other = sign * np.log(abs(mine)), sign * np.log(abs(other))
            by = np.log1p(by)
        if mine > other and mine - other > by * (1 - 1e-9):
            return False
        if by:
            gain += (other - mine) / by
        elif other > mine:
            gain = np.inf
    return gain > 1e-6


@given(fronts())
def test_a_front_at_no_resolution_is_the_exact_front(
    front: tuple[np.ndarray, list[float], list[bool]],
) -> None:
    F, _, relative = front
    assert resolved(F, [0.0] * F.shape[1], relative).all()


@given(fronts(), st.booleans())
def test_a_design_is_left_out_for_a_kept_one_alone(
    front: tuple[np.ndarray, list[float], list[bool]], divided: bool
) -> None:
    F, step, relative = front
    block = pareto.BLOCK
    try:
        pareto.BLOCK = 4 if divided else block
        kept = resolved(F, step, relative)
    finally:
        pareto.BLOCK = block
    assert kept.any()
    reach = np.where(relative, np.abs(F) * np.asarray(step), step) + 1e-9
    for row, far in zip(F[~kept], reach[~kept], strict=True):
        assert (F[kept] <= row + far).all(axis=1).any()
    for i in np.flatnonzero(kept):
        for j in np.flatnonzero(kept):
            assert i == j or not stands_for(F[i], F[j], step, relative)


@given(fronts(), st.integers(0, 2**32 - 1))
def test_what_is_left_out_does_not_depend_on_the_order(
    front: tuple[np.ndarray, list[float], list[bool]], seed: int
) -> None:
    F, step, relative = front
    order = np.random.default_rng(seed).permutation(len(F))
    assert np.array_equal(resolved(F[order], step, relative), resolved(F, step, relative)[order])


def test_the_resolution_of_nothing_at_all() -> None:
    """A share of 0: the least of a cost is the best there is, the least of a rate the worst."""
    F = np.array([[0.0, 1.0], [1.0, 0.5], [1.001, 0.4999]])
    assert resolved(F, [0.01, 0.01], [True, True]).tolist() == [True, True, False]
    rate = np.array([[-0.0, 0.5], [-1.0, 1.0]])
    assert resolved(rate, [0.01, 0.01], [True, True]).all()


def test_a_chain_of_small_steps_does_not_eat_the_front() -> None:
    """On a line of 1,001 designs a hundredth of a step apart, each could stand for its neighbours
    within a step; some are kept all along it."""
    x = np.linspace(0.0, 10.0, 1001)
    F = np.column_stack([x, 20.0 - 1.001 * x])
    kept = resolved(F, [1.0, 1.0], [False, False])
    assert 8 <= kept.sum() <= 12
    assert np.diff(x[kept]).max() < 1.02
    assert x[kept].min() < 1.02
    assert x[kept].max() == 10.0


# Fronts, hypervolume and choices against closed forms.


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
