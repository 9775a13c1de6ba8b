"""Metrics of training, and of a model's whole life, for the shapes of a space.

Each distinct shape is trained by the best of its plans on the chips of the `training:` section,
once: shapes are few against points. Days, dollars and energy then follow from the training tokens
of each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.economics.tokens import lifetime, tokens_over_years
from dse.problem.evaluate import Metrics
from dse.problem.training import OF_LIFE, OF_TRAINING
from dse.problem.training.figures import mean_watts, run_assumptions
from dse.problem.training.search import Trainer
from dse.problem.training.trainer import trainer_of
from dse.record import record
from dse.rules.service import TRAINING_FITS
from dse.schema.study import Study
from dse.schema.training_run import TrainingTerms
from dse.schema.training_section import LifetimeTerms
from dse.space.batches import DEPLOYMENT_AXES
from dse.space.candidates import CandidateBatch, Floats

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
        best = self._best(batch)
        names = OF_TRAINING if self.life is None else (*OF_TRAINING, *OF_LIFE)
        return replace(
            metrics,
            values=_Joined(metrics.values, names, lambda: self._values(metrics.values, best)),
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
        chosen = self.trainer.evaluate(shapes, *ranked.take(ranked.best()))
        mfu = chosen.metrics.mfu * chosen.metrics.step_s / chosen.run.step_s
        drawn = mean_watts(chosen, self.trainer.machines).whole
        columns = (chosen.rate.tolist(), mfu.tolist(), drawn.tolist(), chosen.miss.tolist())
        return list(zip(*columns, strict=True))

    def _values(self, values: Mapping[str, Floats], best: Floats) -> dict[str, Floats]:
        chips = float(self.trainer.chips)
        price = self.trainer.machines.usd_per_chip_hour[0]
        rate = np.where(best[:, 3] > 0.0, np.nan, best[:, 0])
        tokens = values["training_tokens"]
        seconds = tokens / rate
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
        life = lifetime(
            values["active_parameters"],
            tokens,
            found["training_usd"],
            hours,
            self.served_tokens,
            served,
            served / 1e6 / (values["chip_usd_per_hour"] / HOUR),
        )
        return {
            **found,
            "lifetime_usd": life.usd,
            "lifetime_serving_share": life.serving_share,
            "lifetime_flops": life.flops,
            "lifetime_chip_hours": life.training_chip_hours + life.serving_chip_hours,
        }


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


class _Joined(Mapping[str, Floats]):
    """Metrics and those that are worked out when one of them is first asked for."""

    __slots__ = ("_base", "_found", "_later", "_names")

    def __init__(
        self,
        base: Mapping[str, Floats],
        names: tuple[str, ...],
        later: Callable[[], Mapping[str, Floats]],
    ) -> None:
        self._base, self._names, self._later = base, names, later
        self._found: Mapping[str, Floats] | None = None

    def __getitem__(self, name: str) -> Floats:
        if name not in self._names:
            return self._base[name]
        if self._found is None:
            self._found = self._later()
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        yield from self._names

    def __len__(self) -> int:
        return len(self._base) + len(self._names)
