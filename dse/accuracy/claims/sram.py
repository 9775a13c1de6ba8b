"""A wafer, and many small chips with all memory on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dse.accuracy.claims.engine import Fact, Given, Measured
from dse.accuracy.claims.points import Point, batch_at, models, predict
from dse.answer.numbers import digits, in_ms, percent
from dse.catalog import load_catalog
from dse.physics.machines import compile_machines
from dse.physics.phases import layer_imbalance
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate
from dse.questions.estimate.fit import fit

WAFER = "wse3"
SMALL_CHIPS = ("groq_lpu_v1", "groq3_lp30")
PROMPT, OUTPUT = 1536.0, 512.0
CASES = (
    ("llama-3-8b", "bf16"),
    ("llama-3-8b", "8 bits"),
    ("gpt-neox-20b", "bf16"),
    ("llama-3-70b", "bf16"),
    ("llama-3-70b", "8 bits"),
    ("deepseek-v3", "8 bits"),
    ("deepseek-v3", "bf16"),
)
LARGE = (("llama-3-70b", "8 bits"), ("deepseek-v3", "8 bits"))
AROUND_20B = ("phi-4", "gpt-neox-20b", "gemma-3-27b", "qwen3-30b-a3b", "mpt-30b")
SPLITS = {"fewest": "The fewest chips", "fastest": "The fastest number of chips"}


@cache
def fitted(model: str, chip: str, precision: str) -> dict[str, Any]:
    """The document of `dse estimate --fit`: the fewest chips, and what more of them bring."""
    catalog = load_catalog()
    spec = catalog.chip(chip)
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends[spec.backend])
    found = fit(
        catalog,
        models()[model],
        chip,
        load,
        concurrency=1,
        most_chips=16_384,
        weight_dtype=_dtype(chip, precision),
    )
    return {**found, "id": model}


def _dtype(chip: str, precision: str) -> str:
    """8 bits are fp8 where the chip computes in it, else int8."""
    if precision == "bf16":
        return "bf16"
    return "fp8" if "fp8" in load_catalog().chip(chip).peak_flops_per_s else "int8"


def trips_share(found: dict[str, Any], row: dict[str, Any]) -> float:
    """Share of a decode step that goes to the fixed costs of kernels, for a row of `fitted`. On a
    wafer these are trips over its mesh (hardware/efficiency/class_wafer.yaml): kernels of its law
    have no other fixed cost."""
    catalog, chip = load_catalog(), found["chip"]
    degrees = (f"{name}_parallel" for name in ("tensor", "pipeline", "data", "expert"))
    weight, kv = found["weight_dtype"], found["kv_dtype"]
    at = Point(found["id"], chip, *(float(row[d]) for d in degrees), weight=weight, kv=kv)
    batch = batch_at([at], [chip])
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends[found["backend"]])
    answer = evaluate(batch, load, compile_machines(catalog, [chip])).performance
    fixed_s = answer.decode_ledger.fixed_s * layer_imbalance(batch)
    return float((fixed_s / answer.decode_step_s)[0])


@dataclass(frozen=True, slots=True)
class Shares:
    """Of a decode step: what `links` between chips take on a wafer machine, what they take with the
    trips over the mesh (`all_of_it`), and what links take on `small` chips with the same model."""

    links: float
    all_of_it: float
    small: float


def wafer_facts(rows: Sequence[Shares]) -> dict[str, Fact]:
    """Over the rows of each model, chip and split."""
    return {
        "links_more_most": max(row.small - row.links for row in rows),
        "all_more_least": min(row.small - row.all_of_it for row in rows),
        "all_of_it_most": max(row.all_of_it for row in rows),
    }


def find_wafer(given: Given) -> Measured:
    shares: dict[str, list[Shares]] = {split: [] for split in SPLITS}
    cells: dict[str, list[tuple[str, ...]]] = {split: [] for split in SPLITS}
    for model, precision in CASES:
        found = {chip: fitted(model, chip, precision) for chip in (WAFER, *SMALL_CHIPS)}
        for split in SPLITS:
            on_wafer = found[WAFER][split]
            trips = links = None
            if on_wafer is not None:
                trips = trips_share(found[WAFER], on_wafer)
                links = float(on_wafer["interconnect_share"])
            for chip, one in found.items():
                cells[split].append(
                    (
                        model,
                        one["weight_dtype"],
                        chip,
                        *_cells(one[split], trips if chip == WAFER else None),
                    )
                )
                if chip == WAFER or one[split] is None or trips is None or links is None:
                    continue
                small = float(one[split]["interconnect_share"])
                shares[split].append(Shares(links, links + trips, small))
    figures: dict[str, float | None] = {}
    for split, rows in shares.items():
        for name in ("links", "all_of_it", "small"):
            values = [getattr(row, name) for row in rows]
            figures |= {f"{split}_{name}_least": min(values), f"{split}_{name}_most": max(values)}

    return Measured(
        figures,
        tuple((tuple(cells[split]) for split, title in SPLITS.items())),
        wafer_facts([row for rows in shares.values() for row in rows]),
    )


def _cells(row: dict[str, Any] | None, trips: float | None) -> tuple[str, ...]:
    """Chips, time per token, links, and links with trips over the mesh where there is one."""
    if row is None:
        return ("none fits", *("–",) * 3)
    links = row["interconnect_share"]
    both = "–" if trips is None else percent(links + trips)
    return (f"{row['chips']:,}", in_ms(row["tpot_s"]), percent(links), both)


def find_size(given: Given) -> Measured:
    backend = load_catalog().chip(WAFER).backend
    points = [Point(name, WAFER, weight="bf16") for name in AROUND_20B]
    answer = predict(points, PROMPT, OUTPUT, backend=backend)
    held = [
        (float(size), bool(fits))
        for size, fits in zip(answer["total_parameters"], answer.feasible, strict=True)
    ]
    rows = tuple(
        (
            name,
            digits(size / 1e9),
            f"{digits(answer['memory_bytes_per_chip'][k] / 1e9)} of "
            f"{digits(answer['memory_capacity_bytes_per_chip'][k] / 1e9)} GB",
            "runs" if fits else "refused: memory_capacity",
            in_ms(answer["tpot_s"][k]) if fits else "–",
        )
        for k, (name, (size, fits)) in enumerate(zip(AROUND_20B, held, strict=True))
    )
    counts, chips = [], []
    for model, precision in LARGE:
        for chip in SMALL_CHIPS:
            found = fitted(model, chip, precision)
            few = found["fewest"]
            counts.append(
                (
                    model,
                    found["weight_dtype"],
                    chip,
                    f"{found['at_least_by_bytes']:,}",
                    *_cells(few, None)[:3],
                )
            )
            if chip == SMALL_CHIPS[0]:
                chips.append(None if few is None else float(few["chips"]))
    largest = max((size for size, fits in held if fits), default=0.0)
    refused = min((size for size, fits in held if not fits), default=0.0)
    said = " and ".join(
        f"{models()[model].name} {'none' if count is None else f'{count:,.0f}'}"
        for (model, _), count in zip(LARGE, chips, strict=True)
    )
    return Measured(
        {
            "largest_held": largest,
            "least_refused": refused,
            **{
                f"groq_chips_{model.replace('-', '_')}": count
                for (model, _), count in zip(LARGE, chips, strict=True)
            },
        },
        (rows, tuple(counts)),
        {
            "many_chips": float(
                np.mean([count is None or count >= given["many"] for count in chips])
            ),
            "largest_held_b": largest / 1e9,
            "least_refused_b": refused / 1e9,
            "said": said,
        },
    )
