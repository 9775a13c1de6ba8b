"""The input pipeline as one more ceiling on a training run. Every array is (n,).

Batches are read, tokenised and sent to the chips beside the step that runs (prefetch, assumed to
hide completely what it can), so that a step takes the longer of its own time and of its tokens'
delivery:

    step = max(step, global batch tokens / delivered tokens per second)
"""

from __future__ import annotations

import numpy as np

from dse.space.candidates import Floats


def starved_s(step_s: Floats, batch_tokens: Floats, tokens_per_s: Floats) -> Floats:
    """(n,) seconds of each step in which the chips wait for their input; infinite `tokens_per_s`
    is a pipeline that always keeps up."""
    return np.maximum(batch_tokens / tokens_per_s - step_s, 0.0)
