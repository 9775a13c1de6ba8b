"""Where published models lie: bands outside of which a shape is unusual, not wrong.

The bands are those of 136 published models. Their width per layer grows with the active parameters
without embeddings N as 3.81 N^0.144 (docs/quality.md), whatever law of quality is in use.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dse.physics.parameters import parameters
from dse.rules.kinds import Finding, Rule
from dse.space.candidates import Block, CandidateBatch, Floats

PUBLISHED = "shapes of 136 published models, 2026-11"
WIDTH_PER_LAYER, WIDTH_PER_LAYER_EXPONENT = 3.81, 0.144
HEAD_DIMS = (64.0, 128.0, 192.0, 256.0)


def _rule(name: str, says: str, source: str = PUBLISHED) -> Rule:
    return Rule(name, "note", says, source, "derived")


DEPTH = _rule("depth", "width per layer is 0.4 to 2.5 times what is usual at this size")
RATIO = _rule(
    "feed_forward_ratio",
    "feed-forward has 0.5 to 10.7 times the parameters of attention",
    f"{PUBLISHED} (up to 10.7); lower end of the range of Bian et al. 2025",
)
HEAD_DIM = _rule("head_dimension", "heads are 64, 128, 192 (latent attention) or 256 wide")
HEAD_WIDTH = _rule("head_width", "all heads together are 0.67 to 2 times the hidden size")
GQA = _rule("gqa_ratio", "at most 16 query heads share a KV head (90% of models: 12)")
ACTIVATION = _rule("activation_ratio", "0.8% to 30% of the experts work on a token")
GRANULARITY = _rule("granularity", "2 x hidden size / expert width is 1 to 16")


def _outside(
    rule: Rule, value: Floats, low: float, high: float, used: np.ndarray, name: str
) -> Finding:
    return Finding(
        rule,
        used & ((value < low) | (value > high)),
        lambda i: f"{name} {value[i]:.3g}, outside {low:g} to {high:g}",
    )


def bands(batch: CandidateBatch) -> Iterator[Finding]:
    """Every band on n shapes."""
    count, always = parameters(batch), np.ones(len(batch), dtype=bool)
    usual = WIDTH_PER_LAYER * count.active_non_embedding**WIDTH_PER_LAYER_EXPONENT
    width = batch.hidden_size / batch.layers / usual
    yield _outside(DEPTH, width, 0.4, 2.5, always, "width per layer over the usual one:")
    attention = np.maximum(count.attention, 1.0)
    dense = count.experts == 0.0
    ratio = count.mlp / attention
    yield _outside(RATIO, ratio, 0.5, 10.7, dense, "feed-forward over attention parameters:")
    for block in batch.blocks:
        used = block.count > 0.0
        if used.any():
            yield from _of_block(batch, block, used)


def _of_block(batch: CandidateBatch, block: Block, used: np.ndarray) -> Iterator[Finding]:
    if block.kind == "gqa":
        size = block["head_dim"]
        odd = used.copy()
        for usual in HEAD_DIMS:
            odd = odd & (size != usual)
        yield Finding(HEAD_DIM, odd, lambda i: f"head dimension {size[i]:g}")
        per = block["heads"] / np.maximum(block["kv_heads"], 1.0)
        yield _outside(GQA, per, 1.0, 16.0, used, "query heads per KV head:")
        wide = block["heads"] * size / batch.hidden_size
        yield _outside(HEAD_WIDTH, wide, 0.66, 2.0, used, "heads over hidden size:")
    elif block.kind == "moe":
        experts = np.maximum(block["experts"], 1.0)
        expert = np.maximum(block["expert_intermediate_size"], 1.0)
        shared = block["shared_intermediate_size"] / expert
        active = (block["experts_per_token"] + shared) / (experts + shared)
        yield _outside(ACTIVATION, active, 0.008, 0.3, used, "activation ratio")
        fine = 2.0 * batch.hidden_size / expert
        yield _outside(GRANULARITY, fine, 1.0, 16.0, used, "granularity")
