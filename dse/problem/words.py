"""A workload, a shape, a deployment and an estimate as people read them.

An answer whose search was not free to choose what usually pays says what it would give (`untried`):
formats of 8 bits where the chip computes in fp8, drafts where it is published what share of them is
accepted, pools of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.answer.numbers import dollars, plain, share, show, significant
from dse.problem.describe import pools_of
from dse.problem.mix import held, loads_of
from dse.rules.registry import row_words
from dse.schema.constants import offload_words
from dse.schema.dtypes import BITS
from dse.schema.model import layers_in_short, layers_in_words
from dse.schema.workloads import load_words, mix_words
from dse.vocabulary import quantity

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


def heading(answer: Mapping[str, Any]) -> str:
    """Model, deployment, workload and price basis of an estimate, of both pools where there are
    two."""
    loads, load = loads_of(answer), answer["workload"]
    if "prefill_pool" in answer:
        on, after = (answer[f"{pool}_pool"]["deployment"] for pool in ("prefill", "decode"))
        on = f"{deployment_words(on, held=False)} for prefill, {deployment_words(after)} for decode"
    else:
        on = deployment_words(answer["deployment"], held(loads))
    cap = f", each at {answer['power_cap_w']:g} W at most" if "power_cap_w" in answer else ""
    parts = [
        f"{answer['model']} on {on}{cap}",
        f"{mix_words(answer['workloads']) if load is None else load_words(load)}, backend "
        f"{loads[0]['backend']}",
        f"prices: {answer['price_basis']}",
    ]
    return "; ".join([*parts, *([answer["layers"]] if "layers" in answer else [])])


def violation_words(row: Mapping[str, Any]) -> str:
    """A violation in words: what of the candidate breaks it, and how far."""
    amount = row["amount"]
    if row["meaning"] == "limit":
        if amount is None:
            return f"breaks the limit {row['constraint']}: it has no finite value"
        value = show(row["metric"], row["value"])
        return f"breaks the limit {row['constraint']}, at {value}, by {amount:.1%}"
    return row_words(row)


# How chips are divided: of each degree the least that is told, in a table and in a sentence.
SPLIT = (
    ("tensor_parallel", 2, "TP{:g}", "TP {:g}"),
    ("pipeline_parallel", 2, "PP{:g}", "PP {:g}"),
    ("data_parallel", 2, "DP{:g}", "attention DP {:g}"),
    ("expert_parallel", 2, "EP{:g}", "EP {:g}"),
    ("replicas", 2, "R{:g}", "{:g} replicas"),
    ("redundant_experts", 1, "+{:g} copies", "{:g} copies of experts"),
    ("draft_tokens", 1, "{:g} drafted", "{:g} drafted"),
    ("scale_up_domain", 1, "D{:g}", "hypothetical domain {:g}"),
)
DEGREES = tuple(name for name, *_ in SPLIT[:5])
DEPLOYMENT_KEY = (
    "TP tensor, PP pipeline, DP attention data, EP expert parallel, R replicas, D hypothetical "
    "scale-up domain, weight/KV formats, c concurrency"
)


def split_words(deployment: Mapping[str, Any], *, short: bool = False) -> list[str]:
    words = []
    for name, least, brief, full in SPLIT:
        degree = deployment.get(name) or 0
        if degree >= least:
            words.append((brief if short else full).format(degree))
    return words + offload_words(deployment)


def _pools(deployment: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return pools_of(deployment) or (deployment,)


def deployment_words(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 x h200_sxm (TP 4, 2 replicas, fp8 weights, bf16 KV, 64 in flight)`, the last where that
    number is held; of separate pools prefill first, in flight over both."""
    every, words = _pools(deployment), []
    for one in every:
        parts = [*split_words(one), f"{one['weight_dtype']} weights"]
        parts.append(f"{one['kv_dtype']} KV")
        parts += [f"served by {one['backend']}"] if "backend" in one else []
        if held and one is every[-1]:
            parts.append(f"{round(deployment['concurrency']):,} in flight")
        words.append(f"{one['chips']} x {one['chip']} ({', '.join(parts)})")
    return words[0] if len(words) == 1 else f"{words[0]} for prefill, {words[1]} for decode"


def short_deployment(deployment: Mapping[str, Any], held: bool = True) -> str:
    """`8 h200_sxm TP4 R2 fp8/bf16 c64`, by DEPLOYMENT_KEY, the last where that number is held;
    degrees of 1 are left out. Separate pools are on either side of an arrow, prefill first."""
    parts = []
    for one in _pools(deployment):
        formats = f"{one['weight_dtype']}/{one['kv_dtype']}"
        words = (f"{one['chips']} {one['chip']}", *split_words(one, short=True), formats)
        parts.append(" ".join(words))
    return " -> ".join(parts) + (f" c{round(deployment['concurrency'])}" if held else "")


def short_split(deployment: Mapping[str, Any]) -> str:
    """`TP4 R2`, by DEPLOYMENT_KEY: how the chips are divided; `1 chip` where they are not."""
    parts = (" ".join(split_words(one, short=True)) or "1 chip" for one in _pools(deployment))
    return " -> ".join(parts)


def of_pools(deployment: Mapping[str, Any], name: str) -> str:
    """The `chip` or another name of a deployment; `b200_sxm -> gb200_nvl72` of pools that
    differ."""
    return " -> ".join(dict.fromkeys(one[name] for one in _pools(deployment)))


SHAPE_KEY = (
    "h hidden size, L layers, kv KV heads, f feed-forward width, "
    "e experts x their width / used per token + shared"
)
# Llama 4 Scout, the most of search_spaces/models.csv (its model card).
MOST_TOKENS = 40e12


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


def axis_words(axis: str) -> str:
    """What people call an axis of a space, that of a worker of a pool too."""
    for pool in ("prefill_", "decode_"):
        if axis.startswith(pool):
            return f"{pool.removesuffix('_')} {axis_words(axis.removeprefix(pool))}"
    return "kind of model" if axis == "sparse" else quantity(axis).title


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


def average_load_words(load: Mapping[str, Any]) -> str:
    """What a demand costs at its average."""
    each = ", ".join(
        f"{dollars(load[f'usd_per_million_{name}_tokens'])} {name}"
        for name in ("input", "output", "total")
    )
    held = "sized for the peak"
    if load["deployments"] is not None:
        held = f"{load['deployments']:,} deployment{'s' * (load['deployments'] != 1)}"
        held += f" ({load['chips']:,.0f} chips, {dollars(load['usd_per_hour'])} an hour) for it"
    return (
        f"At average load, a peak of {plain(load['peak_over_average'])} times the average: {held}, "
        f"{share(load['busy_share'])} busy; per million tokens {each}. The prices in the table are "
        "those of a busy deployment."
    )


# What was not searched.
FP8 = "fp8"
LEAST_NATS = 5e-4  # of a loss: what is less is no difference


def untried_row(
    what: str, saves: float | None, result: str, nats: float | None = None, worse: str = ""
) -> dict[str, Any]:
    """`what` it is, the share that it saves of the cost (None: nothing held without it), the
    `result` that then comes out, the `nats` that it adds to the loss (None: no format changes, or
    the loss is not known), and what gets `worse`."""
    return {
        "what": what,
        "saves": saves,
        "result": result,
        "predicted_loss_added": nats,
        "worse": worse,
    }


def untried_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """`Not searched: fp8 weights and cache (-49%: 10 h100_sxm, $114k; no loss of quality
    predicted).`, the largest gain first; none where nothing pays."""
    words = []
    for row in sorted(rows, key=lambda row: -2.0 if row["saves"] is None else -row["saves"]):
        gain = "which would do" if row["saves"] is None else f"-{100.0 * row['saves']:.2g}%"
        parts = [f"{gain}: {row['result']}" if row["result"] else gain, row["worse"]]
        if (nats := row["predicted_loss_added"]) is not None:
            added = f"+{significant(nats, 2)} nats of predicted loss"
            parts.append(added if nats >= LEAST_NATS else "no loss of quality predicted")
        words.append(f"{row['what']} ({'; '.join(filter(None, parts))})")
    return [f"Not searched: {', '.join(words)}."] if words else []


def wide(formats: Iterable[str]) -> bool:
    """Whether all formats are wider than 8 bits."""
    return all(int(BITS[name]) > 8 for name in formats)


def format_words(weights: bool, cache: bool) -> str:
    """`fp8 weights and cache`."""
    parts = [name for name, here in (("weights", weights), ("cache", cache)) if here]
    return f"{FP8} {' and '.join(parts)}"


def draft_words(counts: Iterable[int]) -> str:
    """`drafts of 1 or 3 tokens`."""
    named = " or ".join(f"{count:g}" for count in dict.fromkeys(counts))
    return f"drafts of {named} token{'' if named == '1' else 's'}"
