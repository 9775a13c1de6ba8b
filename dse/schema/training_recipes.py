"""Training software as it is run: the habits of what a source names, what the public recipe of a
benchmark adds (`hardware/measurements/training_recipes.csv`), and which stack is current for a
model on a chip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from dse.data import hardware_dir
from dse.schema.chip import Chip
from dse.schema.loader import csv_rows
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.training import TrainingTerms, training_stacks

RECIPES = "measurements/training_recipes.csv"
GENERIC_STACK = "generic"  # where no framework is known for a chip's vendor
FIRST_TABLES = (25, 9)
Version = tuple[int, ...]
# Passes of multi-token prediction in Megatron-Bridge's recipes (mtp_num_layers).
PREDICTIONS = {"deepseek-v3": 1, "nemotron-3-super": 2}


@dataclass(frozen=True, slots=True)
class Software:
    """`accumulates`: a step has several micro-batches of one sequence unless said otherwise;
    `gradient_bytes` of a parameter, as gradients are reduced; `version` as numbers, () where the
    row names none. The stack has further habits."""

    stack: str
    precision: str
    accumulates: bool
    flops: str
    gradient_bytes: float = 4.0
    version: Version = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the public recipe of a benchmark adds to its table of results; 0, "" or None where it
    adds nothing. `batch_per_chip` in sequences; `recompute_share`, `bf16_share` and `tensor_hidden`
    as in TrainingBatch; `stack` where its expert layers are dispatched or fused otherwise than the
    software's habit; `predictions` passes of multi-token prediction are trained too."""

    sequence_length: float = 0.0
    batch_per_chip: float = 0.0
    context_parallel: float = 0.0
    recompute: str = ""
    recompute_share: float = 1.0
    bf16_share: float | None = None
    tensor_hidden: float = 1.0
    stack: str = ""
    source: str = ""
    predictions: int = 0
    gradient_bytes: float = 4.0


# Gradients in 16 bits: Megatron-Bridge's and NeMo's speed benchmarks (grad_reduce_in_fp32 False,
# perf_recipes/_common.py), llm-foundry's FSDP (mixed_precision PURE).
MEGATRON = Software("megatron", "bf16", True, "causal", 2.0)
NEMO = Software("megatron", "bf16", True, "full", 2.0)
MAXTEXT = Software("maxtext", "bf16", False, "causal")
FOUNDRY = Software("fsdp", "bf16", False, "full", 2.0)
FSDP = Software("fsdp", "bf16", False, "full")
GENERIC = Software(GENERIC_STACK, "bf16", True, "causal")
USUAL = {one.stack: one for one in (GENERIC, MAXTEXT, MEGATRON)}
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


def software_of(engine: str) -> Software | None:
    """Of the software that a row names; None where it is not known."""
    text = engine.lower()
    for sign, software in SIGNS:
        if sign in text:
            found = re.search(r"\d\d\.\d\d(\.\d\d)?", text)
            version = _version(found[0]) if found else ()
            early = software is MEGATRON and version == FIRST_TABLES
            precision = "fp8" if early else software.precision
            return replace(software, precision=precision, version=version)
    return None


def recipe_of(stack: str, cells: Mapping[str, str], version: Version | None = None) -> Recipe:
    """The recipe of `stack` behind what `cells` (model, chip, dtype, task, sequence_length) say,
    an empty one where none is known. Without a version, the newest."""
    for line in _recipes():
        if _is_of(line, stack, cells, version):
            return Recipe(
                sequence_length=float(line["sequence_length"] or 0.0),
                batch_per_chip=float(line["batch_per_chip"] or 0.0),
                context_parallel=float(line["cp"] or 0.0),
                recompute=line["recompute"],
                recompute_share=float(line["recompute_share"] or 1.0),
                bf16_share=float(line["bf16_share"]) if line["bf16_share"] else None,
                tensor_hidden=float(line["tensor_hidden"] or 1.0),
                stack=line["stack"],
                source=line["source"],
            )
    return Recipe()


def _is_of(
    line: Mapping[str, str], stack: str, cells: Mapping[str, str], version: Version | None
) -> bool:
    task = cells["task"] or "pretrain"
    if (line["engine"], line["model"], line["task"]) != (stack, cells["model"], task):
        return False
    if line["chip"] not in ("", cells["chip"]) or line["dtype"] not in ("", cells["dtype"].lower()):
        return False
    if line["since"] and version is not None and version < _version(line["since"]):
        return False
    if line["until"] and not (version and version < _version(line["until"])):
        return False
    length = line["sequence_length"]
    return not length or cells["sequence_length"] in ("", length)


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    names, *rows = csv_rows(hardware_dir() / RECIPES)
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def usual_stack(vendor: str) -> str:
    """The framework that is usual on the chips of a vendor."""
    stacks = training_stacks().values()
    return next((stack.id for stack in stacks if vendor in stack.vendors), GENERIC_STACK)


def current(
    model: Model | None, chip: Chip, terms: TrainingTerms, *, unseen: bool = False
) -> Recipe:
    """What is current for a model (None: any dense one) on a chip, that of a hypothetical one being
    its origin's: its newest public recipe, with the stack always named. A sparse model without a
    recipe there runs as most others do on that chip in that format; an `unseen` one is taken to
    have none."""
    stack = usual_stack(chip.vendor)
    plain = Recipe(stack=stack, gradient_bytes=USUAL[stack].gradient_bytes)
    if model is None:
        return plain
    cells = {"chip": chip.derived_from or chip.id, "dtype": terms.precision, "task": terms.task}
    cells["sequence_length"] = str(terms.sequence_length)
    known = {line["model"]: resolve_model(line["model"]) for line in _recipes()}
    recipes = {name: recipe_of(stack, cells | {"model": name}) for name in known}
    name = next((name for name, one in known.items() if alike(one, model)), "")
    if unseen:
        recipes.pop(name, None)
    elif terms.task == "pretrain":
        plain = replace(plain, predictions=prediction_passes(stack, name))
    found = recipes.get(name, plain)
    if found.source:
        kept = {"predictions": plain.predictions, "gradient_bytes": plain.gradient_bytes}
        return replace(found, stack=found.stack or stack, **kept)
    if not model.experts:
        return plain
    votes = Counter(
        one.stack or stack for name, one in recipes.items() if one.source and known[name].experts
    )
    most = max(votes.values(), default=0)
    tied = [name for name, count in votes.items() if count == most]
    return replace(plain, stack=tied[0]) if len(tied) == 1 else plain


def alike(one: Model, other: Model) -> bool:
    """Whether two models train alike, whatever they are called."""
    return (one.blocks, one.vocab_size) == (other.blocks, other.vocab_size)


def prediction_passes(stack: str, model: str) -> int:
    """Passes of multi-token prediction that the benchmarks of a stack train with a model."""
    if stack != "megatron":
        return 0
    return next((passes for name, passes in PREDICTIONS.items() if name in model), 0)
