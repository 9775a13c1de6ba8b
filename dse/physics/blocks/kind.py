"""What every kind of block says of itself: `Kind`, and what attention, states and feed-forwards
have in common. A kind that leaves out a part cannot be made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dse.physics.blocks import indexer
from dse.physics.deployed import ACTIVATION_BYTES
from dse.physics.operators import Operators, Role, ServingOperators, TrainingOperators
from dse.space.candidates import BYTES, Block, CandidateBatch, Floats

STATE_BYTES = 4.0  # states are kept in float32 (mamba_ssm_dtype, vLLM's default for these models)
CONV_BYTES = 2.0  # the last tokens before the convolution, in bf16


class Ranks(Protocol):
    """How a model is divided: by a deployment (`Deployed`), or not at all (`Whole`)."""

    batch: CandidateBatch
    tensor_parallel: Floats
    expert_parallel: Floats
    experts_tensor_parallel: Floats
    redundant_experts: Floats | None
    kv_bytes: Floats


class Whole:
    """A model that nothing divides: its weights are those of the checkpoint."""

    def __init__(self, batch: CandidateBatch) -> None:
        one = np.ones(len(batch))
        self.batch = batch
        self.tensor_parallel = self.expert_parallel = self.experts_tensor_parallel = one
        self.redundant_experts: Floats | None = None
        self.kv_bytes = BYTES[batch.kv_dtype]


class Kind(ABC):
    """One kind of block. Every array has shape (n,) and is that of one layer.

    `laws` are the kernel laws that only blocks of this kind use: a chip that was measured here has
    none of its own for them. `recomputed_as` is the group of layers that a training run recomputes
    together (`dse.physics.training.plan.RECOMPUTES`), "ends" for what is no layer.
    """

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
    def serve(self, step: ServingOperators, block: Block) -> None:
        """Adds the block's operators to a step of serving."""

    @abstractmethod
    def train(self, step: TrainingOperators, block: Block) -> None:
        """Adds the forward operators to a pass of training, which knows what backward takes."""

    @abstractmethod
    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        """Columns of the widest buffer beside those of the hidden state."""

    # What requests keep.
    @abstractmethod
    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        """Bytes of cache and states on one chip, of a request `tokens` long."""

    @abstractmethod
    def kv_elements_per_token(self, block: Block) -> Floats:
        """Elements that one token adds to the cache of keys and values, undivided."""

    @abstractmethod
    def index_bytes_per_token(self, block: Block) -> Floats:
        """Bytes that one token adds to the cache of an indexer."""

    @abstractmethod
    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        """Bytes on one chip that a request keeps whatever its length."""

    @abstractmethod
    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        """Bytes that context parallelism passes around: keys and values of `tokens`, or the states
        of so many parts of `sequences`; None where it passes nothing."""

    # What is said of it.
    @abstractmethod
    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        """Where the block runs on laws that were measured for other kernels; None: nowhere."""

    @abstractmethod
    def heads(self, block: Block) -> tuple[Floats, Floats] | None:
        """(query heads, key-value heads) of attention; None for all else."""

    @abstractmethod
    def full_layers(self, block: Block) -> Floats:
        """Of `block.count`, the layers in which a token may attend to every token before it."""


class _Plain(Kind):
    """Runs the same operators when training as when serving."""

    @abstractmethod
    def add(self, step: Operators, block: Block) -> None:
        """Adds the block's operators to a step of either sort."""

    def serve(self, step: ServingOperators, block: Block) -> None:
        self.add(step, block)

    def train(self, step: TrainingOperators, block: Block) -> None:
        self.add(step, block)


class _Mixer(_Plain):
    """Mixes tokens."""

    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        return np.zeros_like(block.count)


class Attention(_Mixer):
    """Keeps a cache that grows with every token, and no state, unless a kind says otherwise."""

    def index_bytes_per_token(self, block: Block) -> Floats:
        if "index_topk" not in block.sizes:
            return np.zeros_like(block.count)
        return indexer.key_bytes_per_token(block)

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        """No kernel of an indexer is measured."""
        if "index_topk" not in block.sizes:
            return None
        return (block.count > 0.0) & (block["index_topk"] > 0.0)


class State(_Mixer):
    """Keeps one state a layer, however long a request gets: linear attention, state space models.

    A decoded token reads and writes it; a prompt goes through in chunks, inside which tokens see
    each other and between which the state is handed on. No kernel of these is measured: reading and
    writing states takes the memory rate of decode attention, chunks the law of prefill attention,
    both on 16-bit data.
    """

    @abstractmethod
    def state_elements(self, ranks: Ranks, block: Block) -> Floats:
        """Elements of the state on one chip."""

    @abstractmethod
    def channels(self, ranks: Ranks, block: Block) -> Floats:
        """Channels of the short convolution on one chip."""

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        kept = self.channels(ranks, block) * np.maximum(block["conv_width"] - 1.0, 0.0)
        return self.state_elements(ranks, block) * STATE_BYTES + kept * CONV_BYTES

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        return self.state_bytes(ranks, block)

    def kv_elements_per_token(self, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def index_bytes_per_token(self, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        return sequences * self.state_elements(ranks, block) * STATE_BYTES

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        return block.count > 0.0

    def heads(self, block: Block) -> tuple[Floats, Floats] | None:
        return None

    def full_layers(self, block: Block) -> Floats:
        return np.zeros_like(block.count)

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
        step.over_prompt(
            Role.STATE,
            "state over the prompt",
            count,
            step.deployed.law("prefill_attention", "state"),
            step.prefill_rows * prefill_flops,
            step.prefill_rows * (width + 2.0 * state / chunk) * ACTIVATION_BYTES,
        )
        moved = 2.0 * step.decode_rows * state * STATE_BYTES
        step.over_cache(
            Role.STATE,
            "state read and written",
            count,
            step.deployed.law("decode_attention", "state"),
            step.verified_rows * decode_flops,
            moved,
            moved,
        )


class Stateless(Kind):
    """Keeps nothing of a request: feed-forwards and tables."""

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        return np.zeros_like(block.count)

    def kv_elements_per_token(self, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def index_bytes_per_token(self, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def state_bytes(self, ranks: Ranks, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        return None

    def borrows(self, block: Block) -> NDArray[np.bool_] | None:
        return None

    def heads(self, block: Block) -> tuple[Floats, Floats] | None:
        return None

    def full_layers(self, block: Block) -> Floats:
        return np.zeros_like(block.count)


class PlainStateless(Stateless, _Plain):
    """As both say."""
