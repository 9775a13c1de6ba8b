"""Predictions against publications that nothing was fitted to: `python -m tools.fits.published`
prints three public training runs, with `energy` the power and energy of serving.

The runs are estimated from their published configuration, published.yaml.

None of them is a row that the constants of the stacks were fitted to. Interruptions are not
predicted here: a figure is the step's own time over the share of the time that the source says was
spent training, or all of it where it says nothing.

`whole` compares each with the usual plan that `dse train` finds for the same chips, batch, formats
and schedule: what a whole published run takes over it, interruptions counted in both (PaLM's figure
is a rate of steps, and so is what it is compared with).

The watts and joules of `hardware/measurements/energy.csv` are too few and too vague to be fitted
to: most rows do not say their prompt and output lengths, which the file then assumes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from dse.accuracy.tables import machines_of
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.physics.intervals import interval
from dse.physics.training.evaluate import evaluate_training, training_interval, training_spread
from dse.physics.training.plan import TrainingBatch
from dse.physics.workload import Workload
from dse.problem.training import with_prediction_layer
from dse.questions.estimate.point import estimate
from dse.questions.training_run import best_run
from dse.rules.case import Case, Training
from dse.rules.registry import judge
from dse.schema.model_catalog import resolve_model
from dse.schema.training import training_stack, training_terms
from dse.space.batches import batch_of


@dataclass(frozen=True, slots=True)
class PublicRun:
    """`published` chip-hours of `tokens`; `effective` share of the time spent training, by the
    source; `assumed` says what the source leaves open."""

    name: str
    model: str
    chip: str
    stack: str
    tokens: float
    published: float
    source: str
    assumed: str
    settings: dict[str, Any]
    degrees: Mapping[str, float]
    prediction_layer: bool = False
    effective: float = 1.0
    steps_alone: bool = False


RUNS = tuple(
    PublicRun(**run)
    for run in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
)


def estimate_run(run: PublicRun) -> dict[str, Any]:
    """`predicted` chip-hours with their 80% interval, `tokens_per_s_per_chip`, `mfu`, `step_s` and
    the `error` against the published total."""
    catalog = load_catalog()
    machines = machines_of(catalog)
    model = resolve_model(run.model)
    candidates = batch_of(
        [with_prediction_layer(model) if run.prediction_layer else model],
        np.array([machines.code(run.chip)], dtype=np.intp),
        ["bf16"],
        ["bf16"],
        {name: np.array([float(degree)]) for name, degree in run.degrees.items()}
        | {"replicas": np.ones(1), "concurrency": np.ones(1)},
    )
    batch = TrainingBatch.of(candidates, **run.settings)
    metrics = evaluate_training(batch, machines, training_stack(run.stack))
    broken = judge(Case.of_training(Training(metrics)))
    hours = run.tokens / metrics.tokens_per_s_per_chip / 3600.0 / run.effective
    kind = machines.law_kind[candidates.chip, candidates.weight_dtype["mlp"]]
    low, high = training_interval("step_s", hours, kind, training_spread())
    return {
        "run": run.name,
        "chips": float(batch.chips[0]),
        "published_chip_hours": run.published,
        "predicted_chip_hours": float(hours[0]),
        "interval": [float(low[0]), float(high[0])],
        "error": float(hours[0]) / run.published - 1.0,
        "step_s": float(metrics.step_s[0]),
        "tokens_per_s_per_chip": float(metrics.tokens_per_s_per_chip[0]),
        "mfu": float(metrics.mfu[0]),
        "broken_rules": [name for name, amount in broken.items() if amount[0] > 0.0],
        "source": run.source,
        "assumed": run.assumed,
    }


def over_usual(run: PublicRun) -> float:
    """Published chip-hours over those of the steps and interruptions of the usual plan."""
    asked = ("sequence_length", "global_batch_tokens", "precision", "optimizer", "schedule")
    given = {name: run.settings[name] for name in asked if name in run.settings}
    terms = training_terms(
        chip=run.chip,
        chips=round(np.prod(list(run.degrees.values())) / run.degrees["expert_parallel"]),
        **{name: int(v) if isinstance(v, float) else v for name, v in given.items()},
    )
    found = best_run(load_catalog(), resolve_model(run.model), terms, run.tokens)
    usual = found.plan(0)
    steps = usual["goodput"] if run.steps_alone else 1.0
    hours = usual["days"] * 24.0 * terms.chips / found.trainer.whole_run
    return run.published / (hours * steps)


def whole() -> tuple[float, list[float]]:
    """The geometric mean of `over_usual`, and each run's own."""
    each = [over_usual(run) for run in RUNS]
    return float(np.exp(np.mean(np.log(each)))), each


def print_runs() -> None:
    print(f"{'run':16} {'chips':>7} {'published':>11} {'predicted':>11} {'error':>7} {'MFU':>6}")
    for one in map(estimate_run, RUNS):
        print(
            f"{one['run']:16} {one['chips']:7,.0f} {one['published_chip_hours'] / 1e6:10.2f}M "
            f"{one['predicted_chip_hours'] / 1e6:10.2f}M {one['error']:+7.1%} {one['mfu']:6.1%}"
        )
    mean, each = whole()
    said = ", ".join(f"{run.name} {ratio:.2f}" for run, ratio in zip(RUNS, each, strict=True))
    print(f"published hours over those of the usual plan: {mean:.2f} ({said})")


FILE = "measurements/energy.csv"


def published_energy(catalog: Catalog) -> pd.DataFrame:
    """Every row of the file (n,): the published `value` in watts or joules, `predicted` with its
    80% interval (`low`, `high`), and `ratio`, published over predicted."""
    rows = pd.read_csv(hardware_dir() / FILE)
    rows[["predicted", "low", "high"]] = [_predict(catalog, row) for row in rows.itertuples()]
    return rows.assign(ratio=rows["value"] / rows["predicted"])


def _predict(catalog: Catalog, row: Any) -> tuple[float, float, float]:
    lengths = float(row.prompt_tokens), float(row.output_tokens)
    load = Workload.of(*lengths, row.serving, catalog.backends[row.backend])
    model, requests = resolve_model(row.model), {"concurrency": float(row.concurrency)}
    answer = estimate(catalog, model, row.chip, load, requests, weight_dtype=row.weight_dtype)
    metrics = answer.metrics
    value = metrics.values[row.metric]
    low, high = interval(row.metric, value, metrics.provenance, metrics.spread)
    return float(value[0]), float(low[0]), float(high[0])


def print_energy() -> None:
    rows = published_energy(load_catalog())
    shown = ["id", "stands_for", "chip", "concurrency", "metric", "value", "predicted", "ratio"]
    print(rows[shown].to_string(index=False, float_format="{:.3g}".format))
    inside = rows["value"].between(rows["low"], rows["high"]).sum()
    middle = rows["ratio"].median()
    print(
        f"\n{inside} of {len(rows)} inside the interval; median of value / predicted {middle:.2f}."
    )


if __name__ == "__main__":
    if "energy" in sys.argv[1:]:
        print_energy()
    else:
        print_runs()
