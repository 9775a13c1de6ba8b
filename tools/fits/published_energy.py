"""Published watts and joules of serving against predictions.

The rows of `hardware/measurements/energy.csv` were not fitted, and are too few and too vague to be:
most do not say their prompt and output lengths, which the file then assumes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.physics.intervals import interval
from dse.physics.workload import Workload
from dse.questions.estimate.point import estimate
from dse.schema.model_catalog import resolve_model

FILE = "measurements/energy.csv"


@dataclass(frozen=True, slots=True)
class Compared:
    """One published figure, in watts or joules, and the prediction with its 80% interval."""

    id: str
    what: str
    chip: str
    concurrency: int
    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    source: str
    note: str

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted

    @property
    def covered(self) -> bool:
        return self.low <= self.measured <= self.high


def published_energy(catalog: Catalog, path: Path | None = None) -> list[Compared]:
    """Every row of the file, predicted."""
    with (path or hardware_dir() / FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [_compare(catalog, row) for row in rows]


def _compare(catalog: Catalog, row: dict[str, str]) -> Compared:
    load = Workload.of(
        float(row["prompt_tokens"]),
        float(row["output_tokens"]),
        row["serving"],
        catalog.backends[row["backend"]],
    )
    found = estimate(
        catalog,
        resolve_model(row["model"]),
        row["chip"],
        load,
        {"concurrency": float(row["concurrency"])},
        weight_dtype=row["weight_dtype"],
    ).metrics
    value = found.values[row["metric"]]
    low, high = interval(row["metric"], value, found.provenance, found.spread)
    return Compared(
        id=row["id"],
        what=row["stands_for"],
        chip=row["chip"],
        concurrency=int(row["concurrency"]),
        metric=row["metric"],
        measured=float(row["value"]),
        predicted=float(value[0]),
        low=float(low[0]),
        high=float(high[0]),
        source=row["source"],
        note=row["note"],
    )


def main() -> None:
    rows = published_energy(load_catalog())
    print("| row | model | chip | in flight | published | predicted | published / predicted |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        unit = "W" if row.metric == "watts_per_chip" else "J/token"
        print(
            f"| {row.id} | {row.what} | {row.chip} | {row.concurrency} | {row.measured:.3g} {unit} "
            f"| {row.predicted:.3g} {unit} | {row.ratio:.2f} |"
        )
    ratios = np.array([row.ratio for row in rows])
    print(
        f"\n{sum(row.covered for row in rows)} of {len(rows)} inside the interval; median of "
        f"published / predicted {np.median(ratios):.2f}."
    )


if __name__ == "__main__":
    main()
