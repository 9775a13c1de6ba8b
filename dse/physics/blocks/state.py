"""What the kinds of constant state share: linear attention and state space models.

A request keeps one state a layer, however long it gets. A decoded token reads and writes it; a
prompt goes through in chunks, inside which tokens see each other and between which the state is
handed on. No kernel of these is measured: reading and writing states takes the memory rate of
decode attention, chunks the law of prefill attention, both on 16-bit data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dse.physics.deployed import ACTIVATION_BYTES
from dse.space.candidates import Floats

if TYPE_CHECKING:
    from dse.physics.step import Step

STATE_BYTES = 4.0  # states are kept in float32 (mamba_ssm_dtype, vLLM's default for these models)
CONV_BYTES = 2.0  # the last tokens before the convolution, in bf16


def convolution(step: Step, count: Floats, channels: Floats) -> None:
    """A short convolution over each channel: reads, its state, writes."""
    step.elementwise("short convolution", count, 3.0 * step.rows * channels)


def scan(
    step: Step,
    count: Floats,
    *,
    state: Floats,
    chunk: float,
    width: Floats,
    decode_flops: Floats,
    prefill_flops: Floats,
) -> None:
    """The recurrence of one step: `state` elements a request, `width` elements in and out and
    `decode_flops` or `prefill_flops` a token, (n,) each on one chip."""
    step.ledger.operator(
        "state over the prompt",
        count,
        step.deployed.law("prefill_attention", "state"),
        step.prefill_rows * prefill_flops,
        step.prefill_rows * (width + 2.0 * state / chunk) * ACTIVATION_BYTES,
        0.0,
        step.has_prefill,
    )
    moved = 2.0 * step.decode_rows * state * STATE_BYTES
    step.ledger.operator(
        "state read and written",
        count,
        step.deployed.law("decode_attention", "state"),
        step.verified_rows * decode_flops,
        moved,
        moved,
        step.has_decode,
        held="cache",
    )
