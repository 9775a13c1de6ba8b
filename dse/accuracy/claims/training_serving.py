"""Claim 26: compute of serving against that of training."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.points import Point, is_sparse, models, predict
from dse.accuracy.claims.training_runs import run
from dse.answer.numbers import digits, percent, times
from dse.economics.lifetime import SERVING_FLOP_PER_PARAMETER, TRAINING_FLOP_PER_PARAMETER

SERVED_ON, REQUESTS_PER_CHIP = "h200_sxm", 32.0
# Model, the cluster that trains it, chips of one instance that serves it in 8 bits.
SUBJECTS = (
    ("llama-3-8b", "h100_sxm", 1024, 1), ("llama-3-70b", "h100_sxm", 2048, 2),
    ("llama-3.1-405b", "h100_sxm", 16_384, 8), ("deepseek-v3", "h800_sxm", 2048, 8),
    ("gpt-oss-120b", "h100_sxm", 1024, 1),
)  # fmt: skip
# Tokens a day. Google said that it processed 480T a month in May 2025 (I/O 2025; claimed), over all
# its models; the others are examples.
DEMANDS = (10e9, 100e9, 1e12, 16e12)
YEARS = 2.0
DAYS = 365.0


def judge(days: list[list[float]]) -> str:
    """Days of service after which its chip-hours reach those of training, by model and demand."""
    reached = [[one <= YEARS * DAYS for one in row] for row in days]
    if all(row[1] for row in reached):
        return CONFIRMED
    return QUALIFIED if any(any(row) for row in reached) else CONTRADICTED


def find() -> Finding:
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
        rows.append(
            (
                model,
                f"{digits(trained / 1e12)}T",
                f"{digits(training['chip_hours'] / 1e6)}M",
                f"{digits(compute / 1e12)}T",
                f"{digits(tokens / 1e12)}T",
                *(f"{digits(one)}" for one in days[-1]),
            )
        )
    figures = {
        "median_tokens_served_over_trained_at_equal_chip_hours": float(np.median(equal)),
        "median_days_at_100b_a_day": float(np.median([row[1] for row in days])),
        "median_days_at_1t_a_day": float(np.median([row[2] for row in days])),
        "median_tokens_at_equal_chip_hours_over_equal_flop": float(np.median(shares)),
    }
    within = np.mean([row[1] <= YEARS * DAYS for row in days])
    return Finding(
        judge(days),
        f"serving takes as many chip-hours as training after "
        f"{times(figures['median_tokens_served_over_trained_at_equal_chip_hours'])} the training "
        f"tokens (3 times in FLOP): at 100B tokens a day after "
        f"{digits(figures['median_days_at_100b_a_day'])} days in the median, at 1T a day after "
        f"{digits(figures['median_days_at_1t_a_day'])}; {percent(float(within))} of the models "
        f"within {YEARS:g} years at 100B",
        figures,
        f"Served in fp8 on 1 to 8 {SERVED_ON}, {REQUESTS_PER_CHIP:g} requests a chip, prompt "
        "2,048, output 512; trained by the best plan in bf16, its published tokens (15T where none "
        "are).",
        (
            Table(
                "Served tokens at which serving has taken what training took, and days to get "
                "there by tokens a day",
                (
                    "model", "trained on", "training chip-hours", "equal FLOP at",
                    "equal chip-hours at", *(f"{digits(d / 1e9)}B a day" for d in DEMANDS),
                ),
                tuple(rows),
            ),
        ),
        "Predicted; 6 N D against 2 N for each served token (Sardana et al. 2023). 16T a day is "
        "what Google claimed of all its models together (480T a month, May 2025).",
        "How many tokens a model serves in its life is seldom published; experiments and failed "
        "runs of training, which may take more than the last run, are left out.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        26,
        "Inference recurs for every token, so serving rivals training in its demand for compute.",
        ("dse claims 26", "dse run lifetime-dense"),
        f"Confirmed where serving 100B tokens a day takes the chip-hours of training within "
        f"{YEARS:g} years for every model; qualified where it does for some model and demand; else "
        "contradicted.",
        find,
    ),
)
