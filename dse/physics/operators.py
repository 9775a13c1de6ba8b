"""What a block adds its operators to: one step of serving, or one pass of training.

An operator has a role, which says what the physics takes it for, and a label, which is printed.
Nothing is decided by a label.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from dse.physics.collectives import Cost, Group
from dse.physics.deployed import Deployed, Law
from dse.space.candidates import Block, Floats


class Role(Enum):
    """What an operator is. Training asks it what stays on the chip until the backward pass, what
    selective recomputation does again, and how long backward takes (`dse.physics.training`)."""

    # Products of tokens with a weight, by what they read and what is kept of it.
    PROJECTION = auto()  # its input is kept
    SIDE = auto()  # another product keeps the input
    OUTPUT = auto()  # the input is the output of attention or of a state, which is kept in 16 bits
    LATENT_UP = auto()  # queries, keys and values from a latent: cheap to do again
    UP = auto()  # what the activation reads is kept too
    SIDE_UP = auto()  # as UP, of an input that another product keeps
    ROUTER = auto()  # on a chip's own tokens
    HEAD = auto()
    EXPERTS = auto()  # the grouped products of routed experts
    # Tokens with tokens.
    ATTENTION = auto()
    CACHE = auto()  # attention of decoded tokens, over the cache
    INDEXER = auto()
    STATE = auto()
    # Element-wise kernels.
    EMBEDDING = auto()
    ELEMENTWISE = auto()
    NORM = auto()  # on the residual stream, which sequence parallelism divides
    LATENT_NORM = auto()  # reads and writes latents twice, and keeps them
    ACTIVATION = auto()
    EXPERT_ORDER = auto()
    EXPERT_ACTIVATION = auto()
    # Communication, and what is no operator of the model.
    REDUCE = auto()
    DISPATCH = auto()
    COMBINE = auto()
    GATHER = auto()
    HOP = auto()
    DRAFT = auto()
    WAIT = auto()


class Operators(Protocol):
    """Tokens on one attention rank, and a place for operators. All arrays (n,).

    `rows` tokens in all, of which `prefill_rows` belong to prompts of `prompt_tokens` and
    `verified_rows` to `decode_rows` requests that decode `verified` tokens each and see `context`
    cached ones.
    """

    @property
    def deployed(self) -> Deployed: ...

    hidden_size: Floats
    rows: Floats
    prefill_rows: Floats
    prompt_tokens: Floats
    decode_rows: Floats
    verified_rows: Floats
    verified: Floats | float
    context: Floats

    def gemm(
        self,
        role: Role,
        label: str,
        count: Floats,
        part: str,
        rows: Floats,
        out: Floats,
        inner: Floats,
    ) -> None:
        """`count` products of (rows, inner) with a (inner, out) weight of the given part."""

    def elementwise(self, role: Role, label: str, count: Floats, elements: Floats) -> None:
        """`count` kernels that read and write `elements` 16-bit numbers in all."""

    def over_prompt(
        self,
        role: Role,
        label: str,
        count: Floats,
        law: Law,
        flops: Floats,
        bytes_: Floats,
        output_bytes: Floats | None = None,
    ) -> None:
        """`count` kernels in which prompt tokens meet those before them; absent without prompts.
        `output_bytes` of `bytes_` are the output, where all else can be made from latents again."""

    def over_cache(
        self,
        role: Role,
        label: str,
        count: Floats,
        law: Law,
        flops: Floats,
        bytes_: Floats,
        cache: Floats,
    ) -> None:
        """`count` kernels in which decoded tokens meet the cache, of which `cache` bytes must be
        read; absent without decodes."""

    def tensor_all_reduce(self, label: str, count: Floats) -> None:
        """Sums a layer's output over the tensor-parallel ranks."""


class ServingOperators(Operators, Protocol):
    """A step of serving, for blocks with experts. `mean_rows` are the tokens of the mean attention
    rank."""

    mean_rows: Floats
    tensor_group: Group
    expert_group: Group

    def grouped(
        self,
        block: Block,
        *,
        tokens: Floats,
        width: Floats,
        hidden: Floats,
        flops: Floats,
        useful: Floats,
        uneven: Floats,
        touched: Floats,
        bytes_: Floats,
    ) -> None:
        """The products of routed experts of a block, `width` by `hidden` on a chip, for `tokens` of
        all ranks: `flops` of the busiest rank with its padding, of which the share `useful` is
        neither padding nor imbalance and `uneven` beyond the mean rank; `bytes_` of its memory are
        moved, `touched` of them weights."""

    def send(self, role: Role, label: str, count: Floats, cost: Cost) -> None:
        """`count` collectives of one cost."""


class TrainingOperators(Operators, Protocol):
    """A pass of training, for blocks with experts. `own_rows` are the tokens of one chip where
    tensor-parallel ranks divide them; `slots_sent` is the share of tokens sent once for each
    expert, not once for each rank."""

    own_rows: Floats
    expert_group: Group
    routing_skew: float
    slots_sent: float

    def grouped(
        self,
        count: Floats,
        *,
        flops: Floats,
        useful: Floats,
        held: Floats,
        moved: Floats,
        uneven: Floats,
    ) -> None:
        """`count` times the products of routed experts: `flops` of the busiest rank with its
        padding, `useful` those of the mean one; `held` weights and `moved` bytes of tokens;
        `uneven` is the share of the flops beyond the mean."""

    def keep_experts(
        self, count: Floats, tokens: Floats, latent: Floats, width: Floats, matrices: Floats
    ) -> None:
        """Keeps the inputs of `count` times the grouped products of so many `tokens`, and of the
        activation between them, until the backward pass."""

    def dispatch(self, count: Floats, cost: Cost) -> None:
        """`count` layers, of which each sends its tokens to their experts at this cost."""
