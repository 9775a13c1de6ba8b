"""The answer of `dse estimate --fit`: the fewest chips that hold a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Answer, Column, Table
from dse.problem.words import SHORT_DEGREES


def fit_answer(document: Mapping[str, Any]) -> Answer:
    """The answer of `dse estimate --fit` (`dse.questions.estimate.fit.fit`)."""
    model, chip, row = document["model"], document["chip"], document["fewest"]
    said = [
        f"Does not fit: {model}, on up to {document['most_chips']:,} {chip}."
        if row is None
        else f"{chip}: {_count(row['chips'])} at least.",
        f"The weights alone fill the memory of {_count(document['at_least_by_bytes'])}; "
        f"{document['splits']:,} splits were tried.",
    ]
    if document["beyond_scale_up"]:
        domain = document["scale_up_chips"]
        said.append(
            f"More chips than one scale-up domain has ({domain:,}): the network joins them."
        )
    if document["limited_by"] and not document["fits"]:
        said.append(f"No larger instance was tried: {document['limited_by']}.")
    if document["command"]:
        said.append(f"The first row again: {document['command']}")
    return Answer(
        question="estimate",
        title=f"The fewest {chip} that hold {model}",
        asked=f"{model} with {document['weight_dtype']} weights and {document['kv_dtype']} KV, "
        f"{document['concurrency']:,} in flight of {document['prompt_tokens']:,} prompt and "
        f"{document['output_tokens']:,} output tokens, on {chip}; backend {document['backend']}",
        headline=said[0],
        sentences=said[1:],
        blocks=(split_table(document),) if document["fits"] else (),
        rests=document["assumed"],
        document=document,
    )


def split_table(document: Mapping[str, Any]) -> Table:
    """From the fewest chips to the fastest; degrees that are 1 throughout are left out."""
    rows = document["rows"]
    degrees = [
        Column(name, short, "count")
        for name, short in SHORT_DEGREES.items()
        if any(row.get(name, 1) > 1 for row in rows)
    ]
    return Table(
        "splits",
        "From the fewest chips to the fastest split",
        (
            Column("chips", "chips", "count"),
            *degrees,
            Column("tpot_s", "per token", "tpot_s"),
            Column("output_tokens_per_s_per_user", "tokens/s per user", "rate"),
            Column("interconnect_share", "interconnect", "share"),
            Column("memory_share", "memory", "share"),
            Column("scale_up_domains", "domains", "count"),
        ),
        rows,
        notes=(
            "interconnect: share of a decode step in collectives and hops between stages; memory: "
            "used of the fullest chip; domains: scale-up domains that an instance spans.",
        ),
    )


def _count(chips: int) -> str:
    return "one chip" if chips == 1 else f"{chips:,} chips"
