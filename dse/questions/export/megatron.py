"""Megatron-LM arguments of a shape, for `pretrain_gpt.py`. Names: megatron-core 0.16.1
(transformer/transformer_config.py, model_parallel_config.py) and Megatron-LM megatron/training/
arguments.py (2026-11), which makes flags of the fields of the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dse.errors import InputError
from dse.questions.export.files import Flag, flags_of, switch
from dse.schema.architectures import ARCHITECTURES, note_of, published_class, write_config
from dse.schema.families.shape import FULL
from dse.schema.families.shape import PLAIN, Cannot, Shape, spread
from dse.schema.model import Model

MEGATRON = "0.16.1"
VOCABULARY_MULTIPLE = 128  # --make-vocab-size-divisible-by, its default
Flags = list[tuple[str, str | None]]
Facts = dict[str, Any]

# Arguments of the shape as a whole, of each kind of block, and of the layout; each reads the sizes
# of the block and what the functions below work out.
SHAPE = (
    Flag("--num-layers", "layers"),
    Flag("--hidden-size", "hidden_size"),
    Flag("--seq-length", "sequence"),
    Flag("--max-position-embeddings", lambda of: of["rows"] or of["sequence"]),
    Flag("--position-embedding-type", lambda of: "learned_absolute" if of["rows"] else "rope"),
    # Gated models have no bias and no mean in their norms; those with learned positions have.
    Flag("--normalization", lambda of: None if of["rows"] else "RMSNorm"),
    switch("--disable-bias-linear", lambda of: not of["rows"]),
)
GROUPED = (
    Flag("--num-attention-heads", "heads"),
    Flag("--kv-channels", "head_dim"),
    switch("--group-query-attention", lambda of: of["kv_heads"] != of["heads"]),
    Flag(
        "--num-query-groups", lambda of: of["kv_heads"] if of["kv_heads"] != of["heads"] else None
    ),
    switch("--add-qkv-bias", lambda of: of["qkv_bias"] and not of["rows"]),
    # A token attends to itself and to window - 1 before it.
    Flag("--window-size", lambda of: f"{of['window'] - 1},0" if of["window"] else None),
    Flag("--window-attn-skip-freq", "full_every"),
)
LATENT = (
    switch("--multi-latent-attention", lambda of: True),
    Flag("--num-attention-heads", "heads"),
    Flag("--q-lora-rank", "q_lora_rank", unless=0),
    Flag("--kv-lora-rank", "kv_lora_rank"),
    Flag("--qk-head-dim", "qk_nope_head_dim"),
    Flag("--qk-pos-emb-head-dim", "qk_rope_head_dim"),
    Flag("--v-head-dim", "v_head_dim"),
    switch("--qk-layernorm", lambda of: True),  # of the latents
)
INDEXER = (
    Flag("--experimental-attention-variant", lambda of: "dsa"),
    Flag("--dsa-indexer-n-heads", "index_heads"),
    Flag("--dsa-indexer-head-dim", "index_head_dim"),
    Flag("--dsa-indexer-topk", "index_topk"),
)
DELTA_NET = (
    Flag("--experimental-attention-variant", lambda of: "gated_delta_net"),
    Flag("--linear-attention-freq", "full_every"),
    Flag("--linear-conv-kernel-dim", "conv_width"),
    Flag("--linear-key-head-dim", "key_head_dim"),
    Flag("--linear-value-head-dim", "value_head_dim"),
    Flag("--linear-num-key-heads", "key_heads"),
    Flag("--linear-num-value-heads", "value_heads"),
    switch("--attention-output-gate", lambda of: of.get("output_gate")),
)
FEED_FORWARD = (
    Flag("--ffn-hidden-size", "dense_width"),
    switch("--swiglu", lambda of: of["gated"]),
)
EXPERTS = (
    Flag("--num-experts", "experts"),
    Flag("--moe-router-topk", "experts_per_token"),
    Flag("--moe-ffn-hidden-size", "expert_intermediate_size"),
    Flag("--moe-shared-expert-intermediate-size", "shared_intermediate_size", unless=0),
    Flag("--moe-latent-size", "expert_hidden_size", unless=0),
    Flag("--moe-layer-freq", "sparse_layers"),
    switch("--moe-grouped-gemm", lambda of: True),
)
VOCABULARY = (
    Flag("--vocab-size", "vocab_size"),
    Flag("--make-vocab-size-divisible-by", lambda of: VOCABULARY_MULTIPLE),
    switch("--untie-embeddings-and-output-weights", lambda of: not of["tied_embeddings"]),
)
LAYOUT = (
    Flag("--tensor-model-parallel-size", "tensor"),
    Flag("--pipeline-model-parallel-size", "pipeline"),
    Flag("--decoder-first-pipeline-num-layers", "first"),
    Flag("--decoder-last-pipeline-num-layers", "last"),
    Flag("--expert-model-parallel-size", lambda of: of["expert"] if of["sparse"] else None),
    Flag(
        "--expert-tensor-parallel-size",
        lambda of: of["tensor"] * of["data"] // of["expert"] if of["sparse"] else None,
    ),
    # Megatron-LM refuses tensor and expert parallelism together without it.
    switch("--sequence-parallel", lambda of: of["sparse"] and of["tensor"] > 1),
)

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
        whole = _whole(shape, sequence)
        flags = flags_of(SHAPE, whole)
        flags += _latent(shape) if shape.of("mla") else _grouped(shape, whole)
        flags += _feed_forward(shape)
        flags += flags_of(VOCABULARY, whole)
    except Cannot as reason:
        raise InputError(
            f"{model.name}: not written as Megatron-LM arguments: {reason}",
            field="model",
            accepted="another format, or another shape",
        ) from reason
    flags, unsaid = _published(model, flags)
    ends = end_stages(shape.layers, degrees["pipeline"]) or (None, None)
    layout = {**whole, **degrees, "first": ends[0], "last": ends[1]}
    return [*flags, *flags_of(LAYOUT, layout)], unsaid


def _whole(shape: Shape, sequence: int) -> Facts:
    """What the arguments say of the shape as a whole."""
    rows = int(shape.one("positions").sizes["rows"]) if shape.of("positions") else None
    if rows is not None and sequence > rows:
        raise Cannot(f"a sequence of {sequence} has no learned positions beyond {rows}")
    return {
        "layers": shape.layers,
        "hidden_size": shape.hidden,
        "sequence": sequence,
        "rows": rows,
        "sparse": bool(shape.of("moe")),
        "vocab_size": shape.model.vocab_size,
        "tied_embeddings": shape.model.tied_embeddings,
    }


def _feed_forward(shape: Shape) -> Flags:
    matrices = {int(block.sizes["matrices"]) for block in (*shape.of("mlp"), *shape.of("moe"))}
    if len(matrices) > 1:
        raise Cannot("its feed-forward layers are all gated or all plain")
    dense = {"dense_width": shape.dense_width(), "gated": matrices != {PLAIN}}
    flags = flags_of(FEED_FORWARD, dense)
    if not shape.of("moe"):
        return flags
    first = shape.count("mlp")
    layers = _pattern(i >= first for i in range(shape.layers)) if first else None
    sizes = {name: int(value) for name, value in shape.one("moe").sizes.items()}
    return flags + flags_of(EXPERTS, {**sizes, "sparse_layers": layers})


def _latent(shape: Shape) -> Flags:
    index = ("index_heads", "index_head_dim", "index_topk")
    shape.only("mla", "mlp", "moe", optional=(*index, "expert_hidden_size"))
    sizes = shape.one("mla").sizes
    return flags_of((*LATENT, *INDEXER) if sizes.get("index_topk") else LATENT, sizes)


def _grouped(shape: Shape, whole: Facts) -> Flags:
    gate = ("output_gate",) if shape.of("delta_net") else ()
    shape.only(
        *("gqa", "delta_net", "mlp", "moe", "positions"),
        optional=(*gate, "expert_hidden_size", "expert_bias"),
    )
    sizes, window, types = shape.heads()
    every = _frequency(types) if window and FULL in types else None
    flags = flags_of(GROUPED, {**whole, **sizes, "window": window, "full_every": every})
    if not shape.of("delta_net"):
        return flags
    linear = shape.one("delta_net").sizes
    if (linear["gates_per_head"], linear["decay_rank"], linear["output_gate_rank"]) != (2, 0, 0):
        raise Cannot("its linear attention is the gated delta-net: two gates a head, no rank")
    every = _frequency(spread(shape.layers, shape.count("gqa"), FULL, "linear"))
    return flags + flags_of(DELTA_NET, {**sizes, **linear, "full_every": every})


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
