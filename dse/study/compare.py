"""Two studies side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.pareto import REFERENCE, Scale, additive_epsilon, hypervolume, non_dominated
from dse.specs.workloads import DETAILS
from dse.study.compare_prices import chosen_changes, cost_changes, price_changes
from dse.study.folder import read_study
from dse.study.loads import loads_of


def compare(a: Path, b: Path) -> dict[str, Any]:
    """The document of `dse compare A B --json`.

    Both fronts are scaled by the enumerated front where one of the studies enumerated its space,
    and their prices are the same, else by the front of their union. `prices` says which prices
    differ, `costs` which costs of owning, `chosen` what became of the cheapest, fastest, best and
    knee. `entered` and `left` are points of B and A that the other does not have. Raises
    InputError for studies of different objectives or price bases.
    """
    studies, fronts = zip(*(read_study(folder) for folder in (a, b)), strict=True)
    objectives = studies[0]["objectives"]
    if objectives != studies[1]["objectives"]:
        raise InputError(
            f"{a} and {b} have different objectives",
            accepted="two studies of the same objectives",
        )
    bases = [study["price_basis"] for study in studies]
    if bases[0] != bases[1]:
        raise InputError(
            f"{a} has prices on basis {bases[0]}, {b} on {bases[1]}: they do not compare",
            accepted="two studies of one price basis",
        )
    prices = price_changes(studies[0], studies[1])
    values = [_values(items, objectives) for items in fronts]
    true = None if prices else _enumerated(studies)
    union = np.concatenate(values)
    reference = union[non_dominated(union)] if true is None else values[true]
    scale = Scale.of(reference, tuple(row["log"] for row in objectives))
    volumes = [hypervolume(front, scale) for front in values]
    keys = [{_key(item): item["point"] for item in items} for items in fronts]
    return {
        "a": str(a),
        "b": str(b),
        "hypervolume_a": volumes[0],
        "hypervolume_b": volumes[1],
        "ratio": volumes[1] / volumes[0] if volumes[0] > 0 else None,
        "epsilon": additive_epsilon(values[1], values[0], scale),
        "reference_point": [REFERENCE] * len(objectives),
        "reference_front": "union of both" if true is None else f"enumerated: {(a, b)[true]}",
        "true_hypervolume_share": None if true is None else volumes[1 - true] / volumes[true],
        "same_space": studies[0]["fingerprint"] == studies[1]["fingerprint"],
        "same_workload": _loads(studies[0]) == _loads(studies[1]),
        "same_data": studies[0]["data_digest"] == studies[1]["data_digest"],
        "engine_a": studies[0]["engine"],
        "engine_b": studies[1]["engine"],
        "front_a": len(fronts[0]),
        "front_b": len(fronts[1]),
        "evaluations_a": studies[0]["evaluations"],
        "evaluations_b": studies[1]["evaluations"],
        "entered": sorted(point for key, point in keys[1].items() if key not in keys[0]),
        "left": sorted(point for key, point in keys[0].items() if key not in keys[1]),
        "prices": prices,
        "costs": cost_changes(studies[0], studies[1]),
        "chosen": chosen_changes(fronts[0], fronts[1], objectives),
    }


def _loads(study: dict[str, Any]) -> list[list[Any]]:
    """What the workloads ask, whatever they are called."""
    keys = ("weight", "prompt_tokens", "output_tokens", "serving", "backend", *DETAILS)
    return [[load.get(key) for key in keys] for load in loads_of(study)]


def _enumerated(studies: Sequence[dict[str, Any]]) -> int | None:
    """Which of two studies of one space saw all of it; None where neither did, or both."""
    if studies[0]["fingerprint"] != studies[1]["fingerprint"]:
        return None
    whole = [k for k in (0, 1) if studies[k]["true_hypervolume_share"] == 1.0]
    return whole[0] if whole else None


def _values(items: list[dict[str, Any]], objectives: list[dict[str, Any]]) -> np.ndarray:
    columns = [
        (1.0 if o["direction"] == "minimize" else -1.0)
        * np.array([item["metrics"][o["metric"]] for item in items], dtype=float)
        for o in objectives
    ]
    return np.stack(columns, axis=1)


def _key(item: dict[str, Any]) -> str:
    model = {key: value for key, value in item["model"].items() if key != "name"}
    return json.dumps([model, item["deployment"]], sort_keys=True)
