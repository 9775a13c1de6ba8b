"""Claims 10 and 11: a wafer, and many small chips with all memory on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from dse.perf.workload import Workload
from dse.specs.catalog import load_catalog
from dse.study.fit import fit
from dse.validation.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.validation.claims.points import Point, models, predict
from dse.validation.claims.words import digits, milliseconds, percent

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
)
LARGE = (("llama-3-70b", "8 bits"), ("deepseek-v3", "8 bits"))
AROUND_20B = ("phi-4", "gpt-neox-20b", "gemma-3-27b", "qwen3-30b-a3b", "mpt-30b")
MATTERS, MANY = 0.05, 100


@cache
def fitted(model: str, chip: str, precision: str) -> dict[str, Any]:
    """The document of `dse hardware fit`: the fewest chips, and what more of them bring."""
    catalog = load_catalog()
    spec = catalog.chip(chip)
    load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends[spec.backend])
    return fit(
        catalog, models()[model], chip, load, concurrency=1, most_chips=16_384,
        weight_dtype=_dtype(chip, precision),
    )  # fmt: skip


def _dtype(chip: str, precision: str) -> str:
    """8 bits are fp8 where the chip computes in it, else int8."""
    if precision == "bf16":
        return "bf16"
    return "fp8" if "fp8" in load_catalog().chip(chip).peak_flops_per_s else "int8"


def judge_wafer(wafer: Sequence[float], small: Sequence[float]) -> str:
    """Shares of a decode step that the interconnect takes, of the same models, on the fastest
    number of wafers and of small chips."""
    worse = [b > a + MATTERS for a, b in zip(wafer, small, strict=True)]
    if not any(worse):
        return CONTRADICTED
    return CONFIRMED if all(worse) and max(wafer) <= MATTERS else QUALIFIED


def find_wafer() -> Finding:
    rows, wafer, small = [], [], []
    for model, precision in CASES:
        on_wafer = fitted(model, WAFER, precision)
        for chip in (WAFER, *SMALL_CHIPS):
            found = fitted(model, chip, precision)
            rows.append((model, found["weight_dtype"], chip, *_cells(found)))
            if chip != WAFER and found["fastest"] and on_wafer["fastest"]:
                wafer.append(float(on_wafer["fastest"]["interconnect_share"]))
                small.append(float(found["fastest"]["interconnect_share"]))
    figures: dict[str, float | None] = {
        "wafer_least": min(wafer),
        "wafer_most": max(wafer),
        "small_least": min(small),
        "small_most": max(small),
    }
    head = ("model", "format", "chip", "fewest chips", "per token", "interconnect",
            "fastest: chips", "per token", "interconnect")  # fmt: skip
    return Finding(
        judge_wafer(wafer, small),
        "of a decode step on the fastest number of chips the interconnect takes "
        f"{percent(min(wafer))} to {percent(max(wafer))} on WSE-3, {percent(min(small))} to "
        f"{percent(max(small))} on Groq chips",
        figures,
        f"One request, prompt {PROMPT:g}, output {OUTPUT:g}; weights stay on the chip; all splits "
        "into tensor parallelism and stages.",
        (Table("The fewest chips, and the fastest number of them", head, tuple(rows)),),
        "Memory, bandwidth and links are specifications or claims of their makers; kernel laws of "
        "these machines are assumed, and checked against published speeds in docs/tiers.md. LP30 "
        "is announced, not shipped.",
        "What crosses a wafer from core to core is taken as part of its memory's time; its fabric "
        "has no published collective times.",
    )  # fmt: skip


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    few, fast = found["fewest"], found["fastest"]
    if few is None:
        return ("does not fit", *("–",) * 5)
    return tuple(
        cell
        for row in (few, fast)
        for cell in (
            f"{row['chips']:,}", milliseconds(row["tpot_s"]), percent(row["interconnect_share"]),
        )
    )  # fmt: skip


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
            milliseconds(answer["tpot_s"][k]) if fits else "–",
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
                    *_cells(found)[:3],
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
        f"Contradicted where no model pays {MATTERS:.0%} of a step more on small chips; confirmed "
        f"where all do and the wafer pays at most {MATTERS:.0%}; else qualified.",
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
