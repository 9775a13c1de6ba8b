"""What a training answer rests on beyond sourced figures."""

from __future__ import annotations

from dse.catalog import Catalog
from dse.economics.priced import price_assumptions
from dse.problem.training.search import Trainer
from dse.schema.chip import Figure
from dse.schema.costs import BASIS as OWNED
from dse.schema.model import Model
from dse.schema.training_run import TrainingTerms


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
