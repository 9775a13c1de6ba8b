"""The table of sparse families: one row a family.

Defaults are those of Hugging Face transformers (`configuration_<family>.py`, 2026-06).
"""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families import beyond, feed_forward, patterns
from dse.schema.families.dense import MPT_NAMES
from dse.schema.families.engine import NOTED, Export, Family, Prediction, Stack, noted
from dse.schema.families.fields import Const, Field, Flag, Own, Product, Same, Size
from dse.schema.families.maps import (
    LATENT_ATTENTION,
    MLP_BIAS,
    all_sparse,
    chunked,
    experts,
    full,
    grouped,
    heads,
    indexed,
    shared_count,
    shared_width,
    sliding,
    sparse,
    windowed,
)
from dse.schema.families.patterns import FULL, SLIDING, SPARSE
from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.families.shape import Cannot, Config, Shape, Sizes

_SILU = {"hidden_act": "silu"}
# Routing that has no size: the chosen experts' weights are scaled to a sum of 1, one group.
_NORMED = {"norm_topk_prob": True}
_ROUTED = {**_NORMED, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, **_SILU}
_LATENT_ROUTED = {**_ROUTED, "attention_bias": False}
_TO_LOCAL = {"num_experts": "num_local_experts"}
_TO_ROUTED = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
_TO_EXPERTS = {"num_local_experts": "num_experts"}
_M3 = "sparse_attention_config."
_SHARED = "it has shared experts, and the shape has none"
_QK_NORM = (
    "norms of query and key heads (use_qk_norm) are left out: GLM-4.5 has them, GLM-4.5-Air has not"
)
_NORMS = (beyond.head_norms, beyond.output_bias)
_BIASED = heads("attention_bias")
_LLAMA = grouped(_BIASED)


def _after_first(shared: object = None, needs: str = "") -> Stack:
    """Dense layers first; the names of GLM-4.5."""
    layer = experts("n_routed_experts", shared=shared_count(default=shared, needs=needs))
    return sparse(feed_forward.AFTER_FIRST, layer)


def _deepseek(shared: object = None) -> Stack:
    layer = experts("n_routed_experts", shared=shared_count(default=shared))
    return sparse(feed_forward.DEEPSEEK, layer, guards=(MLP_BIAS,))


def _local(count: object = REQUIRED, chosen: object = REQUIRED, bias: Field | None = None) -> Stack:
    """Experts in every layer, as wide as `intermediate_size`: Mixtral."""
    own = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    return all_sparse(experts(*own, defaults=(count, chosen, REQUIRED), bias=bias))


# Biases that no key says; shapes without them can be written (`beyond.gpt_oss` counts them).
_EXPERT_BIAS = Own({}, lambda reader, sizes: 1, lambda value, sizes, shape: {})


def _dense_width(reader: ConfigReader, sizes: Sizes) -> int:
    reader.collapse("intermediate_size")
    return reader.integer("intermediate_size")


def _hunyuan() -> tuple[Stack, Stack]:
    """Experts as wide as `moe_intermediate_size` or, where that is null, as the dense layers."""
    width = Size("moe_intermediate_size", None, null=_dense_width, uniform=True)
    shared = shared_count("num_shared_expert", 1)
    layer = experts(chosen="moe_topk", width=width, shared=shared, defaults=(REQUIRED, 1, REQUIRED))
    reusing = full(_BIASED, reuses_kv=Const(1, "it has layers that reuse keys and values"))
    attention = Stack(patterns.GROUPS_REUSE, {FULL: full(_BIASED), patterns.REUSED: reusing})
    return attention, all_sparse(layer)


def _minimax_m3() -> tuple[Stack, Stack]:
    """Layers of `sparse_attention_freq` choose blocks of the cache with an indexer."""
    index: dict[str, Field] = {
        "index_heads": Size(_M3 + "sparse_num_index_heads", 4),
        "index_head_dim": Size(_M3 + "sparse_index_dim", 128),
        "index_topk": Product(_M3 + "sparse_topk_blocks", 16, _M3 + "sparse_block_size", 128),
    }
    layer = experts("num_local_experts", width="intermediate_size", shared=shared_count(default=1))
    return (
        Stack(patterns.SPARSE_FLAGS, {FULL: full(heads()), SPARSE: full(heads(), **index)}),
        sparse(feed_forward.flagged("moe_layer_freq", 0), layer, "dense_intermediate_size"),
    )


def _residual(reader: ConfigReader, sizes: Sizes) -> int:
    """A dense feed-forward beside the experts, as wide as the hidden size."""
    beside = reader.boolean("use_residual") or reader.boolean("parallel_attn_mlp_res")
    return reader.hidden if beside else 0


def _residual_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value not in (0, shape.hidden):
        raise Cannot("the feed-forward beside its experts is as wide as the hidden size")
    return {"use_residual": bool(value), "parallel_attn_mlp_res": False}


_RESIDUAL = Own(
    {"use_residual": False, "parallel_attn_mlp_res": False}, _residual, _residual_written
)


def _mimo_v2() -> Stack:
    """Windowed layers have heads of their own; null: as in the layers without a window."""
    bias = {"qkv_bias": Flag("attention_bias")}
    keys = {
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "v_head_dim": "v_head_dim",
    }
    own: dict[str, Field] = {size: Size(key) for size, key in keys.items()}
    swa = {size: Size(f"swa_{key}", None, null=key) for size, key in keys.items()}
    sections = {FULL: full({**own, **bias}), SLIDING: sliding({**swa, **bias})}
    return Stack(patterns.WINDOW_FLAGS, sections)


def _full_head_dim(reader: ConfigReader, sizes: Sizes) -> int:
    found = reader.optional_integer("head_dim")
    return found or reader.hidden // reader.integer("num_attention_heads")


def _step3p5() -> Stack:
    """Windowed layers have the heads of `attention_other_setting`."""
    own, other = heads(), "attention_other_setting."
    swa = own | {
        "heads": Size(other + "num_attention_heads", None, null="num_attention_heads"),
        "kv_heads": Size(other + "num_attention_groups", None, null="num_key_value_heads"),
        "head_dim": Size(other + "head_dim", None, null=_full_head_dim),
    }
    gate = noted("use_head_wise_attn_gate", "one gate a head is not counted")
    return Stack(patterns.BY_LIST, {FULL: full(own), SLIDING: sliding(swa)}, (gate,))


EXPERT_FAMILIES: Mapping[str, Family] = {
    "mixtral": Family(
        "MixtralForCausalLM",
        (windowed(patterns.ALL_WINDOWED, heads()), _local(8, 2)),
        {"num_key_value_heads": 8},
        _TO_LOCAL,
        export=Export(keys=_SILU),
    ),
    "glm4_moe": Family(
        "Glm4MoeForCausalLM",
        (_LLAMA, _after_first(1, _SHARED)),
        {"num_key_value_heads": 8, "first_k_dense_replace": 1},
        _TO_ROUTED,
        passed=("moe_layer_freq",),
        prediction=NOTED,
        export=Export(keys={**_ROUTED, "use_qk_norm": False}, note=_QK_NORM),
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        (windowed(patterns.ALL_SWITCHED, _BIASED), sparse(feed_forward.QWEN, experts())),
        {"num_key_value_heads": 4},
        _TO_EXPERTS,
        export=Export(_NORMS, {**_NORMED, **_SILU}),
    ),
    "qwen2_moe": Family(
        "Qwen2MoeForCausalLM",
        (
            windowed(patterns.SECOND_SLIDE, heads("qkv_bias", bias_default=True)),
            sparse(
                feed_forward.QWEN, experts(shared=shared_width("shared_expert_intermediate_size"))
            ),
        ),
        {"num_key_value_heads": 16},
        _TO_EXPERTS,
        export=Export((beyond.shared_gate,), {**_NORMED, **_SILU}),
    ),
    "dots1": Family(
        "Dots1ForCausalLM",
        (windowed(patterns.FROM_FIRST, _BIASED), _after_first(needs=_SHARED)),
        {},
        _TO_ROUTED,
        passed=("moe_layer_freq",),
        prediction=NOTED,
        export=Export(_NORMS, _ROUTED),
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        (
            windowed(patterns.TURNS, heads("attention_bias", bias_default=True)),
            _local(128, 4, _EXPERT_BIAS),
        ),
        {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
        {**_TO_LOCAL, "experts_per_token": "num_experts_per_tok"},
        export=Export((beyond.gpt_oss,), _SILU),
    ),
    "llama4": Family(
        "Llama4ForConditionalGeneration",
        (
            chunked(patterns.CHUNKS, heads("attention_bias", biased=())),
            sparse(
                feed_forward.INTERLEAVED,
                experts(
                    "num_local_experts",
                    width="intermediate_size",
                    shared=Same(
                        "expert_intermediate_size",
                        "it has one shared expert, as wide as a routed one",
                    ),
                    optional=True,
                ),
                "intermediate_size_mlp",
            ),
        ),
        {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size_mlp": 16384},
        others=("Llama4ForCausalLM",),
        model_types=("llama4_text",),
        export=Export(keys=_SILU, model_type="llama4_text", name="Llama4ForCausalLM"),
    ),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM",
        (LATENT_ATTENTION, _deepseek(1)),
        {"first_k_dense_replace": 3},
        _TO_ROUTED,
        ("KimiK25ForConditionalGeneration", "KimiK2ForCausalLM"),
        ("kimi_k2", "kimi_k25"),
        prediction=NOTED,
        export=Export(keys=_LATENT_ROUTED),
    ),
    "deepseek_v32": Family(
        "DeepseekV32ForCausalLM",
        (indexed(patterns.OWN_INDEXERS), _deepseek(1)),
        {"first_k_dense_replace": 3},
        _TO_ROUTED,
        passed=("head_dim",),
        prediction=NOTED,
        export=Export((beyond.indexer_norms,), _LATENT_ROUTED),
    ),
    "glm_moe_dsa": Family(
        "GlmMoeDsaForCausalLM",
        (indexed(patterns.SHARED_INDEXERS), _deepseek(1)),
        {
            "q_lora_rank": 2048,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "index_n_heads": 32,
            "first_k_dense_replace": 3,
        },
        _TO_ROUTED,
        passed=("head_dim",),
        prediction=NOTED,
        export=Export((beyond.indexer_norms,), _LATENT_ROUTED),
    ),
    "deepseek_v2": Family(
        "DeepseekV2ForCausalLM", (LATENT_ATTENTION, _deepseek(2)), {}, _TO_ROUTED, prediction=NOTED
    ),
    "deepseek": Family("DeepseekForCausalLM", (_LLAMA, _deepseek()), prediction=NOTED),
    "glm4_moe_lite": Family(
        "Glm4MoeLiteForCausalLM",
        (LATENT_ATTENTION, _deepseek(1)),
        {
            "q_lora_rank": 768,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "first_k_dense_replace": 1,
        },
        _TO_ROUTED,
        passed=("head_dim",),
        prediction=NOTED,
    ),
    "bailing_moe": Family(
        "BailingMoeV2ForCausalLM",
        (
            grouped(heads("use_qkv_bias")),
            sparse(feed_forward.AFTER_FIRST, experts(shared=shared_count("num_shared_experts", 0))),
        ),
        others=("BailingMoeForCausalLM",),
        model_types=("bailing_moe_v2",),
        prediction=NOTED,
    ),
    "ernie4_5_moe": Family(
        "Ernie4_5_MoeForCausalLM",
        (
            grouped(heads("use_bias")),
            sparse(
                feed_forward.BETWEEN,
                experts(
                    "moe_num_experts",
                    "moe_k",
                    shared=shared_count("moe_num_shared_experts", 2),
                    defaults=(64, 6, 1536),
                ),
            ),
        ),
        {"num_key_value_heads": 4, "tie_word_embeddings": True},
        prediction=NOTED,
    ),
    "hunyuan_v1_moe": Family(
        "HunYuanMoEV1ForCausalLM",
        _hunyuan(),
        {"intermediate_size": REQUIRED},
        {"attention_head_dim": "head_dim"},
        ("HunYuanForCausalLM",),
        ("hunyuan",),
    ),
    "minimax_m2": Family(
        "MiniMaxM2ForCausalLM",
        (_LLAMA, _local()),
        {"num_key_value_heads": 8},
        _TO_LOCAL,
        prediction=Prediction("num_mtp_modules", noted=True),
    ),
    "minimax_m3": Family(
        "MiniMaxM3SparseForConditionalGeneration",
        _minimax_m3(),
        {"num_key_value_heads": 4, "head_dim": 128, "dense_intermediate_size": 12288},
        _TO_LOCAL,
        ("MiniMaxM3SparseForCausalLM", "MiniMaxM3VLForConditionalGeneration"),
        ("minimax_m3_vl", "minimax_m3_vl_text"),
        passed=("attention_bias", "shared_intermediate_size"),
        prediction=Prediction("num_mtp_modules", noted=True),
    ),
    "olmoe": Family(
        "OlmoeForCausalLM",
        (_LLAMA, all_sparse(experts(width="intermediate_size", defaults=(64, 8, REQUIRED)))),
    ),
    "granitemoe": Family("GraniteMoeForCausalLM", (_LLAMA, _local())),
    "phimoe": Family(
        "PhiMoEForCausalLM",
        (windowed(patterns.ALL_WINDOWED, _BIASED), _local()),
        {"num_key_value_heads": 8},
        others=("PhimoeForCausalLM",),
    ),
    "arctic": Family(
        "ArcticForCausalLM",
        (
            grouped(heads()),
            sparse(
                feed_forward.FREQUENCY,
                experts(
                    "num_local_experts",
                    width="intermediate_size",
                    shared=_RESIDUAL,
                    defaults=(8, 1, REQUIRED),
                ),
            ),
        ),
    ),
    "dbrx": Family(
        "DbrxForCausalLM",
        (
            grouped(heads(head_dim=None)),
            all_sparse(
                experts(
                    "ffn_config.moe_num_experts",
                    "ffn_config.moe_top_k",
                    "ffn_config.ffn_hidden_size",
                    defaults=(4, 1, 3584),
                )
            ),
        ),
        {"num_key_value_heads": 1},
        MPT_NAMES,
    ),
    "mimo_v2_flash": Family(
        "MiMoV2FlashForCausalLM",
        (
            _mimo_v2(),
            sparse(
                feed_forward.flagged("moe_layer_freq", 1),
                experts("n_routed_experts", shared=shared_count()),
            ),
        ),
        {"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128},
        {**_TO_ROUTED, "sliding_window_size": "sliding_window"},
        passed=("first_k_dense_replace",),
        prediction=NOTED,
    ),
    "step3p5": Family(
        "Step3p5ForCausalLM",
        (
            _step3p5(),
            sparse(
                feed_forward.enumerated("moe_layers_enum"),
                experts(
                    "moe_num_experts",
                    "moe_top_k",
                    shared=shared_width("share_expert_dim", needs=""),
                ),
            ),
        ),
        {"num_key_value_heads": REQUIRED},
        {"num_attention_groups": "num_key_value_heads", "share_expert_dims": "share_expert_dim"},
        prediction=NOTED,
    ),
}
