"""One training run: its usual plan and the best ones, what they take, and what it costs on the
contract that fits its length.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dse.accuracy.training_row import published_plan
from dse.catalog import Catalog
from dse.economics.prices import price_documents
from dse.errors import InputError
from dse.physics.parameters import parameters
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.physics.training.evaluate import HABIT, RATE, law_kind, whole_runs
from dse.physics.training.memory import MOMENT_BYTES
from dse.physics.training.passes import Pass, TrainingDeployed
from dse.physics.training.plan import OPTIMIZERS, RECOMPUTES, SCHEDULES
from dse.problem.describe import number
from dse.problem.training import (
    Evaluated,
    Published,
    Ranked,
    Trainer,
    assumptions,
    interval_words,
    mean_watts,
    shape_of,
    train_intervals,
    trained_model,
    trainer_of,
)
from dse.quality.law import training_flops
from dse.record import record
from dse.rules.registry import broken_rows
from dse.schema.costs import BASIS as OWNED
from dse.schema.dtypes import DTYPES
from dse.schema.model import Model
from dse.schema.prices import OWN, PRICE_TIERS
from dse.schema.training import TrainingTerms
from dse.space.deployments import DEGREES, stacked

MFU = (
    "6 FLOP a parameter and token, the input table left out, and attention over the tokens that "
    "the mask lets it see; over the dense peak of the precision"
)
DAY, HOUR, QUARTER_DAYS = 86_400.0, 3600.0, 91.25
# Bases of the contract that fits a run of so many quarters, the first that the chip has.
BY_LENGTH = (
    (1.0, ("on_demand", "provider_average", "on_demand_marketplace")),
    (4.0, ("rental_1yr", "reserved_1yr")),
    (math.inf, ("rental_3yr", "reserved_3yr")),
)
SHOWN_PLANS = 5
# Numbers of chips that a deadline is tried with, four an octave, and how many of them.
CHIPS = tuple(quarter << octave for octave in range(18) for quarter in (4, 5, 6, 7))
TRIED = 20


@record
class Run:
    """A few of the evaluated plans of a run: the usual one, then the best, the best first, and what
    was asked. `published` is whose plan the usual one is, where it is one's; `count` plans were
    evaluated, of which `fitting` fit. `unasked` is the same run without the degrees asked for,
    where with them nothing fits."""

    model: Model
    terms: TrainingTerms
    tokens: float
    trainer: Trainer
    plans: Evaluated
    published: Published | None
    count: int
    fitting: int
    unasked: Run | None = None

    @property
    def feasible(self) -> bool:
        return not bool(self.plans.miss[0] > 0.0)

    @property
    def best(self) -> int:
        """The fastest plan."""
        return int(np.argmax(self.plans.rate))

    def _slower(self, i: int) -> float:
        """Step of the chips alone over that of the run: what the network between sites and the
        input leave of their utilisation."""
        return float(self.plans.metrics.step_s[i] / self.plans.run.step_s[i])

    def mfu(self, i: int) -> float:
        """Of plan `i`, all losses of its step counted, interruptions not."""
        return self._slower(i) * float(self.plans.metrics.mfu[i])

    def tokens_per_s(self, i: int) -> float:
        """Of plan `i` while its steps run."""
        return float(self.plans.rate[i]) / float(self.plans.run.goodput.goodput[i])

    def plan(self, i: int) -> dict[str, Any]:
        """Plan `i` with its degrees under the names of a `training:` section."""
        plans, batch = self.plans, self.plans.batch
        names = [f"{what}_parallel" for what in ("tensor", "pipeline", "data", "expert")]
        return {
            "parallelism": {
                **{name: int(getattr(batch.candidates, name)[i]) for name in names},
                "context_parallel": int(batch.context_parallel[i]),
                "virtual_stages": int(batch.virtual_stages[i]),
                "micro_batch": int(batch.micro_batch[i]),
                "micro_batches": math.ceil(batch.micro_batches[i]),
                "schedule": SCHEDULES[batch.schedule[i]],
                "recompute": RECOMPUTES[batch.recompute[i]],
                "zero_stage": int(batch.zero_stage[i]),
                "sequence_parallel": bool(batch.sequence_parallel[i]),
                "weight_dtype": DTYPES[batch.candidates.weight_dtype["mlp"][i]],
            },
            "step_s": float(plans.run.step_s[i]),
            "mfu": self.mfu(i),
            "goodput": float(plans.run.goodput.goodput[i]),
            "days": float(plans.run.wall_s(batch, self.tokens)[i]) * self.trainer.whole_run / DAY,
            "memory_bytes_per_chip": float(plans.metrics.memory_bytes_per_chip[i]),
        }

    def document(self, catalog: Catalog, basis: str | None) -> dict[str, Any]:
        """The document of `dse train --json`; time, money and energy are null if nothing fits.
        Without a basis, that of the length of the run. `catalog` has the prices of owning."""
        terms, trainer, plans = self.terms, self.trainer, self.plans
        run, metrics, goodput = plans.run, plans.metrics, plans.run.goodput
        plan, size = self.plan(0), parameters(shape_of(self.model))
        hours = plan["days"] * 24.0 * terms.chips
        basis = basis or basis_of(catalog, terms.chip, plan["days"])
        price, owning = (usd_per_hour(catalog, terms.chip, one) for one in (basis, OWNED))
        watts, network_w = mean_watts(plans, trainer.machines)
        losses = {name: float(run.losses[name][0]) for name in LOSSES_AT_SCALE}
        owned = next(iter(price_documents(catalog, [terms.chip], basis)), None)
        layers = Pass(TrainingDeployed(plans.batch[0:1], trainer.machines, trainer.stack)).layers
        speed = {
            "step_s": plan["step_s"],
            "mfu": plan["mfu"],
            "hfu": float(self._slower(0) * metrics.hfu[0]),
            "mfu_6n": float(self._slower(0) * metrics.mfu_6n[0]),
            "tokens_per_s": self.tokens_per_s(0),
            "tokens_per_s_per_chip": self.tokens_per_s(0) / terms.chips,
            "days": plan["days"],
            "chip_hours": hours,
            "goodput": plan["goodput"],
            "backward_over_forward": float((layers.backward / layers.forward)[0]),
            "usd": number(hours * price),
            "owned_usd": number(hours * owning),
            "kwh": number((watts + network_w)[0] * hours / 1e3),
            "watts_per_chip": number(watts[0]),
        }
        kind = int(law_kind(plans.batch, trainer.machines)[0])
        spread = RATE if self.published or terms.degrees else HABIT
        pretrain = terms.task == "pretrain"
        best = self.plan(self.best)
        best["tokens_per_s_per_chip"] = self.tokens_per_s(self.best) / terms.chips
        best["chip_hours"] = best["days"] * 24.0 * terms.chips
        best["usd"] = number(best["chip_hours"] * price)
        intervals = train_intervals(speed, kind, spread, whole=pretrain)
        if spread == HABIT:  # a team may find the best plan
            for name, ends in train_intervals(best, kind, RATE, whole=pretrain).items():
                intervals[name] = [f(intervals[name][k], ends[k]) for k, f in enumerate((min, max))]
        if not self.feasible:
            speed, intervals, best = dict.fromkeys(speed), {}, None
        without_degrees = None
        if self.unasked is not None and self.unasked.feasible:
            without_degrees = self.unasked.plan(0)
        return {
            **speed,
            "mfu_convention": MFU,
            "memory_bytes_per_chip": plan["memory_bytes_per_chip"],
            "memory_bytes_per_chip_parts": {
                part: float(bytes_[0]) for part, bytes_ in metrics.memory.items()
            },
            "memory_capacity_bytes_per_chip": float(metrics.memory_capacity_bytes_per_chip[0]),
            "host_memory_bytes_per_chip": float(metrics.host_memory_bytes_per_chip[0]),
            "memory_unsharded_bytes": _unsharded(float(size.total[0]), terms.optimizer),
            "feasible": self.feasible,
            "violations": broken_rows(plans.case, plans.violations, 0),
            "parallelism": plan["parallelism"],
            "plan_of": self.published.source if self.published else None,
            "losses_s": losses,
            "loss_shares": {name: loss / float(run.step_s[0]) for name, loss in losses.items()},
            "goodput_parts": {
                "useful": float(goodput.goodput[0]),
                "writing_checkpoints": float(goodput.writing[0]),
                "lost_work": float(goodput.lost[0]),
                "restarting": float(goodput.restarting[0]),
            },
            "interruptions": {
                "hours_between": float(goodput.between_s[0]) / HOUR,
                "chip_hours_between": trainer.conditions.chip_s_between / HOUR,
                "checkpoint_bytes": float(run.checkpoint_bytes[0]),
                "checkpoint_s": float(goodput.write_s[0]),
                "checkpoint_interval_s": float(goodput.interval_s[0]),
                "restart_s": trainer.conditions.restart_s,
            },
            "best": best,
            "whole_run": {
                "over_steps": trainer.whole_run,
                "range": list(whole_runs()[1:]) if pretrain else [1.0, 1.0],
            },
            "without_degrees": without_degrees,
            "plans_evaluated": self.count,
            "plans_that_fit": self.fitting,
            "intervals": intervals,
            "interval_kind": interval_words(kind, spread),
            "model": self.model.name,
            "total_parameters": round(float(size.total[0])),
            "active_parameters": round(float(size.active[0])),
            "chip": terms.chip,
            "chips": terms.chips,
            "tokens": self.tokens,
            "training_flops": float(training_flops(size.active, np.array(self.tokens))[0]),
            "sequence_length": terms.sequence_length,
            "global_batch_tokens": float(plans.batch.global_batch_tokens[0]),
            **{name: getattr(terms, name) for name in ("precision", "task", "optimizer")},
            "stack": trainer.stack.id,
            "sites": terms.sites,
            "price_basis": basis,
            "usd_per_chip_hour": number(price),
            "priced": bases_of(catalog, terms.chip),
            **({"price": owned} if owned else {}),
            "assumed": assumptions(catalog, self.model, terms, trainer, basis),
        }


def _unsharded(total: float, optimizer: str) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer states of the whole model in one place: 16-bit
    weights and gradients, moments as the optimizer keeps them; the master copy beside them."""
    moments = float(MOMENT_BYTES[OPTIMIZERS.index(optimizer)])
    parts = {"weights": 2.0 * total, "gradients": 2.0 * total, "optimizer": moments * total}
    return {**parts, "total": sum(parts.values()), "master_copy": 4.0 * total}


def basis_of(catalog: Catalog, chip: str, days: float) -> str:
    """The price basis of the contract that fits a run of so many days: of several the first on
    which the chip has a price, the first if it has none. Prices of one's own of the chip count
    whatever their basis."""
    names = next(names for quarters, names in BY_LENGTH if days <= quarters * QUARTER_DAYS)
    rows = catalog.prices.rows
    own = [row.basis for row in rows if row.chip == chip and row.note.startswith(OWN)]
    own = [basis for basis in own if basis in PRICE_TIERS]
    among = own or bases_of(catalog, chip)
    return next((name for name in names if name in among), (own or names)[0])


def bases_of(catalog: Catalog, chip: str) -> list[str]:
    """On which the chip has a price."""
    prices = catalog.prices
    return [basis for basis in prices.bases() if chip in prices.select(basis)]


def usd_per_hour(catalog: Catalog, chip: str, basis: str) -> float:
    """NaN without a price."""
    priced = basis in bases_of(catalog, chip)
    return catalog.prices.select(basis)[chip].usd_per_chip_hour if priced else math.nan


def best_run(catalog: Catalog, model: Model, terms: TrainingTerms, tokens: float) -> Run:
    """Evaluates every plan of the run. Raises InputError for an unknown chip or stack."""
    if terms.degrees.get("expert_parallel", 1) > 1 and not model.experts:
        message = f"{model.name} has no experts"
        raise InputError(message, field="expert_parallel", accepted="no such flag")
    trainer = trainer_of(catalog, terms, None, model)
    trainer = replace(trainer, published=published_plan(catalog, model, terms))
    shape = shape_of(trained_model(model, trainer))
    ranked = trainer.ranked(shape)
    (row, usual), known = trainer.usual(shape, ranked)
    ways = _different(ranked)
    same = [all(usual[name][0] == ranked.table[name][k] for name in usual.columns) for k in ways]
    rows, table = ranked.take(ways[~np.array(same)])
    plans = trainer.evaluate(shape, np.concatenate([row, rows]), stacked([usual, table]))
    fitting = int((ranked.miss <= 0.0).sum())
    published = trainer.published if known else None
    run = Run(model, terms, tokens, trainer, plans, published, len(ranked.row), fitting)
    if run.feasible or not terms.degrees:
        return run
    free = best_run(catalog, model, replace(terms, degrees={}), tokens)
    return replace(run, unasked=free)


def fewest_chips(
    catalog: Catalog, model: Model, terms: TrainingTerms, tokens: float, days: float
) -> Run:
    """The run on the fewest of CHIPS whose usual plan takes at most so many days. Chip-hours hardly
    fall with more chips: those of the fewest that fit say where to begin. Raises InputError where
    no number does."""

    def on(chips: int) -> Run:
        return best_run(catalog, model, replace(terms, chips=chips), tokens)

    whole = next((run for run in map(on, CHIPS[::4]) if run.feasible), None)
    if whole is not None:
        least = whole.plan(0)["days"] * whole.terms.chips / days / 2.0
        for chips in [chips for chips in CHIPS if chips >= least][:TRIED]:
            run = on(chips)
            if run.feasible and run.plan(0)["days"] <= days:
                return run
    message = f"no number of {terms.chip} trains it in {days:.3g} days"
    raise InputError(message, field="--within", accepted="a longer time, or larger batches")


def _different(ranked: Ranked) -> np.ndarray:
    """The best plan, and the best of the next few ways to divide the chips that fit."""
    order = ranked.order()
    names = (*DEGREES, "expert_parallel")
    degrees = np.stack([ranked.table[name][order] for name in names], axis=1)
    first = np.sort(np.unique(degrees, axis=0, return_index=True)[1])
    fits = ranked.miss[order[first]] <= 0.0
    return order[first[fits | (np.arange(len(first)) == 0)][:SHOWN_PLANS]]
