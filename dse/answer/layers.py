"""The layers of a model in words, from the configuration object that a front holds of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.schema.blocks import MIXERS


def plain(model: Mapping[str, Any]) -> bool:
    """Every layer full multi-head or grouped-query attention, of which nothing need be said."""
    mixers = _mixers(model)
    return len(mixers) <= 1 and all(
        b["kind"] == "gqa" and not (_local(b) or b.get("index_topk") or b.get("output_gate"))
        for b in mixers
    )


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


def _local(block: Mapping[str, Any]) -> int:
    return block.get("window") or block.get("chunk") or 0


def _linear(block: Mapping[str, Any]) -> str:
    if block["kind"] == "mamba":
        return "Mamba-2" if block["heads"] else "Mamba-1"
    if block["kind"] == "delta_net":
        if not block["gates_per_head"]:
            return "lightning attention"
        return "Kimi delta attention" if block["decay_rank"] else "gated delta-net"
    return ""


def _long(block: Mapping[str, Any]) -> str:
    if name := _linear(block):
        return name
    if block["kind"] == "mla":
        words = f"latent attention (MLA, {block['kv_lora_rank']:,} numbers cached for keys and "
        words += f"values, {block['qk_rope_head_dim']} for positions)"
    elif block["kind"] == "compressed":
        words = "attention over a compressed cache"
    elif block["window"]:
        words = f"attention with a window of {block['window']:,} tokens"
    elif block.get("chunk"):
        words = f"attention in chunks of {block['chunk']:,} tokens"
    else:
        words = "full attention"
    if block.get("index_topk"):
        words += f" to the {block['index_topk']:,} tokens that an indexer picks"
    return words + (", its output gated" if block.get("output_gate") else "")


def _short(block: Mapping[str, Any]) -> str:
    if block["kind"] == "mla":
        name = f"mla{block['kv_lora_rank']}"
    elif block["kind"] == "gqa":
        kind = "window" if block["window"] else "chunk"
        name = f"{kind}{_local(block)}" if _local(block) else ""
    else:
        name = _linear(block).replace(" ", "-").lower() or block["kind"]
    top = f"top{block['index_topk']}" if block.get("index_topk") else ""
    return " ".join(filter(None, (name, top)))
