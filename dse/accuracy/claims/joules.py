"""Claims 15 and 24: the energy of reading and of multiplying, and performance per watt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.accuracy.claim_energy import batch_amortises, energy_ratios, performance_per_watt
from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.answer.numbers import digits, percent, times

NODE, MULTIPLY = "7 nm", "int8 multiply"
UP_TO, AMORTISED = 1000.0, 2.0
CHIP = "h100_sxm"
GPUS = ("NVIDIA", "AMD")
SPLIT, FLAT = 2022, 1.2  # the year that halves the catalog's GPUs; growth a year that is still flat
COLUMNS = {
    "reached_flop_per_j": "FLOP/J reached, 16 bits",
    "narrow_peak_flop_per_j": "peak FLOP/J, narrowest format",
    "tokens_per_j": "tokens/J, 16 bits",
    "narrow_tokens_per_j": "tokens/J, narrowest format",
}


def judge_reading(ratios: Mapping[str, float], amortised: float) -> str:
    """`ratios`: joules to read a parameter over those of its multiply, by memory; `amortised`:
    joules a token at one request over those at many."""
    least, most = UP_TO / 2.0, UP_TO * 2.0
    about = {name for name, ratio in ratios.items() if least <= ratio <= most}
    if not about or amortised < AMORTISED:
        return CONTRADICTED
    return QUALIFIED if max(ratios.values()) > UP_TO else CONFIRMED


def find_reading() -> Finding:
    rows = energy_ratios()
    chosen = [row for row in rows if row["node"] == NODE and row["multiply"] == MULTIPLY]
    ratios = {str(row["memory"]): float(row["ratio"]) for row in chosen}
    batches = batch_amortises(CHIP)
    joules = [float(row["joules_per_output_token"]) for row in batches]
    amortised = joules[0] / min(joules)
    figures: dict[str, float | None] = {
        f"ratio_{name.replace(', ', '_').replace(' ', '_').lower()}": ratio
        for name, ratio in ratios.items()
    }
    figures["joules_fall_with_batch"] = amortised
    said = ", ".join(f"{digits(ratio)} {name}" for name, ratio in ratios.items())
    return Finding(
        judge_reading(ratios, amortised),
        f"reading 8 bits takes this many times the energy of an int8 multiply at 7 nm: {said}; "
        f"from 1 request to {batches[-1]['concurrency']:,} the joules a token fall "
        f"{times(amortised)}",
        figures,
        "Energies of single operations and accesses at 45 and 7 nm; batches: llama-3-8b on "
        f"{CHIP}, prompt 128, output 512.",
        (
            Table(
                "Joules to read a number over joules to multiply it",
                ("node", "multiply", "memory", "times", "of a whole access", "kind"),
                tuple(
                    (
                        str(row["node"]), str(row["multiply"]), str(row["memory"]),
                        digits(row["ratio"]), digits(row["ratio_of_whole_access"]),
                        str(row["kind"]),
                    )
                    for row in rows
                ),
            ),
            Table(
                f"Batching on {CHIP}",
                ("requests", "joules a token", "watts a chip", "data movement"),
                tuple(
                    (
                        f"{row['concurrency']:,}", digits(row["joules_per_output_token"]),
                        digits(row["watts_per_chip"]), percent(row["energy_data_movement_share"]),
                    )
                    for row in batches
                ),
            ),
        ),
        "Single energies are claimed (Horowitz 2014; Jouppi et al. 2021); joules a token are "
        "derived from figures by level, of which docs/energy.md says which are measured and which "
        "assumed.",
        "Energies of the memories and nodes of today's chips; the arithmetic of narrower formats.",
    )  # fmt: skip


def growth(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[float, float] | None:
    """Growth a year of the best chip so far in `column`, until SPLIT and after; None where a side
    has no chip."""
    known = [(int(row["year"]), float(row[column])) for row in rows if row[column] is not None]
    first, last = min(year for year, _ in known), max(year for year, _ in known)
    if not first < SPLIT < last:
        return None
    start, middle, end = (
        max(value for year, value in known if year <= limit) for limit in (first, SPLIT, last)
    )
    return (middle / start) ** (1.0 / (SPLIT - first)), (end / middle) ** (1.0 / (last - SPLIT))


def judge_growth(growths: Mapping[str, tuple[float, float]]) -> str:
    """By measure, growth a year until SPLIT and after."""
    flat = [after < before and after <= FLAT for before, after in growths.values()]
    if not any(flat):
        return CONTRADICTED
    return CONFIRMED if all(flat) else QUALIFIED


def find_growth() -> Finding:
    rows = performance_per_watt(vendors=GPUS)
    growths = {name: found for name in COLUMNS if (found := growth(rows, name)) is not None}
    figures: dict[str, float | None] = {}
    for name, (before, after) in growths.items():
        figures |= {f"{name}_until_{SPLIT}": before, f"{name}_after": after}
    watts = [float(row["watts"]) for row in rows]
    figures["most_watts"] = max(watts)
    said = "; ".join(
        f"{COLUMNS[name]} {times(before)}, then {times(after)}"
        for name, (before, after) in growths.items()
    )
    return Finding(
        judge_growth(growths),
        f"growth a year of the best GPU until {SPLIT}, and after: {said}",
        figures,
        f"GPUs of NVIDIA and AMD that are sold, {len(rows)} with a rated power; FLOP at the "
        "measured rate of large products, or at the peak of the narrowest format; tokens of "
        "llama-3-8b at 64 requests, prompt 2,048, output 512.",
        (
            Table(
                "Growth a year of the best chip so far",
                ("measure", f"until {SPLIT}", "after"),
                tuple(
                    (COLUMNS[name], times(before), times(after))
                    for name, (before, after) in growths.items()
                ),
            ),
            Table(
                "GPUs by year",
                ("chip", "year", "W", "GFLOP/J reached", "narrowest", "peak GFLOP/J", "tokens/J",
                 "tokens/J, narrowest", "kernels"),
                tuple(
                    (
                        str(row["chip"]), str(row["year"]), digits(row["watts"]),
                        digits(row["reached_flop_per_j"] / 1e9), str(row["narrow_dtype"]),
                        digits(row["narrow_peak_flop_per_j"] / 1e9), digits(row["tokens_per_j"]),
                        digits(row["narrow_tokens_per_j"]), str(row["kind"]),
                    )
                    for row in rows
                ),
            ),
        ),
        "Peaks and rated powers are specifications, reached rates fitted, derived or assumed; "
        "tokens a joule are derived.",
        "Power of a chip at work was measured for few of them; host, network and cooling are left "
        "out of these ratios.",
    )  # fmt: skip


CLAIMS = (
    Claim(
        15,
        "Reading a parameter costs up to 1,000 times the energy of the multiply; batching "
        "amortises it.",
        (
            "dse claims 15",
            "dse explain --model llama-3-8b --chip h100_sxm --concurrency 1",
        ),
        f"At {NODE}, 8 bits: contradicted where no memory is within a factor of two of "
        f"{UP_TO:,.0f} times, or many requests do not divide the joules a token by {AMORTISED:g}; "
        "qualified where a memory takes more; else confirmed.",
        find_reading,
    ),
    Claim(
        24,
        "The performance per watt of GPUs is flattening; power and cooling become the limit.",
        ("dse claims 24",),
        f"A measure is flat where it grows less after {SPLIT} than before, and by at most "
        f"{FLAT - 1:.0%} a year. Confirmed where all are, contradicted where none is, else "
        "qualified.",
        find_growth,
    ),
)
