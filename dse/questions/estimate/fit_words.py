"""`dse hardware fit` as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.problem.words import show

DEGREES = (
    ("TP", "tensor_parallel"), ("PP", "pipeline_parallel"), ("DP", "data_parallel"),
    ("EP", "expert_parallel"),
)  # fmt: skip


def heading(answer: Mapping[str, Any]) -> list[str]:
    asked = (
        f"{answer['model']} with {answer['weight_dtype']} weights and {answer['kv_dtype']} KV, "
        f"{answer['concurrency']:,} in flight of {answer['prompt_tokens']:,} prompt and "
        f"{answer['output_tokens']:,} output tokens"
    )
    row = answer["fewest"]
    if row is None:
        return [f"Does not fit: {asked}, on up to {answer['most_chips']:,} {answer['chip']}."]
    return [
        f"{answer['chip']}: {_count(row['chips'])} at least.",
        f"For {asked}; backend {answer['backend']}.",
    ]


def _count(chips: int) -> str:
    return "one chip" if chips == 1 else f"{chips:,} chips"


def rows(answer: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(titles, rows) from the fewest chips to the fastest; degrees that are 1 throughout go."""
    found = answer["rows"]
    used = [(short, name) for short, name in DEGREES if any(row[name] > 1 for row in found)]
    titles = (
        "chips", *(short for short, _ in used), "per token", "tokens/s per user",
        "interconnect", "memory", "domains",
    )  # fmt: skip
    return titles, [
        (
            f"{row['chips']:,}",
            *(f"{row[name]:,}" for _, name in used),
            show("tpot_s", row["tpot_s"]),
            show("output_tokens_per_s_per_user", row["output_tokens_per_s_per_user"]),
            f"{row['interconnect_share']:.1%}",
            f"{row['memory_share']:.1%}",
            f"{row['scale_up_domains']:,}",
        )
        for row in found
    ]


def remarks(answer: Mapping[str, Any]) -> list[str]:
    lines = [
        f"The weights alone fill the memory of {_count(answer['at_least_by_bytes'])}; "
        f"{answer['splits']:,} splits were tried."
    ]
    if answer["fits"]:
        lines.append(
            "From the fewest chips to the fastest split. interconnect: share of a decode step in "
            "collectives and hops between stages; memory: used of the fullest chip; domains: "
            "scale-up domains that an instance spans."
        )
    domain = answer["scale_up_chips"]
    if answer["beyond_scale_up"]:
        lines.append(
            f"More chips than one scale-up domain has ({domain:,}): the network joins them."
        )
    if answer["limited_by"] and not answer["fits"]:
        lines.append(f"No larger instance was tried: {answer['limited_by']}.")
    if answer["command"]:
        lines.append(f"The first row again: {answer['command']}")
    return lines
