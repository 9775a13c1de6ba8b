"""Published watts and joules of serving against predictions.

The rows of `hardware/measurements/energy.csv` were not fitted, and are too few and too vague to be:
most do not say their prompt and output lengths, which the file then assumes.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.physics.intervals import interval
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.schema.model_catalog import resolve_model

FILE = "measurements/energy.csv"
UNITS = {"watts_per_chip": "W"}


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


def main() -> None:
    rows = published_energy(load_catalog())
    print("| row | model | chip | in flight | published | predicted | published / predicted |")
    print("|---|---|---|---|---|---|---|")
    for row in rows.to_dict("records"):
        unit = UNITS.get(row["metric"], "J/token")
        print(
            f"| {row['id']} | {row['stands_for']} | {row['chip']} | {row['concurrency']} "
            f"| {row['value']:.3g} {unit} | {row['predicted']:.3g} {unit} | {row['ratio']:.2f} |"
        )
    inside = rows["value"].between(rows["low"], rows["high"]).sum()
    print(
        f"\n{inside} of {len(rows)} inside the interval; median of published / predicted "
        f"{rows['ratio'].median():.2f}."
    )


if __name__ == "__main__":
    main()
