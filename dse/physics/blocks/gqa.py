"""Grouped-query attention (Ainslie et al. 2023), multi-head and multi-query included, with an
optional sliding window. KV heads are replicated when tensor parallelism exceeds them.

Optional sizes: `chunk` (a token sees its own chunk alone), `output_gate` (as wide as the heads'
output, from the hidden state), `values_from_keys` (no projection of their own), `reuses_kv` (the
keys and values of an earlier layer), `relative_positions` (one more projection, of positions,
computed once), and an indexer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks import indexer
from dse.physics.blocks.attention import cached, decode_reads, paged, prompt_reads
from dse.physics.deployed import ACTIVATION_BYTES, Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


def _heads(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(query heads, KV heads) on one chip."""
    tp = deployed.tensor_parallel
    return np.ceil(block["heads"] / tp), np.ceil(block["kv_heads"] / tp)


def _widths(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(columns of the fused query-key-value projection, rows of the output projection)."""
    heads, kv_heads = _heads(deployed, block)
    qkv = heads * block["head_dim"] + kv_heads * projected_width(block)
    if "output_gate" in block.sizes:
        qkv = qkv + block["output_gate"] * heads * block["v_head_dim"]
    return qkv, heads * block["v_head_dim"]


def projected_width(block: Block) -> Floats:
    """(n,) columns that a KV head takes of the projection from the hidden state."""
    values = block["v_head_dim"]
    if "values_from_keys" in block.sizes:
        values = values * (1.0 - block["values_from_keys"])
    width = block["head_dim"] + values
    return width * (1.0 - block["reuses_kv"]) if "reuses_kv" in block.sizes else width


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    hidden = deployed.batch.hidden_size
    qkv, out = _widths(deployed, block)
    elements = hidden * (qkv + out)
    if "relative_positions" in block.sizes:
        heads, _ = _heads(deployed, block)
        elements = elements + block["relative_positions"] * hidden * heads * block["head_dim"]
    if "index_topk" in block.sizes:
        elements = elements + indexer.weight_elements(deployed, block, hidden)
    return {"attention": elements}


def _kv_bytes_per_token(deployed: Deployed, block: Block) -> Floats:
    _, kv_heads = _heads(deployed, block)
    return kv_heads * (block["head_dim"] + block["v_head_dim"]) * deployed.kv_bytes


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    per_token = _kv_bytes_per_token(deployed, block)
    if "reuses_kv" in block.sizes:
        per_token = per_token * (1.0 - block["reuses_kv"])
    bytes_ = per_token * paged(cached(block, tokens))
    if "index_topk" in block.sizes:
        bytes_ = bytes_ + paged(tokens) * indexer.key_bytes_per_token(block)
    return bytes_


def add(step: Step, block: Block) -> None:
    deployed, count, hidden = step.deployed, block.count, step.hidden_size
    heads, kv_heads = _heads(deployed, block)
    qkv, out = _widths(deployed, block)
    pair = block["head_dim"] + block["v_head_dim"]

    step.elementwise("attention norm", count, 3.0 * step.rows * hidden)
    step.gemm("query-key-value projection", count, "attention", step.rows, qkv, hidden)
    step.elementwise("rotary embedding, cache write", count, 2.0 * step.rows * qkv)

    if "index_topk" in block.sizes:
        indexer.add(step, block, hidden)
    seen = prompt_reads(block, step.prompt_tokens)
    step.ledger.operator(
        "attention over the prompt",
        count,
        deployed.law("prefill_attention", "kv"),
        2.0 * step.prefill_rows * seen * heads * pair,
        step.prefill_rows * (heads + kv_heads) * pair * ACTIVATION_BYTES,
        0.0,
        step.has_prefill,
    )
    read = step.decode_rows * decode_reads(block, step.context)
    cache = read * _kv_bytes_per_token(deployed, block)
    step.ledger.operator(
        "attention over the KV cache",
        count,
        deployed.law("decode_attention", "kv"),
        2.0 * read * step.verified * heads * pair,
        cache,
        cache,
        step.has_decode,
        held="cache",
    )
    step.gemm("attention output projection", count, "attention", step.rows, hidden, out)
    step.tensor_all_reduce("attention all-reduce", count)
