"""What a family of configurations is: data, and readers of its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.model import BlockSpec

BlockReader = Callable[[ConfigReader], list[BlockSpec]]


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Family:
    """`defaults[key]` is the value of an absent key; `aliases[other] = key` are its other names.
    `others` are further names of the architecture. Keys of an object inside the configuration
    are written `object.key`."""

    architecture: str
    attention: BlockReader
    feed_forward: BlockReader
    defaults: Mapping[str, object]
    aliases: Mapping[str, str] = field(default_factory=_nothing)
    others: tuple[str, ...] = ()
    tables: BlockReader | None = None


# Keys that every configuration has, under these names or others.
COMMON: Mapping[str, object] = {
    "hidden_size": REQUIRED,
    "num_hidden_layers": REQUIRED,
    "num_attention_heads": REQUIRED,
    "vocab_size": REQUIRED,
    "tie_word_embeddings": False,
    "layer_types": None,
}
DENSE: Mapping[str, object] = {**COMMON, "intermediate_size": REQUIRED, "head_dim": None}
EXPERTS: Mapping[str, object] = {
    "num_experts": REQUIRED,
    "num_experts_per_tok": REQUIRED,
    "moe_intermediate_size": REQUIRED,
}
PREDICTION: Mapping[str, object] = {"num_nextn_predict_layers": None}
