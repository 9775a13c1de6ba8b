"""A model inside the project: layer groups (blocks) and two tables, whatever file it came from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dse import units
from dse.blocks import (
    BLOCK_SIZES,
    FEED_FORWARD,
    KINDS,
    MAY_BE_ZERO,
    MIXERS,
    WEIGHT_PARTS,
    sizes_of,
)
from dse.errors import Doubt, InputError
from dse.record import record
from dse.schema.dtypes import DTYPES, TRAINABLE

LARGEST_SIZE = 1e9
LARGEST_LAYERS = 10_000
# Of `_doubt`: times as wide as the hidden size (attention, feed-forward), the hidden size of a
# model that is not tiny, tokens of a vocabulary. Published ones have at most 9.2, 8 and 262,144.
WIDE, WIDEST_FEED_FORWARD, LARGE, MOST_VOCABULARY = 16.0, 32.0, 1024, 5_000_000

_SWITCHES = (
    "qkv_bias",
    "output_gate",
    "values_from_keys",
    "reuses_kv",
    "relative_positions",
    "bidirectional",
    "expert_bias",
)

# What a configuration file calls a size; messages use the name that the user wrote.
_FIELD = {
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "window": "sliding_window",
    "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "expert_intermediate_size": "moe_intermediate_size",
}


@record
class BlockSpec:
    """`count` layers of one kind, with the sizes that `dse.blocks` names for it."""

    kind: str
    count: int
    sizes: Mapping[str, float]


@record
class Model:
    """One model shape and what its checkpoint says of number formats.

    `weight_dtypes` has a dtype for each of `candidates.WEIGHT_PARTS`; `kv_dtype` is None where the
    checkpoint asks for no format of its own. `assumed` holds a sentence for everything that the
    source did not say; `unknown_keys` are keys of a configuration file that nothing here reads.
    `trained_in` is the format of its training, None where nothing is said beside the checkpoint's.
    `prediction_layers` are its multi-token-prediction modules, None where that is not said;
    `architecture` is the class that its publisher names in `architectures`; `drafts` the tokens
    that a decode step gives by how many were drafted, as published (search_spaces/drafts.csv), and
    `drafted_by` what drafts them, such as its own modules (MTP).
    """

    id: str
    name: str
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    blocks: tuple[BlockSpec, ...]
    weight_dtypes: Mapping[str, str]
    kv_dtype: str | None
    training_tokens: float | None
    source: str
    assumed: tuple[str, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    prediction_layers: int | None = None
    trained_in: str | None = None
    architecture: str | None = None
    drafts: Mapping[int, float] | None = None
    drafted_by: str = ""

    @property
    def num_hidden_layers(self) -> int:
        """Layers that mix tokens (attention, linear attention, state space)."""
        return sum(block.count for block in self.blocks if block.kind in MIXERS)

    @property
    def experts(self) -> tuple[int, ...]:
        """Experts of each sort of sparse layer; empty for a dense model."""
        return tuple(int(b.sizes["experts"]) for b in self.blocks if "experts" in b.sizes)


def check(model: Model) -> None:
    """Raises InputError, naming the field, where the sizes do not make a model."""

    def refuse(field: str, message: str, accepted: str | None = None) -> InputError:
        return InputError(message, file=model.source, field=field, accepted=accepted)

    def check_size(field: str, value: float, least: int = 1, most: float = LARGEST_SIZE) -> None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not least <= value <= most or value != int(value):
            raise refuse(field, f"{value!r} is no size", f"a whole number, {least} to {most:.0f}")

    check_size("hidden_size", model.hidden_size)
    check_size("vocab_size", model.vocab_size)
    for block in model.blocks:
        if block.kind not in list(BLOCK_SIZES):  # of a file it may be anything
            raise refuse("blocks.kind", f"{block.kind!r}", ", ".join(BLOCK_SIZES))
        required, named = set(BLOCK_SIZES[block.kind]), set(block.sizes)
        if not required <= named <= set(sizes_of(block.kind)):
            wrong = ", ".join(sorted((required - named) | (named - set(sizes_of(block.kind)))))
            raise refuse("blocks", f"{block.kind}: {wrong}", ", ".join(sizes_of(block.kind)))
        check_size("num_hidden_layers", block.count, 0, LARGEST_LAYERS)
        may_be_zero = (named - required) | MAY_BE_ZERO.get(block.kind, frozenset())
        for name, value in block.sizes.items():
            check_size(_FIELD.get(name, name), value, 0 if name in may_be_zero else 1)
        sizes = block.sizes
        if block.kind == "gqa" and sizes["heads"] % sizes["kv_heads"]:
            heads, kv_heads = sizes["heads"], sizes["kv_heads"]
            said = f"{kv_heads:.0f} does not divide num_attention_heads, which is {heads:.0f}"
            raise refuse(_FIELD["kv_heads"], said)
        if block.kind == "moe" and (chosen := sizes["experts_per_token"]) > sizes["experts"]:
            said = f"{chosen:.0f} is more than the {sizes['experts']:.0f} experts"
            raise refuse(_FIELD["experts_per_token"], said)
        if sizes.get("matrices", 2) not in (2, 3):
            raise refuse("matrices", f"{sizes['matrices']:.0f}", "3 (gated) or 2 (plain)")
        for name in _SWITCHES:
            if sizes.get(name, 0) not in (0, 1):
                raise refuse(name, f"{sizes[name]:.0f}", "0 or 1")
    # A layer mixes tokens and then has a feed-forward; only models with Mamba layers have layers of
    # one of the two alone.
    mixing = model.num_hidden_layers
    feed_forward = sum(block.count for block in model.blocks if block.kind in FEED_FORWARD)
    hybrid = any(block.kind == "mamba" for block in model.blocks)
    if mixing < 1 or (feed_forward < 1 if hybrid else feed_forward != mixing):
        raise refuse(
            "num_hidden_layers",
            f"{mixing} attention layers, {feed_forward} feed-forward layers",
            "one or more, and as many of each",
        )
    if set(model.weight_dtypes) != set(WEIGHT_PARTS):
        raise refuse("weight_dtypes", f"{sorted(model.weight_dtypes)}", ", ".join(WEIGHT_PARTS))
    for part, dtype in model.weight_dtypes.items():
        if dtype not in DTYPES:
            raise refuse(f"weight_dtypes.{part}", f"{dtype!r}", ", ".join(DTYPES))
    _doubt(model)


def _doubt(model: Model) -> None:
    """Warns of sizes that no published model is near; those have attention 0.6 to 9 times as wide
    as the hidden size, and more tokens in the vocabulary than that."""
    hidden = model.hidden_size
    found = []
    for block in model.blocks:
        sizes = block.sizes
        heads = sizes.get("heads", 0.0)
        scored = sizes.get("head_dim", 0.0) or sum(
            sizes.get(name, 0.0) for name in ("qk_nope_head_dim", "qk_rope_head_dim")
        )
        for width in (scored, sizes.get("v_head_dim", 0.0)):
            if heads * width and not hidden / WIDE <= heads * width <= hidden * WIDE:
                found.append(
                    f"num_attention_heads: {heads:,.0f} heads of {width:,.0f} beside a hidden size "
                    f"of {hidden:,}: {heads * width / hidden:.3g} times as wide"
                )
        for name in ("intermediate_size", "expert_intermediate_size", "shared_intermediate_size"):
            width = sizes.get(name, 0.0)
            if width > hidden * WIDEST_FEED_FORWARD:
                found.append(
                    f"{_FIELD.get(name, name)}: {width:,.0f} beside a hidden size of {hidden:,}: "
                    f"{width / hidden:.3g} times as wide"
                )
    if model.vocab_size > MOST_VOCABULARY:
        found.append(f"vocab_size: {model.vocab_size:,}")
    if model.vocab_size < hidden and hidden >= LARGE:
        found.append(f"vocab_size: {model.vocab_size:,} is below the hidden size of {hidden:,}")
    for said in dict.fromkeys(found):
        text = f"{model.source}: {said}; no published model is near, two columns may be swapped"
        warnings.warn(text, Doubt, stacklevel=3)


def trained_on(model: Model, text: str, field: str = "--training-tokens") -> Model:
    """The model with the tokens of an option. Raises InputError for too few or too many."""
    tokens = units.parse(text, "tokens", field=field)
    return replace(model, training_tokens=units.check_training_tokens(tokens, text, field=field))


# The project's own configuration of a model: what a front holds and `dse estimate` reads again.
#
# `model_type` is `dse`. `blocks` and the two tables say everything; the flat keys beside them
# (`num_hidden_layers`, `num_attention_heads`, ...) repeat the main sizes for people and are not
# read.

MODEL_TYPE = "dse"
PREDICTION = "num_nextn_predict_layers"
TRAINED = "trained_in"
DRAFTS = "tokens_per_step"  # by how many were drafted, as published
# The main sizes of a kind of block.
_MAIN: Mapping[str, tuple[str, ...]] = {
    "gqa": ("heads", "kv_heads", "head_dim"),
    "mla": ("heads", "kv_lora_rank"),
    "mlp": ("intermediate_size",),
    "moe": ("experts", "experts_per_token", "expert_intermediate_size"),
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
        blocks = tuple(
            BlockSpec(
                block["kind"],
                block["count"],
                {name: size for name, size in block.items() if name not in ("kind", "count")},
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
        flat |= {_FIELD.get(size, size): block.sizes[size] for size in _MAIN.get(block.kind, ())}
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
