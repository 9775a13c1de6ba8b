"""`dse.train`: the usual plan of a training run on given chips, with its memory, time, money and
energy, and the best beside it; from an MFU that was observed back to its likely causes.

Each cause of a low MFU is run alone, the rest still the best that is left: what it takes from the
best plan's MFU is how much of the gap it explains, by logarithms, so that causes which act one
after the other add up. Two causes have a size that explains all of it: what the input delivers, and
how late ranks are. Mending a cause is taken to give back what it takes alone:
hours x (1 - MFU with it / MFU without).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from dse import units
from dse.answer.answer import Answer
from dse.answer.frames import document, frame, memory_parts, of_rows, share_bars
from dse.answer.numbers import bytes_, large, plain, share, show, time
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.economics.prices import price_tables
from dse.economics.tco import with_basis
from dse.errors import Doubt, InputError
from dse.options import CHIP, Opt
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.questions.training_run import DAY, QUARTER_DAYS, Run, best_run, fewest_chips
from dse.rules.registry import row_words
from dse.schema.backend import STOCK, TUNED, TUNINGS
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.model import Model
from dse.schema.model_catalog import load_model
from dse.schema.plausible import unusual
from dse.schema.prices import PRICE_TIERS
from dse.schema.reader import Field, Raw, Table
from dse.schema.training import GENERIC_STACK, MOST_CHIPS, TRAINING, training_terms
from dse.space.deployments import DEGREES

# Arguments whose names differ from the fields of a `training:` section.
FIELDS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
}
_ARGUMENTS = ("chip", "chips", "sequence_length", "global_batch_tokens", "precision", "task")
_ARGUMENTS = (*_ARGUMENTS, "recompute", "price_basis", *FIELDS.values())
# What `--set` takes: the other fields of a `training:` section, which reads them.
SETTINGS = Table(*(Field(name, Raw(), None) for name in TRAINING.names if name not in _ARGUMENTS))
LEAST_SHARE = 0.0005  # of a step, below which a loss is not shown
LARGE_BUBBLE = 0.1  # of a step, worth a sentence


def train(
    model: Annotated[
        str | Path | Mapping[str, Any] | Model | None,
        Opt(
            "Model: catalog id (dse catalog models list), or the path of a config.json.",
            flag="model",
            positional=True,
        ),
    ] = None,
    chip: Annotated[str | None, CHIP] = None,
    chips: Annotated[int | None, Opt("Chips of the run.", least=1, most=MOST_CHIPS)] = None,
    *,
    within: Annotated[
        str | None, Opt("Deadline, such as 60days, in place of --chips: the fewest chips.")
    ] = None,
    tokens: Annotated[
        str | None, Opt("Tokens to train on, such as 15.6T (default: the model's own).")
    ] = None,
    sequence_length: Annotated[int, Opt("Tokens of a sequence.", least=1, most=10**8)] = 8192,
    global_batch_tokens: Annotated[
        str | int | None, Opt("Tokens of a step, such as 16M (default: 2,048 sequences of 8,192).")
    ] = None,
    precision: Annotated[
        str, Opt("Format of matrix products: bf16, fp8, fp8_block, mxfp8, nvfp4 or int8.")
    ] = "bf16",
    task: Annotated[str, Opt("What is trained: pretrain, sft or lora.")] = "pretrain",
    tp: Annotated[int | None, Opt("Tensor parallelism (default: searched).", 1, 100_000)] = None,
    pp: Annotated[int | None, Opt("Pipeline stages (default: searched).", 1, 100_000)] = None,
    cp: Annotated[int | None, Opt("Context parallelism (default: searched).", 1, 100_000)] = None,
    ep: Annotated[int | None, Opt("Expert parallelism (default: searched).", 1, 100_000)] = None,
    recompute: Annotated[
        str | None,
        Opt("Recomputed backward: none, selective, mlp, moe or full (default: searched)."),
    ] = None,
    price_basis: Annotated[
        str | None,
        Opt(
            "Price basis: one of hardware/prices.csv, or owned_tco (default: on demand up to a "
            "quarter, one year up to a year, three years beyond)."
        ),
    ] = None,
    tuning: Annotated[
        str,
        Opt(
            "Software as tuned for the model and chip, the published plan if there is one, or "
            "stock: a framework by its defaults."
        ),
    ] = TUNED,
    observed_mfu: Annotated[
        str | None, Opt("MFU that a run reached, such as 11%: its likely causes.")
    ] = None,
    catalog: Catalog | None = None,
    **fields: Any,
) -> Answer:
    """Training of a model on given chips: the usual and the best plan, memory, days and dollars.

    Evaluates every way to divide a run over the chips that a framework would accept, on the
    software that is current for the model and chip, and gives the one that teams take, with the
    fastest that fits beside it: memory, step time with every loss named, days, dollars and energy.

        dse.train("llama-3.1-405b", "h100_sxm", 16384, tokens="15.6T").document["days"]

    `model` is a catalog id, the path of a config.json, or what such a file says. `tokens` are those
    that it was trained on where none are given. `within` a time in place of `chips`: the fewest of
    4, 5, 6, 7, 8, 10, 12, 14, 16, ... whose usual plan takes no longer. `fields` are SETTINGS.
    `observed_mfu` (11%) asks which causes explain it and what mending each would save. Raises
    InputError for what cannot be read or divided.
    """
    id_of = "an id that `dse catalog {}s list` prints"
    for what, value, accepted in (
        ("MODEL", model, f"{id_of.format('model')}, or the path of a config.json"),
        ("--chip", chip, id_of.format("chip")),
        ("--chips", chips or within, f"1 to {MOST_CHIPS:,}, or a deadline by --within"),
    ):
        if not value:
            raise InputError(f"{what} is missing", accepted=accepted)
    if chips and within:
        raise InputError("chips are given", field="--within", accepted="either of the two")
    assert model is not None
    catalog, chip = (catalog or load_catalog()).with_chip(str(chip))
    catalog = with_basis(catalog, OWNED)
    if price_basis is not None:
        catalog.prices.select(price_basis)
    if tuning not in TUNINGS:
        raise InputError(f"read {tuning!r}", field="--tuning", accepted=" or ".join(TUNINGS))
    if tuning == STOCK:
        fields = {"stack": GENERIC_STACK, **fields}
    found = load_model(model)
    amount = found.training_tokens
    if tokens is not None:
        amount = units.parse(tokens, "tokens", field="--tokens")
        units.check_training_tokens(amount, tokens, field="--tokens")
    if amount is None:
        message = f"missing, and {found.name} has none of its own"
        raise InputError(message, field="--tokens", accepted=units.TRAINING_TOKENS)
    written = {
        "chip": chip,
        "chips": chips or 1,
        "sequence_length": sequence_length,
        "global_batch_tokens": global_batch_tokens,
        "precision": precision,
        "task": task,
        "recompute": recompute,
        **dict(zip(FIELDS.values(), (tp, pp, cp, ep), strict=True)),
        **fields,
    }
    try:
        terms = training_terms(**{name: v for name, v in written.items() if v is not None})
        run = best_run(catalog, found, terms, amount) if chips else None
        if run is None:
            seconds = units.parse(str(within), "s", field="--within")
            run = fewest_chips(catalog, found, terms, amount, seconds / DAY)
    except InputError as error:
        if error.field is None or error.field not in TRAINING.names:
            raise
        option = {field: name for name, field in FIELDS.items()}.get(error.field, error.field)
        field = f"--{option.replace('_', '-')}" if error.field in _ARGUMENTS else f"--set {option}"
        raise InputError(
            error.message, file=error.file, field=field, accepted=error.accepted
        ) from None
    facts, chips = run.document(catalog, price_basis), run.terms.chips
    if tokens is None:
        said = f"{amount:.4g} tokens, those that {found.name} was trained on: none were given"
        facts["assumed"] = [said, *facts["assumed"]]
    plans = [run.plan(k) for k in range(len(run.plans.batch))]
    ways = of_rows(
        "plans",
        "The usual plan, and the best ways to divide it",
        [{"plan": plan_words(one["parallelism"]), **one["parallelism"], **one} for one in plans],
        f"plan step_s training_mfu=mfu training_days=days memory_bytes_per_chip goodput "
        f"{' '.join(DEGREES)} expert_parallel",
        shown=("plan", "step_s", "training_mfu", "training_days", "memory_bytes_per_chip"),
    )
    parts = facts["memory_bytes_per_chip_parts"]
    parts = parts | {"all of it": facts["memory_bytes_per_chip"]}
    whole = facts["memory_unsharded_bytes"]["total"]
    notes = [f"Not divided over chips, weights, gradients and optimizer take {bytes_(whole)}."]
    if host := facts["host_memory_bytes_per_chip"]:
        notes.append(f"Host memory for each chip: {bytes_(host)}.")
    if run.feasible and facts["memory_bytes_per_chip"] > facts["memory_capacity_bytes_per_chip"]:
        notes.append("More is predicted than the chip has; the published run fits all the same.")
    memory = memory_parts(
        {name: size for name, size in parts.items() if size > 0.0},
        facts["memory_capacity_bytes_per_chip"],
        "Memory of the fullest chip",
        *notes,
    )
    if not run.feasible:
        sentences, blocks = _misses(facts), [memory]
    else:
        shares = facts["loss_shares"]
        shown = [name for name in LOSSES_AT_SCALE if shares[name] >= LEAST_SHARE]
        bars = {LOSSES_AT_SCALE[name]: shares[name] for name in shown}
        seconds = [facts["losses_s"][name] for name in shown]
        columns = {"cause": [*bars], "seconds": seconds, "step_share": [*bars.values()]}
        sentences = _sentences(run, facts)
        facts |= document({}, [ways])
        blocks = [
            share_bars("step", "Where a step goes", "the step", bars),
            frame("step", "Where a step goes", columns),
            memory,
            ways,
            *(price_tables(facts["price"]) if "price" in facts else ()),
        ]
    if observed_mfu is not None:
        why = facts["observed"] = observed(run, facts, catalog, _mfu(observed_mfu))
        sentences = [_observed_words(why), *sentences[:3]]
        causes = of_rows(
            "causes",
            "What alone explains the observed MFU, and what mending it saves",
            why["causes"],
            "cause training_mfu=mfu explains saves_days saves_usd",
            "Each alone, the rest the best that is left; input and late ranks are sized for all.",
        )
        blocks = [causes, *blocks]
    return Answer(
        question="train",
        title=f"Training {found.name} on {chips:,} x {chip}",
        asked=(
            f"{found.name} ({large(facts['total_parameters'])} parameters) on {chips:,} x {chip}, "
            f"{large(amount)} tokens, {task} in {precision}, sequences of {sequence_length:,}, "
            f"{large(facts['global_batch_tokens'])} tokens per step; "
            f"{'' if terms.stack else 'current '}stack {facts['stack']}, "
            f"prices {facts['price_basis']}"
        ),
        headline=sentences[0],
        sentences=sentences[1:],
        blocks=blocks,
        rests=facts["assumed"],
        document=facts,
        names=catalog.names,
    )


def plan_words(plan: Mapping[str, Any]) -> str:
    """`TP 8 x PP 16 x DP 128, 8 virtual stages, micro-batch 1 x 16, ZeRO 1`."""
    shorts = zip(("TP", "CP", "PP", "DP"), DEGREES, strict=True)
    degrees = [f"{short} {plan[name]}" for short, name in shorts if plan[name] > 1]
    words = [" x ".join(degrees or ["one chip"])]
    if plan["expert_parallel"] > 1:
        words.append(f"EP {plan['expert_parallel']}")
    if plan["virtual_stages"] > 1:
        words.append(f"{plan['virtual_stages']} virtual stages")
    words.append(f"micro-batch {plan['micro_batch']} x {plan['micro_batches']}")
    words.append(f"ZeRO {plan['zero_stage']}")
    if plan["recompute"] != "none":
        words.append(f"{plan['recompute']} recomputation")
    return ", ".join(words)


def _sentences(run: Run, facts: Mapping[str, Any]) -> list[str]:
    """The answer of a run that fits."""
    days, (low, high) = facts["days"], facts["intervals"]["days"]
    chip, basis, best = facts["chip"], facts["price_basis"], facts["best"]
    how = PRICE_TIERS[basis].how if basis in PRICE_TIERS else basis
    money = "no price" if facts["usd"] is None else show("training_usd", facts["usd"])
    owned = facts["owned_usd"]
    beside = "" if owned is None or basis == OWNED else f", {show('training_usd', owned)} owned"
    energy = "no power figure" if facts["kwh"] is None else show("training_kwh", facts["kwh"])
    whose = f"by the habits of {facts['stack']}, of those asked for" if run.terms.degrees else ""
    whose = whose or (f"of {facts['plan_of']}" if facts["plan_of"] else "")
    near = run.trainer.published
    why = f"as that of {near.source} does not go" if near else "published for none alike"
    whose = whose or f"by the habits of {facts['stack']}, {why}"
    over, (least, most) = facts["whole_run"]["over_steps"], facts["whole_run"]["range"]
    whole = (
        f" Published whole runs took {least:.2f} to {most:.2f} times the hours of their steps and "
        f"interruptions; {over:.2f} times is counted."
    )
    fastest = "the usual one."
    if best["parallelism"] != facts["parallelism"]:
        fastest = (
            f"{show('training_days', best['days'])} ({best['days'] / days - 1.0:+.0%}) by "
            f"{plan_words(best['parallelism'])}, which asks for {_filled(best, facts)} of the "
            f"memory (usual: {_filled(facts, facts)})."
        )
    sentences = [
        f"{show('training_days', days)} ({show('training_days', low)} to "
        f"{show('training_days', high)}, {facts['interval_kind']}), "
        f"{large(round(facts['chip_hours']), 4)} chip-hours, {money} ({how}){beside}, {energy}.",
        f"Usual plan, {whose}: {plan_words(facts['parallelism'])}.{whole if over != 1.0 else ''}",
        f"Best of {run.count:,} plans, {run.fitting:,} of which fit: {fastest}",
    ]
    gone = facts["goodput_parts"]
    sentences.append(
        f"Step {time(facts['step_s'])} at {share(facts['mfu'])} MFU, "
        f"{plain(facts['tokens_per_s_per_chip'])} tokens/s per chip. Goodput "
        f"{share(facts['goodput'])}: of the time, {share(gone['writing_checkpoints'])} writes "
        f"checkpoints, {share(gone['lost_work'])} is work lost to interruptions and "
        f"{share(gone['restarting'])} restarts."
    )
    if (bubble := facts["loss_shares"]["bubble"]) >= LARGE_BUBBLE:
        sentences.append(
            f"Pipeline stages wait for {share(bubble)} of a step of "
            f"{large(facts['global_batch_tokens'])} tokens: more tokens per step "
            "(--global-batch-tokens) or another schedule (--set schedule=...) shorten that."
        )
    quarters = PRICE_TIERS[basis].quarters if basis in PRICE_TIERS else None
    if facts["usd"] is not None and (quarters or 0) > max(days / QUARTER_DAYS, 1.0):
        sentences.append(
            f"{basis} is the price of a contract longer than the run: --price-basis "
            "on_demand prices the run alone."
        )
    if facts["usd"] is None:
        others = ", ".join(facts["priced"]) or "none"
        sentences.append(
            f"{chip} has no price on {basis}, which fits the length of the run; it has {others} "
            "(--price-basis)."
        )
    return sentences


def _filled(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Share of the memory that a plan takes."""
    return f"{plan['memory_bytes_per_chip'] / facts['memory_capacity_bytes_per_chip']:.0%}"


def _misses(facts: Mapping[str, Any]) -> list[str]:
    """What the nearest miss breaks, and what would fit."""
    broken = "; ".join(map(row_words, facts["violations"]))
    parts = facts["memory_bytes_per_chip_parts"]
    most = max(parts, key=lambda name: parts[name])
    lines = [
        f"Not feasible: none of {facts['plans_evaluated']:,} plans fits. The nearest miss is "
        f"{plan_words(facts['parallelism'])}. It {broken}."
    ]
    if (free := facts["without_degrees"]) is not None:
        lines.append(
            f"Without the degrees that were asked for, {plan_words(free['parallelism'])} fits: "
            f"{show('training_days', free['days'])}."
        )
    if any(row["constraint"] == "memory_capacity" for row in facts["violations"]):
        lines.append(
            f"Its memory is mostly {most}: {bytes_(parts[most])} of "
            f"{bytes_(facts['memory_bytes_per_chip'])} on a chip of "
            f"{bytes_(facts['memory_capacity_bytes_per_chip'])}."
        )
    return lines


SMALLER = (4.0, 16.0)
SLOWER = 4.0  # a network at a quarter of its rate
MOST_LATE = 10.0
STEPS = 12
USUAL = (0.01, 1.0)  # MFU that anybody would ask about


def observed(run: Run, facts: Mapping[str, Any], catalog: Catalog, mfu: float) -> dict[str, Any]:
    """`mfu`, `best_mfu`, `days`, `usd`, and `causes`: each with the `mfu` that it alone leaves, the
    share of the gap that it `explains`, and the days and dollars that mending it `saves`; the most
    first. Raises InputError where the run does not fit or its best plan reaches less than `mfu`."""
    if not run.feasible:
        raise InputError("the run does not fit", field="--observed-mfu", accepted="a run that fits")
    best = facts["best"]["mfu"]
    if not 0.0 < mfu < best:
        accepted = f"above 0 and below the {best:.1%} of the best plan"
        raise InputError(f"read {mfu:.1%}", field="--observed-mfu", accepted=accepted)
    if said := unusual(mfu, USUAL, share, 100.0):
        warnings.warn(f"--observed-mfu: read {share(mfu)}{said}", Doubt, stacklevel=2)
    slower = best / mfu
    fast = facts["best"]
    whole = {name: fast[name] and fast[name] * slower for name in ("days", "usd")}
    causes = [
        {
            "cause": cause,
            "mfu": alone,
            "explains": min(1.0, math.log(best / alone) / math.log(slower)),
            "saves_days": whole["days"] * (1.0 - alone / best),
            "saves_usd": whole["usd"] and whole["usd"] * (1.0 - alone / best),
        }
        for cause, alone in _causes(run, catalog, best, mfu).items()
        if alone is not None and alone < best
    ]
    causes.sort(key=lambda row: -row["explains"])
    return {"mfu": mfu, "best_mfu": best, **whole, "causes": causes}


def _causes(run: Run, catalog: Catalog, best: float, mfu: float) -> dict[str, float | None]:
    """Each cause and the MFU that it alone leaves; None of one that the run cannot have."""

    def reached(source: Catalog = catalog, **changed: Any) -> float | None:
        try:
            terms = replace(run.terms, **changed)
            one = best_run(source, run.model, terms, run.tokens)
        except InputError:
            return None
        return one.mfu(one.best) if one.feasible else None

    rate, batch = run.tokens_per_s(run.best), float(run.plans.batch.global_batch_tokens[0])
    needed = rate * mfu / best
    causes: dict[str, float | None] = {
        f"the input delivers {needed / 1e6:.3g}M tokens/s of {rate / 1e6:.3g}M": mfu
    }
    low, high = 0.0, MOST_LATE
    if (reached(straggler=high) or 0.0) <= mfu:
        for _ in range(STEPS):
            late = (low + high) / 2.0
            low, high = (late, high) if (reached(straggler=late) or 0.0) > mfu else (low, late)
        causes[f"ranks are late by {(low + high) / 2.0:.0%} of a step in the mean"] = mfu
    # Batches and degrees that no one should choose among them.
    stages = 2 ** int(math.log2(max(1, min(32, sum(b.count for b in run.model.blocks) // 2))))
    changes: dict[str, dict[str, Any]] = {
        f"batches of {batch / part / 1e6:.3g}M tokens": {"global_batch_tokens": int(batch / part)}
        for part in SMALLER
    }
    changes["all layers are recomputed"] = {"recompute": "full"}
    changes["weights are sharded over all chips (ZeRO 3)"] = {"zero": 3}
    degrees = {**run.terms.degrees, "pipeline_parallel": stages, "virtual_stages": 1}
    changes[f"{stages} stages without virtual ones"] = {"degrees": degrees}
    domain = catalog.systems[catalog.chip(run.terms.chip).system].levels[0].size
    if domain and math.isfinite(domain):
        wide = 2 * int(domain)
        degrees = {**run.terms.degrees, "tensor_parallel": wide}
        changes[f"tensor parallelism over servers ({wide})"] = {"degrees": degrees}
    causes |= {cause: reached(**changed) for cause, changed in changes.items()}
    with suppress(InputError):
        slow = derive(catalog, run.terms.chip, [f"network_bandwidth={1.0 / SLOWER}x"])
        own = with_own_chips(catalog, [slow])
        causes[f"the network gives 1/{SLOWER:g} of its rate"] = reached(own, chip=slow.chip.id)
    return causes


def _observed_words(why: Mapping[str, Any]) -> str:
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


def _mfu(text: str) -> float:
    """`11%` or `0.11`. Raises InputError for anything else."""
    amount, percent, rest = text.strip().partition("%")
    try:
        if not rest:
            return float(amount) / (100.0 if percent else 1.0)
    except ValueError:
        pass
    raise InputError(f"read {text!r}", field="--observed-mfu", accepted="an MFU such as 11%")
