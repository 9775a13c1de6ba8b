"""The class of transformers that a model is published as, and what is said where another is
written."""

from __future__ import annotations

from dataclasses import replace

from dse.schema.architectures import ARCHITECTURES, TRANSFORMERS, Written
from dse.schema.model import Model
from dse.schema.model_catalog import load_models

# What a class has or has not by a switch that no size says.
SWITCHES = {
    "Glm4MoeForCausalLM": "norms of query and key heads (use_qk_norm) are left out: GLM-4.5 has "
    "them, GLM-4.5-Air has not",
}


def as_published(model: Model) -> Model:
    """The model with the class that it is published as. A point of a study has lost it, and is the
    catalog's model where name and layers are the same."""
    if model.architecture is not None:
        return model
    for known in load_models().values():
        if known.name == model.name and known.blocks == model.blocks:
            return replace(model, architecture=known.architecture)
    return model


def class_notes(written: Written) -> tuple[str, ...]:
    """What a reader has to know of the class that is written."""
    name, published = written.architecture, written.published
    if published is None:
        return ()
    if published == name:
        return (SWITCHES[name],) if name in SWITCHES else ()
    why = "is not taken here"
    if published not in ARCHITECTURES:
        why = f"is not written here (transformers {TRANSFORMERS})"
    return (
        f"published as {published}, which {why}: {name} has the same layers and sizes, not its "
        "norms, biases, activation or weights' names; its checkpoint keeps its own config.json",
    )
