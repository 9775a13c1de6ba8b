"""The table of dense families: one row a family.

Defaults are those of Hugging Face transformers (`configuration_<family>.py`, 2026-06).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dse.schema.families import beyond, patterns
from dse.schema.families.engine import MTP, Export, Family, Section, Stack
from dse.schema.families.fields import Const, Own, Times
from dse.schema.families.maps import FOUR_TIMES, dense, grouped, heads, plain, windowed
from dse.schema.families.reader import ConfigReader
from dse.schema.families.shape import Cannot, Config, Shape, Sizes

_SILU = {"hidden_act": "silu"}
_TIED = {"tie_word_embeddings": True}
_BIASED = (beyond.layer_norms, beyond.dense_biases)
_LLAMA_HEADS = heads("attention_bias", biased=(0,))
_LLAMA = (grouped(heads("attention_bias")), dense())
_LLAMA_BIAS = (grouped(heads("attention_bias")), dense(bias=True))
# Heads of the years before grouped-query attention.
_MULTI_HEAD = heads(True, key_values=None, head_dim=None)


def _positions(more: int = 0) -> Stack:
    """A table of learned positions with `more` rows, for padding."""

    def write(value: int, sizes: Sizes, shape: Shape) -> Config:
        if value <= more:
            raise Cannot("its table of positions has two rows more than positions")
        return {"max_position_embeddings": value - more}

    rows = Own(
        {"max_position_embeddings": 2048 if more else 1024},
        lambda reader, sizes: reader.integer("max_position_embeddings") + more,
        write,
    )
    one = replace(patterns.all_of("table"), read=lambda reader: ["table"])
    return Stack(one, {"table": Section("positions", {"rows": rows})})


def _falcon_heads(reader: ConfigReader, sizes: Sizes) -> int:
    """One KV head (multi_query), unless the newer decoder names a number of them."""
    if reader.boolean("new_decoder_architecture"):
        return reader.optional_integer("num_kv_heads") or sizes["heads"]
    return 1 if reader.boolean("multi_query") else sizes["heads"]


def _falcon_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value in (1, sizes["heads"]):
        return {"new_decoder_architecture": False, "multi_query": value == 1}
    return {"new_decoder_architecture": True, "num_kv_heads": value}


_FALCON_KEYS = {"num_kv_heads": None, "multi_query": True, "new_decoder_architecture": False}
_GPT_NAMES = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
MPT_NAMES = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "attn_config.kv_n_heads": "num_key_value_heads",
}

DENSE_FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        (grouped(_LLAMA_HEADS), dense(bias=True)),
        export=Export(keys={"mlp_bias": False, **_SILU}),
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        (windowed(patterns.LAST_SLIDE, heads(True)), dense()),
        {"num_key_value_heads": 32},
        export=Export(keys=_SILU),
    ),
    "mistral": Family(
        "MistralForCausalLM",
        (windowed(patterns.ALL_WINDOWED, heads()), dense()),
        {"num_key_value_heads": 8, "sliding_window": 4096},
        others=("Mistral3ForConditionalGeneration",),
        model_types=("mistral3",),
        export=Export(keys=_SILU),
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        (windowed(patterns.LAST_SLIDE, heads("attention_bias")), dense()),
        {"num_key_value_heads": 32, "head_dim": 128},
        export=Export((beyond.head_norms, beyond.output_bias), _SILU),
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        (
            windowed(
                patterns.EVERY_NAMED, heads("attention_bias", also=("query_pre_attn_scalar",))
            ),
            dense(),
        ),
        {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "sliding_window": 4096,
            **_TIED,
        },
        {"_sliding_window_pattern": "sliding_window_pattern"},
        ("Gemma3ForConditionalGeneration",),
        ("gemma3",),
        export=Export(
            (beyond.norms_after, beyond.head_norms, beyond.output_bias),
            {"hidden_activation": "gelu_pytorch_tanh"},
        ),
    ),
    "nemotron": Family(
        "NemotronForCausalLM",
        (grouped(heads("attention_bias", biased=(0,))), plain("intermediate_size", bias=True)),
        export=Export((beyond.layer_norms,), {"mlp_bias": False, "hidden_act": "relu2"}),
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        (grouped(_MULTI_HEAD), plain("n_inner", None), _positions()),
        _TIED,
        {**_GPT_NAMES, "n_embd": "hidden_size", "n_positions": "max_position_embeddings"},
        export=Export(
            _BIASED,
            {"activation_function": "gelu_new"},
            renamed={"max_position_embeddings": "n_positions"},
        ),
    ),
    "bert": Family(
        "BertModel",
        (
            grouped(_MULTI_HEAD, bidirectional=Const(1, "its attention looks both ways")),
            plain("intermediate_size"),
            _positions(),
        ),
        {"max_position_embeddings": 512, **_TIED},
        others=("BertForMaskedLM", "RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel"),
        model_types=("roberta", "xlm-roberta"),
        passed=("type_vocab_size", "classifier_dropout"),
    ),
    "opt": Family(
        "OPTForCausalLM",
        (
            grouped(
                heads("enable_bias", bias_default=True, biased=(1,), key_values=None, head_dim=None)
            ),
            plain("ffn_dim"),
            _positions(2),
        ),
        _TIED,
        export=Export(
            _BIASED, {"activation_function": "relu"}, hidden_keys=("word_embed_proj_dim",)
        ),
    ),
    "gpt_neox": Family(
        "GPTNeoXForCausalLM",
        (
            grouped(
                heads(
                    "attention_bias", bias_default=True, biased=(1,), key_values=None, head_dim=None
                )
            ),
            plain("intermediate_size"),
        ),
        export=Export(_BIASED, {"hidden_act": "gelu"}),
    ),
    "bloom": Family(
        "BloomForCausalLM",
        (grouped(_MULTI_HEAD), plain(FOUR_TIMES)),
        _TIED,
        {**_GPT_NAMES, "n_embed": "hidden_size"},
        export=Export((*_BIASED, beyond.embedding_norm), renamed={"num_attention_heads": "n_head"}),
    ),
    "falcon": Family(
        "FalconForCausalLM",
        (
            grouped(
                heads("bias", key_values=None, head_dim=None),
                kv_heads=Own(_FALCON_KEYS, _falcon_heads, _falcon_written),
            ),
            plain("ffn_hidden_size", None),
        ),
        _TIED,
        _GPT_NAMES,
        ("RWForCausalLM",),
        ("RefinedWeb", "RefinedWebModel"),
    ),
    "mpt": Family(
        "MPTForCausalLM",
        (
            grouped(heads(head_dim=None)),
            plain(Times("expansion_ratio", "hidden_size", "a multiple of the hidden size", 4)),
        ),
        _TIED,
        MPT_NAMES,
        ("MptForCausalLM",),
    ),
    "phi": Family(
        "PhiForCausalLM", (grouped(heads(True, head_dim=None)), plain("intermediate_size"))
    ),
    "phi3": Family(
        "Phi3ForCausalLM", (windowed(patterns.ALL_WINDOWED, heads("attention_bias")), dense())
    ),
    "gemma": Family("GemmaForCausalLM", _LLAMA, {"head_dim": 256, **_TIED}),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        (windowed(patterns.every(2), heads("attention_bias")), dense()),
        {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, **_TIED},
    ),
    "cohere": Family("CohereForCausalLM", _LLAMA, _TIED),
    "cohere2": Family(
        "Cohere2ForCausalLM",
        (windowed(patterns.every("sliding_window_pattern", 4), heads("attention_bias")), dense()),
        {"sliding_window": 4096, **_TIED},
        {"layer_switch": "sliding_window_pattern"},
    ),
    "granite": Family("GraniteForCausalLM", _LLAMA_BIAS),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        (windowed(patterns.BY_LIST, heads("attention_bias")), dense(bias=True)),
        {"num_key_value_heads": 4, **_TIED},
        passed=("use_sliding_window",),
    ),
    "olmo": Family("OlmoForCausalLM", _LLAMA),
    "olmo2": Family("Olmo2ForCausalLM", _LLAMA),
    "olmo3": Family(
        "Olmo3ForCausalLM",
        (windowed(patterns.every(4), heads("attention_bias")), dense()),
        {"sliding_window": 4096},
    ),
    "glm": Family(
        "GlmForCausalLM",
        _LLAMA,
        {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True},
    ),
    "chatglm": Family(
        "ChatGLMModel",
        _LLAMA,
        aliases={
            "num_layers": "num_hidden_layers",
            "ffn_hidden_size": "intermediate_size",
            "multi_query_group_num": "num_key_value_heads",
            "kv_channels": "head_dim",
            "padded_vocab_size": "vocab_size",
            "add_qkv_bias": "attention_bias",
        },
        others=("ChatGLMForConditionalGeneration",),
    ),
    "mimo": Family(
        "MiMoForCausalLM",
        (windowed(patterns.BY_LIST, heads("attention_bias")), dense()),
        {"attention_bias": True},
        passed=("use_sliding_window", "max_window_layers"),
        prediction=MTP,
    ),
}
