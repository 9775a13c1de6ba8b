"""Megatron-LM arguments of a shape, for `pretrain_gpt.py`. Names: megatron-core 0.16.1
(transformer/transformer_config.py, model_parallel_config.py) and Megatron-LM megatron/training/
arguments.py (2026-11), which makes flags of the fields of the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dse.errors import InputError
from dse.schema.architectures import ARCHITECTURES, note_of, published_class, write_config
from dse.schema.families.patterns import FULL
from dse.schema.families.shape import PLAIN, Cannot, Shape, Sizes, spread
from dse.schema.model import Model

MEGATRON = "0.16.1"
VOCABULARY_MULTIPLE = 128  # --make-vocab-size-divisible-by, its default
Flags = list[tuple[str, str | None]]


# What a published class has beyond the sizes of a shape (`dse.schema.architectures`), as arguments;
# of the rest a note is made. Biases of linear layers are there unless they are switched off.
_BIASES = (
    "biases of the attention output",
    "biases of the feed-forward",
    "biases of experts",
    "biases of the router",
)
_BEYOND: Mapping[str, Flags] = {
    "norms of query and key heads": [("--qk-layernorm", None)],
    "gates of shared experts": [("--moe-shared-expert-gate", None)],
    "attention sinks": [("--softmax-type", "learnable")],
    "biases of layer norms": [],  # LayerNorm, the default, has them
}
# Arguments of what a class is, and what of it has none.
_OF_CLASS: Mapping[str, Flags] = {
    "GptOssForCausalLM": [
        ("--quick-geglu", None),
        ("--glu-linear-offset", "1.0"),
        ("--activation-func-clamp-value", "7.0"),
    ],
    "NemotronForCausalLM": [("--squared-relu", None), ("--apply-layernorm-1p", None)],
    "Gemma3ForCausalLM": [("--apply-layernorm-1p", None)],
    "Qwen3NextForCausalLM": [("--apply-layernorm-1p", None)],
    "Qwen3_5ForCausalLM": [("--apply-layernorm-1p", None)],
}
_UNSAID: Mapping[str, tuple[str, ...]] = {
    "Gemma3ForCausalLM": ("gates of GELU, not of SiLU as --swiglu has them",),
    "OPTForCausalLM": ("ReLU, not GELU",),
    "GPTNeoXForCausalLM": ("attention and feed-forward side by side",),
    "BloomForCausalLM": ("ALiBi, not rotary positions",),
    "Glm4MoeForCausalLM": (note_of("Glm4MoeForCausalLM"),),
}


def arguments(
    model: Model, degrees: Mapping[str, int], sequence: int
) -> tuple[Flags, tuple[str, ...]]:
    """(flags of the shape and of the layout, what they do not say). `degrees`: tensor, pipeline,
    expert, and data, the ranks beside tensor parallelism over which experts are divided as well.
    Raises InputError for what Megatron-LM's GPT models have no argument for."""
    shape = Shape(model)
    try:
        flags = [
            *_size(shape, sequence),
            *_attention(shape),
            *_feed_forward(shape),
            *_tables(model),
        ]
    except Cannot as reason:
        raise InputError(
            f"{model.name}: not written as Megatron-LM arguments: {reason}",
            field="model",
            accepted="another format, or another shape",
        ) from reason
    flags, unsaid = _published(model, flags)
    return [*flags, *_layout(shape, degrees)], unsaid


def _published(model: Model, flags: Flags) -> tuple[Flags, tuple[str, ...]]:
    """The flags with what the published class has beyond the sizes, and what they leave unsaid."""
    name = published_class(model)
    if name is None:
        return flags, ()
    if name not in ARCHITECTURES:
        return flags, (
            f"published as {name}: norms of heads, biases and activation that this class has "
            "beyond the sizes are not among the arguments",
        )
    beyond = write_config(model, architecture=name).beyond
    dropped = set[str]()
    if any(what in _BIASES for what in beyond):
        dropped |= {"--disable-bias-linear", "--add-qkv-bias"}
    if "biases of layer norms" in beyond:
        dropped.add("--normalization")
    if name == "GptOssForCausalLM":
        dropped.add("--swiglu")
    more = [flag for what in beyond for flag in _BEYOND.get(what, ())]
    more += _OF_CLASS.get(name, [])
    kept = [flag for flag in flags if flag[0] not in dropped]
    more = [flag for flag in more if flag not in kept]
    unsaid = [what for what in beyond if what not in (*_BEYOND, *_BIASES)]
    unsaid += _UNSAID.get(name, ())
    words = (f"of {name} these arguments do not say: {'; '.join(unsaid)}",) if unsaid else ()
    return [*kept, *more], words


def padded_vocabulary(model: Model, tensor: int) -> int:
    """Rows of the table: a multiple of 128 times the tensor-parallel size."""
    multiple = VOCABULARY_MULTIPLE * tensor
    return -(-model.vocab_size // multiple) * multiple


def _size(shape: Shape, sequence: int) -> Flags:
    learned = shape.of("positions")
    flags: Flags = [
        ("--num-layers", str(shape.layers)),
        ("--hidden-size", str(shape.hidden)),
        ("--seq-length", str(sequence)),
    ]
    if not learned:
        # Gated models have no bias and no mean in their norms; those with learned positions have.
        return [
            *flags,
            ("--max-position-embeddings", str(sequence)),
            ("--position-embedding-type", "rope"),
            ("--normalization", "RMSNorm"),
            ("--disable-bias-linear", None),
        ]
    rows = int(shape.one("positions").sizes["rows"])
    if sequence > rows:
        raise Cannot(f"a sequence of {sequence} has no learned positions beyond {rows}")
    return [
        *flags,
        ("--max-position-embeddings", str(rows)),
        ("--position-embedding-type", "learned_absolute"),
    ]


def _attention(shape: Shape) -> Flags:
    if shape.of("mla"):
        return _latent(shape)
    optional = ("output_gate",) if shape.of("delta_net") else ()
    shape.only(
        "gqa", "delta_net", "mlp", "moe", "positions", optional=(*optional, "expert_hidden_size")
    )
    sizes, window, types = shape.heads(bias=(0, 1), windows="any")
    flags: Flags = [
        ("--num-attention-heads", str(sizes["heads"])),
        ("--kv-channels", str(sizes["head_dim"])),
    ]
    if sizes["kv_heads"] != sizes["heads"]:
        flags += [
            ("--group-query-attention", None),
            ("--num-query-groups", str(sizes["kv_heads"])),
        ]
    if sizes["qkv_bias"] and not shape.of("positions"):
        flags.append(("--add-qkv-bias", None))
    if window:
        # A token attends to itself and to window - 1 before it.
        flags.append(("--window-size", f"{window - 1},0"))
        if FULL in types:
            flags.append(("--window-attn-skip-freq", _frequency(types)))
    if shape.of("delta_net"):
        flags += _delta_net(shape, sizes)
    return flags


def _latent(shape: Shape) -> Flags:
    index = ("index_heads", "index_head_dim", "index_topk")
    shape.only("mla", "mlp", "moe", optional=(*index, "expert_hidden_size"))
    sizes = {name: int(value) for name, value in shape.one("mla").sizes.items()}
    flags: Flags = [
        ("--multi-latent-attention", None),
        ("--num-attention-heads", str(sizes["heads"])),
        ("--kv-lora-rank", str(sizes["kv_lora_rank"])),
        ("--qk-head-dim", str(sizes["qk_nope_head_dim"])),
        ("--qk-pos-emb-head-dim", str(sizes["qk_rope_head_dim"])),
        ("--v-head-dim", str(sizes["v_head_dim"])),
        ("--qk-layernorm", None),  # of the latents
    ]
    if sizes["q_lora_rank"]:
        flags.insert(2, ("--q-lora-rank", str(sizes["q_lora_rank"])))
    if sizes.get("index_topk"):
        flags += [
            ("--experimental-attention-variant", "dsa"),
            ("--dsa-indexer-n-heads", str(sizes["index_heads"])),
            ("--dsa-indexer-head-dim", str(sizes["index_head_dim"])),
            ("--dsa-indexer-topk", str(sizes["index_topk"])),
        ]
    return flags


def _delta_net(shape: Shape, heads: Sizes) -> Flags:
    sizes = {name: int(value) for name, value in shape.one("delta_net").sizes.items()}
    if (sizes["gates_per_head"], sizes["decay_rank"], sizes["output_gate_rank"]) != (2, 0, 0):
        raise Cannot("its linear attention is the gated delta-net: two gates a head, no rank")
    linear = spread(shape.layers, shape.count("gqa"), FULL, "linear")
    flags: Flags = [
        ("--experimental-attention-variant", "gated_delta_net"),
        ("--linear-attention-freq", _frequency(linear)),
        ("--linear-conv-kernel-dim", str(sizes["conv_width"])),
        ("--linear-key-head-dim", str(sizes["key_head_dim"])),
        ("--linear-value-head-dim", str(sizes["value_head_dim"])),
        ("--linear-num-key-heads", str(sizes["key_heads"])),
        ("--linear-num-value-heads", str(sizes["value_heads"])),
    ]
    return [*flags, ("--attention-output-gate", None)] if heads.get("output_gate") else flags


def _feed_forward(shape: Shape) -> Flags:
    matrices = {int(block.sizes["matrices"]) for block in (*shape.of("mlp"), *shape.of("moe"))}
    if len(matrices) > 1:
        raise Cannot("its feed-forward layers are all gated or all plain")
    flags: Flags = [("--ffn-hidden-size", str(shape.dense_width()))]
    if matrices != {PLAIN}:
        flags.append(("--swiglu", None))
    if not shape.of("moe"):
        return flags
    sizes = shape.experts(shared="width")
    flags += [
        ("--num-experts", str(sizes["experts"])),
        ("--moe-router-topk", str(sizes["experts_per_token"])),
        ("--moe-ffn-hidden-size", str(sizes["expert_intermediate_size"])),
    ]
    if sizes["shared_intermediate_size"]:
        shared = str(sizes["shared_intermediate_size"])
        flags.append(("--moe-shared-expert-intermediate-size", shared))
    if sizes.get("expert_hidden_size"):
        flags.append(("--moe-latent-size", str(sizes["expert_hidden_size"])))
    if dense := shape.count("mlp"):
        sparse = [i >= dense for i in range(shape.layers)]
        flags.append(("--moe-layer-freq", _pattern(sparse)))
    return [*flags, ("--moe-grouped-gemm", None)]


def _tables(model: Model) -> Flags:
    flags: Flags = [
        ("--vocab-size", str(model.vocab_size)),
        ("--make-vocab-size-divisible-by", str(VOCABULARY_MULTIPLE)),
    ]
    if not model.tied_embeddings:
        flags.append(("--untie-embeddings-and-output-weights", None))
    return flags


def _layout(shape: Shape, degrees: Mapping[str, int]) -> Flags:
    tensor, pipeline, expert = degrees["tensor"], degrees["pipeline"], degrees["expert"]
    flags: Flags = [
        ("--tensor-model-parallel-size", str(tensor)),
        ("--pipeline-model-parallel-size", str(pipeline)),
    ]
    if (ends := end_stages(shape.layers, pipeline)) is not None:
        flags += [
            ("--decoder-first-pipeline-num-layers", str(ends[0])),
            ("--decoder-last-pipeline-num-layers", str(ends[1])),
        ]
    if not shape.of("moe"):
        return flags
    group = tensor * degrees["data"]
    flags += [
        ("--expert-model-parallel-size", str(expert)),
        ("--expert-tensor-parallel-size", str(group // expert)),
    ]
    # Megatron-LM refuses tensor and expert parallelism together without it.
    return [*flags, ("--sequence-parallel", None)] if tensor > 1 else flags


def _frequency(types: list[str]) -> str:
    """N where every N-th layer is full, as the arguments read a number, else the list."""
    step = types.index(FULL) + 1
    if all((name == FULL) == ((i + 1) % step == 0) for i, name in enumerate(types)):
        return str(step)
    return _pattern(name != FULL for name in types)


def _pattern(ones: Iterable[bool]) -> str:
    """A list of 0 and 1 a layer as the expression that the arguments evaluate."""
    runs: list[list[int]] = []
    for value in map(int, ones):
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return "(" + "+".join(f"[{value}]*{n}" for value, n in runs) + ")"


def end_stages(layers: int, stages: int) -> tuple[int, int] | None:
    """Layers of the first and of the last stage, where they do not divide evenly: the stages
    between are of one size, and the fullest stage is as small as that allows; of the two ends the
    last has fewer, which also has the output head. None where all are alike."""
    if layers % stages == 0:
        return None
    most, between = -(-layers // stages), stages - 2
    if layers - most * between < 2:  # too few are left for the ends
        most -= 1
    left = layers - most * between
    return -(-left // 2), left // 2


def stage_words(layers: int, stages: int) -> tuple[str, ...]:
    """What a reader has to know of stages that differ."""
    ends = end_stages(layers, stages)
    if ends is None:
        return ()
    text = f"{layers} layers in {stages} stages: {ends[0]} in the first, {ends[1]} in the last"
    if stages > 2:
        text += f", {(layers - sum(ends)) // (stages - 2)} in each between"
    if ends[0] > -(-layers // stages):
        text += "; --pipeline-model-parallel-layout can share them out more evenly"
    return (text,)
