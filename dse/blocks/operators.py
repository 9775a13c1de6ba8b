"""What a block adds its operators to: one step of serving, or one pass of training.

An operator is data: a role, which says what the physics takes it for, a label, which is printed,
and its sizes on one chip. Nothing is decided by a label. `Operators` is what takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dse.record import record

Floats = NDArray[np.float64]
ACTIVATION_BYTES = 2.0  # activations travel and are stored in bf16


@record
class Block:
    """`count` layers of one kind; `sizes[name]` and `count` have shape (n,)."""

    kind: str
    count: Floats
    sizes: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.sizes[name]

    def optional(self, name: str) -> Floats | float:
        """A size that only some models have; 0 where no model of the batch does."""
        return self.sizes.get(name, 0.0)


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


class Product(NamedTuple):
    """`times` products of (rows, inner) with a (inner, out) weight of the given part; (n,) each."""

    role: Role
    label: str
    times: Floats
    part: str
    rows: Floats
    out: Floats
    inner: Floats


class Mixing(NamedTuple):
    """`times` kernels in which tokens meet tokens, (n,) each: the kernel `law` on the format of
    `part`. `cache` of the bytes must be read from the cache, where it is over one; `output_bytes`
    are the output of a prompt's, where all else can be made from latents again. `filled` is the
    share of flops and bytes that is not padding of heads; None where none are padded. `head` is the
    size of the heads, where the kernel's law was measured at another one (128)."""

    role: Role
    label: str
    times: Floats
    law: str
    part: str
    flops: Floats
    bytes_: Floats
    cache: Floats | None = None
    output_bytes: Floats | None = None
    filled: Floats | None = None
    head: Floats | None = None


class Experts(NamedTuple):
    """The products of routed experts of `block` on one chip, each `width` by `latent` columns and
    `weight` elements in all, (n,): of `tokens` of all ranks a rank receives `mean`, the busiest one
    `busiest`, which padding makes `padded`; it touches the weights of `distinct` experts."""

    block: Block
    tokens: Floats
    width: Floats
    latent: Floats
    weight: Floats
    mean: Floats
    busiest: Floats
    padded: Floats
    distinct: Floats

    @property
    def flops(self) -> Floats:
        """(n,) of the busiest rank, with its padding."""
        return 2.0 * self.padded * self.weight

    @property
    def moved(self) -> Floats:
        """(n,) bytes of tokens in and out."""
        return self.busiest * (self.latent + self.width) * 2.0 * ACTIVATION_BYTES

    def sized(self, weight: Floats, sides: Floats) -> Experts:
        """The same with other elements and columns, both together, (n,)."""
        return self._replace(weight=weight, width=sides, latent=np.zeros_like(sides))

    @property
    def uneven(self) -> Floats:
        """(n,) share of the flops beyond those of the mean rank."""
        return (self.busiest - self.mean) / np.maximum(self.padded, 1e-9)

    @property
    def load(self) -> Floats:
        """(n,) tokens of the busiest rank over the mean."""
        return self.busiest / np.maximum(self.mean, 1e-9)


class Exchange(NamedTuple):
    """`times` collectives of `bytes_`, (n,): `all_reduce`, `all_gather` or `all_to_all`, over the
    ranks of the `tensor` or of the `expert` group. `leaving`: of an all-to-all, the share that
    leaves each of the domains of the group; None: none does."""

    role: Role
    label: str
    times: Floats
    how: str
    group: str
    bytes_: Floats
    leaving: Sequence[Floats] | None = None


class Shape(Protocol):
    """What the blocks of a model share."""

    @property
    def hidden_size(self) -> Floats: ...


class Ranks(Protocol):
    """How a model is divided: by a deployment (`dse.physics.deployed`), or not at all
    (`dse.physics.parameters.Whole`)."""

    @property
    def batch(self) -> Shape: ...

    tensor_parallel: Floats
    expert_parallel: Floats
    experts_tensor_parallel: Floats
    redundant_experts: Floats | None
    kv_bytes: Floats


class Chips(Ranks, Protocol):
    """A model on its chips. `group` counts those that share its experts; `host_lanes`: no links but
    the host's join them; `weight_bytes` are those of an element, by part, `dispatched_bytes` those
    of a token sent to its experts; `leaving` is a memory of `dse.blocks.moe`."""

    data_parallel: Floats
    group: Floats
    host_lanes: NDArray[np.bool_]
    expert_padding_rows: Floats
    weight_bytes: dict[str, Floats]
    dispatched_bytes: Floats
    leaving: dict[int, list[Floats]]

    def heads(self, block: Block, name: str, *sizes: Floats) -> tuple[Floats, Floats | None]:
        """(sum of head sizes as kernels compute them, the share of it that is not padding), (n,);
        None where none are padded. `name` tells several of a block apart."""
        ...


class Operators(Protocol):
    """Tokens on one attention rank, and a place for operators. All arrays (n,).

    `rows` tokens in all, of which `prefill_rows` belong to prompts of `prompt_tokens` and
    `verified_rows` to `decode_rows` requests that decode `verified` tokens each and see `context`
    cached ones. `mean_rows` are those of the mean rank, `own_rows` those of one chip where
    tensor-parallel ranks divide them. `expert_domains` are the domains that the expert group spans,
    of the links and of each network.

    A pass of training is `backward`: it keeps what its backward needs, routes with the
    `routing_skew` of its software and sends the share `slots_sent` of tokens once for each expert,
    not once for each rank.
    """

    @property
    def deployed(self) -> Chips: ...

    @property
    def expert_domains(self) -> Sequence[Floats]: ...

    hidden_size: Floats
    rows: Floats
    mean_rows: Floats
    own_rows: Floats
    prefill_rows: Floats
    prompt_tokens: Floats
    decode_rows: Floats
    verified_rows: Floats
    verified: Floats | float
    context: Floats
    backward: bool
    routing_skew: Floats | float
    slots_sent: float

    def gemm(self, one: Product) -> None: ...

    def elementwise(self, role: Role, label: str, count: Floats, elements: Floats) -> None:
        """`count` kernels that read and write `elements` 16-bit numbers in all."""

    def over_prompt(self, one: Mixing) -> None:
        """Prompt tokens meet those before them; absent without prompts."""

    def over_cache(self, one: Mixing) -> None:
        """Decoded tokens meet the cache; absent without decodes."""

    def experts(self, one: Experts) -> None: ...

    def exchange(self, one: Exchange) -> None: ...

    def tensor_all_reduce(self, label: str, count: Floats) -> None:
        """Sums a layer's output over the tensor-parallel ranks."""
