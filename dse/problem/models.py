"""What follows from n models and the formats that they are served in, whatever serves them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dse.physics.parameters import (
    ATTENTION_METRICS,
    Parameters,
    attention_metrics,
    index_bytes_per_token,
    kv_elements_per_token,
    parameters,
)
from dse.problem.quality import FormatLoss, format_loss
from dse.quality.law import Law, Quality, Shape, tokens_at_compute
from dse.quality.laws import DEFAULT, UNIQUE_TOKENS, quality
from dse.schema.dtypes import CODE
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
        return format_loss(
            batch.trained_whole,
            batch.trained_in,
            _deployed_format(batch),
            _cache_format(batch),
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


def _deployed_format(batch: CandidateBatch) -> NDArray[np.intp]:
    """(n,) codes of the weights that hold most of the model: experts where it has some."""
    moe, dense = experts_of(batch), batch.weight_dtype["mlp"]
    return dense if moe is None else np.where(moe.count > 0.0, batch.weight_dtype["experts"], dense)


def _cache_format(batch: CandidateBatch) -> NDArray[np.intp]:
    """(n,) codes of the keys and values; of a model that keeps none, that of 16 bits."""
    return np.where(kv_elements_per_token(batch) > 0.0, batch.kv_dtype, CODE["bf16"])
