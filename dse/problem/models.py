"""What follows from n models and the formats that they are served in, whatever serves them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import number
from dse.errors import InputError
from dse.physics.parameters import (
    ATTENTION_METRICS,
    Parameters,
    attention_metrics,
    index_bytes_per_token,
    kv_elements_per_token,
    parameters,
)
from dse.quality.law import Law, Quality, Shape, tokens_at_compute, training_flops
from dse.quality.laws import DEFAULT, LAWS, UNIQUE_TOKENS, quality
from dse.quality.own_runs import (
    LEAST_FACTOR,
    PRIOR,
    Posterior,
    columns_of,
    posterior_of,
    rescaled,
)
from dse.quality.quantisation import (
    AWARE,
    CACHE_HIGH,
    CACHE_LOW,
    CACHE_NATS,
    NONE,
    PTQ_FACTOR,
    PTQ_FACTOR_HIGH,
    PTQ_FACTOR_LOW,
    PTQ_FREE_BITS,
    TRAINED,
    cache_penalty,
    quantisation_penalty,
)
from dse.record import record
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.schema.loss_runs import LossRuns
from dse.space.batches import batch_of_models
from dse.space.candidates import BYTES, Block, CandidateBatch, Floats

# Metrics that `Models.values` has, and those of a shape that are worked out for who names them.
OF_MODEL = (
    "predicted_loss",
    "dense_equivalent_parameters",
    "total_parameters",
    "active_parameters",
    "training_tokens",
    "kv_bytes_per_token",
)
SHAPE_METRICS = (
    "attention_share",
    "width_per_layer",
    "equivalent_over_total",
    "tokens_per_active_parameter",
)
ASKED = ("training_flops", *SHAPE_METRICS, *ATTENTION_METRICS)


# What the number formats of training and of serving add to the loss of n models.

_ELEMENT_BITS = np.array([float(int(bits)) for bits in BITS.values()])
_PARTS = ("share", "low", "high")
_WHOLE = {p: np.array([getattr(TRAINED.get(d, NONE), p) for d in DTYPES]) for p in _PARTS}
_NARROW = _ELEMENT_BITS < PTQ_FREE_BITS
# Of the penalty of weights quantised after training, which is its value.
_AFTER = {"share": 1.0, "low": PTQ_FACTOR_LOW / PTQ_FACTOR, "high": PTQ_FACTOR_HIGH / PTQ_FACTOR}
# The same of a cache in 4 bits.
_CACHED = {"low": CACHE_LOW / CACHE_NATS, "high": CACHE_HIGH / CACHE_NATS}


@record
class FormatLoss:
    """Nats that number formats add, (n,): in `training`, by quantising the weights after it
    (`deployed`), and by the format of the cache (`cached`).

    `whole` and `end` are the codes of the formats of the whole training and of its end, `loss` is
    what the law says without them, and `rounded` what quantising to the format of the end after
    training would add, 0 where the two formats are one."""

    training: Floats
    deployed: Floats
    cached: Floats
    whole: NDArray[np.intp]
    end: NDArray[np.intp]
    loss: Floats
    rounded: Floats

    @property
    def narrow(self) -> NDArray[np.bool_]:
        """(n,) whether training was in a format that may cost something."""
        return (_WHOLE["high"][self.whole] > 0.0) | (_NARROW[self.end] & (self.end != self.whole))

    @property
    def added(self) -> Floats:
        """(n,) all of it."""
        return self.training + self.deployed + self.cached

    def interval(self, i: int) -> tuple[float, float]:
        """Of all together, of candidate `i`; 80%."""
        loss, rounded, deployed = self.loss[i], self.rounded[i], self.deployed[i]
        ends = []
        for part in ("low", "high"):
            aware = min(getattr(AWARE, part) * loss, rounded * _AFTER[part])
            weights = _WHOLE[part][self.whole[i]] * loss + aware + deployed * _AFTER[part]
            ends.append(weights + self.cached[i] * _CACHED[part])
        return float(ends[0]), float(ends[1])


def format_loss(
    whole: NDArray[np.intp],
    end: NDArray[np.intp],
    deployed: NDArray[np.intp],
    cache: NDArray[np.intp],
    loss: Floats,
    training_tokens: Floats,
    parameters: Floats,
) -> FormatLoss:
    """What the formats of n models add to their `loss`: weights of code `deployed`, trained in
    `whole` and at the end in `end`, and a cache of code `cache`.

    Every format of 6 bits or less is a quantisation but the one that training ended in: weights
    trained in one 4-bit format are rounded again for another. A training whose end alone knew of
    the format costs no more than quantising after it, which it starts from."""
    after = quantisation_penalty(_ELEMENT_BITS[deployed], training_tokens, parameters)
    training = _WHOLE["share"][whole] * loss
    rounded = np.zeros(len(loss))
    at_the_end = end != whole
    if at_the_end.any():
        rounded = quantisation_penalty(_ELEMENT_BITS[end], training_tokens, parameters) * at_the_end
        training = training + np.minimum(AWARE.share * loss, rounded)
    deployed_nats = np.where(deployed == end, 0.0, after)
    cached = cache_penalty(_ELEMENT_BITS[cache])
    return FormatLoss(training, deployed_nats, cached, whole, end, loss, rounded)


class Models:
    """The models of a batch, each figure worked out when it is first asked for. With
    `training_flops`, those whose training tokens are not given are trained for that compute."""

    def __init__(
        self,
        batch: CandidateBatch,
        training_flops: float | None,
        law: str | Law,
        unique_tokens: float,
    ) -> None:
        self.batch = batch
        self._flops, self._law, self._unique = training_flops, law, unique_tokens

    def of(self, batch: CandidateBatch) -> Models:
        """The same of others."""
        return Models(batch, self._flops, self._law, self._unique)

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    @property
    def tokens(self) -> Floats:
        """(n,) that they are trained on."""
        return self._tokens

    @cached_property
    def _parameters(self) -> Parameters:
        return parameters(self.batch)

    @cached_property
    def _tokens(self) -> Floats:
        tokens = self.batch.training_tokens
        if self._flops is None:
            return tokens
        flops = np.full(len(tokens), self._flops)
        affordable = tokens_at_compute(flops, self.parameters.active)
        return np.where(np.isnan(tokens), affordable, tokens)

    @cached_property
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def quality(self) -> Quality:
        """Of the trained models, before anything is quantised."""
        count, tokens = self.parameters, self.tokens
        return shape_quality_of(self.batch, count, tokens, self._law, self._unique)

    @cached_property
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def formats(self) -> FormatLoss:
        """What the formats cost of the quality."""
        batch, found = self.batch, self.quality
        # Of the weights that hold most of the model: experts where it has some.
        moe, weights = experts_of(batch), batch.weight_dtype["mlp"]
        if moe is not None:
            weights = np.where(moe.count > 0.0, batch.weight_dtype["experts"], weights)
        # A model that keeps no keys and values has no narrow cache.
        cache = np.where(kv_elements_per_token(batch) > 0.0, batch.kv_dtype, CODE["bf16"])
        return format_loss(
            batch.trained_whole,
            batch.trained_in,
            weights,
            cache,
            found.predicted_loss,
            self.tokens,
            found.quantised_parameters,
        )

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def values(self) -> dict[str, Floats]:
        """What OF_MODEL names, (n,) each."""
        batch, count = self.batch, self.parameters
        kept = kv_elements_per_token(batch) * BYTES[batch.kv_dtype]
        return {
            "predicted_loss": self.formats.loss + self.formats.added,
            "dense_equivalent_parameters": self.quality.dense_equivalent_parameters,
            "total_parameters": count.total,
            "active_parameters": count.active,
            "training_tokens": self.tokens,
            "kv_bytes_per_token": kept + index_bytes_per_token(batch),
        }

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def asked(self) -> Mapping[str, Floats]:
        """What ASKED names, (n,) each."""
        batch, count, tokens = self.batch, self.parameters, self.tokens
        return {
            "training_flops": 6.0 * count.active * tokens,
            "attention_share": count.attention / count.active_non_embedding,
            "width_per_layer": batch.hidden_size / batch.layers,
            "equivalent_over_total": self.quality.dense_equivalent_parameters / count.total,
            "tokens_per_active_parameter": tokens / count.active,
            **attention_metrics(batch),
        }


def experts_of(batch: CandidateBatch) -> Block | None:
    """The layers of which a token meets some experts alone."""
    return next((block for block in batch.blocks if "experts" in block.sizes), None)


def shape_quality_of(
    batch: CandidateBatch,
    count: Parameters,
    tokens: Floats,
    law: str | Law = DEFAULT,
    unique_tokens: float = UNIQUE_TOKENS,
) -> Quality:
    """The quality of n trained models under a law, before anything is quantised."""
    zeros = np.zeros(len(batch))
    moe = experts_of(batch)
    if moe is None:
        experts = top_k = shared = width = zeros
    else:
        experts = np.where(moe.count > 0.0, moe["experts"], 0.0)
        top_k, width = moe["experts_per_token"], np.maximum(moe["expert_intermediate_size"], 1.0)
        shared = moe["shared_intermediate_size"] / width
    shape = Shape(
        batch.hidden_size,
        batch.layers,
        count.active_non_embedding,
        experts=experts,
        experts_per_token=top_k,
        shared_width_ratio=shared,
        expert_intermediate_size=width,
        training_tokens=tokens,
        total_parameters=count.total,
        embedding_parameters=count.embedding + count.head,
        unique_tokens=unique_tokens,
    )
    return quality(shape, law)


# A quality law moved to training runs of one's own (`dse.quality.own_runs`).

FAR = 3.0  # standard deviations of the scatter, beyond which a run is named


@record
class OwnLaw:
    """`law` is the law of that name moved to the runs; of r runs, in their order: `flops`, of
    their training, `published` and `predicted`, their loss under the law before and after, (r,)."""

    law: Law
    posterior: Posterior
    runs: LossRuns
    flops: Floats
    published: Floats
    predicted: Floats


@lru_cache(maxsize=64)
def own_law(name: str, runs: LossRuns) -> OwnLaw:
    """The law moved to the runs. Raises InputError for runs in which size or data do nothing."""
    models = [run.model for run in runs.runs]
    batch, tokens = batch_of_models(models), np.array([run.training_tokens for run in runs.runs])
    measured = np.array([run.loss for run in runs.runs])
    found = quality_of_models(batch, tokens, LAWS[name])
    posterior = posterior_of(columns_of(found), measured - found.predicted_loss)
    for k, what in ((1, "size"), (2, "training tokens")):
        if 1.0 + posterior.mean[k] < LEAST_FACTOR:
            raise InputError(
                f"by these runs {what} is worth {1.0 + posterior.mean[k]:.2f} of what the law "
                f"{name} says",
                file=runs.file,
                field="loss",
                accepted=f"runs whose loss falls with {what}; nats per token, on unseen text",
            )
    law = rescaled(LAWS[name], posterior)
    moved = quality_of_models(batch, tokens, law)
    flops = training_flops(parameters(batch).active, tokens)
    return OwnLaw(law, posterior, runs, flops, found.predicted_loss, moved.predicted_loss)


def quality_of_models(batch: CandidateBatch, tokens: Floats, law: str | Law) -> Quality:
    """The quality of n models that are trained on `tokens` (n,)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return shape_quality_of(batch, parameters(batch), tokens, law)


def describe_own_law(own: OwnLaw) -> dict[str, Any]:
    """`loss_runs` of an answer: what the runs say of the law."""
    posterior, runs = own.posterior, own.runs
    return {
        "file": runs.file,
        "digest": runs.digest,
        "noise": posterior.noise,
        "posterior": [
            {"name": name, "prior_sd": prior, "mean": float(mean), "sd": float(sd)}
            for (name, prior), mean, sd in zip(
                PRIOR.items(), posterior.mean, posterior.sd, strict=True
            )
        ],
        "runs": [
            {
                **row,
                "training_flops": float(flops),
                "published_loss": number(published),
                "predicted_loss": number(predicted),
            }
            for row, flops, published, predicted in zip(
                runs.as_json(), own.flops, own.published, own.predicted, strict=True
            )
        ],
    }


def own_law_words(answer: Mapping[str, Any]) -> list[str]:
    """Sentences on `loss_runs` of an answer; none without."""
    if not (document := answer.get("loss_runs")):
        return []
    runs, (floor, size, tokens, leverage) = document["runs"], document["posterior"]
    said = [
        f"Moved to {len(runs)} runs of {document['file']}: floor {_signed(floor)} nats, "
        f"parameter term {_factor(size)}, token term {_factor(tokens)}, leverage of experts to the "
        f"power of {_factor(leverage).removeprefix('x ')}; the runs scatter by "
        f"{document['noise']:.4f} nats about it."
    ]
    far = [
        f"{row['name']} ({row['loss'] - row['predicted_loss']:+.4f})"
        for row in runs
        if abs(row["loss"] - row["predicted_loss"]) > FAR * document["noise"]
    ]
    if far:
        said.append(f"Runs that lie more than {FAR:g} times as far from it: {', '.join(far)}.")
    return said


def _signed(one: dict[str, Any]) -> str:
    return f"{one['mean']:+.3f} ± {one['sd']:.3f}"


def _factor(one: dict[str, Any]) -> str:
    return f"x {1.0 + one['mean']:.3f} ± {one['sd']:.3f}"
