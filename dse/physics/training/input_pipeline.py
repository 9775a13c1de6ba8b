"""The input pipeline as one more ceiling on a training run. Every array is (n,).

Batches are read, tokenised and sent to the chips beside the step that runs (prefetch, assumed to
hide completely what it can), so that a step takes the longer of its own time and of its tokens'
delivery:

    step = max(step, global batch tokens / delivered tokens per second)
    delivered = hosts x bytes per second of a host / bytes per token
"""

from __future__ import annotations

import numpy as np

from dse.space.candidates import Floats

# A token id of 32 bits, as tokenised text is stored for training.
TOKEN_BYTES = 4.0


def delivered_tokens_per_s(
    hosts: Floats, host_bytes_per_s: Floats, bytes_per_token: Floats
) -> Floats:
    """(n,) tokens per second that so many hosts read, of `bytes_per_token` each: 4 for tokenised
    text, thousands where images or raw documents are decoded on the way."""
    return hosts * host_bytes_per_s / bytes_per_token


def starved_s(step_s: Floats, batch_tokens: Floats, tokens_per_s: Floats) -> Floats:
    """(n,) seconds of each step in which the chips wait for their input; infinite `tokens_per_s`
    is a pipeline that always keeps up."""
    return np.maximum(batch_tokens / tokens_per_s - step_s, 0.0)
