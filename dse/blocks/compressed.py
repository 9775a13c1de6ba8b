"""Latent attention over a compressed cache (DeepSeek-V4 technical report, section 2.3).

Keys and values of a layer are one latent of `head_dim` a token, shared by all heads. The last
`window` tokens stay as they are; before them one latent stands for `ratio` tokens, made by a gated
sum (ratio 0: the window is all there is). With an indexer (ratio 4) a token reads the `index_topk`
best of them and neighbouring sums overlap, which doubles their projections; without (ratio 128) it
reads all. Heads are put together by a grouped low-rank output projection.
Decode takes the law of latent attention; a prompt takes that of latent prefill attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.blocks import indexer
from dse.blocks.attention import paged, seen_by_decode, seen_by_prompt
from dse.blocks.kind import Attention, project
from dse.blocks.operators import ACTIVATION_BYTES, Block, Floats, Operators, Ranks, Role


def _ratio(block: Block) -> Floats:
    """(n,) tokens that one compressed latent stands for, infinite without compression."""
    return np.where(block["ratio"] > 0.0, np.maximum(block["ratio"], 1.0), np.inf)


class Compressed(Attention):
    words = "compressed cache"
    sizes = (
        "heads",
        "head_dim",
        "q_lora_rank",
        "output_groups",
        "output_rank",
        "window",
        "ratio",
        *indexer.SIZES,
    )
    may_be_zero = frozenset({"ratio", *indexer.SIZES})
    order = 2
    laws = ("mla_prefill_attention", "mla_decode_attention")

    def _hidden_columns(self, block: Block) -> Floats:
        """(n,) columns of the projections from the hidden state: the latents of query and token,
        the latents and gates that are summed, those of the indexer's keys, the weights of its
        heads."""
        indexed = block["index_heads"] > 0.0
        summed = np.where(indexed, 4.0, 2.0) * block["head_dim"] * (block["ratio"] > 0.0)
        keys = np.where(indexed, 4.0 * block["index_head_dim"], 0.0)
        return block["q_lora_rank"] + block["head_dim"] + summed + keys + block["index_heads"]

    def _projections(self, ranks: Ranks, block: Block) -> tuple[tuple[Floats, Floats], ...]:
        """(columns, rows) on one chip: from the hidden state (whole on every rank); the query; the
        two halves of the output, whose groups of heads are split over the ranks."""
        hidden, tp = ranks.batch.hidden_size, ranks.tensor_parallel
        width = np.ceil(block["heads"] / tp) * block["head_dim"]
        return (
            (self._hidden_columns(block), hidden),
            (width, block["q_lora_rank"]),
            (block["output_rank"], width),
            (hidden, np.ceil(block["output_groups"] / tp) * block["output_rank"]),
        )

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """Down-projections, queries, those of the indexer, the output: heads d r + groups r h."""
        down, query, first, second = (c * rows for c, rows in self._projections(ranks, block))
        queries = block["q_lora_rank"] * indexer.query_columns(block)
        return {"attention": down + query + first + second + queries}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        return hidden

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        """Compressed latents and indexer keys, and the window, which all requests keep."""
        latent = block["head_dim"] * ranks.kv_bytes
        far = paged(tokens / _ratio(block)) * (latent + indexer.key_bytes_per_token(block))
        return far + paged(seen_by_decode(tokens, block["window"])) * latent

    def kv_elements_per_token(self, block: Block) -> Floats:
        return block["head_dim"] / _ratio(block)

    def index_bytes_per_token(self, block: Block) -> Floats:
        return indexer.key_bytes_per_token(block) / _ratio(block)

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        """The window, in the format of the cache."""
        return block["window"] * block["head_dim"] * ranks.kv_bytes

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        return tokens * block["head_dim"] * ACTIVATION_BYTES

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        return block.count > 0.0

    def heads(self, block: Block) -> tuple[Floats, Floats]:
        """All heads read the same keys and values (DeepSeek-V4)."""
        return block["heads"], np.ones_like(block.count)

    def reaching_layers(self, block: Block) -> Floats:
        return block.count

    def in_words(self, sizes: Mapping[str, Any]) -> str:
        return "attention over a compressed cache"

    def in_short(self, sizes: Mapping[str, Any]) -> str:
        return "compressed"

    def add(self, step: Operators, block: Block) -> None:
        deployed, count, rows = step.deployed, block.count, step.rows
        heads = np.ceil(block["heads"] / deployed.tensor_parallel)
        down, query, first, second = self._projections(deployed, block)
        latent, per_latent = block["head_dim"], _ratio(block)

        step.elementwise(Role.NORM, "attention norm", count, 3.0 * rows * step.hidden_size)
        project(step, Role.PROJECTION, "query and KV down-projection", count, down)
        norms = "latent norms, gated sums, rotary embedding"
        step.elementwise(Role.LATENT_NORM, norms, count, 4.0 * rows * down[0])
        project(step, Role.LATENT_UP, "query up-projection", count, query)
        indexer.add_scores(step, block, block["q_lora_rank"], per_latent)

        near = seen_by_prompt(step.prompt_tokens, block["window"])
        far = step.prompt_tokens / 2.0 / per_latent
        chosen = seen_by_prompt(step.prompt_tokens / per_latent, block["index_topk"])
        seen = near + np.where(block["index_topk"] > 0.0, chosen, far)
        near = seen_by_decode(step.context, block["window"])
        read = step.decode_rows * (
            near + seen_by_decode(step.context / per_latent, block["index_topk"])
        )
        computed, filled = deployed.heads(block, "latent", latent)
        self.attend(
            step,
            count,
            prompt_flops=4.0 * step.prefill_rows * seen * heads * computed,
            prompt_bytes=4.0 * step.prefill_rows * heads * latent * ACTIVATION_BYTES,
            decode_flops=4.0 * read * step.verified * heads * computed,
            cache=read * latent * deployed.kv_bytes,
            prompt_filled=filled,
            decode_filled=filled,
        )
        project(step, Role.OUTPUT, "attention output, within groups", count, first)
        project(step, Role.PROJECTION, "attention output projection", count, second)
        step.tensor_all_reduce("attention all-reduce", count)


KIND = Compressed()
