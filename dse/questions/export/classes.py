"""The class of transformers that a model is published as, and what is said where another is
written."""

from __future__ import annotations

from dataclasses import replace

from dse.schema.architectures import ARCHITECTURES, TRANSFORMERS, Written, note_of
from dse.schema.model import Model
from dse.schema.model_catalog import load_models


def as_published(model: Model) -> Model:
    """The model with the class that it is published as and what drafts for it. A point of a study
    has lost these, and is the
    catalog's model where name and layers are the same."""
    if model.architecture is not None:
        return model
    for known in load_models().values():
        if known.name == model.name and known.blocks == model.blocks:
            return replace(model, architecture=known.architecture, drafted_by=known.drafted_by)
    return model


def class_notes(written: Written) -> tuple[str, ...]:
    """What a reader has to know of the class that is written."""
    name, published = written.architecture, written.published
    if published is None:
        return ()
    if published == name:
        note = note_of(name)
        return (note,) if note else ()
    why = "is not taken here"
    if published not in ARCHITECTURES:
        why = f"is not written here (transformers {TRANSFORMERS})"
    return (
        f"published as {published}, which {why}: {name} has the same layers and sizes, not its "
        "norms, biases, activation or weights' names; its checkpoint keeps its own config.json",
    )
