"""Bandwidth, more than FLOP/s, says how much faster the next chip decodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Answer, Point, models, predict, usable_chips
from dse.accuracy.scores import rank_correlation
from dse.answer.numbers import digits, times
from dse.catalog import load_catalog

BATCHES = (1.0, 32.0, 256.0)
GENERATIONS = ("a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm")
MODEL, GROUP = "llama-3-70b", 8.0


def find(given: Given) -> Measured:
    catalog = load_catalog()
    chips = [name for name in usable_chips() if catalog.refusal(name, GROUP) is None]
    chips = [
        name
        for name in chips
        if (catalog.systems[catalog.chips[name].system].levels[0].size or GROUP) >= GROUP
    ]
    points = [
        Point(model, chip, GROUP if shape.hidden_size >= 4096 else 1.0, concurrency=batch)
        for batch in BATCHES
        for model, shape in models().items()
        for chip in chips
    ]
    answer = predict(points, serving="static")
    figures, rows = {}, []
    for batch in BATCHES:
        bandwidth, flops, count = _correlations(answer, batch)
        figures[f"rank_correlation_bandwidth_batch_{batch:g}"] = bandwidth
        figures[f"rank_correlation_flops_batch_{batch:g}"] = flops
        rows.append((f"{batch:g}", str(count), digits(bandwidth), digits(flops)))
    pairs = matched()
    error = {name: _error(pairs, name) for name in ("bandwidth", "flops", "predicted")}
    figures |= {f"measured_error_{name}": value for name, value in error.items()}
    figures["measured_pairs"] = float(len(pairs))
    by_chips = [part for _, part in pairs.groupby(["chip_a", "chip_b"])]
    nearer = sum(_error(part, "bandwidth") < _error(part, "flops") for part in by_chips)
    figures |= {"chip_pairs": float(len(by_chips)), "chip_pairs_nearer": float(nearer)}
    first = [
        (
            figures[f"rank_correlation_bandwidth_batch_{b:g}"],
            figures[f"rank_correlation_flops_batch_{b:g}"],
        )
        for b in BATCHES[:2]
    ]
    means = tuple(float(np.mean(side)) for side in zip(*first, strict=True))
    return Measured(
        figures,
        (rows, _measured(pairs), _generations(answer)),
        {"rank_bandwidth": means[0], "rank_flops": means[1], "chips": len(chips)},
    )


def _correlations(answer: Answer, batch: float) -> tuple[float, float, int]:
    """Mean over models with five feasible chips or more."""
    catalog = load_catalog()
    table = pd.DataFrame(
        {
            "model": [p.model for p in answer.points],
            "chip": [p.chip for p in answer.points],
            "batch": [p.concurrency for p in answer.points],
            "speed": 1.0 / answer["decode_step_s"],
        }
    )[answer.feasible]
    table["bandwidth"] = [catalog.chips[c].memories[0].bytes_per_s for c in table["chip"]]
    table["flops"] = [catalog.chips[c].peak_flops_per_s["bf16"] for c in table["chip"]]
    found = []
    for _, part in table[table["batch"] == batch].groupby("model"):
        if len(part) >= 5:
            speed = part["speed"].to_numpy()
            pair = [rank_correlation(part[n].to_numpy(), speed) for n in ("bandwidth", "flops")]
            found.append([0.0 if value is None else value for value in pair])
    means = np.mean(found, axis=0)
    return float(means[0]), float(means[1]), len(found)


def _error(pairs: pd.DataFrame, name: str) -> float:
    """Median of how far a ratio is off the measured speed-up, as a factor minus 1."""
    off = np.abs(np.log((pairs[name] / pairs["speed"]).to_numpy()))
    return float(np.expm1(np.median(off)))


def _measured(pairs: pd.DataFrame) -> Rows:
    rows = []
    for (a, b), part in pairs.groupby(["chip_a", "chip_b"]):
        if len(part) >= 5:
            middles = [
                times(float(part[n].median())) for n in ("speed", "predicted", "bandwidth", "flops")
            ]
            rows.append((f"{b} over {a}", f"{len(part):,}", *middles))
    return rows


def _generations(answer: Answer) -> Rows:
    speed = {
        (p.chip, p.concurrency): 1.0 / answer["decode_step_s"][k]
        for k, p in enumerate(answer.points)
        if p.model == MODEL
    }
    chips, rows = load_catalog().chips, []
    for a, b in pairwise(GENERATIONS):
        rows.append(
            (
                f"{b} over {a}",
                times(chips[b].memories[0].bytes_per_s / chips[a].memories[0].bytes_per_s),
                times(chips[b].peak_flops_per_s["bf16"] / chips[a].peak_flops_per_s["bf16"]),
                *(times(float(speed[b, batch] / speed[a, batch])) for batch in BATCHES),
            )
        )
    return rows
