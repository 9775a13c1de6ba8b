"""Grouped-query attention (Ainslie et al. 2023), multi-head and multi-query included, with an
optional sliding window. KV heads are replicated when tensor parallelism exceeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.candidates import Block, Floats
from dse.perf.deployed import ACTIVATION_BYTES, Deployed
from dse.perf.operators.attention import paged, seen_by_decode, seen_by_prompt

if TYPE_CHECKING:
    from dse.perf.step import Step


def _heads(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(query heads, KV heads) on one chip."""
    tp = deployed.tensor_parallel
    return np.ceil(block["heads"] / tp), np.ceil(block["kv_heads"] / tp)


def _widths(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(columns of the fused query-key-value projection, rows of the output projection)."""
    heads, kv_heads = _heads(deployed, block)
    kv_width = block["head_dim"] + block["v_head_dim"]
    return heads * block["head_dim"] + kv_heads * kv_width, heads * block["v_head_dim"]


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    qkv, out = _widths(deployed, block)
    return {"attention": deployed.batch.hidden_size * (qkv + out)}


def _kv_bytes_per_token(deployed: Deployed, block: Block) -> Floats:
    _, kv_heads = _heads(deployed, block)
    return kv_heads * (block["head_dim"] + block["v_head_dim"]) * deployed.kv_bytes


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    return _kv_bytes_per_token(deployed, block) * paged(seen_by_decode(tokens, block["window"]))


def add(step: Step, block: Block) -> None:
    deployed, count, hidden = step.deployed, block.count, step.hidden_size
    heads, kv_heads = _heads(deployed, block)
    qkv, out = _widths(deployed, block)
    pair = block["head_dim"] + block["v_head_dim"]

    step.elementwise("attention norm", count, 3.0 * step.rows * hidden)
    step.gemm("query-key-value projection", count, "attention", step.rows, qkv, hidden)
    step.elementwise("rotary embedding, cache write", count, 2.0 * step.rows * qkv)

    seen = seen_by_prompt(step.prompt_tokens, block["window"])
    step.ledger.operator(
        "attention over the prompt",
        count,
        deployed.law("prefill_attention", "kv"),
        2.0 * step.prefill_rows * seen * heads * pair,
        step.prefill_rows * (heads + kv_heads) * pair * ACTIVATION_BYTES,
        0.0,
        step.has_prefill,
    )
    read = step.decode_rows * seen_by_decode(step.context, block["window"])
    cache = read * _kv_bytes_per_token(deployed, block)
    step.ledger.operator(
        "attention over the KV cache",
        count,
        deployed.law("decode_attention", "kv"),
        2.0 * read * heads * pair,
        cache,
        cache,
        step.has_decode,
    )
    step.gemm("attention output projection", count, "attention", step.rows, hidden, out)
    step.tensor_all_reduce("attention all-reduce", count)
