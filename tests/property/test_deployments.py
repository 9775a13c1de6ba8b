"""Laws of the tables of deployments, and brute force on small ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.blocks import BLOCK_SIZES
from dse.schema.model import BlockSpec, Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.deployments import (
    DEGREES,
    Deployments,
    Rule,
    divides,
    divisors,
    finer_ladder,
    instances,
    load_ladder,
    powers_of_two,
    sizes_up_to,
    with_redundant_experts,
)

AXES = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "concurrency")
Values = st.lists(st.integers(1, 12), max_size=4, unique=True)
Rows = list[tuple[int, ...]]
RULES: dict[str, Rule] = {
    "divides": divides("tensor_parallel", 12),
    "group": lambda table: table.group % table["expert_parallel"] == 0,
    "few": lambda table: table.chips <= 20,
    "loaded": lambda table: table["concurrency"] >= table["pipeline_parallel"],
}


@st.composite
def axes(draw: st.DrawFn) -> dict[str, list[int]]:
    return {name: draw(Values) for name in AXES}


def rows(table: Deployments, *names: str) -> Rows:
    return list(zip(*(table[name].tolist() for name in names), strict=True))


@given(axes())
def test_every_combination_is_there_once_the_last_axis_fastest(given: dict[str, list[int]]):
    expected = list(itertools.product(*given.values()))
    table = Deployments.of(**given)
    assert len(table) == len(expected)
    assert rows(table, *AXES) == expected
    one_by_one = Deployments({})
    for name, values in given.items():
        one_by_one = one_by_one.cross(**{name: values})
    assert rows(one_by_one, *AXES) == expected


@given(axes(), st.permutations(list(RULES)))
def test_rules_commute_and_keep_the_order(given: dict[str, list[int]], order: list[str]):
    table = Deployments.of(**given)
    together = rows(table.where(*RULES.values()), *AXES)
    for name in order:
        table = table.where(RULES[name])
    assert rows(table, *AXES) == together
    every = list(itertools.product(*given.values()))
    assert together == [
        (tp, pp, ep, load)
        for tp, pp, ep, load in every
        if 12 % tp == 0 and tp % ep == 0 and tp * pp <= 20 and load >= pp
    ]


@given(axes())
def test_a_rule_that_leaves_nothing_may_be_let_go(given: dict[str, list[int]]):
    table = Deployments.of(**given)
    assert rows(table.where_any(lambda t: t.chips < 0), *AXES) == rows(table, *AXES)
    some = table.where(RULES["few"])
    if len(some):
        assert rows(table.where_any(RULES["few"]), *AXES) == rows(some, *AXES)


@given(axes(), st.integers(1, 60))
def test_the_degrees_of_a_filled_table_use_every_chip(given: dict[str, list[int]], chips: int):
    table = Deployments.of(**given).filling(chips)
    assert (table.chips == chips).all()
    assert rows(table, *AXES, "data_parallel") == [
        (*row, chips // (row[0] * row[1]))
        for row in itertools.product(*given.values())
        if chips % (row[0] * row[1]) == 0
    ]


def by_hand(chips: int, layers: int, experts: list[int]) -> Rows:
    """The ways to divide one instance, one at a time."""
    found: Rows = []
    for pp, tp in itertools.product(range(1, chips + 1), repeat=2):
        if chips % (pp * tp) or pp > layers:
            continue
        dp, group = chips // (pp * tp), chips // pp
        if not experts:
            found += [(pp, tp, 1, 1, 0)] if dp == 1 else []
            continue
        for ep in (k for k in range(1, group + 1) if group % k == 0):
            if dp > 1 and ep not in (1, group):
                continue
            for copies in range(min(experts) + 1):
                filled = all((count + copies) % ep == 0 for count in experts)
                fewest = len({-count % ep for count in experts}) == 1 and copies < 2 * ep
                if filled and fewest and (ep > 1 or copies == 0):
                    found.append((pp, tp, dp, ep, copies))
    return found


Experts = st.lists(st.sampled_from([2, 3, 8, 12, 64]), max_size=2)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 48), min_size=1, max_size=3), st.integers(1, 24), Experts)
def test_instances_are_those_of_a_loop(sizes: list[int], layers: int, experts: list[int]):
    table = instances(sizes, layers, experts)
    names = (
        "pipeline_parallel",
        "tensor_parallel",
        "data_parallel",
        "expert_parallel",
        "redundant_experts",
    )
    expected = [by_hand(size, layers, experts) for size in sizes]
    assert rows(table, *names) == list(itertools.chain(*expected))
    assert table.chips.tolist() == [
        size for size, some in zip(sizes, expected, strict=True) for _ in some
    ]


@given(st.integers(1, 128), Experts)
def test_redundant_experts_fill_every_rank(expert_parallel: int, experts: list[int]):
    table = Deployments.of(expert_parallel=expert_parallel)
    table = with_redundant_experts(table, experts)
    for count in experts:
        assert ((count + table["redundant_experts"]) % expert_parallel == 0).all()
        assert (table["redundant_experts"] <= count).all()
    if not experts:
        assert table["redundant_experts"].tolist() == [0]


def test_sizes_are_powers_of_two_divisors_and_whole_domains():
    assert sizes_up_to(72, 200) == [
        *(1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 64, 72, 128, 144, 200)
    ]
    assert sizes_up_to(8, 8) == [1, 2, 4, 8]
    assert sizes_up_to(1, 4) == [1, 2, 4]


@given(st.integers(1, 5000))
def test_divisors_and_powers(number: int):
    assert divisors(number).tolist() == [k for k in range(1, number + 1) if number % k == 0]
    powers = powers_of_two(number).tolist()
    assert powers == [2**k for k in range(len(powers))]
    assert powers[-1] <= number < 2 * powers[-1]


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=4), st.integers(1, 8))
def test_ladders_rise_to_the_most_and_no_further(given: list[int], per_doubling: int):
    most = np.array(given, dtype=np.float64)
    ladder = load_ladder(most)
    for row, top in zip(ladder, most, strict=True):
        powers = [2.0**k for k in range(int(math.log2(top)) + 1)]
        assert sorted({*powers, top}) == sorted(set(row.tolist()))
    fine = finer_ladder(np.ones(len(most)), most, 20, per_doubling)
    for of in (ladder, fine):
        assert (of <= most[:, None]).all()
        assert (np.diff(of, axis=1) >= 0.0).all()
    assert (fine % 1.0 == 0.0).all()


def plain_model(layers: int) -> Model:
    mlp = dict.fromkeys(BLOCK_SIZES["mlp"], 8)
    gqa = dict.fromkeys(BLOCK_SIZES["gqa"], 8)
    return Model(
        id="plain",
        name="plain",
        hidden_size=64,
        vocab_size=128,
        tied_embeddings=False,
        blocks=(BlockSpec("gqa", layers, gqa), BlockSpec("mlp", layers, mlp)),
        weight_dtypes=dict.fromkeys(("attention", "mlp", "experts", "embedding"), "bf16"),
        kv_dtype=None,
        training_tokens=None,
        source="test",
    )


@given(axes(), st.data())
def test_a_row_is_placed_on_its_shape(given: dict[str, list[int]], data: st.DataObject):
    ones = {axis: np.ones(2) for axis in DEPLOYMENT_AXES}
    shapes = batch_of(
        [plain_model(2), plain_model(3)], np.arange(2), [None] * 2, ["bf16"] * 2, ones
    )
    table = Deployments.of(**given)
    row = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(table), max_size=len(table))))
    batch = table.placed(shapes, row.astype(np.intp))
    assert batch.layers.tolist() == [2.0 + of for of in row]
    for name in AXES:
        assert getattr(batch, name).tolist() == table[name].tolist()
        assert getattr(batch, name).dtype == np.float64
    assert (batch.replicas == 1.0).all()
    assert (batch.chips == table.chips).all()


def product_of(degrees: tuple[str, ...]) -> Callable[[Deployments], list[int]]:
    return lambda table: np.prod([table[name] for name in degrees], axis=0).tolist()


def test_chips_count_context_parallelism_and_groups_leave_stages_out():
    table = Deployments.of(**{name: [1, 2, 3] for name in DEGREES}, replicas=[1, 5])
    assert table.chips.tolist() == product_of(DEGREES)(table)
    inside = tuple(name for name in DEGREES if name != "pipeline_parallel")
    assert table.group.tolist() == product_of(inside)(table)
