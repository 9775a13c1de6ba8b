"""`dse train`: the best plan of a model on given chips, with its memory, time, money and energy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.prices import price_documents
from dse.errors import InputError
from dse.physics.parameters import Parameters, parameters
from dse.physics.training.at_scale import LOSSES_AT_SCALE
from dse.physics.training.deployed import TrainingDeployed
from dse.physics.training.intervals import law_kind, usual_over_best
from dse.physics.training.memory import MOMENT_BYTES
from dse.physics.training.passes import Pass
from dse.physics.training.plan import MEMORY_PARTS, OPTIMIZERS, RECOMPUTES, SCHEDULES
from dse.problem.describe import number
from dse.problem.training import (
    Evaluated,
    Ranked,
    Trainer,
    assumptions,
    interval_words,
    mean_watts,
    shape_of,
    train_intervals,
    trainer_of,
)
from dse.quality.laws import training_flops
from dse.rules.registry import broken_rows
from dse.schema.dtypes import DTYPES
from dse.schema.model import Model
from dse.schema.training_run import TrainingTerms

SHOWN_PLANS = 5
DAY, HOUR = 86_400.0, 3600.0


@dataclass(frozen=True, slots=True)
class Training:
    """The evaluated plans of one run, the best first (a batch of a few), and what was asked.
    `unasked` is the same run without the degrees asked for, where with them nothing fits."""

    model: Model
    terms: TrainingTerms
    tokens: float
    price_basis: str
    trainer: Trainer
    plans: Evaluated
    count: int  # plans that were evaluated
    fitting: int  # of which fit
    parameters: Parameters
    assumed: tuple[str, ...]
    unasked: Training | None = None
    price: dict[str, Any] | None = None  # its parts, where the chips are owned

    @property
    def feasible(self) -> bool:
        return not bool(self.plans.miss[0] > 0.0)

    def as_json(self) -> dict[str, Any]:
        """The document of `dse train --json`; time, money and energy are null if nothing fits."""
        best, terms = self._row(0), self.terms
        violations = broken_rows(self.plans.case, self.plans.violations, 0)
        hours = best["days"] * 24.0 * terms.chips
        price = float(self.trainer.machines.usd_per_chip_hour[0])
        watts = mean_watts(self.plans, self.trainer.machines)
        run, found, conditions = self.plans.run, self.plans.metrics, self.trainer.conditions
        goodput = run.goodput
        parts = {part: float(found.memory[part][0]) for part in MEMORY_PARTS}
        losses = {name: float(run.losses[name][0]) for name in LOSSES_AT_SCALE}
        tokens_per_s = float(self.plans.rate[0]) / float(goodput.goodput[0])
        document = {
            "step_s": best["step_s"],
            "mfu": float(self.mfu(0)),
            "mfu_convention": MFU,
            "hfu": float(self._slower(0) * found.hfu[0]),
            "mfu_6n": float(self._slower(0) * found.mfu_6n[0]),
            "tokens_per_s": tokens_per_s,
            "tokens_per_s_per_chip": tokens_per_s / terms.chips,
            "days": best["days"],
            "chip_hours": hours,
            "goodput": best["goodput"],
            "backward_over_forward": self.backward_over_forward(),
            "usd": number(hours * price),
            "kwh": number(watts.whole[0] * hours / 1e3),
            "watts_per_chip": number(watts.chip[0]),
        }
        kind = int(law_kind(self.plans.batch, self.trainer.machines)[0])
        intervals = train_intervals(document, kind)
        if not self.feasible:
            document = dict.fromkeys(document) | {"mfu_convention": MFU}
            intervals = {}
        return {
            **document,
            "memory_bytes_per_chip": float(found.memory_bytes_per_chip[0]),
            "memory_bytes_per_chip_parts": parts,
            "memory_capacity_bytes_per_chip": float(found.memory_capacity_bytes_per_chip[0]),
            "host_memory_bytes_per_chip": float(found.host_memory_bytes_per_chip[0]),
            "memory_unsharded_bytes": self.unsharded(),
            "feasible": self.feasible,
            "violations": violations,
            "parallelism": best["parallelism"],
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
                "chip_hours_between": conditions.chip_s_between / HOUR,
                "checkpoint_bytes": float(run.checkpoint_bytes[0]),
                "checkpoint_s": float(goodput.write_s[0]),
                "checkpoint_interval_s": float(goodput.interval_s[0]),
                "restart_s": conditions.restart_s,
            },
            "next_plans": [self._row(i) for i in range(1, len(self.plans.batch))],
            "usual": self._usual(best["days"], hours * price),
            "without_degrees": None
            if self.unasked is None or not self.unasked.feasible
            else self.unasked._row(0),
            "plans_evaluated": self.count,
            "plans_that_fit": self.fitting,
            "intervals": intervals,
            "interval_kind": interval_words(kind),
            "model": self.model.name,
            "total_parameters": round(float(self.parameters.total[0])),
            "active_parameters": round(float(self.parameters.active[0])),
            "chip": terms.chip,
            "chips": terms.chips,
            "tokens": self.tokens,
            "training_flops": float(
                training_flops(self.parameters.active, np.array(self.tokens))[0]
            ),
            "sequence_length": terms.sequence_length,
            "global_batch_tokens": float(self.plans.batch.global_batch_tokens[0]),
            **{name: getattr(terms, name) for name in ("precision", "task", "optimizer")},
            "stack": self.trainer.stack.id,
            "sites": terms.sites,
            "price_basis": self.price_basis,
            "usd_per_chip_hour": number(price),
            **({"price": self.price} if self.price else {}),
            "assumed": list(self.assumed),
        }

    def _usual(self, best_days: float, best_usd: float) -> dict[str, Any] | None:
        """What published pre-training runs take where the best plan takes this; None for other
        tasks, and where nothing fits."""
        if not self.feasible or self.terms.task != "pretrain":
            return None
        over, least, most = usual_over_best()
        days = best_days * over
        return {
            "over_best": over,
            "over_best_range": [least, most],
            "days": days,
            "chip_hours": days * 24.0 * self.terms.chips,
            "usd": number(best_usd * over),
        }

    def _slower(self, i: int) -> float:
        """Step of the chips alone over that of the run: what the network between sites and the
        input leave of their utilisation."""
        return float(self.plans.metrics.step_s[i] / self.plans.run.step_s[i])

    def mfu(self, i: int) -> float:
        """Of plan `i`, all losses of its step counted, interruptions not."""
        return self._slower(i) * float(self.plans.metrics.mfu[i])

    def backward_over_forward(self) -> float:
        """Device seconds of all layers of a micro-batch of the best plan, backward over forward,
        without what is recomputed."""
        layers = Pass(
            TrainingDeployed(self.plans.batch[0:1], self.trainer.machines, self.trainer.stack)
        ).layers
        return float((layers.backward / layers.forward)[0])

    def unsharded(self) -> dict[str, float]:
        """Bytes of weights, gradients and optimizer states of the whole model in one place: 16-bit
        weights and gradients, moments as the optimizer keeps them; the master copy beside them."""
        total = float(self.parameters.total[0])
        moments = float(MOMENT_BYTES[OPTIMIZERS.index(self.terms.optimizer)])
        parts = {
            "weights": 2.0 * total,
            "gradients": 2.0 * total,
            "optimizer": moments * total,
        }
        return {**parts, "total": sum(parts.values()), "master_copy": 4.0 * total}

    def _row(self, i: int) -> dict[str, Any]:
        wall = self.plans.run.wall_s(self.plans.batch, self.tokens)
        return {
            "parallelism": parallelism(self.plans, i),
            "step_s": float(self.plans.run.step_s[i]),
            "mfu": self.mfu(i),
            "goodput": float(self.plans.run.goodput.goodput[i]),
            "days": float(wall[i]) / DAY,
            "memory_bytes_per_chip": float(self.plans.metrics.memory_bytes_per_chip[i]),
        }


MFU = (
    "6 FLOP a parameter and token, the input table left out, and attention over the tokens that "
    "the mask lets it see; over the dense peak of the precision"
)


def parallelism(plans: Evaluated, i: int) -> dict[str, Any]:
    """The degrees of plan `i` under the names of the command line."""
    batch = plans.batch
    names = [f"{what}_parallel" for what in ("tensor", "pipeline", "data", "expert")]
    degrees = {name: int(getattr(batch.candidates, name)[i]) for name in names}
    return {
        **degrees,
        "context_parallel": int(batch.context_parallel[i]),
        "virtual_stages": int(batch.virtual_stages[i]),
        "micro_batch": int(batch.micro_batch[i]),
        "micro_batches": math.ceil(batch.micro_batches[i]),
        "schedule": SCHEDULES[batch.schedule[i]],
        "recompute": RECOMPUTES[batch.recompute[i]],
        "zero_stage": int(batch.zero_stage[i]),
        "sequence_parallel": bool(batch.sequence_parallel[i]),
        "weight_dtype": DTYPES[batch.candidates.weight_dtype["mlp"][i]],
    }


def train(
    catalog: Catalog,
    model: Model,
    terms: TrainingTerms,
    tokens: float,
    price_basis: str,
) -> Training:
    """Evaluates every plan of the run. Raises InputError for an unknown chip, stack or price
    basis."""
    if terms.degrees.get("expert_parallel", 1) > 1 and not model.experts:
        raise InputError(
            f"{model.name} has no experts", field="expert_parallel", accepted="no such flag"
        )
    trainer = trainer_of(catalog, terms, price_basis)
    shape = shape_of(model)
    ranked = trainer.ranked(shape)
    chosen = _different(ranked, SHOWN_PLANS)
    plans = trainer.evaluate(shape, *ranked.take(chosen))
    answer = Training(
        model=model,
        terms=terms,
        tokens=tokens,
        price_basis=price_basis,
        trainer=trainer,
        plans=plans,
        count=len(ranked.row),
        fitting=int((ranked.miss <= 0.0).sum()),
        parameters=parameters(shape),
        assumed=tuple(assumptions(catalog, model, terms, trainer, price_basis)),
        price=next(iter(price_documents(catalog, [terms.chip], price_basis)), None),
    )
    if answer.feasible or not terms.degrees:
        return answer
    free = train(catalog, model, replace(terms, degrees={}), tokens, price_basis)
    return replace(answer, unasked=free)


def _different(ranked: Ranked, count: int) -> np.ndarray:
    """The best plan, and the best of the next few ways to divide the chips that fit."""
    order = ranked.order()
    names = [f"{what}_parallel" for what in ("tensor", "context", "pipeline", "expert", "data")]
    degrees = np.stack([ranked.table[name][order] for name in names], axis=1)
    first = np.sort(np.unique(degrees, axis=0, return_index=True)[1])
    fits = ranked.miss[order[first]] <= 0.0
    return order[first[fits | (np.arange(len(first)) == 0)][:count]]
