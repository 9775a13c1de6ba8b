"""The project's own model configuration: what a front holds and `dse estimate` reads again.

`model_type` is `dse`. `blocks` and the two tables say everything; the flat keys beside them
(`num_hidden_layers`, `num_attention_heads`, ...) repeat the main sizes for people and are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.blocks import KINDS
from dse.errors import InputError
from dse.schema.blocks import BLOCK_SIZES, MIXERS, OPTIONAL_SIZES, WEIGHT_PARTS
from dse.schema.dtypes import DTYPES, TRAINABLE
from dse.schema.model import BlockSpec, Model, check

MODEL_TYPE = "dse"
PREDICTION = "num_nextn_predict_layers"
TRAINED = "trained_in"
DRAFTS = "tokens_per_step"  # by how many were drafted, as published
# The usual names of the main sizes of a kind of block.
_FLAT = {
    "gqa": {
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "head_dim": "head_dim",
    },
    "mla": {"num_attention_heads": "heads", "kv_lora_rank": "kv_lora_rank"},
    "mlp": {"intermediate_size": "intermediate_size"},
    "moe": {
        "num_experts": "experts",
        "num_experts_per_tok": "experts_per_token",
        "moe_intermediate_size": "expert_intermediate_size",
    },
}


def config_of(model: Model) -> dict[str, Any]:
    """The configuration object of a model; `model_of(config_of(m))` equals m up to its notes."""
    return {
        "model_type": MODEL_TYPE,
        "name": model.name,
        **_flat(model),
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied_embeddings,
        "training_tokens": model.training_tokens,
        **({} if model.prediction_layers is None else {PREDICTION: model.prediction_layers}),
        **({} if model.trained_in is None else {TRAINED: model.trained_in}),
        **(
            {DRAFTS: {str(k): gained for k, gained in model.drafts.items()}} if model.drafts else {}
        ),
        "weight_dtypes": dict(model.weight_dtypes),
        "kv_dtype": model.kv_dtype,
        "blocks": [
            {"kind": block.kind, "count": block.count, **block.sizes} for block in model.blocks
        ],
    }


def model_of(config: Mapping[str, Any], source: str) -> Model:
    """Reads a configuration object back. Raises InputError naming a key that is missing or bad."""
    try:
        for kind in [block["kind"] for block in config["blocks"]]:
            if kind not in BLOCK_SIZES:
                kinds = ", ".join(BLOCK_SIZES)
                raise InputError(f"{kind!r}", file=source, field="blocks.kind", accepted=kinds)
        blocks = tuple(
            BlockSpec(
                block["kind"],
                block["count"],
                {name: block[name] for name in BLOCK_SIZES[block["kind"]]}
                | {n: block[n] for n in OPTIONAL_SIZES.get(block["kind"], ()) if n in block},
            )
            for block in config["blocks"]
        )
        model = Model(
            id=config["name"],
            name=config["name"],
            hidden_size=config["hidden_size"],
            vocab_size=config["vocab_size"],
            tied_embeddings=config["tie_word_embeddings"],
            blocks=blocks,
            weight_dtypes={part: config["weight_dtypes"][part] for part in WEIGHT_PARTS},
            kv_dtype=config["kv_dtype"],
            training_tokens=config["training_tokens"],
            source=source,
            prediction_layers=config.get(PREDICTION),
            trained_in=config.get(TRAINED),
            drafts={int(k): float(gained) for k, gained in config.get(DRAFTS, {}).items()} or None,
        )
    except KeyError as error:
        raise InputError("missing", file=source, field=str(error.args[0])) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"not a model of this project: {error}", file=source) from error
    tokens, modules = model.training_tokens, model.prediction_layers
    for field, good, accepted in (
        ("name", isinstance(model.name, str), "a text"),
        ("tie_word_embeddings", model.tied_embeddings in (True, False), "true or false"),
        ("kv_dtype", model.kv_dtype in (None, *DTYPES), ", ".join(("null", *DTYPES))),
        (
            "training_tokens",
            tokens is None or (isinstance(tokens, int | float) and tokens >= 1),
            "null, or a number of tokens from 1",
        ),
        (TRAINED, model.trained_in in (None, *TRAINABLE), ", ".join(TRAINABLE)),
        (PREDICTION, modules is None or (type(modules) is int and 0 <= modules <= 64), "0 to 64"),
    ):
        if not good:
            raise InputError(f"{config[field]!r:.40}", file=source, field=field, accepted=accepted)
    check(model)
    return model


def _flat(model: Model) -> dict[str, Any]:
    """Main sizes under their usual names."""
    flat: dict[str, float] = {"num_hidden_layers": model.num_hidden_layers}
    for block in model.blocks:
        names = _FLAT.get(block.kind, {})
        flat |= {key: block.sizes[size] for key, size in names.items()}
        if block.kind == "moe":
            width = block.sizes["expert_intermediate_size"]
            flat["num_shared_experts"] = block.sizes["shared_intermediate_size"] / width
    return {key: int(value) if float(value).is_integer() else value for key, value in flat.items()}


# The layers of a configuration in words.


def _plain(model: Mapping[str, Any]) -> bool:
    """Every layer full multi-head or grouped-query attention, of which nothing need be said."""
    mixers = _mixers(model)
    return len(mixers) <= 1 and not any(_mixer_in_short(b) or b.get("output_gate") for b in mixers)


def layers_in_words(model: Mapping[str, Any]) -> str:
    """`10 layers of full attention and 52 with a window of 1,024 tokens`; empty where all are plain
    attention."""
    if _plain(model):
        return ""
    first, *others = (f"{block['count']} of {_mixer_in_words(block)}" for block in _mixers(model))
    parts = [first.replace(" of ", " layers of ", 1), *others]
    return ", ".join(parts[:-1]) + (" and " if others else "") + parts[-1]


def layers_in_short(model: Mapping[str, Any]) -> str:
    """`52 window1024`, `mla512`, `36 gated_delta_net`: what is not full grouped-query attention,
    with its layers where not all are."""
    mixers = _mixers(model)
    words = []
    for block in mixers:
        if name := _mixer_in_short(block):
            words.append(name if len(mixers) == 1 else f"{block['count']} {name}")
    return " ".join(words)


def _mixers(model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block for block in model.get("blocks", ()) if block["kind"] in MIXERS]


def _mixer_in_words(block: Mapping[str, Any]) -> str:
    words = KINDS[block["kind"]].in_words(block)
    if block.get("index_topk"):
        words += f" to the {block['index_topk']:,} tokens that an indexer picks"
    return words + (", its output gated" if block.get("output_gate") else "")


def _mixer_in_short(block: Mapping[str, Any]) -> str:
    top = f"top{block['index_topk']}" if block.get("index_topk") else ""
    return " ".join(filter(None, (KINDS[block["kind"]].in_short(block), top)))
