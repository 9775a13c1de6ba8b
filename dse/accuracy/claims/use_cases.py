"""Which chip for which use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import Point, domain_of, predict, usable_chips
from dse.accuracy.claims.sram import fitted
from dse.answer.numbers import digits
from dse.catalog import load_catalog

THEN = 2024  # the year from which the table that the claim quotes dates
SOLD = ("shipping", "shipping_legacy", "shipping_cn", "cloud", "cloud_legacy", "restricted")
EDGE_W = 200.0
SPREAD = ("groq_lpu_v1", "groq3_lp30", "wse3")


@dataclass(frozen=True, slots=True)
class Best:
    """The least metric that a chip reaches, on how many chips and with which kind of efficiency."""

    value: float
    chips: float
    kind: str


@dataclass(frozen=True, slots=True)
class Use:
    """One cell: `model` for `concurrency` requests on groups of up to `chips` chips; less of
    `metric` is better. `said`: the chips that the claim names."""

    name: str
    said: tuple[str, ...]
    model: str
    weight: str = "fp8"
    metric: str = "tpot_s"
    unit: str = "ms a token"
    scale: float = 1e3
    chips: int = 8
    concurrency: float = 1.0
    basis: str = "rental_3yr"
    most_w: float = np.inf


USES = (
    Use("low latency, small model", ("groq_lpu_v1", "h100_sxm"), "llama-3-8b"),
    Use("low latency, large dense model", ("h200_sxm",), "llama-3.1-405b"),
    Use("low latency, large sparse model", ("h200_sxm",), "deepseek-v3"),
    Use(
        f"edge: one chip of at most {EDGE_W:g} W",
        ("furiosa_rngd",),
        "llama-3.2-3b",
        "int8",
        "joules_per_output_token",
        "J a token",
        1.0,
        1,
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
    chips = load_catalog().chips
    cells, held, figures, tables = [], [], {}, []
    for use in USES:
        best = _best(use)
        old = {name: one for name, one in best.items() if (chips[name].year or THEN + 1) <= THEN}
        ratios = [_behind(use, among) for among in (best, old)]
        held.append([ratio is not None and ratio <= given["near"] for ratio in ratios])
        key = use.name.replace(",", "").replace(":", "").replace(" ", "_")
        figures |= {f"{key}_today": ratios[0], f"{key}_until_{THEN}": ratios[1]}
        order = sorted(best, key=lambda name: best[name].value)
        reached = min((best[name].value for name in use.said if name in best), default=None)
        first = (order[0], digits(best[order[0]].value * use.scale)) if order else None
        said = (reached * use.scale, use.unit) if reached is not None else None
        cells.append((use.name, " or ".join(use.said), use.model, said, first, *ratios))
        tables.append(_ranking(use, best, order))
    cells.append(
        ("large training", "h100_sxm or a TPU pod", None, "needs the training model", *(None,) * 3)
    )
    today, then = (float(sum(column)) for column in zip(*held, strict=True))
    return Measured(
        figures | {"uses": float(len(USES)), "hold_today": today, "held_then": then},
        (cells, *(rows for rows, _ in tables)),
        {f"ranked_{k}": count for k, (_, count) in enumerate(tables)},
    )


def _behind(use: Use, best: dict[str, Best]) -> float | None:
    """How far the best of the named chips lies behind the best of all; None where none is there."""
    said = [best[name].value for name in use.said if name in best]
    return min(said) / min(one.value for one in best.values()) if said else None


def points_of(use: Use) -> list[Point]:
    catalog, points = load_catalog(), []
    for name in usable_chips():
        chip = catalog.chips[name]
        watts = np.inf if chip.tdp_w is None else chip.tdp_w
        if chip.availability not in SOLD or watts > use.most_w:
            continue
        most = min(use.chips, domain_of(name, use.chips))
        for tp in (tp for tp in (1, 2, 4, 8) if tp <= most and catalog.refusal(name, tp) is None):
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


def _best(use: Use) -> dict[str, Best]:
    """By chip that can do it. The model of low latency may be spread over as many chips as it takes
    (`dse estimate --fit`)."""
    answer = predict(points_of(use), 1000.0, 500.0, price_basis=use.basis)
    found: dict[str, Best] = {}
    for k, point in enumerate(answer.points):
        value = float(answer[use.metric][k])
        before = found[point.chip].value if point.chip in found else np.inf
        if answer.feasible[k] and np.isfinite(value) and value < before:
            found[point.chip] = Best(value, point.tp, str(answer.kind[k]))
    for chip in SPREAD if use.metric == "tpot_s" else ():
        fastest = fitted(use.model, chip, "8 bits")["fastest"]
        if fastest is not None and load_catalog().chips[chip].availability in SOLD:
            found[chip] = Best(float(fastest["tpot_s"]), float(fastest["chips"]), "assumed")
    return found


def _ranking(use: Use, best: dict[str, Best], order: list[str]) -> tuple[Rows, int]:
    """The first five and those named; the number of all."""
    shown = [*order[:5], *(name for name in use.said if name in best and name not in order[:5])]
    rows = [
        (
            order.index(name) + 1,
            name,
            load_catalog().chips[name].year or None,
            best[name].chips,
            best[name].value * use.scale,
            best[name].kind,
        )
        for name in shown
    ]
    return rows, len(order)
