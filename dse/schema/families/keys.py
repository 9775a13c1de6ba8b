"""Sizes of layers, and which layers are of which sort, from the keys of a configuration that say
them and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    times the `same` other size. `own` names the function of OWN_SIZES that reads `keys`, and that
    of OWN_WRITTEN, where there is one, that writes them.

    A class that has no layers without the size is marked `needed`; a key that some files have and
    the class has not is not `written`. What a class cannot say otherwise is read back as another
    size (`dse.schema.huggingface`).
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
    keys: Keys = field(default_factory=dict)
    needed: bool = False
    written: bool = True

    @property
    def known(self) -> Keys:
        """The keys that are read, each with the value that an absent one has."""
        if not self.key:
            return self.keys
        unit = {self.unit: self.unit_default} if self.unit else {}
        return {**dict.fromkeys(self.also), self.key: self.default, **unit}

    def read(self, reader: ConfigReader, sizes: Sizes) -> int:
        """The size; `sizes` are those of the same layer that are read already."""
        if self.own:
            return OWN_SIZES[self.own](reader, sizes)
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
        if (self.needed and not value) or (self.flag and value not in self.only):
            raise Cannot(f"it is not built with {self.key or self.own} {value}")
        if self.own in OWN_WRITTEN:
            return OWN_WRITTEN[self.own](value, sizes, shape)
        if not (self.key and self.written):
            return {}
        if self.flag:
            return {self.key: bool(value)}
        unit = self.unit_default
        if self.times:
            unit = shape.hidden if self.times == "hidden_size" else sizes[self.times]
        number = (value - self.plus) // unit
        null = self.if_null is not None and not self.times and not number
        written = dict.fromkeys((self.key, *self.also), None if null else number)
        return {self.unit: unit, **written} if self.unit else written

    def fits(self, value: int) -> bool:
        """Whether a layer with this size may be one of these."""
        if self.value is not None:
            return value == self.value
        if not self.written:
            return not value
        derived = self.own or self.same or self.times or self.unit or self.plus or self.flag
        return bool(derived) or value >= self.least or self.if_null is not None


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


# What null means, by the word of families.yaml.
NULLS: Mapping[str, Read] = {
    "heads": lambda reader, sizes: sizes["heads"],
    "hidden_size / heads": _noted_head_dim,
    "4 hidden_size": lambda reader, sizes: 4 * reader.hidden,
    "head_dim of full layers": lambda reader, sizes: (
        reader.optional_integer("head_dim")
        or reader.hidden // reader.integer("num_attention_heads")
    ),
}


def _read_head_dim(reader: ConfigReader, sizes: Sizes) -> int:
    return reader.optional_integer("head_dim") or _noted_head_dim(reader, sizes)


def _falcon_heads(reader: ConfigReader, sizes: Sizes) -> int:
    """One KV head (multi_query), unless the newer decoder names a number of them."""
    if reader.boolean("new_decoder_architecture"):
        return reader.optional_integer("num_kv_heads") or sizes["heads"]
    return 1 if reader.boolean("multi_query") else sizes["heads"]


def _residual(reader: ConfigReader, sizes: Sizes) -> int:
    """A dense feed-forward beside the experts, as wide as the hidden size."""
    beside = reader.boolean("use_residual") or reader.boolean("parallel_attn_mlp_res")
    return reader.hidden if beside else 0


def _kimi_rank(reader: ConfigReader, sizes: Sizes) -> int:
    full = reader.boolean("linear_attn_config.use_full_rank_gate")
    return 0 if full else sizes["key_head_dim"]


def _granite_inner(reader: ConfigReader, sizes: Sizes) -> int:
    inner, size = reader.integer("mamba_expand") * reader.hidden, reader.value("mamba_d_head")
    if size not in (None, "auto") and reader.integer("mamba_d_head") * sizes["heads"] != inner:
        raise reader.refuse("mamba_d_head", f"{size} of {sizes['heads']} heads is not {inner}")
    return inner


def _time_step(reader: ConfigReader, sizes: Sizes) -> int:
    if reader.value("mamba_dt_rank") == "auto":
        return -(-reader.hidden // 16)
    return reader.integer("mamba_dt_rank")


def _global_heads(reader: ConfigReader, sizes: Sizes) -> int:
    own = reader.optional_integer("num_key_value_heads") or sizes["heads"]
    if not reader.boolean("attention_k_eq_v"):
        return own
    return reader.optional_integer("num_global_key_value_heads") or own


# Sizes that no key says alone, by their name in families.yaml.
OWN_SIZES: Mapping[str, Read] = {
    "hidden_size / heads": _divided,
    "head_dim, as wide as the hidden size": _read_head_dim,
    "falcon_kv_heads": _falcon_heads,
    "arctic_residual": _residual,
    "low-rank gate": _kimi_rank,
    "granite_inner_size": _granite_inner,
    "jamba_time_step": _time_step,
    "gemma4_kv_heads": _global_heads,
}
OWN_WRITTEN: Mapping[str, Callable[[int, Sizes, Shape], Config]] = {
    "granite_inner_size": lambda value, sizes, shape: {
        "mamba_expand": value // shape.hidden,
        "mamba_d_head": value // sizes["heads"],
    },
    "jamba_time_step": lambda value, sizes, shape: {"mamba_dt_rank": value},
    "gemma4_kv_heads": lambda value, sizes, shape: {
        "num_global_key_value_heads": value if sizes["values_from_keys"] else None
    },
}


# Which layers are of which sort: read from the keys that say it, and written from the number of
# layers of each sort.

CHUNKED, LINEAR = "chunked_attention", "linear_attention"
SPARSE_LATENT = "deepseek_sparse_attention"
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"

Names = list[str]


@record
class Pattern:
    """The `rule` of a stack of layers in families.yaml: which of them are of the second sort, the
    others of the first. `sorts` are the names of the stack's sorts.

    `flags` is a key of one 0 or 1 a layer, where the file has it (`flags_mark: first`: of the first
    sort); `members` one of the numbers of the layers. Else the layers from `first` on, up to `last`
    (-1: the last of all) or below `before`, if the `switch` is true, the key `given` is no null and
    that of `count` above 0: all of them or those i with i % every == offset (without an offset,
    every n-th), turned around with `inverse`, and not those of the list `excepted`. Each is a key
    or a number. `own` names a reader of OWN_PATTERNS instead.

    `layer_types`: the file's own list of names goes before all that; those that it may hold, or the
    sort that each stands for. `unless_listed`: with such a list, no other key is read. `once`: it
    is no layer, and there is one of it.

    Written are the keys `write`, and those of `some` or `none` as there are layers of the second
    sort or not; a value may be one of WRITTEN. A class has no model without layers of `needs`.
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
    needs: Sequence[str] = ()

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
        flags = self.flags and reader.listed(self.flags, "0 or 1 a layer", (0, 1), layers=True)
        if flags:
            return [flag == (self.flags_mark == "second") for flag in flags]
        if self.members and (listed := reader.numbers(self.members)):
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
        excepted = reader.numbers(self.excepted) if self.excepted else ()
        return [
            first <= i < end and (i % every == offset) != self.inverse and i not in excepted
            for i in range(reader.layers)
        ]

    def written(self, counts: Mapping[str, int]) -> Config:
        """The keys that say so many layers of each sort. Raises Cannot with the reason."""
        for sort in self.needs:
            if not counts[sort]:
                raise Cannot(f"every model of it has layers of {sort.replace('_', ' ')}")
        if len(self.sorts) == 1:
            return {}
        config = {**self.write, **(self.some if counts[self.sorts[1]] else self.none)}
        return {
            key: WRITTEN[value](self, counts)
            if isinstance(value, str) and value in WRITTEN
            else value
            for key, value in config.items()
        }


def layer_types(reader: ConfigReader, otherwise: Names, accepted: tuple[str, ...]) -> Names:
    """The file's own list of layer types, else what the family would build."""
    listed = reader.listed("layer_types", ", ".join(accepted), accepted, layers=True)
    if listed is not None:
        return listed
    if len(set(otherwise)) > 1:
        words = {SLIDING: "slide", CHUNKED: "attend in chunks", LINEAR: "are linear"}
        kind = next(name for name in otherwise if name in words)
        reader.assume(
            f"layer_types absent: {otherwise.count(kind)} of {reader.layers} layers "
            f"{words[kind]}, the family's rule"
        )
    return otherwise


# Writing: what stands for a value, given how many layers there are of each sort.

Counts = Mapping[str, int]


def _evenly(pattern: Pattern, counts: Counts) -> Names:
    one, other = (counts[sort] for sort in pattern.sorts[:2])
    return spread(one + other, one, *pattern.sorts[:2])


def _last_full(pattern: Pattern, counts: Counts) -> Names:
    types = _evenly(pattern, counts)
    if types[-1] != pattern.sorts[0]:
        raise Cannot("its last layer has full attention")
    return types


def _period(pattern: Pattern, counts: Counts) -> tuple[int, int]:
    """(period, offset) of the layers that the rule counts, in the middle of the period."""
    counted, layers = counts[pattern.sorts[not pattern.inverse]], sum(counts.values())
    for period in range(1, layers + 1):
        for offset in sorted(range(period), key=lambda i: abs(i - period // 2)):
            if len(range(offset, layers, period)) == counted:
                return period, offset
    raise Cannot(f"no period places {counted} of {layers} layers")


def _places(pattern: Pattern, counts: Counts, sort: int) -> list[int]:
    """The places, from 1, of the layers of a sort."""
    types = _evenly(pattern, counts)
    return [i for i, name in enumerate(types, start=1) if name == pattern.sorts[sort]]


def _numbers(pattern: Pattern, counts: Counts) -> list[int]:
    one, other = (counts[sort] for sort in pattern.sorts)
    types = spread(one + other, other, "second", "first")
    return [i for i, name in enumerate(types) if name == "second"]


def _nemotron_written(pattern: Pattern, counts: Counts) -> Names:
    """A layer of each kind in turn, each kind spread evenly: Mamba and attention first."""
    names = {LINEAR: LINEAR, FULL: FULL, "sparse": "moe", "dense": "mlp"}
    placed = [
        ((i + 0.5) / counts[sort], order, name)
        for order, (sort, name) in enumerate(names.items())
        for i in range(counts[sort])
    ]
    return [name for _, _, name in sorted(placed)]


WRITTEN: Mapping[str, Callable[[Pattern, Counts], object]] = {
    "evenly": _evenly,
    "evenly, the last full": _last_full,
    "evenly from the last": lambda pattern, counts: _evenly(pattern, counts)[::-1],
    "flags evenly": lambda p, counts: [int(name == p.sorts[1]) for name in _evenly(p, counts)],
    "places of first": lambda pattern, counts: _places(pattern, counts, 0),
    "places of second": lambda pattern, counts: _places(pattern, counts, 1),
    "numbers of first": lambda pattern, counts: list(range(counts[pattern.sorts[0]])),
    "numbers of second": _numbers,
    "count of first": lambda pattern, counts: counts[pattern.sorts[0]],
    "beyond the last": lambda pattern, counts: counts[pattern.sorts[0]] + 1,
    "period": lambda pattern, counts: _period(pattern, counts)[0],
    "offset": lambda pattern, counts: _period(pattern, counts)[1],
    "nemotron": _nemotron_written,
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
    listed = reader.listed("indexer_types", "full, shared", ("full", "shared"), layers=True)
    return listed or ["full"] * reader.layers


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
    listed = reader.numbers("linear_attn_config.full_attn_layers")
    full = len({layer for layer in listed if 1 <= layer <= reader.layers}) or reader.layers // 4
    key = "linear_attn_config.kda_layers"
    linear = set(reader.numbers(key))
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


_RATIOS = {0: SLIDING, 4: CSA, 128: HCA}


def _compressed(reader: ConfigReader) -> Names:
    ratios = reader.listed("compress_ratios", "4, 128 or 0 a layer", _RATIOS, layers=True)
    otherwise = [HCA] * 2 + [CSA if i % 2 else HCA for i in range(reader.layers - 2)]
    otherwise = [_RATIOS[ratio] for ratio in ratios or ()] or otherwise[: reader.layers]
    if reader.value("layer_types") is None:
        return otherwise
    return layer_types(reader, otherwise, (SLIDING, CSA, HCA))


OWN_PATTERNS: Mapping[str, Callable[[ConfigReader], Names]] = {
    "listed text": _text,
    "indexers": _indexers,
    "gemma4": _gemma4,
    "hunyuan": _hunyuan,
    "kimi": _kimi,
    "nemotron": _nemotron,
    "compressed": _compressed,
}
