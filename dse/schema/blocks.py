"""The kinds of block that a model is made of, and the parts of its weights: what `dse.blocks` says
of each, as tables."""

from __future__ import annotations

from dse.blocks import KINDS

# Weight parts with a dtype of their own. Norms, biases and the router stay at 16 bits.
WEIGHT_PARTS = ("attention", "mlp", "experts", "embedding")

BLOCK_SIZES = {name: kind.sizes for name, kind in KINDS.items()}
OPTIONAL_GROUPS = {name: kind.optional for name, kind in KINDS.items()}
OPTIONAL_SIZES = {
    name: tuple(size for group in kind.optional for size in group) for name, kind in KINDS.items()
}
MAY_BE_ZERO = {name: kind.may_be_zero for name, kind in KINDS.items()}
WORDS = {name: kind.words for name, kind in KINDS.items()}

# Kinds that mix tokens: one of them a layer, which is what pipeline stages divide.
MIXERS = tuple(name for name, kind in KINDS.items() if kind.recomputed_as == "mixer")
FEED_FORWARD = tuple(
    name for name, kind in KINDS.items() if kind.recomputed_as not in ("mixer", "ends")
)


def sizes_of(kind: str) -> tuple[str, ...]:
    """Every size that a block of the kind may have."""
    return BLOCK_SIZES[kind] + OPTIONAL_SIZES[kind]
