"""A made-up problem with the structure of the real one: mixed and conditional axes, a roofline
with tile waste, a quality law, and limits on memory and latency. Its figures describe no chip."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dse.problem.protocol import Evaluation, Objective
from dse.space.space import Space

Ints = NDArray[np.int64]

# name, values, ordered, needs sparse
Axis = tuple[str, tuple[bool | int | float | str, ...], bool, bool]
AXES: tuple[Axis, ...] = (
    ("sparse", (False, True), False, False),
    ("hidden_size", (2048, 2560, 3584, 4096, 5120, 8192), True, False),
    ("num_hidden_layers", (24, 32, 40, 48, 64, 80), True, False),
    ("width_ratio", (2.5, 3.0, 3.5), True, False),
    ("num_key_value_heads", (4, 8), True, False),
    ("num_experts", (16, 32, 64, 128), True, True),
    ("num_experts_per_tok", (2, 8), True, True),
    ("chip", ("north", "east", "south", "west"), False, False),
    ("tensor_parallel", (1, 2, 4, 8), True, False),
    ("weight_dtype", ("bf16", "fp8"), False, False),
    ("kv_dtype", ("bf16", "fp8"), False, False),
    ("concurrency", (4, 8, 16, 32, 64, 128, 256, 512), True, False),
)
# every second value of the longer scales
SMALL_AXES: tuple[Axis, ...] = tuple(
    (name, values[::2] if len(values) > 4 else values, ordered, conditional)
    for name, values, ordered, conditional in AXES
)
# FLOP/s at bf16, bytes/s, bytes, usd/h
CHIPS = np.array(
    [
        [1.0e15, 3.3e12, 80e9, 2.0],
        [1.0e15, 4.8e12, 141e9, 2.6],
        [2.2e15, 8.0e12, 180e9, 4.2],
        [1.3e15, 5.3e12, 192e9, 2.3],
    ]
)
OBJECTIVES = (
    Objective("predicted_loss", "minimize", False),
    Objective("usd_per_million_output_tokens", "minimize", True),
    Objective("output_tokens_per_s_per_user", "maximize", True),
)
CONSTRAINTS = ("memory", "prefill", "heads")


class GridSpace(Space):
    """A product of axes, some of which count only where the first axis, a switch, is on.

    The smallest space: two branches, mixed radix in each.
    """

    def __init__(self, axes: tuple[Axis, ...] = AXES, name: str = "synthetic") -> None:
        self.name = name
        self.names = tuple(axis[0] for axis in axes)
        self.choices = tuple(axis[1] for axis in axes)
        self.ordered = tuple(axis[2] for axis in axes)
        self.cardinalities = np.array([len(values) for values in self.choices])
        self.fingerprint = hashlib.sha256(repr(axes).encode()).hexdigest()
        self._switched = np.array([axis[3] for axis in axes])
        radix_off = np.where(self._switched, 1, self.cardinalities)
        radix_off[0] = 1
        radix_on = self.cardinalities.copy()
        radix_on[0] = 1
        self._bases = (radix_off, radix_on)
        self._off = int(np.prod(radix_off))
        self.size = self._off + int(np.prod(radix_on))

    def canonical(self, index: Ints) -> Ints:
        return np.where(self._switched & (index[:, :1] == 0), 0, index)

    def active(self, index: Ints) -> NDArray[np.bool_]:
        return ~(self._switched & (index[:, :1] == 0))

    def rank(self, index: Ints) -> Ints:
        index = self.canonical(index)
        ranks = [self._mixed(index, radix) for radix in self._bases]
        return np.where(index[:, 0] == 0, ranks[0], self._off + ranks[1])

    def unrank(self, ids: Ints) -> Ints:
        on = ids >= self._off
        index = np.zeros((len(ids), len(self.names)), dtype=np.int64)
        for branch, rows in enumerate((~on, on)):
            rest = ids[rows] - self._off * branch
            for axis in range(len(self.names) - 1, 0, -1):
                rest, index[rows, axis] = np.divmod(rest, self._bases[branch][axis])
        index[:, 0] = on
        return index

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        ids = rng.integers(self.size, size=n)
        return self.unrank(np.unique(ids) if n < self.size else np.arange(self.size))

    def neighbours(self, index: Ints) -> Ints:
        changed = []
        for axis, cardinality in enumerate(self.cardinalities):
            for value in range(cardinality):
                copy = index.copy()
                copy[:, axis] = value
                changed.append(copy)
        ids = np.unique(self.rank(np.concatenate(changed)))
        return self.unrank(ids[~np.isin(ids, self.rank(index))])

    def values(self, index: Ints) -> dict[str, NDArray]:
        values: dict[str, NDArray] = {}
        for axis, (name, choices, ordered) in enumerate(
            zip(self.names, self.choices, self.ordered, strict=True)
        ):
            column = index[:, axis]
            values[name] = np.array(choices, dtype=float)[column] if ordered else column
            if self._switched[axis]:
                values[name] = np.where(index[:, 0] == 0, 0.0, values[name])
        return values

    @staticmethod
    def _mixed(index: Ints, radix: Ints) -> Ints:
        rank = np.zeros(len(index), dtype=np.int64)
        for axis, base in enumerate(radix):
            if base > 1:
                rank = rank * base + index[:, axis]
        return rank


class SyntheticProblem:
    """Loss, price and speed of a model of `GridSpace()` on one server.

    `axes` has the names of `AXES`; `objectives` keeps the first two or all three; `prefill_s` is
    the latency limit, in seconds, by which the feasible share of the space is set.
    """

    def __init__(
        self, objectives: int = 3, prefill_s: float = 0.5, axes: tuple[Axis, ...] = AXES
    ) -> None:
        self.space = GridSpace(axes)
        self.objectives = OBJECTIVES[:objectives]
        self.constraints = CONSTRAINTS
        self._prefill_s = prefill_s

    def evaluate(self, index: Ints) -> Evaluation:
        v = self.space.values(index)
        hidden, layers, kv_heads = (
            v["hidden_size"],
            v["num_hidden_layers"],
            v["num_key_value_heads"],
        )
        sparse, experts, top_k = v["sparse"] == 1, v["num_experts"], v["num_experts_per_tok"]
        tensor, batch = v["tensor_parallel"], v["concurrency"]
        peak, bandwidth, capacity, usd = CHIPS[v["chip"].astype(np.int64)].T
        bits = np.where(v["weight_dtype"] == 1, 1.0, 2.0)
        kv_bytes = np.where(v["kv_dtype"] == 1, 1.0, 2.0)

        width = v["width_ratio"] * hidden
        expert = np.ceil(width / 4 / 128) * 128
        attention = 2 * hidden * hidden + 2 * hidden * kv_heads * 128
        active = layers * (attention + 3 * hidden * np.where(sparse, top_k * expert, width))
        total = layers * (attention + 3 * hidden * np.where(sparse, experts * expert, width))
        touched = np.where(sparse, 1 - (1 - top_k / np.maximum(experts, 1)) ** batch, 1.0)

        context = 4096.0
        cache = batch * context * layers * 2 * kv_heads * 128 * kv_bytes
        local = np.maximum(tensor / kv_heads, 1.0) * cache / tensor
        rows = np.ceil(batch / 16) * 16
        tile = np.ceil(width / tensor / 256) * 256 / (width / tensor)
        flops = 2 * active * rows * tile
        moved = (active + (total - active) * touched) * bits / tensor + local
        seconds = np.maximum(flops / tensor / (0.6 * peak * 2 / bits), moved / (0.75 * bandwidth))
        link = layers * np.where(tensor > 1, 2 * (6e-6 + batch * hidden * 2 / 4e11), 0.0)
        step = seconds + link + 2e-3
        prefill = 2 * active * context * tile / tensor / (0.5 * peak * 2 / bits) + link * 20

        equivalent = active * np.where(sparse, (total / active) ** 0.4, 1.0)
        shape = 1 + 0.02 * np.log(hidden / layers / 100) ** 2
        tokens = 1e24 / 6 / active
        loss = 1.7 + shape * (400 / equivalent**0.34 + 410 / tokens**0.28)
        loss = loss + np.where(kv_bytes == 1, 0.002, 0.0) + 0.004 / kv_heads
        price = usd * tensor / 3600 * step / batch * 1e6
        F = np.stack([loss, price, -1 / step], axis=1)[:, : len(self.objectives)]
        G = np.stack(
            [
                (total * bits / tensor + local) / (0.9 * capacity) - 1,
                prefill / self._prefill_s - 1,
                np.where(np.mod(hidden / 128, tensor) == 0, 0.0, 1.0),
            ],
            axis=1,
        )
        return Evaluation(np.ascontiguousarray(F), G)
