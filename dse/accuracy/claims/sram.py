"""Claims 10 and 11: a wafer, and many small chips with all memory on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
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
MATTERS, MANY = 0.05, 100
SPLITS = {"fewest": "The fewest chips", "fastest": "The fastest number of chips"}


@cache
def fitted(model: str, chip: str, precision: str) -> dict[str, Any]:
    """The document of `dse hardware fit`: the fewest chips, and what more of them bring."""
    catalog = load_catalog()
    spec = catalog.chip(chip)
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends[spec.backend])
    found = fit(
        catalog, models()[model], chip, load, concurrency=1, most_chips=16_384,
        weight_dtype=_dtype(chip, precision),
    )  # fmt: skip
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


def judge_wafer(rows: Sequence[Shares]) -> str:
    """Rows of each model, chip and split."""
    if not any(row.small > row.links + MATTERS for row in rows):
        return CONTRADICTED
    avoided = all(row.small > row.all_of_it + MATTERS and row.all_of_it <= MATTERS for row in rows)
    return CONFIRMED if avoided else QUALIFIED


def find_wafer() -> Finding:
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
                    (model, one["weight_dtype"], chip,
                     *_cells(one[split], trips if chip == WAFER else None))
                )  # fmt: skip
                if chip == WAFER or one[split] is None or trips is None or links is None:
                    continue
                small = float(one[split]["interconnect_share"])
                shares[split].append(Shares(links, links + trips, small))
    figures: dict[str, float | None] = {}
    for split, rows in shares.items():
        for name in ("links", "all_of_it", "small"):
            values = [getattr(row, name) for row in rows]
            figures |= {f"{split}_{name}_least": min(values), f"{split}_{name}_most": max(values)}

    def said(split: str, name: str) -> str:
        least, most = figures[f"{split}_{name}_least"], figures[f"{split}_{name}_most"]
        return f"{percent(least)} to {percent(most)}"

    head = ("model", "format", "chip", "chips", "per token", "links", "links and mesh")
    return Finding(
        judge_wafer([row for rows in shares.values() for row in rows]),
        f"of a decode step links between wafers take {said('fewest', 'links')} on the fewest "
        f"wafers and {said('fastest', 'links')} on the fastest number; with the trips over the "
        f"mesh of each wafer the interconnect takes {said('fewest', 'all_of_it')} and "
        f"{said('fastest', 'all_of_it')}; links between Groq chips take "
        f"{said('fewest', 'small')} and {said('fastest', 'small')}",
        figures,
        f"One request, prompt {PROMPT:g}, output {OUTPUT:g}; weights stay on the chip; all splits "
        "into tensor parallelism and stages. The fewest chips are often split by tensor "
        "parallelism, which over the Ethernet of wafers is slow.",
        tuple(
            Table(f"{title}, and shares of a decode step", head, tuple(cells[split]))
            for split, title in SPLITS.items()
        ),
        "Memory, bandwidth and links are specifications or claims of their makers; kernel laws of "
        "these machines are assumed, and checked against published speeds in docs/tiers.md. LP30 "
        "is announced, not shipped.",
        "How much of a wafer's fixed cost is its mesh: out and back over its cores at an assumed "
        "clock for every product, from which the law takes all of it; its fabric has no published "
        "collective times. The truth lies between links and links and mesh. What crosses a Groq "
        "chip inside is in its kernels' fixed cost and counted for neither.",
    )


def _cells(row: dict[str, Any] | None, trips: float | None) -> tuple[str, ...]:
    """Chips, time per token, links, and links with trips over the mesh where there is one."""
    if row is None:
        return ("none fits", *("–",) * 3)
    links = row["interconnect_share"]
    both = "–" if trips is None else percent(links + trips)
    return (f"{row['chips']:,}", in_ms(row["tpot_s"]), percent(links), both)


def judge_size(held: Sequence[tuple[float, bool]], chips: Sequence[float | None]) -> str:
    """`held`: (parameters, whether one wafer holds them in 16 bits); `chips`: the Groq v1 chips
    that large models take, None where none hold them."""
    most = max((size for size, fits in held if fits), default=0.0)
    least_refused = min((size for size, fits in held if not fits), default=float("inf"))
    bound = 18e9 <= most <= 23e9 and least_refused <= 30e9
    many = [count is None or count >= MANY for count in chips]
    if not bound and not any(many):
        return CONTRADICTED
    return CONFIRMED if bound and all(many) else QUALIFIED


def find_size() -> Finding:
    backend = load_catalog().chip(WAFER).backend
    points = [Point(name, WAFER, weight="bf16") for name in AROUND_20B]
    answer = predict(points, PROMPT, OUTPUT, backend=backend)
    held = [
        (float(size), bool(fits))
        for size, fits in zip(answer["total_parameters"], answer.feasible, strict=True)
    ]
    rows = tuple(
        (
            name, digits(size / 1e9),
            f"{digits(answer['memory_bytes_per_chip'][k] / 1e9)} of "
            f"{digits(answer['memory_capacity_bytes_per_chip'][k] / 1e9)} GB",
            "runs" if fits else "refused: memory_capacity",
            in_ms(answer["tpot_s"][k]) if fits else "–",
        )
        for k, (name, (size, fits)) in enumerate(zip(AROUND_20B, held, strict=True))
    )  # fmt: skip
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
    return Finding(
        judge_size(held, chips),
        f"one WSE-3 runs {digits(largest / 1e9)}B parameters in 16 bits at batch 1 and refuses "
        f"{digits(refused / 1e9)}B; of Groq v1 chips in 8 bits {said}",
        {
            "largest_held": largest,
            "least_refused": refused,
            **{
                f"groq_chips_{model.replace('-', '_')}": count
                for (model, _), count in zip(LARGE, chips, strict=True)
            },
        },
        f"Batch 1, prompt {PROMPT:g}, output {OUTPUT:g} (context 2,048), weights and cache on the "
        "chip.",
        (
            Table(
                "One WSE-3 in bf16",
                ("model", "billion parameters", "memory", "verdict", "per token"),
                rows,
            ),
            Table(
                "Chips for a large model",
                ("model", "format", "chip", "by bytes", "fewest chips", "per token", "network"),
                tuple(counts),
            ),
        ),
        "Capacities are specifications (44 GB; 230 and 500 MB); what fits is derived; LP30 is "
        "announced, not shipped.",
        "What a compiler keeps beside the weights on these chips; streaming of weights from "
        "outside a wafer, which Cerebras uses for training, is not serving as modelled here.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        10,
        "Wafer-scale avoids the interconnect cost that thousands of small SRAM chips pay.",
        (
            "dse claims 10",
            "dse hardware fit wse3 --model llama-3-70b --weight-dtype bf16",
            "dse hardware fit groq_lpu_v1 --model llama-3-70b --weight-dtype int8",
        ),
        f"Contradicted where links between small chips nowhere take {MATTERS:.0%} of a step more "
        "than links between wafers, trips over the mesh left out; confirmed where they take "
        f"{MATTERS:.0%} more everywhere with these trips counted as interconnect, which then is at "
        f"most {MATTERS:.0%} on wafers; else qualified. Fewest and fastest splits both count.",
        find_wafer,
    ),
    Claim(
        11,
        "A WSE-3 holds models of up to about 20B parameters in FP16; Groq needs many chips for a "
        "large model.",
        (
            "dse claims 11",
            "dse hardware fit wse3 --model gpt-neox-20b --weight-dtype bf16",
        ),
        "Confirmed where the largest model that one wafer holds has 18 to 23 billion parameters, "
        f"30 billion are refused, and every large model takes at least {MANY} Groq v1 chips; "
        "contradicted where neither half holds; else qualified.",
        find_size,
    ),
)
