"""The Hugging Face families that `dse.schema.huggingface` reads.

Each family is data: the keys its configuration class has, with that class's own default for the
keys a file may leave out (Hugging Face transformers, `configuration_<family>.py`, 2026-06), and
two readers, one for the attention layers and one for the feed-forward layers.
"""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families import attention, feed_forward
from dse.schema.families.dense import DENSE_FAMILIES
from dse.schema.families.experts import EXPERT_FAMILIES
from dse.schema.families.family import COMMON, DENSE, EXPERTS, PREDICTION, Family
from dse.schema.families.reader import HEADS, REQUIRED
from dse.schema.families.states import STATE_FAMILIES

__all__ = ["FAMILIES", "Family"]

_QWEN_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_QWEN_EXPERTS = {**EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": None}
_DEEPSEEK = {
    **COMMON,
    "num_key_value_heads": HEADS,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "attention_bias": False,
    "intermediate_size": REQUIRED,
    "n_routed_experts": REQUIRED,
    "num_experts_per_tok": REQUIRED,
    "moe_intermediate_size": REQUIRED,
    "moe_layer_freq": 1,
    "mlp_bias": None,
    **PREDICTION,
}
_ROUTED = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}

_FIRST_FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        attention.full,
        feed_forward.dense,
        {**DENSE, "num_key_value_heads": HEADS, "attention_bias": False, "mlp_bias": None},
    ),
    "mistral": Family(
        "MistralForCausalLM",
        attention.windowed,
        feed_forward.dense,
        {**DENSE, "num_key_value_heads": 8, "sliding_window": 4096},
        others=("Mistral3ForConditionalGeneration",),
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        attention.qwen2,
        feed_forward.dense,
        {**DENSE, **_QWEN_WINDOW, "num_key_value_heads": 32},
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        attention.qwen3,
        feed_forward.dense,
        {
            **DENSE,
            **_QWEN_WINDOW,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "attention_bias": False,
        },
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        attention.windowed,
        feed_forward.mixtral,
        {
            **DENSE,
            "num_key_value_heads": 8,
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        {"num_experts": "num_local_experts"},
    ),
    "qwen2_moe": Family(
        "Qwen2MoeForCausalLM",
        attention.qwen2_moe,
        feed_forward.qwen2_moe,
        {
            **DENSE,
            **_QWEN_WINDOW,
            **_QWEN_EXPERTS,
            "num_key_value_heads": 16,
            "qkv_bias": True,
            "shared_expert_intermediate_size": REQUIRED,
        },
        {"num_local_experts": "num_experts"},
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        attention.qwen3_moe,
        feed_forward.qwen3_moe,
        {
            **DENSE,
            **_QWEN_WINDOW,
            **_QWEN_EXPERTS,
            "num_key_value_heads": 4,
            "attention_bias": False,
        },
        {"num_local_experts": "num_experts"},
    ),
    "deepseek_v2": Family(
        "DeepseekV2ForCausalLM",
        attention.latent,
        feed_forward.deepseek,
        {**_DEEPSEEK, "n_shared_experts": 2, "first_k_dense_replace": 0},
        _ROUTED,
    ),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM",
        attention.latent,
        feed_forward.deepseek,
        {**_DEEPSEEK, "n_shared_experts": 1, "first_k_dense_replace": 3},
        _ROUTED,
        ("KimiK25ForConditionalGeneration", "KimiK2ForCausalLM"),
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        attention.gpt_oss,
        feed_forward.mixtral,
        {
            **DENSE,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            "attention_bias": True,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
        },
        {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"},
    ),
}

FAMILIES: Mapping[str, Family] = {
    **_FIRST_FAMILIES,
    **DENSE_FAMILIES,
    **EXPERT_FAMILIES,
    **STATE_FAMILIES,
}
