"""What classes of transformers have over this project's count of parameters
(`dse.physics.parameters`), in parameters by what they are; negative where they lack some."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.families.shape import Shape

Counts = Mapping[str, int]


def head_norms(shape: Shape) -> Counts:
    """One norm of queries and one of keys in every grouped-query layer, as wide as a head."""
    width = sum(block.count * int(block.sizes["head_dim"]) for block in shape.of("gqa"))
    return {"norms of query and key heads": 2 * width}


def output_bias(shape: Shape) -> Counts:
    """The bias of the output projection, in classes whose bias is on all four projections."""
    biased = sum(block.count for block in shape.of("gqa") if block.sizes["qkv_bias"])
    return {"biases of the attention output": biased * shape.hidden} if biased else {}


def norms_after(shape: Shape) -> Counts:
    return {"norms after attention and feed-forward": 2 * shape.hidden * shape.layers}


def layer_norms(shape: Shape) -> Counts:
    """Biases of the layer norms: two a layer and the last."""
    return {"biases of layer norms": shape.hidden * (2 * shape.layers + 1)}


def dense_biases(shape: Shape) -> Counts:
    """Biases of the attention output and of both feed-forward matrices."""
    return {
        "biases of the attention output": shape.hidden * shape.layers,
        "biases of the feed-forward": (shape.dense_width() + shape.hidden) * shape.layers,
    }


def embedding_norm(shape: Shape) -> Counts:
    return {"a layer norm of the embeddings": 2 * shape.hidden}


def shared_gate(shape: Shape) -> Counts:
    """One gate a token of the shared expert of every sparse layer."""
    return {"gates of shared experts": shape.hidden * shape.count("moe")}


def gpt_oss(shape: Shape) -> Counts:
    sizes, moe = shape.of("gqa")[0].sizes, shape.one("moe").sizes
    experts, width = int(moe["experts"]), int(moe["expert_intermediate_size"])
    return {
        "attention sinks": int(sizes["heads"]) * shape.layers,
        **output_bias(shape),
        "biases of the router": experts * shape.layers,
        "biases of experts": experts * (2 * width + shape.hidden) * shape.layers,
    }


def indexer_norms(shape: Shape) -> Counts:
    own = [block for block in shape.of("mla") if block.sizes.get("index_heads")]
    width = sum(block.count * int(block.sizes["index_head_dim"]) for block in own)
    return {"layer norms of indexer keys": 2 * width}


def lightning(shape: Shape) -> Counts:
    """Lightning attention has a norm as wide as all heads; the count holds decays of two a head and
    a norm of one head instead."""
    block = shape.one("delta_net")
    heads, size = int(block.sizes["value_heads"]), int(block.sizes["value_head_dim"])
    return {
        "norms of linear attention": block.count * (heads * size - size),
        "decays of linear attention, which are fixed": -2 * block.count * heads,
    }


def kimi_decay(shape: Shape) -> Counts:
    """A bias of the decay a channel, where the count holds one a head."""
    block = shape.one("delta_net")
    heads, size = int(block.sizes["value_heads"]), int(block.sizes["value_head_dim"])
    return {"biases of the decay": block.count * heads * (size - 1)}


def mamba_norms(shape: Shape) -> Counts:
    """Norms of the time step and of both state projections."""
    block = shape.one("mamba")
    rank, state = int(block.sizes["dt_rank"]), int(block.sizes["state_size"])
    return {"norms of the time step, B and C": block.count * (rank + 2 * state)}


def gemma4_experts(shape: Shape) -> Counts:
    if not shape.of("moe"):
        return {}
    experts = int(shape.one("moe").sizes["experts"])
    return {"norms beside and scales of experts": (4 * shape.hidden + experts) * shape.layers}
