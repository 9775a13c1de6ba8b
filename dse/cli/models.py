"""dse models: the published shapes."""

from __future__ import annotations

import click

from dse.cli.options import json_option, print_json, print_table


@click.group("models")
def command() -> None:
    """Published model shapes, by id."""


def _facts(name: str) -> dict:
    import numpy as np

    from dse.perf.parameters import kv_elements_per_token, parameters
    from dse.space.batches import DEPLOYMENT_AXES, batch_of
    from dse.specs.model_catalog import resolve_model
    from dse.specs.own_config import config_of

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
        "source": model.source,
        "assumed": list(model.assumed),
        "unknown_keys": list(model.unknown_keys),
    }


@command.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """Every model id with its size."""
    from dse.specs.model_catalog import load_models

    facts = [_facts(name) for name in load_models()]
    if as_json:
        print_json(facts)
        return
    print_table(
        ("id", "total", "active", "layers", "hidden", "KV elements/token", "blocks"),
        [
            (
                row["id"],
                f"{row['total_parameters'] / 1e9:.1f} B",
                f"{row['active_parameters'] / 1e9:.1f} B",
                str(row["num_hidden_layers"]),
                f"{row['hidden_size']:,}",
                f"{row['kv_elements_per_token']:,.0f}",
                " + ".join(f"{block['count']} {block['kind']}" for block in row["blocks"]),
            )
            for row in facts
        ],
        right=(1, 2, 3, 4, 5),
    )


@command.command("show")
@click.argument("model")
@json_option
def show_model(model: str, as_json: bool) -> None:
    """One model, by id or by the path of a config.json."""
    row = _facts(model)
    if as_json:
        print_json(row)
        return
    click.echo(f"{row['name']}  ({row['source']})")
    click.echo(
        f"{row['total_parameters'] / 1e9:.2f} B parameters, {row['active_parameters'] / 1e9:.2f} B "
        "active (without the input table); "
        f"{row['kv_elements_per_token']:,.0f} KV elements a token"
    )
    click.echo(f"hidden size {row['hidden_size']:,}, vocabulary {row['vocab_size']:,}")
    for block in row["blocks"]:
        sizes = ", ".join(f"{k} {v:g}" for k, v in block.items() if k not in ("kind", "count"))
        click.echo(f"{block['count']:>4} x {block['kind']}: {sizes}")
    dtypes = ", ".join(f"{part} {dtype}" for part, dtype in row["weight_dtypes"].items())
    click.echo(f"weights as published: {dtypes}")
    for sentence in row["assumed"]:
        click.echo(f"assumed: {sentence}")
    for key in row["unknown_keys"]:
        click.echo(f"not read: {key}")
