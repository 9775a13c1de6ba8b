"""Linear attention with a matrix state a value head: gated delta-net (arXiv 2412.06464; Qwen3-Next,
Qwen3.5), Kimi delta attention (arXiv 2510.26692) and lightning attention (arXiv 2501.08313).

Projections to query, key, value, output gate and `gates_per_head` scalars (decay, learning rate) a
value head; `decay_rank` is the rank of a decay for every key channel, `output_gate_rank` that of
the output gate (0: a full matrix). Queries, keys and values pass a short convolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks.state import CONV_BYTES, STATE_BYTES, convolution, scan
from dse.physics.deployed import Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step

CHUNK = 64.0  # tokens a chunk of the prompt (flash-linear-attention's kernels)


def _heads(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(key heads, value heads) on one chip."""
    tp = deployed.tensor_parallel
    return np.ceil(block["key_heads"] / tp), np.ceil(block["value_heads"] / tp)


def _widths(deployed: Deployed, block: Block) -> tuple[Floats, Floats, Floats]:
    """(key columns, value columns, state elements) on one chip."""
    key_heads, value_heads = _heads(deployed, block)
    values = value_heads * block["value_head_dim"]
    return key_heads * block["key_head_dim"], values, values * block["key_head_dim"]


def _projections(deployed: Deployed, block: Block) -> tuple[tuple[Floats, Floats], ...]:
    """(columns, rows) on one chip: from the hidden state (low-rank gates down, whole on every
    rank), the decay up, the output gate up, the output."""
    keys, values, _ = _widths(deployed, block)
    _, value_heads = _heads(deployed, block)
    full_gate = np.where(block["output_gate_rank"] > 0.0, 0.0, values)
    inward = 2.0 * keys + values + full_gate + block["gates_per_head"] * value_heads
    hidden = deployed.batch.hidden_size
    return (
        (inward + block["decay_rank"] + block["output_gate_rank"], hidden),
        (value_heads * block["key_head_dim"], block["decay_rank"]),
        (values, block["output_gate_rank"]),
        (hidden, values),
    )


def _channels(deployed: Deployed, block: Block) -> Floats:
    """(n,) channels of the short convolution; 0 without one."""
    keys, values, _ = _widths(deployed, block)
    return (2.0 * keys + values) * (block["conv_width"] > 0.0)


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    inward, decay, gate, out = (columns * rows for columns, rows in _projections(deployed, block))
    convolved = _channels(deployed, block) * block["conv_width"]
    return {"attention": inward + decay + gate + out + convolved}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    """The state, whatever the length."""
    _, _, state = _widths(deployed, block)
    kept = _channels(deployed, block) * np.maximum(block["conv_width"] - 1.0, 0.0)
    return state * STATE_BYTES + kept * CONV_BYTES


def add(step: Step, block: Block) -> None:
    deployed, count, rows = step.deployed, block.count, step.rows
    keys, values, state = _widths(deployed, block)
    _, value_heads = _heads(deployed, block)
    inward, decay, gate, out = _projections(deployed, block)

    step.elementwise("attention norm", count, 3.0 * rows * step.hidden_size)
    step.gemm("linear attention projections", count, "attention", rows, *inward)
    step.gemm("decay up-projection", count * (decay[1] > 0.0), "attention", rows, *decay)
    step.gemm("gate up-projection", count * (gate[1] > 0.0), "attention", rows, *gate)
    convolution(step, count * (block["conv_width"] > 0.0), 2.0 * keys + values)
    # A token: the state decayed, read with its key, corrected and read with its query. A chunk:
    # products of queries, keys and values among its tokens (arXiv 2412.06464, section 3.3).
    within = 2.0 * CHUNK * value_heads * (3.0 * block["key_head_dim"])
    within = within + 2.0 * CHUNK * 2.0 * values
    scan(
        step,
        count,
        state=state,
        chunk=CHUNK,
        width=2.0 * keys + 2.0 * values,
        decode_flops=7.0 * state,
        prefill_flops=6.0 * state + within,
    )
    step.elementwise("gated norm", count, 3.0 * rows * values)
    step.gemm("attention output projection", count, "attention", rows, *out)
    step.tensor_all_reduce("attention all-reduce", count)
