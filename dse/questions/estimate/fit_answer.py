"""The answer of `dse estimate --fit`: the fewest chips that hold a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Answer, Column, Table
from dse.problem.words import SHORT_DEGREES


def fit_answer(document: Mapping[str, Any]) -> Answer:
    """The answer of `dse estimate --fit` (`dse.questions.estimate.fit.fit`)."""
    first, rest = _first(document), _remarks(document)
    return Answer(
        question="estimate",
        title=f"The fewest {document['chip']} that hold {document['model']}",
        asked=_asked(document),
        headline=first,
        sentences=rest,
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


def _asked(answer: Mapping[str, Any]) -> str:
    return (
        f"{answer['model']} with {answer['weight_dtype']} weights and {answer['kv_dtype']} KV, "
        f"{answer['concurrency']:,} in flight of {answer['prompt_tokens']:,} prompt and "
        f"{answer['output_tokens']:,} output tokens, on {answer['chip']}; backend "
        f"{answer['backend']}"
    )


def _first(answer: Mapping[str, Any]) -> str:
    if (row := answer["fewest"]) is None:
        most = f"{answer['most_chips']:,} {answer['chip']}"
        return f"Does not fit: {answer['model']}, on up to {most}."
    return f"{answer['chip']}: {_count(row['chips'])} at least."


def _count(chips: int) -> str:
    return "one chip" if chips == 1 else f"{chips:,} chips"


def _remarks(answer: Mapping[str, Any]) -> list[str]:
    lines = [
        f"The weights alone fill the memory of {_count(answer['at_least_by_bytes'])}; "
        f"{answer['splits']:,} splits were tried."
    ]
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
