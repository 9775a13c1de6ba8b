"""Training: the plans of a run and the best of them, what a run rests on, its watts and intervals;
the metrics of training, and of a model's whole life, for the shapes of a space.

A plan's rate is useful tokens per second: global batch / step x goodput. Of equal rates (a slow
input pipeline makes them all equal) the one whose chips are faster wins, then the first in the
order of `plans`, so that the choice does not depend on what else is asked.

The usual plan is what teams take: that of the nearest published run of the model on the chip, or
the fastest that keeps to the habits of the software (`Trainer.unusual`). The best is the fastest.

Each distinct shape of a space is trained by its usual plan on the chips of the `training:` section,
once: shapes are few against points. Days, dollars and energy then follow from the training tokens
of each point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.blocks import FEED_FORWARD
from dse.blocks import KINDS as BLOCK_KINDS
from dse.blocks.kind import State
from dse.catalog import Catalog
from dse.economics.prices import price_assumptions
from dse.economics.tokens import lifetime, tokens_over_years
from dse.errors import InputError
from dse.physics.machines import Machines, compile_machines
from dse.physics.training.at_scale import Conditions, Run, at_scale, of_one_site
from dse.physics.training.evaluate import HABIT, evaluate_training, training_spread, whole_runs
from dse.physics.training.plan import (
    BF16_SHARE,
    RECOMPUTES,
    Setting,
    TrainingBatch,
    TrainingMetrics,
    batch_of_plans,
    default_batch_tokens,
    plans,
)
from dse.problem.evaluate import Metrics, Values
from dse.record import record
from dse.rules.case import Case, Training
from dse.rules.deployment import TRAINING_FITS
from dse.rules.registry import judge
from dse.schema.backend import KINDS
from dse.schema.chip import Figure
from dse.schema.costs import BASIS as OWNED
from dse.schema.model import BlockSpec, Model
from dse.schema.space_sections import LifetimeTerms
from dse.schema.study import Study
from dse.schema.training import Recipe, TrainingStack, TrainingTerms, current, training_stack
from dse.space.batches import DEPLOYMENT_AXES, one_of
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments, stacked

# Metrics of a point that is trained, and those of its life where it then serves so much.
OF_TRAINING = (
    "training_days", "training_usd", "training_kwh", "training_chip_hours", "training_mfu",
)  # fmt: skip
OF_LIFE = (
    "lifetime_usd", "lifetime_serving_share", "lifetime_flops", "lifetime_chip_hours",
)  # fmt: skip


CHUNK = 8192


@record
class Published:
    """The plan of a published run, by the names of SEARCHED, and where it stands. `fits`: that run
    had no more chips, no shorter sequences and the same format, so that the memory suffices,
    whatever is predicted of it."""

    plan: Mapping[str, int]
    source: str
    fits: bool


@record
class Trainer:
    """What plans are judged on: one chip of `machines` (its code is in the shapes), `chips` of
    them, a stack, what every plan has in common and what surrounds the run; the recipe and the plan
    that are published for its model."""

    machines: Machines
    chips: int
    stack: TrainingStack
    setting: Setting
    conditions: Conditions
    recipe: Recipe = Recipe()
    published: Published | None = None

    @property
    def whole_run(self) -> float:
        """Hours of a whole pre-training run over those of its steps and interruptions."""
        return whole_runs()[0] if self.setting.task == "pretrain" else 1.0

    def evaluate(
        self, shapes: CandidateBatch, row: NDArray[np.intp], table: Deployments
    ) -> Evaluated:
        """The plans (n,) of the shapes at `row`."""
        batch = batch_of_plans(shapes, row, table, self.setting)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            alone = of_one_site(batch, self.conditions)
            metrics = evaluate_training(alone, self.machines, self.stack)
            run = at_scale(batch, metrics, self.conditions)
            case = Case.of_training(Training(metrics, batch, run, self.conditions, self.chips))
            violations = judge(case)
        if self.published and self.published.fits:
            ran = [table[name] == value for name, value in self.published.plan.items()]
            over = violations["memory_capacity"]
            fits = np.where(np.all(ran, axis=0), np.minimum(over, 0.0), over)
            violations = {**violations, "memory_capacity": fits}
        return Evaluated(batch, metrics, run, case, violations)

    def plans(self, shapes: CandidateBatch) -> tuple[NDArray[np.intp], Deployments]:
        """Every plan of every shape: (n,) the shape's row, and the table."""
        domains = self.machines.fabric.domain[shapes.chip]
        tables = [
            plans(shapes[k : k + 1], self.chips, self.setting, float(domains[k]))
            for k in range(len(shapes))
        ]
        row = np.repeat(np.arange(len(shapes)), [len(table) for table in tables])
        return row, stacked(tables)

    def ranked(self, shapes: CandidateBatch) -> Ranked:
        """All plans of all shapes with their rates."""
        row, table = self.plans(shapes)
        rates, misses, steps, unusual = (np.empty(len(row)) for _ in range(4))
        for start in range(0, len(row), CHUNK):
            part = slice(start, start + CHUNK)
            found = self.evaluate(shapes, row[part], table.take(part))
            rates[part], misses[part] = found.rate, found.miss
            steps[part], unusual[part] = found.metrics.step_s, self.unusual(found)
        return Ranked(row, table, rates, misses, steps, unusual)

    def unusual(self, found: Evaluated) -> Floats:
        """(n,) how far plans are from what teams take: 0 keep to the habits of the stack; 1 spread
        experts over less than half of a scale-up domain; 2 shard or recompute otherwise; 3 fill
        more of the memory than USUAL_MEMORY, which sharded runs do."""
        batch, deployed, metrics = found.batch, found.batch.candidates, found.metrics
        if self.stack.sharded:
            again = batch.recompute == RECOMPUTES.index(self.stack.recompute)
            alone = (deployed.pipeline_parallel == 1.0) & (deployed.expert_parallel == 1.0)
            return np.where(again & alone & (batch.zero_stage == SHARDED), 0.0, 2.0)
        experts = np.ones(len(batch))
        for block in deployed.blocks:
            if block.kind == "moe":
                experts = np.maximum(experts, np.where(block.count > 0.0, block["experts"], 1.0))
        group = batch.chips / deployed.pipeline_parallel
        dividing = np.gcd(experts.astype(np.int64), group.astype(np.int64))
        most = np.minimum(dividing, self.machines.fabric.domain[deployed.chip])
        habit = (batch.zero_stage < SHARDED) & (batch.recompute <= RECOMPUTES.index("selective"))
        used = metrics.memory_bytes_per_chip / metrics.memory_capacity_bytes_per_chip
        far = np.where(2.0 * deployed.expert_parallel > most, 0.0, 1.0)
        return np.where(used <= USUAL_MEMORY, np.where(habit, far, 2.0), 3.0)

    def usual(
        self, shape: CandidateBatch, ranked: Ranked | None = None
    ) -> tuple[tuple[NDArray[np.intp], Deployments], bool]:
        """The usual plan of one shape, whose plans may be `ranked`, and whether it is the published
        one, which is taken where it fits, if need be with other micro-batches."""
        told = dict(self.published.plan) if self.published else {}
        degrees = {name: value for name, value in told.items() if name != "micro_batch"}
        for fixed in (told, degrees) if told else ():
            alone = replace(self, setting=replace(self.setting, fixed=fixed)).ranked(shape)
            best = alone.best(usual=True)
            if not alone.miss[best][0] > 0.0:
                return alone.take(best), True
        ranked = ranked or self.ranked(shape)
        return ranked.take(ranked.best(usual=True)), False


@record
class Evaluated:
    """Plans, (n,), the step of each and the run around it; `violations[rule]` of
    `dse.rules.registry`."""

    batch: TrainingBatch
    metrics: TrainingMetrics
    run: Run
    case: Case
    violations: Mapping[str, Floats]

    @property
    def rate(self) -> Floats:
        """(n,) useful tokens per second of all chips."""
        return self.batch.global_batch_tokens / self.run.step_s * self.run.goodput.goodput

    @property
    def miss(self) -> Floats:
        """(n,) by how much rules are broken, added up; 0 where none is."""
        broken = (np.maximum(amount, 0.0) for amount in self.violations.values())
        return sum(broken, np.zeros(len(self.batch)))


@record
class Ranked:
    """Plans (n,) of shapes at `row`, their rates, by how much they miss the rules, the step of the
    chips alone, and how far they are from usual ones."""

    row: NDArray[np.intp]
    table: Deployments
    rate: Floats
    miss: Floats
    step_s: Floats
    unusual: Floats

    def order(self, *, usual: bool = False) -> NDArray[np.intp]:
        """(n,) plans by shape, the best first: those that fit by rate, then the nearest misses. Of
        `usual` ones, the most usual that fit first."""
        place = np.arange(len(self.row))
        broken = self.miss > 0.0
        rate = np.where(broken, 0.0, self.rate)
        far = np.where(broken, 0.0, self.unusual) if usual else np.zeros(len(place))
        return np.lexsort((place, self.step_s, -rate, far, self.miss, self.row))

    def take(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Deployments]:
        return self.row[rows], self.table.take(rows)

    def best(self, *, usual: bool = False) -> NDArray[np.intp]:
        """(k,) the best plan of each shape, or its usual one, in the order of the shapes."""
        order = self.order(usual=usual)
        return order[np.searchsorted(self.row[order], np.arange(self.row.max() + 1))]


SHARDED = 3.0  # the ZeRO stage of FSDP
# Four of five published plans of Megatron take less of the chip, as it is predicted here.
USUAL_MEMORY = 0.8
# What plans take from the terms and from the recipe as it is, and conditions from the terms.
OF_EVERY_PLAN = ("precision", "task", "optimizer", "lora_rank", "offload", "schedule")
OF_RECIPE = ("tensor_hidden", "recompute_share", "gradient_bytes")
AROUND = ("checkpoint_interval_s", "sites", "site_split", "site_latency_s", "local_steps")
DEFAULT_BATCH = 2048 * 8192  # Llama 3's largest (arXiv 2407.21783, table 4)


def trainer_of(
    catalog: Catalog,
    terms: TrainingTerms,
    price_basis: str | None,
    model: Model | None = None,
    *,
    few: bool = False,
    unseen: bool = False,
) -> Trainer:
    """On the stack of the terms, else on what is current for the model, `unseen` as if nothing of
    it were published. `few` plans for each of many shapes. Raises InputError for an unknown chip,
    stack or price basis, and for a chip that lacks a figure which so many of it need."""
    try:
        catalog.require(terms.chip, terms.chips / terms.sites)
    except InputError as error:
        if catalog.refusal(terms.chip) is not None:
            raise
        apart = f"{error.accepted}, or sites of fewer chips with a bandwidth between them"
        raise InputError(error.message, file=error.file, accepted=apart) from None
    machines = compile_machines(catalog, [terms.chip], price_basis)
    fixed = dict(terms.degrees)
    if terms.recompute is not None:
        fixed["recompute"] = RECOMPUTES.index(terms.recompute)
    if terms.zero is not None:
        fixed["zero_stage"] = terms.zero
    batch = terms.global_batch_tokens
    recipe = Recipe(stack=terms.stack or "")
    if terms.stack is None:
        recipe = current(model, catalog.chip(terms.chip), terms, unseen=unseen)
    setting = Setting(
        sequence_length=terms.sequence_length,
        # "16M" is a round number of tokens: the nearest batch of whole sequences is meant.
        global_batch_tokens=default_batch_tokens(
            terms.chips, terms.sequence_length, batch or DEFAULT_BATCH
        )
        if batch is None or batch % terms.sequence_length
        else batch,
        **{name: getattr(terms, name) for name in OF_EVERY_PLAN},
        bf16_share=BF16_SHARE if recipe.bf16_share is None else recipe.bf16_share,
        **{name: getattr(recipe, name) for name in OF_RECIPE},
        fixed=fixed,
        few=few,
    )
    conditions = _conditions(catalog, terms)
    stack = training_stack(recipe.stack)
    return Trainer(machines, terms.chips, stack, setting, conditions, recipe)


def _conditions(catalog: Catalog, terms: TrainingTerms) -> Conditions:
    figures = catalog.reliability
    storage = figures.figure("checkpoint_bandwidth_per_chip").value
    given = terms.checkpoint_bytes_per_s
    return Conditions(
        chip_s_between=_or(terms.chip_s_between, figures.between(terms.chip).value),
        restart_s=_or(terms.restart_s, figures.figure("restart").value),
        storage_bytes_per_s_per_chip=_or(given and given / terms.chips, storage),
        straggler=_or(terms.straggler, 0.0),
        input_tokens_per_s=_or(terms.input_tokens_per_s, math.inf),
        site_bytes_per_s=_or(terms.site_bytes_per_s, math.inf),
        **{name: getattr(terms, name) for name in AROUND},
    )


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def shape_of(model: Model) -> CandidateBatch:
    """The model as a batch of one, on chip 0, its deployment not said."""
    return one_of(model, {}, "bf16", "bf16")


def with_prediction_layer(model: Model, passes: int = 1) -> Model:
    """The model with `passes` more layers of its last attention and feed-forward kinds: multi-token
    prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2; Nemotron 3 Super goes through one such
    layer twice). Each pass through the shared output head stands as one table more, which computes
    the same and takes a table more of memory."""
    last: dict[bool, int] = {}
    for place, block in enumerate(model.blocks):
        if not isinstance(BLOCK_KINDS[block.kind], State):
            last[block.kind in FEED_FORWARD] = place
    blocks = tuple(
        BlockSpec(block.kind, block.count + passes, block.sizes)
        if place in last.values()
        else block
        for place, block in enumerate(model.blocks)
    )
    return replace(model, blocks=blocks, vocab_size=(1 + passes) * model.vocab_size)


def trained_model(model: Model, trainer: Trainer) -> Model:
    """With the prediction layer that the recipe trains."""
    passes = trainer.recipe.predictions
    return with_prediction_layer(model, passes) if passes else model


def assumptions(
    catalog: Catalog, model: Model, terms: TrainingTerms, trainer: Trainer, price_basis: str
) -> list[str]:
    """A sentence each, of one run."""
    chip = catalog.chip(terms.chip)
    system = catalog.systems[chip.system]
    sentences = run_assumptions(catalog, terms, trainer)
    sentences += [f"{one.id}: {text}" for one in (chip, system) for text in one.assumed]
    sentences += [f"{system.id}: no figure for {name}" for name in system.missing]
    price = catalog.prices.select(price_basis).get(chip.id)
    if price is not None:
        rule = "" if price_basis == OWNED else f"{price.rule}; "
        sentences.append(
            f"{chip.id} at {price.usd_per_chip_hour:.3g} USD an hour on basis {price_basis} "
            f"({rule}newest {price.newest_date})"
        )
    sentences += price_assumptions(catalog, chip.id, price_basis)
    if chip.tdp_w is None:
        sentences.append(f"{chip.id} has no rated power: energy is null")
    return sentences + [f"{model.name}: {text}" for text in model.assumed]


def run_assumptions(catalog: Catalog, terms: TrainingTerms, trainer: Trainer) -> list[str]:
    """What any model's run rests on beyond the figures of its chip."""
    setting, figures = trainer.setting, catalog.reliability
    sentences = []
    if trainer.whole_run != 1.0:
        sentences.append(
            f"a whole run takes {trainer.whole_run:.3g} times the hours of its steps and "
            "interruptions, as published ones did (docs/train.md)"
        )
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
    guessed = [name for name, kind in trainer.stack.kinds.items() if kind == "assumed"]
    if guessed:
        stack = trainer.stack.id
        sentences.append(
            f"training stack {stack}: {len(guessed)} of {len(trainer.stack.kinds)} constants are "
            f"assumed (hardware/training/{stack}.yaml)"
        )
    storage = figures.figure("checkpoint_bandwidth_per_chip")
    unsaid = {
        "schedule": "schedules are 1F1B and interleaved; --set schedule=zero_bubble or dualpipe "
        "asks for others",
        "chip_s_between": _figure("chip-hours between failures", figures.between(terms.chip)),
        "restart_s": _figure("restart", figures.figure("restart")),
        "checkpoint_bytes_per_s": _figure("checkpoint bandwidth of a chip", storage),
        "checkpoint_interval_s": "checkpoints at the interval that wastes least (Daly 2006)",
        "input_tokens_per_s": "the input pipeline keeps up: --set input_tokens_per_s=20M sets a "
        "ceiling",
        "straggler": "ranks are delayed no more than the stack's own share for stragglers says; 5% "
        "and more between the chips of one node were measured (stas00/ml-engineering, 2026-08)",
    }
    sentences += [text for name, text in unsaid.items() if getattr(terms, name) is None]
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


# Watts of a chip while it trains, by the power model of serving (`dse.physics.energy`).
#
# Joules of a step are counted from what the mean chip does in it (`TrainingMetrics.work`), cut to
# the rated power over the time of the step; the network draws its own outside the chip. The idle
# power is drawn all the time, waits and restarts included; work that is lost is drawn for again.


def mean_watts(plans: Evaluated, machines: Machines) -> tuple[Floats, Floats]:
    """(n,) mean over the run of plans: of a chip, and of the network for each chip. NaN without a
    power figure."""
    draw = machines.power.of(plans.batch.candidates.chip)
    metrics, run = plans.metrics, plans.run
    most = (draw.cap_w - draw.idle_w) * metrics.step_s
    own = np.minimum(metrics.work.joules(draw), most)
    # Of the wall clock, the share in which steps run, lost ones too.
    running = (run.goodput.goodput + run.goodput.lost) / run.step_s
    network = draw.network_j_per_byte * metrics.work.network_bytes
    return draw.idle_w + own * running, network * running


# The metrics of training and life, and how far a prediction of them may be off: 80% intervals of
# measured rows that no fit had seen (`dse.physics.training.evaluate`).
#
# Of a plan that was published or is held, the speed of its steps is as far off as theirs; of one
# that keeps to habits, as far as runs whose plans and recipes were hidden. Days, chip-hours and
# dollars of a whole pre-training run are further off by what such runs took over their plans.

OF_RUN = ("days", "chip_hours", "usd")
OF_RATES = ("tokens_per_s_per_chip", "mfu")


def _rates(kind: int, of: str) -> tuple[float, float]:
    """Measured over predicted speed."""
    low, high = training_spread()[of][kind]
    return float(low), float(high)


def interval_words(kind: int, of: str) -> str:
    """Where the interval of `dse train` comes from."""
    if KINDS[kind] != "fitted":
        return "80% interval: assumed"
    plans = " whose plan was hidden" if of == HABIT else ""
    return f"80% interval: held-out measured rows of such chips{plans}"


def _further(most: float, more: float) -> float:
    """Two ends of intervals, as factors, of causes that have nothing to do with each other."""
    return math.exp(math.hypot(math.log(most), math.log(more)))


def train_intervals(
    document: Mapping[str, Any], kind: int, of: str, *, whole: bool
) -> dict[str, list[float]]:
    """Of an answer of `dse train`; `kind` indexes KINDS, `of` names the spread; `whole` runs of
    pre-training."""
    low, high = _rates(kind, of)
    mean, least, most = whole_runs() if whole else (1.0, 1.0, 1.0)
    run = (1.0 / _further(high, mean / least), _further(1.0 / low, most / mean))
    ends = {"step_s": (1.0 / high, 1.0 / low), **dict.fromkeys(OF_RUN, run)}
    return _times(document, ends | dict.fromkeys(OF_RATES, (low, high)))


def _times(
    values: Mapping[str, Any], ends: Mapping[str, tuple[float, float]]
) -> dict[str, list[float]]:
    """Each value that there is at its two ends, which are factors."""
    known = {name: two for name, two in ends.items() if values.get(name) is not None}
    return {name: [values[name] * end for end in two] for name, two in known.items()}


def study_intervals(
    values: Mapping[str, Any], known: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """Of a point's metrics of training and life; `known` holds those of its serving. Both halves of
    lifetime dollars are taken to be off together, and serving's by what its price may be. The
    spread is the widest there is: metrics do not say which kernel laws the training used."""
    low, high = _rates(len(KINDS) - 1, HABIT)
    slower = dict.fromkeys(
        ("training_days", "training_usd", "training_chip_hours"), (1.0 / high, 1.0 / low)
    )
    found = _times(values, {**slower, "training_mfu": (low, high)})
    price = values.get("usd_per_million_total_tokens")
    if values.get("lifetime_usd") is not None and "usd_per_million_total_tokens" in known:
        serving = values["lifetime_usd"] - values["training_usd"]
        spread = known["usd_per_million_total_tokens"]
        found["lifetime_usd"] = [
            trained + serving * end / price
            for trained, end in zip(found["training_usd"], spread, strict=True)
        ]
    return found


HOUR, DAY = 3600.0, 86_400.0
# Of one shape: useful tokens per second of all chips, MFU, watts of a chip and its
# network, by how much its best
# plan misses what it needs.
Best = tuple[float, float, float, float]
_HASH = np.uint64(0x9E3779B97F4A7C15)


@record
class Trained:
    """How the shapes of a study are trained and, with `life`, how much they then serve; `assumed`
    says what training rests on."""

    trainer: Trainer
    life: LifetimeTerms | None
    assumed: tuple[str, ...] = ()
    known: dict[int, Best] = field(default_factory=dict)  # by shape, what was found before

    @property
    def served_tokens(self) -> float:
        """Of the whole life; 0 without a forecast."""
        if self.life is None:
            return 0.0
        if self.life.tokens is not None:
            return self.life.tokens
        assert self.life.tokens_per_year is not None
        return tokens_over_years(self.life.tokens_per_year, self.life.years, self.life.growth)

    def complete(self, metrics: Metrics, batch: CandidateBatch) -> Metrics:
        """The metrics with those of training, and the rule that some plan fits."""
        best, served = self._best(batch), metrics.values
        names = OF_TRAINING if self.life is None else (*OF_TRAINING, *OF_LIFE)

        def found(name: str) -> Mapping[str, Floats]:
            return self._values(served, best) if name in names else {name: served[name]}

        return replace(
            metrics,
            values=Values(dict.fromkeys((*served, *names)), found),
            violations={**metrics.violations, TRAINING_FITS.name: best[:, 3]},
        )

    def _best(self, batch: CandidateBatch) -> Floats:
        """(n, 4) Best of each candidate's shape."""
        keys = shape_keys(batch)
        distinct, first, place = np.unique(keys, return_index=True, return_inverse=True)
        new = [k for k, key in enumerate(distinct) if int(key) not in self.known]
        if new:
            found = self._train(batch[first[new]])
            for k, row in zip(new, found, strict=True):
                self.known[int(distinct[k])] = row
        return np.array([self.known[int(key)] for key in distinct])[place]

    def _train(self, shapes: CandidateBatch) -> list[Best]:
        shapes = replace(
            shapes,
            **dict.fromkeys(DEPLOYMENT_AXES, np.ones(len(shapes))),
            chip=np.zeros(len(shapes), dtype=np.intp),
            redundant_experts=None,
            routing_skew=None,
            weights_offloaded=None,
            kv_offloaded=None,
            offload_tier=None,
            domain=None,
            backend=None,
        )
        ranked = self.trainer.ranked(shapes)
        chosen = self.trainer.evaluate(shapes, *ranked.take(ranked.best(usual=True)))
        mfu = chosen.metrics.mfu * chosen.metrics.step_s / chosen.run.step_s
        own, network = mean_watts(chosen, self.trainer.machines)
        columns = (chosen.rate, mfu, own + network, chosen.miss)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _values(self, values: Mapping[str, Floats], best: Floats) -> dict[str, Floats]:
        chips = float(self.trainer.chips)
        price = self.trainer.machines.usd_per_chip_hour[0]
        rate = np.where(best[:, 3] > 0.0, np.nan, best[:, 0])
        tokens = values["training_tokens"]
        seconds = tokens / rate * self.trainer.whole_run
        hours = seconds * chips / HOUR
        found = {
            "training_days": seconds / DAY,
            "training_usd": hours * price,
            "training_kwh": hours * best[:, 2] / 1e3,
            "training_chip_hours": hours,
            "training_mfu": np.where(best[:, 3] > 0.0, np.nan, best[:, 1]),
        }
        if self.life is None:
            return found
        served = serving_price(values, self.life)
        return found | lifetime(
            values["active_parameters"],
            tokens,
            found["training_usd"],
            hours,
            self.served_tokens,
            served,
            served / 1e6 / (values["chip_usd_per_hour"] / HOUR),
        )


def serving_price(values: Mapping[str, Floats], life: LifetimeTerms) -> Floats:
    """(n,) dollars per million served tokens: those of the workload, or by the forecast's share of
    prompt tokens."""
    if life.input_share is None:
        return values["usd_per_million_total_tokens"]
    return (
        life.input_share * values["usd_per_million_input_tokens"]
        + (1.0 - life.input_share) * values["usd_per_million_output_tokens"]
    )


def shape_keys(batch: CandidateBatch) -> NDArray[np.uint64]:
    """(n,) a number for each distinct shape (64-bit hash of every size)."""
    columns = [batch.hidden_size, batch.vocab_size, batch.tied_embeddings]
    for block in batch.blocks:
        columns += [block.count, *(block.sizes[name] for name in sorted(block.sizes))]
    key = np.zeros(len(batch), dtype=np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column, dtype=np.float64).view(np.uint64)
        key = (key ^ bits) * _HASH
        key ^= key >> np.uint64(29)
    return key


def trained_of(study: Study, catalog: Catalog) -> Trained | None:
    """None for a study without a `training:` section."""
    return None if study.training is None else of_terms(study.training, study.lifetime, catalog)


def of_terms(terms: TrainingTerms, life: LifetimeTerms | None, catalog: Catalog) -> Trained:
    """Training on terms whose price basis is filled in."""
    trainer = trainer_of(catalog, terms, terms.price_basis, few=True)
    sentences = [f"training: {text}" for text in run_assumptions(catalog, terms, trainer)]
    if life is not None:
        sentences.append("the tokens served are a forecast: the user's; prices stay as they are")
    return Trained(trainer, life, tuple(sentences))


def trained_again(study: Mapping[str, Any], catalog: Catalog) -> Trained | None:
    """Of the study that study.json describes."""
    if not study.get("training"):
        return None
    life = study.get("lifetime")
    forecast = LifetimeTerms(**life["terms"]) if life else None
    return of_terms(TrainingTerms(**study["training"]), forecast, catalog)
