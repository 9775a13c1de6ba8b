"""A model as a `config.json` that Hugging Face transformers instantiates.

A class of `ARCHITECTURES` is taken if its configuration, read back by `dse.schema.huggingface`, has
the same layers, formats and tables: the one that the model is published as, else the one with the
fewest parameters beyond this project's count. What is written is therefore always read back to the
same numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields

from dse.blocks import WORDS
from dse.errors import InputError
from dse.record import record
from dse.schema.families import FAMILIES
from dse.schema.families.config import Cannot, Config, Shape, merged
from dse.schema.huggingface import classes_of, formats, from_config
from dse.schema.model import Model

TRANSFORMERS = "5.23.0"  # the version that every class was instantiated with
# The family of every class that is written.
ARCHITECTURES: Mapping[str, str] = {
    family.class_name: name for name, family in FAMILIES.items() if family.export is not None
}
# Special tokens are the tokenizer's; the classes' own may lie outside a smaller vocabulary.
_NO_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
# What a configuration does not hold, and the layers, which are compared by themselves.
_NOT_WRITTEN = (
    "id",
    "name",
    "source",
    "assumed",
    "unknown_keys",
    "training_tokens",
    "architecture",
    "blocks",
    "drafts",
    "drafted_by",
)


@record
class Written:
    """`beyond`: parameters that the class has over this project's count, by what they are; `others`
    are further classes that have the shape. `published` is the class that the model is published
    as, under the name that it has here; None where that is not known."""

    architecture: str
    config: Config
    beyond: Mapping[str, int]
    others: tuple[str, ...]
    published: str | None

    @property
    def parameters_beyond(self) -> int:
        return sum(self.beyond.values())


def write_config(
    model: Model, *, architecture: str | None = None, context: int | None = None
) -> Written:
    """The configuration of a model, of the class asked for or of the one that fits best; `context`
    is the longest sequence, the class's own default where it is None.

    Raises InputError with the reason of every class that is near, where none has the shape.
    """
    found, reasons = _candidates(model, architecture, context)
    if not found:
        raise InputError(
            f"{model.name}: no class of transformers {TRANSFORMERS} that is written here has this "
            f"shape: {'; '.join(reasons)}",
            field="model" if architecture is None else "--architecture",
            accepted="the other formats, or another shape",
        )
    published = published_class(model)

    def order(item: tuple[Config, Mapping[str, int]]) -> tuple[bool, int]:
        """A stable sort: the order of ARCHITECTURES decides between equals."""
        config, beyond = item
        return config["architectures"][0] != published, sum(map(abs, beyond.values()))

    best, *others = sorted(found, key=order)
    config, beyond = best
    names = tuple(config["architectures"][0] for config, _ in others)
    return Written(config["architectures"][0], config, beyond, names, published)


def published_class(model: Model) -> str | None:
    """The class that the model is published as, under the name that is written here where one is:
    that of its text model."""
    if model.architecture is None:
        return None
    names = classes_of(model.architecture)
    return next((name for name in names if name in ARCHITECTURES), names[0])


def find_architecture(name: str) -> str:
    """The class of a name or model type, in any case. Raises InputError with a near name."""
    known = {item.lower(): item for item in ARCHITECTURES}
    for item, family in ARCHITECTURES.items():
        export = FAMILIES[family].export
        known[(export and export.model_type) or family] = item
    if name.lower() in known:
        return known[name.lower()]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    raise InputError(
        f"unknown class {name!r}{hint}", field="--architecture", accepted=", ".join(ARCHITECTURES)
    )


def note_of(name: str) -> str:
    """What is said of a class that is written; empty where there is nothing to say."""
    export = FAMILIES[ARCHITECTURES[name]].export
    return "" if export is None else export.note


def config_of_family(name: str, model: Model, context: int | None = None) -> Config:
    """The configuration of a model as one of a family that is written. Raises Cannot where the
    family has no keys for the shape, InputError where nothing has its formats."""
    family, shape = FAMILIES[name], Shape(model)
    assert family.export is not None
    sizes, modules = family.write(shape, family.export), model.prediction_layers
    prediction = family.prediction or "num_nextn_predict_layers"
    return {
        "architectures": [family.class_name],
        "model_type": family.export.model_type or name,
        "hidden_size": shape.hidden,
        # Classes whose layers are listed count feed-forward layers as layers of their own.
        "num_hidden_layers": len(sizes.get("layers_block_type", ())) or shape.layers,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied_embeddings,
        **({} if context is None else {"max_position_embeddings": context}),
        **({} if modules is None else {prediction: modules}),
        **sizes,
        **formats(shape),
        **_NO_TOKENS,
    }


def _candidates(
    model: Model, asked: str | None, context: int | None
) -> tuple[list[tuple[Config, Mapping[str, int]]], list[str]]:
    """Every class that has the shape, with its parameters beyond; and why others do not: those
    that read fewest sizes otherwise."""
    shape = Shape(model)
    formats(shape)  # Formats that no class holds are refused before shapes are.
    found: list[tuple[Config, Mapping[str, int]]] = []
    why: dict[tuple[str, ...], list[str]] = {}
    for name in ARCHITECTURES if asked is None else [find_architecture(asked)]:
        try:
            config = config_of_family(ARCHITECTURES[name], model, context)
            differs = _differences(model, config)
            if not differs:
                found.append((config, FAMILIES[ARCHITECTURES[name]].beyond(shape)))
        except Cannot as reason:
            if not (reason.near or asked is not None):
                continue
            differs = (str(reason),)
        if differs:
            why.setdefault(differs, []).append(name)
    kinds = " and ".join(dict.fromkeys(WORDS[block.kind] for block in shape.blocks))
    fewest = min(map(len, why), default=0)
    reasons = [
        f"{', '.join(names) if len(names) <= 3 else f'{len(names)} classes'}: {', '.join(reason)}"
        for reason, names in why.items()
        if len(reason) == fewest
    ]
    return found, reasons or [f"none has {kinds}"]


def _differences(model: Model, config: Config) -> tuple[str, ...]:
    """What reading the configuration back would change, in words."""
    try:
        again = from_config(config, model.name, "the configuration")
    except InputError as error:
        return (f"it is not read back: {error}",)
    names = [field.name for field in fields(Model) if field.name not in _NOT_WRITTEN]
    found = {name: (getattr(again, name), getattr(model, name)) for name in names}
    found |= dict.fromkeys(again.unknown_keys, ("it is not read", "a key"))
    read, own = (
        sorted((b.kind, b.count, sorted(b.sizes.items())) for b in merged(either))
        for either in (again, model)
    )
    if [block[:2] for block in read] != [block[:2] for block in own]:
        return ("its layers would be read back as others",)
    for (kind, _, there), (*_, here) in zip(read, own, strict=True):
        sizes = dict(here), dict(there)
        for size in sorted({*sizes[0], *sizes[1]}):
            words = f"{size.replace('_', ' ')} of {WORDS[kind]}"
            found[words] = (sizes[1].get(size, 0), sizes[0].get(size, 0))
    return tuple(
        f"{name} would read {read!r}, not {own!r}"
        for name, (read, own) in found.items()
        if read != own
    )
