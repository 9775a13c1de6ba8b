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

import numpy as np
from numpy.typing import NDArray

from dse.schema.axes import LARGEST_SPACE, SHARED, Axis, Branch, Value, branches, points
from dse.schema.constants import TIERS
from dse.schema.dtypes import CODE
from dse.schema.study import Study

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
        kind, inactive = axis.rule.kind, axis.rule.inactive
        if kind == "chip":
            codes = [(chips or axis.values).index(str(chip)) for chip in axis.values]
            self.table: Values = np.array([0, *codes], dtype=np.intp)
        elif kind == "backend":
            self.table = np.array([0, *range(self.cardinality)], dtype=np.intp)
        elif kind == "tier":
            self.table = np.array([0, *(TIERS.index(str(v)) for v in axis.values)], dtype=np.intp)
        elif kind == "dtype":
            self.table = np.array([0, *(CODE[str(v)] for v in axis.values)], dtype=np.intp)
        elif kind == "name":
            places = (axis.rule.names.index(str(v)) for v in axis.values)
            self.table = np.array([inactive, *map(float, places)])
        else:
            self.table = np.array([inactive, *(float(v) for v in axis.values)])

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
    """The points of a space file, as `dse.problem.protocol.SpaceProtocol` asks for."""

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
