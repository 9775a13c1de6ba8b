"""What the attention kinds share: the tokens that one token sees, and paging."""

from __future__ import annotations

import numpy as np

from dse.blocks.operators import Block, Floats

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


def seen_by_prompt_in_chunks(prompt_tokens: Floats, chunk: Floats) -> Floats:
    """(n,) mean number of tokens that a prompt token sees in its own chunk; chunk 0: all before."""
    length = np.maximum(np.where(chunk > 0.0, chunk, prompt_tokens), 1.0)
    whole = np.floor(prompt_tokens / length)
    rest = prompt_tokens - whole * length
    return (whole * length**2 + rest**2) / (2.0 * np.maximum(prompt_tokens, 1.0))


def decode_reads(block: Block, context: Floats) -> Floats:
    """(n,) cached tokens that one new token reads, through a window, a chunk or an indexer. Where
    it sees its own chunk alone (Llama 4): all of the first chunk, later half a chunk, the mean over
    its places in it."""
    seen = seen_by_decode(context, block["window"])
    if "chunk" in block.sizes:
        chunk = block["chunk"]
        inside = np.where(context > chunk, chunk / 2.0, context)
        seen = np.where(chunk > 0.0, inside, seen)
    if "index_topk" in block.sizes:
        seen = seen_by_decode(seen, block["index_topk"])
    return seen


def prompt_reads(block: Block, prompt_tokens: Floats) -> Floats:
    """(n,) mean number of tokens that a prompt token sees, as `decode_reads`."""
    seen = seen_by_prompt(prompt_tokens, block["window"])
    if "chunk" in block.sizes:
        chunked = seen_by_prompt_in_chunks(prompt_tokens, block["chunk"])
        seen = np.where(block["chunk"] > 0.0, chunked, seen)
    if "index_topk" in block.sizes:
        selected = seen_by_prompt(prompt_tokens, block["index_topk"])
        seen = np.where(block["index_topk"] > 0.0, selected, seen)
    if "bidirectional" in block.sizes:
        seen = seen * (1.0 + block["bidirectional"])  # those after it as well
    return seen


def cached(block: Block, tokens: Floats) -> Floats:
    """(n,) tokens that a request keeps in the cache at a length of `tokens`: no more than the
    window or the chunk. An indexer chooses from all, so all stay."""
    kept = seen_by_decode(tokens, block["window"])
    if "chunk" in block.sizes:
        kept = np.where(block["chunk"] > 0.0, np.minimum(tokens, block["chunk"]), kept)
    return kept


def paged(tokens: Floats) -> Floats:
    """(n,) tokens rounded up to whole cache pages."""
    return np.ceil(tokens / PAGE_TOKENS) * PAGE_TOKENS
