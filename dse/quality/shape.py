"""Shapes and training tokens as the quality laws read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A vocabulary of 32,000 words for every model, so that a large one earns nothing (assumed).
VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class Shape:
    """n shapes, (n,) each; a dense one has `experts` 0, and its other expert fields are not read.

    `active_non_embedding` counts what a token meets between the two tables of the vocabulary.
    `shared_width_ratio` is the shared experts' total width over one routed expert's.
    `embedding_parameters` counts both tables (a tied one once).
    """

    hidden_size: Floats
    layers: Floats
    active_non_embedding: Floats
    experts: Floats
    experts_per_token: Floats
    shared_width_ratio: Floats
    expert_intermediate_size: Floats
    training_tokens: Floats
    total_parameters: Floats | None
    embedding_parameters: Floats | None

    @property
    def sparse(self) -> NDArray[np.bool_]:
        return self.experts > 0

    @property
    def activation_ratio(self) -> Floats:
        """(n,) (k + s) / (E + s) for k of E routed experts and a shared width of s; dense: 1."""
        shared = np.where(self.sparse, self.shared_width_ratio, 0.0)
        return np.where(self.sparse, self.experts_per_token + shared, 1.0) / np.where(
            self.sparse, self.experts + shared, 1.0
        )

    @property
    def granularity(self) -> Floats:
        """(n,) 2 hidden_size / width of an expert; dense: 2."""
        width = np.where(self.sparse, self.expert_intermediate_size, self.hidden_size)
        return 2.0 * self.hidden_size / width

    @property
    def training_flops(self) -> Floats:
        """(n,) 6 N D without embeddings."""
        return training_flops(self.active_non_embedding, self.training_tokens)

    @property
    def embeddings(self) -> Floats:
        """(n,) parameters of both tables, by default of 32,000 words each."""
        if self.embedding_parameters is None:
            return 2.0 * VOCABULARY * self.hidden_size
        return self.embedding_parameters


def training_flops(active_parameters: Floats, training_tokens: Floats) -> Floats:
    """(n,) FLOP of training, C = 6 N D (Kaplan et al. 2020, arXiv 2001.08361)."""
    return 6.0 * active_parameters * training_tokens


def tokens_at_compute(training_flops: Floats, active_parameters: Floats) -> Floats:
    """(n,) training tokens that a compute budget pays for, D = C / (6 N)."""
    return training_flops / (6.0 * active_parameters)
