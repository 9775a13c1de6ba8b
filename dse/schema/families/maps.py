"""Maps that families share: the sizes of each kind of layer and their usual keys."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families.engine import Guard, Section, Stack, noted
from dse.schema.families.feed_forward import ALL_DENSE, ALL_SPARSE
from dse.schema.families.fields import Const, Field, Flag, Own, Same, Size, Times, Unwritten
from dse.schema.families.patterns import (
    ALL_FULL,
    CHUNKED,
    DENSE,
    FULL,
    LATENT,
    SLIDING,
    SPARSE,
    Pattern,
)
from dse.schema.families.reader import HEADS, REQUIRED, ConfigReader
from dse.schema.families.shape import GATED, PLAIN, Cannot, Config, Shape, Sizes

Fields = Mapping[str, Field]
NO_WINDOW = {"window": Const(0, "it has no sliding window")}
BOTH = (0, 1)
MLP_BIAS = noted("mlp_bias", "the biases of the feed-forward layers are not counted", None)
LATENT_BIAS = noted("attention_bias", "the biases of latent attention are not counted")


def as_heads(reader: ConfigReader, sizes: Sizes) -> int:
    return sizes["heads"]


def zero(reader: ConfigReader, sizes: Sizes) -> int:
    return 0


# Grouped-query attention.


def _bias(bias: bool | str, default: bool, only: tuple[int, ...]) -> Field:
    none = "it has no bias of query, key and value, unlike the shape"
    some = "it has a bias of query, key and value, unlike the shape"
    if not isinstance(bias, str):
        return Const(int(bias), some if bias else none)
    flag = Flag(bias, default, only, none if 0 in only else some)
    return flag if only else Unwritten(flag, none)


def _divided(reader: ConfigReader, heads: int) -> int:
    if reader.hidden % heads:
        raise reader.refuse("head_dim", f"absent, and {heads} heads do not divide {reader.hidden}")
    return reader.hidden // heads


def head_dim_of_hidden(reader: ConfigReader, sizes: Sizes) -> int:
    """What null means where `head_dim` is a key."""
    found = _divided(reader, sizes["heads"])
    reader.assume(f"head_dim absent: hidden_size / num_attention_heads, {found}")
    return found


def _whole(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value * sizes["heads"] != shape.hidden:
        raise Cannot("its heads together are as wide as the hidden size")
    return {}


# The class divides the hidden size by the heads; some files name the size all the same.
HEAD_DIM_OF_HIDDEN = Own({}, lambda reader, sizes: _divided(reader, sizes["heads"]), _whole)
HEAD_DIM_READ = Own(
    {"head_dim": None},
    lambda reader, sizes: reader.optional_integer("head_dim") or head_dim_of_hidden(reader, sizes),
    _whole,
)


def heads(
    bias: bool | str = False,
    *,
    bias_default: bool = False,
    biased: tuple[int, ...] = BOTH,
    head_dim: Field | str | None = "head_dim",
    key_values: str | None = "num_key_value_heads",
    also: tuple[str, ...] = (),
) -> dict[str, Field]:
    """Heads of grouped-query attention. `bias` of query, key and value: a key, or what every model
    of the class has; `biased` is what the class may be written with, nothing if it has no key.
    Without a key, there are as many key and value heads as query heads, and heads are as wide
    together as the hidden size."""
    one = "it has as many key and value heads as query heads"
    found: dict[str, Field] = {"heads": Size("num_attention_heads")}
    if key_values is not None:
        found["kv_heads"] = Size(key_values, HEADS, null=as_heads)
    else:
        found["kv_heads"] = Same("heads", one)
    if isinstance(head_dim, str):
        found["head_dim"] = Size(head_dim, None, null=head_dim_of_hidden, also=also)
    else:
        found["head_dim"] = head_dim or HEAD_DIM_OF_HIDDEN
    found["v_head_dim"] = Same("head_dim", "its keys and values have heads of one size")
    found["qkv_bias"] = _bias(bias, bias_default, biased)
    return found


def full(sizes: Fields, **others: Field) -> Section:
    """Layers without a window."""
    return Section("gqa", {**sizes, **NO_WINDOW, **others})


def sliding(sizes: Fields, default: object = None) -> Section:
    return Section("gqa", {**sizes, "window": Size("sliding_window", default)}, optional=True)


def grouped(sizes: Fields, **others: Field) -> Stack:
    """Grouped-query attention over the whole context in every layer."""
    return Stack(ALL_FULL, {FULL: full(sizes, **others)})


def windowed(pattern: Pattern, sizes: Fields) -> Stack:
    """Grouped-query attention, some layers with a window."""
    return Stack(pattern, {FULL: full(sizes), SLIDING: sliding(sizes)})


def chunked(pattern: Pattern, sizes: Fields) -> Stack:
    chunks = {**sizes, **NO_WINDOW, "chunk": Size("attention_chunk_size", 8192)}
    return Stack(pattern, {FULL: full(sizes), CHUNKED: Section("gqa", chunks)})


# Latent attention. Its cache is not divided by heads: `num_key_value_heads` is written as the
# class has it, and says nothing.


def latent_sizes(q_lora_rank: object = 1536) -> dict[str, Field]:
    """`q_lora_rank` null means that queries are projected directly."""
    return {
        "heads": Size("num_attention_heads", also=("num_key_value_heads",)),
        "q_lora_rank": Size("q_lora_rank", q_lora_rank, null=zero),
        "kv_lora_rank": Size("kv_lora_rank", 512),
        "qk_nope_head_dim": Size("qk_nope_head_dim", 128),
        "qk_rope_head_dim": Size("qk_rope_head_dim", 64),
        "v_head_dim": Size("v_head_dim", 128),
    }


LATENT_ATTENTION = Stack(LATENT, {FULL: Section("mla", latent_sizes())}, (LATENT_BIAS,))


def indexed(pattern: Pattern) -> Stack:
    """Latent attention whose layers choose what they read of the cache: with an indexer of their
    own, or as the last one that has one."""
    rank = "its indexer works on the query rank, and the shape has none"
    sizes = {
        **latent_sizes(),
        "q_lora_rank": Size("q_lora_rank", 1536, null=zero, needs=rank),
        "index_topk": Size("index_topk", 2048),
    }
    own = {"index_heads": Size("index_n_heads", 64), "index_head_dim": Size("index_head_dim", 128)}
    none = dict.fromkeys(own, Const(0, "it has an indexer"))
    sections = {
        "full": Section("mla", {**sizes, **own}),
        "shared": Section("mla", {**sizes, **none}),
    }
    return Stack(pattern, sections, (LATENT_BIAS,))


# Feed-forward layers.


def matrices(count: int) -> dict[str, Field]:
    sort = "gated" if count == GATED else "plain"
    return {"matrices": Const(count, f"its feed-forward layers are {sort}", near=False)}


def mlp(
    width: Field | str = "intermediate_size",
    count: int = GATED,
    *,
    optional: bool = False,
    filled: bool = False,
) -> Section:
    own = Size(width) if isinstance(width, str) else width
    return Section("mlp", {"intermediate_size": own, **matrices(count)}, optional, filled)


def dense(width: str = "intermediate_size", *, bias: bool = False) -> Stack:
    """Gated layers; `bias`: the class may have biases, which are not counted."""
    return Stack(ALL_DENSE, {DENSE: mlp(width)}, (MLP_BIAS,) if bias else ())


def _four(reader: ConfigReader, sizes: Sizes) -> int:
    return 4 * reader.hidden


def _written_four(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value != 4 * shape.hidden:
        raise Cannot("its feed-forward is four times as wide as the hidden size")
    return {}


FOUR_TIMES = Own({}, _four, _written_four)


def plain(width: Field | str, default: object = REQUIRED, *, bias: bool = False) -> Stack:
    """Layers of two matrices; a width of null is four times the hidden size."""
    own = Size(width, default, null=_four) if isinstance(width, str) else width
    return Stack(ALL_DENSE, {DENSE: mlp(own, PLAIN)}, (MLP_BIAS,) if bias else ())


NO_SHARED = Const(0, "it has no shared experts")
SHARED_NEEDED = "it has a shared expert, and the shape has none"


def shared_count(key: str = "n_shared_experts", default: object = None, needs: str = "") -> Times:
    """As many shared experts as the key says, each as wide as a routed one."""
    why = "its shared experts are as wide as routed ones, {unit}, and the shape's {value}"
    return Times(key, "expert_intermediate_size", why, default, least=0, needs=needs)


def shared_width(key: str, default: object = REQUIRED, needs: str = SHARED_NEEDED) -> Size:
    """Shared experts as wide together as the key says."""
    return Size(key, default, least=0, needs=needs)


def experts(
    count: str = "num_experts",
    chosen: str = "num_experts_per_tok",
    width: Field | str = "moe_intermediate_size",
    shared: Field = NO_SHARED,
    *,
    defaults: tuple[object, object, object] = (REQUIRED, REQUIRED, REQUIRED),
    least: int = 1,
    count_matrices: int = GATED,
    narrow: Field | None = None,
    bias: Field | None = None,
    optional: bool = False,
) -> Section:
    """A sparse layer; `shared` is the width of all shared experts together, `narrow` the width
    of the latent that the experts work on, `bias` whether they have biases. `defaults` are those of
    the three keys."""
    own = Size(width, defaults[2], uniform=True) if isinstance(width, str) else width
    sizes: dict[str, Field] = {
        "expert_intermediate_size": own,
        "experts": Size(count, defaults[0], least, uniform=True),
        "experts_per_token": Size(chosen, defaults[1], uniform=True),
        "shared_intermediate_size": shared,
        **matrices(count_matrices),
    }
    if narrow is not None:
        sizes["expert_hidden_size"] = narrow
    if bias is not None:
        sizes["expert_bias"] = bias
    written = ("experts", "experts_per_token", "expert_intermediate_size")
    ordered = {name: sizes[name] for name in (*written, *sizes)}
    return Section("moe", ordered, optional)


def sparse(
    pattern: Pattern,
    layer: Section,
    width: str = "intermediate_size",
    guards: tuple[Guard, ...] = (),
) -> Stack:
    """Sparse layers beside dense ones."""
    alone = mlp(width, optional=True, filled=True)
    return Stack(pattern, {DENSE: alone, SPARSE: layer}, guards)


def all_sparse(layer: Section) -> Stack:
    return Stack(ALL_SPARSE, {SPARSE: layer})


# States.


def mamba2(inner: Field, count: str, groups: str, state: str, conv: str) -> Section:
    """Mamba-2: heads and groups. The defaults are the family's own."""
    why = "its state-space layers are Mamba-2"
    return Section(
        "mamba",
        {
            "heads": Size(count, needs=why),
            "inner_size": inner,
            "groups": Size(groups),
            "state_size": Size(state),
            "conv_width": Size(conv),
            "dt_rank": Const(0, why),
        },
    )
