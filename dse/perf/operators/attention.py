"""What the attention kinds share: context seen through a window, and paging."""

from __future__ import annotations

import numpy as np

from dse.candidates import Floats

PAGE_TOKENS = 16.0  # KV cache blocks of 16 tokens (vLLM's default block size)


def seen_by_decode(context: Floats, window: Floats) -> Floats:
    """(n,) cached tokens that one new token reads; window 0 is full attention."""
    return np.where(window > 0.0, np.minimum(context, window), context)


def seen_by_prompt(prompt_tokens: Floats, window: Floats) -> Floats:
    """(n,) mean number of tokens that a prompt token sees, causal: the mean of min(i, window) over
    i in [0, prompt]."""
    half = prompt_tokens / 2.0
    inside = window * (1.0 - window / (2.0 * np.maximum(prompt_tokens, 1.0)))
    return np.where((window > 0.0) & (window < prompt_tokens), inside, half)


def paged(tokens: Floats) -> Floats:
    """(n,) tokens rounded up to whole cache pages."""
    return np.ceil(tokens / PAGE_TOKENS) * PAGE_TOKENS
