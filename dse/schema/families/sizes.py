"""One size of a layer and the keys of a configuration that say it, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from dse.record import record
from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.families.shape import Cannot, Config, Shape, Sizes

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
    times the `same` other size. `own` names the functions of OWN that read and write `keys`.

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
            return OWN[self.own][0](reader, sizes)
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
            return OWN[self.own][1](value, sizes, shape)
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
OWN: Mapping[str, tuple[Read, Write]] = {
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
