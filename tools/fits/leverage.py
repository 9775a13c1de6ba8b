"""The leverage of experts against published comparisons: python -m tools.fits.leverage

`leverage_evidence.csv` holds sparse models with the dense model that somebody found level with
them, and its tokens. Those of one laboratory are dealt in two halves by name: the level and the
offset of the default law are fitted to the first half and to Kimi K2's three ratios; the other half
is kept out, and so are those that were found after the choice (`later`). Comparisons across
laboratories (`other`) mix data with shape; they are shown, and count for nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from dse.quality import LAWS, quality
from dse.quality.law import VOCABULARY, Shape
from dse.quality.laws import leverage
from tools.law_tables import columns, evaluate
from tools.written import markdown

EVIDENCE = Path(__file__).with_name("leverage_evidence.csv")
# Kimi K2, arXiv 2507.20534, section 2.3: compute saved at sparsity 48 (8 of 384 experts) over that
# at 8, 16 and 32, at equal loss. One shared expert, granularity 7; three quarters of the active
# parameters in experts and 5e20 FLOP are assumed.
KIMI_SPARSITY = np.array([8.0, 16.0, 32.0])
KIMI_RATIOS = np.array([1.69, 1.39, 1.15])
KIMI_FLOPS, KIMI_SHARE, KIMI_GRANULARITY = 5e20, 0.75, 7.0
# Standard errors of a log: of a comparison, and of a ratio of Kimi K2. Prior: level and offset that
# Tian et al. have at 1e21 FLOP and granularity 8 where 35% of the parameters are attention.
ERROR, RATIO_ERROR = 0.35, 0.05
PRIOR, PRIOR_WIDTH = np.array([0.68, 0.0163]), np.array([0.3, 0.2])


def read() -> pd.DataFrame:
    return pd.read_csv(EVIDENCE)


def known(table: pd.DataFrame) -> np.ndarray:
    """(n,) dense models of equal loss at the sparse model's own tokens: that of the comparison,
    carried to those tokens by the dense law, with 32,000 words."""
    dense = table["dense_parameters"] + VOCABULARY * table["hidden_size"]
    loss = leverage.dense(
        dense.to_numpy(dtype=float), table["dense_training_tokens"].to_numpy(dtype=float)
    ).loss
    here = leverage.dense(np.ones(len(table)), table["training_tokens"].to_numpy(dtype=float))
    (size, exponent), floor = here.parameters[0], here.floor + here.tokens[0]
    return (size / (loss - floor)) ** (1.0 / exponent)


def log_errors(table: pd.DataFrame, law: str) -> np.ndarray:
    """(n,) log of predicted over published dense equivalents."""
    return np.log(evaluate(table, law).dense_equivalent_parameters / known(table))


def kimi(level: float, offset: float) -> np.ndarray:
    """(3,) predicted ratios of Kimi K2: compute that a lower sparsity needs for the same loss."""
    ratio = (8.0 + 1.0) / (8.0 * np.append(KIMI_SPARSITY, 48.0) + 1.0)
    ones = np.ones(len(ratio))
    found = leverage.expert_leverage(
        ratio, KIMI_GRANULARITY * ones, KIMI_FLOPS * ones, level, offset
    )
    of_all = 1.0 + KIMI_SHARE * (found - 1.0)
    return of_all[-1] / of_all[:-1]


def fit(table: pd.DataFrame) -> tuple[float, float]:
    """(level, offset) by least squares with a soft loss."""
    target = np.log(known(table))
    shape = evaluate(table, "leverage")
    tables = VOCABULARY * table["hidden_size"].to_numpy(dtype=float)
    active = table["active_non_embedding"].to_numpy(dtype=float)
    depth = (shape.dense_equivalent_parameters - tables) / shape.efficiency_leverage / active
    ratio, granularity, flops, share = _sizes(table)

    def residuals(at: np.ndarray) -> np.ndarray:
        found = leverage.expert_leverage(ratio, granularity, flops, at[0], at[1])
        size = active * (1.0 + share * (found - 1.0)) * depth + tables
        return np.concatenate(
            [
                (np.log(size) - target) / ERROR,
                np.log(kimi(at[0], at[1]) / KIMI_RATIOS) / RATIO_ERROR,
                (at - PRIOR) / PRIOR_WIDTH,
            ]
        )

    best = least_squares(residuals, PRIOR, bounds=([0.0, 1e-3], [1.5, 1.0]), loss="soft_l1")
    return float(best.x[0]), float(best.x[1])


def _sizes(table: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Activation ratio, granularity, training FLOP and the share of the active parameters in
    experts, as the law counts them."""
    shape = Shape(**columns(table))
    share = shape.expert_parameters / shape.active_non_embedding
    return shape.activation_ratio, shape.granularity, shape.training_flops, share


def rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def interval(errors: np.ndarray, draws: int = 4000) -> tuple[float, float]:
    """80% bootstrap interval of the root mean square."""
    rng = np.random.default_rng(0)
    of = [rms(rng.choice(errors, len(errors))) for _ in range(draws)]
    low, high = np.quantile(of, [0.1, 0.9])
    return float(low), float(high)


def main() -> None:
    table = read()
    halves = {name: table[table["split"] == name] for name in ("choose", "held out", "later")}
    level, offset = fit(halves["choose"])
    print(f"level {level:.3f}, offset {offset:.3f}; shipped {leverage.LEVEL}, {leverage.OFFSET}\n")
    head = ("law", "chosen on, rms log error", "held out", "80% interval", "mean", "later")
    rows = []
    for law in LAWS:
        errors = {name: log_errors(half, law) for name, half in halves.items()}
        chosen, held, later = errors.values()
        low, high = interval(held)
        ratios = " ".join(f"{value:.2f}" for value in kimi_of(law))
        spread = (f"{rms(held):.2f}", f"{low:.2f} to {high:.2f}", f"{held.mean():+.2f}")
        rows.append((law, f"{rms(chosen):.2f}", *spread, f"{rms(later):.2f}", ratios))
    print(markdown((*head, "Kimi K2"), rows))
    print(f"\nKimi K2 published: {' '.join(map(str, KIMI_RATIOS))}\n")
    sizes = {law: evaluate(table, law).dense_equivalent_parameters / 1e9 for law in LAWS}
    shown = zip(table["name"], known(table) / 1e9, table["split"].fillna("shown"), strict=True)
    rows = [
        (name, f"{published:.1f}", *(f"{size[i]:.1f}" for size in sizes.values()), used)
        for i, (name, published, used) in enumerate(shown)
    ]
    print(markdown(("model", "published, B", *(f"{law}, B" for law in LAWS), "used"), rows))


def kimi_of(law: str) -> np.ndarray:
    """(3,) Kimi K2's ratios under a law: models of 0.7B active parameters, 9 of E + 1 experts, all
    trained alike, by the compute that a dense model of their quality needs."""
    sparsity = np.append(KIMI_SPARSITY, 48.0)
    ones = np.ones(len(sparsity))
    active, width, hidden = 0.7e9, 292.0, 2048.0
    experts = active * KIMI_SHARE
    total = active - experts + experts * (8.0 * sparsity + 1.0) / 9.0
    shape = Shape(
        hidden * ones,
        24.0 * ones,
        active * ones,
        experts=8.0 * sparsity,
        experts_per_token=8.0 * ones,
        shared_width_ratio=ones,
        expert_intermediate_size=width * 2.0 * ones,
        training_tokens=KIMI_FLOPS / 6.0 / active * ones,
        total_parameters=total + 2.0 * VOCABULARY * hidden,
        embedding_parameters=2.0 * VOCABULARY * hidden * ones,
    )
    size = quality(shape, law).efficiency_leverage
    return size[-1] / size[:-1]


if __name__ == "__main__":
    main()
