"""The answer of `dse train`: its sentences, picture and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Answer, Block, Column, Figure, Table
from dse.answer.bars import memory_parts, share_bars
from dse.economics.priced import price_tables
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.questions.train.answer import Training
from dse.questions.train.words import (
    SHORT_LOSSES,
    heading,
    memory_sentences,
    observed_words,
    plan_words,
    sentences,
)

LEAST_SHARE = 0.0005  # of a step, below which a loss is not shown


def train_answer(
    found: Training,
    *,
    only_memory: bool = False,
    why: Mapping[str, Any] | None = None,
    command: str = "",
) -> Answer:
    """The answer of a run; with `only_memory` that of its memory, of the model whole and a chip;
    with `why` (dse.questions.train.observed) the causes of an observed MFU first."""
    document: dict[str, Any] = found.as_json()
    if why is not None:
        document["observed"] = why
    first, *rest = memory_sentences(document) if only_memory else sentences(document)
    if why is not None:
        first, rest = observed_words(why), [first, *rest]
    blocks: list[Block] = [memory_table(document)]
    if only_memory:
        blocks.insert(0, whole_table(document))
    elif found.feasible:
        blocks = [losses_figure(document), losses_table(document), *blocks]
        if document["next_plans"]:
            blocks.append(next_table(document))
    if not only_memory:
        blocks += price_tables(document["price"]) if "price" in document else []
    if why is not None:
        blocks.insert(0, causes_table(why))
    return Answer(
        question="train",
        title=f"Training {document['model']} on {document['chips']:,} x {document['chip']}",
        asked=heading(document),
        headline=first,
        sentences=rest,
        blocks=blocks,
        rests=document["assumed"],
        command=command,
        document=document,
    )


def causes_table(why: Mapping[str, Any]) -> Table:
    return Table.of(
        "causes",
        "What alone explains the observed MFU, and what mending it saves",
        why["causes"],
        (
            Column("cause", "cause"),
            Column("mfu", "MFU with it", "training_mfu"),
            Column("explains", "of the gap", "share"),
            Column("saves_days", "saves", "training_days"),
            Column("saves_usd", "saves", "training_usd"),
        ),
        ("Each alone, the rest the best that is left; input and late ranks are sized for all.",),
    )


def losses_table(document: Mapping[str, Any]) -> Table:
    return Table.of(
        "step",
        "Where a step goes",
        _shown(document),
        (
            Column("cause", "where a step goes", of=SHORT_LOSSES.__getitem__),
            Column("seconds", "time", "time", of=document["losses_s"].__getitem__),
            Column("share", "share", "share", of=document["loss_shares"].__getitem__),
        ),
    )


def losses_figure(document: Mapping[str, Any]) -> Figure:
    shares = {SHORT_LOSSES[name]: document["loss_shares"][name] for name in _shown(document)}
    return share_bars("step", "Where a step goes", "the step", shares)


def _shown(document: Mapping[str, Any]) -> list[str]:
    return [name for name in LOSSES_AT_SCALE if document["loss_shares"][name] >= LEAST_SHARE]


def memory_table(document: Mapping[str, Any]) -> Table:
    parts = {**document["memory_bytes_per_chip_parts"]}
    parts["all of it"] = document["memory_bytes_per_chip"]
    return memory_parts(
        {name: size for name, size in parts.items() if size > 0.0},
        document["memory_capacity_bytes_per_chip"],
        "Memory of the fullest chip",
        "memory of the fullest chip",
    )


def whole_table(document: Mapping[str, Any]) -> Table:
    whole = document["memory_unsharded_bytes"]
    names = {name: name for name in ("weights", "gradients", "optimizer", "total")}
    names["master_copy"] = "FP32 master copy, beside it"
    return Table(
        "whole model",
        "The whole model, not divided over chips",
        (Column("part", "the whole model"), Column("bytes", "memory", "bytes")),
        [{"part": text, "bytes": whole[name]} for name, text in names.items()],
    )


def next_table(document: Mapping[str, Any]) -> Table:
    return Table.of(
        "next plans",
        "The next ways to divide it",
        document["next_plans"],
        (
            Column("plan", "plan", of=lambda row: plan_words(row["parallelism"])),
            Column("step_s", "step", "time"),
            Column("mfu", "MFU", "training_mfu"),
            Column("days", "time", "training_days"),
            Column("memory_bytes_per_chip", "memory", "memory_bytes_per_chip"),
        ),
    )
