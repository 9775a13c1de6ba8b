"""Laws that every front obeys, on random rows with many ties."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dse.pareto import Archive, Scale, additive_epsilon, choose, hypervolume, non_dominated

Rows = st.integers(1, 4).flatmap(
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


@given(Rows)
def test_non_dominated_is_its_definition(F: np.ndarray) -> None:
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
