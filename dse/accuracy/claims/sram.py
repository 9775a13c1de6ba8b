"""A wafer, and many small chips with all memory on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dse.accuracy.claims.engine import Cell, Fact, Given, Measured, ends, share
from dse.accuracy.claims.points import Point, batch_at, models, predict
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
SPLITS = ("fewest", "fastest")


@cache
def fitted(model: str, chip: str, precision: str) -> dict[str, Any]:
    """The document of `dse estimate --fit`: the fewest chips, and what more of them bring. 8 bits
    are fp8 where the chip computes in it, else int8."""
    catalog = load_catalog()
    spec = catalog.chip(chip)
    eight = "fp8" if "fp8" in spec.peak_flops_per_s else "int8"
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends[spec.backend])
    found = fit(
        catalog,
        models()[model],
        chip,
        load,
        concurrency=1,
        most_chips=16_384,
        weight_dtype="bf16" if precision == "bf16" else eight,
    )
    return {**found, "id": model}


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
    fixed_s = answer.detail.decode_ledger.fixed_s * layer_imbalance(batch)
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
    figures: dict[str, float | None] = {}
    tables, every = [], []
    for split in SPLITS:
        shares, rows = [], []
        for model, precision in CASES:
            wafer: tuple[float, float] | None = None  # links, and links with trips
            for chip in (WAFER, *SMALL_CHIPS):
                found = fitted(model, chip, precision)
                row, mesh = found[split], None
                if row is not None and chip == WAFER:
                    mesh = row["interconnect_share"] + trips_share(found, row)
                    wafer = (row["interconnect_share"], mesh)
                elif row is not None and wafer is not None:
                    shares.append(Shares(*wafer, row["interconnect_share"]))
                rows.append((model, found["weight_dtype"], chip, *_cells(row), mesh))
        for name in ("links", "all_of_it", "small"):
            figures |= ends(f"{split}_{name}", (getattr(row, name) for row in shares))
        tables.append(rows)
        every += shares
    return Measured(figures, tables, wafer_facts(every))


def _cells(row: dict[str, Any] | None) -> tuple[Cell, ...]:
    """Chips, time per token, links."""
    if row is None:
        return ("none fits", None, None)
    return row["chips"], row["tpot_s"], row["interconnect_share"]


def find_size(given: Given) -> Measured:
    points = [Point(name, WAFER, weight="bf16") for name in AROUND_20B]
    answer = predict(points, PROMPT, OUTPUT, backend=load_catalog().chip(WAFER).backend)
    size, fits = answer["total_parameters"], answer.feasible
    used = zip(
        answer["memory_bytes_per_chip"], answer["memory_capacity_bytes_per_chip"], strict=True
    )
    rows = [
        (
            *(name, size[k], of),
            *(("runs", answer["tpot_s"][k]) if fits[k] else ("refused: memory_capacity", None)),
        )
        for k, (name, of) in enumerate(zip(AROUND_20B, used, strict=True))
    ]
    counts, chips = [], {}
    for model, precision in LARGE:
        for chip in SMALL_CHIPS:
            found = fitted(model, chip, precision)
            few = found["fewest"]
            least = found["at_least_by_bytes"]
            counts.append((model, found["weight_dtype"], chip, least, *_cells(few)))
            if chip == SMALL_CHIPS[0]:
                chips[model] = None if few is None else float(few["chips"])
    largest = float(max(size[fits], default=0.0))
    refused = float(min(size[~fits], default=0.0))
    said = [
        f"{models()[model].name} {'none' if count is None else f'{count:,.0f}'}"
        for model, count in chips.items()
    ]
    of_groq = {f"groq_chips_{name.replace('-', '_')}": count for name, count in chips.items()}
    many = share(count is None or count >= given["many"] for count in chips.values())
    return Measured(
        {"largest_held": largest, "least_refused": refused, **of_groq},
        (rows, counts),
        {
            "many_chips": many,
            "largest_held_b": largest / 1e9,
            "least_refused_b": refused / 1e9,
            "said": " and ".join(said),
        },
    )
