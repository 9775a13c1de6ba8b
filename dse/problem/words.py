"""Numbers and deployments as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.layers import layers_in_short
from dse.problem.loads import held, loads_of
from dse.rules.registry import row_words
from dse.schema.tiers import offload_words

SHOWN = {
    "ttft_s": "time to first token",
    "ttft_mean_s": "time to first token, mean",
    "ttft_p90_s": "time to first token, 90th percentile",
    "ttft_p99_s": "time to first token, 99th percentile",
    "utilisation": "arrivals over capacity",
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
    "usd_per_million_output_tokens_all_in": "$ per million output tokens (all cost)",
    "joules_per_output_token": "joules per output token",
    "tokens_per_joule": "output tokens per joule",
    "watts_per_chip": "mean watts of a chip",
    "energy_data_movement_share": "energy that moves data",
    "memory_bytes_per_chip": "memory used per chip",
    "memory_capacity_bytes_per_chip": "memory capacity per chip",
    "tier_bytes_per_chip": "in the memory tier per chip",
    "tier_capacity_bytes_per_chip": "memory tier capacity per chip",
    "tier_wait_s": "wait for the tier in a decode step",
    "mfu": "prefill FLOP utilisation",
    "mbu": "decode bandwidth utilisation",
    "predicted_loss": "predicted loss (nats per token)",
    "dense_equivalent_parameters": "dense-equivalent parameters",
    "training_tokens": "training tokens",
    "total_parameters": "total parameters",
    "active_parameters": "active parameters",
    "kv_bytes_per_token": "KV cache per token",
    "training_days": "days of training",
    "training_usd": "cost of training",
    "training_kwh": "energy of training, kWh",
    "training_chip_hours": "chip-hours of training",
    "training_mfu": "training FLOP utilisation",
    "lifetime_usd": "cost of training and serving",
    "lifetime_serving_share": "serving's share of it",
    "lifetime_flops": "FLOP of training and serving",
    "lifetime_chip_hours": "chip-hours of training and serving",
}


# Column titles of a front, short and with the unit that `show` does not print.
SHORT: dict[str, str] = {
    "predicted_loss": "loss",
    "dense_equivalent_parameters": "dense equal",
    "usd_per_million_total_tokens": "$/M total",
    "usd_per_million_input_tokens": "$/M input",
    "usd_per_million_output_tokens": "$/M output",
    "usd_per_million_output_tokens_all_in": "$/M all in",
    "tpot_s": "per token",
    "ttft_s": "first token",
    "ttft_mean_s": "first, mean",
    "ttft_p90_s": "first, p90",
    "ttft_p99_s": "first, p99",
    "utilisation": "load",
    "e2e_s": "whole request",
    "prefill_s": "prefill",
    "decode_step_s": "decode step",
    "latency_floor_s": "step floor",
    "distance_to_floor": "x floor",
    "joules_per_output_token": "J/token",
    "tokens_per_joule": "tokens/J",
    "watts_per_chip": "W/chip",
    "energy_data_movement_share": "moves data",
    "output_tokens_per_s": "tokens/s",
    "output_tokens_per_s_per_chip": "tok/s/chip",
    "output_tokens_per_s_per_user": "tok/s/user",
    "running_requests": "running",
    "training_days": "train days",
    "training_usd": "$ training",
    "training_kwh": "train kWh",
    "training_chip_hours": "train chip-h",
    "training_mfu": "train MFU",
    "lifetime_usd": "$ lifetime",
    "lifetime_serving_share": "$ serving",
    "lifetime_flops": "life FLOP",
    "lifetime_chip_hours": "life chip-h",
    "memory_bytes_per_chip": "memory",
    "memory_capacity_bytes_per_chip": "capacity",
    "kv_bytes_per_token": "KV/token",
    "total_parameters": "total",
    "active_parameters": "active",
    "training_tokens": "trained on",
    "training_flops": "to train",
    "num_attention_heads": "heads",
    "num_key_value_heads": "KV heads",
    "query_heads_per_kv_head": "heads/KV",
    "full_attention_layers": "full layers",
    "full_attention_share": "full share",
    "chip_usd_per_hour": "$/chip-h",
}
OF_POOLS = {"queue_s": "wait for a prefill rank", "transfer_s": "transfer of the cache"}
# Shown where requests arrive at random.
OF_ARRIVALS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation")
WORKLOAD_COLUMNS = (
    "ttft_s", "tpot_s", "usd_per_million_input_tokens", "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
)  # fmt: skip
# The same where requests of one arrive at random.
ARRIVAL_COLUMNS = (
    "ttft_s", "ttft_p99_s", "utilisation", "tpot_s", "usd_per_million_total_tokens",
)  # fmt: skip
MIX = (
    "Several workloads share the deployment's time, each alone in its turn. Cost, energy and "
    "output rate are of the mix; latencies, memory and running requests of the worst workload."
)
_SHARES = ("mfu", "mbu", "utilisation", "energy_data_movement_share", "full_attention_share")
# What `known as` says of a metric.
KNOWN = {
    "fitted": "from measurements of this kernel or law",
    "derived": "counted, or by rule from fitted figures",
    "assumed": "no measurement stands behind it",
    "extrapolated": "beyond what the law was fitted on",
}


def show(metric: str, value: float | None) -> str:
    """A metric with its unit, in three or four significant digits; null is a dash."""
    if value is None:
        return "-"
    if metric.endswith("_s") and "per_s" not in metric:
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if "bytes_per_chip" in metric:
        return f"{value / 1e9:.4g} GB"
    if metric.endswith("_usd"):
        return f"${value / 1e6:,.4g}M" if value >= 1e6 else f"${value:,.0f}"
    if metric in ("training_mfu", "lifetime_serving_share"):
        return f"{value:.1%}"
    if metric == "lifetime_flops":
        return f"{value:.3g}"
    if metric == "watts_per_chip":
        return f"{value:,.0f} W"
    if metric == "kv_bytes_per_token":
        return f"{value / 1e3:.4g} kB"
    if metric.startswith("usd"):
        return f"{value:.3g}"
    if metric in _SHARES:
        return f"{value:.1%}"
    if metric == "predicted_loss":
        return f"{value:.4f}"
    if metric.endswith("parameters"):
        return f"{value / 1e9:.4g} B"
    if metric == "training_tokens":
        return f"{value / 1e12:.4g} T"
    if metric == "training_flops":
        return f"{value:.3g} FLOP".replace("e+", "e")
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def known_words(answer: Mapping[str, Any]) -> str:
    """What the words of the column `known as` mean, those that were used."""
    used = set(answer["provenance"].values())
    return "Known as: " + "; ".join(f"{word}: {KNOWN[word]}" for word in KNOWN if word in used)


def _cap(answer: Mapping[str, Any]) -> str:
    return f", each at {answer['power_cap_w']:g} W at most" if "power_cap_w" in answer else ""


def heading(answer: Mapping[str, Any]) -> list[str]:
    """Model, deployment, workload and price basis of an estimate."""
    load = answer["workload"]
    words = mix_words(answer["workloads"]) if load is None else load_words(load)
    loads = loads_of(answer)
    return [
        f"{answer['model']} on {deployment_words(answer['deployment'], held(loads))}{_cap(answer)}",
        f"{words}, backend {loads[0]['backend']}; prices: {answer['price_basis']}",
        *([answer["layers"]] if "layers" in answer else []),
    ]


def pool_heading(answer: Mapping[str, Any]) -> list[str]:
    """The same of disaggregated pools."""
    load = answer["workload"]
    prefill, decode = (answer[f"{pool}_pool"]["deployment"] for pool in ("prefill", "decode"))
    return [
        f"{answer['model']}, prefill on {deployment_words(prefill, held=False)}",
        f"decode on {deployment_words(decode)}{_cap(answer)}",
        f"{load_words(load)}, backend {load['backend']}; prices: {answer['price_basis']}",
    ]


def pool_lines(answer: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name, value, interval) of every metric of disaggregated pools."""
    lines = []
    for metric, name in (SHOWN | OF_POOLS).items():
        if answer.get(metric) is not None:
            ends = answer["intervals"].get(metric)
            between = f"{show(metric, ends[0])} .. {show(metric, ends[1])}" if ends else ""
            lines.append((name, show(metric, answer[metric]), between))
    return lines


def load_words(load: Mapping[str, Any]) -> str:
    """`1,024 prompt and 512 output tokens, continuous serving`."""
    return (
        f"{load['prompt_tokens']:,.0f} prompt and {load['output_tokens']:,.0f} output tokens, "
        f"{_arrivals(load)}{_savings(load)}"
    )


def _arrivals(load: Mapping[str, Any]) -> str:
    if "requests_per_second" in load:
        return f"{load['requests_per_second']:g} requests a second at random"
    return f"{load['serving']} serving"


def _savings(load: Mapping[str, Any]) -> str:
    """Drafts and cached prefixes, where there are any."""
    words = ""
    if "draft_tokens" in load:
        words += f", {load['draft_tokens']:g} drafted tokens accepted at {load['acceptance']:g}"
    if "prefix_hit_rate" in load:
        words += f", {load['prefix_hit_rate']:.0%} of prompts cached"
    if "network_overlap" in load:
        words += f", {load['network_overlap']:.0%} of network overlapped"
    return words


def mix_words(loads: Sequence[Mapping[str, Any]]) -> str:
    """`70% chat (1,000 prompt and 250 output tokens, continuous serving), ..., by requests`."""
    parts = [f"{load['weight'] * 100:.3g}% {load['name']} ({load_words(load)})" for load in loads]
    return f"{', '.join(parts)}, by requests"


def workload_table(
    loads: Sequence[Mapping[str, Any]],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(titles, the row of each workload of a mix)."""
    columns = WORKLOAD_COLUMNS if held(loads) else ARRIVAL_COLUMNS
    titles = ("workload", "requests", "of the time", *(SHORT[metric] for metric in columns))
    return titles, [
        (
            load["name"],
            f"{load['weight'] * 100:.3g}%",
            f"{load['chip_seconds_share']:.1%}",
            *(show(metric, load[metric]) for metric in columns),
        )
        for load in loads
    ]


def verdict(answer: Mapping[str, Any]) -> list[str]:
    """The bottleneck, and whether the point is feasible: a line for each violation."""
    lines = [f"Bound by {answer['bottleneck']}."]
    if answer["feasible"]:
        lines.append("Feasible.")
    return lines + [f"Infeasible: {violation_words(row)}" for row in answer["violations"]]


def violation_words(row: Mapping[str, Any]) -> str:
    """A broken constraint; what of the candidate breaks it, and how far."""
    amount = row["amount"]
    if row["meaning"] == "limit":
        if amount is None:
            return f"breaks the limit {row['constraint']}: it has no finite value"
        value = show(row["metric"], row["value"])
        return f"breaks the limit {row['constraint']}, at {value}, by {amount:.1%}"
    return row_words(row)


def metric_lines(answer: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(name, value, interval, provenance) of every metric worth a line."""
    lines = []
    for metric, name in SHOWN.items():
        if metric not in answer or (metric in OF_ARRIVALS and answer[metric] is None):
            continue
        ends = answer["intervals"].get(metric)
        between = f"{show(metric, ends[0])} .. {show(metric, ends[1])}" if ends else ""
        value = show(metric, answer[metric])
        lines.append((name, value, between, answer["provenance"].get(metric, "")))
    return lines


def deployment_words(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 x h200_sxm: TP 4, 2 replicas, fp8 weights, bf16 KV, 64 in flight`, the last where that
    number is held."""
    words = [f"TP {deployment['tensor_parallel']}"]
    for name, short in (
        ("pipeline_parallel", "PP"), ("data_parallel", "attention DP"), ("expert_parallel", "EP"),
    ):  # fmt: skip
        if deployment[name] > 1:
            words.append(f"{short} {deployment[name]}")
    replicas = deployment["replicas"]
    if replicas > 1:
        words.append(f"{replicas} replicas")
    if "scale_up_domain" in deployment:
        words.append(f"hypothetical domain {deployment['scale_up_domain']}")
    words += [f"{deployment['weight_dtype']} weights", f"{deployment['kv_dtype']} KV"]
    words += offload_words(deployment)
    if held:
        words.append(f"{deployment['concurrency']:,} in flight")
    return f"{deployment['chips']} x {deployment['chip']}: " + ", ".join(words)


SHAPE_KEY = (
    "h hidden size, L layers, kv KV heads, f feed-forward width, "
    "e experts x their width / used per token + shared"
)
DEPLOYMENT_KEY = (
    "TP tensor, PP pipeline, DP attention data, EP expert parallel, R replicas, weight/KV formats"
)
HELD_KEY = ", c requests in flight"
DOMAIN_KEY = ", D hypothetical scale-up domain"


def short_shape(model: Mapping[str, Any]) -> str:
    """`h4096 L32 kv8 f14336` or `h4096 L32 kv8 e64x1536/4+1`, by SHAPE_KEY."""
    words = [f"h{model['hidden_size']}", f"L{model['num_hidden_layers']}"]
    if "num_key_value_heads" in model:
        words.append(f"kv{model['num_key_value_heads']}")
    words += filter(None, [layers_in_short(model)])
    if model.get("intermediate_size"):
        words.append(f"f{model['intermediate_size']}")
    if model.get("num_experts"):
        shared = model.get("num_shared_experts")
        words.append(
            f"e{model['num_experts']}x{model['moe_intermediate_size']}"
            f"/{model['num_experts_per_tok']}" + (f"+{shared:g}" if shared else "")
        )
    return " ".join(words)


def short_deployment(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 h200_sxm TP4 R2 fp8/bf16 c64`, by DEPLOYMENT_KEY and, the last where that number is held,
    HELD_KEY; degrees of 1 are left out. `D64` is a hypothetical domain (DOMAIN_KEY)."""
    degrees = [
        f"{short}{deployment[name]}"
        for name, short in (
            ("tensor_parallel", "TP"), ("pipeline_parallel", "PP"), ("data_parallel", "DP"),
            ("expert_parallel", "EP"), ("replicas", "R"),
        )
        if deployment[name] > 1
    ]  # fmt: skip
    return " ".join(
        (
            f"{deployment['chips']} {deployment['chip']}",
            *degrees,
            *([f"D{deployment['scale_up_domain']}"] if "scale_up_domain" in deployment else []),
            f"{deployment['weight_dtype']}/{deployment['kv_dtype']}",
            *offload_words(deployment),
            *([f"c{deployment['concurrency']}"] if held else []),
        )
    )


def spans(numbers: list[int]) -> str:
    """`1-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)
