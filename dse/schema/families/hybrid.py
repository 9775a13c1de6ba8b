"""The table of families with states, compressed caches, or layers whose heads differ: one row a
family.

Defaults are those of Hugging Face transformers (`configuration_<family>.py`, 2026-06).
"""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families import beyond, feed_forward, patterns
from dse.schema.families.engine import MTP, NOTED, Export, Family, Guard, Prediction, Section, Stack
from dse.schema.families.fields import (
    Const,
    Field,
    Flag,
    Own,
    Product,
    Same,
    Size,
    Times,
    Unwritten,
)
from dse.schema.families.maps import (
    HEAD_DIM_READ,
    LATENT_BIAS,
    NO_WINDOW,
    SHARED_NEEDED,
    all_sparse,
    dense,
    experts,
    full,
    head_dim_of_hidden,
    heads,
    latent_sizes,
    mamba2,
    mlp,
    shared_count,
    shared_width,
    sliding,
    sparse,
    zero,
)
from dse.schema.families.patterns import DENSE, FULL, LINEAR, SLIDING, SPARSE
from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.families.shape import PLAIN, Cannot, Config, Shape, Sizes

_SILU = {"hidden_act": "silu"}
_NORMED = {"norm_topk_prob": True}
_NO_BIAS = heads("attention_bias", biased=(0,))


# Qwen3-Next, Qwen3.5: attention with an output gate, gated delta-net in the other layers.

_DELTA = "its linear attention is the gated delta-net: two gates a head, no rank"
_GATE = "its full attention has an output gate, and the shape's has none"
_DELTA_NET = Stack(
    patterns.INTERVAL,
    {
        FULL: full(_NO_BIAS, output_gate=Flag("attn_output_gate", True, (1,), _GATE)),
        LINEAR: Section(
            "delta_net",
            {
                "key_heads": Size("linear_num_key_heads", 16),
                "key_head_dim": Size("linear_key_head_dim", 128),
                "value_heads": Size("linear_num_value_heads", 32),
                "value_head_dim": Size("linear_value_head_dim", 128),
                "conv_width": Size("linear_conv_kernel_dim", 4),
                "gates_per_head": Const(2, _DELTA),
                "decay_rank": Const(0, _DELTA),
                "output_gate_rank": Const(0, _DELTA),
            },
        ),
    },
)
_QWEN_SPARSE = sparse(
    feed_forward.QWEN, experts(shared=shared_width("shared_expert_intermediate_size"))
)
_QWEN_MTP = Prediction("mtp_num_hidden_layers")
_QWEN_HEADS = {"num_key_value_heads": 2, "head_dim": 256}
_TO_EXPERTS = {"num_local_experts": "num_experts"}


# MiniMax-Text-01: lightning attention has no gates and no convolution.

_LIGHTNING = "its linear attention is lightning attention with the heads of the full one"


def _lightning_dim(reader: ConfigReader, sizes: Sizes) -> int:
    found = reader.optional_integer("head_dim")
    return found or head_dim_of_hidden(reader, {"heads": sizes["key_heads"]})


def _lightning() -> Stack:
    none = ("conv_width", "gates_per_head", "decay_rank", "output_gate_rank")
    linear: dict[str, Field] = {
        "key_heads": Size("num_attention_heads"),
        "key_head_dim": Own(
            {"head_dim": None}, _lightning_dim, lambda value, sizes, shape: {"head_dim": value}
        ),
        "value_heads": Same("key_heads", _LIGHTNING),
        "value_head_dim": Same("key_head_dim", _LIGHTNING),
        **dict.fromkeys(none, Const(0, _LIGHTNING)),
    }
    own = Section("gqa", {**heads(), **NO_WINDOW}, why=_LIGHTNING)
    return Stack(patterns.LIGHTNING, {FULL: own, LINEAR: Section("delta_net", linear)})


# Kimi Linear, Kimi K3: latent attention, and Kimi delta attention in the other layers: a learning
# rate a head, a decay of low rank, and an output gate of the same rank or a full matrix.

_KDA = "its linear attention is Kimi delta attention, of ranks as wide as a head"
_KIMI = "linear_attn_config."
_FULL_RANK = _KIMI + "use_full_rank_gate"


def _kimi_gate(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value not in (0, sizes["key_head_dim"]):
        raise Cannot(_KDA)
    return {_FULL_RANK: not value}


def _low_rank_gate(value: int, sizes: Sizes, shape: Shape) -> Config:
    """Kimi Linear has no key for a gate of full rank in transformers."""
    if value != sizes["key_head_dim"]:
        raise Cannot(_KDA)
    return {}


def _kimi(*, gates: bool) -> tuple[Stack, Stack]:
    """`gates`: the class has output gates of latent attention, of full rank, and experts on a
    latent; without, they are read where a file has them."""
    gate: Field = Flag("mla_use_output_gate")
    narrow: Field = Size("routed_expert_hidden_size", None, null=zero)
    if not gates:
        gate = Unwritten(gate, "it has no output gate")
        narrow = Unwritten(narrow, "it has no experts on a latent")
    rank = Own(
        {_FULL_RANK: False},
        lambda reader, sizes: 0 if reader.boolean(_FULL_RANK) else sizes["key_head_dim"],
        _kimi_gate if gates else _low_rank_gate,
    )
    linear: dict[str, Field] = {
        "key_heads": Size(_KIMI + "num_heads", 32),
        "key_head_dim": Size(_KIMI + "head_dim", 128),
        "value_heads": Same("key_heads", _KDA),
        "value_head_dim": Same("key_head_dim", _KDA),
        "conv_width": Size(_KIMI + "short_conv_kernel_size", 4),
        "gates_per_head": Const(1, _KDA),
        "decay_rank": Same("key_head_dim", _KDA),
        "output_gate_rank": rank,
    }
    latent = {**latent_sizes(None), "output_gate": gate}
    layer = experts(
        chosen="num_experts_per_token", shared=shared_count("num_shared_experts", 1), narrow=narrow
    )
    sections = {FULL: Section("mla", latent), LINEAR: Section("delta_net", linear)}
    return Stack(patterns.COUNTED, sections), sparse(feed_forward.AFTER_FIRST, layer)


_KIMI_NAMES = {"num_experts_per_tok": "num_experts_per_token", "num_local_experts": "num_experts"}


# Mamba.


def _nemotron_h() -> Stack:
    """A layer is attention, Mamba-2, or feed-forward alone, of two matrices."""
    inner = Times("mamba_head_dim", "heads", "its Mamba heads divide the inner size")
    shared = Product(
        "moe_shared_expert_intermediate_size",
        7688,
        "n_shared_experts",
        1,
        needs=SHARED_NEEDED,
        least=0,
    )
    layer = experts(
        "n_routed_experts",
        shared=shared,
        defaults=(8, 2, 7688),
        count_matrices=PLAIN,
        narrow=Size("moe_latent_size", None, null=zero),
        optional=True,
    )
    sections = {
        FULL: full(_NO_BIAS),
        LINEAR: mamba2(inner, "mamba_num_heads", "n_groups", "ssm_state_size", "conv_kernel"),
        DENSE: mlp(count=PLAIN, optional=True),
        SPARSE: layer,
    }
    return Stack(patterns.ALONE, sections)


def _granite_read(reader: ConfigReader, sizes: Sizes) -> int:
    inner, size = reader.integer("mamba_expand") * reader.hidden, reader.value("mamba_d_head")
    if size not in (None, "auto") and reader.integer("mamba_d_head") * sizes["heads"] != inner:
        raise reader.refuse("mamba_d_head", f"{size} of {sizes['heads']} heads is not {inner}")
    return inner


def _granite_inner(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value % shape.hidden or value % sizes["heads"]:
        raise Cannot("its inner size is a multiple of the hidden size and of its heads")
    return {"mamba_expand": value // shape.hidden, "mamba_d_head": value // sizes["heads"]}


def _granite() -> tuple[Stack, Stack]:
    """A gated feed-forward in every layer, which is a shared expert where there are routed ones."""
    inner = Own({"mamba_expand": 2, "mamba_d_head": None}, _granite_read, _granite_inner)
    names = ("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    attention = heads("attention_bias", biased=(0,), head_dim=HEAD_DIM_READ)
    layer = experts(
        "num_local_experts",
        width="intermediate_size",
        shared=shared_width("shared_intermediate_size", 1024),
        defaults=(8, 2, None),
        optional=True,
    )
    alone = mlp(Size("shared_intermediate_size", 1024), optional=True)
    return (
        Stack(patterns.MAMBA_LISTED, {FULL: full(attention), LINEAR: mamba2(inner, *names)}),
        Stack(feed_forward.GRANITE, {DENSE: alone, SPARSE: layer}),
    )


def _time_step(reader: ConfigReader, sizes: Sizes) -> int:
    if reader.value("mamba_dt_rank") == "auto":
        return -(-reader.hidden // 16)
    return reader.integer("mamba_dt_rank")


def _jamba() -> tuple[Stack, Stack]:
    """Mamba-1 beside attention; experts are as wide as the dense feed-forward."""
    mamba1 = "its state-space layers are Mamba-1"
    mamba: dict[str, Field] = {
        "heads": Const(0, mamba1),
        "groups": Const(0, mamba1),
        "inner_size": Times(
            "mamba_expand", "hidden_size", "its inner size is a multiple of the hidden size", 2
        ),
        "state_size": Size("mamba_d_state", 16),
        "conv_width": Size("mamba_d_conv", 4),
        "dt_rank": Own(
            {"mamba_dt_rank": "auto"},
            _time_step,
            lambda value, sizes, shape: {"mamba_dt_rank": value},
        ),
    }
    window = Unwritten(Size("sliding_window", None, null=zero), "it has no sliding window")
    attention = {**heads(head_dim=HEAD_DIM_READ), "window": window}
    layer = experts(width="intermediate_size", defaults=(16, 2, REQUIRED))
    return (
        Stack(
            patterns.periodic("attn_layer", 8, 4, FULL, LINEAR),
            {FULL: Section("gqa", attention), LINEAR: Section("mamba", mamba)},
        ),
        Stack(
            patterns.periodic("expert_layer", 2, 1, SPARSE, DENSE),
            {DENSE: mlp(optional=True), SPARSE: layer},
        ),
    )


# DeepSeek-V4: a compressed cache.


def _compressed() -> Stack:
    sizes: dict[str, Field] = {
        "heads": Size("num_attention_heads"),
        "head_dim": Size("head_dim", 512),
        "q_lora_rank": Size("q_lora_rank", 1024),
        "output_groups": Size("o_groups", 8),
        "output_rank": Size("o_lora_rank", 1024),
        "window": Size("sliding_window", 128),
    }
    index: dict[str, Field] = {
        "index_heads": Size("index_n_heads", 64),
        "index_head_dim": Size("index_head_dim", 128),
        "index_topk": Size("index_topk", 512),
    }
    none = dict.fromkeys(index, Const(0, "only layers compressed 4 times have an indexer"))
    why = "its cache is compressed 4 times, 128 times, or not"
    sections = {
        patterns.CSA: Section("compressed", {**sizes, "ratio": Const(4, why), **index}),
        patterns.HCA: Section("compressed", {**sizes, "ratio": Const(128, why), **none}),
        SLIDING: Section("compressed", {**sizes, "ratio": Const(0, why), **none}),
    }
    return Stack(patterns.COMPRESSED, sections, (LATENT_BIAS,))


# Gemma 4: full layers have a head size and KV heads of their own, and with `attention_k_eq_v` no
# projection of values.


def _global_heads(reader: ConfigReader, sizes: Sizes) -> int:
    own = reader.optional_integer("num_key_value_heads") or sizes["heads"]
    if not reader.boolean("attention_k_eq_v"):
        return own
    return reader.optional_integer("num_global_key_value_heads") or own


def _global_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if sizes["values_from_keys"]:
        return {"num_global_key_value_heads": value}
    if any(block.sizes["kv_heads"] != value for block in shape.of("gqa")):
        raise Cannot("its full layers have KV heads of their own only where values are keys")
    return {"num_global_key_value_heads": None}


def _no_embeddings(reader: ConfigReader) -> None:
    key = "hidden_size_per_layer_input"
    if reader.optional_integer(key, least=0):
        raise reader.refuse(key, "embeddings a layer are not covered")


def _no_double(reader: ConfigReader) -> None:
    if reader.boolean("use_double_wide_mlp"):
        raise reader.refuse("use_double_wide_mlp", "true is not covered", "false")


def _gemma4() -> tuple[Stack, Stack]:
    wide = {
        "heads": _NO_BIAS["heads"],
        "kv_heads": Own({"num_global_key_value_heads": None}, _global_heads, _global_written),
        "head_dim": Size("global_head_dim", 512),
        "v_head_dim": _NO_BIAS["v_head_dim"],
        "qkv_bias": _NO_BIAS["qkv_bias"],
        "values_from_keys": Flag("attention_k_eq_v"),
    }
    reused = {"reuses_kv": Const(1, "it has no layers that reuse the keys and values of others")}
    attention = {
        FULL: full(wide),
        SLIDING: sliding(_NO_BIAS, 512),
        patterns.FULL_REUSED: full({**wide, **reused}),
        patterns.SLIDING_REUSED: sliding({**_NO_BIAS, **reused}, 512),
    }
    beside = "it has a dense feed-forward beside its experts, and the shape has none"
    layer = experts(
        chosen="top_k_experts",
        shared=shared_width("intermediate_size", needs=beside),
        defaults=(None, None, None),
        optional=True,
    )
    embeddings = Guard({"hidden_size_per_layer_input": 256}, _no_embeddings)
    double = Guard({"use_double_wide_mlp": False}, _no_double)
    return (
        Stack(patterns.LAST_REUSE, attention, (embeddings,)),
        Stack(feed_forward.BESIDE, {DENSE: mlp(optional=True), SPARSE: layer}, (double,)),
    )


HYBRID_FAMILIES: Mapping[str, Family] = {
    "qwen3_next": Family(
        "Qwen3NextForCausalLM",
        (_DELTA_NET, _QWEN_SPARSE),
        _QWEN_HEADS,
        _TO_EXPERTS,
        passed=("use_sliding_window",),
        prediction=_QWEN_MTP,
        export=Export((beyond.head_norms, beyond.shared_gate), {**_SILU, **_NORMED}),
    ),
    "qwen3_5": Family(
        "Qwen3_5ForConditionalGeneration",
        (_DELTA_NET, dense()),
        {**_QWEN_HEADS, "num_key_value_heads": 4},
        others=("Qwen3_5ForCausalLM",),
        model_types=("qwen3_5_text",),
        prediction=_QWEN_MTP,
        export=Export(
            (beyond.head_norms,), _SILU, model_type="qwen3_5_text", name="Qwen3_5ForCausalLM"
        ),
    ),
    "qwen3_5_moe": Family(
        "Qwen3_5MoeForConditionalGeneration",
        (_DELTA_NET, _QWEN_SPARSE),
        _QWEN_HEADS,
        _TO_EXPERTS,
        ("Qwen3_5MoeForCausalLM",),
        ("qwen3_5_moe_text",),
        prediction=_QWEN_MTP,
    ),
    "minimax_text_01": Family(
        "MiniMaxText01ForCausalLM",
        (_lightning(), all_sparse(experts("num_local_experts", width="intermediate_size"))),
        {"num_key_value_heads": 8},
        {"num_experts": "num_local_experts"},
        ("MiniMaxM1ForCausalLM", "MiniMaxForCausalLM"),
        ("minimax", "minimax_m1"),
        passed=("shared_intermediate_size",),
        export=Export((beyond.lightning,), _SILU, model_type="minimax", name="MiniMaxForCausalLM"),
    ),
    "kimi_linear": Family(
        "KimiLinearForCausalLM",
        _kimi(gates=False),
        {"first_k_dense_replace": 1},
        aliases=_KIMI_NAMES,
        passed=("moe_layer_freq", "head_dim"),
        prediction=MTP,
        export=Export(
            (beyond.kimi_decay,), {"moe_layer_freq": 1, "mla_use_output_gate": False, **_SILU}
        ),
    ),
    "nemotron_h": Family(
        "NemotronHForCausalLM",
        (_nemotron_h(),),
        {
            "intermediate_size": 21504,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
        },
        {
            "attention_head_dim": "head_dim",
            "mamba_n_groups": "n_groups",
            "mamba_d_conv": "conv_kernel",
            "num_local_experts": "n_routed_experts",
        },
        passed=("mlp_bias",),
        prediction=MTP,
        export=Export(keys={"mlp_hidden_act": "relu2"}, expert_keys=_NORMED),
    ),
    "granitemoehybrid": Family(
        "GraniteMoeHybridForCausalLM",
        _granite(),
        {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4},
        export=Export(keys={"position_embedding_type": "rope", **_SILU}),
    ),
    "jamba": Family(
        "JambaForCausalLM",
        _jamba(),
        {"num_key_value_heads": 8},
        export=Export((beyond.mamba_norms,), _SILU),
    ),
    "gemma4": Family(
        "Gemma4ForConditionalGeneration",
        _gemma4(),
        {"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True},
        others=("Gemma4ForCausalLM",),
        model_types=("gemma4_text",),
        passed=("vocab_size_per_layer_input",),
        export=Export(
            (beyond.norms_after, beyond.head_norms, beyond.gemma4_experts),
            {
                "hidden_size_per_layer_input": 0,
                "use_double_wide_mlp": False,
                "hidden_activation": "gelu_pytorch_tanh",
            },
            model_type="gemma4_text",
            name="Gemma4ForCausalLM",
        ),
    ),
    "kimi_k3": Family(
        "KimiK3ForConditionalGeneration",
        _kimi(gates=True),
        {
            "q_lora_rank": 1536,
            "mla_use_output_gate": True,
            _KIMI + "num_heads": 96,
            _FULL_RANK: True,
            "num_shared_experts": 2,
            "routed_expert_hidden_size": 3584,
            "first_k_dense_replace": 1,
        },
        _KIMI_NAMES,
        ("KimiK3ForCausalLM",),
        passed=("moe_layer_freq", "head_dim"),
        prediction=MTP,
    ),
    "deepseek_v4": Family(
        "DeepseekV4ForCausalLM",
        (_compressed(), all_sparse(experts("n_routed_experts", shared=shared_count(default=1)))),
        {},
        {"num_local_experts": "n_routed_experts"},
        passed=("num_key_value_heads", "qk_rope_head_dim"),
        prediction=NOTED,
    ),
}
