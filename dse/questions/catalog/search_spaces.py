"""`dse catalog models` and `dse catalog spaces`: the published shapes and any config.json; what can
be searched, shipped or a file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from dse import units
from dse.answer.answer import Answer
from dse.answer.frames import of_rows
from dse.answer.numbers import bytes_, count, number, show
from dse.answer.sentences import labelled
from dse.blocks import FEED_FORWARD, MIXERS, WORDS
from dse.catalog import Catalog, load_catalog
from dse.options import Opt
from dse.physics.parameters import (
    index_bytes_per_token,
    kv_elements_per_token,
    parameters,
    state_bytes_per_request,
)
from dse.problem.describe import describe_overtraining, overtraining_words
from dse.problem.models import shape_quality_of
from dse.quality.laws import DEFAULT
from dse.schema.axes import Axis, points
from dse.schema.costs import Costs
from dse.schema.model import Model, config_of
from dse.schema.model_catalog import load_models, resolve_model
from dse.schema.study import load_study, shipped_spaces
from dse.schema.workloads import mix_words
from dse.space.batches import batch_of_models

Json = Mapping[str, Any]
LAYERS = (*MIXERS, *FEED_FORWARD)


def list_models() -> Answer:
    """Every model id with its size."""
    facts = _models(list(load_models().values()))
    kinds = [
        dict.fromkeys(b["kind"] for b in row["blocks"] if b["kind"] in LAYERS) for row in facts
    ]
    shapes = of_rows(
        "models",
        "Shapes",
        [row | {"layer_kinds": ", ".join(k)} for row, k in zip(facts, kinds, strict=True)],
        "id total_parameters active_parameters num_hidden_layers hidden_size "
        "kv_elements_per_token layer_kinds",
        _words_of_kinds(facts),
    )
    return Answer(
        question="models",
        title="Models",
        headline=f"{len(facts)} published models.",
        blocks=[shapes],
        document=facts,
    )


def show_model(model: Annotated[str, Opt(positional=True)]) -> Answer:
    """One model, by id or by the path of a config.json.

    Raises InputError where it is neither."""
    (row,) = _models([resolve_model(model)])
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
    layers = [
        {
            "layers": block["count"],
            "layer_kind": block["kind"],
            "layer_sizes": ", ".join(
                f"{key} {size:g}" for key, size in block.items() if key not in ("kind", "count")
            ),
        }
        for block in row["blocks"]
    ]
    keys = "layers layer_kind layer_sizes"
    return Answer(
        question="model",
        title=row["name"],
        asked=f"{row['name']} ({row['source']})",
        headline=f"{total} parameters, {active} active (without the input table)",
        sentences=[
            "; ".join(held),
            f"hidden size {row['hidden_size']:,}, vocabulary {row['vocab_size']:,}",
            *trained,
            f"weights as published: {dtypes}",
        ],
        blocks=[of_rows("layers", "Layers", layers, keys, _words_of_kinds([row]))],
        rests=labelled(assumed=row["assumed"], not_read=row["unknown_keys"]),
        document=row,
    )


def _models(models: Sequence[Model]) -> list[dict[str, Any]]:
    """What is said of each model: its loss under the default quality law and how far it is
    over-trained are null where its training tokens are not known."""
    batch = batch_of_models(models)
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


def _words_of_kinds(facts: Sequence[Json]) -> str:
    used = {block["kind"] for row in facts for block in row["blocks"]}
    return "; ".join(f"{kind}: {words}" for kind, words in WORDS.items() if kind in used) + "."


def list_spaces(*, catalog: Catalog | None = None) -> Answer:
    """Every shipped space with its size."""
    catalog = catalog or load_catalog()
    facts = [_space(path, catalog) for path in shipped_spaces().values()]
    return Answer(
        question="spaces",
        title="Search spaces",
        headline=f"{len(facts)} search spaces come with dse.",
        blocks=[of_rows("spaces", "Spaces", facts, "name space_points=size space_title=title")],
        document=facts,
    )


def show_space(
    space: Annotated[str, Opt(positional=True)], *, catalog: Catalog | None = None
) -> Answer:
    """Axes, size, objectives and constraints of a space; every mistake of a file is named with its
    line and field.

    Raises InputErrors with every mistake of its file."""
    row = _space(space, catalog or load_catalog())
    limits = "; ".join(row["constraints"]) or "none of the user's"
    facts = [f"model: {row['model']}"] if row["model"] else []
    facts.append(f"objectives: {'; '.join(row['objectives'])}; constraints: {limits}")
    if row["costs"]:
        facts.append("costs of its own: " + "; ".join(row["costs"]))
    if row["left_out"]:
        facts.append("left out: " + "; ".join(row["why_left_out"].values()))
    axes = [one | {"axis_values": _choices(one)} for one in row["axes"]]
    return Answer(
        question="space",
        title=row["title"],
        asked=f"{row['name']}: {row['title']}",
        headline=f"{row['size']:,} points; {row['workload']}; prices: {row['price_basis']}",
        sentences=[*facts, *row["not_seen"]],
        blocks=[of_rows("axes", "Axes", axes, "axis axis_count=values axis_values")],
        document=row,
    )


def _space(space: str | Path, catalog: Catalog) -> dict[str, Any]:
    from dse.study.laws import unseen  # noqa: PLC0415 - Optuna, which lists of models do not need

    study = load_study(space, catalog)
    first, *others = study.workloads
    words = f"{first.prompt_tokens:,} prompt and {first.output_tokens:,} output tokens, "
    words += first.serving
    if others:
        words = mix_words([load.row() for load in study.workloads])
    own = any(axis.name == "backend" for axis in study.axes)
    software = "the backend is an axis" if own else f"backend {first.backend}"
    axes = []
    for axis in study.axes:
        choices = [_choice(value, axis) for value in axis.values]
        row = {"axis": axis.name, "values": len(choices), "choices": choices}
        if axis.by_chip:
            (chips,) = (one.values for one in study.axes if one.name == axis.chip_axis)
            row["by_chip"] = {
                str(chip): [choices[j] for j in axis.positions(k)] for k, chip in enumerate(chips)
            }
        axes.append(row | {"ratio_of": axis.ratio_text or None})
    return {
        "name": study.name,
        "title": study.title,
        "description": study.description,
        "size": points(study.name, study.axes),
        "model": study.model,
        "workload": f"{words}, {software}",
        **({"systems": dict(study.systems)} if study.systems else {}),
        **({"workloads": [load.row() for load in study.workloads]} if others else {}),
        "price_basis": study.price_basis,
        **({"training": asdict(study.training)} if study.training else {}),
        **({"lifetime": asdict(study.lifetime)} if study.lifetime else {}),
        "axes": axes,
        "objectives": [f"{o.direction} {o.metric}" for o in study.objectives],
        "constraints": [c.text for c in study.constraints],
        "costs": _own_costs(study.costs),
        "left_out": list(study.left_out),
        "why_left_out": dict(study.why_left_out),
        "not_seen": list(unseen(study.model_axes)),
        "fingerprint": study.fingerprint,
    }


def _own_costs(costs: Costs | None) -> list[str]:
    """`life 4 years (assumed: two generations of cards)`: costs of owning that are not shipped."""
    if costs is None:
        return []
    shipped = load_catalog().costs
    own = [(name, one) for name, one in costs.inputs.items() if one != shipped.inputs[name]]
    own += [
        (f"{chip} {name}", one)
        for chip, lines in costs.chips.items()
        for name, one in lines.items()
        if one != shipped.of_chip(chip, name)
    ]
    return [
        f"{name.replace('_', ' ')} {one.text} ({one.kind}{': ' if one.note else ''}{one.note})"
        for name, one in own
    ]


def _choice(value: Any, axis: Axis) -> str:
    """A value as a space file writes it, a ratio as a fraction."""
    if isinstance(value, bool):
        return str(value).lower()
    if axis.rule.kind == "tokens":
        return units.format(value, "tokens")
    return str(Fraction(value).limit_denominator(10_000)) if axis.ratio_of else str(value)


def _choices(axis: Json) -> str:
    """The values of an axis, those of each chip where they differ."""
    if "by_chip" in axis:
        of = axis["by_chip"].items()
        return "; ".join(f"{chip}: {', '.join(choices)}" for chip, choices in of)
    times = f" x {axis['ratio_of']}" if axis["ratio_of"] else ""
    return ", ".join(axis["choices"]) + times
