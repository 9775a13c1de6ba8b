"""`dse.train`: a training run on given chips, and its answer: sentences, picture and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer, Block, Column, Figure, Table
from dse.answer.bars import memory_parts, share_bars
from dse.answer.numbers import bytes_, large, plain, share, show, show_as, time
from dse.catalog import Catalog, load_catalog
from dse.economics.prices import price_tables
from dse.economics.tco import with_basis
from dse.errors import InputError
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.questions.train.answer import Training
from dse.questions.train.answer import train as train_on
from dse.questions.train.observed import observed, written
from dse.rules.registry import row_words
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.training_run import TRAINING, training_terms

# Arguments whose names differ from the fields of a `training:` section.
FIELDS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "vpp": "virtual_stages",
}
# The other way round.
OPTION_OF = {field: name for name, field in FIELDS.items()}


def train(
    model: str | Path | Mapping[str, Any] | Model,
    chip: str,
    chips: int,
    *,
    tokens: str | None = None,
    price_basis: str = "rental_3yr",
    only_memory: bool = False,
    observed_mfu: str | None = None,
    catalog: Catalog | None = None,
    **options: Any,
) -> Answer:
    """Evaluates every way to divide a run over the chips that a framework would accept, and gives
    the fastest that fits: memory, step time, days, dollars and energy.

        dse.train("llama-3.1-405b", "h100_sxm", 16384, tokens="15.6T").document["days"]

    `model` is a catalog id, the path of a config.json, or what such a file says. `tokens` are those
    that it was trained on where none are given. `options` are the other options of `dse train`,
    with _ for - (tp, precision, global_batch_tokens, ...). `observed_mfu` (11%) asks which causes
    explain it and what mending each would save. Raises InputError for what cannot be
    read or divided.
    """
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    catalog = with_basis(catalog, price_basis)
    found = load_model(model)
    amount = 1.0 if only_memory else found.training_tokens
    if tokens is not None:
        amount = units.parse(tokens, "tokens", field="--tokens")
        units.check_training_tokens(amount, tokens, field="--tokens")
    if amount is None:
        said = f"missing, and {found.name} has none of its own"
        raise InputError(said, field="--tokens", accepted=units.TRAINING_TOKENS)
    given = {"chip": chip, "chips": chips, **options}
    if unknown := [n for n in given if FIELDS.get(n, n) not in TRAINING.names]:
        raise InputError(f"unknown option {unknown[0]!r}", accepted="the options of dse train")
    try:
        terms = training_terms(**{FIELDS.get(name, name): v for name, v in given.items()})
        answer = train_on(catalog, found, terms, amount, price_basis)
    except InputError as error:
        if error.field is None or error.field not in TRAINING.names:
            raise
        flag = OPTION_OF.get(error.field, error.field).replace("_", "-")
        raise InputError(
            error.message, file=error.file, field=f"--{flag}", accepted=error.accepted
        ) from None
    if tokens is None and not only_memory:
        said = f"{amount:.4g} tokens, those that {found.name} was trained on: none were given"
        answer = replace(answer, assumed=(said, *answer.assumed))
    why = None if observed_mfu is None else observed(answer, catalog, written(observed_mfu))
    made = train_answer(answer, only_memory=only_memory, why=why)
    return replace(made, names=catalog.names)


# The answer of `dse train`: its sentences, picture and tables.

LEAST_SHARE = 0.0005  # of a step, below which a loss is not shown


def train_answer(
    found: Training,
    *,
    only_memory: bool = False,
    why: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer of a run; with `only_memory` that of its memory, of the model whole and a chip;
    with `why` (dse.questions.train.observed) the causes of an observed MFU first."""
    document: dict[str, Any] = found.as_json()
    if why is not None:
        document["observed"] = why
    first, *rest = memory_sentences(document) if only_memory else sentences(document)
    if why is not None:
        first, rest = observed_words(why), [first, *rest]
    blocks: list[Block] = [memory_table(document)]
    if only_memory:
        blocks.insert(0, whole_table(document))
    elif found.feasible:
        blocks = [losses_figure(document), losses_table(document), *blocks]
        if document["next_plans"]:
            blocks.append(next_table(document))
    if not only_memory:
        blocks += price_tables(document["price"]) if "price" in document else []
    if why is not None:
        blocks.insert(0, causes_table(why))
    return Answer(
        question="train",
        title=f"Training {document['model']} on {document['chips']:,} x {document['chip']}",
        asked=heading(document),
        headline=first,
        sentences=rest,
        blocks=blocks,
        rests=document["assumed"],
        document=document,
    )


def causes_table(why: Mapping[str, Any]) -> Table:
    return Table.of(
        "causes",
        "What alone explains the observed MFU, and what mending it saves",
        why["causes"],
        (
            Column("cause", "cause"),
            Column("mfu", "MFU with it", "training_mfu"),
            Column("explains", "of the gap", "share"),
            Column("saves_days", "saves", "training_days"),
            Column("saves_usd", "saves", "training_usd"),
        ),
        ("Each alone, the rest the best that is left; input and late ranks are sized for all.",),
    )


def losses_table(document: Mapping[str, Any]) -> Table:
    return Table.of(
        "step",
        "Where a step goes",
        _shown(document),
        (
            Column("cause", "where a step goes", of=SHORT_LOSSES.__getitem__),
            Column("seconds", "time", "time", of=document["losses_s"].__getitem__),
            Column("share", "share", "share", of=document["loss_shares"].__getitem__),
        ),
    )


def losses_figure(document: Mapping[str, Any]) -> Figure:
    shares = {SHORT_LOSSES[name]: document["loss_shares"][name] for name in _shown(document)}
    return share_bars("step", "Where a step goes", "the step", shares)


def _shown(document: Mapping[str, Any]) -> list[str]:
    return [name for name in LOSSES_AT_SCALE if document["loss_shares"][name] >= LEAST_SHARE]


def memory_table(document: Mapping[str, Any]) -> Table:
    parts = {**document["memory_bytes_per_chip_parts"]}
    parts["all of it"] = document["memory_bytes_per_chip"]
    return memory_parts(
        {name: size for name, size in parts.items() if size > 0.0},
        document["memory_capacity_bytes_per_chip"],
        "Memory of the fullest chip",
        "memory of the fullest chip",
    )


def whole_table(document: Mapping[str, Any]) -> Table:
    whole = document["memory_unsharded_bytes"]
    names = {name: name for name in ("weights", "gradients", "optimizer", "total")}
    names["master_copy"] = "FP32 master copy, beside it"
    return Table(
        "whole model",
        "The whole model, not divided over chips",
        (Column("part", "the whole model"), Column("bytes", "memory", "bytes")),
        [{"part": text, "bytes": whole[name]} for name, text in names.items()],
    )


def next_table(document: Mapping[str, Any]) -> Table:
    return Table.of(
        "next plans",
        "The next ways to divide it",
        document["next_plans"],
        (
            Column("plan", "plan", of=lambda row: plan_words(row["parallelism"])),
            Column("step_s", "step", "time"),
            Column("mfu", "MFU", "training_mfu"),
            Column("days", "time", "training_days"),
            Column("memory_bytes_per_chip", "memory", "memory_bytes_per_chip"),
        ),
    )


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
