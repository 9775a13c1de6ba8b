"""Claim 16: what training a 70B model holds in memory."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.training_runs import run
from dse.answer.numbers import digits
from dse.physics.training.memory import MOMENT_BYTES, model_states
from dse.physics.training.plan import OPTIMIZERS

PARAMETERS = 70e9
CLAIMED = {"weights": 140e9, "gradients": 140e9, "optimizer": 560e9}
NEAR = 0.01
MODEL, CHIP = "llama-3-70b", "h100_sxm"
COUNTS = (4, 8, 16, 32, 64)


def judge(parts: dict[str, float], least: float) -> str:
    """`parts` as counted; `least`: what the smallest run that fits holds on all its chips over the
    sum of the claim."""
    agrees = all(abs(parts[name] / CLAIMED[name] - 1.0) <= NEAR for name in CLAIMED)
    if not agrees:
        return CONTRADICTED
    return CONFIRMED if least >= 1.0 else QUALIFIED


def states(optimizer: str, gradient_bytes: float, master_bytes: float) -> dict[str, float]:
    """Bytes of the states of PARAMETERS parameters in one place."""
    one = np.ones(1)
    found = model_states(
        PARAMETERS * one, PARAMETERS * one, one, 0.0 * one,
        MOMENT_BYTES[OPTIMIZERS.index(optimizer)] * one, master_bytes * one, gradient_bytes * one,
    )  # fmt: skip
    names = ("weights", "gradients", "optimizer", "master")
    return {name: float(getattr(found, name)[0]) for name in names}


def find() -> Finding:
    rows, parts = [], {}
    for words, optimizer, gradient, master in (
        ("the claim: FP32 moments, no master copy", "adam_fp32", 2.0, 0.0),
        ("with an FP32 master copy", "adam_fp32", 2.0, 4.0),
        ("and FP32 gradients, as Megatron-Core keeps them", "adam_fp32", 4.0, 4.0),
        ("BF16 moments", "adam_bf16", 2.0, 0.0),
        ("8-bit moments", "adam_8bit", 2.0, 0.0),
    ):
        found = states(optimizer, gradient, master)
        parts = parts or found
        total = sum(found.values())
        rows.append((words, *(digits(size / 1e9) for size in found.values()), digits(total / 1e9)))
    fits = [(n, run(MODEL, CHIP, n)) for n in COUNTS]
    chips, smallest = next((n, found) for n, found in fits if found.feasible)
    document = smallest.as_json()
    model_parts = document["memory_bytes_per_chip_parts"]
    held = sum(model_parts[name] for name in ("weights", "gradients", "optimizer", "master"))
    per_parameter = held * chips / document["total_parameters"]
    total = sum(parts[name] for name in CLAIMED)
    figures = {
        "bytes": total,
        "weights_bytes": parts["weights"],
        "gradients_bytes": parts["gradients"],
        "optimizer_bytes": parts["optimizer"],
        "fewest_h100": float(chips),
        "states_bytes_of_that_run": held * chips,
        "bytes_of_that_run": document["memory_bytes_per_chip"] * chips,
    }
    return Finding(
        judge(parts, held * chips / (12.0 * document["total_parameters"])),
        f"{digits(parts['weights'] / 1e9)} + {digits(parts['gradients'] / 1e9)} + "
        f"{digits(parts['optimizer'] / 1e9)} = {digits(total / 1e9)} GB of states; the smallest "
        f"cluster of {CHIP} that trains {MODEL} has {chips}, whose states take "
        f"{digits(held * chips / 1e9)} GB ({digits(per_parameter)} bytes a parameter)",
        figures,
        f"70e9 parameters in one place; and {MODEL} (70.6e9) on {', '.join(map(str, COUNTS))} x "
        f"{CHIP}, every plan, sequences of 8,192, FP32 gradients and a master copy.",
        (
            Table(
                "States of 70e9 parameters in GB",
                ("kept", "weights", "gradients", "moments", "master copy", "in all"),
                tuple(rows),
            ),
        ),
        "Counted; activations and buffers of the runs are predicted.",
        "What fragmentation of the allocator adds. Moments in 16 or 8 bits need less than the "
        "claim, which names FP32; LoRA trains no more than a percent of the parameters.",
    )


CLAIMS = (
    Claim(
        16,
        "Training a 70B model in BF16 needs at least 840 GB: weights 140, gradients 140, FP32 Adam "
        "states 560.",
        ("dse claims 16", "dse train llama-3-70b --chip h100_sxm --chips 32 --memory"),
        f"Contradicted where one of the three parts of 70e9 parameters is off by more than "
        f"{NEAR:.0%}; else confirmed where the states of the smallest cluster that trains such a "
        "model with FP32 Adam take as much a parameter or more, and qualified where they take "
        "less.",
        find,
    ),
)
