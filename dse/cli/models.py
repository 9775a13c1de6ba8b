"""dse models: the published shapes."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import json_option
from dse.cli.printing import print_json, print_table, say


@click.group("models")
def command() -> None:
    """Published model shapes, by id."""


def _facts(name: str) -> dict:
    import numpy as np

    from dse.physics.parameters import (
        index_bytes_per_token,
        kv_elements_per_token,
        parameters,
        state_bytes_per_request,
    )
    from dse.schema.model_catalog import resolve_model
    from dse.schema.own_config import config_of
    from dse.space.batches import DEPLOYMENT_AXES, batch_of

    model = resolve_model(name)
    ones = {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    batch = batch_of([model], np.zeros(1, dtype=np.intp), [None], ["bf16"], ones)
    count = parameters(batch)
    return {
        "id": model.id,
        **config_of(model),
        "total_parameters": float(count.total[0]),
        "active_parameters": float(count.active[0]),
        "kv_elements_per_token": float(kv_elements_per_token(batch)[0]),
        "index_bytes_per_token": float(index_bytes_per_token(batch)[0]),
        "state_bytes_per_request": float(state_bytes_per_request(batch)[0]),
        "training_tokens": model.training_tokens,
        **_trained(batch),
        "source": model.source,
        "assumed": list(model.assumed),
        "unknown_keys": list(model.unknown_keys),
    }


def _trained(batch: Any) -> dict:
    """Loss under the default quality law and how far the model is over-trained; null where its
    training tokens are not known."""
    from dse.answer.numbers import number
    from dse.physics.parameters import parameters
    from dse.problem.evaluate import shape_quality_of
    from dse.problem.quality import describe_overtraining
    from dse.quality.laws import DEFAULT

    tokens = batch.training_tokens
    quality = shape_quality_of(batch, parameters(batch), tokens)
    return {
        "quality_law": DEFAULT,
        "predicted_loss": number(quality.predicted_loss[0]),
        "dense_equivalent_parameters": number(quality.dense_equivalent_parameters[0]),
        **describe_overtraining(quality, 0, tokens[0]),
    }


@command.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """Every model id with its size."""
    from dse.schema.model_catalog import load_models

    facts = [_facts(name) for name in load_models()]
    if as_json:
        print_json(facts)
        return
    print_table(
        ("id", "total B", "active B", "layers", "hidden", "KV/token", "kinds of layers"),
        [
            (
                row["id"],
                f"{row['total_parameters'] / 1e9:.1f}",
                f"{row['active_parameters'] / 1e9:.1f}",
                str(row["num_hidden_layers"]),
                f"{row['hidden_size']:,}",
                f"{row['kv_elements_per_token']:,.0f}",
                _kinds(row["blocks"]),
            )
            for row in facts
        ],
        right=(1, 2, 3, 4, 5),
    )
    say(
        "total, active: billions of parameters, active without the input table. KV/token: elements "
        "of the cache for one token. " + _key(facts),
        "  ",
    )


MEANING = {
    "gqa": "multi-head or grouped-query attention",
    "mla": "multi-head latent attention",
    "compressed": "attention over a compressed cache",
    "delta_net": "linear attention with a matrix state",
    "mamba": "Mamba state space",
    "mlp": "dense feed-forward",
    "moe": "mixture of experts",
    "positions": "table of learned positions",
}


def _kinds(blocks: list[dict]) -> str:
    """`gqa, mlp, moe`: the kinds of layers, each once."""
    return ", ".join(dict.fromkeys(b["kind"] for b in blocks if b["kind"] != "positions"))


def _key(facts: list[dict]) -> str:
    used = {block["kind"] for row in facts for block in row["blocks"]}
    return "; ".join(f"{kind}: {words}" for kind, words in MEANING.items() if kind in used) + "."


@command.command("show")
@click.argument("model")
@json_option
def show_model(model: str, as_json: bool) -> None:
    """One model, by id or by the path of a config.json."""
    from dse.problem.quality import overtraining_words

    row = _facts(model)
    if as_json:
        print_json(row)
        return
    say(f"{row['name']} ({row['source']})", "  ")
    say(
        f"{row['total_parameters'] / 1e9:.2f} B parameters, {row['active_parameters'] / 1e9:.2f} B "
        "active (without the input table); "
        f"{row['kv_elements_per_token']:,.0f} elements of KV cache a token",
        "  ",
    )
    if row["index_bytes_per_token"]:
        say(f"keys of the indexer: {row['index_bytes_per_token']:,.0f} bytes a token", "  ")
    if row["state_bytes_per_request"]:
        say(f"states: {row['state_bytes_per_request'] / 1e6:,.1f} MB a request, any length", "  ")
    click.echo(f"hidden size {row['hidden_size']:,}, vocabulary {row['vocab_size']:,}")
    for block in row["blocks"]:
        sizes = ", ".join(f"{k} {v:g}" for k, v in block.items() if k not in ("kind", "count"))
        say(f"{block['count']} layers of {block['kind']}: {sizes}", "  ")
    if row["predicted_loss"] is not None:
        say(f"{overtraining_words(row)} By the quality law {row['quality_law']}.", "  ")
    dtypes = ", ".join(f"{part} {dtype}" for part, dtype in row["weight_dtypes"].items())
    say(_key([row]), "  ")
    say(f"weights as published: {dtypes}", "  ")
    for sentence in row["assumed"]:
        say(f"assumed: {sentence}", "  ")
    for key in row["unknown_keys"]:
        click.echo(f"not read: {key}")
