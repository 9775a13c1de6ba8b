"""Sizes of layers, and which layers are of which sort, from the keys of a configuration that say
them and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from dse.record import record
from dse.schema.families.config import (
    FULL,
    REQUIRED,
    SLIDING,
    Cannot,
    Config,
    ConfigReader,
    Shape,
    Sizes,
    spread,
)

Read = Callable[[ConfigReader, Sizes], int]
Write = Callable[[int, Sizes, Shape], Config]
Keys = Mapping[str, object]


@record
class Size:
    """What families.yaml says of a size; most are a whole number under a `key`.

    Of a number: `default` is the value of an absent key and `if_null` what null means: 0, one of
    NULLS, or a key in whose place it stands; without it null is refused. A size of 0 is written as
    null where null means something. `uniform`: the file may give one number a layer as long as all
    are equal. `also` are further keys that are written alike and not read. The size is the number
    `times` another size of the layer or the hidden size, or times the number under the key `unit`,
    which is written as `unit_default`; `plus` is added.

    A `flag` is a size of 0 or 1 under a key that is true or false; `only` are those that the class
    may be written with. Without a key, every layer of the class has the `value`, or `multiple`
    times the `same` other size. `own` names the functions of OWN_SIZES that read and write `keys`.

    Writing raises Cannot where the class has no keys for a size: with `why` in general (a `value`
    without it is never refused), with `needs` for a size of 0, with `unwritten` for any but 0, of a
    key that some files have and the class has not. `near` as in Cannot.
    """

    key: str = ""
    default: object = REQUIRED
    least: int = 1
    if_null: int | str | None = None
    uniform: bool = False
    also: tuple[str, ...] = ()
    times: str = ""
    unit: str = ""
    unit_default: int = 1
    plus: int = 0
    flag: bool = False
    only: tuple[int, ...] = (0, 1)
    value: int | None = None
    same: str = ""
    multiple: int = 1
    own: str = ""
    own_keys: Keys = field(default_factory=dict)
    why: str = ""
    needs: str = ""
    unwritten: str = ""
    near: bool = True

    @property
    def keys(self) -> Keys:
        """The keys that are read, each with the value that an absent one has."""
        if not self.key:
            return self.own_keys
        unit = {self.unit: self.unit_default} if self.unit else {}
        return {**dict.fromkeys(self.also), self.key: self.default, **unit}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        """The size; `sizes` are those of the same layer that are read already."""
        if self.own:
            return OWN_SIZES[self.own][0](reader, sizes)
        if self.value is not None:
            return self.value
        if self.same:
            return self.multiple * {"hidden_size": reader.hidden, **sizes}[self.same]
        if self.flag:
            return int(reader.boolean(self.key))
        unit = 1
        if self.times:
            unit = reader.hidden if self.times == "hidden_size" else sizes[self.times]
        elif self.unit:
            unit = reader.optional_integer(self.unit, self.least) or 0
        return self._number(reader, sizes) * unit + self.plus

    def _number(self, reader: ConfigReader, sizes: Sizes) -> int:
        least = 1 if self.unit else self.least
        if self.uniform:
            reader.collapse(self.key)
        if self.if_null is None:
            return reader.integer(self.key, least)
        if found := reader.optional_integer(self.key, least):
            return found
        if isinstance(self.if_null, int):
            return self.if_null
        if self.if_null in NULLS:
            return NULLS[self.if_null](reader, sizes)
        if self.uniform:
            reader.collapse(self.if_null)
        return reader.integer(self.if_null)

    def write(self, value: int, sizes: Sizes, shape: Shape) -> Config:
        """The keys that say the size; `sizes` are all of the same layer."""
        if self.unwritten:
            if value:
                raise Cannot(self.unwritten)
            return {}
        if self.own:
            return OWN_SIZES[self.own][1](value, sizes, shape)
        if self.needs and not value:
            raise Cannot(self.needs)
        others = {"hidden_size": shape.hidden, **sizes}
        if self.value is not None or self.same:
            meant = self.value if self.value is not None else self.multiple * others[self.same]
            if self.why and value != meant:
                raise Cannot(self.why, near=self.near)
            return {}
        if self.flag:
            if value not in self.only:
                raise Cannot(self.why)
            return {self.key: bool(value)}
        unit = others[self.times] if self.times else self.unit_default
        number, rest = divmod(value - self.plus, unit)
        if rest:
            units = "its {key} counts in units of {unit}"
            raise Cannot((self.why or units).format(key=self.key, unit=unit, value=value))
        if self.plus and number < 1:
            raise Cannot(self.why)
        null = self.if_null is not None and not self.times and not number
        written = dict.fromkeys((self.key, *self.also), None if null else number)
        return {self.unit: unit, **written} if self.unit else written

    @property
    def lacking(self) -> bool:
        """Whether the class lacks what another size would be: a kind of layer is refused first."""
        return bool(self.unwritten) or (self.value is not None and not self.near)

    def fits(self, value: int) -> bool:
        """Whether a layer with this size may be one of these."""
        if self.unwritten:
            return not value
        if self.own or self.same or self.times or self.unit or self.plus:
            return True
        if self.value is not None:
            return not self.why or value == self.value
        if self.flag:
            return value in self.only
        return value >= self.least or self.if_null is not None


def _divided(reader: ConfigReader, sizes: Sizes) -> int:
    heads = sizes["heads"] if "heads" in sizes else sizes["key_heads"]
    if reader.hidden % heads:
        raise reader.refuse("head_dim", f"absent, and {heads} heads do not divide {reader.hidden}")
    return reader.hidden // heads


def _noted_head_dim(reader: ConfigReader, sizes: Sizes) -> int:
    """What null means where `head_dim` is a key."""
    found = _divided(reader, sizes)
    reader.assume(f"head_dim absent: hidden_size / num_attention_heads, {found}")
    return found


def _full_head_dim(reader: ConfigReader, sizes: Sizes) -> int:
    found = reader.optional_integer("head_dim")
    return found or reader.hidden // reader.integer("num_attention_heads")


# What null means, by the word of families.yaml.
NULLS: Mapping[str, Read] = {
    "heads": lambda reader, sizes: sizes["heads"],
    "hidden_size / heads": _noted_head_dim,
    "4 hidden_size": lambda reader, sizes: 4 * reader.hidden,
    "head_dim of full layers": _full_head_dim,
}


def _whole(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value * sizes["heads"] != shape.hidden:
        raise Cannot("its heads together are as wide as the hidden size")
    return {}


def _read_head_dim(reader: ConfigReader, sizes: Sizes) -> int:
    return reader.optional_integer("head_dim") or _noted_head_dim(reader, sizes)


def _falcon_heads(reader: ConfigReader, sizes: Sizes) -> int:
    """One KV head (multi_query), unless the newer decoder names a number of them."""
    if reader.boolean("new_decoder_architecture"):
        return reader.optional_integer("num_kv_heads") or sizes["heads"]
    return 1 if reader.boolean("multi_query") else sizes["heads"]


def _falcon_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value in (1, sizes["heads"]):
        return {"new_decoder_architecture": False, "multi_query": value == 1}
    return {"new_decoder_architecture": True, "num_kv_heads": value}


def _residual(reader: ConfigReader, sizes: Sizes) -> int:
    """A dense feed-forward beside the experts, as wide as the hidden size."""
    beside = reader.boolean("use_residual") or reader.boolean("parallel_attn_mlp_res")
    return reader.hidden if beside else 0


def _residual_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value not in (0, shape.hidden):
        raise Cannot("the feed-forward beside its experts is as wide as the hidden size")
    return {"use_residual": bool(value), "parallel_attn_mlp_res": False}


_FULL_RANK = "linear_attn_config.use_full_rank_gate"


def _kimi_rank(reader: ConfigReader, sizes: Sizes) -> int:
    return 0 if reader.boolean(_FULL_RANK) else sizes["key_head_dim"]


def _gate_of_rank(*, full: bool) -> Write:
    """Kimi Linear has no key for a gate of `full` rank in transformers."""

    def write(value: int, sizes: Sizes, shape: Shape) -> Config:
        if value != sizes["key_head_dim"] and not (full and not value):
            raise Cannot("its linear attention is Kimi delta attention, of ranks as wide as a head")
        return {_FULL_RANK: not value} if full else {}

    return write


def _granite_read(reader: ConfigReader, sizes: Sizes) -> int:
    inner, size = reader.integer("mamba_expand") * reader.hidden, reader.value("mamba_d_head")
    if size not in (None, "auto") and reader.integer("mamba_d_head") * sizes["heads"] != inner:
        raise reader.refuse("mamba_d_head", f"{size} of {sizes['heads']} heads is not {inner}")
    return inner


def _granite_written(value: int, sizes: Sizes, shape: Shape) -> Config:
    if value % shape.hidden or value % sizes["heads"]:
        raise Cannot("its inner size is a multiple of the hidden size and of its heads")
    return {"mamba_expand": value // shape.hidden, "mamba_d_head": value // sizes["heads"]}


def _time_step(reader: ConfigReader, sizes: Sizes) -> int:
    if reader.value("mamba_dt_rank") == "auto":
        return -(-reader.hidden // 16)
    return reader.integer("mamba_dt_rank")


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


# Sizes that no key says alone, by their name in families.yaml.
OWN_SIZES: Mapping[str, tuple[Read, Write]] = {
    "hidden_size / heads": (_divided, _whole),
    "head_dim, as wide as the hidden size": (_read_head_dim, _whole),
    "falcon_kv_heads": (_falcon_heads, _falcon_written),
    "arctic_residual": (_residual, _residual_written),
    "low-rank gate": (_kimi_rank, _gate_of_rank(full=False)),
    "gate of any rank": (_kimi_rank, _gate_of_rank(full=True)),
    "granite_inner_size": (_granite_read, _granite_written),
    "jamba_time_step": (_time_step, lambda value, sizes, shape: {"mamba_dt_rank": value}),
    "gemma4_kv_heads": (_global_heads, _global_written),
}


# Which layers are of which sort: read from the keys that say it, and written from the number of
# layers of each sort.

CHUNKED, LINEAR = "chunked_attention", "linear_attention"
SPARSE_LATENT = "deepseek_sparse_attention"
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"

Counts = Mapping[str, int]
Names = list[str]


@record
class Pattern:
    """The `rule` of a stack of layers in families.yaml: which of them are of the second sort, the
    others of the first. `sorts` are the names of the stack's sorts.

    `flags` is a key of one 0 or 1 a layer, where the file has it (`flags_mark: first`: of the first
    sort); `members` one of the numbers of the layers. Else the layers from `first` on, up to `last`
    (-1: the last of all) or below `before`, if the `switch` is true, the key `given` is no null and
    that of `count` above 0: all of them or those i with i % every == offset (without an offset,
    every n-th), turned around with `inverse`, and not those of the list `except`. Each is a key or
    a number. `own` names a reader of OWN_PATTERNS instead.

    `layer_types`: the file's own list of names goes before all that; those that it may hold, or the
    sort that each stands for. `unless_listed`: with such a list, no other key is read. `once`: it
    is no layer, and there is one of it.

    Written are the keys `write`, and those of `some` or `none` as there are layers of the second
    sort or not; a value may be one of WRITTEN. `needs` and `never` are the reasons why a shape
    without or with layers of a sort cannot be written, `never_both` of one with two sorts.
    """

    sorts: tuple[str, ...]
    keys: Mapping[str, object] = field(default_factory=dict)
    once: bool = False
    layer_types: Mapping[str, str] = field(default_factory=dict)
    unless_listed: bool = False
    own: str = ""
    flags: str = ""
    flags_mark: str = "second"
    members: str = ""
    switch: str = ""
    given: str = ""
    count: str = ""
    first: str | int = 0
    before: str | int | None = None
    last: str = ""
    every: str | int = 1
    offset: str | int | None = None
    inverse: bool = False
    excepted: str = ""
    write: Config = field(default_factory=dict)
    some: Config = field(default_factory=dict)
    none: Config = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    never: Mapping[str, str] = field(default_factory=dict)
    never_both: str = ""

    def read(self, reader: ConfigReader) -> Names:
        """The sort of each layer."""
        if self.own:
            return OWN_PATTERNS[self.own](reader)
        if self.unless_listed and reader.value("layer_types") is not None:
            names = [self.sorts[0]] * reader.layers
        else:
            names = [self.sorts[mark] for mark in self._marks(reader)]
        if not self.layer_types:
            return names
        listed = layer_types(reader, names, tuple(self.layer_types))
        return names if listed is names else [self.layer_types[name] for name in listed]

    def _marks(self, reader: ConfigReader) -> list[bool]:
        """Whether each layer is of the second sort."""
        none = [False] * (1 if self.once else reader.layers)
        if len(self.sorts) == 1:
            return none
        if self.flags and (flags := reader.flags(self.flags)) is not None:
            return [flag == (self.flags_mark == "second") for flag in flags]
        if self.members and (listed := reader.whole_list(self.members)):
            return [i in listed for i in range(reader.layers)]
        if self.switch and not reader.boolean(self.switch):
            return none
        if self.given and not reader.optional_integer(self.given):
            return none
        if self.count and not reader.integer(self.count, least=0):
            return none

        def number(value: str | int, least: int = 0) -> int:
            return value if isinstance(value, int) else reader.integer(value, least)

        first, end = number(self.first), reader.layers
        if self.before is not None:
            end = number(self.before)
        if self.last and reader.value(self.last) not in (None, -1):
            end = reader.integer(self.last) + 1
        every = number(self.every, least=1)
        offset = every - 1 if self.offset is None else number(self.offset)
        excepted = reader.whole_list(self.excepted) if self.excepted else ()
        return [
            first <= i < end and (i % every == offset) != self.inverse and i not in excepted
            for i in range(reader.layers)
        ]

    def written(self, counts: Counts) -> Config:
        """The keys that say so many layers of each sort. Raises Cannot with the reason."""
        for sort, reason in self.needs.items():
            if not counts[sort]:
                raise Cannot(reason)
        for sort, reason in self.never.items():
            if counts[sort]:
                raise Cannot(reason)
        if self.own in OWN_WRITTEN:
            return OWN_WRITTEN[self.own](counts)
        if len(self.sorts) == 1:
            return {}
        one, other = (counts[sort] for sort in self.sorts[:2])
        if self.never_both and one and other:
            raise Cannot(self.never_both)
        config = {**self.write, **(self.some if other else self.none)}
        return {
            key: WRITTEN[value](self, one, other)
            if isinstance(value, str) and value in WRITTEN
            else value
            for key, value in config.items()
        }


def layer_types(reader: ConfigReader, otherwise: Names, accepted: tuple[str, ...]) -> Names:
    """The file's own list of layer types, else what the family would build."""
    listed = reader.value("layer_types")
    if listed is None:
        if len(set(otherwise)) > 1:
            words = {SLIDING: "slide", CHUNKED: "attend in chunks", LINEAR: "are linear"}
            kind = next(name for name in otherwise if name in words)
            reader.assume(
                f"layer_types absent: {otherwise.count(kind)} of {reader.layers} layers "
                f"{words[kind]}, the family's rule"
            )
        return otherwise
    if not isinstance(listed, list) or len(listed) < reader.layers:
        raise reader.refuse("layer_types", "no list of num_hidden_layers names", f"{reader.layers}")
    for name in listed:
        if name not in accepted:
            raise reader.refuse("layer_types", f"{name!r} is not covered", ", ".join(accepted))
    return listed[: reader.layers]


# Writing: what stands for a value, given the layers of the first and of the second sort.


def _evenly(pattern: Pattern, one: int, other: int) -> Names:
    return spread(one + other, one, *pattern.sorts[:2])


def _last_full(pattern: Pattern, one: int, other: int) -> Names:
    types = _evenly(pattern, one, other)
    if types[-1] != pattern.sorts[0]:
        raise Cannot("its last layer has full attention")
    return types


def _step(pattern: Pattern, one: int, other: int) -> int:
    """Every n-th layer is of the second sort."""
    for step in range(1, one + other + 2):
        if (one + other) // step == other:
            return step
    raise Cannot("every n-th of its layers has experts")


def _group(pattern: Pattern, one: int, other: int) -> int:
    """One layer of every group of so many is of the first sort."""
    for size in range(2, one + other + 1):
        if -(-(one + other) // size) == one:
            return size
    raise Cannot("the layers that share keys and values are groups of one size")


def _period(pattern: Pattern, one: int, other: int) -> tuple[int, int]:
    """(period, offset) of the layers that the rule counts, in the middle of the period."""
    counted, layers = one if pattern.inverse else other, one + other
    for period in range(1, layers + 1):
        for offset in sorted(range(period), key=lambda i: abs(i - period // 2)):
            if len(range(offset, layers, period)) == counted:
                return period, offset
    raise Cannot(f"no period places {counted} of {layers} layers")


def _places(pattern: Pattern, one: int, other: int, sort: int) -> list[int]:
    """The places, from 1, of the layers of a sort."""
    types = _evenly(pattern, one, other)
    return [i + 1 for i, name in enumerate(types) if name == pattern.sorts[sort]]


def _numbers(pattern: Pattern, one: int, other: int) -> list[int]:
    types = spread(one + other, other, "second", "first")
    return [i for i, name in enumerate(types) if name == "second"]


WRITTEN: Mapping[str, Callable[[Pattern, int, int], object]] = {
    "evenly": _evenly,
    "evenly, the last full": _last_full,
    "evenly from the last": lambda p, *counts: _evenly(p, *counts)[::-1],
    "flags evenly": lambda p, *counts: [int(name == p.sorts[1]) for name in _evenly(p, *counts)],
    "flags in order": lambda pattern, one, other: [0] * one + [1] * other,
    "places of first": lambda p, one, other: _places(p, one, other, 0),
    "places of second": lambda p, one, other: _places(p, one, other, 1),
    "numbers of first": lambda pattern, one, other: list(range(one)),
    "numbers of second": _numbers,
    "text of the last": lambda pattern, one, other: ",".join(map(str, range(one, one + other))),
    "count of first": lambda pattern, one, other: one,
    "beyond the last": lambda pattern, one, other: one + 1,
    "step": _step,
    "size of groups": _group,
    "period": lambda *args: _period(*args)[0],
    "offset": lambda *args: _period(*args)[1],
}


# Readers of their own.


def _text(reader: ConfigReader) -> Names:
    """The layers that a text such as "3,4,5" lists (Step-3.5)."""
    key = "moe_layers_enum"
    text = reader.value(key)
    items = text.split(",") if isinstance(text, str) else []
    if not items or not all(item.strip().isdecimal() for item in items):
        raise reader.refuse(key, f"{text!r}", 'layer numbers, as "3,4,5"')
    listed = {int(item) for item in items}
    return ["sparse" if i in listed else "dense" for i in range(reader.layers)]


def _indexers(reader: ConfigReader) -> Names:
    layer_types(reader, [SPARSE_LATENT] * reader.layers, (FULL, SPARSE_LATENT))
    return reader.names("indexer_types", ("full", "shared")) or ["full"] * reader.layers


def _gemma4(reader: ConfigReader) -> Names:
    sixths = [SLIDING if (i + 1) % 6 else FULL for i in range(reader.layers)]
    layers = layer_types(reader, sixths, (FULL, SLIDING))
    first = reader.layers - (reader.optional_integer("num_kv_shared_layers", least=0) or 0)
    reused = {FULL: "full, reused", SLIDING: "sliding, reused"}
    return [name if i < first else reused[name] for i, name in enumerate(layers)]


def _hunyuan(reader: ConfigReader) -> Names:
    if not reader.boolean("use_cla"):
        return [FULL] * reader.layers
    own = -(-reader.layers // reader.integer("cla_share_factor"))
    return [FULL] * own + ["reused"] * (reader.layers - own)


def _kimi(reader: ConfigReader) -> Names:
    listed = reader.whole_list("linear_attn_config.full_attn_layers")
    full = len({layer for layer in listed if 1 <= layer <= reader.layers}) or reader.layers // 4
    key = "linear_attn_config.kda_layers"
    linear = set(reader.whole_list(key))
    if linear and len(linear) != reader.layers - full:
        raise reader.refuse(key, f"{len(linear)} of {reader.layers} layers, {full} full")
    return [FULL] * full + [LINEAR] * (reader.layers - full)


_LETTERS = {"M": LINEAR, "*": FULL, "-": "dense", "E": "sparse"}
_LAYER_NAMES = {
    "mamba": LINEAR,
    "attention": FULL,
    "mlp": "dense",
    "moe": "sparse",
    FULL: FULL,
    LINEAR: LINEAR,
}


def _nemotron(reader: ConfigReader) -> Names:
    key, table = "hybrid_override_pattern", _LETTERS
    listed = reader.value(key)
    if listed is None:
        key, table = "layers_block_type", _LAYER_NAMES
        listed = reader.value(key)
    if not isinstance(listed, (str, list)) or len(listed) != reader.layers:
        raise reader.refuse(key, "does not name num_hidden_layers layers", f"{reader.layers}")
    for name in listed:
        if name not in table:
            raise reader.refuse(key, f"{name!r} is not covered", ", ".join(table))
    return [table[name] for name in listed]


def _nemotron_written(counts: Counts) -> Config:
    """A layer of each kind in turn, each kind spread evenly: Mamba and attention first."""
    names = {LINEAR: LINEAR, FULL: FULL, "sparse": "moe", "dense": "mlp"}
    placed = [
        ((i + 0.5) / counts[sort], order, name)
        for order, (sort, name) in enumerate(names.items())
        for i in range(counts[sort])
    ]
    return {"layers_block_type": [name for _, _, name in sorted(placed)]}


_RATIOS = {0: SLIDING, 4: CSA, 128: HCA}


def _compressed(reader: ConfigReader) -> Names:
    ratios = reader.value("compress_ratios")
    if ratios is None:
        otherwise = [HCA] * 2 + [CSA if i % 2 else HCA for i in range(reader.layers - 2)]
        otherwise = otherwise[: reader.layers]
    elif not isinstance(ratios, list) or len(ratios) < reader.layers:
        raise reader.refuse("compress_ratios", f"{ratios!r}", f"a list of {reader.layers}")
    elif any(type(ratio) is not int or ratio not in _RATIOS for ratio in ratios):
        raise reader.refuse("compress_ratios", f"{ratios!r}", "4, 128 or 0 a layer")
    else:
        otherwise = [_RATIOS[ratio] for ratio in ratios[: reader.layers]]
    if reader.value("layer_types") is None:
        return otherwise
    return layer_types(reader, otherwise, (SLIDING, CSA, HCA))


def _compressed_written(counts: Counts) -> Config:
    return {
        "compress_ratios": [ratio for ratio, name in _RATIOS.items() for _ in range(counts[name])]
    }


OWN_PATTERNS: Mapping[str, Callable[[ConfigReader], Names]] = {
    "listed text": _text,
    "indexers": _indexers,
    "gemma4": _gemma4,
    "hunyuan": _hunyuan,
    "kimi": _kimi,
    "nemotron": _nemotron,
    "compressed": _compressed,
}
OWN_WRITTEN: Mapping[str, Callable[[Counts], Config]] = {
    "nemotron": _nemotron_written,
    "compressed": _compressed_written,
}
