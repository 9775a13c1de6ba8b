"""Numbers and deployments as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "prefill_s": "prefill",
    "decode_step_s": "decode step",
    "latency_floor_s": "floor of a decode step",
    "distance_to_floor": "decode step over its floor",
    "output_tokens_per_s": "output tokens/s",
    "output_tokens_per_s_per_chip": "output tokens/s per chip",
    "output_tokens_per_s_per_user": "output tokens/s per user",
    "running_requests": "running requests",
    "usd_per_million_input_tokens": "$ per million input tokens",
    "usd_per_million_output_tokens": "$ per million output tokens",
    "usd_per_million_total_tokens": "$ per million total tokens",
    "usd_per_million_output_tokens_all_in": "$ per million output tokens, all cost on output",
    "joules_per_output_token": "joules per output token",
    "memory_bytes_per_chip": "memory used per chip",
    "memory_capacity_bytes_per_chip": "memory capacity per chip",
    "mfu": "prefill FLOP utilisation",
    "mbu": "decode bandwidth utilisation",
    "predicted_loss": "predicted loss (nats per token)",
    "dense_equivalent_parameters": "dense-equivalent parameters",
    "training_tokens": "training tokens",
    "total_parameters": "total parameters",
    "active_parameters": "active parameters",
    "kv_bytes_per_token": "KV cache per token",
}


def show(metric: str, value: float | None) -> str:
    """A metric with its unit, in three or four significant digits; null is a dash."""
    if value is None:
        return "-"
    if metric.endswith("_s") and "per_s" not in metric:
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if "bytes_per_chip" in metric:
        return f"{value / 1e9:.4g} GB"
    if metric == "kv_bytes_per_token":
        return f"{value / 1e3:.4g} kB"
    if metric.startswith("usd"):
        return f"{value:.3g}"
    if metric in ("mfu", "mbu"):
        return f"{value:.1%}"
    if metric == "predicted_loss":
        return f"{value:.4f}"
    if metric.endswith("parameters"):
        return f"{value / 1e9:.4g} B"
    if metric == "training_tokens":
        return f"{value / 1e12:.4g} T"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def metric_lines(answer: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(name, value, interval, provenance) of every metric worth a line."""
    lines = []
    for metric, name in SHOWN.items():
        ends = answer["intervals"].get(metric)
        between = f"{show(metric, ends[0])} .. {show(metric, ends[1])}" if ends else ""
        value = show(metric, answer[metric])
        lines.append((name, value, between, answer["provenance"].get(metric, "")))
    return lines


def deployment_words(deployment: Mapping[str, Any]) -> str:
    """`8 x h200_sxm: TP 4, 2 replicas, fp8 weights, bf16 KV, 64 in flight`."""
    words = [f"TP {deployment['tensor_parallel']}"]
    for name, short in (
        ("pipeline_parallel", "PP"), ("data_parallel", "attention DP"), ("expert_parallel", "EP"),
    ):  # fmt: skip
        if deployment[name] > 1:
            words.append(f"{short} {deployment[name]}")
    replicas = deployment["replicas"]
    if replicas > 1:
        words.append(f"{replicas} replicas")
    words += [f"{deployment['weight_dtype']} weights", f"{deployment['kv_dtype']} KV"]
    words.append(f"{deployment['concurrency']:,} in flight")
    return f"{deployment['chips']} x {deployment['chip']}: " + ", ".join(words)


def model_words(model: Mapping[str, Any]) -> str:
    """`4,096 wide, 32 layers, 32 heads (8 KV), 128 experts of 768, top-8`."""
    words = [
        f"{model['hidden_size']:,} wide",
        f"{model['num_hidden_layers']} layers",
        f"{model['num_attention_heads']} heads"
        + (f" ({model['num_key_value_heads']} KV)" if "num_key_value_heads" in model else ""),
    ]
    if model.get("num_experts"):
        shared = model.get("num_shared_experts")
        words.append(
            f"{model['num_experts']} experts of {model['moe_intermediate_size']:,}, "
            f"top-{model['num_experts_per_tok']}" + (f" + {shared} shared" if shared else "")
        )
    else:
        words.append(f"feed-forward {model['intermediate_size']:,}")
    return ", ".join(words)
