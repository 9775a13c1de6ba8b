"""The sentences of `dse train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.numbers import bytes_, large, plain, share, show, show_as, time
from dse.rules.registry import row_words

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
LARGE_BUBBLE = 0.1  # of a step, worth a sentence


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
    """What was asked."""
    return (
        f"{answer['model']} ({large(answer['total_parameters'])} parameters) on "
        f"{answer['chips']:,} x {answer['chip']}, {large(answer['tokens'])} tokens, "
        f"{answer['task']} in {answer['precision']}, sequences of {answer['sequence_length']:,}, "
        f"{large(answer['global_batch_tokens'])} tokens a step; stack {answer['stack']}, "
        f"prices {answer['price_basis']}"
    )


def sentences(answer: Mapping[str, Any]) -> list[str]:
    """The answer, then what it is made of; of a run that does not fit, why."""
    if not answer["feasible"]:
        return infeasible(answer)
    money = "no price" if answer["usd"] is None else show("training_usd", answer["usd"])
    energy = "no power figure" if answer["kwh"] is None else show("training_kwh", answer["kwh"])
    low, high = (show("training_days", end) for end in answer["intervals"]["days"])
    return [
        f"{show('training_days', answer['days'])} ({low} to {high}, {answer['interval_kind']}), "
        f"{large(round(answer['chip_hours']), 4)} chip-hours, {money}, {energy}.",
        f"Best of {answer['plans_evaluated']:,} plans, {answer['plans_that_fit']:,} of which fit: "
        f"{plan_words(answer['parallelism'])}.",
        *_usual(answer),
        *_waiting(answer),
        f"Step {time(answer['step_s'])}, {share(answer['mfu'])} MFU "
        f"({share(answer['mfu_6n'])} without attention, {share(answer['hfu'])} with what is "
        f"recomputed), {plain(answer['tokens_per_s_per_chip'])} tokens/s per chip. MFU counts "
        f"{answer['mfu_convention']}.",
        _goodput(answer),
        *_host(answer),
    ]


def _usual(answer: Mapping[str, Any]) -> list[str]:
    """What to expect of a team: published runs did not reach their best plan."""
    if (usual := answer["usual"]) is None:
        return []
    money = "" if usual["usd"] is None else f", {show('training_usd', usual['usd'])}"
    least, most = usual["over_best_range"]
    return [
        f"Usual: {show('training_days', usual['days'])}, {large(round(usual['chip_hours']), 4)} "
        f"chip-hours{money}: published runs took {least:.2f} to {most:.2f} times the hours of the "
        f"best plan that is found for them, in the mean {usual['over_best']:.2f}."
    ]


def observed_words(why: Mapping[str, Any]) -> str:
    """What the observed MFU costs, and the cause with a fixed size that explains most."""
    money = "" if why["usd"] is None else f" and {show('training_usd', why['usd'])}"
    sized = next((row for row in why["causes"] if row["mfu"] > why["mfu"]), None)
    said = ""
    if sized is not None:
        said = f" Of fixed causes most by itself: {sized['cause']} ({share(sized['explains'])})."
    return (
        f"At {share(why['mfu'])} MFU, where the best plan reaches {share(why['best_mfu'])}, the "
        f"run takes {show('training_days', why['days'])}{money}.{said}"
    )


def _waiting(answer: Mapping[str, Any]) -> list[str]:
    """Where a small batch makes pipeline stages wait."""
    if (bubble := answer["loss_shares"]["bubble"]) < LARGE_BUBBLE:
        return []
    return [
        f"Pipeline stages wait for {share(bubble)} of a step of "
        f"{large(answer['global_batch_tokens'])} tokens: more tokens a step "
        "(--global-batch-tokens) or another --schedule shorten that."
    ]


def memory_sentences(answer: Mapping[str, Any]) -> list[str]:
    """The same of `dse train --memory`."""
    return [
        f"{answer['model']}, {large(answer['total_parameters'])} parameters: 16-bit weights and "
        f"gradients and the states of {answer['optimizer']} take "
        f"{bytes_(answer['memory_unsharded_bytes']['total'])}, not divided over chips.",
        *([] if answer["feasible"] else infeasible(answer)[:1]),
        *_host(answer),
    ]


def _host(answer: Mapping[str, Any]) -> list[str]:
    held = answer["host_memory_bytes_per_chip"]
    return [f"In the host, a chip: {bytes_(held)}."] if held else []


def _goodput(answer: Mapping[str, Any]) -> str:
    parts, runs = answer["goodput_parts"], answer["interruptions"]
    return (
        f"Goodput {share(answer['goodput'])}: an interruption every "
        f"{show_as('time', 3600.0 * runs['hours_between'])}; checkpoints of "
        f"{bytes_(runs['checkpoint_bytes'])} in {time(runs['checkpoint_s'])} every "
        f"{time(runs['checkpoint_interval_s'])} take {share(parts['writing_checkpoints'])}, lost "
        f"work {share(parts['lost_work'])}, restarts of {time(runs['restart_s'])} "
        f"{share(parts['restarting'])}."
    )


def infeasible(answer: Mapping[str, Any]) -> list[str]:
    """What the nearest miss breaks, and what would fit."""
    broken = "; ".join(map(row_words, answer["violations"]))
    parts = answer["memory_bytes_per_chip_parts"]
    most = max(parts, key=lambda name: parts[name])
    lines = [
        f"Not feasible: none of {answer['plans_evaluated']:,} plans fits. The nearest miss is "
        f"{plan_words(answer['parallelism'])}. It {broken}."
    ]
    if (free := answer["without_degrees"]) is not None:
        lines.append(
            f"Without the degrees that were asked for, {plan_words(free['parallelism'])} fits: "
            f"{show('training_days', free['days'])}."
        )
    if any(row["constraint"] == "memory_capacity" for row in answer["violations"]):
        lines.append(
            f"Its memory is mostly {most}: {bytes_(parts[most])} of "
            f"{bytes_(answer['memory_bytes_per_chip'])} on a chip of "
            f"{bytes_(answer['memory_capacity_bytes_per_chip'])}."
        )
    return [*lines, *_host(answer)]
