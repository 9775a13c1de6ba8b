"""Bandwidth, more than FLOP/s, says how much faster the next chip decodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Answer, Point, domain_of, models, predict, usable_chips
from dse.accuracy.scores import rank_correlation
from dse.catalog import load_catalog

BATCHES = (1.0, 32.0, 256.0)
GENERATIONS = ("a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm")
MODEL, GROUP = "llama-3-70b", 8


def _bandwidth(chip: str) -> float:
    return load_catalog().chips[chip].memories[0].bytes_per_s


def _flops(chip: str) -> float:
    return load_catalog().chips[chip].peak_flops_per_s["bf16"]


def find(given: Given) -> Measured:
    refusal = load_catalog().refusal
    chips = [
        name
        for name in usable_chips()
        if refusal(name, GROUP) is None and domain_of(name, GROUP) >= GROUP
    ]
    points = [
        Point(model, chip, GROUP if shape.hidden_size >= 4096 else 1.0, concurrency=batch)
        for batch in BATCHES
        for model, shape in models().items()
        for chip in chips
    ]
    answer = predict(points, serving="static")
    rows = [(batch, *_correlations(answer, batch)) for batch in BATCHES]
    figures: dict[str, float | None] = {}
    for batch, _, bandwidth, flops in rows:
        figures[f"rank_correlation_bandwidth_batch_{batch:g}"] = bandwidth
        figures[f"rank_correlation_flops_batch_{batch:g}"] = flops
    pairs = matched()
    for name in ("bandwidth", "flops", "predicted"):
        figures[f"measured_error_{name}"] = _error(pairs, name)
    by_chips = pairs.groupby(["chip_a", "chip_b"])
    nearer = [_error(part, "bandwidth") < _error(part, "flops") for _, part in by_chips]
    figures |= {
        "measured_pairs": float(len(pairs)),
        "chip_pairs": float(len(nearer)),
        "chip_pairs_nearer": float(sum(nearer)),
    }
    small = rows[:2]
    facts = {
        "rank_bandwidth": float(np.mean([bandwidth for _, _, bandwidth, _ in small])),
        "rank_flops": float(np.mean([flops for _, _, _, flops in small])),
        "chips": len(chips),
    }
    return Measured(figures, (rows, _measured(pairs), _generations(answer)), facts)


def _correlations(answer: Answer, batch: float) -> tuple[int, float, float]:
    """Of models with five feasible chips or more: their number, and the mean rank correlation of
    their speed with bandwidth and with FLOP/s."""
    table = pd.DataFrame(
        {
            "model": [p.model for p in answer.points],
            "chip": [p.chip for p in answer.points],
            "batch": [p.concurrency for p in answer.points],
            "speed": 1.0 / answer["decode_step_s"],
        }
    )[answer.feasible]
    found = []
    for _, part in table[table["batch"] == batch].groupby("model"):
        if len(part) >= 5:
            speed = part["speed"].to_numpy()
            figures = (part["chip"].map(of).to_numpy() for of in (_bandwidth, _flops))
            found.append([rank_correlation(figure, speed) or 0.0 for figure in figures])
    bandwidth, flops = np.mean(found, axis=0)
    return len(found), float(bandwidth), float(flops)


def _error(pairs: pd.DataFrame, name: str) -> float:
    """Median of how far a ratio is off the measured speed-up, as a factor minus 1."""
    off = np.abs(np.log((pairs[name] / pairs["speed"]).to_numpy()))
    return float(np.expm1(np.median(off)))


def _measured(pairs: pd.DataFrame) -> Rows:
    columns = ["speed", "predicted", "bandwidth", "flops"]
    return [
        (f"{b} over {a}", len(part), *part[columns].median())
        for (a, b), part in pairs.groupby(["chip_a", "chip_b"])
        if len(part) >= 5
    ]


def _generations(answer: Answer) -> Rows:
    speed = {
        (p.chip, p.concurrency): 1.0 / answer["decode_step_s"][k]
        for k, p in enumerate(answer.points)
        if p.model == MODEL
    }
    return [
        (
            f"{b} over {a}",
            _bandwidth(b) / _bandwidth(a),
            _flops(b) / _flops(a),
            *(speed[b, batch] / speed[a, batch] for batch in BATCHES),
        )
        for a, b in pairwise(GENERATIONS)
    ]
