"""Claim 8: bandwidth, more than FLOP/s, says how much faster the next chip decodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Answer, Point, models, predict, usable_chips
from dse.accuracy.scores import rank_correlation
from dse.answer.numbers import digits, times
from dse.catalog import load_catalog

BATCHES = (1.0, 32.0, 256.0)
GENERATIONS = ("a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm")
MODEL, GROUP = "llama-3-70b", 8.0


def judge(predicted: tuple[float, float], measured: tuple[float, float]) -> str:
    """`predicted`: mean rank correlation of decode speed with bandwidth, and with FLOP/s;
    `measured`: median error of the speed-up that each foretells."""
    better = (predicted[0] > predicted[1]) + (measured[0] < measured[1])
    return (CONTRADICTED, QUALIFIED, CONFIRMED)[better]


def find() -> Finding:
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
    return Finding(
        judge((means[0], means[1]), (error["bandwidth"], error["flops"])),
        f"rank correlation of predicted decode speed over {len(chips)} chips: {digits(means[0])} "
        f"with bandwidth, {digits(means[1])} with FLOP/s (batch 1 and 32); of {len(pairs):,} "
        f"measured pairs of chips the ratio of bandwidths is {error['bandwidth']:.0%} off the "
        f"speed-up in the median, that of FLOP/s {error['flops']:.0%}, this model "
        f"{error['predicted']:.0%}; bandwidth is nearer for {nearer} of {len(by_chips)} pairs of "
        "chips",
        figures,
        "Decode only. Predicted: one group size for all chips (8 chips of one domain for models "
        "with a hidden size of 4,096 or more, else 1), the checkpoint's formats, prompt 2,048, "
        "output 512. Measured: rows of two chips that share model, parallelism, formats, lengths, "
        "concurrency and backend; the peak of the arithmetic that the weights run on.",
        (
            Table(
                "Spearman's rank correlation over chips, mean over models",
                ("batch", "models", "with bandwidth", "with FLOP/s (bf16)"),
                tuple(rows),
            ),
            _measured(pairs),
            _generations(answer),
        ),
        "Bandwidths and peaks are specifications; predictions rest on fitted, derived and assumed "
        "kernels and on these very figures, so that only the measured pairs are evidence of their "
        "own.",
        "Pairs of chips differ in more than the chip where a source does not say (driver, clock, "
        "version of the software). The rule takes the median over pairs: pairs of one source weigh "
        "by their number.",
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


def _measured(pairs: pd.DataFrame) -> Table:
    rows = []
    for (a, b), part in pairs.groupby(["chip_a", "chip_b"]):
        if len(part) >= 5:
            middles = [
                times(float(part[n].median())) for n in ("speed", "predicted", "bandwidth", "flops")
            ]
            rows.append((f"{b} over {a}", f"{len(part):,}", *middles))
    head = ("chips", "pairs", "measured", "predicted", "bandwidth", "FLOP/s")
    return Table("Decode speed of matched rows, medians", head, tuple(rows))


def _generations(answer: Answer) -> Table:
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
    head = ("chips", "bandwidth", "FLOP/s", *(f"decode, batch {batch:g}" for batch in BATCHES))
    return Table(f"From generation to generation: {MODEL} on 8 chips, predicted", head, tuple(rows))


CLAIMS = (
    Claim(
        8,
        "Memory bandwidth predicts real inference speed from one GPU generation to the next better "
        "than FLOP/s does.",
        ("dse claims 8", "dse validate"),
        "Two tests: over the catalog, decode speed ranks chips more like bandwidth than like "
        "FLOP/s (mean rank correlation at batch 1 and 32); over measured pairs of chips the ratio "
        "of bandwidths is nearer to the speed-up in the median. Confirmed where both hold, "
        "qualified where one does, contradicted where none does.",
        find,
    ),
)
