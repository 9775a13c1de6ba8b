"""The axes of a search space: which there are, what one is made of, how they depend."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from dse import units
from dse.errors import InputError
from dse.record import record
from dse.schema.dtypes import TRAINABLE

Section = Literal["model", "deployment", "prefill"]
Kind = Literal["size", "flag", "name", "tokens", "dtype", "chip", "tier", "backend"]
Value = bool | int | float | str

LARGEST_SIZE = 10**9
MOST_BRANCHES = 4_096
LARGEST_SPACE = 2**62


@record
class AxisRule:
    """What the language knows of an axis.

    `least` and `most` bound a size, `names` are the values of a name, the first of which holds
    where the axis is left out. `inactive` is the value where the axis does not count; `default`
    what a file that leaves it out is read as if it had (None: it stays out; one that `needs`
    something is there where that is). An axis counts only where what it `needs` holds: an axis and
    its values, None for all but 0 and false. An `unconditional` axis counts in every point and may
    carry no condition. One that is `shared` counts also where another is a ratio over it.
    """

    section: Section
    kind: Kind
    meaning: str
    least: int = 1
    most: int = LARGEST_SIZE
    inactive: float = 0.0
    default: Value | Mapping[str, Any] | None = None
    required: bool = False
    needs: tuple[str, tuple[Value, ...] | None] | None = None
    unconditional: bool = False
    shared: bool = False
    names: tuple[str, ...] = ()


def _model(meaning: str, **rule: Any) -> AxisRule:
    return AxisRule("model", rule.pop("kind", "size"), meaning, **rule)


def _required(meaning: str) -> AxisRule:
    return _model(meaning, required=True, unconditional=True)


def _expert(meaning: str, **rule: Any) -> AxisRule:
    return _model(meaning, needs=("sparse", None), **rule)


def _of(axis: str, *values: Value) -> Callable[..., AxisRule]:
    """Rows of axes that count where `axis` stands on one of the values; none: is not 0."""
    return partial(_model, needs=(axis, values or None))


_gqa, _mla = _of("attention", "gqa"), _of("attention", "mla")
_indexer = _of("index_topk")
_linear = _of("linear_attention", "gated_delta_net", "kimi_delta")
_mamba, _mamba2 = _of("linear_attention", "mamba"), _of("linear_attention", "mamba2")
LINEAR_KINDS = ("gated_delta_net", "kimi_delta", "mamba", "mamba2")


def _degree(meaning: str) -> AxisRule:
    return AxisRule("deployment", "size", meaning, most=100_000, inactive=1.0, default=1)


def _deployed(meaning: str, kind: Kind = "size", *, required: bool = True) -> AxisRule:
    return AxisRule("deployment", kind, meaning, required=required, unconditional=True)


def _percent(meaning: str) -> AxisRule:
    return AxisRule("deployment", "size", f"{meaning}, percent", least=0, most=100)


# Where `deployment` has `prefill` and `decode`, designs whose pools are separate stand beside those
# of its own axes, or alone: this axis, which no file writes, says which a point is.
POOLS, AGGREGATED, SEPARATE = "pools", "aggregated", "separate"
_POOL = (
    "chip",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "redundant_experts",
    "weight_dtype",
    "kv_dtype",
)
SHARED = ("chip", "backend")  # of the deployment, where a pool has none of its own
# The axes of a worker of each pool; in a space their names begin with that of the pool.
POOL_AXES: Mapping[str, tuple[str, ...]] = {
    "prefill": (*_POOL, "busy_percent"),
    "decode": (*_POOL, "concurrency", "draft_tokens", "max_running_requests"),
}

# In this order the axes stand in a space, after what they depend on.
AXES: Mapping[str, AxisRule] = {
    "vocab_size": _required("rows of the input table"),
    "tied_embeddings": _model("output head shares the input table", kind="flag", default=False),
    "sparse": _model("the feed-forward is made of experts", kind="flag", unconditional=True),
    "hidden_size": _required("width of the residual stream"),
    "num_hidden_layers": _required("layers"),
    "attention": _model(
        "kind of the attention layers", kind="name", names=("gqa", "mla"), unconditional=True
    ),
    "head_dim": _gqa("size of one attention head", required=True, shared=True),
    "num_attention_heads": _required("query heads"),
    "num_key_value_heads": _gqa("key and value heads", required=True),
    "attention_bias": _gqa("query, key and value projections have a bias", kind="flag"),
    "sliding_window": _gqa("window of attention layers; 0: full attention", least=0),
    "sliding_window_pattern": _of("sliding_window")(
        "every n-th attention layer is full, the others have the window", least=2
    ),
    "attention_chunk_size": _gqa(
        "tokens of a chunk that see each other alone; 0: full attention", least=0
    ),
    "no_rope_layer_interval": _of("attention_chunk_size")(
        "every n-th attention layer is full, the others are chunked", least=2
    ),
    "q_lora_rank": _mla("rank of the query; 0: from the hidden state", least=0, default=0),
    "kv_lora_rank": _mla("rank of keys and values: what the cache holds"),
    "qk_nope_head_dim": _mla("query-key head size without position", default=128),
    "qk_rope_head_dim": _mla("query-key head size with position, cached once", default=64),
    "v_head_dim": _mla("value head size", default=128),
    "attn_output_gate": _model("attention layers gate their output", kind="flag"),
    "index_topk": _model("cached tokens that an indexer picks; 0: no indexer", least=0),
    "index_n_heads": _indexer("heads of the indexer", default=64),
    "index_head_dim": _indexer("size of one head of the indexer", default=128),
    "linear_attention": _model(
        "kind of the layers that are not attention",
        kind="name",
        names=("none", *LINEAR_KINDS),
        unconditional=True,
    ),
    "full_attention_interval": _of("linear_attention", *LINEAR_KINDS)(
        "every n-th layer is attention, the others linear", least=2
    ),
    "linear_value_head_dim": _linear("value head size of linear attention", default=128),
    "linear_num_value_heads": _linear(
        "value heads of linear attention",
        default={"ratio_of": "hidden_size / linear_value_head_dim", "values": [2]},
    ),
    "linear_key_head_dim": _linear("key head size of linear attention", default=128),
    "linear_num_key_heads": _of("linear_attention", "gated_delta_net")(
        "key heads of linear attention",
        default={"ratio_of": "linear_num_value_heads", "values": ["1/2"]},
    ),
    "linear_conv_kernel_dim": _linear("width of its short convolution", default=4),
    "mamba_head_dim": _mamba2("channels of one head of Mamba-2", default=64),
    "mamba_num_heads": _mamba2(
        "heads of Mamba-2", default={"ratio_of": "hidden_size / mamba_head_dim", "values": [2]}
    ),
    "ssm_state_size": _mamba2("state of a channel of Mamba-2", default=128),
    "n_groups": _mamba2("groups of heads of Mamba-2 that share B and C", default=8),
    "conv_kernel": _mamba2("width of its short convolution", default=4),
    "mamba_expand": _mamba("channels of Mamba-1 over the hidden size", default=2),
    "mamba_d_state": _mamba("state of a channel of Mamba-1", default=16),
    "mamba_d_conv": _mamba("width of its short convolution", default=4),
    "intermediate_size": _model("width of a dense feed-forward"),
    "num_experts": _expert("routed experts"),
    "num_experts_per_tok": _expert("routed experts that a token uses (top-k)"),
    "moe_intermediate_size": _expert("width of one expert"),
    "num_shared_experts": _expert("experts that every token uses, each as wide as one", least=0),
    "num_dense_layers": _expert("first layers that stay dense", least=0),
    "num_nextn_predict_layers": _model(
        "multi-token-prediction modules; takes draft_tokens in the workload", least=0, most=64
    ),
    "interleave_moe_layer_step": _expert("of the layers after these, every n-th has experts"),
    "training_tokens": _model("tokens the model is trained on", kind="tokens", unconditional=True),
    "trained_in": _model(
        "format that the model is trained in, 16 bits where it is left out; int4: the end of "
        "training alone",
        kind="dtype",
        names=TRAINABLE,
        unconditional=True,
    ),
    POOLS: AxisRule(
        "deployment",
        "name",
        "one pool for both phases, or one of its own for each; follows from `prefill` and `decode`",
        names=(AGGREGATED, SEPARATE),
        unconditional=True,
    ),
    "pool_chips": _deployed(
        "chips of both pools together, at most; without it they take all `chips`", required=False
    ),
    "busy_percent": AxisRule(
        "prefill",
        "size",
        "share of the time that prefill workers are busy, at most, percent",
        most=100,
        default=100,
    ),
    "chip": _deployed("chip of the catalog, or `all` that have the price", "chip"),
    "backend": _deployed(
        "serving software, in place of the workload's; current: the chip's own",
        "backend",
        required=False,
    ),
    "chips": _deployed("chips in all; replicas follow", required=False),
    "replicas": _deployed("independent instances; chips follow", required=False),
    "tensor_parallel": _degree("chips that split every layer"),
    "pipeline_parallel": _degree("stages of layers"),
    "data_parallel": _degree("attention data-parallel groups inside one instance"),
    "expert_parallel": _degree("groups that experts are spread over; divides TP x DP"),
    "redundant_experts": AxisRule(
        "deployment",
        "size",
        "copies of busy experts over all ranks, placed by load (EPLB); 0: none",
        least=0,
    ),
    "draft_tokens": AxisRule(
        "deployment",
        "size",
        "tokens drafted a step; 0: none, and stands on the axis where it has several values",
        least=0,
        most=64,
    ),
    "max_running_requests": AxisRule(
        "deployment", "size", "most requests at once on an attention rank", inactive=math.nan
    ),
    "scale_up_domain": _deployed("chips of a hypothetical domain; takes a `rack`", required=False),
    "weight_dtype": _deployed("format of the weights", "dtype"),
    "kv_dtype": _deployed("format of the key-value cache", "dtype"),
    "concurrency": _deployed("requests in flight over all chips"),
    "offload_tier": AxisRule("deployment", "tier", "memory tier behind the device memory"),
    "weights_offloaded_percent": _percent("share of the weights in the memory tier"),
    "kv_offloaded_percent": _percent("share of the key-value cache in the memory tier"),
}


def rule_of(name: str) -> AxisRule:
    """The rule of an axis, or of that of a pool by the name of a worker's."""
    return AXES[name if name in AXES else name.partition("_")[2]]


@record
class Product:
    """`factor * times[0] * ... / (over[0] * ...)`, the names being axes."""

    factor: Fraction
    times: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.times + self.over


@record
class Condition:
    """True where `axis` counts and stands on one of `indices`."""

    axis: str
    indices: tuple[int, ...]


@record
class Axis:
    """One axis. `values` are ascending for sizes and flags, as written for chips and dtypes.

    With `ratio_of` the values are ratios, and the size is ratio x expression rounded to the
    nearest multiple of `multiple_of`, one multiple at least. The axis counts where every condition
    of `when` holds. `by_chip` has for each value of the axis `chip_axis` the positions, ascending,
    that may stand with it; empty where all may. `given` is False for a default that the file left
    out.
    """

    name: str
    values: tuple[Value, ...]
    ratio_of: Product | None = None
    ratio_text: str = ""
    multiple_of: int = 1
    when: tuple[Condition, ...] = ()
    given: bool = True
    by_chip: tuple[tuple[int, ...], ...] = ()
    chip_axis: str = "chip"

    @property
    def rule(self) -> AxisRule:
        return rule_of(self.name)

    @property
    def ordered(self) -> bool:
        """A scale, and not a set of kinds."""
        return self.rule.kind in ("size", "tokens")

    @property
    def depends_on(self) -> tuple[str, ...]:
        ratio = self.ratio_of.names if self.ratio_of else ()
        chip = (self.chip_axis,) if self.by_chip else ()
        return tuple(condition.axis for condition in self.when) + ratio + chip

    def positions(self, chip: int | None) -> tuple[int, ...]:
        """Positions that may stand with the chip at that position; all of them for None."""
        if chip is None or not self.by_chip:
            return tuple(range(len(self.values)))
        return self.by_chip[chip]

    def nearest(self, position: int, chip: int | None) -> int:
        """The position itself where it may stand with the chip, else the nearest that may on a
        scale, the first on others."""
        may = self.positions(chip)
        if position in may:
            return position
        return min(may, key=lambda one: abs(one - position)) if self.ordered else may[0]

    def of_pool(self, pool: str, own: Collection[str], *conditions: Condition) -> Axis:
        """The axis of a worker under its name in the space, where the conditions hold too; `own`
        are the axes that the pool does not share with the deployment."""
        here = {name: f"{pool}_{name}" for name in own}
        renamed = self._renamed(here)
        return replace(renamed, when=(*conditions, *renamed.when))

    def of_worker(self, pool: str) -> Axis:
        """The inverse: the axis of a worker by itself."""
        renamed = self._renamed({f"{pool}_{name}": name for name in POOL_AXES[pool]})
        return replace(renamed, when=tuple(c for c in renamed.when if c.axis != POOLS))

    def _renamed(self, names: Mapping[str, str]) -> Axis:
        ratio = self.ratio_of
        if ratio is not None:
            times, over = (
                tuple(names.get(one, one) for one in part) for part in (ratio.times, ratio.over)
            )
            ratio = replace(ratio, times=times, over=over)
        when = tuple(replace(one, axis=names.get(one.axis, one.axis)) for one in self.when)
        name, chip = (names.get(one, one) for one in (self.name, self.chip_axis))
        return replace(self, name=name, chip_axis=chip, ratio_of=ratio, when=when)


@record
class Branch:
    """One assignment of the axes that others depend on by `when` or `by_chip`: `chosen` maps their
    names to an index (None: does not count); `active` says of each axis whether it counts."""

    chosen: Mapping[str, int | None]
    active: tuple[bool, ...]


def branches(axes: Sequence[Axis]) -> list[Branch]:
    """Every assignment of the axes that conditions name. `axes` in the order of `ordered_axes`.

    Raises InputError for more than MOST_BRANCHES.
    """
    controllers = {condition.axis for axis in axes for condition in axis.when}
    controllers |= {axis.chip_axis for axis in axes if axis.by_chip}
    if math.prod(len(axis.values) for axis in axes if axis.name in controllers) > MOST_BRANCHES:
        raise InputError(
            f"the conditions split the space into more than {MOST_BRANCHES} branches",
            accepted="conditions on axes with fewer values",
        )
    found = [Branch({}, ())]
    for axis in axes:
        grown = []
        for branch in found:
            on = all(branch.chosen[c.axis] in c.indices for c in axis.when)
            active = (*branch.active, on)
            if axis.name not in controllers:
                grown.append(Branch(branch.chosen, active))
                continue
            for index in axis.positions(branch.chosen.get(axis.chip_axis)) if on else (None,):
                grown.append(Branch({**branch.chosen, axis.name: index}, active))
        found = grown
    return found


def points(name: str, axes: Sequence[Axis]) -> int:
    """Distinct points of a space: of each branch the product over the axes that count, summed.
    Raises InputError for more than LARGEST_SPACE."""
    size = sum(
        math.prod(
            len(axis.positions(branch.chosen.get(axis.chip_axis)))
            for axis, counts in zip(axes, branch.active, strict=True)
            if counts and axis.name not in branch.chosen
        )
        for branch in branches(axes)
    )
    if size > LARGEST_SPACE:
        raise InputError(
            f"{name} has {float(size):.3g} points",
            field="axes",
            accepted=f"at most {float(LARGEST_SPACE):.2g}",
        )
    return size


# Single values of an axis that are no plain numbers: tokens with a unit, fractions.

MOST_TOKENS = 1e15


def tokens_of(item: Any) -> int | None:
    """15T or 15e12 as a number; None where no model is trained on so many."""
    if isinstance(item, bool) or not isinstance(item, int | float | str):
        return None
    try:
        value = units.parse(item, "tokens")
    except InputError:
        return None
    return round(value) if units.FEWEST_TRAINING_TOKENS <= value <= MOST_TOKENS else None


def ratio_of(item: Any) -> float | None:
    """0.25 or "1/4" as a float; None where it is neither or not above zero."""
    if isinstance(item, str):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", item)
        if match is None or int(match[2]) == 0:
            return None
        item = int(match[1]) / int(match[2])
    if isinstance(item, bool) or not isinstance(item, int | float):
        return None
    return float(item) if math.isfinite(item) and 0 < item <= LARGEST_SIZE else None
