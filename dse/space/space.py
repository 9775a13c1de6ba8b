"""The product grid of a space file, counted by its distinct points, and its axes' values.

Notation: n points, d axes. `index` is (n, d) int64, position of the value on each axis; `ids` is
(n,) int64 in [0, size). A canonical index has 0 on every axis that does not count.

Axes that conditions name (controllers) split the grid into branches. Within a branch the axes that
count are a plain product, so that ids are mixed-radix numbers:

    id = (offset[branch] + rank among the conditional axes) * common + rank among the common axes

`common` is the product over the axes that count everywhere. Nothing loops over points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.schema.axes import (
    AXES,
    LARGEST_SPACE,
    POOLS,
    SHARED,
    Axis,
    Branch,
    Value,
    branches,
    points,
)
from dse.schema.constants import TIERS
from dse.schema.dtypes import DTYPES
from dse.schema.model import Model
from dse.schema.study import Study
from dse.space.batches import (
    DRAFT_AXIS,
    batch_of_models,
    deployed_fields,
    drafts_of,
    weight_formats,
)
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Values = NDArray[np.float64] | NDArray[np.intp]


class AxisTable:
    """The values of one axis by position: float64 for sizes and flags, codes for chips, backends,
    dtypes and names (its place among them). Entry 0 is the value where the axis does not count,
    entry k + 1 its k-th value."""

    def __init__(self, axis: Axis, chips: Sequence[str] = ()) -> None:
        """`chips` are those of the space in the order of their codes; without them, the axis's."""
        self.axis = axis
        self.cardinality = len(axis.values)
        rule, values = axis.rule, tuple(map(str, axis.values))
        names = {"chip": tuple(chips) or values, "backend": values, "tier": TIERS, "dtype": DTYPES}
        if rule.kind in names:
            codes = [names[rule.kind].index(value) for value in values]
            self.table: Values = np.array([0, *codes], dtype=np.intp)
        else:
            named = rule.kind == "name"
            sizes = map(rule.names.index, values) if named else axis.values
            self.table = np.array([rule.inactive, *map(float, sizes)])

    def values(
        self, position: Ints | None, active: Flags | None, known: Mapping[str, Values], n: int
    ) -> Values:
        """(n,) values. `position` (n,) is None on an axis of one value, `active` (n,) is None on
        an axis that counts everywhere, `known` holds the values of the axes before."""
        if position is None:
            found = np.full(n, self.table[1])
        elif active is None:
            found = self.table[1:].take(position)
        else:
            found = self.table.take((position + 1) * active)
        if self.axis.ratio_of is not None:
            found = self._sizes(found, known)
        if active is None or (position is not None and self.axis.ratio_of is None):
            return found
        return np.where(active, found, self.table[0])

    def _sizes(self, ratios: Values, known: Mapping[str, Values]) -> Values:
        """Ratio x expression, rounded to the nearest multiple (halves up), at least one."""
        product = self.axis.ratio_of
        assert product is not None
        size = ratios * float(product.factor)
        for name in product.times:
            size = size * known[name]
        for name in product.over:
            size = size / np.maximum(known[name], 1.0)
        multiple = float(self.axis.multiple_of)
        return np.maximum(np.floor(size / multiple + 0.5), 1.0) * multiple


class Space:
    """The points of a space file: a product of axes that may depend on each other, counted by its
    distinct canonical points. `names` (d,) of the axes, `cardinalities` (d,) how many values each
    has, `choices` (d,) these as written, in index order, `ordered` (d,) whether they are a scale (a
    size, a degree) and not a set of kinds; `size` distinct canonical points."""

    def __init__(
        self, name: str, axes: Sequence[Axis], fingerprint: str, chips: Sequence[str] = ()
    ) -> None:
        """`chips` in the order of their codes, those of the axes without it. Raises InputError for
        a space beyond LARGEST_SPACE points."""
        self.name, self.fingerprint = name, fingerprint
        self.axes = tuple(axes)
        self.names = tuple(axis.name for axis in self.axes)
        self.ordered = tuple(axis.ordered for axis in self.axes)
        self.choices: tuple[tuple[Value, ...], ...] = tuple(axis.values for axis in self.axes)
        of_chips = (axis.values for axis in self.axes if axis.rule.kind == "chip")
        every = dict.fromkeys(str(chip) for values in of_chips for chip in values)
        self.chips = tuple(chips or every)
        self._tables = tuple(AxisTable(axis, self.chips) for axis in self.axes)
        self.cardinalities = np.array([len(axis.values) for axis in self.axes], dtype=np.int64)

        self.size = points(name, self.axes)
        found = branches(self.axes)
        active: Flags = np.array([branch.active for branch in found], dtype=bool)  # (branches, d)
        self._active = np.asfortranarray(active)
        always = np.logical_and.reduce(active)
        self._conditional = tuple(int(j) for j in np.flatnonzero(~always))
        self._set_controllers(found)
        many = self.cardinalities > 1
        plain = [j for j in range(len(self.axes)) if many[j] and j not in self._controllers]
        self._common = [j for j in plain if always[j] and not self.axes[j].by_chip]
        self._partial = [j for j in plain if j not in self._common]

        cards = [int(c) for c in self.cardinalities]
        self._common_size = math.prod(cards[j] for j in self._common)
        self._set_digits(found)
        counts = [
            math.prod(int(self._radix[j][b]) for j in self._partial) for b in range(len(found))
        ]
        self._offsets = np.array([0, *itertools.accumulate(counts)], dtype=np.int64)
        # Stride of a partial axis by branch; 0 where it does not count.
        self._strides: dict[int, Ints] = {}
        stride = np.ones(len(found), dtype=np.int64)
        for j in self._partial:
            self._strides[j] = np.where(active[:, j], stride, 0)
            stride = stride * self._radix[j]

    @classmethod
    def of(cls, study: Study) -> Space:
        return cls(study.name, study.axes, study.fingerprint)

    def part(self, name: str, pool: str) -> tuple[Space, Ints]:
        """The space of the workers of a pool, beside the shapes: its axes under their own names,
        and where they stand here; chip and software may be those of the deployment. Chips keep
        their codes."""
        own = [j for j, axis in enumerate(self.axes) if axis.rule.section == "model"]
        shared = [name for name in SHARED if f"{pool}_{name}" not in self.names]
        own += [j for j, name in enumerate(self.names) if name in shared]
        own += [j for j, one in enumerate(self.names) if one.startswith(f"{pool}_")]
        axes = [self.axes[j].of_worker(pool) for j in own]
        return Space(name, axes, self.fingerprint, self.chips), np.array(own, dtype=np.int64)

    @property
    def backends(self) -> tuple[str, ...]:
        """Ids of the serving software in the order of their codes; none where it is no axis."""
        if "backend" not in self.names:
            return ()
        return tuple(str(one) for one in self.choices[self.names.index("backend")])

    def _set_controllers(self, found: list[Branch]) -> None:
        """`_branch_of[code]` is the branch of every assignment of the controllers, canonical or
        not; `_chosen[j]` is the canonical position of controller j in each branch."""
        position = {name: j for j, name in enumerate(self.names)}
        names = list(found[0].chosen)
        self._controllers = tuple(position[name] for name in names)
        cards = [len(self.axes[j].values) for j in self._controllers]
        self._controller_cards = cards
        canonical = {tuple(branch.chosen.values()): b for b, branch in enumerate(found)}
        self._chosen = {
            j: np.array([branch.chosen[name] or 0 for branch in found], dtype=np.int64)
            for j, name in zip(self._controllers, names, strict=True)
        }
        self._branch_of = np.empty(math.prod(cards), dtype=np.int64)
        for code, assignment in enumerate(itertools.product(*map(range, cards))):
            chosen: dict[str, int | None] = {}
            for name, index in zip(names, assignment, strict=True):
                when = self.axes[position[name]].when
                on = all(chosen[condition.axis] in condition.indices for condition in when)
                axis = self.axes[position[name]]
                near = axis.nearest(index, chosen.get(axis.chip_axis))
                chosen[name] = near if on else None
            self._branch_of[code] = canonical[tuple(chosen.values())]

    def _set_digits(self, found: list[Branch]) -> None:
        """Of each partial axis by branch: `_radix`, how many values may stand (1 where it does not
        count), and where its chip chooses among them, `_digit[branch, position]`, the number of the
        nearest that may, and `_position[branch, digit]`, the inverse."""
        self._radix: dict[int, Ints] = {}
        self._digit: dict[int, Ints] = {}
        self._position: dict[int, Ints] = {}
        for j in self._partial:
            axis, card = self.axes[j], len(self.axes[j].values)
            may = [
                axis.positions(branch.chosen.get(axis.chip_axis)) if branch.active[j] else (0,)
                for branch in found
            ]
            self._radix[j] = np.array([len(one) for one in may], dtype=np.int64)
            if not axis.by_chip:
                continue
            self._digit[j] = np.zeros((len(found), card), dtype=np.int64)
            self._position[j] = np.zeros((len(found), card), dtype=np.int64)
            for b, branch in enumerate(found):
                self._position[j][b, : len(may[b])] = may[b]
                if branch.active[j]:
                    chip = branch.chosen.get(axis.chip_axis)
                    self._digit[j][b] = [may[b].index(axis.nearest(k, chip)) for k in range(card)]

    def _branch(self, index: Ints) -> Ints:
        """(n,) branch of each point."""
        code = np.zeros(len(index), dtype=np.int64)
        for j, card in zip(self._controllers, self._controller_cards, strict=True):
            code = code * card + index[:, j]
        return self._branch_of[code]

    def active(self, index: Ints) -> Flags:
        """(n, d) -> (n, d): whether the axis counts at the point."""
        return self._active[self._branch(index)]

    def codes(self, index: Ints, of: Callable[[Axis], bool]) -> Ints | None:
        """(n, d) -> (n,) numbers, equal where the axes `of` have equal values, and so have those
        that they depend on; None where such numbers may pass LARGEST_SPACE."""
        wanted = {axis.name for axis in self.axes if of(axis)}
        for axis in reversed(self.axes):  # each stands behind those that it depends on
            wanted |= set(axis.depends_on) if axis.name in wanted else set()
        several = [j for j, name in enumerate(self.names) if name in wanted]
        if math.prod(len(self.choices[j]) for j in several) > LARGEST_SPACE:
            return None
        code = np.zeros(len(index), dtype=np.int64)
        for j in several:
            if self.cardinalities[j] > 1:
                code *= self.cardinalities[j]
                code += index[:, j]
        return code

    def canonical(self, index: Ints) -> Ints:
        """(n, d) -> (n, d): axes that do not count set to 0, values that may not stand with the
        point's chip to the nearest that may."""
        branch = self._branch(index)
        found = np.array(index, dtype=np.int64, order="F")
        for j in self._controllers:
            found[:, j] = self._chosen[j][branch]
        for j in self._partial:
            if j in self._digit:
                found[:, j] = self._position[j][branch, self._digit[j][branch, found[:, j]]]
            else:
                found[:, j] *= self._active[branch, j]
        return found

    def rank(self, index: Ints) -> Ints:
        """(n, d) -> (n,): number of the canonical point in [0, size)."""
        branch = self._branch(index)
        rank = self._offsets[branch]
        for j in self._partial:
            digit = self._digit[j][branch, index[:, j]] if j in self._digit else index[:, j]
            rank = rank + digit * self._strides[j][branch]
        for j in reversed(self._common):
            rank = rank * len(self.axes[j].values) + index[:, j]
        return rank

    def unrank(self, ids: Ints) -> Ints:
        """(n,) in [0, size) -> canonical (n, d), the inverse of `rank`."""
        rest = np.asarray(ids, dtype=np.int64)
        index = np.zeros((len(rest), len(self.axes)), dtype=np.int64, order="F")
        for j in self._common:
            rest = _digit(rest, len(self.axes[j].values), index[:, j])
        branch = np.searchsorted(self._offsets, rest, side="right") - 1
        for j in self._controllers:
            index[:, j] = self._chosen[j][branch]
        rest = rest - self._offsets[branch]
        for j in self._partial:
            rest = _digit(rest, self._radix[j][branch], index[:, j])
            if j in self._position:
                index[:, j] = self._position[j][branch, index[:, j]]
        return index

    def sample(self, rng: np.random.Generator, n: int) -> Ints:
        """min(n, size) distinct canonical points (n, d) in random order.

        Every branch gets an equal share as far as it has points, so that a small branch (dense
        models beside many sparse ones) is seen; within a branch the draw is uniform.
        """
        counts = np.diff(self._offsets) * self._common_size
        shares = _fair_shares(counts, min(n, self.size))
        starts = self._offsets[:-1] * self._common_size
        ids = [
            start + rng.choice(count, share, replace=False)
            for start, count, share in zip(starts, counts, shares, strict=True)
        ]
        return self.unrank(rng.permutation(np.concatenate(ids)))

    def neighbours(self, index: Ints) -> Ints:
        """(n, d) -> (k, d): the distinct canonical points that differ from an input by another
        value on one axis that counts, without the inputs, in the order of their ids."""
        start = self.canonical(index)
        own = self.rank(start)
        reached = [own]
        for j, axis in enumerate(self.axes):
            if (values := len(axis.values)) > 1:
                moved = np.tile(start, (values, 1))
                moved[:, j] = np.repeat(np.arange(values), len(start))
                reached.append(self.rank(moved))
        # np.unique would hash, which is several times slower than sorting here
        ids = np.sort(np.concatenate(reached))
        distinct = np.concatenate([ids[:1], ids[1:][ids[1:] != ids[:-1]]])
        return self.unrank(distinct[~np.isin(distinct, own)])

    def values(self, index: Ints) -> dict[str, Values]:
        """(n, d) -> one (n,) array for each axis: float64, or codes for chips and dtypes (position
        in `chips`, code of `dse.schema.dtypes`). An axis that does not count is 0, a degree of
        parallelism 1."""
        branch = self._branch(index)
        n = len(index)
        found: dict[str, Values] = {}
        for j, table in enumerate(self._tables):
            position = index[:, j] if table.cardinality > 1 else None
            active: Flags | None = self._active[branch, j] if j in self._conditional else None
            found[table.axis.name] = table.values(position, active, found, n)
        return found


def _digit(rest: Ints, radix: int | Ints, out: Ints) -> Ints:
    """Splits off the lowest digit into `out`; returns what is left."""
    quotient = rest // radix
    np.subtract(rest, quotient * radix, out=out)
    return quotient


def _fair_shares(counts: Ints, n: int) -> Ints:
    """(b,) shares that add up to n <= sum(counts), equal but for branches with fewer points."""
    shares = np.zeros(len(counts), dtype=np.int64)
    while (missing := n - int(shares.sum())) > 0:
        room = np.flatnonzero(shares < counts)
        each, extra = divmod(missing, len(room))
        wanted = np.full(len(room), each, dtype=np.int64)
        wanted[:extra] += 1
        shares[room] += np.minimum(wanted, counts[room] - shares[room])
    return shares


# The deployments of a study on one chip: its deployment axes enumerated for given shapes.

ROW = "shape"  # the column of the table that says which shape a deployment is of


def count_deployments(study: Study) -> int:
    """Points of the deployment axes but for the chip, conditions aside."""
    return math.prod(len(axis.values) for axis in _axes(study))


def deployments(
    study: Study,
    models: Sequence[Model],
    configs: Sequence[Mapping[str, Any]],
    chip: int | None = None,
) -> CandidateBatch:
    """Every distinct deployment that `study` allows of each of k shapes, on chip 0. `configs` are
    the shapes as front.json holds them: axes of the deployment may depend on theirs. `chip` as in
    `deployed_values`."""
    row, known = deployed_values(study, _of_shapes(configs), chip)
    return _batch(models, row, known)


def deployed_values(
    study: Study, shapes: Mapping[str, Values], chip: int | None = None
) -> tuple[Ints, dict[str, Values]]:
    """(row, values): every distinct deployment that `study` allows of each of k shapes, chip aside.
    `shapes` holds the values of the model axes, (k,) each, on the grid or off it; `row` (n,) says
    which shape a deployment is of, ascending, and `values` (n,) are those of all axes. Of axes that
    depend on the chip, the values of the study's chip number `chip`; None: those of any."""
    axes = _axes(study)
    # The first axis is the fastest, and those of one chip come last, as in `dse.space.space`.
    order = sorted(axes, key=lambda axis: bool(axis.by_chip))
    places = {axis.name: np.array(axis.positions(chip)) for axis in reversed(order)}
    table = Deployments.of(**{ROW: np.arange(len(next(iter(shapes.values()))))}).cross(**places)
    row = table[ROW]
    known = {name: values[row] for name, values in shapes.items()}
    positions: dict[str, Ints] = {}
    counts: dict[str, Flags | None] = {}
    first = np.ones(len(row), dtype=bool)  # one point for all positions of an axis without effect
    for axis in axes:
        positions[axis.name] = table[axis.name]
        active = counts[axis.name] = _active(study, axis, known, positions, counts)
        known[axis.name] = AxisTable(axis).values(positions[axis.name], active, known, len(row))
        if active is not None:
            first &= active | (positions[axis.name] == axis.positions(chip)[0])
    return row[first], {name: values[first] for name, values in known.items()}


def without_pools(study: Study) -> None:
    """Raises InputError for a space with pools of their own, for questions that look at candidates
    one by one: deployments of pools come from two tables, joined."""
    if any(axis.name == POOLS for axis in study.deployment_axes):
        raise InputError(
            f"{study.name} has prefill and decode pools",
            field="space",
            accepted="a space without them: this question is asked of aggregated designs",
        )


def _axes(study: Study) -> list[Axis]:
    """Raises InputError as `without_pools`."""
    without_pools(study)
    return [axis for axis in study.deployment_axes if axis.name != "chip"]


def _of_shapes(configs: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """(k,) values of the model axes."""
    found: dict[str, Values] = {}
    for name, rule in AXES.items():
        if rule.section == "model":
            given = [config.get(name) or 0.0 for config in configs]
            if name == "sparse":
                given = [bool(config.get("num_experts")) for config in configs]
            found[name] = np.array([float(value) for value in given])
    return found


def _active(
    study: Study,
    axis: Axis,
    known: Mapping[str, Values],
    positions: Mapping[str, Ints],
    counts: Mapping[str, Flags | None],
) -> Flags | None:
    """(n,) whether the axis counts; None where it always does. `counts` says so of the axes before
    it."""
    active: Flags | None = None
    for condition in axis.when:
        if condition.axis in positions:
            held = np.isin(positions[condition.axis], condition.indices)
            if (flags := counts[condition.axis]) is not None:
                held &= flags
        else:
            other = next(one for one in study.model_axes if one.name == condition.axis)
            if other.ratio_of is not None:
                message = f"{axis.name} depends on the ratio {other.name}"
                raise InputError(message, field="space", accepted="a condition on a plain axis")
            allowed = [float(other.values[k]) for k in condition.indices]
            held = np.isin(known[condition.axis], allowed)
        active = held if active is None else active & held
    return active


def _batch(models: Sequence[Model], row: Ints, values: Mapping[str, Values]) -> CandidateBatch:
    """Shape `models[row[i]]` on the deployment of values[...][i]."""
    weight = values["weight_dtype"].astype(np.intp)
    return replace(
        batch_of_models(models)[row],
        weight_dtype={part: of[row, weight] for part, of in weight_formats(models).items()},
        **(deployed_fields(values, len(row)) | _drafts(models, row, values.get(DRAFT_AXIS))),
    )


def _drafts(models: Sequence[Model], row: Ints, drafted: Values | None) -> dict[str, Floats]:
    """The fields of `drafted` tokens a step, (n,), of model `row` (n,)."""
    if drafted is None:
        return {}
    tokens = drafted.astype(np.float64)
    found = {DRAFT_AXIS: tokens, "draft_gain": np.ones(len(row))}
    for k, model in enumerate(models):
        mine = row == k
        found["draft_gain"][mine] = drafts_of([model], tokens[mine], int(mine.sum()))["draft_gain"]
    return found
