"""Speculative decoding: tokens drafted cheaply, verified in one step of the model.

With k drafted tokens, each accepted with probability a if all before it were, a step yields

    (1 - a^(k + 1)) / (1 - a)        k + 1 at a = 1

tokens (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", eq. 1).
The step verifies k + 1 tokens of every request: as many rows in every projection and expert, one
read of the cache. A draft costs k times a pass of a multi-token-prediction module (MTP, DeepSeek-AI
2024: one layer of the model, a projection of two hidden states to one, the model's own embedding
and output head).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS
from dse.blocks.operators import ACTIVATION_BYTES, Product, Role
from dse.physics.deployed import Deployed
from dse.physics.step import Step, Work
from dse.record import record
from dse.schema.blocks import MIXERS
from dse.space.candidates import Block, CandidateBatch, Floats

MOST_DRAFTED = 64


@record
class Speculation:
    """`draft_tokens` a step (None: those of each candidate), each accepted with probability
    `acceptance` (0 to 1) after the one before it: measured by the user (None: what is published of
    the model). A multi-token-prediction
    module drafts."""

    draft_tokens: int | None = None
    acceptance: float | None = None


def tokens_per_step(drafted: int, acceptance: float) -> float:
    """Expected tokens that a request gains in a step with so many drafted."""
    if acceptance == 1.0:
        return drafted + 1.0
    return (1.0 - acceptance ** (drafted + 1.0)) / (1.0 - acceptance)


class Drafts(NamedTuple):
    """Tokens drafted a step, and tokens that a request gains in one, (n,)."""

    tokens: Floats
    gained: Floats

    @property
    def verified(self) -> Floats:
        """(n,) tokens of a request in one step."""
        return self.tokens + 1.0

    @property
    def on(self) -> NDArray[np.bool_]:
        return self.tokens > 0.0


def drafts_of(batch: CandidateBatch, speculation: Speculation | None) -> Drafts | None:
    """What each candidate drafts; None where none does. A model with 0 modules drafts nothing where
    one would be needed."""
    asked = speculation or Speculation()
    if asked.draft_tokens is not None:
        tokens = np.full(len(batch), float(asked.draft_tokens))
    elif batch.draft_tokens is not None:
        tokens = batch.draft_tokens
    else:
        return None
    modules = batch.prediction_layers
    if modules is not None:
        tokens = np.where(modules > 0.0, tokens, 0.0)
    if asked.acceptance is None:
        assert batch.draft_gain is not None
        gained = np.where(tokens > 0.0, batch.draft_gain, 1.0)
    else:
        table = [tokens_per_step(k, asked.acceptance) for k in range(MOST_DRAFTED + 1)]
        gained = np.array(table).take(tokens.astype(np.intp))
    return Drafts(tokens, gained)


def module(batch: CandidateBatch) -> CandidateBatch:
    """The models cut to one layer, the mean of their own: one that mixes tokens and one
    feed-forward, the kinds in proportion."""
    mixers = batch.layers
    others = batch.total(lambda block: block.count * (block.kind not in MIXERS))

    def share(block: Block) -> Floats:
        return block.count / np.maximum(mixers if block.kind in MIXERS else others, 1.0)

    return replace(
        batch,
        blocks=tuple(replace(block, count=share(block)) for block in batch.blocks),
        pipeline_parallel=np.ones(len(batch)),
        offload_tier=None,  # a module stays on the device
    )


def module_bytes(deployed: Deployed) -> Floats:
    """(n,) bytes of one MTP module on a chip: a layer and the projection."""
    one = Deployed(module(deployed.batch), deployed.machines)
    total = 2.0 * one.batch.hidden_size**2 / one.tensor_parallel * ACTIVATION_BYTES
    for block in one.batch.blocks:
        for part, elements in KINDS[block.kind].weight_elements(one, block).items():
            per_element = one.weight_bytes.get(part, ACTIVATION_BYTES)
            total = total + block.count * elements * per_element
    return total


def module_cache_bytes(deployed: Deployed, tokens: Floats) -> Floats:
    """(n,) bytes of the cache of one MTP module on a chip, of a request of `tokens`."""
    one = Deployed(module(deployed.batch), deployed.machines)
    return one.batch.total(
        lambda block: block.count * KINDS[block.kind].kv_bytes_per_request(one, block, tokens)
    )


def draft_s(drafts: Drafts, deployed: Deployed, rows: Floats, context: Floats) -> Floats:
    """(n,) device seconds of all drafts of a step for `rows` requests on each rank."""
    one = Deployed(module(deployed.batch), deployed.machines, deployed.launched)
    zeros = np.zeros(one.n)
    step = Step(one, Work(rows, context, prefill_rows=zeros, prompt_tokens=np.ones(one.n)))
    hidden = one.batch.hidden_size
    columns = hidden / one.tensor_parallel
    width, one = 2.0 * hidden, step.always
    step.gemm(Product(Role.PROJECTION, "projection", one, "attention", rows, columns, width))
    return drafts.tokens * step.seconds
