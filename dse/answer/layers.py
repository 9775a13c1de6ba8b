"""The layers of a model in words, from the configuration object that a front holds of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.blocks import KINDS
from dse.schema.blocks import MIXERS


def plain(model: Mapping[str, Any]) -> bool:
    """Every layer full multi-head or grouped-query attention, of which nothing need be said."""
    mixers = _mixers(model)
    return len(mixers) <= 1 and not any(_short(b) or b.get("output_gate") for b in mixers)


def layers_in_words(model: Mapping[str, Any]) -> str:
    """`10 layers of full attention and 52 with a window of 1,024 tokens`; empty where all are plain
    attention."""
    if plain(model):
        return ""
    first, *others = (f"{block['count']} of {_long(block)}" for block in _mixers(model))
    parts = [first.replace(" of ", " layers of ", 1), *others]
    return ", ".join(parts[:-1]) + (" and " if others else "") + parts[-1]


def layers_in_short(model: Mapping[str, Any]) -> str:
    """`52 window1024`, `mla512`, `36 gated_delta_net`: what is not full grouped-query attention,
    with its layers where not all are."""
    mixers = _mixers(model)
    words = []
    for block in mixers:
        if name := _short(block):
            words.append(name if len(mixers) == 1 else f"{block['count']} {name}")
    return " ".join(words)


def _mixers(model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block for block in model.get("blocks", ()) if block["kind"] in MIXERS]


def _long(block: Mapping[str, Any]) -> str:
    words = KINDS[block["kind"]].in_words(block)
    if block.get("index_topk"):
        words += f" to the {block['index_topk']:,} tokens that an indexer picks"
    return words + (", its output gated" if block.get("output_gate") else "")


def _short(block: Mapping[str, Any]) -> str:
    top = f"top{block['index_topk']}" if block.get("index_topk") else ""
    return " ".join(filter(None, (KINDS[block["kind"]].in_short(block), top)))
