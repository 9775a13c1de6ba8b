"""What training a 70B model holds in memory."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.training_runs import run
from dse.physics.training.memory import MOMENT_BYTES, model_states
from dse.physics.training.plan import OPTIMIZERS

PARAMETERS = 70e9
CLAIMED = {"weights": 140e9, "gradients": 140e9, "optimizer": 560e9}
MODEL, CHIP = "llama-3-70b", "h100_sxm"
COUNTS = (4, 8, 16, 32, 64)


def states(optimizer: str, gradient_bytes: float, master_bytes: float) -> dict[str, float]:
    """Bytes of the states of PARAMETERS parameters in one place."""
    one = np.ones(1)
    found = model_states(
        PARAMETERS * one,
        PARAMETERS * one,
        one,
        0.0 * one,
        MOMENT_BYTES[OPTIMIZERS.index(optimizer)] * one,
        master_bytes * one,
        gradient_bytes * one,
    )
    names = ("weights", "gradients", "optimizer", "master")
    return {name: float(getattr(found, name)[0]) for name in names}


def find(given: Given) -> Measured:
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
        rows.append((words, *found.values(), sum(found.values())))
    fits = [(n, run(MODEL, CHIP, n)) for n in COUNTS]
    chips, smallest = next((n, found) for n, found in fits if found.feasible)
    document = smallest.as_json()
    model_parts = document["memory_bytes_per_chip_parts"]
    held = sum(model_parts[name] for name in ("weights", "gradients", "optimizer", "master"))
    states_bytes = held * chips
    per_parameter = states_bytes / document["total_parameters"]
    total = sum(parts[name] for name in CLAIMED)
    figures = {
        "bytes": total,
        "weights_bytes": parts["weights"],
        "gradients_bytes": parts["gradients"],
        "optimizer_bytes": parts["optimizer"],
        "fewest_h100": float(chips),
        "states_bytes_of_that_run": states_bytes,
        "bytes_of_that_run": document["memory_bytes_per_chip"] * chips,
    }
    return Measured(
        figures,
        (rows,),
        {
            "off": max(abs(parts[name] / CLAIMED[name] - 1.0) for name in CLAIMED),
            "held_over_claim": states_bytes / (12.0 * document["total_parameters"]),
            "per_parameter": per_parameter,
        },
    )
