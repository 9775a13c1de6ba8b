"""The axes of a search space: which there are, what one is made of, how they depend."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from dse import units
from dse.data import rows_beside
from dse.errors import InputError
from dse.record import record

Section = Literal["model", "deployment", "prefill"]
Kind = Literal["size", "flag", "name", "tokens", "dtype", "chip", "tier", "backend"]
Value = bool | int | float | str

LARGEST_SIZE = 10**9
MOST_BRANCHES = 4_096
LARGEST_SPACE = 2**62


@record
class AxisRule:
    """What the language knows of an axis: a row of axes.csv.

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


# How one instance is divided: axis by flag; and the axes whose product is its chips.
DEGREES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "ep": "expert_parallel",
}
CHIP_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel")
# Where `deployment` has `prefill` and `decode`, designs whose pools are separate stand beside those
# of its own axes, or alone: this axis, which no file writes, says which a point is.
POOLS, AGGREGATED, SEPARATE = "pools", "aggregated", "separate"
_POOL = ("chip", *DEGREES.values(), "redundant_experts", "weight_dtype", "kv_dtype")
SHARED = ("chip", "backend")  # of the deployment, where a pool has none of its own
# The axes of a worker of each pool; in a space their names begin with that of the pool.
POOL_AXES: Mapping[str, tuple[str, ...]] = {
    "prefill": (*_POOL, "busy_percent"),
    "decode": (*_POOL, "concurrency", "draft_tokens", "max_running_requests"),
}


def _rule(row: Mapping[str, str]) -> AxisRule:
    """Of a row of axes.csv, where an empty cell is the default of its column."""

    def value(text: str) -> Any:
        words = {"": None, "true": True, "false": False}
        return words[text] if text in words else int(text) if text.isdigit() else text

    def several(text: str) -> tuple[str, ...]:
        return tuple(text.split("|")) if text else ()

    default, (other, _, wanted) = value(row["default"]), row["needs"].partition("=")
    if row["ratio_of"]:
        default = {"ratio_of": row["ratio_of"], "values": [default]}
    bounds = {name: int(row[name]) for name in ("least", "most") if row[name]}
    flags = {name: row[name] == "yes" for name in ("required", "unconditional", "shared")}
    return AxisRule(
        *(row["section"], row["kind"], row["meaning"]),  # pyright: ignore[reportArgumentType]
        inactive=float(row["inactive"] or 0.0),
        default=default,
        needs=(other, several(wanted) or None) if other else None,
        names=several(row["names"]),
        **bounds,
        **flags,
    )


def _rules() -> Mapping[str, AxisRule]:
    return {row["axis"]: _rule(row) for row in rows_beside(__file__, "axes.csv")}


# In this order the axes stand in a space, after what they depend on.
AXES = _rules()
LINEAR_KINDS = AXES["linear_attention"].names[1:]


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
