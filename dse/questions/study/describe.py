"""A shape and a deployment in words, long for the answer and short for tables."""

from __future__ import annotations

from dse.answer.layers import layers_in_short, layers_in_words
from dse.answer.numbers import show
from dse.questions.study.folder import Json
from dse.schema.tiers import offload_words

# Llama 4 Scout, the most of search_spaces/models.csv (its model card).
MOST_TOKENS = 40e12


def given_name(item: Json) -> str:
    """The name of a published model; a searched shape is only numbered (`quickstart-12`)."""
    name = item["model"].get("name") or ""
    return "" if name.endswith(f"-{item['point']}") else name


def shape(item: Json) -> str:
    """A model's shape in one sentence, as far as its keys say."""
    model, metrics = item["model"], item["metrics"]
    name = f"{given_name(item)}: " if given_name(item) else ""
    experts = model.get("num_experts") or 0
    sentence = f"{name}{'sparse' if experts else 'dense'} model, {layers(model)}"
    if model.get("num_attention_heads"):
        sentence += f", {model['num_attention_heads']} attention heads"
        if model.get("num_key_value_heads"):
            sentence += f" and {model['num_key_value_heads']} KV heads"
        if model.get("head_dim"):
            sentence += f" of width {model['head_dim']}"
    if words := layers_in_words(model):
        sentence += f", {words}"
    if experts:
        sentence += f", {experts} experts"
        if model.get("moe_intermediate_size"):
            sentence += f" of width {model['moe_intermediate_size']:,}"
        sentence += f", {model.get('num_experts_per_tok', '?')} of them used per token"
        shared = model.get("num_shared_experts") or 0
        if shared:
            sentence += f" beside {shared} shared by all"
    elif model.get("intermediate_size"):
        sentence += f", feed-forward width {model['intermediate_size']:,}"
    if model.get("vocab_size"):
        sentence += f", vocabulary {model['vocab_size']:,}"
    counts = [
        f"{show(metric, metrics[metric])} {word}"
        for metric, word in (("total_parameters", "in all"), ("active_parameters", "active"))
        if metrics.get(metric) is not None
    ]
    sentence += f". Parameters: {', '.join(counts)}." if counts else "."
    if metrics.get("training_tokens") and not given_name(item):
        sentence += f" {trained(metrics['training_tokens'])}."
    return sentence


def trained(tokens: float) -> str:
    """`Trained on 107T tokens`, and that nobody has, where that is so."""
    sentence = f"Trained on {show('training_tokens', tokens)} tokens"
    if tokens > MOST_TOKENS:
        sentence += f", more than any published model was ({MOST_TOKENS / 1e12:g}T)"
    return sentence


def layers(model: Json) -> str:
    if not model.get("num_hidden_layers"):
        return "shape as in front.json"
    return f"{model['num_hidden_layers']} layers of hidden size {model.get('hidden_size', 0):,}"


def brief_shape(item: Json) -> str:
    """`a sparse model of 61.2B parameters (5.12B active)`, or the model's name."""
    model, metrics = item["model"], item["metrics"]
    if given_name(item):
        return given_name(item)
    total, active = metrics.get("total_parameters"), metrics.get("active_parameters")
    if (model.get("num_experts") or 0) and total and active:
        sizes = f"{show('total_parameters', total)} parameters"
        words = f"a sparse model of {sizes} ({show('active_parameters', active)} active)"
    else:
        words = f"a dense model of {show('total_parameters', total)} parameters"
    mixers = layers_in_words(model)
    return f"{words}, {mixers}" if mixers else words


def deployment(d: Json, held: bool = True) -> str:
    """Chips, how they are divided, dtypes and, where it is held, the load in one sentence."""
    chips, replicas = d["chips"], d["replicas"]
    degrees = [
        f"{name} {d[key]}"
        for key, name in (
            ("tensor_parallel", "tensor parallel"),
            ("pipeline_parallel", "pipeline parallel"),
            ("data_parallel", "attention data-parallel"),
            ("expert_parallel", "expert parallel"),
        )
        if (d.get(key) or 1) > 1
    ]
    each = chips // replicas
    split = f" of {each} chip{'s' * (each > 1)}" + (f" ({', '.join(degrees)})" if degrees else "")
    copies = f"{replicas} replicas{split}" if replicas > 1 else f"one instance{split}"
    if "scale_up_domain" in d:
        copies += f", scale-up domains of {d['scale_up_domain']} (hypothetical)"
    flight = (
        f"; {d['concurrency']:,} request{'s' * (d['concurrency'] > 1)} in flight over all chips"
    )
    return (
        f"{chips} × {d['chip']}, {copies}; weights in {dtypes(d['weight_dtype'])}, KV cache in "
        f"{d['kv_dtype']}{''.join(f'; {words}' for words in offload_words(d))}"
        f"{flight if held else ''}."
    )


def dtypes(value: str | Json) -> str:
    """A dtype, or the dtypes of a mapping from weight part to dtype."""
    if isinstance(value, str):
        return value
    return " / ".join(sorted(set(value.values())))


def kind(item: Json) -> str:
    return "sparse" if item["model"].get("num_experts") else "dense"


def short_shape(model: Json) -> str:
    """`48 × 4096, 32/8 heads, 128 experts of 1024, 8 used + 1 shared`."""
    parts = []
    if model.get("num_hidden_layers"):
        parts.append(f"{model['num_hidden_layers']} × {model.get('hidden_size', '?')}")
    if model.get("num_attention_heads"):
        kv = model.get("num_key_value_heads")
        parts.append(f"{model['num_attention_heads']}{f'/{kv}' if kv else ''} heads")
    if words := layers_in_short(model):
        parts.append(words)
    if model.get("num_experts"):
        width = model.get("moe_intermediate_size", "?")
        shared = model.get("num_shared_experts")
        parts.append(
            f"{model['num_experts']} experts of {width}, {model.get('num_experts_per_tok')} used"
            + (f" + {shared} shared" if shared else "")
        )
    elif model.get("intermediate_size"):
        parts.append(f"feed-forward {model['intermediate_size']}")
    return ", ".join(parts)


def short_split(d: Json) -> str:
    """`2 × (TP 4, EP 4)`: replicas of an instance and its parallel degrees above 1."""
    degrees = [
        f"{name} {d[key]}"
        for key, name in (
            ("tensor_parallel", "TP"),
            ("pipeline_parallel", "PP"),
            ("data_parallel", "DP"),
            ("expert_parallel", "EP"),
        )
        if (d.get(key) or 1) > 1
    ] + offload_words(d)
    domain = f", hypothetical domain {d['scale_up_domain']}" if "scale_up_domain" in d else ""
    return f"{d['replicas']} × ({', '.join(degrees) or '1 chip'}){domain}"
