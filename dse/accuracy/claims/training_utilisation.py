"""Claim 18: what share of their FLOP/s training clusters reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.training_runs import RUNS, run
from dse.answer.numbers import percent
from dse.questions.train.words import SHORT_LOSSES

POOR, TARGET, NEAR = 0.11, 0.40, 0.2
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


def judge(best: list[float], careless: list[float]) -> str:
    """Utilisation, interruptions counted, of the best plans and of careless runs."""
    low, high = TARGET * (1.0 - NEAR), TARGET * (1.0 + NEAR)
    target = low <= float(np.median(best)) <= high
    poor = min(careless) <= POOR * (1.0 + NEAR)
    if target and poor:
        return CONFIRMED
    return QUALIFIED if poor or (min(best) <= TARGET <= max(best)) else CONTRADICTED


def utilisation(document: dict[str, Any]) -> float:
    """MFU of the steps times the share of the time in which they last."""
    return document["mfu"] * document["goodput"]


def find() -> Finding:
    best, careless, rows, losses = [], [], [], []
    for model, chip, chips in RUNS:
        document = run(model, chip, chips).as_json()
        best.append(utilisation(document))
        name = f"{model}, {chips:,} x {chip}"
        cells = []
        for terms in CARELESS.values():
            worse = run(model, chip, chips, **terms).as_json()
            fits = worse["feasible"]
            careless += [utilisation(worse)] if fits else []
            cells.append(percent(utilisation(worse)) if fits else "does not fit")
        rows.append((name, percent(best[-1]), *cells))
        shares = document["loss_shares"]
        largest = sorted(shares, key=lambda cause: -shares[cause])
        named = [cause for cause in largest if cause != "ideal"][:LARGEST]
        lost = ", ".join(f"{SHORT_LOSSES[cause]} {percent(shares[cause])}" for cause in named)
        losses.append((name, percent(document["mfu"]), lost, percent(1 - document["goodput"])))
    figures = {
        "best_median": float(np.median(best)),
        "best_least": min(best),
        "best_most": max(best),
        "careless_least": min(careless),
    }
    return Finding(
        judge(best, careless),
        f"the best plans of {len(RUNS)} runs reach {percent(min(best))} to {percent(max(best))}, "
        f"{percent(figures['best_median'])} in the median; one careless choice brings them down to "
        f"{percent(min(careless))} at worst",
        figures,
        "bf16, sequences of 8,192, 16M tokens a step where nothing else is said; utilisation is "
        "MFU (attention counted) times goodput; every plan was evaluated.",
        (
            Table(
                "Utilisation of the best plan, and with one thing done carelessly",
                ("run", "best plan", *CARELESS),
                tuple(rows),
            ),
            Table(
                "Where the best plan's steps lose it",
                ("run", "MFU", "largest losses, of the step", "interruptions"),
                tuple(losses),
            ),
        ),
        "Predicted. Constants of the stack generic are assumed or fitted, as its file says; "
        "chip-hours between interruptions are measured for H100 and A100.",
        "What clusters reach in the mean is not published; a search over plans finds better ones "
        "than most users try.",
    )


CLAIMS = (
    Claim(
        18,
        "Training clusters reach 11% (poor) to 40% (a practical target) of their FLOP/s.",
        (
            "dse claims 18",
            "dse train llama-3.1-405b --chip h100_sxm --chips 16384 --tokens 15.6T",
        ),
        f"Confirmed where the median of the best plans lies within {NEAR:.0%} of {TARGET:.0%} and "
        f"one careless choice brings some run to {POOR:.0%} or less, within the same; qualified "
        "where one of the two holds or the best plans lie on both sides of the target; else "
        "contradicted.",
        find,
    ),
)
