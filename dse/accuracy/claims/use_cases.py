"""Which chip for which use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import Answer, Point, predict, usable_chips
from dse.accuracy.claims.sram import fitted
from dse.answer.numbers import digits, times
from dse.catalog import load_catalog

THEN = 2024  # the year from which the table that the claim quotes dates
SOLD = ("shipping", "shipping_legacy", "shipping_cn", "cloud", "cloud_legacy", "restricted")
EDGE_W = 200.0
SPREAD = ("groq_lpu_v1", "groq3_lp30", "wse3")


# By chip: the least metric that it reaches, with which deployment and kind of efficiency.
Best = dict[str, tuple[float, tuple[Point, str]]]


@dataclass(frozen=True, slots=True)
class Use:
    """One cell: `model` for `concurrency` requests on groups of up to `chips` chips; less of
    `metric` is better. `said`: the chips that the claim names."""

    name: str
    said: tuple[str, ...]
    model: str
    weight: str
    metric: str
    unit: str
    scale: float
    chips: int
    concurrency: float
    basis: str = "rental_3yr"
    most_w: float = np.inf


USES = (
    Use(
        "low latency, small model",
        ("groq_lpu_v1", "h100_sxm"),
        "llama-3-8b",
        "fp8",
        "tpot_s",
        "ms a token",
        1e3,
        8,
        1.0,
    ),
    Use(
        "low latency, large dense model",
        ("h200_sxm",),
        "llama-3.1-405b",
        "fp8",
        "tpot_s",
        "ms a token",
        1e3,
        8,
        1.0,
    ),
    Use(
        "low latency, large sparse model",
        ("h200_sxm",),
        "deepseek-v3",
        "fp8",
        "tpot_s",
        "ms a token",
        1e3,
        8,
        1.0,
    ),
    Use(
        f"edge: one chip of at most {EDGE_W:g} W",
        ("furiosa_rngd",),
        "llama-3.2-3b",
        "int8",
        "joules_per_output_token",
        "J a token",
        1.0,
        1,
        1.0,
        most_w=EDGE_W,
    ),
    Use(
        "research: one rented chip",
        ("h100_sxm", "a100_80_sxm"),
        "llama-3-8b",
        "bf16",
        "usd_per_million_total_tokens",
        "$ per million tokens",
        1.0,
        1,
        16.0,
        basis="on_demand",
    ),
)


def find(given: Given) -> Measured:
    cells, today, then, figures, tables, ranked = [], [], [], {}, [], []
    for use in USES:
        best = _best(use)
        chips = load_catalog().chips
        old = {name: v for name, v in best.items() if (chips[name].year or THEN + 1) <= THEN}
        said = [best[name][0] for name in use.said if name in best]
        ratios = [_behind(use, among) for among in (best, old)]
        today.append(ratios[0])
        then.append(ratios[1])
        key = use.name.replace(",", "").replace(":", "").replace(" ", "_")
        figures |= {f"{key}_today": ratios[0], f"{key}_until_{THEN}": ratios[1]}
        order = sorted(best, key=lambda name: best[name][0])
        cells.append(
            (
                use.name,
                " or ".join(use.said),
                use.model,
                f"{digits(min(said) * use.scale)} {use.unit}" if said else "–",
                f"{order[0]} {digits(best[order[0]][0] * use.scale)}" if order else "–",
                times(ratios[0]),
                times(ratios[1]),
            )
        )
        tables.append(_ranking(use, best, order))
        ranked.append(len(order))
    holds = sum(ratio is not None and ratio <= given["near"] for ratio in today)
    held = sum(ratio is not None and ratio <= given["near"] for ratio in then)
    cells.append(
        ("large training", "h100_sxm or a TPU pod", "–", "needs the training model", *("–",) * 3)
    )
    return Measured(
        figures | {"uses": float(len(USES)), "hold_today": float(holds), "held_then": float(held)},
        (tuple(cells), *tables),
        {f"ranked_{k}": count for k, count in enumerate(ranked)},
    )


def _behind(use: Use, best: Best) -> float | None:
    """How far the best of the named chips lies behind the best of all; None where none is there."""
    said = [best[name][0] for name in use.said if name in best]
    return min(said) / min(value for value, _ in best.values()) if said else None


def points_of(use: Use) -> list[Point]:
    catalog, points = load_catalog(), []
    for name in usable_chips():
        chip = catalog.chips[name]
        if chip.availability not in SOLD or not (
            np.isinf(use.most_w) or (chip.tdp_w or np.inf) <= use.most_w
        ):
            continue
        domain = catalog.systems[chip.system].levels[0].size or use.chips
        for tp in (1, 2, 4, 8):
            if tp <= min(use.chips, domain) and catalog.refusal(name, tp) is None:
                for ep in {1, tp} if use.model.startswith("deepseek") else {1}:
                    points.append(
                        Point(
                            use.model,
                            name,
                            tp,
                            ep=ep,
                            concurrency=use.concurrency,
                            weight=use.weight,
                        )
                    )
    return points


def _best(use: Use) -> Best:
    """The least metric of every chip that can do it, and its deployment and kind."""
    answer: Answer = predict(points_of(use), 1000.0, 500.0, price_basis=use.basis)
    found: Best = {}
    for k, point in enumerate(answer.points):
        value = float(answer[use.metric][k])
        if (
            answer.feasible[k]
            and np.isfinite(value)
            and value < found.get(point.chip, (np.inf,))[0]
        ):
            found[point.chip] = (value, (point, str(answer.kind[k])))
    return found | _spread(use) if use.metric == "tpot_s" else found


def _spread(use: Use) -> Best:
    """Chips whose model is spread over as many as it takes (`dse estimate --fit`)."""
    best: Best = {}
    for chip in SPREAD:
        fastest = fitted(use.model, chip, "8 bits")["fastest"]
        if fastest is not None and load_catalog().chips[chip].availability in SOLD:
            point = Point(use.model, chip, float(fastest["chips"]))
            best[chip] = (float(fastest["tpot_s"]), (point, "assumed"))
    return best


def _ranking(use: Use, best: Best, order: list[str]) -> Rows:
    shown = [*order[:5], *(name for name in use.said if name in best and name not in order[:5])]
    rows = tuple(
        (
            str(order.index(name) + 1),
            name,
            str(load_catalog().chips[name].year or "–"),
            f"{best[name][1][0].tp:g}",
            digits(best[name][0] * use.scale),
            best[name][1][1],
        )
        for name in shown
    )
    return rows
