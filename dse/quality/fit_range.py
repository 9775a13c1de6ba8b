"""Where the quality law was fitted, where it is clipped, and what it does not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Range:
    """A closed interval; `source` says who stated it."""

    low: float
    high: float
    source: str

    def excludes(self, value: Floats) -> Flags:
        """(n,) True outside the interval; NaN counts as inside."""
        return (value < self.low) | (value > self.high)


TIAN = "Tian et al. 2025, arXiv 2507.17702"
BESIROGLU = "Besiroglu et al. 2024, arXiv 2404.10102"
KUMAR = "Kumar et al. 2024, arXiv 2411.04330"

# The law itself holds these at their ends; the first four apply to sparse models only.
BOUNDS: Mapping[str, Range] = {
    "activation_ratio": Range(0.008, 1.0, f"fit range of {TIAN}"),
    "granularity": Range(1.0, 16.0, f"fit range of {TIAN}, one octave added below (assumed)"),
    "training_flops": Range(0.0, 1e26, "assumed: end of the extrapolation in training compute"),
    "efficiency_leverage": Range(1.0, inf, "assumed: experts never make a model worse"),
}

# Where the two laws have seen data. The first four apply to sparse models only.
FIT: Mapping[str, Range] = {
    "activation_ratio": Range(0.008, 1.0, TIAN),
    "granularity": Range(2.0, 16.0, TIAN),
    "training_flops": Range(1e18, 3e20, TIAN),
    "total_parameters": Range(0.0, 28e9, TIAN),
    "dense_equivalent_parameters": Range(57e6, 16.2e9, BESIROGLU),
    "training_tokens": Range(0.82e9, 318e9, BESIROGLU),
}


@dataclass(frozen=True, slots=True)
class LawDescription:
    """What a report prints about the law, one sentence an item."""

    name: str
    sources: tuple[str, ...]
    fit_range: tuple[str, ...]
    not_seen: tuple[str, ...]


LAW = LawDescription(
    name="Dense-equivalent parameters (efficiency leverage of experts), then the Epoch re-fit of "
    "the Chinchilla law; loss in nats per token",
    sources=(
        f"Experts: {TIAN}, equation 13 and Table 2 (fitted); the log bases, log10 for compute and "
        "log2 for granularity, are derived: the only ones that give the paper's own numbers.",
        f"Dense loss: {BESIROGLU} (fitted).",
        "Depth: own fit to 76 public training runs, best width per layer from published models "
        "(fitted).",
        f"Post-training quantisation at 6 bits and below: {KUMAR} (fitted).",
    ),
    fit_range=(
        "Experts: 1e18 to 3e20 training FLOP, activation ratio 0.8% to 100%, granularity 2 to 16, "
        "up to 28B total parameters, one shared expert, trained on more than 3 times the optimal "
        "tokens.",
        "Dense loss: 57M to 16.2B parameters, 0.82B to 318B training tokens.",
        "At frontier scale the efficiency leverage is uncertain by a factor of about 2: "
        "DeepSeek-V2 is predicted level with a dense 175B and scored below Llama-3-70B.",
        "Held at the ends of its range: activation ratio at 0.8%, granularity at 1 and 16, "
        "training compute at 1e26 FLOP, efficiency leverage at 1 or more.",
    ),
    not_seen=(
        "Data quality, tokenizer, distillation, post-training and reinforcement learning.",
        "The attention type, head counts, sliding windows and linear attention.",
        "The ratio of feed-forward to attention parameters, and where dense layers sit among "
        "sparse ones.",
    ),
)
