"""One forward step of a model on one attention rank: decoding requests, prompt tokens, or both.

A step is what the scheduler runs at once. With pipeline stages it is the path of one micro-batch
through all of them: every layer once, plus a hop a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS, MIXERS
from dse.blocks.moe import ROUTING_SKEW
from dse.blocks.operators import ACTIVATION_BYTES, Exchange, Experts, Mixing, Product, Role
from dse.physics.alignment import Fit
from dse.physics.collectives import Cost
from dse.physics.deployed import Deployed, Law
from dse.physics.ledger import NONE, Hidden, Ledger
from dse.record import record
from dse.space.candidates import Block, Floats

TILE_ROWS = 128.0


def computed_rows(rows: Floats) -> Floats:
    """(n,) rows that a GEMM computes: above one tile of 128, halfway between the rows and whole
    tiles, since about half of the kernels that are chosen pad (docs/efficiency.md)."""
    tiles = np.ceil(rows / TILE_ROWS) * TILE_ROWS
    return np.where(rows > TILE_ROWS, (rows + tiles) / 2.0, rows)


@record
class Work:
    """What runs in a step, (n,) each.

    decode_rows: requests that decode one token on each attention rank; context: tokens of KV cache
    that each of them reads in the mean; prefill_rows: prompt tokens on each attention rank;
    prompt_tokens: the length of the prompts that these belong to; fresh_tokens: how many tokens of
    each are prefilled (None: all); prefill_ranks: share of the attention ranks that carry prompts
    in this step; context_spread: coefficient of variation of the context among requests (None: all
    alike); verified: tokens of each decoding request, more than 1 where some were drafted; overlap:
    as in `dse.physics.ledger`.
    """

    decode_rows: Floats
    context: Floats
    prefill_rows: Floats
    prompt_tokens: Floats
    fresh_tokens: Floats | None = None
    prefill_ranks: Floats | float = 1.0
    context_spread: Floats | None = None
    verified: Floats | float = 1.0
    overlap: Hidden = NONE

    @property
    def fresh(self) -> Floats:
        return self.prompt_tokens if self.fresh_tokens is None else self.fresh_tokens

    def longest(self, ranks: Floats) -> Floats:
        """(n,) context on the attention rank where it is longest, which sets the step: the expected
        maximum of normal deviates over so many `ranks`."""
        if self.context_spread is None:
            return self.context
        deviates = 2.0 * np.log(ranks) / np.maximum(self.decode_rows, 1.0)
        return self.context * (1.0 + self.context_spread * np.sqrt(deviates))


class Step:
    """`work` done, as `dse.blocks.operators.Operators`. All arrays (n,).

    Where batches take turns (`Work.overlap`), rows are those of one micro-batch.
    of: what of it runs at once: "all", or, of a batch of one block or none, the layers of that
    block alone or all that is no layer ("one"), or nothing before `run` is called.
    """

    backward = False
    slots_sent = 0.0

    def __init__(
        self,
        deployed: Deployed,
        work: Work,
        *,
        keep: bool = False,
        parts: bool = True,
        of: Literal["all", "one", "nothing"] = "all",
    ) -> None:
        overlap, decode_rows, prefill_rows = work.overlap, work.decode_rows, work.prefill_rows
        self.deployed = deployed
        self.ledger = Ledger(deployed, keep=keep, parts=parts, overlap=overlap)
        self.hidden_size = deployed.batch.hidden_size
        self.requests, self.prompt_rows = decode_rows, prefill_rows  # of all micro-batches
        self.context = work.longest(deployed.data_parallel)
        if overlap.batches is not None:
            decode_rows = decode_rows / overlap.batches
            prefill_rows = prefill_rows / overlap.batches
        self.decode_rows, self.prefill_rows = decode_rows, prefill_rows
        self.prompt_tokens, self.fresh_tokens = work.prompt_tokens, work.fresh
        self.verified, prefill_ranks = work.verified, work.prefill_ranks
        self.verified_rows: Floats = decode_rows * self.verified
        self.rows = self.verified_rows + prefill_rows
        self.mean_rows = self.verified_rows + prefill_rows * prefill_ranks
        # Ranks without prompts for each with one: their chips run experts for it.
        alone = isinstance(prefill_ranks, float)
        self.idle_ranks: Floats | None = None if alone else np.asarray(1.0 / prefill_ranks - 1.0)
        self.computed_rows = computed_rows(self.rows)
        self.always = np.ones(deployed.n)
        self.own_rows: Floats = self.rows / deployed.tensor_parallel
        skew = deployed.batch.routing_skew
        self.routing_skew: Floats | float = ROUTING_SKEW if skew is None else skew
        self._reduced: Cost | None = None
        # Of the product that is added next: its block's place in the batch, and how many before.
        self._block: int | None = None
        self._product = 0
        self.fit: Fit | None = None  # of that which was added last
        blocks = deployed.batch.blocks
        if of == "one":
            self.run(0 if blocks else None)
        elif of == "all":
            self._embed()
            for place, block in enumerate(blocks):
                if block.count.any():
                    self.run(place, block)
            self._finish()
            self.ledger.overlap()
            self.ledger.wait_for_tier()

    def run(self, place: int | None, block: Block | None = None) -> None:
        """Adds the layers of the block at a place of the batch, as many as it or `block` in its
        stead has; without a place, all that is no layer."""
        if place is None:
            self._embed()
            self._finish()
            return
        self._block, self._product = place, 0
        block = self.deployed.batch.blocks[place] if block is None else block
        KINDS[block.kind].add(self, block)

    def _embed(self) -> None:
        moved, law = 2.0 * self.rows * (self.hidden_size * ACTIVATION_BYTES), self.gemm_law("bf16")
        self.ledger.stream(Role.EMBEDDING, "embedding", self.always, law, moved)

    def _finish(self) -> None:
        """The output head, and what passes between pipeline stages."""
        deployed, ledger, hidden = self.deployed, self.ledger, self.hidden_size
        self._block, self._product = None, 0
        # Only the last token of each sequence reaches the output head.
        finished = self.verified_rows + self.prefill_rows / self.fresh_tokens
        vocabulary = deployed.vocabulary
        one, label = self.always, "output head"
        self.gemm(Product(Role.HEAD, label, one, "embedding", finished, vocabulary, hidden))
        # Every rank receives the columns of all others.
        gathered = finished * vocabulary * deployed.tensor_parallel * ACTIVATION_BYTES
        cost = deployed.tensor_group.all_gather(gathered)
        ledger.network(Role.GATHER, "gather logits", one, cost)
        if ledger.entries is not None or (deployed.pipeline_parallel > 1.0).any():
            for hops, cost in deployed.stage_hops(self.rows * (hidden * ACTIVATION_BYTES)):
                ledger.network(Role.HOP, "pipeline hops", hops, cost)

    @property
    def seconds(self) -> Floats:
        return self.ledger.seconds

    def gemm_law(self, part: str) -> Law:
        return self.deployed.law("gemm", part)

    @property
    def expert_domains(self) -> Sequence[Floats]:
        return self.deployed.expert_group.domains

    def gemm(self, one: Product) -> None:
        weight, reached = one.inner * one.out, None
        per_element = self.deployed.weight_bytes.get(one.part, ACTIVATION_BYTES)
        touched = read = weight * per_element
        computed = self.computed_rows if one.rows is self.rows else computed_rows(one.rows)
        useful = one.rows / computed if self.ledger.parts else None
        fit = self.fit = self.deployed.alignment.product((self._block, self._product), one)
        self._product += 1
        if fit is None:
            sides = one.inner + one.out
        else:
            weight, sides, reached = fit.weight, fit.sides, fit.reached
            read = fit.read * per_element
            useful = None if useful is None else useful * fit.filled
        bytes_ = one.rows * sides
        bytes_ *= ACTIVATION_BYTES
        bytes_ += read
        flops, law = 2.0 * computed, self.gemm_law(one.part)
        flops *= weight
        self.ledger.operator(
            one.role,
            one.label,
            one.times,
            law,
            flops,
            bytes_,
            touched,
            useful=useful,
            reached=reached,
        )

    def experts(self, one: Experts) -> None:
        per_element = self.deployed.weight_bytes["experts"]
        touched = one.distinct * one.weight * per_element
        bytes_, flops, reached = touched + one.moved, one.flops, None
        useful, mean = None, None
        if self.ledger.parts:
            useful = one.mean / np.maximum(one.padded, 1e-9)  # no 0 / 0 in dense candidates
            mean = 1.0 - one.uneven
        fit = self.fit = self.deployed.alignment.experts((self._block, self._product), one)
        self._product += 1
        if fit is not None:
            run, reached = one.sized(fit.weight, fit.sides), fit.reached
            bytes_, flops = one.distinct * fit.read * per_element + run.moved, run.flops
            useful = None if useful is None else useful * fit.filled
        self.ledger.operator(
            Role.EXPERTS,
            "routed experts",
            one.block.count,
            self.deployed.law("experts", "experts"),
            flops,
            bytes_,
            touched,
            useful=useful,
            held="experts",
            elsewhere=self.idle_ranks,
            mean=mean,
            reached=reached,
        )

    def over_prompt(self, one: Mixing) -> None:
        self._mix(one, self.prefill_rows > 0.0, "weights")

    def over_cache(self, one: Mixing) -> None:
        self._mix(one, self.decode_rows > 0.0, "cache")

    def _mix(self, one: Mixing, present: NDArray[np.bool_], held: str) -> None:
        if self.ledger.entries is None and not present.any():
            return
        law, touched = self.deployed.law(one.law, one.part), one.cache
        self.ledger.operator(
            one.role,
            one.label,
            one.times,
            law,
            one.flops,
            one.bytes_,
            0.0 if touched is None else touched,
            None if present.all() else present,
            useful=one.filled,
            held=held,
        )

    def elementwise(self, role: Role, label: str, count: Floats, elements: Floats) -> None:
        law = self.gemm_law("bf16")
        self.ledger.stream(role, label, count, law, elements * ACTIVATION_BYTES)

    def exchange(self, one: Exchange) -> None:
        self.ledger.network(one.role, one.label, one.times, self.deployed.cost(one))

    def tensor_all_reduce(self, label: str, count: Floats) -> None:
        if self._reduced is None:  # the same for all layers
            bytes_ = self.rows * self.hidden_size * ACTIVATION_BYTES
            self._reduced = self.deployed.tensor_group.all_reduce(bytes_)
        self.ledger.network(Role.REDUCE, label, count, self._reduced)


class Seconds(Step):
    """A step of which the seconds alone are asked, (n,) each; its work is that of a `Step`.

    Its time is that of what is no layer and, block after block, of the layers of one more. Of each
    of these, candidates that are alike in all that it sees have the same time, which is found once
    where that is worth it: a layer of a feed-forward is the same whatever the attention beside it
    and however many layers there are. So few of the n are worked out, and the sum is gathered."""

    def __init__(self, deployed: Deployed, work: Work) -> None:
        self.requests, self.verified = work.decode_rows, work.verified
        self.ledger = Ledger(deployed, parts=False, overlap=work.overlap)
        context = work.longest(deployed.data_parallel)
        self._work = replace(work, context=context, context_spread=None, fresh_tokens=work.fresh)
        self._each: Step | None = None
        self._add(None, np.ones(1), ("fresh_tokens",))
        for place, block in enumerate(deployed.batch.blocks):
            if block.count.any():
                seen = ("context", "prompt_tokens") if block.kind in MIXERS else ()
                seen += ("prefill_ranks",) if "experts" in block.sizes else ()
                self._add(place, block.count, seen)
        self.ledger.overlap()
        self.ledger.wait_for_tier()

    def _add(self, place: int | None, count: Floats, seen: tuple[str, ...]) -> None:
        """`count` layers of the block at a place of the batch, which see so much of the work beside
        its rows; without a place, what is no layer."""
        deployed, work = self.ledger.deployed, self._work
        seen = ("decode_rows", "prefill_rows", "verified", *seen)
        columns = [*(getattr(work, name) for name in seen), work.overlap.batches]
        part = deployed.layers(place).part([one for one in columns if isinstance(one, np.ndarray)])
        if part is None:
            if self._each is None:
                self._each = Step(deployed, work, parts=False, of="nothing")
            one = self._each.ledger = Ledger(deployed, parts=False, overlap=work.overlap)
            self._each.run(place, None if place is None else deployed.one_layer(place))
            self.ledger.add(count, one)
            return
        few = Work(**_UNSEEN | {name: part.of(getattr(work, name)) for name in seen})
        overlap = work.overlap._replace(batches=part.of(work.overlap.batches))
        step = Step(part.deployed, replace(few, overlap=overlap), parts=False, of="one")
        self.ledger.add(count, step.ledger, part.gathered)


# What layers that do not read it may not read.
_UNSEEN: dict[str, Any] = {"context": np.full(1, np.nan), "prompt_tokens": np.full(1, np.nan)}


def weight_bytes_per_chip(deployed: Deployed) -> dict[str, Floats]:
    """Bytes of weights on the busiest chip by part, (n,): stages hold whole layers, the first holds
    the embedding, the last the output head."""
    stages = deployed.pipeline_parallel
    total: dict[str, Floats] = {}
    for block in deployed.batch.blocks:
        layers = layers_per_stage(block, stages)
        for part, elements in KINDS[block.kind].weight_elements(deployed, block).items():
            per_element = deployed.weight_bytes.get(part, ACTIVATION_BYTES)
            bytes_ = layers * elements * per_element
            total[part] = total[part] + bytes_ if part in total else bytes_
    table = deployed.vocabulary * deployed.batch.hidden_size
    tables = np.where((stages > 1.0) | (deployed.batch.tied_embeddings > 0.0), 1.0, 2.0)
    total["embedding"] = tables * table * deployed.weight_bytes["embedding"]
    return total


def layers_per_stage(block: Block, stages: Floats) -> Floats:
    """(n,) layers of a block on the fullest pipeline stage."""
    return np.ceil(block.count / stages)
