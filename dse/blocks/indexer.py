"""The indexer of sparse attention (DeepSeek-V3.2-Exp technical report, section 2.1).

Small heads score every cached token for every new one; attention then reads the `index_topk` best.
Keys of the indexer are a cache of their own, one fp8 vector a token; its projections and keys are
whole on every tensor-parallel rank. Layers that reuse the choice of another have no heads.
No kernel of it is measured: scores take the law of latent decode attention (many heads on one key)
while decoding, and that of a GEMM over a prompt, both in fp8.
"""

from __future__ import annotations

from dse.blocks.operators import Block, Floats, Mixing, Operators, Product, Role

SIZES = ("index_heads", "index_head_dim", "index_topk")
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
    label, hidden = "indexer keys", step.hidden_size
    step.gemm(Product(Role.SIDE, label, count, "attention", step.rows, width, hidden))
    add_scores(step, block, query_rows, 1.0)


def add_scores(step: Operators, block: Block, query_rows: Floats, ratio: Floats | float) -> None:
    """Scores of new tokens against all before; one key stands for `ratio` tokens."""
    count = block.count * (block["index_heads"] > 0.0)
    queries, per_key = query_columns(block), key_bytes_per_token(block)
    label, rows = "indexer queries", step.rows
    step.gemm(Product(Role.PROJECTION, label, count, "attention", rows, queries, query_rows))
    pairs = step.prefill_rows * step.prompt_tokens / 2.0 / ratio
    bytes_ = pairs * SCORE_BYTES + step.prefill_rows / ratio * per_key
    flops, label = 2.0 * pairs * queries, "indexer over the prompt"
    step.over_prompt(Mixing(Role.INDEXER, label, count, "gemm", "fp8", flops, bytes_))
    pairs = step.decode_rows * step.context / ratio
    keys = pairs * per_key
    flops = 2.0 * pairs * step.verified * queries
    bytes_ = pairs * step.verified * SCORE_BYTES + keys
    law, label = "mla_decode_attention", "indexer over the cache"
    step.over_cache(Mixing(Role.INDEXER, label, count, law, "fp8", flops, bytes_, keys))
