"""Laws that every front obeys, on random rows with many ties."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dse import pareto
from dse.pareto import (
    Archive,
    Scale,
    additive_epsilon,
    choose,
    hypervolume,
    non_dominated,
    resolved,
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


@given(Rows)
def test_archive_that_is_read_once_at_the_end(F: np.ndarray) -> None:
    archive = Archive(F.shape[1])
    for i in range(len(F)):
        archive.add(F[i : i + 1], np.array([i]))
    assert archive.ids.tolist() == np.flatnonzero(by_definition(F)).tolist()


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
