"""Compute of serving against that of training."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, share
from dse.accuracy.claims.points import Point, is_sparse, models, predict
from dse.accuracy.claims.training_runs import run
from dse.economics.lifetime import SERVING_FLOP_PER_PARAMETER, TRAINING_FLOP_PER_PARAMETER

SERVED_ON, REQUESTS_PER_CHIP = "h200_sxm", 32.0
# Model, the cluster that trains it, chips of one instance that serves it in 8 bits.
SUBJECTS = (
    ("llama-3-8b", "h100_sxm", 1024, 1),
    ("llama-3-70b", "h100_sxm", 2048, 2),
    ("llama-3.1-405b", "h100_sxm", 16_384, 8),
    ("deepseek-v3", "h800_sxm", 2048, 8),
    ("gpt-oss-120b", "h100_sxm", 1024, 1),
)
# Tokens a day. Google said that it processed 480T a month in May 2025 (I/O 2025; claimed), over all
# its models; the others are examples.
DEMANDS = (10e9, 100e9, 1e12, 16e12)


def find(given: Given) -> Measured:
    rows, days, shares, equal = [], [], [], []
    for model, chip, chips, group in SUBJECTS:
        trained = models()[model].training_tokens or 15e12
        training = run(model, chip, chips, trained).as_json()
        experts = float(group) if is_sparse(model) else 1.0
        load = REQUESTS_PER_CHIP * group
        found = predict(
            [Point(model, SERVED_ON, float(group), ep=experts, concurrency=load, weight="fp8")]
        )
        hours = float(
            found["usd_per_million_total_tokens"][0] / 1e6 / found["chip_usd_per_hour"][0]
        )
        tokens = training["chip_hours"] / hours
        compute = trained * TRAINING_FLOP_PER_PARAMETER / SERVING_FLOP_PER_PARAMETER
        days.append([tokens / demand for demand in DEMANDS])
        equal.append(tokens / trained)
        shares.append(tokens / compute)
        amounts = (trained / 1e12, training["chip_hours"] / 1e6, compute / 1e12, tokens / 1e12)
        rows.append((model, *amounts, *days[-1]))
    figures = {
        "median_tokens_served_over_trained_at_equal_chip_hours": float(np.median(equal)),
        "median_days_at_100b_a_day": float(np.median([row[1] for row in days])),
        "median_days_at_1t_a_day": float(np.median([row[2] for row in days])),
        "median_tokens_at_equal_chip_hours_over_equal_flop": float(np.median(shares)),
    }
    within = given["within_days"]
    facts = {
        "reached_by_any": share(min(row) <= within for row in days),
        "reached_at_100b": share(row[1] <= within for row in days),
    }
    return Measured(figures, (rows,), facts)
