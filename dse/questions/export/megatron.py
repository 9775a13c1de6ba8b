"""Megatron-LM arguments of a shape, for `pretrain_gpt.py`. Names: megatron-core 0.16.1
(transformer/transformer_config.py, model_parallel_config.py) and Megatron-LM megatron/training/
arguments.py (2026-11), which makes flags of the fields of the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dse.errors import InputError
from dse.questions.export.files import TOOLS, flags_of
from dse.schema.families.config import FULL, PLAIN, Cannot, Shape, spread
from dse.schema.huggingface import ARCHITECTURES, note_of, published_class, write_config
from dse.schema.model import Model

MEGATRON = "0.16.1"
VOCABULARY_MULTIPLE = 128  # --make-vocab-size-divisible-by, its default
Flags = list[tuple[str, str | None]]
Facts = dict[str, Any]

TABLES, PUBLISHED = TOOLS["megatron"], TOOLS["published"]


def arguments(
    model: Model, degrees: Mapping[str, int], sequence: int
) -> tuple[Flags, tuple[str, ...]]:
    """(flags of the shape and of the layout, what they do not say). `degrees`: tensor, pipeline,
    expert, and data, the ranks beside tensor parallelism over which experts are divided as well.
    Raises InputError for what Megatron-LM's GPT models have no argument for."""
    shape = Shape(model)
    try:
        whole = _whole(shape, sequence)
        flags = flags_of(TABLES["shape"], whole)
        flags += _latent(shape) if shape.of("mla") else _grouped(shape, whole)
        flags += _feed_forward(shape)
        flags += flags_of(TABLES["vocabulary"], whole)
    except Cannot as reason:
        raise InputError(
            f"{model.name}: not written as Megatron-LM arguments: {reason}",
            field="model",
            accepted="another format, or another shape",
        ) from reason
    flags, unsaid = _published(model, flags)
    ends = end_stages(shape.layers, degrees["pipeline"]) or (None, None)
    tensor = degrees["tensor"]
    layout = {
        **{**whole, **degrees, "first": ends[0], "last": ends[1]},
        "experts_tensor": tensor * degrees["data"] // degrees["expert"],
        "tensor_divides": tensor > 1,
    }
    return [*flags, *flags_of(TABLES["layout"], layout)], unsaid


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
        "positions": rows or sequence,
        "position_type": "learned_absolute" if rows else "rope",
        "vocabulary_multiple": VOCABULARY_MULTIPLE,
        "sparse": bool(shape.of("moe")),
        "vocab_size": shape.model.vocab_size,
        "tied_embeddings": shape.model.tied_embeddings,
    }


def _feed_forward(shape: Shape) -> Flags:
    matrices = {int(block.sizes["matrices"]) for block in (*shape.of("mlp"), *shape.of("moe"))}
    if len(matrices) > 1:
        raise Cannot("its feed-forward layers are all gated or all plain")
    dense = {"dense_width": shape.dense_width(), "gated": matrices != {PLAIN}}
    flags = flags_of(TABLES["feed_forward"], dense)
    if not shape.of("moe"):
        return flags
    first = shape.count("mlp")
    layers = _pattern(i >= first for i in range(shape.layers)) if first else None
    sizes = {name: int(value) for name, value in shape.one("moe").sizes.items()}
    return flags + flags_of(TABLES["experts"], {**sizes, "sparse_layers": layers})


def _latent(shape: Shape) -> Flags:
    index = ("index_heads", "index_head_dim", "index_topk")
    shape.only("mla", "mlp", "moe", optional=(*index, "expert_hidden_size"))
    sizes = shape.one("mla").sizes
    indexer = TABLES["indexer"] if sizes.get("index_topk") else {}
    return flags_of({**TABLES["latent"], **indexer}, sizes)


def _grouped(shape: Shape, whole: Facts) -> Flags:
    gate = ("output_gate",) if shape.of("delta_net") else ()
    shape.only(
        *("gqa", "delta_net", "mlp", "moe", "positions"),
        optional=(*gate, "expert_hidden_size", "expert_bias"),
    )
    sizes, window, types = shape.heads()
    every = _frequency(types) if window and FULL in types else None
    facts = {
        **{**whole, **sizes, "window": window, "full_every": every},
        "grouped": sizes["kv_heads"] != sizes["heads"],
        "before": window - 1,
    }
    flags = flags_of(TABLES["grouped"], facts)
    if not shape.of("delta_net"):
        return flags
    linear = shape.one("delta_net").sizes
    if (linear["gates_per_head"], linear["decay_rank"], linear["output_gate_rank"]) != (2, 0, 0):
        raise Cannot("its linear attention is the gated delta-net: two gates a head, no rank")
    every = _frequency(spread(shape.layers, shape.count("gqa"), FULL, "linear"))
    return flags + flags_of(TABLES["delta_net"], {**sizes, **linear, "full_every": every})


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
    if any(what in PUBLISHED["biases"] for what in beyond):
        dropped |= {"--disable-bias-linear", "--add-qkv-bias"}
    if "biases of layer norms" in beyond:
        dropped.add("--normalization")
    if name == "GptOssForCausalLM":
        dropped.add("--swiglu")
    own = [PUBLISHED["beyond"].get(what, {}) for what in beyond]
    kept = [flag for flag in flags if flag[0] not in dropped]
    more = [
        flag for table in (*own, PUBLISHED["classes"].get(name, {})) for flag in flags_of(table, {})
    ]
    more = [flag for flag in more if flag not in kept]
    unsaid = [what for what in beyond if what not in (*PUBLISHED["beyond"], *PUBLISHED["biases"])]
    unsaid += [text for text in (PUBLISHED["unsaid"].get(name), note_of(name)) if text]
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
