"""State space layers: Mamba-1 (arXiv 2312.00752; Jamba) and Mamba-2 (arXiv 2405.21060; Nemotron-H).

Mamba-2 has heads, and groups that share the matrices B and C; Mamba-1 has none of the two (0), but
a projection of its inner channels to the time step (rank `dt_rank`), B and C. The state is
`inner_size` x `state_size`. Channels are split over the tensor-parallel ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks.state import CONV_BYTES, STATE_BYTES, convolution, scan
from dse.physics.deployed import Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step

CHUNK = 256.0  # tokens a chunk of the prompt (mamba_ssm's default)


def _sizes(deployed: Deployed, block: Block) -> tuple[Floats, Floats, Floats, Floats]:
    """(inner channels, heads, channels of B and C that pass the convolution, rows of the Mamba-1
    projection) on one chip."""
    tp = deployed.tensor_parallel
    inner = np.ceil(block["inner_size"] / tp)
    shared = 2.0 * np.ceil(block["groups"] / tp) * block["state_size"]
    first = np.where(block["heads"] > 0.0, 0.0, inner)
    return inner, np.ceil(block["heads"] / tp), shared, first


def _projections(deployed: Deployed, block: Block) -> tuple[tuple[Floats, Floats], ...]:
    """(columns, rows) on one chip: inward, time step with B and C, time step up, outward."""
    inner, heads, shared, first = _sizes(deployed, block)
    hidden = deployed.batch.hidden_size
    return (
        (2.0 * inner + shared + heads, hidden),
        (block["dt_rank"] + 2.0 * block["state_size"], first),
        (first, block["dt_rank"]),
        (hidden, inner),
    )


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    inner, _, shared, first = _sizes(deployed, block)
    inward, small, step_up, out = (c * rows for c, rows in _projections(deployed, block))
    convolved = (inner + shared) * block["conv_width"]
    return {"attention": inward + small + step_up + out + convolved + first * block["state_size"]}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    """The state, whatever the length."""
    inner, _, shared, _ = _sizes(deployed, block)
    kept = (inner + shared) * np.maximum(block["conv_width"] - 1.0, 0.0)
    return inner * block["state_size"] * STATE_BYTES + kept * CONV_BYTES


def add(step: Step, block: Block) -> None:
    deployed, count, rows = step.deployed, block.count, step.rows
    inner, _, shared, first = _sizes(deployed, block)
    inward, small, step_up, out = _projections(deployed, block)
    state = inner * block["state_size"]

    step.elementwise("state space norm", count, 3.0 * rows * step.hidden_size)
    step.gemm("state space projections", count, "attention", rows, *inward)
    convolution(step, count, inner + shared)
    has_rank = count * (first > 0.0)
    step.gemm("time step, B and C", has_rank, "attention", rows, *small)
    step.gemm("time step up-projection", has_rank, "attention", rows, *step_up)
    # Mamba-2 in chunks: C B^T a group, its product with the inputs, the states in and out
    # (arXiv 2405.21060, section 6). Mamba-1 scans, 9 operations an element of the state.
    chunked = 4.0 * state + CHUNK * (shared + 2.0 * inner)
    scan(
        step,
        count,
        state=state,
        chunk=CHUNK,
        width=3.0 * inner + shared,
        decode_flops=6.0 * state,
        prefill_flops=np.where(first > 0.0, 9.0 * state, chunked),
    )
    step.elementwise("gated norm", count, 3.0 * rows * inner)
    step.gemm("state space output projection", count, "attention", rows, *out)
    step.tensor_all_reduce("state space all-reduce", count)
