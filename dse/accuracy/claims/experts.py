"""Sparse models against dense ones of the same quality."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import Point, billions, is_sparse, models, predict, predicted_rows

CHIP, CHIPS = "h200_sxm", 16.0
LIMITS_S = (0.02, 0.05)
CONCURRENCY = tuple(float(2**k) for k in range(12))
NEAR = 0.01  # nats per token within which two models count as equal
SAME_SIZE = 0.15  # logarithm of dense-equivalent parameters within which they do
CHEAPER = 1.1
TOP = 10
# By column of `cheapest`, the metric.
COLUMNS = {
    "loss": "predicted_loss",
    "equivalent": "dense_equivalent_parameters",
    "total": "total_parameters",
    "active": "active_parameters",
    "usd": "usd_per_million_total_tokens",
    "tpot_s": "tpot_s",
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
            replicas = CHIPS / (tp * dp)
            points += [
                Point(name, CHIP, tp, 1.0, dp, ep, replicas, requests * CHIPS, "fp8", "fp8")
                for requests in CONCURRENCY
            ]
    answer = predict(points)
    table = pd.DataFrame(points)[["model", "tp", "dp", "ep", "concurrency"]]
    for name, metric in COLUMNS.items():
        table[name] = answer[metric]
    table = table[answer.feasible & (table["tpot_s"] <= limit_s) & table["loss"].notna()]
    best = table.loc[table.groupby("model")["usd"].idxmin()].reset_index(drop=True)
    return best.assign(sparse=best["model"].map(is_sparse))


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
            key, any_ = f"{name}_{limit * 1e3:g}_ms", len(pairs) > 0
            shares.append(_cheaper(pairs) if any_ else 0.0)
            figures |= {
                f"pairs_{key}": float(len(pairs)),
                f"sparse_cheaper_{key}": shares[-1],
                f"median_ratio_{key}": float(pairs["ratio"].median()) if any_ else None,
            }
            if limit == LIMITS_S[-1]:
                tables.append(_by_size(pairs))
                tables += [] if same else [_per_model(best, pairs)]
    top = cheapest(np.inf).nsmallest(TOP, "loss")
    figures["sparse_among_best"] = float(top["sparse"].mean())
    figures["best"] = float(TOP)
    tables.append(_measured())
    ratios = [row[-1] for row in tables[-1]]
    figures["measured_pairs"] = float(len(ratios))
    if ratios:
        figures["measured_median_ratio"] = float(np.median(ratios))
    facts = {"cheaper": min(shares), "sparse": float(top["sparse"].sum())}
    return Measured(figures, tables, facts)


def _cheaper(pairs: pd.DataFrame) -> float:
    """The share of pairs in which the sparse model costs clearly less."""
    return float((pairs["ratio"] >= CHEAPER).mean())


def _by_size(pairs: pd.DataFrame) -> Rows:
    return [
        (billions(low, high), len(part), *part["ratio"].quantile((0.1, 0.5, 0.9)), _cheaper(part))
        for low, high in ((0.0, 10e9), (10e9, 40e9), (40e9, np.inf))
        for part in (pairs[(pairs["total_dense"] >= low) & (pairs["total_dense"] < high)],)
        if len(part)
    ]


def _per_model(best: pd.DataFrame, pairs: pd.DataFrame) -> Rows:
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
                (row["loss_dense"], row["loss"]),
                *row[["usd_dense", "usd", "ratio"]],
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


def _measured() -> Rows:
    """Offline throughput a chip, the best of each model, on chips that have rows of both."""
    rows = predicted_rows()
    rows = rows[(rows["serving"] == "offline") & (rows["metric"] == "output_tokens_per_s")]
    rows = rows.assign(rate=rows["value"] / rows["n_chips"].astype(float))
    keys, cells = ["chip", "prompt_tokens", "output_tokens"], []
    for dense, sparse in MEASURED:
        tops = [rows[rows["model"] == name].groupby(keys)["rate"].max() for name in (dense, sparse)]
        both = pd.concat(tops, axis=1, keys=["dense", "sparse"]).dropna()
        ratios = (both["sparse"] / both["dense"]).groupby(level="chip")
        cells += [(dense, sparse, chip, len(part), part.median()) for chip, part in ratios]
    return cells
