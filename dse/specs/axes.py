"""The axes of a search space: which there are, what one is made of, how they depend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from dse.errors import InputError

Section = Literal["model", "deployment"]
Kind = Literal["size", "flag", "dtype", "chip", "tier"]
Value = bool | int | float | str

LARGEST_SIZE = 10**9
MOST_BRANCHES = 4_096


@dataclass(frozen=True, slots=True)
class AxisRule:
    """What the language knows of an axis.

    `least` and `most` bound a size; `inactive` the value where the axis does not count; `default`
    the value of an axis that the file leaves out (None: it stays out). A `sparse` axis counts only
    where the model has experts. An `unconditional` axis counts in every point and may carry no
    condition.
    """

    section: Section
    kind: Kind
    meaning: str
    least: int = 1
    most: int = LARGEST_SIZE
    inactive: float = 0.0
    default: Value | None = None
    required: bool = False
    sparse: bool = False
    unconditional: bool = False


def _model(meaning: str, **rule: Any) -> AxisRule:
    return AxisRule("model", rule.pop("kind", "size"), meaning, **rule)


def _required(meaning: str) -> AxisRule:
    return _model(meaning, required=True, unconditional=True)


def _expert(meaning: str, **rule: Any) -> AxisRule:
    return _model(meaning, sparse=True, **rule)


def _degree(meaning: str) -> AxisRule:
    return AxisRule("deployment", "size", meaning, inactive=1.0, default=1)


def _deployed(meaning: str, kind: Kind = "size", *, required: bool = True) -> AxisRule:
    return AxisRule("deployment", kind, meaning, required=required, unconditional=True)


def _percent(meaning: str) -> AxisRule:
    return AxisRule("deployment", "size", f"{meaning}, percent", least=0, most=100)


# In this order the axes stand in a space, after what they depend on.
AXES: Mapping[str, AxisRule] = {
    "vocab_size": _required("rows of the input table"),
    "tied_embeddings": _model("output head shares the input table", kind="flag", default=False),
    "sparse": _model("the feed-forward is made of experts", kind="flag", unconditional=True),
    "hidden_size": _required("width of the residual stream"),
    "num_hidden_layers": _required("layers"),
    "head_dim": _required("size of one attention head"),
    "num_attention_heads": _required("query heads"),
    "num_key_value_heads": _required("key and value heads"),
    "sliding_window": _model("window of every attention layer; 0: full attention", least=0),
    "intermediate_size": _model("width of a dense feed-forward"),
    "num_experts": _expert("routed experts"),
    "num_experts_per_tok": _expert("routed experts that a token uses (top-k)"),
    "moe_intermediate_size": _expert("width of one expert"),
    "num_shared_experts": _expert("experts that every token uses, each as wide as one", least=0),
    "num_dense_layers": _expert("first layers that stay dense", least=0),
    "chip": _deployed("chip of the catalog, or `all` that have the price", "chip"),
    "chips": _deployed("chips in all; replicas follow", required=False),
    "replicas": _deployed("independent instances; chips follow", required=False),
    "tensor_parallel": _degree("chips that split every layer"),
    "pipeline_parallel": _degree("stages of layers"),
    "data_parallel": _degree("attention data-parallel groups inside one instance"),
    "expert_parallel": _degree("groups that experts are spread over; divides TP x DP"),
    "scale_up_domain": _deployed("chips of a hypothetical domain; takes a `rack`", required=False),
    "weight_dtype": _deployed("format of the weights", "dtype"),
    "kv_dtype": _deployed("format of the key-value cache", "dtype"),
    "concurrency": _deployed("requests in flight over all chips"),
    "offload_tier": AxisRule("deployment", "tier", "memory tier behind the device memory"),
    "weights_offloaded_percent": _percent("share of the weights in the memory tier"),
    "kv_offloaded_percent": _percent("share of the key-value cache in the memory tier"),
}


@dataclass(frozen=True, slots=True)
class Product:
    """`factor * times[0] * ... / (over[0] * ...)`, the names being axes."""

    factor: Fraction
    times: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.times + self.over


@dataclass(frozen=True, slots=True)
class Condition:
    """True where `axis` counts and stands on one of `indices`."""

    axis: str
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis. `values` are ascending for sizes and flags, as written for chips and dtypes.

    With `ratio_of` the values are ratios, and the size is ratio x expression rounded to the
    nearest multiple of `multiple_of`, one multiple at least. The axis counts where every condition
    of `when` holds. `given` is False for a default that the file left out.
    """

    name: str
    values: tuple[Value, ...]
    ratio_of: Product | None = None
    ratio_text: str = ""
    multiple_of: int = 1
    when: tuple[Condition, ...] = ()
    given: bool = True

    @property
    def rule(self) -> AxisRule:
        return AXES[self.name]

    @property
    def ordered(self) -> bool:
        """A scale, and not a set of kinds."""
        return self.rule.kind == "size"

    @property
    def depends_on(self) -> tuple[str, ...]:
        ratio = self.ratio_of.names if self.ratio_of else ()
        return tuple(condition.axis for condition in self.when) + ratio


@dataclass(frozen=True, slots=True)
class Branch:
    """One assignment of the axes that others depend on by `when`: `chosen` maps their names to an
    index (None: does not count); `active` says of each axis whether it counts."""

    chosen: Mapping[str, int | None]
    active: tuple[bool, ...]


def branches(axes: Sequence[Axis]) -> list[Branch]:
    """Every assignment of the axes that conditions name. `axes` in the order of `ordered_axes`.

    Raises InputError for more than MOST_BRANCHES.
    """
    controllers = {condition.axis for axis in axes for condition in axis.when}
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
            for index in range(len(axis.values)) if on else (None,):
                grown.append(Branch({**branch.chosen, axis.name: index}, active))
        found = grown
    return found
