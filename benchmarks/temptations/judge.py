"""One space: its search, and what the oracle refuses of its front."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dse
from benchmarks.temptations import pairs
from benchmarks.temptations.published import measure, outside
from benchmarks.temptations.rules import RULES, Case, bought_for_nothing
from dse.errors import DseError, NothingFeasible
from dse.schema.catalog import Catalog
from dse.schema.huggingface import from_config
from dse.study.result import Study

HERE = Path(__file__).parent
Row = dict[str, Any]


def spaces() -> dict[str, Path]:
    """The spaces of this folder by name."""
    return {path.stem: path for path in sorted(HERE.glob("*.yaml"))}


def judge(space: Path | str, catalog: Catalog) -> Row:
    """Searches a space and judges its front.

    `refused` counts designs, `by` how many each rule or band refuses, `examples` has one in words
    of each. A space that the library refuses, or in which nothing is feasible, says so in `said`:
    nothing of it wins.
    """
    started = time.perf_counter()
    row: Row = {"space": Path(space).stem, "points": 0, "front": 0, "refused": 0}
    row |= {"by": {}, "examples": {}, "said": None}
    try:
        study = dse.run(str(space), catalog=catalog, prove=False)
    except DseError as error:
        row["said"] = str(error).replace(f"{Path(space).parent}/", "")
        row["nothing_feasible"] = isinstance(error, NothingFeasible)
    else:
        row |= {"points": study.document["size"], "front": len(study.front)}
        row |= judge_front(study)
    return row | {"seconds": time.perf_counter() - started}


def judge_front(study: Study) -> Row:
    document, catalog = study.document, study.catalog()
    offered = frozenset(pairs.offered(document["definition"], "weight_dtype"))
    objections = object_to(
        [
            Case(
                from_config(point.model, "point", "front.json"),
                point.deployment,
                point.metrics,
                document["workload"],
                offered,
                catalog,
            )
            for point in study.front
        ]
    )
    matrix, by_ratio = objectives_of(study)
    for found, words in zip(objections, bought_for_nothing(matrix, by_ratio), strict=True):
        if words:
            found["bought"] = words
    by = Counter(name for found in objections for name in found)
    examples: dict[str, str] = {}
    for i, found in enumerate(objections, 1):
        for name, words in found.items():
            examples.setdefault(name, f"point {i}: {words}")
    refused = sum(1 for found in objections if found)
    lost = list(pairs.refused(study, catalog))
    if lost:
        by["pairs"], examples["pairs"] = len(lost), lost[0]
    return {"refused": refused, "by": dict(by.most_common()), "examples": examples}


def object_to(cases: Sequence[Case]) -> list[dict[str, str]]:
    """Of each design, {rule or measure: what is refused, in words}."""
    result = []
    for case, shape in zip(cases, measure([case.model for case in cases]), strict=True):
        found = outside(shape)
        for name, (_, rule) in RULES.items():
            words = "; ".join(rule(case))
            if words:
                found[name] = words
        result.append(found)
    return result


def objectives_of(study: Study) -> tuple[np.ndarray, list[bool]]:
    """(n, m) objectives, all minimised, and which count by ratio: all but the loss. One to be
    maximised counts by its inverse."""
    objectives = study.document["objectives"]
    matrix = np.empty((len(study.front), len(objectives)))
    for j, one in enumerate(objectives):
        values = np.array([p.metrics[one["metric"]] for p in study.front], dtype=np.float64)
        matrix[:, j] = 1.0 / values if one["direction"] == "maximize" else values
    return matrix, [one["metric"] != "predicted_loss" for one in objectives]
