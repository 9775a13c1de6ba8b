"""What share of their FLOP/s training clusters reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.training_runs import RUNS, run
from dse.answer.numbers import percent
from dse.questions.train.words import SHORT_LOSSES

# One thing done carelessly, the rest still the best that is left.
CARELESS: dict[str, dict[str, Any]] = {
    "small batch (1M tokens)": {"global_batch_tokens": "1M"},
    "tensor parallelism across servers (16)": {"tensor_parallel": 16},
    "32 stages without virtual ones": {"pipeline_parallel": 32, "virtual_stages": 1},
    "all layers recomputed": {"recompute": "full"},
    "ranks late by 5%": {"straggler": 0.05},
    "failures ten times as often": {"mtbf_chip_hours": 5000},
}
LARGEST = 4  # losses of a step that are shown


def utilisation(document: dict[str, Any]) -> float:
    """MFU of the steps times the share of the time in which they last."""
    return document["mfu"] * document["goodput"]


def find(given: Given) -> Measured:
    best, careless, rows, losses = [], [], [], []
    for model, chip, chips in RUNS:
        document = run(model, chip, chips).as_json()
        best.append(utilisation(document))
        name = f"{model}, {chips:,} x {chip}"
        worse = [run(model, chip, chips, **terms).as_json() for terms in CARELESS.values()]
        careless += [utilisation(one) for one in worse if one["feasible"]]
        cells = (utilisation(one) if one["feasible"] else "does not fit" for one in worse)
        rows.append((name, best[-1], *cells))
        shares = document["loss_shares"]
        largest = sorted(shares, key=lambda cause: -shares[cause])
        named = [cause for cause in largest if cause != "ideal"][:LARGEST]
        lost = ", ".join(f"{SHORT_LOSSES[cause]} {percent(shares[cause])}" for cause in named)
        losses.append((name, document["mfu"], lost, 1 - document["goodput"]))
    figures = {
        "best_median": float(np.median(best)),
        "best_least": min(best),
        "best_most": max(best),
        "careless_least": min(careless),
    }
    return Measured(figures, (rows, tuple(losses)))
