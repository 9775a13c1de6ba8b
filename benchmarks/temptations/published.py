"""What published models measure, by kind: the bands outside of which no design may win.

A band ends a tenth beyond what two of them have: what one alone has is an experiment. Of what few
models have, such as latent attention, one is enough.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dse.physics.parameters import parameters
from dse.schema.model import BlockSpec, Model
from dse.schema.model_catalog import load_models
from dse.space.batches import DEPLOYMENT_AXES, batch_of

LINEAR = ("delta_net", "mamba")
ATTENTION = ("gqa", "mla", "compressed")
BEYOND = 1.1
FEW = 20
# The most that training runs beside published models went to (Tian et al. 2025, arXiv 2507.17702).
RUNS = {"granularity": 16.0}
OF_SIZE = ("layers", "tables_over_total")  # not asked of models smaller than any published

# The measures: what a person reads, which ends of their band bind, and whose band it is, that of
# "all" models, of those as "sparse" or dense, or of those with the same "mixers" too (linear
# attention in some layers, or none). What is not here is free, and so is an end that does not bind:
# a design may be smaller than any, or have more of its experts at work.
MEASURES: Mapping[str, tuple[str, str, str]] = {
    "layers": ("layers", "low", "all"),
    "width_per_layer": ("hidden size over layers", "both", "sparse"),
    "attention_share": ("attention's share of the active parameters", "both", "mixers"),
    "heads_over_hidden": ("width of all heads over hidden size", "both", "all"),
    "head_dim": ("size of a head", "both", "all"),
    "query_heads_per_kv_head": ("query heads that share a KV head", "high", "sparse"),
    "window": ("tokens of an attention window", "low", "all"),
    "index_topk": ("cached tokens that an indexer picks", "low", "all"),
    "latent_rank": ("rank of latent keys and values", "low", "all"),
    "query_rank": ("rank of latent queries", "low", "all"),
    "latent_head_dim": ("size of a latent head", "low", "all"),
    "latent_heads_over_hidden": ("width of all latent heads over hidden size", "both", "all"),
    "linear_head_dim": ("size of a head of linear attention", "low", "all"),
    "linear_over_hidden": ("width of linear attention over hidden size", "both", "all"),
    "state_size": ("state of a channel of a Mamba layer", "low", "all"),
    "full_attention_share": ("share of layers with full attention", "low", "sparse"),
    "feed_forward_over_hidden": ("dense feed-forward over hidden size", "both", "sparse"),
    "experts": ("experts", "both", "sparse"),
    "experts_per_token": ("routed experts that a token uses", "high", "sparse"),
    "granularity": ("2 x hidden size over expert width", "both", "sparse"),
    "activation_ratio": ("share of the experts that work on a token", "low", "sparse"),
    "shared_over_expert": ("shared width over that of an expert", "high", "sparse"),
    "vocabulary": ("words of the vocabulary", "both", "all"),
    "tables_over_total": ("share of the parameters in the two tables", "high", "all"),
    "total_parameters": ("parameters in all", "high", "all"),
    "tokens_per_active_parameter": ("training tokens over active parameters", "high", "sparse"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A shape by the names of MEASURES, one value or more each (a layer group, a value)."""

    sparse: bool
    hybrid: bool
    values: Mapping[str, Sequence[float]]


def measure(models: Sequence[Model]) -> list[Measured]:
    """Every model, in their order."""
    if not models:
        return []
    n = len(models)
    batch = batch_of(
        models,
        np.zeros(n, np.intp),
        [None] * n,
        ["bf16"] * n,
        {axis: np.ones(n) for axis in DEPLOYMENT_AXES},
    )
    count = parameters(batch)
    whole = {
        "layers": batch.layers,
        "width_per_layer": batch.hidden_size / batch.layers,
        "attention_share": count.attention / count.active_non_embedding,
        "vocabulary": batch.vocab_size,
        "tables_over_total": (count.embedding + count.head) / count.total,
        "total_parameters": count.total,
    }
    found = []
    for i, model in enumerate(models):
        values = {name: [float(array[i])] for name, array in whole.items()}
        if model.training_tokens is not None:
            tokens = model.training_tokens / float(count.active[i])
            values["tokens_per_active_parameter"] = [tokens]
        for name, value in _of_blocks(model):
            values.setdefault(name, []).append(value)
        hybrid = any(block.kind in LINEAR and block.count for block in model.blocks)
        found.append(Measured(bool(count.experts[i] > 0), hybrid, values))
    return found


def _of_blocks(model: Model) -> Iterator[tuple[str, float]]:
    full = 0
    for block in model.blocks:
        if not block.count:
            continue
        if block.kind in ATTENTION:
            limited = block.sizes.get("window", 0) or block.sizes.get("chunk", 0)
            full += 0 if limited and block.kind != "compressed" else block.count
            yield from _of_attention(model, block, limited)
        elif block.kind in LINEAR:
            yield from _of_linear(model, block)
        elif block.kind == "mlp":
            yield "feed_forward_over_hidden", block.sizes["intermediate_size"] / model.hidden_size
        elif block.kind == "moe":
            yield from _of_experts(model, block)
    yield "full_attention_share", full / model.num_hidden_layers


def _of_attention(model: Model, block: BlockSpec, limited: float) -> Iterator[tuple[str, float]]:
    if limited:
        yield "window", limited
    sizes = block.sizes
    if sizes.get("index_topk"):
        yield "index_topk", sizes["index_topk"]
    if block.kind == "mla":
        yield "latent_rank", sizes["kv_lora_rank"]
        if sizes["q_lora_rank"]:
            yield "query_rank", sizes["q_lora_rank"]
        yield "latent_head_dim", min(sizes["qk_nope_head_dim"], sizes["v_head_dim"])
        yield "latent_heads_over_hidden", sizes["heads"] * sizes["v_head_dim"] / model.hidden_size
    elif block.kind == "gqa":
        yield "heads_over_hidden", sizes["heads"] * sizes["head_dim"] / model.hidden_size
        yield "head_dim", sizes["head_dim"]
        yield "query_heads_per_kv_head", sizes["heads"] / sizes["kv_heads"]


def _of_linear(model: Model, block: BlockSpec) -> Iterator[tuple[str, float]]:
    sizes = block.sizes
    if block.kind == "mamba":
        yield "state_size", sizes["state_size"]
        yield "linear_over_hidden", sizes["inner_size"] / model.hidden_size
    else:
        yield "linear_head_dim", min(sizes["key_head_dim"], sizes["value_head_dim"])
        width = sizes["value_heads"] * sizes["value_head_dim"]
        yield "linear_over_hidden", width / model.hidden_size


def _of_experts(model: Model, block: BlockSpec) -> Iterator[tuple[str, float]]:
    sizes = block.sizes
    width = sizes["expert_intermediate_size"]
    shared = sizes["shared_intermediate_size"] / width
    hidden = sizes.get("expert_hidden_size") or model.hidden_size
    yield "experts", sizes["experts"]
    yield "experts_per_token", sizes["experts_per_token"]
    yield "granularity", 2.0 * hidden / width
    yield "activation_ratio", (sizes["experts_per_token"] + shared) / (sizes["experts"] + shared)
    yield "shared_over_expert", shared


@cache
def bands(sparse: bool, hybrid: bool) -> Mapping[str, tuple[float, float]]:
    """{measure: (least, most) that two published models have}: of all, or of those of the kind."""
    seen: dict[str, list[Sequence[float]]] = defaultdict(list)
    for one in measure(list(load_models().values())):
        alike = {"all": True, "sparse": one.sparse == sparse}
        # Models without linear layers are a yardstick for those with them, not the other way.
        alike["mixers"] = alike["sparse"] and (hybrid or not one.hybrid)
        for name, (_, _, whose) in MEASURES.items():
            if alike[whose] and name in one.values:
                seen[name].append(one.values[name])
    found = {}
    for name, values in seen.items():
        alone = 1 if len(values) >= FEW else 0
        least, most = sorted(map(min, values)), sorted(map(max, values), reverse=True)
        found[name] = (least[alone], most[alone])
    return found


@cache
def alike(name: str, sparse: bool) -> Mapping[str, Sequence[float]]:
    """{model: its values} of a measure, of the models whose band it is."""
    models = list(load_models().values())
    return {
        model.name: one.values[name]
        for model, one in zip(models, measure(models), strict=True)
        if name in one.values and (MEASURES[name][2] == "all" or one.sparse == sparse)
    }


def outside(shape: Measured, beyond: float = BEYOND) -> dict[str, str]:
    """{measure: in words} of what no two published models of the kind have, or come near to."""
    found = {}
    known = bands(shape.sparse, shape.hybrid)
    for name, (title, ends, _) in MEASURES.items():
        if name in OF_SIZE and shape.values["total_parameters"][0] < known["total_parameters"][0]:
            continue
        least, most = known.get(name, (-math.inf, math.inf))
        for value in shape.values.get(name, ()):
            if ends != "high" and value < least / beyond:
                found[name] = f"{title} {value:.4g}; published: from {least:.4g}"
            elif ends != "low" and value > max(most * beyond, RUNS.get(name, 0.0)):
                found[name] = f"{title} {value:.4g}; published: to {most:.4g}"
    return found
