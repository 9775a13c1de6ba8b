"""What every kind of block says of itself: `Kind`, and what attention, states and feed-forwards
have in common. A kind that leaves out its weights or its operators, or attention its cache, cannot
be made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dse.blocks import indexer
from dse.blocks.operators import (
    ACTIVATION_BYTES,
    Block,
    Floats,
    Mixing,
    Operators,
    Product,
    Ranks,
    Role,
)

STATE_BYTES = 4.0  # states are kept in float32 (mamba_ssm_dtype, vLLM's default for these models)
CONV_BYTES = 2.0  # the last tokens before the convolution, in bf16


class Kind(ABC):
    """One kind of block. Every array has shape (n,) and is that of one layer.

    `words` is what a message calls it. Every block of the kind has the `sizes`; the `optional` ones
    are 0 where a block does not name them, and come in groups: a batch in which no model has one of
    a group does not carry the group, for what a model lacks costs no time. Those of the sizes in
    `may_be_zero` may be 0 too. Blocks of a batch are added by `order`, then by name.

    `laws` are the kernel laws that only blocks of this kind use: a chip that was measured here has
    none of its own for them. `recomputed_as` is the group of layers that a training run recomputes
    together (`dse.physics.training.plan.RECOMPUTES`), "ends" for what is no layer.
    """

    words: ClassVar[str]
    sizes: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[tuple[str, ...], ...]] = ()
    may_be_zero: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[int] = 100
    laws: ClassVar[tuple[str, ...]] = ()
    recomputed_as: ClassVar[str] = "mixer"

    # Weights.
    @abstractmethod
    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """Elements on one chip by weight part; on `Whole` ranks the parameters of a layer."""

    def active_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """As `weight_elements`, those that one token meets."""
        return self.weight_elements(ranks, block)

    @abstractmethod
    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        """Norms, biases and other vectors, which every rank holds whole."""

    # Operators.
    @abstractmethod
    def add(self, step: Operators, block: Block) -> None:
        """Adds the block's operators to a step of serving, or the forward ones to a pass of
        training, which knows what backward takes."""

    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        """Columns of the widest buffer beside those of the hidden state."""
        return np.zeros_like(block.count)

    # What requests keep: nothing, unless a kind says otherwise.
    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        """Bytes of cache and states on one chip, of a request `tokens` long."""
        return np.zeros_like(block.count)

    def kv_elements_per_token(self, block: Block) -> Floats:
        """Elements that one token adds to the cache of keys and values, undivided."""
        return np.zeros_like(block.count)

    def index_bytes_per_token(self, block: Block) -> Floats:
        """Bytes that one token adds to the cache of an indexer."""
        return np.zeros_like(block.count)

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        """Bytes on one chip that a request keeps whatever its length."""
        return np.zeros_like(block.count)

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        """Bytes that context parallelism passes around: keys and values of `tokens`, or the states
        of so many parts of `sequences`; None where it passes nothing."""
        return None

    # What is said of it.
    def in_words(self, sizes: Mapping[str, Any]) -> str:
        """A layer of these sizes, as a sentence names it."""
        return self.words

    def in_short(self, sizes: Mapping[str, Any]) -> str:
        """The same in a cell of a table; empty for what need not be said."""
        return self.in_words(sizes).replace(" ", "-").lower()

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        """Where the block runs on laws that were measured for other kernels; None: nowhere."""
        return None

    def heads(self, block: Block) -> tuple[Floats, Floats] | None:
        """(query heads, key-value heads) of attention; None for all else."""
        return None

    def full_layers(self, block: Block) -> Floats:
        """Of `block.count`, the layers in which a token may attend to every token before it."""
        return np.zeros_like(block.count)

    def reaching_layers(self, block: Block) -> Floats:
        """As `full_layers`, those that see the tokens before as sums of several included."""
        return self.full_layers(block)


def project(
    step: Operators, role: Role, label: str, times: Floats, sizes: tuple[Floats, Floats]
) -> None:
    """`times` products of every token with a weight of attention of (columns, rows), (n,) each."""
    step.gemm(Product(role, label, times, "attention", step.rows, *sizes))


class Attention(Kind):
    """Keeps a cache that grows with every token, and no state, unless a kind says otherwise."""

    @abstractmethod
    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats: ...

    @abstractmethod
    def kv_elements_per_token(self, block: Block) -> Floats: ...

    @abstractmethod
    def heads(self, block: Block) -> tuple[Floats, Floats]: ...

    def index_bytes_per_token(self, block: Block) -> Floats:
        if "index_topk" not in block.sizes:
            return np.zeros_like(block.count)
        return indexer.key_bytes_per_token(block)

    def attend(
        self,
        step: Operators,
        count: Floats,
        *,
        prompt_flops: Floats,
        prompt_bytes: Floats,
        decode_flops: Floats,
        cache: Floats,
        output_bytes: Floats | None = None,
        prompt_filled: Floats | None = None,
        decode_filled: Floats | None = None,
        head: Floats | None = None,
    ) -> None:
        """Attention over the prompt and over the cache: operations and bytes, (n,) each on one
        chip, by the laws of the kind (prefill, decode). The operations have padded heads, of which
        the shares `filled` are no padding; the bytes have not. `head` as in Mixing."""
        prefill, decode = self.laws or ("prefill_attention", "decode_attention")
        step.over_prompt(
            Mixing(
                Role.ATTENTION,
                "attention over the prompt",
                count,
                prefill,
                "kv",
                prompt_flops,
                prompt_bytes if prompt_filled is None else prompt_bytes / prompt_filled,
                output_bytes=output_bytes,
                filled=prompt_filled,
                head=head,
            )
        )
        step.over_cache(
            Mixing(
                Role.CACHE,
                "attention over the KV cache",
                count,
                decode,
                "kv",
                decode_flops,
                cache if decode_filled is None else cache / decode_filled,
                cache,
                filled=decode_filled,
            )
        )

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        """No kernel of an indexer is measured."""
        if "index_topk" not in block.sizes:
            return None
        return (block.count > 0.0) & (block["index_topk"] > 0.0)


class State(Kind):
    """Keeps one state a layer, however long a request gets: linear attention, state space models.

    A decoded token reads and writes it; a prompt goes through in chunks, inside which tokens see
    each other and between which the state is handed on. No kernel of these is measured: reading and
    writing states takes the memory rate of decode attention, chunks the law of prefill attention,
    both on 16-bit data.
    """

    @abstractmethod
    def state_elements(self, ranks: Ranks, block: Block) -> Floats:
        """Elements of the state on one chip."""

    def channels(self, ranks: Ranks, block: Block) -> Floats:
        """Channels on one chip of a short convolution, of a kind with a size `conv_width`."""
        return np.zeros_like(block.count)

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        bytes_ = self.state_elements(ranks, block) * STATE_BYTES
        if "conv_width" not in block.sizes:
            return bytes_
        kept = self.channels(ranks, block) * np.maximum(block["conv_width"] - 1.0, 0.0)
        return bytes_ + kept * CONV_BYTES

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        return self.state_bytes(ranks, block)

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        return sequences * self.state_elements(ranks, block) * STATE_BYTES

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        return block.count > 0.0

    def convolve(self, step: Operators, count: Floats, channels: Floats) -> None:
        """A short convolution over each channel: reads, its state, writes."""
        elements = 3.0 * step.rows * channels
        step.elementwise(Role.ELEMENTWISE, "short convolution", count, elements)

    def scan(
        self,
        step: Operators,
        count: Floats,
        *,
        state: Floats,
        chunk: float,
        width: Floats,
        decode_flops: Floats,
        prefill_flops: Floats,
    ) -> None:
        """The recurrence of one step: `state` elements a request, `width` elements in and out and
        `decode_flops` or `prefill_flops` a token, (n,) each on one chip."""
        law, label, rows = "prefill_attention", "state over the prompt", step.prefill_rows
        bytes_ = rows * (width + 2.0 * state / chunk) * ACTIVATION_BYTES
        flops = rows * prefill_flops
        step.over_prompt(Mixing(Role.STATE, label, count, law, "state", flops, bytes_))
        law, label = "decode_attention", "state read and written"
        bytes_ = 2.0 * step.decode_rows * state * STATE_BYTES
        flops = step.verified_rows * decode_flops
        step.over_cache(Mixing(Role.STATE, label, count, law, "state", flops, bytes_, bytes_))
