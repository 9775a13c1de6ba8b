"""Classes with grouped-query attention and dense feed-forward layers in every layer."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.architectures.shape import PLAIN, Architecture, Cannot, Config, Shape, Sizes

_SILU = {"hidden_act": "silu"}


def heads_of(sizes: Sizes) -> Config:
    return {
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
    }


def head_norms(shape: Shape) -> dict[str, int]:
    """One norm of queries and one of keys in every grouped-query layer, as wide as a head."""
    width = sum(block.count * int(block.sizes["head_dim"]) for block in shape.of("gqa"))
    return {"norms of query and key heads": 2 * width}


def output_bias(shape: Shape) -> dict[str, int]:
    """The bias of the output projection, in classes whose bias is on all four projections."""
    biased = sum(block.count for block in shape.of("gqa") if block.sizes["qkv_bias"])
    return {"biases of the attention output": biased * shape.hidden} if biased else {}


def _llama(shape: Shape) -> Config:
    shape.only("gqa", "mlp")
    shape.gated()
    sizes, _, _ = shape.heads()
    no_bias = {"attention_bias": False, "mlp_bias": False}
    return {**heads_of(sizes), "intermediate_size": shape.dense_width(), **no_bias, **_SILU}


def _mistral(shape: Shape) -> Config:
    shape.only("gqa", "mlp")
    shape.gated()
    sizes, window, _ = shape.heads(windows="all")
    return {
        **heads_of(sizes),
        "intermediate_size": shape.dense_width(),
        "sliding_window": window or None,
        **_SILU,
    }


def _window(shape: Shape, window: int, types: list[str]) -> Config:
    if not window:
        return {"use_sliding_window": False, "sliding_window": None}
    return {
        "use_sliding_window": True,
        "sliding_window": window,
        "max_window_layers": 0,
        "layer_types": types,
    }


def _qwen2(shape: Shape) -> Config:
    shape.only("gqa", "mlp")
    shape.gated()
    sizes, window, types = shape.heads(bias=(1,), windows="any")
    width = {"intermediate_size": shape.dense_width()}
    return {**heads_of(sizes), **width, **_window(shape, window, types), **_SILU}


def _qwen3(shape: Shape) -> Config:
    shape.only("gqa", "mlp")
    shape.gated()
    sizes, window, types = shape.heads(bias=(0, 1), windows="any")
    return {
        **heads_of(sizes),
        "intermediate_size": shape.dense_width(),
        "attention_bias": bool(sizes["qkv_bias"]),
        **_window(shape, window, types),
        **_SILU,
    }


def _gemma3(shape: Shape) -> Config:
    shape.only("gqa", "mlp")
    shape.gated()
    sizes, window, types = shape.heads(bias=(0, 1), windows="any")
    if not window:
        raise Cannot("it has sliding windows, and the shape has none")
    return {
        **heads_of(sizes),
        "intermediate_size": shape.dense_width(),
        "attention_bias": bool(sizes["qkv_bias"]),
        "sliding_window": window,
        "layer_types": types,
        "query_pre_attn_scalar": sizes["head_dim"],
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _gemma3_beyond(shape: Shape) -> Mapping[str, int]:
    after = {"norms after attention and feed-forward": 2 * shape.hidden * shape.layers}
    return {**after, **head_norms(shape), **output_bias(shape)}


def _plain(shape: Shape, *kinds: str, bias: int) -> tuple[Sizes, int]:
    """Sizes of heads and width of a class of the years before gates."""
    shape.only("gqa", "mlp", *kinds)
    shape.gated(matrices=PLAIN)
    sizes, _, _ = shape.heads(bias=(bias,))
    return sizes, shape.dense_width()


def _mha(shape: Shape, sizes: Sizes) -> None:
    if sizes["kv_heads"] != sizes["heads"]:
        raise Cannot("it has as many key and value heads as query heads")
    if sizes["heads"] * sizes["head_dim"] != shape.hidden:
        raise Cannot("its heads together are as wide as the hidden size")


def layer_norms(shape: Shape, norms: int = 2) -> dict[str, int]:
    """Biases of the layer norms: `norms` a layer and the last."""
    return {"biases of layer norms": shape.hidden * (norms * shape.layers + 1)}


def _dense_biases(shape: Shape) -> dict[str, int]:
    """Biases of the attention output and of both feed-forward matrices."""
    return {
        "biases of the attention output": shape.hidden * shape.layers,
        "biases of the feed-forward": (shape.dense_width() + shape.hidden) * shape.layers,
    }


def _biased(shape: Shape) -> Mapping[str, int]:
    return {**layer_norms(shape), **_dense_biases(shape)}


def _gpt2(shape: Shape) -> Config:
    sizes, width = _plain(shape, "positions", bias=1)
    _mha(shape, sizes)
    return {
        "num_attention_heads": sizes["heads"],
        "n_inner": width,
        "n_positions": int(shape.one("positions").sizes["rows"]),
        "activation_function": "gelu_new",
    }


def _opt(shape: Shape) -> Config:
    sizes, width = _plain(shape, "positions", bias=1)
    _mha(shape, sizes)
    rows = int(shape.one("positions").sizes["rows"])
    if rows < 3:
        raise Cannot("its table of positions has two rows more than positions")
    return {
        "num_attention_heads": sizes["heads"],
        "ffn_dim": width,
        "max_position_embeddings": rows - 2,
        "word_embed_proj_dim": shape.hidden,
        "enable_bias": True,
        "activation_function": "relu",
    }


def _gpt_neox(shape: Shape) -> Config:
    sizes, width = _plain(shape, bias=1)
    _mha(shape, sizes)
    return {
        "num_attention_heads": sizes["heads"],
        "intermediate_size": width,
        "attention_bias": True,
        "hidden_act": "gelu",
    }


def _bloom(shape: Shape) -> Config:
    sizes, width = _plain(shape, bias=1)
    _mha(shape, sizes)
    if width != 4 * shape.hidden:
        raise Cannot("its feed-forward is four times as wide as the hidden size")
    return {"n_head": sizes["heads"]}


def _bloom_beyond(shape: Shape) -> Mapping[str, int]:
    table = {"a layer norm of the embeddings": 2 * shape.hidden}
    return {**_biased(shape), **table}


def _nemotron(shape: Shape) -> Config:
    sizes, width = _plain(shape, bias=0)
    return {
        **heads_of(sizes),
        "intermediate_size": width,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "relu2",
    }


DENSE = (
    Architecture("LlamaForCausalLM", "llama", _llama),
    Architecture("Qwen2ForCausalLM", "qwen2", _qwen2),
    Architecture("MistralForCausalLM", "mistral", _mistral),
    Architecture(
        "Qwen3ForCausalLM", "qwen3", _qwen3, lambda s: {**head_norms(s), **output_bias(s)}
    ),
    Architecture("Gemma3ForCausalLM", "gemma3_text", _gemma3, _gemma3_beyond),
    Architecture("NemotronForCausalLM", "nemotron", _nemotron, layer_norms),
    Architecture("GPT2LMHeadModel", "gpt2", _gpt2, _biased),
    Architecture("OPTForCausalLM", "opt", _opt, _biased),
    Architecture("GPTNeoXForCausalLM", "gpt_neox", _gpt_neox, _biased),
    Architecture("BloomForCausalLM", "bloom", _bloom, _bloom_beyond),
)
