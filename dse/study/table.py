"""front.csv: one row a point, 9 significant digits, no times of the machine in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.answer.layers import layers_in_short

MODEL = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "num_shared_experts",
    "vocab_size",
)
DEPLOYMENT = (
    "chip",
    "chips",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "replicas",
    "weight_dtype",
    "kv_dtype",
    "concurrency",
)
# Columns of the prefill pool, empty where one pool does both phases.
PREFILL = tuple(name for name in DEPLOYMENT if name != "concurrency")
LAYERS = "layers"  # in short, in studies whose layers are not all alike
# Columns of the studies that vary them: memory tiers, a hypothetical scale-up domain.
SEARCHED = (
    "redundant_experts",
    "draft_tokens",
    "max_running_requests",
    "weights_offloaded",
    "kv_offloaded",
    "offload_tier",
    "scale_up_domain",
)


def front_table(items: Sequence[Mapping[str, Any]]) -> str:
    """The text of front.csv. A value that does not apply is an empty cell."""
    given = {name for item in items for name in item["deployment"]}
    deployment = (*DEPLOYMENT, *(name for name in SEARCHED if name in given))
    prefill = PREFILL if "prefill" in given else ()
    layers = [layers_in_short(item["model"]) for item in items]
    vary = len(set(layers)) > 1
    metrics = [
        name
        for name, value in items[0]["metrics"].items()
        if isinstance(value, (int, float, str, type(None))) and name != "interval_kind"
    ]

    def cells(item: Mapping[str, Any], mixers: str) -> Iterator[tuple[str, Any]]:
        own = item["deployment"]
        yield "point", item["point"]
        yield "names", " ".join(item["names"])
        yield "decision", item["decision"]
        yield "front_probability", item["front_probability"]
        if "laws" in item:
            yield "laws", " ".join(item["laws"]["on_fronts"])
            yield "worst_regret", item["worst_regret"]
        yield from ((name, item["model"].get(name)) for name in MODEL)
        if vary:
            yield LAYERS, mixers
        yield from ((name, own.get(name)) for name in deployment)
        yield from ((f"prefill_{name}", own.get("prefill", {}).get(name)) for name in prefill)
        yield from ((name, item["metrics"][name]) for name in metrics)

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name for name, _ in cells(items[0], ""))
    for item, mixers in zip(items, layers, strict=True):
        writer.writerow(_cell(value) for _, value in cells(item, mixers))
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
