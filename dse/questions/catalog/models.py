"""`dse catalog models`: the published shapes, and any config.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Answer, Column, Table
from dse.answer.numbers import bytes_, count, number, show
from dse.physics.parameters import (
    index_bytes_per_token,
    kv_elements_per_token,
    parameters,
    state_bytes_per_request,
)
from dse.problem.models import shape_quality_of
from dse.problem.quality import describe_overtraining, overtraining_words
from dse.quality.laws import DEFAULT
from dse.schema.blocks import FEED_FORWARD, MIXERS, WORDS
from dse.schema.model import Model
from dse.schema.model_catalog import load_models, resolve_model
from dse.schema.own_config import config_of
from dse.space.batches import DEPLOYMENT_AXES, batch_of

LAYERS = (*MIXERS, *FEED_FORWARD)


def list_models() -> Answer:
    """Every model of the catalog with its size."""
    facts = _facts(list(load_models().values()))
    return Answer(
        question="models",
        title="Models",
        headline=f"{len(facts)} published models.",
        blocks=[
            Table.of(
                "models",
                "Shapes",
                facts,
                (
                    Column("id", "id"),
                    Column("total_parameters", "total", "parameters"),
                    Column("active_parameters", "active", "parameters"),
                    Column("num_hidden_layers", "layers", "count"),
                    Column("hidden_size", "hidden", "count"),
                    Column("kv_elements_per_token", "KV/token", "count"),
                    Column("kinds", "kinds of layers", of=lambda row: _kinds(row["blocks"])),
                ),
                (
                    "total, active: parameters, active without the input table. KV/token: elements "
                    f"of the cache for one token. {_key(facts)}",
                ),
            )
        ],
        document=facts,
    )


def show_model(text: str) -> Answer:
    """One model, by id or by the path of a config.json. Raises InputError where it is neither."""
    (row,) = _facts([resolve_model(text)])
    held = [f"{count(row['kv_elements_per_token'])} elements of KV cache a token"]
    if row["index_bytes_per_token"]:
        held.append(f"keys of the indexer: {bytes_(row['index_bytes_per_token'])} a token")
    if row["state_bytes_per_request"]:
        held.append(f"states: {bytes_(row['state_bytes_per_request'])} a request, any length")
    trained = []
    if row["predicted_loss"] is not None:
        trained = [f"{overtraining_words(row)} By the quality law {row['quality_law']}."]
    dtypes = ", ".join(f"{part} {dtype}" for part, dtype in row["weight_dtypes"].items())
    total, active = (show(key, row[key]) for key in ("total_parameters", "active_parameters"))
    return Answer(
        question="model",
        title=row["name"],
        asked=f"{row['name']} ({row['source']})",
        headline=f"{total} parameters, {active} active (without the input table)",
        sentences=[
            *held,
            f"hidden size {row['hidden_size']:,}, vocabulary {row['vocab_size']:,}",
            *trained,
            f"weights as published: {dtypes}",
            *(f"not read: {key}" for key in row["unknown_keys"]),
        ],
        blocks=[
            Table.of(
                "layers",
                "Layers",
                row["blocks"],
                (
                    Column("count", "layers", "count"),
                    Column("kind", "kind"),
                    Column("sizes", "sizes", of=_sizes),
                ),
                (_key([row]),),
            )
        ],
        rests=[f"assumed: {text}" for text in row["assumed"]],
        document=row,
    )


def _facts(models: Sequence[Model]) -> list[dict[str, Any]]:
    """What is said of each model: its loss under the default quality law and how far it is
    over-trained are null where its training tokens are not known."""
    n = len(models)
    deployment = {axis: np.ones(n) for axis in DEPLOYMENT_AXES}
    batch = batch_of(models, np.zeros(n, dtype=np.intp), [None] * n, ["bf16"] * n, deployment)
    counted, tokens = parameters(batch), batch.training_tokens
    kv, index = kv_elements_per_token(batch), index_bytes_per_token(batch)
    states, quality = state_bytes_per_request(batch), shape_quality_of(batch, counted, tokens)
    return [
        {
            "id": model.id,
            **config_of(model),
            "total_parameters": float(counted.total[i]),
            "active_parameters": float(counted.active[i]),
            "kv_elements_per_token": float(kv[i]),
            "index_bytes_per_token": float(index[i]),
            "state_bytes_per_request": float(states[i]),
            "training_tokens": model.training_tokens,
            "quality_law": DEFAULT,
            "predicted_loss": number(quality.predicted_loss[i]),
            "dense_equivalent_parameters": number(quality.dense_equivalent_parameters[i]),
            **describe_overtraining(quality, i, tokens[i]),
            "source": model.source,
            "assumed": list(model.assumed),
            "unknown_keys": list(model.unknown_keys),
        }
        for i, model in enumerate(models)
    ]


def _kinds(blocks: list[dict[str, Any]]) -> str:
    """`gqa, mlp, moe`: the kinds of layers, each once."""
    return ", ".join(dict.fromkeys(b["kind"] for b in blocks if b["kind"] in LAYERS))


def _sizes(block: dict[str, Any]) -> str:
    return ", ".join(f"{key} {v:g}" for key, v in block.items() if key not in ("kind", "count"))


def _key(facts: list[dict[str, Any]]) -> str:
    used = {block["kind"] for row in facts for block in row["blocks"]}
    return "; ".join(f"{kind}: {words}" for kind, words in WORDS.items() if kind in used) + "."
