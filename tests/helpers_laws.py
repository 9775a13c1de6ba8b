"""Shapes for tests of quality laws: published ones, and any."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from dse.quality import DEFAULT, SIZES, Quality, Shape, quality

EXAMPLES = Path(__file__).parent / "data" / "worked_examples.csv"
ROWS = list(csv.DictReader(EXAMPLES.read_text(encoding="utf-8").splitlines()))
Row = Mapping[str, float | str]


def of(rows: Sequence[Row], law: str = DEFAULT) -> Quality:
    columns = {name: np.array([float(row[name]) for row in rows]) for name in SIZES}
    return quality(Shape(**columns), law)


def loss(row: Row, law: str = DEFAULT) -> float:
    return float(of([row], law).predicted_loss[0])


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, float]:
    """Of so much share of the active parameters in experts; the total follows."""
    experts = draw(st.sampled_from([0, 8, 16, 64, 128, 256, 512]))
    hidden = 128.0 * draw(st.integers(4, 128))
    active, used = 10 ** draw(st.floats(8, 12)), float(draw(st.integers(1, 8)))
    shared = draw(st.sampled_from([0.0, 1.0, 2.0]))
    one = active * draw(st.floats(0.05, 0.95)) / (used + shared)
    return {
        "hidden_size": hidden,
        "layers": float(draw(st.integers(4, 128))),
        "active_non_embedding": active,
        "experts": float(experts),
        "experts_per_token": used,
        "shared_width_ratio": shared,
        "expert_intermediate_size": 64.0 * draw(st.integers(2, 400)),
        "training_tokens": 10 ** draw(st.floats(10, 14)),
        "total_parameters": active + max(experts - used, 0.0) * one + hidden * 2e5,
        "embedding_parameters": hidden * 2e5,
    }
