"""Model FLOPs of a token by the convention of whoever published them.

All count 6 for each parameter that a token meets (2 forward, 4 backward; the input table left out,
the output head counted) and add attention, whose every layer multiplies each token with `s` keys
and values of a sequence: 6 heads (d + d_v) s, or, where the convention knows the mask, of the keys
that it leaves in the mean: s / 2, or w - w^2 / 2 s in a window of w. LoRA's frozen weights have no
gradient: 4 a parameter, attention left out.

    causal   Megatron-Bridge (training/utils/flop_utils.py), MaxText: the mask counted
    full     NeMo of 2024 and early 2025 (performance formulas), llm-foundry: not counted
"""

from __future__ import annotations

import numpy as np

from dse.physics.parameters import parameters
from dse.space.candidates import CandidateBatch, Floats

CONVENTIONS = ("causal", "full")


def flops_per_token(
    candidates: CandidateBatch, sequence_length: Floats, full: Floats, lora: Floats
) -> Floats:
    """(n,) FLOPs; `full` and `lora` (n,) are 1 where the convention or the task is that."""
    active = parameters(candidates).active
    attention = np.zeros(len(candidates))
    for block in candidates.blocks:
        if block.kind == "gqa":
            head = block["head_dim"] + block["v_head_dim"]
        elif block.kind == "mla":
            head = block["qk_nope_head_dim"] + block["qk_rope_head_dim"] + block["v_head_dim"]
        else:
            continue
        window = sequence_length
        if "window" in block.sizes:
            named = np.where(block["window"] > 0.0, block["window"], sequence_length)
            window = np.minimum(named, sequence_length)
        seen = window - window * window / (2.0 * sequence_length)
        keys = np.where(full > 0.0, sequence_length, seen)
        attention = attention + 6.0 * block.count * block["heads"] * head * keys
    return np.where(lora > 0.0, 4.0 * active, 6.0 * active + attention)
