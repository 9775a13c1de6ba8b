"""What the families share: the reader of one configuration, which keeps account of what the file
did not say, and a model's shape as it is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from dse.blocks import BLOCK_SIZES, OPTIONAL_SIZES, WORDS
from dse.errors import InputError
from dse.schema.model import LARGEST_LAYERS, LARGEST_SIZE, BlockSpec, Model


class Default(Enum):
    """Defaults that are no value: a key the file must have, and `as many as query heads`."""

    REQUIRED = "required"
    HEADS = "num_attention_heads"


REQUIRED, HEADS = Default.REQUIRED, Default.HEADS


class ConfigReader:
    """One configuration of one family; every refusal is an InputError that names the key."""

    def __init__(
        self,
        config: Mapping[str, object],
        family: str,
        defaults: Mapping[str, object],
        aliases: Mapping[str, str],
        source: str,
    ) -> None:
        self.family, self.source = family, source
        self.assumed: list[str] = []
        self.known = {*defaults, *aliases}
        self._defaults = defaults
        self._config = dict(config)
        for alias, key in aliases.items():
            if alias in config and self._config.setdefault(key, config[alias]) != config[alias]:
                raise self.refuse(alias, f"{config[alias]!r}, but {key} is {config[key]!r}")
        self.layers = self.integer("num_hidden_layers", most=LARGEST_LAYERS)

    def refuse(self, key: str, message: str, accepted: str | None = None) -> InputError:
        return InputError(message, file=self.source, field=key, accepted=accepted)

    def assume(self, sentence: str) -> None:
        if sentence not in self.assumed:
            self.assumed.append(sentence)

    def value(self, key: str) -> object:
        """What the file says (null included), else the family's default, which is noted."""
        if key in self._config:
            return self._config[key]
        default = self._defaults[key]
        if default is REQUIRED:
            raise self.refuse(key, f"missing, and {self.family} has no default worth guessing")
        if default is HEADS:
            self.assume(f"{key} absent: as many as num_attention_heads, the family's default")
        elif default is not None:
            word = str(default).lower() if isinstance(default, bool) else default
            self.assume(f"{key} absent: {word}, the family's default")
        return None if default is HEADS else default

    def integer(self, key: str, least: int = 1, most: float = LARGEST_SIZE) -> int:
        value = self.optional_integer(key, least, most)
        if value is None:
            raise self.refuse(key, "null", f"a whole number of at least {least}")
        return value

    def optional_integer(self, key: str, least: int = 1, most: float = LARGEST_SIZE) -> int | None:
        """A whole number, or None where the file says null or the default is None."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            text = repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
            raise self.refuse(key, f"{text} is no size", f"a whole number, {least} to {most:.0f}")
        return value

    def boolean(self, key: str) -> bool:
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.refuse(key, f"{value!r}", "true or false")
        return value

    def collapse(self, key: str) -> None:
        """Takes a list of equal values, one a layer, as that one value."""
        value = self._config.get(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            self._config[key] = value[0]

    @property
    def hidden(self) -> int:
        return self.integer("hidden_size")

    def listed(
        self, key: str, accepted: str, allowed: Collection[Any] | None = None, *, layers: bool
    ) -> list[Any] | None:
        """A list of allowed items (of whole numbers, unless said), one a layer where `layers`; None
        where the key is absent or null."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or (layers and len(value) < self.layers):
            raise self.refuse(
                key, f"{value!r:.60}", f"a list of {self.layers}" * layers or accepted
            )
        for item in value:
            if type(item) is not int if allowed is None else item not in tuple(allowed):
                raise self.refuse(key, f"{item!r} is not covered", accepted)
        return value[: self.layers] if layers else value

    def numbers(self, key: str) -> list[int]:
        """A list of layer numbers; absent or null is an empty one."""
        return self.listed(key, "a list of layer numbers", layers=False) or []


# What a writer of configurations asks of a model: its layers, and where they lie.

PLAIN = 2  # matrices of a feed-forward without a gate
FULL, SLIDING = "full_attention", "sliding_attention"
Sizes = Mapping[str, int]
Config = dict[str, Any]


class Cannot(Exception):
    """The class cannot be built in this shape. `near`: it has all of the layer kinds, and fails at
    a size."""

    def __init__(self, reason: str, *, near: bool = True) -> None:
        super().__init__(reason)
        self.near = near


class Shape:
    """The blocks of a model, equal ones as one, without empty ones and sizes that are 0 anyway."""

    def __init__(self, model: Model) -> None:
        self.model, self.blocks = model, merged(model)
        self.hidden, self.layers = model.hidden_size, model.num_hidden_layers

    def of(self, kind: str) -> list[BlockSpec]:
        return [block for block in self.blocks if block.kind == kind]

    def one(self, kind: str) -> BlockSpec:
        """The only block of a kind."""
        found = self.of(kind)
        if len(found) > 1:
            raise Cannot(f"{WORDS[kind]} of one sort only, and the shape has {len(found)}")
        if not found:
            raise Cannot(f"it has {WORDS[kind]}, and the shape has none", near=False)
        return found[0]

    def count(self, kind: str) -> int:
        return sum(block.count for block in self.of(kind))

    def only(self, *kinds: str, optional: tuple[str, ...] = ()) -> None:
        """Refuses blocks of other kinds, and optional sizes other than these."""
        for block in self.blocks:
            if block.kind not in kinds:
                raise Cannot(f"it has no {WORDS[block.kind]}", near=False)
        for block in self.blocks:
            for name in sorted(set(block.sizes) - set(BLOCK_SIZES[block.kind]) - set(optional)):
                raise Cannot(f"it has no {name.replace('_', ' ')} of {WORDS[block.kind]}")

    def heads(self) -> tuple[Sizes, int, list[str]]:
        """(sizes, window, layer types) of grouped-query layers that differ by their window
        alone."""
        blocks = self.of("gqa")
        if not blocks:
            raise Cannot(f"it has {WORDS['gqa']}, and the shape has none", near=False)
        sizes = {name: int(value) for name, value in blocks[0].sizes.items()}
        seen = {int(block.sizes["window"]) for block in blocks}
        if any({**b.sizes, "window": 0} != {**blocks[0].sizes, "window": 0} for b in blocks):
            raise Cannot("its layers have heads of one size, and those of the shape differ")
        if sizes["v_head_dim"] != sizes["head_dim"]:
            raise Cannot("its keys and values have heads of one size")
        window = max(seen)
        if len(seen) > 2 or (len(seen) == 2 and 0 not in seen):
            raise Cannot(f"it has windows of one length, and the shape {sorted(seen)}")
        full = sum(block.count for block in blocks if not block.sizes["window"])
        return sizes, window, spread(self.count("gqa"), full, FULL, SLIDING)

    def dense_width(self) -> int:
        """Width of the dense layers; of a shape without any, a width that no layer has."""
        found = self.of("mlp")
        if found:
            return int(self.one("mlp").sizes["intermediate_size"])
        return int(self.one("moe").sizes["expert_intermediate_size"])


def merged(model: Model) -> list[BlockSpec]:
    """The blocks in their order, equal ones as one at the place of the first, without empty ones
    and without optional sizes of 0."""
    counts: dict[tuple[str, tuple[tuple[str, float], ...]], int] = {}
    for block in model.blocks:
        optional = OPTIONAL_SIZES.get(block.kind, ())
        sizes = {k: v for k, v in block.sizes.items() if v or k not in optional}
        key = (block.kind, tuple(sorted(sizes.items())))
        if block.count:
            counts[key] = counts.get(key, 0) + int(block.count)
    return [BlockSpec(kind, n, dict(sizes)) for (kind, sizes), n in counts.items()]


def spread(layers: int, few: int, name: str, other: str) -> list[str]:
    """`few` layers called `name` among `layers`, evenly, each at the end of its group: every n-th
    one where a whole n gives their number, as publishers place full attention."""
    if few and layers // (layers // few) == few:
        step = layers // few
        return [name if (i + 1) % step == 0 else other for i in range(layers)]
    return [name if (i + 1) * few // layers > i * few // layers else other for i in range(layers)]
