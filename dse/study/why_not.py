"""Why a configuration is not on a front: the rule it breaks, or the points that beat it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.study.describe import Limit
from dse.study.estimate import Estimate
from dse.study.folder import FRONT, STUDY, read_json
from dse.study.words import deployment_words, show

SHOWN = 5


def why_not(folder: Path, answer: Estimate) -> dict[str, Any]:
    """`answer` must have been made for the study's workload and price basis."""
    study = read_json(folder, STUDY)
    limits = tuple(
        Limit(row["metric"], row["sign"], row["limit"], row["text"]) for row in study["constraints"]
    )
    metrics = answer.as_json()
    broken = [
        f"breaks {row['constraint']} ({row['meaning']}) by {row['amount']:.1%}"
        for row in metrics["violations"]
    ] + [
        f"breaks {limit.text}: {show(limit.metric, metrics[limit.metric])}"
        for limit in limits
        if limit.amount(answer.metrics)[0] > 0.0
    ]
    if broken:
        return {"on_front": False, "reasons": broken, "dominated_by": []}
    better = [item for item in read_json(folder, FRONT)["items"] if _beats(item, metrics, study)]
    reasons = [
        f"point {item['point']} is at least as good in every objective: "
        + ", ".join(
            f"{o['metric']} {show(o['metric'], item['metrics'][o['metric']])} "
            f"(here {show(o['metric'], metrics[o['metric']])})"
            for o in study["objectives"]
        )
        + f"; {deployment_words(item['deployment'])}"
        for item in better[:SHOWN]
    ]
    if len(better) > SHOWN:
        reasons.append(f"and {len(better) - SHOWN} more points of the front beat it")
    if not better:
        reasons = ["feasible and beaten by no point of the front: it is outside the searched space"]
    return {
        "on_front": not better,
        "reasons": reasons,
        "dominated_by": [item["point"] for item in better],
    }


def _beats(item: dict[str, Any], metrics: dict[str, Any], study: dict[str, Any]) -> bool:
    for objective in study["objectives"]:
        mine, theirs = metrics[objective["metric"]], item["metrics"][objective["metric"]]
        if mine is None:
            continue
        sign = 1.0 if objective["direction"] == "minimize" else -1.0
        if sign * theirs > sign * mine:
            return False
    return True
