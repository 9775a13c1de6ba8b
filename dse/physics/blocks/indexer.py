"""The indexer of sparse attention (DeepSeek-V3.2-Exp technical report, section 2.1).

Small heads score every cached token for every new one; attention then reads the `index_topk` best.
Keys of the indexer are a cache of their own, one fp8 vector a token; its projections and keys are
whole on every tensor-parallel rank. Layers that reuse the choice of another have no heads.
No kernel of it is measured: scores take the law of latent decode attention (many heads on one key)
while decoding, and that of a GEMM over a prompt, both in fp8.
"""

from __future__ import annotations

from dse.physics.operators import Operators, Role
from dse.space.candidates import Block, Floats

KEY_BYTES = 1.0
SCORE_BYTES = 8.0  # a 32-bit score a pair, written and read again to choose from


def columns(block: Block) -> Floats:
    """(n,) columns of the projections from the hidden state: keys and weights of the heads."""
    return block["index_head_dim"] + block["index_heads"]


def query_columns(block: Block) -> Floats:
    """(n,) columns of the projection of the queries."""
    return block["index_heads"] * block["index_head_dim"]


def key_bytes_per_token(block: Block) -> Floats:
    """(n,) bytes that one token adds to the indexer's cache, one layer."""
    return block["index_head_dim"] * KEY_BYTES


def weight_elements(block: Block, hidden: Floats, query_rows: Floats) -> Floats:
    """(n,) elements, whole on every rank; `query_rows` feed the query projection."""
    return hidden * columns(block) + query_rows * query_columns(block)


def add(step: Operators, block: Block, query_rows: Floats) -> None:
    """The indexer of one step: keys of the new tokens, then scores."""
    count = block.count * (block["index_heads"] > 0.0)
    width = columns(block)
    step.gemm(Role.SIDE, "indexer keys", count, "attention", step.rows, width, step.hidden_size)
    add_scores(step, block, query_rows, 1.0)


def add_scores(step: Operators, block: Block, query_rows: Floats, ratio: Floats | float) -> None:
    """Scores of new tokens against all before; one key stands for `ratio` tokens."""
    count = block.count * (block["index_heads"] > 0.0)
    queries, per_key = query_columns(block), key_bytes_per_token(block)
    step.gemm(
        Role.PROJECTION, "indexer queries", count, "attention", step.rows, queries, query_rows
    )
    pairs = step.prefill_rows * step.prompt_tokens / 2.0 / ratio
    step.over_prompt(
        Role.INDEXER,
        "indexer over the prompt",
        count,
        step.deployed.law("gemm", "fp8"),
        2.0 * pairs * queries,
        pairs * SCORE_BYTES + step.prefill_rows / ratio * per_key,
    )
    pairs = step.decode_rows * step.context / ratio
    keys = pairs * per_key
    step.over_cache(
        Role.INDEXER,
        "indexer over the cache",
        count,
        step.deployed.law("mla_decode_attention", "fp8"),
        2.0 * pairs * step.verified * queries,
        pairs * step.verified * SCORE_BYTES + keys,
        keys,
    )
