"""Laws of a space on random small ones: ids, canonical points, neighbours by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.physics import deployed
from dse.physics.phases import case_of, decode_step, prefill_step
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.axes import Axis, Condition
from dse.schema.study import load_study, resolve_space
from dse.space.space import Space

NAMES = (
    "sparse", "hidden_size", "num_hidden_layers", "num_experts", "num_experts_per_tok",
    "tensor_parallel", "data_parallel", "weight_dtype",
)  # fmt: skip
SHARING = (
    "quickstart", "attention-kinds", "basket-h200-tpu-trn2", "consumer-fleet", "deploy-deepseek-v3",
    "gpu-tpu-lpu-wafer", "lifetime-sparse", "pools-deepseek-v3", "rack-domain", "shape-for-nvl72",
    "shape-for-edge", "sparse-against-dense", "three-systems",
)  # fmt: skip
VALUES = {"sparse": (False, True), "weight_dtype": ("bf16", "fp8", "nvfp4")}


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """2 to 6 axes of 1 to 4 values, each with up to two conditions on axes before it."""
    axes: list[Axis] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique=True)):
        values = VALUES.get(name, (1, 2, 3, 4))
        values = values[: draw(st.integers(1, len(values)))]
        when = []
        if axes:
            for other in draw(st.lists(st.sampled_from(axes), max_size=2, unique_by=id)):
                positions = st.sampled_from(range(len(other.values)))
                indices = draw(st.lists(positions, min_size=1, unique=True))
                when.append(Condition(other.name, tuple(sorted(indices))))
        axes.append(Axis(name, values, when=tuple(when)))
    return Space("random", axes, "0" * 64)


def canonical(space: Space, point: Sequence[int]) -> tuple[int, ...]:
    """One point at a time, by the definition."""
    counts: dict[str, bool] = {}
    found = list(point)
    for j, axis in enumerate(space.axes):
        counts[axis.name] = all(
            counts[c.axis] and point[space.names.index(c.axis)] in c.indices for c in axis.when
        )
        found[j] = point[j] if counts[axis.name] else 0
    return tuple(found)


def grid(space: Space) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(len(axis.values)) for axis in space.axes)))


def rows(index: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in index.tolist()]


@settings(max_examples=80, deadline=None)
@given(spaces())
def test_ids_number_the_distinct_canonical_points(space: Space) -> None:
    everything = grid(space)
    distinct = {canonical(space, point) for point in everything}
    assert space.size == len(distinct)
    index = space.unrank(np.arange(space.size))
    assert set(rows(index)) == distinct
    assert space.rank(index).tolist() == list(range(space.size))
    points = np.array(everything)
    assert rows(space.unrank(space.rank(points))) == rows(space.canonical(points))


@settings(max_examples=80, deadline=None)
@given(spaces())
def test_canonical(space: Space) -> None:
    points = np.array(grid(space))
    found = space.canonical(points)
    assert rows(found) == [canonical(space, point) for point in grid(space)]
    assert np.array_equal(space.canonical(found), found)


@settings(max_examples=80, deadline=None)
@given(spaces(), st.data())
def test_neighbours_are_the_single_axis_changes(space: Space, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, space.size - 1), min_size=1, max_size=3))
    start = rows(space.unrank(np.array(ids)))
    expected = {
        canonical(space, (*point[:j], position, *point[j + 1 :]))
        for point in start
        for j, axis in enumerate(space.axes)
        for position in range(len(axis.values))
    } - set(start)
    found = rows(space.neighbours(np.array(start)))
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(max_examples=80, deadline=None)
@given(spaces(), st.integers(0, 40), st.integers(0, 2**32))
def test_sample(space: Space, n: int, seed: int) -> None:
    index = space.sample(np.random.default_rng(seed), n)
    again = space.sample(np.random.default_rng(seed), n)
    assert np.array_equal(index, again)
    assert index.shape == (min(n, space.size), len(space.names))
    assert len(set(rows(index))) == len(index)
    assert rows(index) == [canonical(space, point) for point in rows(index)]


@settings(max_examples=80, deadline=None)
@given(spaces())
def test_values_tell_points_apart(space: Space) -> None:
    """A value is what stands on the axis, or the neutral value where it does not count; row i does
    not depend on the others."""
    index = space.unrank(np.arange(space.size))
    values = space.values(index)
    for j, axis in enumerate(space.axes):
        assert values[axis.name].shape == (space.size,)
        for row in range(0, space.size, 7):
            one = space.values(index[row : row + 1])[axis.name]
            assert one[0] == values[axis.name][row]
        if not axis.when and axis.rule.kind == "size":
            expected = [float(axis.values[position]) for position in index[:, j]]
            assert values[axis.name].tolist() == expected


def test_points_that_share_a_deployment_are_each_what_they_are_alone() -> None:
    """Work that points share is gathered: with software, chips and formats that differ, too."""
    space = {
        "name": "shared",
        "workload": {"prompt_tokens": 1000, "output_tokens": 200, "serving": "continuous"},
        "price_basis": "rental_3yr",
        "model": "mixtral-8x7b",
        "deployment": {
            "chip": ["h100_sxm", "mi300x"],
            "backend": ["vllm", "sglang"],
            "replicas": 1,
            "tensor_parallel": [2, 4],
            "weight_dtype": ["bf16", "fp8"],
            "kv_dtype": "bf16",
            "concurrency": [1, 3, 16, 64, 200],
        },
        "objectives": {"usd_per_million_total_tokens": "minimize", "tpot_s": "minimize"},
    }
    catalog = load_catalog()
    posed = pose(load_study(space, catalog), catalog)
    index = posed.space.unrank(np.arange(posed.space.size, dtype=np.int64))
    whole = posed.evaluate(index)
    for i in range(len(index)):
        alone = posed.evaluate(index[i : i + 1])
        assert alone.F[0].tobytes() == whole.F[i].tobytes()
        assert alone.G[0].tobytes() == whole.G[i].tobytes()


@cache
def shipped(name: str) -> PhysicsProblem:
    catalog = load_catalog()
    return pose(load_study(resolve_space(name), catalog), catalog)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SHARING), st.integers(0, 2**32), st.data())
def test_what_layers_share_changes_no_bit(name: str, seed: int, data: st.DataObject) -> None:
    """Of any part of a space, with experts, latent attention, stages, pools, software, tiers or
    several workloads: shared among all points, or worked out for each alone."""
    posed = shipped(name)
    index = posed.space.sample(np.random.default_rng(seed), 150)
    for j in data.draw(st.sets(st.sampled_from(range(index.shape[1])))):
        index[:, j] = index[0, j]
    index = posed.space.canonical(index)
    found = []
    for few in (0, len(index)):
        with patch.object(deployed, "FEW", few):
            found.append(posed.evaluate(index))
    assert found[0].F.tobytes() == found[1].F.tobytes()
    assert found[0].G.tobytes() == found[1].G.tobytes()


@pytest.mark.parametrize("name", SHARING)
def test_a_layer_sees_all_that_its_time_depends_on(name: str) -> None:
    """The seconds of a step, layer by layer, are those of its ledger, which sees all."""
    posed = shipped(name)
    batch = replace(posed.batch(posed.space.sample(np.random.default_rng(0), 400)), backend=None)
    case = case_of(batch, posed.mix[0].workload, posed.machines)
    for step, tokens in ((prefill_step, 3000.0), (decode_step, 7.0)):
        work = tokens + np.arange(len(batch), dtype=np.float64) % 3.0
        with np.errstate(all="ignore"), patch.object(deployed, "FEW", 0):
            alike, _ = step(case, work, parts=False)
            whole, _ = step(case, work, parts=True)
        assert np.allclose(alike, whole, rtol=1e-12, atol=0.0, equal_nan=True)


def test_servers_launched_otherwise_share_no_layer() -> None:
    """Equal candidates of one batch, on servers that launch kernels early or do not."""
    posed = shipped("quickstart")
    batch = replace(posed.batch(posed.space.sample(np.random.default_rng(0), 1)), backend=None)
    code = posed.machines.code("b200_sxm")
    batch = replace(batch, chip=np.full(1, code))[np.zeros(600, dtype=np.intp)]
    load = posed.mix[0].workload
    early = load_catalog().backends["trtllm"].early_launch
    assert early is not None
    remaining = np.where(np.arange(600) % 2, early.remaining, 1.0)
    backend = replace(load.backend, early_launch=replace(early, remaining=remaining))
    case = case_of(batch, replace(load, backend=backend), posed.machines)
    with patch.object(deployed, "FEW", 0):
        seconds, _ = decode_step(case, np.full(600, 7.0), parts=False)
    whole, _ = decode_step(case, np.full(600, 7.0), parts=True)
    assert case.deployed.layers(0).kinds is not None  # they are shared
    assert seconds[1] < seconds[0]
    assert np.allclose(seconds, whole, rtol=1e-12, atol=0.0)
