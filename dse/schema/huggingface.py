"""A Hugging Face `config.json` -> Model, for the families in `dse.schema.families`.

Keys that move no byte and no flop (rotary embedding, dropout, token ids, ...) are passed over;
a key that is neither read nor known is reported in `Model.unknown_keys`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path

from dse.errors import InputError
from dse.files import full_path, read_bytes, text_of
from dse.schema.families import CLASSES, FAMILIES, MODEL_TYPES, PASSED_OVER, Family
from dse.schema.families.quantization import kv_dtype, weight_dtypes
from dse.schema.families.reader import ConfigReader
from dse.schema.model import Model, check
from dse.schema.own_config import MODEL_TYPE, model_of


def load_config(path: str | Path) -> Model:
    """The model of a `config.json`, or of a folder that holds one; named after the folder.

    A ModelOpt checkpoint's `hf_quant_config.json` beside it is read as its quantization.
    Raises InputError for a file that cannot be read, is no JSON object, or is not covered.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    config = _read(path)
    beside = path.with_name("hf_quant_config.json")
    if config.get("quantization_config") is None and beside.is_file():
        quantization = _read(beside).get("quantization")
        if not isinstance(quantization, dict):
            raise InputError("missing or no object", file=str(beside), field="quantization")
        config = {**config, "quantization_config": {"quant_method": "modelopt", **quantization}}
    folder = Path(full_path(path)).parent.name
    return from_config(config, folder if path.name == "config.json" else path.stem, str(path))


def from_config(config: Mapping[str, object], name: str, source: str) -> Model:
    """The model of a parsed configuration; `source` is the file that messages name. One of this
    project's own (`dse.schema.own_config`) is read as well.

    Raises InputError for an architecture that is not covered and for every value that is no size.
    """
    if config.get("model_type") == MODEL_TYPE:
        return model_of(config, source)
    config, encoders = _text(config, source)
    family_name, family = _family(config, source)
    config = _flat(config, family)
    reader = ConfigReader(config, family_name, family.defaults, family.aliases, source)
    blocks = family.read(reader)
    modules = family.modules(reader)
    if encoders:
        reader.assume(f"{', '.join(encoders)}: left out, the text model alone is read")
    model = Model(
        id=name.lower(),
        name=name,
        hidden_size=reader.integer("hidden_size"),
        vocab_size=reader.integer("vocab_size"),
        tied_embeddings=reader.boolean("tie_word_embeddings"),
        blocks=tuple(blocks),
        weight_dtypes=weight_dtypes(reader, config, blocks),
        kv_dtype=kv_dtype(reader, config),
        training_tokens=None,
        prediction_layers=modules,
        source=source,
        assumed=tuple(reader.assumed),
        unknown_keys=tuple(sorted(key for key in set(config) - reader.known if _unknown(key))),
        architecture=_named(config) or family.architecture,
    )
    check(model)
    return model


def _unknown(key: str) -> bool:
    """Not one of the keys that move nothing; those of tokens and encoders end alike."""
    name = key.rsplit(".", 1)[-1]
    return name not in PASSED_OVER and not name.endswith(
        ("_token_id", "_token_index", "_token_ids")
    )


def _text(
    config: Mapping[str, object], source: str
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The text model of a configuration with several inputs (`text_config` inside), and the keys
    of the encoders that are left out."""
    ends = ("vision_config", "audio_config")
    encoders = tuple(sorted(key for key in config if key.endswith(ends)))
    inner = config.get("text_config")
    if inner is None:
        return {key: value for key, value in config.items() if key not in encoders}, encoders
    if not isinstance(inner, dict):
        raise InputError(f"{inner!r}", file=source, field="text_config", accepted="an object")
    outside = {k: v for k, v in config.items() if k not in (*encoders, "text_config")}
    # The outer names say which code runs; the inner file says the sizes.
    own = {key: value for key, value in inner.items() if key not in ("architectures", "model_type")}
    return {**outside, **own}, encoders


def _flat(config: Mapping[str, object], family: Family) -> dict[str, object]:
    """Keys of an object inside, where the family reads any, as `object.key`; and the number of
    layers, where the file has only their list."""
    inside = {key.split(".")[0] for key in (*family.defaults, *family.aliases) if "." in key}
    flat: dict[str, object] = {}
    for key, value in config.items():
        if key in inside and isinstance(value, dict):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        elif key not in inside or value is not None:
            flat[key] = value
    listed = flat.get("layers_block_type")
    if isinstance(listed, list) and "layers_block_type" in family.defaults:
        flat.setdefault("num_hidden_layers", len(listed))
    return flat


def _named(config: Mapping[str, object]) -> str | None:
    """The class that the file names."""
    named = config.get("architectures")
    return str(named[0] if isinstance(named, list) else named) if named else None


def classes_of(architecture: str) -> tuple[str, ...]:
    """All names of a class, those of the same family; itself alone where no family has it."""
    if architecture not in CLASSES:
        return (architecture,)
    family = FAMILIES[CLASSES[architecture]]
    return (architecture, family.architecture, *family.others)


def _family(config: Mapping[str, object], source: str) -> tuple[str, Family]:
    """By `architectures`, which names the code that runs; without it, by `model_type`."""
    named, model_type = _named(config), config.get("model_type")
    if named is not None:
        name, field, read = CLASSES.get(named), "architectures", named
    else:
        name = MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
        field, read = "model_type", model_type
    if name is None:
        message = f"{read!r} is not a supported architecture" if read else "missing"
        near = difflib.get_close_matches(str(read), [*CLASSES, *FAMILIES], n=3, cutoff=0.75)
        nearest = f"near: {', '.join(near)}; " if near else ""
        families = ", ".join(sorted(FAMILIES))
        accepted = f"{nearest}such as LlamaForCausalLM, of one of these families: {families}"
        raise InputError(message, file=source, field=field, accepted=accepted)
    return name, FAMILIES[name]


def _read(path: Path) -> dict[str, object]:
    def refuse(message: str) -> InputError:
        return InputError(message, file=str(path), accepted="a JSON object, as config.json is")

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError("given twice", file=str(path), field=twice)
        return found

    def constant(text: str) -> object:
        raise refuse(f"{text} is no JSON number")

    text = text_of(read_bytes(path), str(path), escapes=True)
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise refuse(f"not JSON: {reason}") from error
    if not isinstance(value, dict):
        raise refuse(f"a JSON {type(value).__name__}")
    return value
