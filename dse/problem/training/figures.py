"""What is said of a training run beside its plan: what it rests on, its watts, its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.prices import price_assumptions
from dse.physics.machines import Machines
from dse.physics.training.intervals import RATE, training_spread
from dse.problem.training.search import Evaluated, Trainer
from dse.record import record
from dse.schema.calibration import KINDS
from dse.schema.chip import Figure
from dse.schema.costs import BASIS as OWNED
from dse.schema.model import Model
from dse.schema.training_run import TrainingTerms
from dse.space.candidates import Floats


def assumptions(
    catalog: Catalog, model: Model, terms: TrainingTerms, trainer: Trainer, price_basis: str
) -> list[str]:
    """A sentence each, of one run."""
    chip = catalog.chip(terms.chip)
    system = catalog.systems[chip.system]
    sentences = run_assumptions(catalog, terms, trainer)
    sentences += [f"{chip.id}: {text}" for text in chip.assumed]
    sentences += [f"{system.id}: {text}" for text in system.assumed]
    sentences += [f"{system.id}: no figure for {name}" for name in system.missing]
    price = catalog.prices.select(price_basis).get(chip.id)
    if price is not None:
        rule = "" if price_basis == OWNED else f"{price.rule}; "
        sentences.append(
            f"{chip.id} at {price.usd_per_chip_hour:.3g} USD an hour on basis {price_basis} "
            f"({rule}newest {price.newest_date}), whatever the length of the run"
        )
    sentences += price_assumptions(catalog, chip.id, price_basis)
    if chip.tdp_w is None:
        sentences.append(f"{chip.id} has no rated power: energy is null")
    return sentences + [f"{model.name}: {text}" for text in model.assumed]


def run_assumptions(catalog: Catalog, terms: TrainingTerms, trainer: Trainer) -> list[str]:
    """What any model's run rests on beyond the figures of its chip."""
    setting, figures = trainer.setting, catalog.reliability
    sentences = []
    if terms.global_batch_tokens is None:
        sentences.append(
            f"global batch {setting.sequences:,} sequences of {setting.sequence_length:,} tokens: "
            "none was given, and Llama 3 ended at 16M tokens (arXiv 2407.21783, table 4)"
        )
    elif terms.global_batch_tokens != setting.global_batch_tokens:
        sentences.append(
            f"global batch {terms.global_batch_tokens:,} tokens is no whole number of sequences: "
            f"{setting.sequences:,} of {setting.sequence_length:,} are taken, near it and divisible"
        )
    if terms.schedule is None:
        sentences.append(
            "schedules are 1F1B and interleaved; --schedule zero_bubble or dualpipe asks for others"
        )
    stack = trainer.stack
    guessed = [name for name, kind in stack.kinds.items() if kind == "assumed"]
    if guessed:
        sentences.append(
            f"training stack {stack.id}: {len(guessed)} of {len(stack.kinds)} constants are "
            f"assumed (hardware/training/{stack.id}.yaml)"
        )
    if terms.chip_s_between is None:
        sentences.append(_figure("chip-hours between interruptions", figures.between(terms.chip)))
    if terms.restart_s is None:
        sentences.append(_figure("restart", figures.figure("restart")))
    if terms.checkpoint_bytes_per_s is None:
        name = "checkpoint_bandwidth_per_chip"
        sentences.append(_figure("checkpoint bandwidth of a chip", figures.figure(name)))
    if terms.checkpoint_interval_s is None:
        sentences.append("checkpoints at the interval that wastes least (Daly 2006)")
    if terms.input_tokens_per_s is None:
        sentences.append("the input pipeline keeps up: --input-tokens-per-s sets a ceiling")
    if terms.straggler is None:
        sentences.append(
            "ranks are delayed no more than the stack's own share for stragglers says; 5% and more "
            "between the chips of one node were measured (stas00/ml-engineering, 2026-08)"
        )
    if terms.sites > 1:
        sentences.append(
            f"{terms.sites} sites share the chips evenly; nothing of their exchange is hidden "
            "behind arithmetic"
        )
    if terms.local_steps > 1:
        sentences.append(
            f"{terms.local_steps} local steps between exchanges: what that does to the loss is not "
            "modelled; copies for the outer optimizer lie in host memory"
        )
    return sentences


def _figure(name: str, figure: Figure) -> str:
    return f"{name}: {figure.text} ({figure.kind}; {figure.note or figure.source})"


# Watts of a chip while it trains, by the power model of serving (`dse.physics.power`).
#
# Joules of a step are counted from what the mean chip does in it (`TrainingMetrics.work`), cut to
# the rated power over the time of the step; the network draws its own outside the chip. The idle
# power is drawn all the time, waits and restarts included; work that is lost is drawn for again.


@record
class Watts:
    """(n,) mean over the run: of a chip, and of the network for each chip. NaN without a power
    figure."""

    chip: Floats
    network: Floats

    @property
    def whole(self) -> Floats:
        return self.chip + self.network


def mean_watts(plans: Evaluated, machines: Machines) -> Watts:
    """Of plans (n,)."""
    draw = machines.power.of(plans.batch.candidates.chip)
    metrics, run = plans.metrics, plans.run
    most = (draw.cap_w - draw.idle_w) * metrics.step_s
    own = np.minimum(metrics.work.joules(draw), most)
    # Of the wall clock, the share in which steps run, lost ones too.
    running = (run.goodput.goodput + run.goodput.lost) / run.step_s
    network = draw.network_j_per_byte * metrics.work.network_bytes
    return Watts(draw.idle_w + own * running, network * running)


# The metrics of training and life, and how far a prediction of them may be off: 80% intervals of
# measured rows that no fit had seen (`dse.physics.training.intervals`).
#
# A plan that is found here is known in full, so that days, chip-hours and dollars are as far off as
# the speed of its steps; what interruptions cost has no interval.

OF_TIMES = ("step_s", "days", "chip_hours", "usd")
OF_RATES = ("tokens_per_s_per_chip", "mfu")


def _rates(kind: int) -> tuple[float, float]:
    """Measured over predicted speed."""
    low, high = training_spread()[RATE][kind]
    return float(low), float(high)


def interval_words(kind: int) -> str:
    """Where the interval of `dse train` comes from."""
    held_out = "held-out measured rows of such chips" if KINDS[kind] == "fitted" else "assumed"
    return f"80% interval: {held_out}"


def train_intervals(document: Mapping[str, Any], kind: int) -> dict[str, list[float]]:
    """Of an answer of `dse train`; `kind` indexes KINDS."""
    low, high = _rates(kind)
    found = {}
    for names, ends in ((OF_TIMES, (1.0 / high, 1.0 / low)), (OF_RATES, (low, high))):
        for name in names:
            if document[name] is not None:
                found[name] = [document[name] * end for end in ends]
    return found


def study_intervals(
    values: Mapping[str, Any], known: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """Of a point's metrics of training and life; `known` holds those of its serving. Both halves of
    lifetime dollars are taken to be off together, and serving's by what its price may be. The
    spread is the widest there is: metrics do not say which kernel laws the training used."""
    low, high = _rates(len(KINDS) - 1)
    slower = (1.0 / high, 1.0 / low)
    found = {}
    for name in ("training_days", "training_usd", "training_chip_hours"):
        if values.get(name) is not None:
            found[name] = [values[name] * end for end in slower]
    if values.get("training_mfu") is not None:
        found["training_mfu"] = [values["training_mfu"] * end for end in (low, high)]
    price = values.get("usd_per_million_total_tokens")
    if values.get("lifetime_usd") is not None and "usd_per_million_total_tokens" in known:
        serving = values["lifetime_usd"] - values["training_usd"]
        spread = known["usd_per_million_total_tokens"]
        found["lifetime_usd"] = [
            trained + serving * end / price
            for trained, end in zip(found["training_usd"], spread, strict=True)
        ]
    return found
