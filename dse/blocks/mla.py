"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

The cache holds one latent of kv_lora_rank + qk_rope_head_dim numbers a token, whole on every
tensor-parallel rank (attention data-parallel avoids the copies). Decode works on the latent with
the up-projections absorbed into query and output; prefill expands keys and values.

Optional sizes: an indexer (DeepSeek-V3.2), after which a token reads no more than `index_topk`
latents; a prompt then runs the cheaper of the two forms, expanded over all tokens or absorbed over
the chosen ones. `output_gate` is as wide as the heads' output, from the hidden state (Kimi K3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.blocks import indexer
from dse.blocks.attention import paged, seen_by_decode, seen_by_prompt
from dse.blocks.kind import Attention, project
from dse.blocks.operators import ACTIVATION_BYTES, Block, Floats, Operators, Ranks, Role


def _latent(block: Block) -> Floats:
    return block["kv_lora_rank"] + block["qk_rope_head_dim"]


def _query_width(block: Block) -> Floats:
    return block["qk_nope_head_dim"] + block["qk_rope_head_dim"]


class Mla(Attention):
    words = "latent attention"
    sizes = (
        "heads",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
    )
    optional = (("output_gate",), indexer.SIZES)
    may_be_zero = frozenset({"q_lora_rank"})
    order = 1
    laws = ("mla_prefill_attention", "mla_decode_attention")

    def _heads(self, ranks: Ranks, block: Block) -> Floats:
        return np.ceil(block["heads"] / ranks.tensor_parallel)

    def _projections(self, ranks: Ranks, block: Block) -> tuple[tuple[Floats, Floats], ...]:
        """(columns, rows) on one chip: the replicated down-projections, the query up-projection
        (from the hidden state where there is no query latent), the KV up-projection, the output."""
        hidden, heads = ranks.batch.hidden_size, self._heads(ranks, block)
        q_rank = block["q_lora_rank"]
        return (
            (q_rank + _latent(block), hidden),
            (heads * _query_width(block), np.where(q_rank > 0.0, q_rank, hidden)),
            (heads * (block["qk_nope_head_dim"] + block["v_head_dim"]), block["kv_lora_rank"]),
            (hidden, heads * block["v_head_dim"]),
        )

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """Queries h q + q heads (nope + rope), or h heads (nope + rope) without a query rank q;
        keys and values h (c + rope) + c heads (nope + d_v) with latent rank c; output heads d_v h.
        (DeepSeek-V2, arXiv 2405.04434, section 2.1.)"""
        projections = self._projections(ranks, block)
        down, query, kv, out = (columns * rows for columns, rows in projections)
        elements = down + query + kv + out + block.optional("output_gate") * out
        if "index_topk" in block.sizes:
            _, query_rows = projections[1]
            elements += indexer.weight_elements(block, ranks.batch.hidden_size, query_rows)
        return {"attention": elements}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        """The norm before the layer, and those of the latent ranks."""
        return hidden + block["q_lora_rank"] + block["kv_lora_rank"]

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        bytes_ = _latent(block) * ranks.kv_bytes * paged(tokens)
        if "index_topk" in block.sizes:
            bytes_ = bytes_ + indexer.key_bytes_per_token(block) * paged(tokens)
        return bytes_

    def kv_elements_per_token(self, block: Block) -> Floats:
        """Latent rank and rope part, shared by all heads (DeepSeek-V2, table 1)."""
        return _latent(block)

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        head = _query_width(block) + block["v_head_dim"]
        return tokens * self._heads(ranks, block) * head * ACTIVATION_BYTES

    def heads(self, block: Block) -> tuple[Floats, Floats]:
        """Every head has keys and values of its own, made from one latent (section 2.1)."""
        return block["heads"], block["heads"]

    def full_layers(self, block: Block) -> Floats:
        return block.count

    def in_words(self, sizes: Mapping[str, Any]) -> str:
        latent, rope = sizes["kv_lora_rank"], sizes["qk_rope_head_dim"]
        return (
            f"latent attention (MLA, {latent:,} numbers cached for keys and values, {rope} for "
            "positions)"
        )

    def in_short(self, sizes: Mapping[str, Any]) -> str:
        return f"mla{sizes['kv_lora_rank']}"

    def add(self, step: Operators, block: Block) -> None:
        deployed, count, rows = step.deployed, block.count, step.rows
        heads, latent = self._heads(deployed, block), _latent(block)
        down, query, kv, out = self._projections(deployed, block)
        pair = _query_width(block) + block["v_head_dim"]
        sizes = (_query_width(block), block["v_head_dim"])
        computed, prompt_filled = deployed.heads(block, "prompt", *sizes)
        absorbed, decode_filled = deployed.heads(block, "decode", latent, block["kv_lora_rank"])

        step.elementwise(Role.NORM, "attention norm", count, 3.0 * rows * step.hidden_size)
        project(step, Role.PROJECTION, "query and KV down-projection", count, down)
        label = "latent norms, rotary embedding"
        step.elementwise(Role.LATENT_NORM, label, count, 4.0 * rows * down[0])
        project(step, Role.LATENT_UP, "query up-projection", count, query)
        project(step, Role.LATENT_UP, "KV up-projection", count, kv)
        flops = step.prefill_rows * step.prompt_tokens * heads * computed
        context = step.context
        if "index_topk" in block.sizes:
            topk = block["index_topk"]
            indexer.add(step, block, query[1])
            seen = seen_by_prompt(step.prompt_tokens, topk)
            chosen = step.prefill_rows * seen * (2.0 * heads * absorbed)
            flops = np.where(topk > 0.0, np.minimum(flops, chosen), flops)
            context = seen_by_decode(context, topk)
        if "output_gate" in block.sizes:
            gated = count * (block["output_gate"] > 0.0)
            project(step, Role.SIDE, "attention output gate", gated, (out[1], step.hidden_size))
        read = step.decode_rows * context
        self.attend(
            step,
            count,
            prompt_flops=flops,
            prompt_bytes=2.0 * step.prefill_rows * heads * pair * ACTIVATION_BYTES,
            output_bytes=rows * heads * block["v_head_dim"] * ACTIVATION_BYTES,
            decode_flops=2.0 * read * step.verified * heads * absorbed,
            cache=read * latent * deployed.kv_bytes,
            prompt_filled=prompt_filled,
            decode_filled=decode_filled,
        )
        project(step, Role.OUTPUT, "attention output projection", count, out)
        step.tensor_all_reduce("attention all-reduce", count)


KIND = Mla()
