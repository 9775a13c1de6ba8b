"""A workload, a shape, a deployment and an estimate as people read them.

An answer whose search was not free to choose what usually pays says what it would give (`Untried`):
formats of 8 bits where the chip computes in fp8, drafts where it is published what share of them is
accepted, pools of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.answer.numbers import dollars, plain, share, show, significant
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.record import record
from dse.rules.registry import row_words
from dse.schema.dtypes import BITS
from dse.schema.metrics import EVERY
from dse.schema.model import Model, layers_in_short, layers_in_words
from dse.schema.tiers import offload_words
from dse.schema.workloads import load_words, mix_words

# The metrics of an estimate that are worth a line, in this order.
LINES = (
    "ttft_s",
    "ttft_mean_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "utilisation",
    "tpot_s",
    "prefill_s",
    "decode_step_s",
    "latency_floor_s",
    "distance_to_floor",
    "output_tokens_per_s",
    "output_tokens_per_s_per_chip",
    "output_tokens_per_s_per_user",
    "running_requests",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in",
    "joules_per_output_token",
    "tokens_per_joule",
    "watts_per_chip",
    "energy_data_movement_share",
    "memory_bytes_per_chip",
    "memory_capacity_bytes_per_chip",
    "tier_bytes_per_chip",
    "tier_capacity_bytes_per_chip",
    "tier_wait_s",
    "mfu",
    "mbu",
    "predicted_loss",
    "dense_equivalent_parameters",
    "training_tokens",
    "total_parameters",
    "active_parameters",
    "kv_bytes_per_token",
    "training_days",
    "training_usd",
    "training_kwh",
    "training_chip_hours",
    "training_mfu",
    "lifetime_usd",
    "lifetime_serving_share",
    "lifetime_flops",
    "lifetime_chip_hours",
)
OF_POOLS = ("queue_s", "transfer_s")
SHOWN = {name: EVERY[name].title for name in (*LINES, *OF_POOLS)}
SHORT = {name: row.short for name, row in EVERY.items()}
# Shown where requests arrive at random.
OF_ARRIVALS = ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "utilisation")
MIX = (
    "Several workloads share the deployment's time, each alone in its turn. Cost, energy and "
    "output rate are of the mix; latencies, memory and running requests of the worst workload."
)
# What `known as` says of a metric.
KNOWN = {
    "fitted": "from measurements of this kernel or law",
    "derived": "counted, or by rule from fitted figures",
    "assumed": "no measurement stands behind it",
    "extrapolated": "beyond what the law was fitted on",
}


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


def deployment_words(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 x h200_sxm: TP 4, 2 replicas, fp8 weights, bf16 KV, 64 in flight`, the last where that
    number is held; of separate pools, one after the other."""
    pools = pools_of(deployment)
    flight = [f"{_in_flight(deployment)} in flight"] if held else []
    if pools is None:
        return f"{deployment['chips']} x {deployment['chip']}: " + ", ".join(
            _split_words(deployment, "replica") + flight
        )
    words = [
        f"{name} on {one['chips']} x {one['chip']}: {', '.join(_split_words(one, 'worker'))}"
        for name, one in zip(("prefill", "decode"), pools, strict=True)
    ]
    return "; ".join((*words, *flight))


def chips_words(deployment: Mapping[str, Any]) -> str:
    """`8 × h200_sxm`, or `16 × b200_sxm for prefill and 32 × gb200_nvl72 for decode`."""
    pools = pools_of(deployment)
    if pools is None:
        return f"{deployment['chips']} × {deployment['chip']}"
    return " and ".join(
        f"{one['chips']} × {one['chip']} for {phase}"
        for one, phase in zip(pools, ("prefill", "decode"), strict=True)
    )


def served_words(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 × h200_sxm with fp8 weights, 64 requests in flight`, the last where that is held: what a
    headline says of a deployment."""
    flight = f", {_in_flight(deployment)} requests in flight" if held else ""
    return f"{chips_words(deployment)} with {in_weights(deployment)} weights{flight}"


def on_chip(deployment: Mapping[str, Any]) -> str:
    """`h200_sxm`, or, of pools on two kinds of chip, `b200_sxm -> gb200_nvl72`, prefill first."""
    return _of_pools(deployment, "chip")


def in_weights(deployment: Mapping[str, Any]) -> str:
    """`fp8`, or that of either pool where they differ, prefill first."""
    return _of_pools(deployment, "weight_dtype")


def copies_words(deployment: Mapping[str, Any]) -> str:
    """`8 copies, ` of a model that several instances hold; empty of one, and of separate pools."""
    copies = 1 if pools_of(deployment) else round(deployment.get("replicas") or 1)
    return f"{copies:,} copies, " if copies > 1 else ""


def _of_pools(deployment: Mapping[str, Any], name: str) -> str:
    parts = (one[name] for one in pools_of(deployment) or (deployment,))
    return " -> ".join(dict.fromkeys(parts))


def _in_flight(deployment: Mapping[str, Any]) -> str:
    """Those of separate pools follow from their rates, and are a mean."""
    return f"{round(deployment['concurrency']):,}"


def _split_words(deployment: Mapping[str, Any], instance: str) -> list[str]:
    words = [f"TP {deployment['tensor_parallel']}"]
    degrees = {"pipeline_parallel": "PP", "data_parallel": "attention DP", "expert_parallel": "EP"}
    for name, short in degrees.items():
        if deployment[name] > 1:
            words.append(f"{short} {deployment[name]}")
    replicas = deployment["replicas"]
    if replicas > 1:
        words.append(f"{replicas} {instance}s")
    if "scale_up_domain" in deployment:
        words.append(f"hypothetical domain {deployment['scale_up_domain']}")
    if deployment.get("redundant_experts"):
        words.append(f"{deployment['redundant_experts']:g} copies of experts")
    words += [f"{deployment['weight_dtype']} weights", f"{deployment['kv_dtype']} KV"]
    if "draft_tokens" in deployment:
        words.append(f"{deployment['draft_tokens'] or 'no'} drafted")
    words += offload_words(deployment)
    if "backend" in deployment:
        words.append(f"served by {deployment['backend']}")
    return words


SHAPE_KEY = (
    "h hidden size, L layers, kv KV heads, f feed-forward width, "
    "e experts x their width / used per token + shared"
)
DEPLOYMENT_KEY = (
    "TP tensor, PP pipeline, DP attention data, EP expert parallel, R replicas, weight/KV formats"
)
SHORT_DEGREES = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "data_parallel": "DP",
    "expert_parallel": "EP",
    "replicas": "R",
}
# Llama 4 Scout, the most of search_spaces/models.csv (its model card).
MOST_TOKENS = 40e12
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


# Axes whose names are not what people call them; of the others, the underscores are spaces.
_AXES = {
    "concurrency": "requests in flight",
    "num_hidden_layers": "layers",
    "num_experts": "number of experts",
    "num_experts_per_tok": "experts per token",
    "moe_intermediate_size": "expert width",
    "intermediate_size": "feed-forward width",
    "num_key_value_heads": "KV heads",
    "num_attention_heads": "query heads",
    "weight_dtype": "weights",
    "kv_dtype": "KV cache",
    "sparse": "kind of model",
    "scale_up_domain": "scale-up domain (hypothetical)",
}


def axis_words(axis: str) -> str:
    """What people call an axis of a space, that of a worker of a pool too."""
    for pool in ("prefill_", "decode_"):
        if axis.startswith(pool):
            return f"{pool.removesuffix('_')} {axis_words(axis.removeprefix(pool))}"
    return _AXES.get(axis) or axis.replace("_", " ")


def short_deployment(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 h200_sxm TP4 R2 fp8/bf16 c64`, by DEPLOYMENT_KEY and, the last where that number is held,
    HELD_KEY; degrees of 1 are left out. `D64` is a hypothetical domain (DOMAIN_KEY). Separate pools
    stand on either side of an arrow, prefill first."""
    parts = [
        " ".join((f"{one['chips']} {one['chip']}", *_degrees(one), _formats(one)))
        for one in pools_of(deployment) or (deployment,)
    ]
    return " ".join(
        (" -> ".join(parts), *([f"c{round(deployment['concurrency'])}"] if held else []))
    )


def _formats(deployment: Mapping[str, Any]) -> str:
    formats = f"{deployment['weight_dtype']}/{deployment['kv_dtype']}"
    return " ".join((formats, *offload_words(deployment)))


def short_split(deployment: Mapping[str, Any]) -> str:
    """`TP4 R2`, by DEPLOYMENT_KEY: how the chips are divided; `1 chip` where they are not; separate
    pools on either side of an arrow."""
    parts = [
        " ".join((*_degrees(one), *offload_words(one))) or "1 chip"
        for one in pools_of(deployment) or (deployment,)
    ]
    return " -> ".join(parts)


def _degrees(deployment: Mapping[str, Any]) -> list[str]:
    degrees = {short: deployment[key] for key, short in SHORT_DEGREES.items()}
    words = [f"{short}{degree}" for short, degree in degrees.items() if degree > 1]
    if deployment.get("redundant_experts"):
        words.append(f"+{deployment['redundant_experts']:g} copies")
    if deployment.get("draft_tokens"):
        words.append(f"{deployment['draft_tokens']:g} drafted")
    return words + (
        [f"D{deployment['scale_up_domain']}"] if "scale_up_domain" in deployment else []
    )


def given_name(item: Mapping[str, Any]) -> str:
    """The name of a published model; a searched shape is only numbered (`quickstart-12`)."""
    name = item["model"].get("name") or ""
    return "" if name.endswith(f"-{item['point']}") else name


def brief_shape(item: Mapping[str, Any]) -> str:
    """`a sparse model of 61.2B parameters (5.12B active)`, or the model's name."""
    if name := given_name(item):
        return name
    model, metrics = item["model"], item["metrics"]
    total, active = metrics.get("total_parameters"), metrics.get("active_parameters")
    sparse = bool(model.get("num_experts") and total and active)
    words = f"a {'sparse' if sparse else 'dense'} model of {show('total_parameters', total)} "
    words += "parameters"
    words += f" ({show('active_parameters', active)} active)" if sparse else ""
    mixers = layers_in_words(model)
    return f"{words}, {mixers}" if mixers else words


def spans(numbers: list[int]) -> str:
    """`1-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


def average_load_words(load: Mapping[str, Any]) -> str:
    """What a demand costs at its average."""
    each = ", ".join(
        f"{dollars(load[f'usd_per_million_{name}_tokens'])} {name}"
        for name in ("input", "output", "total")
    )
    held = "sized for the peak"
    if load["deployments"] is not None:
        one = load["deployments"] == 1
        some, hold = ("deployment", "holds") if one else ("deployments", "hold")
        held = (
            f"{load['deployments']:,} {some} ({load['chips']:,.0f} chips, "
            f"{dollars(load['usd_per_hour'])} an hour) {hold} the peak"
        )
    return (
        f"At average load, a peak of {plain(load['peak_over_average'])} times the average: {held}, "
        f"{share(load['busy_share'])} busy; per million tokens {each}. The prices in the table are "
        "those of a busy deployment."
    )


FP8 = "fp8"
LEAST_NATS = 5e-4  # of a loss: what is less is no difference


@record
class Untried:
    """One thing that was not searched: `what` it is, the share that it `saves` of the cost (None:
    nothing held without it), what then comes out, the nats that it adds to the loss (None: no
    format changes, or the loss of the model is not known), and what else gets worse."""

    what: str
    saves: float | None
    result: str
    nats: float | None = None
    worse: str = ""

    @property
    def words(self) -> str:
        """`fp8 weights and cache (-49%: 10 h100_sxm, $114k; no loss of quality predicted)`."""
        gain = "which would do" if self.saves is None else f"-{100.0 * self.saves:.2g}%"
        result = f": {self.result}" if self.result else ""
        parts = [f"{gain}{result}", self.worse]
        if self.nats is not None:
            added = f"+{significant(self.nats, 2)} nats of predicted loss"
            parts.append(added if self.nats >= LEAST_NATS else "no loss of quality predicted")
        return f"{self.what} ({'; '.join(part for part in parts if part)})"

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Untried:
        """Of a row of `as_json`."""
        known = ("what", "saves", "result", "predicted_loss_added", "worse")
        return cls(*(row[name] for name in known))

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "saves": self.saves,
            "result": self.result,
            "predicted_loss_added": self.nats,
            "worse": self.worse,
        }


def sentence(found: Sequence[Untried], of: str = "") -> list[str]:
    """One line, the largest gain first; none where nothing pays. `of`: what the gain is of."""
    order = sorted(found, key=lambda one: -2.0 if one.saves is None else -one.saves)
    return [f"Not searched{of}: {', '.join(one.words for one in order)}."] if found else []


def wide(formats: Iterable[str]) -> bool:
    """Whether all formats are wider than 8 bits."""
    return all(int(BITS[name]) > 8 for name in formats)


def format_words(weights: bool, cache: bool) -> str:
    """`fp8 weights and cache`."""
    parts = [name for name, here in (("weights", weights), ("cache", cache)) if here]
    return f"{FP8} {' and '.join(parts)}"


def draft_counts(model: Model) -> tuple[int, ...]:
    """Tokens of a step that are published of the model with what share of them is accepted."""
    return tuple(sorted(model.drafts or ()))


def draft_words(counts: Iterable[int]) -> str:
    """`drafts of 1 or 3 tokens`."""
    named = " or ".join(f"{count:g}" for count in dict.fromkeys(counts))
    return f"drafts of {named} token{'' if named == '1' else 's'}"
