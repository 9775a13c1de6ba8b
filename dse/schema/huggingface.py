"""A Hugging Face `config.json` -> Model, for the families in `dse.schema.families`, and the number
formats of a checkpoint, read and written.

Keys that move no byte and no flop (rotary embedding, dropout, token ids, ...) are passed over; a
key that is neither read nor known is reported in `Model.unknown_keys`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dse.blocks import FEED_FORWARD, MIXERS, WEIGHT_PARTS, WORDS
from dse.errors import InputError
from dse.files import full_path, read_bytes, text_of
from dse.record import record
from dse.schema.families import CLASSES, FAMILIES, FORMATS, MODEL_TYPES, PASSED_OVER, Family
from dse.schema.families.config import Cannot, Config, ConfigReader, Shape, merged
from dse.schema.model import MODEL_TYPE, BlockSpec, Model, check, model_of

METHODS = ("fp8", "mxfp4", "compressed-tensors", "modelopt", "awq", "gptq")
SIXTEEN_BITS = ("bfloat16", "float16")

# Of each part that a method may reach: the words of a module pattern that name it, the pairs of
# projections that, left alone together, leave the whole layer's part alone, and the kinds of blocks
# that hold weights of it.
_UP, _DOWN = {"up", "gate_up"}, {"down"}
_PARTS: Mapping[str, tuple[set[str], set[str], set[str], tuple[str, ...]]] = {
    "attention": ({"self_attn"}, {"q", "q_a", "q_b", "qkv"}, {"o"}, MIXERS),
    "mlp": ({"mlp", "shared_expert", "shared_experts"}, _UP, _DOWN, FEED_FORWARD),
    "experts": ({"mlp", "experts"}, _UP, _DOWN, ("moe",)),
}
QUANTIZED = tuple(_PARTS)
_ROUTER = {"gate", "router", "shared_expert_gate"}
_ALGORITHMS, _GROUPS = FORMATS["algorithms"], FORMATS["groups"]
# Formats of attention, dense and expert weights that have a method of their own.
_TOGETHER = {tuple(one["of"]): one["keys"] for one in FORMATS["together"]}
# A format and the patterns of the modules that it reaches; all Linear layers without any.
Group = tuple[str, list[str]]


def number_formats(
    reader: ConfigReader, config: Mapping[str, object], blocks: list[BlockSpec]
) -> tuple[dict[str, str], str | None]:
    """The dtype of each of `dse.blocks.WEIGHT_PARTS`, and that of the KV cache: fp8 where the
    checkpoint carries scales for it, else None."""
    key = "dtype" if "dtype" in config else "torch_dtype"
    stored = config.get(key)
    if stored is None or stored == "auto":
        reader.assume("torch_dtype absent: weights at 16 bits")
    elif stored == "float32":
        reader.assume("torch_dtype float32: weights served at 16 bits")
    elif stored not in SIXTEEN_BITS:
        raise reader.refuse(key, f"{stored!r}", "bfloat16, float16, float32")
    dtypes: dict[str, str] = dict.fromkeys(WEIGHT_PARTS, "bf16")
    quantization: Any = config.get("quantization_config")
    if quantization is None:
        return dtypes, None
    if not isinstance(quantization, dict):
        raise reader.refuse("quantization_config", f"{quantization!r}", "an object")
    method = str(quantization.get("quant_method", "")).replace("_", "-").lower()
    method = "modelopt" if method == "modelopt-fp4" else method
    if method not in METHODS:
        field, accepted = "quantization_config.quant_method", ", ".join(METHODS)
        raise reader.refuse(field, f"{method!r} is not covered", accepted)
    if method == "mxfp4":  # the format exists for expert weights alone
        return {**dtypes, "experts": "mxfp4"}, _cache_dtype(reader, quantization)
    reached: dict[str, str] = {}
    for dtype, targets in _groups(reader, quantization, method):
        if targets:
            reached |= {part: dtype for part in QUANTIZED if _reaching(part, targets)}
        else:
            reached = {**dict.fromkeys(QUANTIZED, dtype), **reached}
    dtypes |= reached
    if config.get("expert_dtype") == "fp4":
        dtypes["experts"] = "mxfp4"
    kept = _strings(quantization, "ignore", "modules_to_not_convert", "exclude_modules")
    for part in QUANTIZED:
        if _left_alone(reader, part, kept, blocks):
            dtypes[part] = "bf16"
    return dtypes, _cache_dtype(reader, quantization)


def _cache_dtype(reader: ConfigReader, quantization: Mapping[str, Any]) -> str | None:
    scheme, algorithm = (quantization.get(k) for k in ("kv_cache_scheme", "kv_cache_quant_algo"))
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "fp8"
    if str(algorithm).upper() == "FP8":
        return "fp8"
    if scheme is not None or algorithm is not None:
        said = "quantization_config asks for a KV cache format that is not covered: left out"
        reader.assume(said)
    return None


def _groups(reader: ConfigReader, quantization: Mapping[str, object], method: str) -> list[Group]:
    """What a method gives to which modules."""
    if method == "fp8":
        blocks = quantization.get("weight_block_size") is not None
        return [("fp8_block" if blocks else "fp8", [])]
    if method in ("awq", "gptq"):
        bits = quantization.get("bits", quantization.get("w_bit"))
        return [(_integer_format(reader, bits, "quantization_config.bits"), [])]
    if method == "modelopt" and "quant_algo" in quantization:
        if quantization["quant_algo"] is None:
            return []
        algorithm = str(quantization["quant_algo"]).upper()
        for word, dtype in _ALGORITHMS.items():
            if word in algorithm:
                return [(dtype, [])]
        raise reader.refuse(
            "quantization_config.quant_algo", f"{algorithm!r} is not covered", "NVFP4, FP8"
        )
    field = "quantization_config.config_groups"
    written = quantization.get("config_groups")
    if not isinstance(written, dict) or not written:
        raise reader.refuse(field, "missing or no object", "groups of weights and targets")
    groups: list[Group] = []
    for name, group in written.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise reader.refuse(f"{field}.{name}.weights", "missing or no object")
        targets = _strings(group, "targets")
        dtype = _group_format(reader, weights, f"{field}.{name}.weights")
        groups.append((dtype, [] if "Linear" in targets else targets))
    return groups


def _group_format(reader: ConfigReader, weights: Mapping[str, object], field: str) -> str:
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if kind not in ("float", "int"):
        raise reader.refuse(f"{field}.type", f"{kind!r}", "float or int")
    if kind == "float" and bits == 8:
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    if kind == "float" and bits == 4:
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    return _integer_format(reader, bits, f"{field}.num_bits")


def _integer_format(reader: ConfigReader, bits: object, field: str) -> str:
    if bits not in (4, 8):
        raise reader.refuse(field, f"{bits!r}", "4 or 8")
    return f"int{bits}"


def _strings(holder: Mapping[str, object], *keys: str) -> list[str]:
    lists = [value for key in keys if isinstance(value := holder.get(key), list)]
    return [item for value in lists for item in value if isinstance(item, str)]


def _words(pattern: str) -> set[str]:
    """The names in a pattern over modules, be it a path, a glob or a regular expression."""
    words = re.split(r"[^a-z_]+", pattern.replace("\\", " "))
    return {word if word == "gate_proj" else word.removesuffix("_proj") for word in words}


def _reaching(part: str, patterns: list[str]) -> list[str]:
    """The patterns that reach weights of the part; routers and norms have none of their own."""
    own = _PARTS[part][0]
    others = {"experts", "shared_expert", "shared_experts"} - own
    found = []
    for pattern in patterns:
        words = _words(pattern)
        projection = "_proj" in pattern
        if "norm" in pattern or words & others or (words & _ROUTER and not projection):
            continue
        # `mlp.*` holds the experts below it, `mlp.up_proj` is a dense layer's own.
        dense_only = part == "experts" and projection and "experts" not in words
        if words & own and not dense_only:
            found.append(pattern)
    return found


def _left_alone(
    reader: ConfigReader, part: str, patterns: list[str], blocks: list[BlockSpec]
) -> bool:
    """Whether the patterns keep all of a part at 16 bits; a piece of it is only noted."""
    _, first, last, kinds = _PARTS[part]
    by_layer: dict[int | None, set[str]] = {}
    for pattern in _reaching(part, patterns):
        number = re.search(r"layers\.(\d{1,5})\.", pattern.replace("\\", ""))
        layer = int(number[1]) if number else None
        if layer is None or layer < reader.layers:  # later ones predict further tokens
            words = _words(pattern) if "_proj" in pattern else first | last
            by_layer.setdefault(layer, set()).update(words)
    covered = [layer for layer, words in by_layer.items() if words & first and words & last]
    layers = sum(
        block.count
        for block in blocks
        if block.kind in kinds
        and (part != "mlp" or block.sizes.get("shared_intermediate_size", 1) > 0)
    )
    if None in covered or len(covered) >= max(1, layers):
        return True
    if by_layer:
        reader.assume(
            f"quantization_config keeps a piece of the {part} weights at 16 bits: "
            "not counted, all of them have the quantized format"
        )
    return False


def formats(shape: Shape) -> Config:
    """Keys that give the model's weight formats back. Raises InputError for formats that no method
    which is read here has together."""
    model = shape.model
    own = tuple(model.weight_dtypes[part] for part in QUANTIZED)
    used = {*own} if shape.of("moe") else {*own[:2]}
    config: Config = {"dtype": "bfloat16"}
    if model.weight_dtypes["embedding"] == "bf16":
        if used == {"bf16"}:
            return config
        if used == {"fp8_block"}:
            return {**config, "quantization_config": dict(FORMATS["blocks"])}
        if own in _TOGETHER:
            return {**config, **_TOGETHER[own]}
        if len(used) == 1 and own[0] in _GROUPS:
            groups = {"group_0": {"targets": ["Linear"], "weights": _GROUPS[own[0]]}}
            method: Config = {"quant_method": "compressed-tensors", "config_groups": groups}
            if model.kv_dtype == "fp8":
                method["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
            return {**config, "quantization_config": method}
    said = ", ".join(f"{part} {dtype}" for part, dtype in model.weight_dtypes.items())
    raise InputError(
        f"{model.name}: no checkpoint format here holds {said}",
        field="weight_dtypes",
        accepted="one format of all matrices, or mxfp4 experts beside bf16 or fp8 blocks",
    )


# A Hugging Face `config.json` -> Model, for the families in `dse.schema.families`.
#
# Keys that move no byte and no flop (rotary embedding, dropout, token ids, ...) are passed over;
# a key that is neither read nor known is reported in `Model.unknown_keys`.


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
    project's own (`dse.schema.model`) is read as well.

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
    tied = reader.boolean("tie_word_embeddings")
    dtypes, cache = number_formats(reader, config, blocks)
    model = Model(
        id=name.lower(),
        name=name,
        hidden_size=reader.integer("hidden_size"),
        vocab_size=reader.integer("vocab_size"),
        tied_embeddings=tied,
        blocks=tuple(blocks),
        weight_dtypes=dtypes,
        kv_dtype=cache,
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


# A model as a `config.json` that Hugging Face transformers instantiates.
#
# A class of `ARCHITECTURES` is taken if its configuration, read back, has the same layers, formats
# and tables: the one that the model is published as, else the one with the fewest parameters
# beyond this project's count. What is written is therefore always read back to the same numbers.

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
