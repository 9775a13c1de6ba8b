"""A Hugging Face `config.json` -> Model, for the families in `dse.specs.families`.

Keys that move no byte and no flop (rotary embedding, dropout, token ids, ...) are passed over;
a key that is neither read nor known is reported in `Model.unknown_keys`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dse.errors import InputError
from dse.specs.families import FAMILIES, Family
from dse.specs.families.quantization import kv_dtype, weight_dtypes
from dse.specs.families.reader import ConfigReader
from dse.specs.model import Model, check
from dse.specs.own_config import MODEL_TYPE, model_of

LARGEST_FILE_BYTES = 16_000_000

_ARCHITECTURES = {family.architecture: name for name, family in FAMILIES.items()}

# Known, and without weight in memory or time.
_IGNORED = frozenset((
    "architectures", "model_type", "quantization_config", "torch_dtype", "dtype",
    "transformers_version", "auto_map", "_name_or_path", "name_or_path", "id2label", "label2id",
    "problem_type", "is_decoder", "is_encoder_decoder", "use_cache", "return_dict",
    "output_attentions", "output_hidden_states", "torchscript", "use_bfloat16", "hidden_act",
    "hidden_activation", "initializer_range", "rms_norm_eps", "layer_norm_eps",
    "max_position_embeddings", "initial_context_length", "max_sequence_length",
    "model_max_length", "rope_theta", "rope_scaling", "rope_parameters", "rope_interleave",
    "rope_type", "partial_rotary_factor", "attention_dropout", "dropout", "hidden_dropout",
    "embd_pdrop", "resid_pdrop", "attn_pdrop", "bos_token_id", "eos_token_id", "pad_token_id",
    "unk_token_id", "sep_token_id", "decoder_start_token_id", "pretraining_tp", "tokenizer_class",
    "task_specific_params", "finetuning_task", "prefix", "gradient_checkpointing",
    "output_router_logits", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux",
    "router_jitter_noise", "norm_topk_prob", "scoring_func", "topk_method", "topk_group",
    "n_group", "routed_scaling_factor", "ep_size", "swiglu_limit", "swiglu_alpha",
    "attn_implementation", "_attn_implementation", "use_mrope",
))  # fmt: skip


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
    folder = path.resolve().parent.name
    return from_config(config, folder if path.name == "config.json" else path.stem, str(path))


def from_config(config: Mapping[str, object], name: str, source: str) -> Model:
    """The model of a parsed configuration; `source` is the file that messages name. One of this
    project's own (`dse.specs.own_config`) is read as well.

    Raises InputError for an architecture that is not covered and for every value that is no size.
    """
    if config.get("model_type") == MODEL_TYPE:
        return model_of(config, source)
    family_name, family = _family(config, source)
    reader = ConfigReader(config, family_name, family.defaults, family.aliases, source)
    blocks = [*family.attention(reader), *family.feed_forward(reader)]
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
        source=source,
        assumed=tuple(reader.assumed),
        unknown_keys=tuple(sorted(set(config) - reader.known - _IGNORED)),
    )
    check(model)
    return model


def _family(config: Mapping[str, object], source: str) -> tuple[str, Family]:
    """By `architectures`, which names the code that runs; without it, by `model_type`."""
    architectures, model_type = config.get("architectures"), config.get("model_type")
    if architectures:
        first = architectures[0] if isinstance(architectures, list) else architectures
        name, field, read = _ARCHITECTURES.get(str(first)), "architectures", first
    else:
        name = model_type if isinstance(model_type, str) and model_type in FAMILIES else None
        field, read = "model_type", model_type
    if name is None:
        message = f"{read!r} is not a supported architecture" if read else "missing"
        raise InputError(message, file=source, field=field, accepted=", ".join(_supported()))
    return name, FAMILIES[name]


def _supported() -> list[str]:
    return [f"{name} ({family.architecture})" for name, family in FAMILIES.items()]


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

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(data) > LARGEST_FILE_BYTES:
        raise refuse(f"more than {LARGEST_FILE_BYTES:,} bytes")
    try:
        value = json.loads(data, object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise refuse(f"not JSON: {reason}") from error
    if not isinstance(value, dict):
        raise refuse(f"a JSON {type(value).__name__}")
    return value
