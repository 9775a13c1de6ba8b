"""One module a kind of block, named as the kind is; `KIND` in it is a `Kind`, which says all that
is known of it: its sizes, its weights, its operators, what its requests keep. A module here with a
`KIND` is a kind; nothing lists them. Below, what all kinds say as tables."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from dse.blocks.kind import Kind

_MODULES = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
_FOUND = {
    module.__name__.rpartition(".")[2]: module.KIND
    for module in _MODULES
    if hasattr(module, "KIND")
}
KINDS: dict[str, Kind] = dict(sorted(_FOUND.items(), key=lambda item: (item[1].order, item[0])))

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
