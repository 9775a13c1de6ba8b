"""The Hugging Face families of families.yaml: a configuration as layer groups, and layer groups as
a configuration, both by the same map."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from dse.blocks import BLOCK_SIZES, FEED_FORWARD, OPTIONAL_SIZES, WORDS
from dse.record import record
from dse.schema.families.config import (
    REQUIRED,
    Cannot,
    Config,
    ConfigReader,
    Default,
    Shape,
)
from dse.schema.families.keys import Keys, Pattern, Size
from dse.schema.loader import Lazy, load_yaml
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
    them, the width of the dense layers is written all the same."""

    kind: str
    sizes: Mapping[str, Size]
    optional: bool = False
    filled: bool = False

    def misfits(self, block: BlockSpec) -> int:
        """Sizes of a block that layers of this sort do not have."""
        sizes = self.sizes.items()
        wrong = sum(not size.fits(int(block.sizes.get(name, 0))) for name, size in sizes)
        return wrong + len(set(block.sizes) - set(self.sizes))


@record
class Stack:
    """Sorts of layers, and the pattern that says which layer is of which sort."""

    pattern: Pattern
    sections: Mapping[str, Section]
    guards: tuple[Guard, ...] = ()

    @classmethod
    def of(
        cls,
        rule: Mapping[str, Any] | None = None,
        guards: Mapping[str, Mapping[str, Any]] | None = None,
        **sorts: Mapping[str, Any],
    ) -> Stack:
        """A stack as families.yaml says it."""
        own, sections = dict(rule or {}), {}
        listed = own.pop("layer_types", {})
        if not isinstance(listed, dict):
            listed = {name: name for name in (sorts if listed is True else listed)}
        for name, written in sorts.items():
            kind = next(key for key in written if key in BLOCK_SIZES)
            sizes = {
                size: Size(key) if isinstance(key, str) else Size(**key)
                for size, key in written[kind].items()
            }
            further = {key: value for key, value in written.items() if key != kind}
            sections[name] = Section(kind, sizes, **further)
        checked = tuple(Guard(key, **parts) for key, parts in (guards or {}).items())
        return cls(Pattern(tuple(sorts), layer_types=listed, **own), sections, checked)

    @property
    def keys(self) -> Keys:
        found: dict[str, object] = {guard.key: guard.default for guard in self.guards}
        for section in self.sections.values():
            for size in section.sizes.values():
                found |= size.known
        return {**found, **self.pattern.keys}

    def read(self, reader: ConfigReader) -> list[BlockSpec]:
        for guard in self.guards:
            guard.read(reader)
        counts = Counter(self.pattern.read(reader))
        if set(counts) - set(self.sections):
            names = ", ".join(self.sections)
            raise reader.refuse("layer_types", f"{reader.family} has no window", names)
        blocks = []
        for name, section in self.sections.items():
            if not counts[name]:
                continue
            sizes: dict[str, int] = {}
            for size, one in section.sizes.items():
                sizes[size] = one.read(reader, sizes)
            optional = OPTIONAL_SIZES.get(section.kind, ())
            kept = {name: value for name, value in sizes.items() if value or name not in optional}
            blocks.append(BlockSpec(section.kind, counts[name], kept))
        return blocks

    def write(self, placed: Mapping[int, BlockSpec], shape: Shape) -> Config:
        """The keys of the stack, in the order of published files: experts before the dense layers,
        and the pattern between."""
        config: Config = {}
        blocks = {name: placed.get(id(section)) for name, section in self.sections.items()}
        order: list[str | None] = [*blocks, None]
        if self.sections[str(order[0])].kind in FEED_FORWARD and len(order) > 2:
            order = [*order[1:], order[0]]
        for name in order:
            if name is None:
                counts = {sort: block.count if block else 0 for sort, block in blocks.items()}
                config |= self.pattern.written(counts)
                continue
            section, block = self.sections[name], blocks[name]
            if block is not None:
                sizes = {size: int(block.sizes.get(size, 0)) for size in section.sizes}
            elif section.filled:
                sizes = {size: shape.dense_width() for size in section.sizes if size != "matrices"}
            else:
                continue
            for size, value in sizes.items():
                for key, written in section.sizes[size].write(value, sizes, shape).items():
                    if config.setdefault(key, written) != written:
                        raise Cannot(f"it has one {key}, and the shape {config[key]} and {written}")
        return config


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
    """One map of families.yaml, which says what each field is. `prediction` is the key of the
    class's multi-token-prediction modules; where that is `noted`, a note says that they are left
    out of the model."""

    architecture: str
    stacks: tuple[Stack, ...]
    own_defaults: Keys
    export: Export | None
    prediction: str
    noted: bool
    aliases: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()
    model_types: Sequence[str] = ()
    passed: Sequence[str] = ()

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Family:
        """A family as families.yaml says it."""
        own = dict(written)
        prediction = own.pop("prediction", {})
        export = own.pop("export", None)
        return cls(
            architecture=own.pop("class"),
            stacks=tuple(Stack.of(**stack) for stack in own.pop("layers")),
            own_defaults=own.pop("defaults", {}),
            export=None if export is None else Export(**export),
            prediction=prediction.get("key", ""),
            noted=prediction.get("noted", False),
            **own,
        )

    @cached_property
    def defaults(self) -> Keys:
        """Every key that is known, with the value of an absent one."""
        found = dict(COMMON) | dict.fromkeys(self.passed)
        for stack in self.stacks:
            found |= stack.keys
        if self.prediction:
            found[self.prediction] = None
        known = {default.value: default for default in Default}
        return {key: known.get(v, v) for key, v in {**found, **self.own_defaults}.items()}

    @property
    def class_name(self) -> str:
        """The class that is written."""
        return (self.export.name if self.export is not None else "") or self.architecture

    @property
    def sections(self) -> list[Section]:
        return [section for stack in self.stacks for section in stack.sections.values()]

    def read(self, reader: ConfigReader) -> list[BlockSpec]:
        """The layer groups of a configuration. Raises InputError, naming the key."""
        return [block for stack in self.stacks for block in stack.read(reader)]

    def modules(self, reader: ConfigReader) -> int | None:
        """Modules that predict further tokens; None where the configuration says nothing."""
        if not self.prediction:
            return None
        count = reader.optional_integer(self.prediction, least=0)
        if count and self.noted:
            reader.assume(
                f"{self.prediction} {count}: left out, as multi-token prediction is not "
                "part of the main model"
            )
        return count

    def write(self, shape: Shape, export: Export) -> Config:
        """The keys of the layers. Raises Cannot where the class has no layers of a kind, or one
        key for what differs; what else it cannot say is read back otherwise."""
        placed: dict[int, BlockSpec] = {}
        for block in shape.blocks:
            own = [section for section in self.sections if section.kind == block.kind]
            if not own:
                raise Cannot(f"it has no {WORDS[block.kind]}", near=False)
            section = min(own, key=lambda section: section.misfits(block))
            if id(section) in placed:
                raise Cannot(f"it has {WORDS[block.kind]} of fewer sorts than the shape")
            placed[id(section)] = block
        for section in self.sections:
            if not section.optional and not shape.of(section.kind):
                raise Cannot(f"it has {WORDS[section.kind]}, and the shape has none", near=False)
        flat: Config = {}
        for stack in self.stacks:
            flat |= stack.write(placed, shape)
        config: Config = {}
        # Sizes stand before switches, as in published files.
        for key, value in sorted(flat.items(), key=lambda item: isinstance(item[1], bool)):
            outer, dot, inner = export.renamed.get(key, key).partition(".")
            if dot:
                config.setdefault(outer, {})[inner] = value
            else:
                config[outer] = value
        of_experts = export.expert_keys if shape.of("moe") else {}
        hidden = dict.fromkeys(export.hidden_keys, shape.hidden)
        return {**config, **export.keys, **of_experts, **hidden}

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


_FILE = load_yaml(Path(__file__).with_name("families.yaml")).data
_WRITTEN = _FILE["families"]
# Keys that move no byte and no flop.
PASSED_OVER = frozenset(" ".join(_FILE["passed_over"]).split())
# How a checkpoint says the formats of its weights.
FORMATS = _FILE["formats"]
# By name, which is the model type.
FAMILIES: Mapping[str, Family] = Lazy(_WRITTEN, lambda name: Family.of(_WRITTEN[name]))
# The name of the family of each class and of each model type.
CLASSES: Mapping[str, str] = {
    architecture: name
    for name, family in _WRITTEN.items()
    for architecture in (family["class"], *family.get("others", ()))
}
MODEL_TYPES: Mapping[str, str] = {
    model_type: name
    for name, family in _WRITTEN.items()
    for model_type in (name, *family.get("model_types", ()))
}
