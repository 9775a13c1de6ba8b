"""A training answer as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.numbers import digits, percent
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.rules.registry import row_words

Part = Any  # a sentence, or (head, rows, right-aligned columns)
BAR = 30
LEAST_SHARE = 0.0005  # of a step, below which a loss is not shown
SHORT_LOSSES = {
    "ideal": "model's arithmetic at the peak",
    "higher_precision": "arithmetic in a wider format",
    "kernels": "kernels below the peak",
    "elementwise": "element-wise kernels",
    "recomputation": "recomputation",
    "imbalance": "uneven stages and experts",
    "bubble": "pipeline bubble",
    "tensor_communication": "tensor-parallel traffic",
    "context_communication": "context-parallel traffic",
    "expert_communication": "expert traffic",
    "pipeline_communication": "traffic between stages",
    "data_communication": "data-parallel traffic",
    "optimizer": "optimizer",
    "host": "host",
    "stragglers": "stragglers",
    "sites": "traffic between sites",
    "input_pipeline": "input pipeline",
}


RECOMPUTED = {
    "none": "nothing recomputed",
    "selective": "norms and activations recomputed",
    "mlp": "feed-forwards recomputed",
    "moe": "experts recomputed",
    "full": "all layers recomputed",
}


def gigabytes(size: float) -> str:
    return f"{digits(size / 1e9)} GB" if size < 9.995e11 else f"{digits(size / 1e12)} TB"


def count(amount: float, places: int = 3) -> str:
    """`15.6T`, `30.84M`, `840,000`: plain below a million."""
    for scale, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if amount >= scale:
            return f"{digits(amount / scale, places)}{letter}"
    return digits(amount, places)


def kilowatt_hours(amount: float) -> str:
    scale, unit = (1e6, "GWh") if amount >= 1e6 else (1e3, "MWh") if amount >= 1e3 else (1.0, "kWh")
    return f"{digits(amount / scale)} {unit}"


def dollars(usd: float | None) -> str:
    """`$61.7M`, `$12,300`."""
    if usd is None:
        return "no price"
    return f"${digits(usd / 1e6)}M" if usd >= 1e6 else f"${digits(usd)}"


def plan_words(plan: Mapping[str, Any]) -> str:
    """`TP 8 x PP 16 x DP 128, 8 virtual stages, micro-batch 1 x 16, ...`."""
    degrees = [
        f"{name} {plan[key]}"
        for key, name in (
            ("tensor_parallel", "TP"),
            ("context_parallel", "CP"),
            ("pipeline_parallel", "PP"),
            ("data_parallel", "DP"),
        )
        if plan[key] > 1
    ] or ["one chip"]
    words = [" x ".join(degrees)]
    if plan["expert_parallel"] > 1:
        words.append(f"EP {plan['expert_parallel']}")
    if plan["virtual_stages"] > 1:
        words.append(f"{plan['virtual_stages']} virtual stages")
    words.append(f"micro-batch {plan['micro_batch']} x {plan['micro_batches']}")
    words.append(f"ZeRO {plan['zero_stage']}")
    recompute = plan["recompute"]
    words.append(RECOMPUTED[recompute])
    return ", ".join(words)


def heading(answer: Mapping[str, Any]) -> str:
    return (
        f"{answer['model']} ({count(answer['total_parameters'])} parameters) on "
        f"{answer['chips']:,} x {answer['chip']}, {count(answer['tokens'])} tokens, "
        f"{answer['task']} in {answer['precision']}, sequences of {answer['sequence_length']:,}, "
        f"{count(answer['global_batch_tokens'])} tokens a step; stack {answer['stack']}, "
        f"prices {answer['price_basis']}."
    )


def print_words(answer: Mapping[str, Any]) -> list[Part]:
    """The whole answer."""
    if not answer["feasible"]:
        return [heading(answer), *_infeasible(answer), *_rests_on(answer)]
    money = dollars(answer["usd"])
    energy = "no power figure" if answer["kwh"] is None else kilowatt_hours(answer["kwh"])
    spans = answer["intervals"]
    days = [digits(end) for end in spans["days"]]
    return [
        heading(answer),
        f"{digits(answer['days'])} days ({days[0]} to {days[1]}, {answer['interval_kind']}), "
        f"{count(answer['chip_hours'], 4)} chip-hours, {money}, {energy}.",
        f"Best of {answer['plans_evaluated']:,} plans, {answer['plans_that_fit']:,} of which fit: "
        f"{plan_words(answer['parallelism'])}.",
        _figures(answer),
        *_losses(answer),
        *_goodput(answer),
        *_memory(answer),
        *_next(answer),
        *_rests_on(answer),
    ]


def memory_words(answer: Mapping[str, Any]) -> list[Part]:
    """`dse train --memory`."""
    whole = answer["memory_unsharded_bytes"]
    rows = [(name, gigabytes(whole[name])) for name in ("weights", "gradients", "optimizer")]
    rows.append(("total", gigabytes(whole["total"])))
    rows.append(("FP32 master copy, beside it", gigabytes(whole["master_copy"])))
    return [
        f"{answer['model']}, {count(answer['total_parameters'])} parameters: 16-bit "
        f"weights and gradients and the states of {answer['optimizer']}, not divided over chips.",
        (("the whole model", "memory"), rows, (1,)),
        *([] if answer["feasible"] else _infeasible(answer)[:1]),
        *_memory(answer),
    ]


def _figures(answer: Mapping[str, Any]) -> str:
    return (
        f"Step {digits(answer['step_s'])} s, {percent(answer['mfu'])} MFU "
        f"({percent(answer['mfu_6n'])} without attention, {percent(answer['hfu'])} with what is "
        f"recomputed), {digits(answer['tokens_per_s_per_chip'])} tokens/s per chip. MFU counts "
        f"{answer['mfu_convention']}."
    )


def _losses(answer: Mapping[str, Any]) -> list[Part]:
    rows = []
    for name in LOSSES_AT_SCALE:
        share = answer["loss_shares"][name]
        if share >= LEAST_SHARE:
            bar = "#" * max(round(BAR * share), 1)
            seconds = f"{digits(answer['losses_s'][name])} s"
            rows.append((SHORT_LOSSES[name], seconds, f"{share:.1%}", bar))
    return [(("where a step goes", "", "", ""), rows, (1, 2))]


def _goodput(answer: Mapping[str, Any]) -> list[Part]:
    parts, runs = answer["goodput_parts"], answer["interruptions"]
    return [
        f"Goodput {percent(answer['goodput'])}: an interruption every "
        f"{digits(runs['hours_between'])} h; checkpoints of {gigabytes(runs['checkpoint_bytes'])} "
        f"in {digits(runs['checkpoint_s'])} s every {digits(runs['checkpoint_interval_s'] / 60)} "
        f"min take {percent(parts['writing_checkpoints'])}, lost work {percent(parts['lost_work'])}"
        f", restarts of {digits(runs['restart_s'] / 60)} min {percent(parts['restarting'])}."
    ]


def _memory(answer: Mapping[str, Any]) -> list[Part]:
    capacity = answer["memory_capacity_bytes_per_chip"]
    rows = []
    for name, size in answer["memory_bytes_per_chip_parts"].items():
        if size > 0.0:
            bar = "#" * max(round(BAR * size / capacity), 1) if size < 2 * capacity else "..."
            rows.append((name, gigabytes(size), f"{size / capacity:.1%}", bar))
    used = answer["memory_bytes_per_chip"]
    rows.append(("all of it", gigabytes(used), f"{used / capacity:.1%}", ""))
    parts: list[Part] = [
        (
            ("memory of the fullest chip", "", f"of {gigabytes(capacity)}", ""),
            rows,
            (1, 2),
        )
    ]
    if answer["host_memory_bytes_per_chip"]:
        parts.append(f"In the host, a chip: {gigabytes(answer['host_memory_bytes_per_chip'])}.")
    return parts


def _next(answer: Mapping[str, Any]) -> list[Part]:
    rows = [
        (
            plan_words(row["parallelism"]),
            f"{digits(row['step_s'])} s",
            f"{row['mfu']:.1%}",
            digits(row["days"]),
            gigabytes(row["memory_bytes_per_chip"]),
        )
        for row in answer["next_plans"]
    ]
    if not rows:
        return []
    return [(("the next ways to divide it", "step", "MFU", "days", "memory"), rows, (1, 2, 3, 4))]


def _infeasible(answer: Mapping[str, Any]) -> list[Part]:
    broken = "; ".join(map(row_words, answer["violations"]))
    parts = answer["memory_bytes_per_chip_parts"]
    most = max(parts, key=lambda name: parts[name])
    lines: list[Part] = [
        f"Not feasible: none of {answer['plans_evaluated']:,} plans fits. The nearest miss is "
        f"{plan_words(answer['parallelism'])}. It {broken}."
    ]
    if (free := answer["without_degrees"]) is not None:
        lines.append(
            f"Without the degrees that were asked for, {plan_words(free['parallelism'])} fits: "
            f"{digits(free['days'])} days."
        )
    if any(row["constraint"] == "memory_capacity" for row in answer["violations"]):
        lines.append(
            f"Its memory is mostly {most}: {gigabytes(parts[most])} of "
            f"{gigabytes(answer['memory_bytes_per_chip'])} on a chip of "
            f"{gigabytes(answer['memory_capacity_bytes_per_chip'])}."
        )
    return [*lines, *_memory(answer)]


def _rests_on(answer: Mapping[str, Any]) -> list[Part]:
    return ["Rests on:", *(f"- {sentence}" for sentence in answer["assumed"])]
