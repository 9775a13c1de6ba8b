"""The document of `dse whatif --uncertain --json`, and commands that make a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.economics.priced import price_documents
from dse.questions.risk.answer import Risk
from dse.questions.risk.measure_next import Measurement
from dse.questions.risk.words import MEANING, after, deployment, facts, lead, measured, rests_on

BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs
BINS, FARTHEST = 40, math.log(4.0)  # of the margin, as a logarithm


def commands(found: Risk, one: Measurement) -> list[str]:
    """Command lines that make a measurement and bring it in."""
    item = found.uncertain.items[one.i]
    if one.what == "price":
        return []
    at = item.deployments[one.row]
    lines = [_benchmark(load.row(), at) for load in found.study.workloads]
    reached = found.catalog.chips[item.chip].vendor in BY_TORCH
    if item.kind != "fitted" and reached:
        lines.insert(0, f"dse calibrate --chip {item.chip} --full")
    return [*lines, "dse validate --data measured.csv"]


def _benchmark(load: Mapping[str, Any], deployment: Mapping[str, Any]) -> str:
    """vLLM's own benchmark of a server that was started as `dse export` writes it."""
    flight = int(deployment["concurrency"])
    rate = load.get("requests_per_second")
    asked = f"--request-rate {rate:g}" if rate else f"--max-concurrency {flight}"
    return (
        f"vllm bench serve --dataset-name random --random-input-len {load['prompt_tokens']:.0f} "
        f"--random-output-len {load['output_tokens']:.0f} --ignore-eos {asked} --num-prompts "
        f"{max(10 * flight, 1000 if rate else 100)}"
    )


def document(found: Risk) -> dict[str, Any]:
    """`dse whatif --uncertain --json`."""
    robust, items, demand = found.robust, found.uncertain.items, found.uncertain.demand
    parts = price_documents(found.catalog, found.chips, found.study.price_basis)
    return {
        "space": found.study.name,
        "title": found.subject.title,
        "asked": facts(found),
        "meaning": MEANING,
        "point": ", ".join(shape.name for shape in found.shapes) or None,
        "objective": found.objective,
        "price_basis": found.study.price_basis,
        "draws": found.draws,
        "seed": found.seed,
        "standard_error": float(robust.standard_error.max()),
        "retune": found.retune,
        "demand": None
        if demand is None
        else {"requests_per_s_low": demand.low, "requests_per_s_high": demand.high},
        "answer": lead(found),
        "advised": items[robust.least_regret].name,
        "predicted_best": items[robust.predicted].name,
        "most_often_first": items[robust.likeliest].name,
        "least_expected_regret": items[robust.least_regret].name,
        "least_worst_regret": items[robust.least_worst_regret].name,
        "least_worst_price": items[robust.least_worst_price].name,
        "chance_wrong": float(1.0 - robust.chance_first[robust.predicted]),
        "share_without_answer": robust.none,
        "margin": _margin(found),
        "kin": [
            {"choice": item.name, "kin": kin}
            for item, kin in zip(items, found.uncertain.kin, strict=True)
        ],
        "choices": [_choice(found, i) for i in range(len(items))],
        "measure_next": [_measurement(found, one) for one in found.measurements],
        "prices": [
            {
                "chip": one.chip,
                "usd_per_chip_hour": one.usd_per_chip_hour,
                "interval": list(one.ends),
                "rows": one.rows,
                "kind": one.kind,
            }
            for one in found.prices
        ],
        "price_parts": [
            {"chip": price["chip"], "usd_per_chip_hour": price["usd_per_chip_hour"]}
            | {part["name"]: part["usd_per_chip_hour"] for part in price["parts"]}
            for price in parts
        ],
        "prices_given": found.catalog.source.own_prices(),
        "left_out": {**found.study.why_left_out, **found.uncertain.choices.left_out},
        "rests_on": rests_on(found),
    }


def _margin(found: Risk) -> list[dict[str, float]]:
    """Shares of the draws by what the best other choice costs over the advised one, less 1; what
    lies beyond the ends is in the first and the last."""
    margin = np.clip(found.robust.margin, -FARTHEST, FARTHEST)
    count, edges = np.histogram(margin, bins=BINS, range=(-FARTHEST, FARTHEST))
    ends = np.expm1(edges)
    ends[BINS // 2] = 0.0
    return [
        {"from": float(a), "to": float(b), "share": float(n) / len(margin)}
        for a, b, n in zip(ends[:-1], ends[1:], count, strict=True)
    ]


def _choice(found: Risk, i: int) -> dict[str, Any]:
    robust, item = found.robust, found.uncertain.items[i]
    return {
        "name": item.name,
        "chip": item.chip,
        "point": item.shape or None,
        "words": deployment(found, item, item.best),
        "deployment": dict(item.deployments[item.best]),
        "efficiency": item.kind,
        "predicted": number(robust.nominal[i]),
        "interval": [number(robust.low[i]), number(robust.high[i])],
        "chance_first": float(robust.chance_first[i]),
        "chance_first_as_deployed": float(robust.same_deployment[i]),
        "standard_error": float(robust.standard_error[i]),
        "expected_regret": number(robust.expected_regret[i]),
        "regret_95": number(robust.regret_95[i]),
        "worst_regret": number(robust.worst_regret[i]),
        "worst_price": number(robust.worst_price[i]),
        "chance_misses_limits": float(robust.chance_missed[i]),
    }


def _measurement(found: Risk, one: Measurement) -> dict[str, Any]:
    item = found.uncertain.items[one.i]
    wrong, regret = after(found, one)
    return {
        "what": one.what,
        "words": measured(found, one),
        "chip": item.chip,
        "deployment": dict(item.deployments[one.row]) if one.what == "serving" else None,
        "chance_wrong_now": float(1.0 - found.robust.chance_first.max()),
        "chance_wrong_after": wrong,
        "chance_saved": one.chance_saved,
        "expected_regret_after": regret,
        "expected_regret_saved": one.regret_saved,
        "changes_choice": one.changes,
        "commands": commands(found, one),
    }
