"""What a space searches that no quality law sees: said wherever its predicted losses are shown.

The published comparisons are quoted, never turned into a coefficient: models of other sizes, data
and benchmarks. A space bounds such a choice by a limit on a metric, or by the values of the axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from dse.record import record
from dse.schema.axes import Axis


@record
class Unseen:
    """`axes` that say one thing of which no law knows, what is published on it, and a limit."""

    axes: tuple[str, ...]
    what: str
    published: str
    limit: str


UNSEEN = (
    Unseen(
        ("num_key_value_heads",),
        "query heads that share a KV head",
        "DeepSeek-V2 (arXiv 2405.04434, table 8), 7B dense on 1.33T tokens: MMLU 45.2 with MHA, "
        "41.2 with GQA of 8 groups, 37.9 with MQA.",
        "query_heads_per_kv_head <= 16",
    ),
    Unseen(
        (
            "attention",
            "q_lora_rank",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "v_head_dim",
        ),
        "latent attention and its ranks",
        "DeepSeek-V2 (arXiv 2405.04434, table 9), mixtures of experts of 16B and 250B: MMLU 50.0 "
        "and 59.0 with MLA, 48.7 and 57.5 with MHA.",
        "kv_bytes_per_token <= 100 kB",
    ),
    Unseen(
        (
            "sliding_window",
            "sliding_window_pattern",
            "attention_chunk_size",
            "no_rope_layer_interval",
        ),
        "windows and chunks",
        "Gemma 3 (arXiv 2503.19786) has 5 windowed layers of 1,024 tokens a full one and claims "
        "little change in perplexity; gpt-oss has 1 of 128 tokens, Llama 4 has 3 of 8,192.",
        "full_attention_share >= 16 %",
    ),
    Unseen(
        ("linear_attention", "full_attention_interval"),
        "layers of linear attention or state space",
        "Qwen3-Next and Kimi Linear have 3 a layer of attention, Jamba 7.",
        "full_attention_share >= 25 %",
    ),
    Unseen(
        ("index_topk", "index_n_heads", "index_head_dim"),
        "sparse attention",
        "DeepSeek-V3.2-Exp (its model card, claimed): MMLU-Pro 85.0 with an indexer of 2,048 "
        "tokens and 85.0 before it was added, Humanity's Last Exam 19.8 and 21.7.",
        "index_topk: [2048] in place of smaller values",
    ),
    Unseen(
        ("attn_output_gate", "attention_bias"),
        "gates and biases of attention",
        "Qwen3-Next has the first, gpt-oss the second.",
        "one value for the axis",
    ),
    Unseen(
        ("num_nextn_predict_layers",),
        "multi-token prediction, and how often its drafts are accepted",
        "DeepSeek-V3 (arXiv 2412.19437, section 5.4.3, claimed): 85% to 90% of second tokens.",
        "acceptance in the workload, which is yours to measure",
    ),
)


def unseen(axes: Sequence[Axis]) -> tuple[str, ...]:
    """A sentence for everything that the axes search and no law sees."""
    searched = {axis.name for axis in axes if len(axis.values) > 1}
    found = []
    for one in UNSEEN:
        names = [name for name in one.axes if name in searched]
        if names:
            found.append(
                f"Searched here, and no law sees it: {one.what} ({', '.join(names)}). Losses "
                f"differ by parameters alone. Published: {one.published} To bound it: {one.limit}."
            )
    return tuple(found)
