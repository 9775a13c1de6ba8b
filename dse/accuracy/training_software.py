"""Training software of measured rows: its stack, its habits, and the recipes of its benchmarks.

A habit fills what a row leaves open; `flops` names the convention that its model FLOPs follow
(`dse.accuracy.training_flops`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from dse.catalog import MEASUREMENTS
from dse.data import hardware_dir

RECIPES = "training_recipes.csv"


@dataclass(frozen=True, slots=True)
class Software:
    """`sharded`: it shards weights over all data-parallel ranks (FSDP); `accumulates`: a step has
    several micro-batches of one sequence unless said otherwise; `gradient_bytes` of a parameter, as
    gradients are reduced; `version` as numbers, () where the row names none."""

    stack: str
    precision: str
    recompute: str
    sharded: bool
    accumulates: bool
    flops: str
    gradient_bytes: float = 4.0
    version: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the public recipe of a benchmark adds to its table of results; 0 or "" where it adds
    nothing. `batch_per_chip` in sequences; `recompute_share`, `bf16_share` and `tensor_hidden` as
    in TrainingBatch, `bf16_share` None where it says nothing; `stack` where its expert layers are
    dispatched or fused otherwise than the software's habit."""

    sequence_length: float
    batch_per_chip: float
    context_parallel: float
    recompute: str
    recompute_share: float
    bf16_share: float | None
    tensor_hidden: float
    stack: str


# Gradients in 16 bits: Megatron-Bridge's and NeMo's speed benchmarks (grad_reduce_in_fp32 False,
# perf_recipes/_common.py), llm-foundry's FSDP (mixed_precision PURE).
MEGATRON = Software("megatron", "bf16", "none", False, True, "causal", 2.0)
NEMO = Software("megatron", "bf16", "none", False, True, "full", 2.0)
MAXTEXT = Software("maxtext", "bf16", "full", True, False, "causal")
FOUNDRY = Software("fsdp", "bf16", "none", True, False, "full", 2.0)
FSDP = Software("fsdp", "bf16", "none", True, False, "full")
GENERIC = Software("generic", "bf16", "none", False, True, "causal")
# The first whose sign the lower-cased name holds. Tables of Megatron-Bridge 25.09 name no
# precision; what they say of it is of 8-bit formats alone.
SIGNS = (
    ("megatron", MEGATRON),
    ("nemo", NEMO),
    ("maxtext", MAXTEXT),
    ("llm-foundry", FOUNDRY),
    ("torchtitan", FSDP),
    ("fsdp", FSDP),
)
FIRST_TABLES = (25, 9)


def software_of(engine: str, assumed: list[str]) -> Software:
    """Of the software that a row names; says in `assumed` where it is not known."""
    text = engine.lower()
    for sign, software in SIGNS:
        if sign in text:
            found = re.search(r"\d\d\.\d\d(\.\d\d)?", text)
            version = _version(found[0]) if found else ()
            early = software is MEGATRON and version == FIRST_TABLES
            precision = "fp8" if early else software.precision
            return replace(software, precision=precision, version=version)
    assumed.append(f"generic training software for {engine or 'an unnamed one'}")
    return GENERIC


def recipe_of(software: Software, cells: Mapping[str, str], assumed: list[str]) -> Recipe | None:
    """The recipe behind a row, None where none is known."""
    task = cells["task"] or "pretrain"
    for line in _recipes():
        if (line["engine"], line["model"], line["task"]) != (software.stack, cells["model"], task):
            continue
        if line["chip"] not in ("", cells["chip"]):
            continue
        if line["dtype"] not in ("", cells["dtype"].lower()):
            continue
        if line["since"] and software.version < _version(line["since"]):
            continue
        if line["until"] and not () < software.version < _version(line["until"]):
            continue
        length = line["sequence_length"]
        if length and cells["sequence_length"] not in ("", length):
            continue
        if line["stack"]:
            assumed.append(f"stack {line['stack']} as in its recipe")
        return Recipe(
            sequence_length=float(length or 0.0),
            batch_per_chip=float(line["batch_per_chip"] or 0.0),
            context_parallel=float(line["cp"] or 0.0),
            recompute=line["recompute"],
            recompute_share=float(line["recompute_share"] or 1.0),
            bf16_share=float(line["bf16_share"]) if line["bf16_share"] else None,
            tensor_hidden=float(line["tensor_hidden"] or 1.0),
            stack=line["stack"],
        )
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    path = hardware_dir() / MEASUREMENTS / RECIPES
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return tuple({str(name): str(cell) for name, cell in row.items()} for row in rows)
