"""Reads a configuration into layer groups and writes layer groups into a configuration, both from
the same map of families.yaml."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from dse.record import record
from dse.schema.blocks import BLOCK_SIZES, FEED_FORWARD, OPTIONAL_SIZES, WORDS
from dse.schema.families.config import (
    OPTIONAL_WORDS,
    REQUIRED,
    Cannot,
    Config,
    ConfigReader,
    Default,
    Shape,
)
from dse.schema.families.keys import Keys, Pattern, Size
from dse.schema.model import BlockSpec

# Keys that every configuration has, under these names or others.
COMMON: Keys = {
    "hidden_size": REQUIRED,
    "num_hidden_layers": REQUIRED,
    "num_attention_heads": REQUIRED,
    "vocab_size": REQUIRED,
    "tie_word_embeddings": False,
    "layer_types": None,
}


@record
class Guard:
    """A key that no size follows from: a value that is on is noted or refused. Null is off where
    that is the default."""

    key: str
    default: object
    note: str = ""
    refuse: str = ""
    accepted: str | None = None

    def read(self, reader: ConfigReader) -> None:
        if self.default is None and reader.value(self.key) is None:
            return
        whole = isinstance(self.default, int) and not isinstance(self.default, bool)
        if not (reader.optional_integer(self.key, 0) if whole else reader.boolean(self.key)):
            return
        if self.refuse:
            raise reader.refuse(self.key, self.refuse, self.accepted)
        reader.assume(f"{self.key} true: {self.note}")


@record
class Section:
    """Layers of one sort. `optional`: a model of the class may be without them. `filled`: without
    them, the width of the dense layers is written all the same. `why` is said where a key would
    have to say two sizes."""

    kind: str
    sizes: Mapping[str, Size]
    optional: bool = False
    filled: bool = False
    why: str = ""


@record
class Stack:
    """Sorts of layers, and the pattern that says which layer is of which sort."""

    pattern: Pattern
    sections: Mapping[str, Section]
    guards: tuple[Guard, ...] = ()

    @property
    def keys(self) -> Keys:
        found: dict[str, object] = {guard.key: guard.default for guard in self.guards}
        for section in self.sections.values():
            for size in section.sizes.values():
                found |= size.keys
        return {**found, **self.pattern.keys}


@record
class Prediction:
    """The key of a class's multi-token-prediction modules. `noted`: a note says that they are left
    out of the model."""

    key: str
    noted: bool = False


@record
class Export:
    """How the class is written. `name` and `model_type` are those of transformers, where they are
    not the publishers'. `beyond` says what the class has over this project's count of parameters
    (`dse.physics.parameters`), negative where it lacks some. `keys` are written as they are,
    `expert_keys` where there are experts, `hidden_keys` with the hidden size. `renamed` are keys
    that the class has under another name. `note` is said of what the class has by a switch that no
    size says."""

    keys: Config = field(default_factory=dict)
    beyond: Mapping[str, list[list[Any]]] = field(default_factory=dict)
    name: str = ""
    model_type: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    expert_keys: Config = field(default_factory=dict)
    hidden_keys: tuple[str, ...] = ()
    note: str = ""


@record
class Family:
    """One map of families.yaml, which says what each field is."""

    architecture: str
    stacks: tuple[Stack, ...]
    own_defaults: Keys = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()
    model_types: Sequence[str] = ()
    passed: Sequence[str] = ()
    prediction: Prediction | None = None
    export: Export | None = None

    @cached_property
    def defaults(self) -> Keys:
        """Every key that is known, with the value of an absent one."""
        found = dict(COMMON) | dict.fromkeys(self.passed)
        for stack in self.stacks:
            found |= stack.keys
        if self.prediction is not None:
            found[self.prediction.key] = None
        known = {default.value: default for default in Default}
        every = {**found, **self.own_defaults}
        return {key: known.get(v, v) for key, v in every.items()}

    @property
    def class_name(self) -> str:
        """The class that is written."""
        return (self.export.name if self.export is not None else "") or self.architecture

    @property
    def sections(self) -> list[Section]:
        return [section for stack in self.stacks for section in stack.sections.values()]

    def read(self, reader: ConfigReader) -> list[BlockSpec]:
        """The layer groups of a configuration. Raises InputError, naming the key."""
        return [block for stack in self.stacks for block in _read(stack, reader)]

    def modules(self, reader: ConfigReader) -> int | None:
        """Modules that predict further tokens; None where the configuration says nothing."""
        if self.prediction is None:
            return None
        count = reader.optional_integer(self.prediction.key, least=0)
        if count and self.prediction.noted:
            reader.assume(
                f"{self.prediction.key} {count}: left out, as multi-token prediction is not "
                "part of the main model"
            )
        return count

    def write(self, shape: Shape) -> Config:
        """The keys of the layers. Raises Cannot with the reason."""
        placed = _placed(self, shape)
        flat: Config = {}
        for stack in self.stacks:
            flat |= _write(stack, placed, shape)
        # Sizes stand before switches, as in published files.
        ordered = sorted(flat.items(), key=lambda item: isinstance(item[1], bool))
        export = self.export or Export()
        config: Config = {}
        for key, value in ordered:
            outer, dot, inner = export.renamed.get(key, key).partition(".")
            if dot:
                config.setdefault(outer, {})[inner] = value
            else:
                config[outer] = value
        return {
            **config,
            **export.keys,
            **(export.expert_keys if shape.of("moe") else {}),
            **dict.fromkeys(export.hidden_keys, shape.hidden),
        }

    def beyond(self, shape: Shape) -> dict[str, int]:
        """Parameters that the class has over this project's count, by what they are."""
        counts = {
            name: sum(_product(term, shape) for term in terms)
            for name, terms in (self.export.beyond if self.export is not None else {}).items()
        }
        return {name: count for name, count in counts.items() if count}


def _product(term: list[Any], shape: Shape) -> int:
    """The parameters of [factor, what of, sizes ...]: of layers of a kind, all `layers` or the
    `model`."""
    factor, kind, *names = term
    if kind in ("layers", "model"):
        return factor * shape.hidden ** len(names) * (shape.layers if kind == "layers" else 1)
    own = {"hidden_size": shape.hidden}
    return factor * sum(
        block.count * math.prod(int({**own, **block.sizes}.get(name, 0)) for name in names)
        for block in shape.of(kind)
    )


def family_of(written: Mapping[str, Any]) -> Family:
    """A family as families.yaml says it."""
    names = {"class": "architecture", "layers": "stacks", "defaults": "own_defaults"}
    own = {names.get(key, key): value for key, value in written.items()}
    own["stacks"] = tuple(_stack(**stack) for stack in own["stacks"])
    for name, kind in (("prediction", Prediction), ("export", Export)):
        if name in own:
            own[name] = kind(**own[name])
    return Family(**own)


def _stack(
    rule: dict[str, Any] | None = None,
    guards: dict[str, dict[str, Any]] | None = None,
    **sections: dict[str, Any],
) -> Stack:
    own, sorts = dict(rule or {}), tuple(sections)
    own["excepted"] = own.pop("except", "")
    listed = own.pop("layer_types", {})
    if not isinstance(listed, dict):
        listed = {name: name for name in (sorts if listed is True else listed)}
    return Stack(
        Pattern(sorts, layer_types=listed, **own),
        {name: _section(dict(section)) for name, section in sections.items()},
        tuple(Guard(key, **parts) for key, parts in (guards or {}).items()),
    )


def _section(section: dict[str, Any]) -> Section:
    kind = next(name for name in section if name in BLOCK_SIZES)
    sizes = {name: _size(written) for name, written in section.pop(kind).items()}
    return Section(kind, sizes, **section)


def _size(written: str | dict[str, Any]) -> Size:
    if isinstance(written, str):
        return Size(written)
    own = {"own_keys" if name == "keys" else name: value for name, value in written.items()}
    return Size(**own)


def _read(stack: Stack, reader: ConfigReader) -> list[BlockSpec]:
    for guard in stack.guards:
        guard.read(reader)
    sorts = Counter(stack.pattern.read(reader))
    if set(sorts) - set(stack.sections):
        names = ", ".join(stack.sections)
        raise reader.refuse("layer_types", f"{reader.family} has no window", names)
    blocks = []
    for name, section in stack.sections.items():
        if not sorts[name]:
            continue
        sizes: dict[str, int] = {}
        for size, one in section.sizes.items():
            sizes[size] = one.read(reader, sizes)
        optional = OPTIONAL_SIZES.get(section.kind, ())
        kept = {name: value for name, value in sizes.items() if value or name not in optional}
        blocks.append(BlockSpec(section.kind, sorts[name], kept))
    return blocks


def _placed(family: Family, shape: Shape) -> dict[int, BlockSpec]:
    """The block of each section, by the section's identity."""
    _check_kinds(family, shape)
    placed: dict[int, BlockSpec] = {}
    for block in shape.blocks:
        own = [section for section in family.sections if section.kind == block.kind]
        section = min(own, key=lambda section: _misfits(section, block))
        if id(section) in placed:
            raise Cannot(_differ(block, placed[id(section)], shape))
        placed[id(section)] = block
    return placed


def _check_kinds(family: Family, shape: Shape) -> None:
    """Raises Cannot for kinds of layers, and for optional sizes, that the class has not or that
    the shape lacks."""
    kinds = {section.kind for section in family.sections}
    for block in shape.blocks:
        if block.kind not in kinds and (block.kind != "mlp" or "moe" not in kinds):
            raise Cannot(f"it has no {WORDS[block.kind]}", near=False)
    for section in family.sections:
        if not section.optional and not shape.of(section.kind):
            raise Cannot(f"it has {WORDS[section.kind]}, and the shape has none", near=False)
    known = dict.fromkeys(kinds, frozenset[str]())
    for section in family.sections:
        known[section.kind] |= section.sizes.keys()
        for name, size in section.sizes.items():
            for block in shape.of(section.kind) if size.lacking else ():
                size.write(int(block.sizes.get(name, 0)), {}, shape)
    for block in shape.blocks:
        for name in sorted(set(block.sizes) - known.get(block.kind, set(block.sizes))):
            raise Cannot(f"it has no {OPTIONAL_WORDS.get(name, name)}")
    if "mlp" not in kinds and shape.of("mlp"):
        raise Cannot("all of its layers have experts")


def _misfits(section: Section, block: BlockSpec) -> int:
    fields = section.sizes.items()
    wrong = sum(not size.fits(int(block.sizes.get(name, 0))) for name, size in fields)
    return wrong + len(set(block.sizes) - set(section.sizes))


_HEADS_DIFFER = "its layers have heads of one size, and those of the shape differ"


def _differ(one: BlockSpec, other: BlockSpec, shape: Shape) -> str:
    """Why two sorts of layers cannot be one."""
    if one.kind != "gqa":
        count = len(shape.of(one.kind))
        return f"{WORDS[one.kind]} of one sort only, and the shape has {count}"
    if {**one.sizes, "window": 0} == {**other.sizes, "window": 0}:
        windows = sorted({int(block.sizes["window"]) for block in shape.of("gqa")})
        return f"it has windows of one length, and the shape {windows}"
    return _HEADS_DIFFER


def _write(stack: Stack, placed: Mapping[int, BlockSpec], shape: Shape) -> Config:
    """The keys of one stack, in the order of published files: experts before the dense layers, and
    the pattern between."""
    config: Config = {}
    counts = {
        name: placed[id(section)].count if id(section) in placed else 0
        for name, section in stack.sections.items()
    }
    order: list[str | None] = [*stack.sections, None]
    if stack.sections[str(order[0])].kind in FEED_FORWARD and len(order) > 2:
        order = [*order[1:], order[0]]
    for name in order:
        if name is None:
            config |= stack.pattern.written(counts)
            continue
        section = stack.sections[name]
        block = placed.get(id(section))
        if block is not None:
            sizes = {size: int(block.sizes.get(size, 0)) for size in section.sizes}
        elif section.filled:
            sizes = {size: shape.dense_width() for size in section.sizes if size != "matrices"}
        else:
            continue
        for size, value in sizes.items():
            for key, written in section.sizes[size].write(value, sizes, shape).items():
                if config.setdefault(key, written) != written:
                    raise Cannot(_conflict(section, size))
    return config


def _conflict(section: Section, size: str) -> str:
    if section.why:
        return section.why
    if section.kind == "gqa":
        return _HEADS_DIFFER
    if section.kind in FEED_FORWARD:
        return "its experts are as wide as its dense feed-forward"
    return f"its layers have one {size}, and those of the shape differ"
