"""Speculative decoding: tokens drafted cheaply, verified in one step of the model.

With k drafted tokens, each accepted with probability a if all before it were, a step yields

    (1 - a^(k + 1)) / (1 - a)        k + 1 at a = 1

tokens (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", eq. 1).
The step verifies k + 1 tokens of every request: as many rows in every projection and expert, one
read of the cache. A draft costs k times a pass of either a multi-token-prediction module (MTP,
DeepSeek-AI 2024: one layer of the model, a projection of two hidden states to one, the model's own
embedding and output head) or of a draft model, given as a share of a plain decode step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dse.blocks import KINDS
from dse.blocks.operators import ACTIVATION_BYTES, Product, Role
from dse.physics.deployed import Deployed
from dse.physics.step import Step
from dse.schema.blocks import MIXERS
from dse.space.candidates import Block, CandidateBatch, Floats


@dataclass(frozen=True, slots=True)
class Speculation:
    """`draft_tokens` a step, each accepted with probability `acceptance` (0 to 1) after the one
    before it: measured by the user, for nothing predicts it. `draft_share`: seconds of a draft
    token over those of a plain decode step; None where an MTP module drafts."""

    draft_tokens: int
    acceptance: float
    draft_share: float | None = None

    @property
    def verified(self) -> float:
        """Tokens of a request in one step."""
        return self.draft_tokens + 1.0

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens that a request gains in one step."""
        if self.acceptance == 1.0:
            return self.verified
        return (1.0 - self.acceptance**self.verified) / (1.0 - self.acceptance)


def module(batch: CandidateBatch) -> CandidateBatch:
    """The models cut to one layer, the mean of their own: one that mixes tokens and one
    feed-forward, the kinds in proportion."""
    mixers, others = np.zeros(len(batch)), np.zeros(len(batch))
    for block in batch.blocks:
        if block.kind in MIXERS:
            mixers = mixers + block.count
        else:
            others = others + block.count
    blocks = []
    for block in batch.blocks:
        total = mixers if block.kind in MIXERS else others
        blocks.append(Block(block.kind, block.count / np.maximum(total, 1.0), block.sizes))
    return replace(
        batch,
        blocks=tuple(blocks),
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


def draft_s(
    speculation: Speculation, deployed: Deployed, rows: Floats, context: Floats, plain_s: Floats
) -> Floats:
    """(n,) device seconds of all drafts of a step for `rows` requests on each rank; `plain_s` is a
    decode step without speculation."""
    if speculation.draft_share is not None:
        return speculation.draft_tokens * speculation.draft_share * plain_s
    one = Deployed(module(deployed.batch), deployed.machines)
    zeros = np.zeros(one.n)
    step = Step(
        one,
        decode_rows=rows,
        context=context,
        prefill_rows=zeros,
        prompt_tokens=np.ones(one.n),
    )
    hidden = one.batch.hidden_size
    columns = hidden / one.tensor_parallel
    width, one = 2.0 * hidden, step.always
    step.gemm(Product(Role.PROJECTION, "projection", one, "attention", rows, columns, width))
    return speculation.draft_tokens * step.seconds
