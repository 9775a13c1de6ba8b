"""Dense families beyond Llama, Mistral and Qwen: their keys and defaults."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families import attention, feed_forward
from dse.schema.families.attention import every, grouped
from dse.schema.families.family import COMMON, DENSE, Family
from dse.schema.families.reader import HEADS, REQUIRED, ConfigReader
from dse.schema.model import BlockSpec

_GROUPED = {**DENSE, "num_key_value_heads": HEADS}
_BIAS = {"attention_bias": False}


def learned_positions(reader: ConfigReader) -> list[BlockSpec]:
    return [BlockSpec("positions", 1, {"rows": reader.integer("max_position_embeddings")})]


def opt_positions(reader: ConfigReader) -> list[BlockSpec]:
    """OPT: two rows more than positions, for padding."""
    rows = reader.integer("max_position_embeddings") + 2
    return [BlockSpec("positions", 1, {"rows": rows})]


DENSE_FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        "GPT2LMHeadModel",
        grouped(bias=True),
        feed_forward.plain("n_inner"),
        {**COMMON, "tie_word_embeddings": True, "n_inner": None, "max_position_embeddings": 1024},
        {
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
        },
        tables=learned_positions,
    ),
    "opt": Family(
        "OPTForCausalLM",
        grouped(bias="enable_bias"),
        feed_forward.plain("ffn_dim"),
        {
            **COMMON,
            "tie_word_embeddings": True,
            "enable_bias": True,
            "ffn_dim": REQUIRED,
            "max_position_embeddings": 2048,
        },
        tables=opt_positions,
    ),
    "gpt_neox": Family(
        "GPTNeoXForCausalLM",
        grouped(bias="attention_bias"),
        feed_forward.plain(),
        {**COMMON, "attention_bias": True, "intermediate_size": REQUIRED},
    ),
    "bloom": Family(
        "BloomForCausalLM",
        grouped(bias=True),
        feed_forward.plain(),
        {**COMMON, "tie_word_embeddings": True},
        {
            "n_embed": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
        },
    ),
    "falcon": Family(
        "FalconForCausalLM",
        attention.falcon,
        feed_forward.plain("ffn_hidden_size"),
        {
            **COMMON,
            "tie_word_embeddings": True,
            "num_kv_heads": None,
            "multi_query": True,
            "new_decoder_architecture": False,
            "bias": False,
            "ffn_hidden_size": None,
        },
        {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
        ("RWForCausalLM",),
    ),
    "mpt": Family(
        "MPTForCausalLM",
        grouped(),
        feed_forward.mpt,
        {
            **COMMON,
            "tie_word_embeddings": True,
            "expansion_ratio": 4,
            "num_key_value_heads": HEADS,
        },
        {
            "d_model": "hidden_size",
            "n_layers": "num_hidden_layers",
            "n_heads": "num_attention_heads",
            "attn_config.kv_n_heads": "num_key_value_heads",
        },
        ("MptForCausalLM",),
    ),
    "phi": Family(
        "PhiForCausalLM",
        grouped(bias=True),
        feed_forward.plain(),
        {**COMMON, "intermediate_size": REQUIRED, "num_key_value_heads": HEADS},
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        attention.windowed,
        feed_forward.dense,
        {**_GROUPED, **_BIAS, "sliding_window": None},
    ),
    "gemma": Family(
        "GemmaForCausalLM",
        attention.full,
        feed_forward.dense,
        {**_GROUPED, **_BIAS, "head_dim": 256, "tie_word_embeddings": True},
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        grouped(every(2), bias="attention_bias"),
        feed_forward.dense,
        {
            **DENSE,
            **_BIAS,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        grouped(every("sliding_window_pattern"), bias="attention_bias"),
        feed_forward.dense,
        {
            **DENSE,
            **_BIAS,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        },
        {"_sliding_window_pattern": "sliding_window_pattern"},
        ("Gemma3ForConditionalGeneration",),
    ),
    "gemma4": Family(
        "Gemma4ForConditionalGeneration",
        attention.gemma4,
        feed_forward.gemma4,
        {
            **DENSE,
            **_BIAS,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "num_global_key_value_heads": None,
            "attention_k_eq_v": False,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": None,
            "sliding_window": 512,
            "tie_word_embeddings": True,
            "use_double_wide_mlp": False,
            "enable_moe_block": False,
            "num_experts": None,
            "top_k_experts": None,
            "moe_intermediate_size": None,
        },
        others=("Gemma4ForCausalLM",),
    ),
    "cohere": Family(
        "CohereForCausalLM",
        attention.full,
        feed_forward.dense,
        {**_GROUPED, **_BIAS, "tie_word_embeddings": True},
    ),
    "cohere2": Family(
        "Cohere2ForCausalLM",
        grouped(every("sliding_window_pattern"), bias="attention_bias"),
        feed_forward.dense,
        {
            **_GROUPED,
            **_BIAS,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
            "tie_word_embeddings": True,
        },
        {"layer_switch": "sliding_window_pattern"},
    ),
    "granite": Family(
        "GraniteForCausalLM",
        attention.full,
        feed_forward.dense,
        {**_GROUPED, **_BIAS, "mlp_bias": None},
    ),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        attention.full,
        feed_forward.dense,
        {
            **DENSE,
            **_BIAS,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "mlp_bias": None,
            "use_sliding_window": None,
            "sliding_window": None,
        },
    ),
    "olmo": Family("OlmoForCausalLM", attention.full, feed_forward.dense, {**_GROUPED, **_BIAS}),
    "olmo2": Family("Olmo2ForCausalLM", attention.full, feed_forward.dense, {**_GROUPED, **_BIAS}),
    "olmo3": Family(
        "Olmo3ForCausalLM",
        grouped(every(4), bias="attention_bias"),
        feed_forward.dense,
        {**_GROUPED, **_BIAS, "sliding_window": 4096},
    ),
    "glm": Family(
        "GlmForCausalLM",
        attention.full,
        feed_forward.dense,
        {**DENSE, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    ),
    "chatglm": Family(
        "ChatGLMModel",
        attention.full,
        feed_forward.dense,
        {**_GROUPED, **_BIAS},
        {
            "num_layers": "num_hidden_layers",
            "ffn_hidden_size": "intermediate_size",
            "multi_query_group_num": "num_key_value_heads",
            "kv_channels": "head_dim",
            "padded_vocab_size": "vocab_size",
            "add_qkv_bias": "attention_bias",
        },
        ("ChatGLMForConditionalGeneration",),
    ),
    "nemotron": Family(
        "NemotronForCausalLM",
        attention.full,
        feed_forward.plain(),
        {**_GROUPED, **_BIAS, "mlp_bias": None},
    ),
    "mimo": Family(
        "MiMoForCausalLM",
        grouped(bias="attention_bias"),
        feed_forward.dense,
        {
            **_GROUPED,
            "attention_bias": True,
            "num_nextn_predict_layers": None,
            "use_sliding_window": None,
            "sliding_window": None,
            "max_window_layers": None,
        },
    ),
}
