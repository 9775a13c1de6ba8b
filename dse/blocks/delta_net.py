"""Linear attention with a matrix state a value head: gated delta-net (arXiv 2412.06464; Qwen3-Next,
Qwen3.5), Kimi delta attention (arXiv 2510.26692) and lightning attention (arXiv 2501.08313).

Projections to query, key, value, output gate and `gates_per_head` scalars (decay, learning rate) a
value head; `decay_rank` is the rank of a decay for every key channel, `output_gate_rank` that of
the output gate (0: a full matrix). Queries, keys and values pass a short convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.blocks.kind import State, project
from dse.blocks.operators import Block, Floats, Operators, Ranks, Role

CHUNK = 64.0  # tokens a chunk of the prompt (flash-linear-attention's kernels)


class DeltaNet(State):
    words = "linear attention"
    sizes = (
        "key_heads",
        "key_head_dim",
        "value_heads",
        "value_head_dim",
        "conv_width",
        "gates_per_head",
        "decay_rank",
        "output_gate_rank",
    )
    may_be_zero = frozenset({"conv_width", "gates_per_head", "decay_rank", "output_gate_rank"})
    order = 3

    def _heads(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats]:
        """(key heads, value heads) on one chip."""
        tp = ranks.tensor_parallel
        return np.ceil(block["key_heads"] / tp), np.ceil(block["value_heads"] / tp)

    def _widths(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats]:
        """(key columns, value columns) on one chip."""
        key_heads, value_heads = self._heads(ranks, block)
        return key_heads * block["key_head_dim"], value_heads * block["value_head_dim"]

    def _projections(self, ranks: Ranks, block: Block) -> tuple[tuple[Floats, Floats], ...]:
        """(columns, rows) on one chip: from the hidden state (low-rank gates down, whole on every
        rank), the decay up, the output gate up, the output."""
        keys, values = self._widths(ranks, block)
        _, value_heads = self._heads(ranks, block)
        full_gate = np.where(block["output_gate_rank"] > 0.0, 0.0, values)
        inward = 2.0 * keys + values + full_gate + block["gates_per_head"] * value_heads
        hidden = ranks.batch.hidden_size
        return (
            (inward + block["decay_rank"] + block["output_gate_rank"], hidden),
            (value_heads * block["key_head_dim"], block["decay_rank"]),
            (values, block["output_gate_rank"]),
            (hidden, values),
        )

    def state_elements(self, ranks: Ranks, block: Block) -> Floats:
        return self._widths(ranks, block)[1] * block["key_head_dim"]

    def channels(self, ranks: Ranks, block: Block) -> Floats:
        """0 without a convolution."""
        keys, values = self._widths(ranks, block)
        return (2.0 * keys + values) * (block["conv_width"] > 0.0)

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """With key width K and value width V: h (2 K + V + gates heads) in, V h out, an output gate
        of h V or of rank r, r (h + V), a decay of rank r, r (h + heads d_k), the convolution."""
        inward, decay, gate, out = (c * rows for c, rows in self._projections(ranks, block))
        convolved = self.channels(ranks, block) * block["conv_width"]
        return {"attention": inward + decay + gate + out + convolved}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        return hidden + 2.0 * block["value_heads"] + block["value_head_dim"]

    def in_words(self, sizes: Mapping[str, Any]) -> str:
        if not sizes["gates_per_head"]:
            return "lightning attention"
        return "Kimi delta attention" if sizes["decay_rank"] else "gated delta-net"

    def add(self, step: Operators, block: Block) -> None:
        deployed, count, rows = step.deployed, block.count, step.rows
        keys, values = self._widths(deployed, block)
        state = values * block["key_head_dim"]
        _, value_heads = self._heads(deployed, block)
        inward, decay, gate, out = self._projections(deployed, block)

        step.elementwise(Role.NORM, "attention norm", count, 3.0 * rows * step.hidden_size)
        project(step, Role.PROJECTION, "linear attention projections", count, inward)
        for label, sizes in (("decay up-projection", decay), ("gate up-projection", gate)):
            project(step, Role.PROJECTION, label, count * (sizes[1] > 0.0), sizes)
        self.convolve(step, count * (block["conv_width"] > 0.0), 2.0 * keys + values)
        # A token: the state decayed, read with its key, corrected and read with its query. A chunk:
        # products of queries, keys and values among its tokens (arXiv 2412.06464, section 3.3).
        within = 2.0 * CHUNK * value_heads * (3.0 * block["key_head_dim"])
        within = within + 2.0 * CHUNK * 2.0 * values
        self.scan(
            step,
            count,
            state=state,
            chunk=CHUNK,
            width=2.0 * keys + 2.0 * values,
            decode_flops=7.0 * state,
            prefill_flops=6.0 * state + within,
        )
        step.elementwise(Role.ELEMENTWISE, "gated norm", count, 3.0 * rows * values)
        project(step, Role.OUTPUT, "attention output projection", count, out)
        step.tensor_all_reduce("attention all-reduce", count)


KIND = DeltaNet()
