"""Sparse models against dense ones of the same quality."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import Point, is_sparse, models, predict, predicted_rows
from dse.answer.numbers import digits, percent, times

CHIP, CHIPS = "h200_sxm", 16.0
LIMITS_S = (0.02, 0.05)
CONCURRENCY = tuple(float(2**k) for k in range(12))
NEAR = 0.01  # nats per token within which two models count as equal
SAME_SIZE = 0.15  # logarithm of dense-equivalent parameters within which they do
CHEAPER = 1.1
TOP = 10
WORDS = {
    "equal_loss": "at equal predicted loss, each trained as it was",
    "same_tokens": "at equal loss if trained on the same tokens",
}


def cheapest(limit_s: float) -> pd.DataFrame:
    """For every model with known training tokens the cheapest deployment in fp8 on one or two boxes
    of CHIP that keeps the limit: `model, sparse, loss, total, active, usd, tp, dp, ep,
    concurrency`."""
    points = []
    for name in models():
        groups = [(tp, 1, 1) for tp in (1, 2, 4, 8)]
        if is_sparse(name):
            groups += [(tp, 1, tp) for tp in (2, 4, 8)]
            groups += [(1, dp, dp) for dp in (2, 4, 8, 16)]
        for tp, dp, ep in groups:
            for concurrency in CONCURRENCY:
                points.append(
                    Point(
                        name,
                        CHIP,
                        tp,
                        1.0,
                        dp,
                        ep,
                        CHIPS / (tp * dp),
                        concurrency * CHIPS,
                        "fp8",
                        "fp8",
                    )
                )
    answer = predict(points)
    table = pd.DataFrame(
        {
            "model": [point.model for point in points],
            "tp": [point.tp for point in points],
            "dp": [point.dp for point in points],
            "ep": [point.ep for point in points],
            "concurrency": [point.concurrency for point in points],
            "loss": answer["predicted_loss"],
            "equivalent": answer["dense_equivalent_parameters"],
            "total": answer["total_parameters"],
            "active": answer["active_parameters"],
            "usd": answer["usd_per_million_total_tokens"],
            "tpot_s": answer["tpot_s"],
        }
    )
    table = table[answer.feasible & (table["tpot_s"] <= limit_s) & table["loss"].notna()]
    best = table.loc[table.groupby("model")["usd"].idxmin()].reset_index(drop=True)
    return best.assign(sparse=[is_sparse(name) for name in best["model"]])


def pairs_of(best: pd.DataFrame, *, same_tokens: bool) -> pd.DataFrame:
    """Every sparse model with every dense one of equal quality: within NEAR of its predicted loss,
    each with its own training tokens; or, as if trained on the same tokens, within SAME_SIZE of its
    dense-equivalent parameters. `ratio`: dense cost over sparse cost."""
    sparse, dense = best[best["sparse"]], best[~best["sparse"]]
    both = sparse.merge(dense, how="cross", suffixes=("", "_dense"))
    if same_tokens:
        apart = (
            np.abs(np.log((both["equivalent"] / both["equivalent_dense"]).to_numpy())) <= SAME_SIZE
        )
    else:
        apart = (both["loss"] - both["loss_dense"]).abs() <= NEAR
    both = both[apart]
    return both.assign(ratio=both["usd_dense"] / both["usd"]).reset_index(drop=True)


def find(given: Given) -> Measured:
    figures: dict[str, float | None] = {}
    tables, shares = [], []
    for limit in LIMITS_S:
        best = cheapest(limit)
        for name, same in (("equal_loss", False), ("same_tokens", True)):
            pairs = pairs_of(best, same_tokens=same)
            key = f"{name}_{limit * 1e3:g}_ms"
            share = float((pairs["ratio"] >= CHEAPER).mean()) if len(pairs) else 0.0
            shares.append(share)
            figures |= {
                f"pairs_{key}": float(len(pairs)),
                f"sparse_cheaper_{key}": share,
                f"median_ratio_{key}": float(pairs["ratio"].median()) if len(pairs) else None,
            }
            if limit == LIMITS_S[-1]:
                tables.append(_pairs(pairs, WORDS[name], limit))
                if not same:
                    tables.append(_per_model(best, pairs, limit))
    top = cheapest(np.inf).nsmallest(TOP, "loss")
    figures["sparse_among_best"] = float(top["sparse"].mean())
    figures["best"] = float(TOP)
    measured, measured_table = _measured()
    sparse = (figures["sparse_among_best"] or 0.0) * TOP
    return Measured(
        figures | measured, (*tables, measured_table), {"cheaper": min(shares), "sparse": sparse}
    )


def _pairs(pairs: pd.DataFrame, words: str, limit: float) -> Rows:
    rows = []
    bins = ((0.0, 10e9), (10e9, 40e9), (40e9, np.inf))
    for low, high in bins:
        part = pairs[(pairs["total_dense"] >= low) & (pairs["total_dense"] < high)]
        if len(part):
            name = (
                f"{low / 1e9:g} to {high / 1e9:g}" if np.isfinite(high) else f"from {low / 1e9:g}"
            )
            parts = [times(float(part["ratio"].quantile(q))) for q in (0.1, 0.5, 0.9)]
            share = percent(float((part["ratio"] >= CHEAPER).mean()))
            rows.append((name, str(len(part)), *parts, share))
    return rows


def _per_model(best: pd.DataFrame, pairs: pd.DataFrame, limit: float) -> Rows:
    """The largest dense models with the sparse model of equal loss that costs least."""
    rows = []
    for name in best[~best["sparse"]].nsmallest(12, "loss")["model"]:
        part = pairs[pairs["model_dense"] == name]
        if not len(part):
            continue
        row = part.loc[part["usd"].idxmin()]
        rows.append(
            (
                f"{name} ({row['total_dense'] / 1e9:.0f}B)",
                f"{row['model']} ({row['total'] / 1e9:.0f}B, {row['active'] / 1e9:.1f}B active)",
                f"{row['loss_dense']:.3f}, {row['loss']:.3f}",
                f"${digits(row['usd_dense'])}",
                f"${digits(row['usd'])}",
                times(row["ratio"]),
            )
        )
    return rows


# A dense model and a sparse one that both have offline rows.
MEASURED = (
    ("llama-3.1-405b", "deepseek-v3"),
    ("llama-3.1-405b", "qwen3-235b-a22b"),
    ("llama-3-70b", "qwen3-235b-a22b"),
    ("llama-3-70b", "gpt-oss-120b"),
)


def _measured() -> tuple[dict[str, float], Rows]:
    """Offline throughput a chip, the best of each model, on chips that have rows of both."""
    rows = predicted_rows()
    rows = rows[(rows["serving"] == "offline") & (rows["metric"] == "output_tokens_per_s")]
    rate = rows["value"] / rows["n_chips"].astype(float)
    rows = rows.assign(rate=rate)
    cells = []
    keys = ["chip", "prompt_tokens", "output_tokens"]
    for dense, sparse in MEASURED:
        tops = [rows[rows["model"] == name].groupby(keys)["rate"].max() for name in (dense, sparse)]
        both = pd.concat(tops, axis=1, keys=["dense", "sparse"]).dropna()
        for chip, part in both.groupby(level="chip"):
            ratio = float((part["sparse"] / part["dense"]).median())
            cells.append((dense, sparse, str(chip), str(len(part)), times(ratio), ratio))
    figures = {"measured_pairs": float(len(cells))}
    if cells:
        figures["measured_median_ratio"] = float(np.median([cell[-1] for cell in cells]))
    return (figures, tuple(cell[:-1] for cell in cells))
