"""`python -m tools.alignment_curve`: what a hidden size costs around 4,096 and 7,168, by chip, and
what a width gains by being divisible by 64, 128 or 256: the tables of docs/check.md.

A dense model of 32 layers on one chip, its widths 2.6875 times the hidden size in whole 256, heads
of 128: seconds of a prefill of 2,048 tokens and of a decode step of 16 requests, an element of the
hidden size, against the size in the middle. Other sizes are equal in a row, so that alignment alone
tells them apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.catalog import load_catalog
from dse.physics import gemms
from dse.physics.deployed import Deployed
from dse.physics.machines import Machines, compile_machines
from dse.schema.model_catalog import resolve_model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

CHIPS = (
    "a100_80_sxm",
    "h100_sxm",
    "h200_sxm",
    "b200_sxm",
    "mi300x",
    "mi355x",
    "tpu_v5p",
    "tpu_v6e",
)
AROUND = {
    4096: (4000, 4032, 4090, 4095, 4096, 4100, 4104, 4128, 4160),
    7168: (7100, 7104, 7135, 7167, 7168, 7170, 7176, 7200, 7232),
}
POWERS = (4, 8, 16, 32, 64, 128, 256)


def batch_around(chip: int, hidden: Floats, dtype: str) -> CandidateBatch:
    """One candidate a hidden size, with the other sizes of the middle one."""
    n, middle = len(hidden), float(np.median(hidden))
    axes = {axis: np.ones(n) for axis in DEPLOYMENT_AXES}
    model = resolve_model("llama-2-7b")
    codes = np.full(n, chip, dtype=np.intp)
    batch = batch_of([model] * n, codes, [dtype] * n, ["bf16"] * n, axes)
    heads = np.full(n, middle / 128.0)
    width = np.full(n, np.ceil(2.6875 * middle / 256.0) * 256.0)
    sizes = {"heads": heads, "kv_heads": heads, "intermediate_size": width}
    blocks = tuple(
        replace(block, sizes={name: sizes.get(name, size) for name, size in block.sizes.items()})
        for block in batch.blocks
    )
    return replace(batch, hidden_size=hidden, blocks=blocks)


def seconds(chip: int, hidden: Floats, dtype: str, machines: Machines) -> tuple[Floats, Floats]:
    """(prefill, decode) seconds of the steps, an element of the hidden size."""
    deployed = Deployed(batch_around(chip, hidden, dtype), machines)
    prefill = gemms.prefill(deployed, 2048.0, 2048.0).seconds
    return prefill / hidden, gemms.decode(deployed, 16.0, 1024.0).seconds / hidden


def main() -> None:
    """Prints the tables."""
    machines = compile_machines(load_catalog(), CHIPS)
    for middle, around in AROUND.items():
        hidden = np.array(around, dtype=float)
        print(f"\nHidden size around {middle:,}, bf16: prefill, decode against {middle:,}\n")
        print("| chip | " + " | ".join(f"{size:,}" for size in around) + " |")
        print("|---" * (len(around) + 1) + "|")
        for code, chip in enumerate(CHIPS):
            first, then = seconds(code, hidden, "bf16", machines)
            at = around.index(middle)
            both = zip(first / first[at], then / then[at], strict=True)
            cells = [f"{a:.2f}, {b:.2f}" for a, b in both]
            print(f"| {chip} | " + " | ".join(cells) + " |")
    print(
        "\nMean over hidden sizes from 3,072 to 5,120 that are odd multiples of a number: prefill"
    )
    print("against multiples of 256, an element of the hidden size\n")
    print("| chip, format | " + " | ".join(str(power) for power in POWERS) + " |")
    print("|---" * (len(POWERS) + 1) + "|")
    for code, chip in enumerate(CHIPS):
        for dtype in ("bf16", "fp8"):
            means = []
            for power in POWERS:
                odd = np.arange(3072 // power, 5120 // power)
                hidden = power * odd[odd % 2 == 1].astype(float)
                batch = np.append(hidden, 4096.0)
                first, _ = seconds(code, batch, dtype, machines)
                means.append(float(np.mean(first[:-1])))
            cells = " | ".join(f"{mean / means[-1]:.3f}" for mean in means)
            print(f"| {chip}, {dtype} | {cells} |")


if __name__ == "__main__":
    main()
