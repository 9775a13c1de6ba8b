"""One module a kind of block, named as the kind is; `KIND` in it is a `Kind`, which says all that
is known of it: its sizes, its weights, its operators, what its requests keep. A module here with a
`KIND` is a kind; nothing lists them."""

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
