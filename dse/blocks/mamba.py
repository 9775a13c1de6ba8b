"""State space layers: Mamba-1 (arXiv 2312.00752; Jamba) and Mamba-2 (arXiv 2405.21060; Nemotron-H).

Mamba-2 has heads, and groups that share the matrices B and C; Mamba-1 has none of the two (0), but
a projection of its inner channels to the time step (rank `dt_rank`), B and C. The state is
`inner_size` x `state_size`. Channels are split over the tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.blocks.kind import State, project
from dse.blocks.operators import Block, Floats, Operators, Ranks, Role

CHUNK = 256.0  # tokens a chunk of the prompt (mamba_ssm's default)


class Mamba(State):
    words = "Mamba layers"
    sizes = ("inner_size", "heads", "groups", "state_size", "conv_width", "dt_rank")
    may_be_zero = frozenset({"heads", "groups", "dt_rank"})
    order = 4

    def _sizes(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats, Floats, Floats]:
        """(inner channels, heads, channels of B and C that pass the convolution, rows of the
        Mamba-1 projection) on one chip."""
        tp = ranks.tensor_parallel
        inner = np.ceil(block["inner_size"] / tp)
        shared = 2.0 * np.ceil(block["groups"] / tp) * block["state_size"]
        first = np.where(block["heads"] > 0.0, 0.0, inner)
        return inner, np.ceil(block["heads"] / tp), shared, first

    def _projections(self, ranks: Ranks, block: Block) -> tuple[tuple[Floats, Floats], ...]:
        """(columns, rows) on one chip: inward, time step with B and C, time step up, outward."""
        inner, heads, shared, first = self._sizes(ranks, block)
        hidden = ranks.batch.hidden_size
        return (
            (2.0 * inner + shared + heads, hidden),
            (block["dt_rank"] + 2.0 * block["state_size"], first),
            (first, block["dt_rank"]),
            (hidden, inner),
        )

    def state_elements(self, ranks: Ranks, block: Block) -> Floats:
        return self._sizes(ranks, block)[0] * block["state_size"]

    def channels(self, ranks: Ranks, block: Block) -> Floats:
        inner, _, shared, _ = self._sizes(ranks, block)
        return inner + shared

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """Mamba-2: h (2 i + 2 groups s + heads) in, i h out. Mamba-1: 2 i h in, i (r + 2 s) + r i
        for the time step, i s for A, i h out; inner size i, state s."""
        inner, _, shared, first = self._sizes(ranks, block)
        inward, small, step_up, out = (c * rows for c, rows in self._projections(ranks, block))
        convolved = (inner + shared) * block["conv_width"]
        vectors = first * block["state_size"]
        return {"attention": inward + small + step_up + out + convolved + vectors}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        """Norms, decays, time steps and skips."""
        shared = 2.0 * block["groups"] * block["state_size"]
        first = np.where(block["heads"] > 0.0, 0.0, block["inner_size"])
        return hidden + 2.0 * block["inner_size"] + shared + 3.0 * block["heads"] + first

    def in_words(self, sizes: Mapping[str, Any]) -> str:
        return "Mamba-2" if sizes["heads"] else "Mamba-1"

    def add(self, step: Operators, block: Block) -> None:
        deployed, count, rows = step.deployed, block.count, step.rows
        inner, _, shared, first = self._sizes(deployed, block)
        inward, small, step_up, out = self._projections(deployed, block)
        state = inner * block["state_size"]

        step.elementwise(Role.NORM, "state space norm", count, 3.0 * rows * step.hidden_size)
        project(step, Role.PROJECTION, "state space projections", count, inward)
        self.convolve(step, count, inner + shared)
        has_rank = count * (first > 0.0)
        project(step, Role.PROJECTION, "time step, B and C", has_rank, small)
        project(step, Role.PROJECTION, "time step up-projection", has_rank, step_up)
        # Mamba-2 in chunks: C B^T a group, its product with the inputs, the states in and out
        # (arXiv 2405.21060, section 6). Mamba-1 scans, 9 operations an element of the state.
        chunked = 4.0 * state + CHUNK * (shared + 2.0 * inner)
        self.scan(
            step,
            count,
            state=state,
            chunk=CHUNK,
            width=3.0 * inner + shared,
            decode_flops=6.0 * state,
            prefill_flops=np.where(first > 0.0, 9.0 * state, chunked),
        )
        step.elementwise(Role.ELEMENTWISE, "gated norm", count, 3.0 * rows * inner)
        project(step, Role.OUTPUT, "state space output projection", count, out)
        step.tensor_all_reduce("state space all-reduce", count)


KIND = Mamba()
