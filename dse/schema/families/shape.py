"""What a writer of configurations asks of a model: its layers, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.schema.blocks import BLOCK_SIZES, OPTIONAL_SIZES, WORDS
from dse.schema.model import BlockSpec, Model

GATED, PLAIN = 3, 2
FULL, SLIDING = "full_attention", "sliding_attention"
Sizes = Mapping[str, int]
Config = dict[str, Any]

OPTIONAL_WORDS = {
    "chunk": "chunked attention",
    "output_gate": "output gate",
    "values_from_keys": "values that are keys",
    "reuses_kv": "layers that reuse the keys and values of others",
    "relative_positions": "relative positions",
    "bidirectional": "attention that looks both ways",
    "index_heads": "indexer",
    "index_head_dim": "indexer",
    "index_topk": "indexer",
    "expert_hidden_size": "experts on a latent",
    "expert_bias": "biases of experts",
}


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
                raise Cannot(f"it has no {OPTIONAL_WORDS.get(name, name)}")

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
