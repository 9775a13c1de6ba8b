"""A mixed-integer program by names, solved by SciPy's HiGHS.

Columns (unknowns, at least 0) and rows (sums that are at most a limit) have names, so that who
builds on one finds them again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.space.candidates import Floats

# A budget of nodes is a count, so that a slow machine finds the same; this only ends what hangs.
HANGS_S = 120.0
INFEASIBLE = 2  # as `milp` says it

Name = tuple[Any, ...]


@dataclass(slots=True)
class Program:
    """Columns in the order in which they were added; `whole` 1 where only whole numbers do. Rows
    hold factors by column, and the limit of their sum."""

    columns: dict[Name, int] = field(default_factory=dict)
    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: dict[Name, tuple[dict[int, float], float]] = field(default_factory=dict)

    def add(self, name: Name, cost: float = 0.0, upper: float = np.inf, whole: int = 1) -> None:
        self.columns[name] = len(self.cost)
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)

    def at_most(self, name: Name, terms: Iterable[tuple[Name, float]], limit: float) -> None:
        """sum of factor x column <= limit; a column may come several times."""
        row: dict[int, float] = {}
        for column, factor in terms:
            at = self.columns[column]
            row[at] = row.get(at, 0.0) + factor
        self.rows[name] = (row, limit)

    def entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, Floats]:
        """Row, column and factor (n,) of every term, and the limits (rows,). Rows of watts and
        dollars stand beside rows of servers: each is scaled to a largest factor of 1."""
        largest = [max(map(abs, row.values()), default=1.0) or 1.0 for row, _ in self.rows.values()]
        scale = np.array(largest)
        terms = [(r, *one) for r, (row, _) in enumerate(self.rows.values()) for one in row.items()]
        rows, columns, factors = (np.array(values) for values in zip(*terms, strict=True))
        limits = np.array([limit for _, limit in self.rows.values()])
        return rows, columns, factors / scale[rows], limits / scale


@dataclass(frozen=True, slots=True)
class Found:
    """`value` of each column, in their order, None where nothing was found; its cost, the proven
    lowest cost, and whether it is proven that there is nothing."""

    value: Floats | None
    usd: float
    bound: float
    infeasible: bool


NONE = Found(None, np.inf, np.inf, True)


def solve(
    program: Program,
    *,
    gap: float,
    nodes: int,
    below: float = np.inf,
) -> Found:
    """The cheapest values of the columns, to a relative gap or up to a number of nodes of the
    search tree. With `below`, the answer costs no more than that, so that to find nothing proves a
    bound."""
    if np.isfinite(below):
        costs = {at: usd for at, usd in enumerate(program.cost) if usd}
        program = replace(program, rows={**program.rows, ("below",): (costs, below)})
    rows, columns, factors, most = program.entries()
    between, whole = (np.zeros(len(program.cost)), np.array(program.upper)), np.array(program.whole)
    limits = ((factors, (rows, columns)), most)
    found = milp_of(np.array(program.cost), limits, between, whole, gap=gap, nodes=nodes)
    if found.x is None:
        return Found(None, np.inf, _bound(found), found.status == INFEASIBLE)
    # A program without whole numbers has no tree, and is its own bound.
    bound = _bound(found) if any(program.whole) else float(found.fun)
    return Found(np.asarray(found.x), float(found.fun), bound, False)


def milp_of(
    cost: Floats,
    rows: tuple[tuple[Any, ...], Floats],
    between: tuple[Floats, Floats],
    whole: NDArray[np.int_],
    *,
    gap: float,
    nodes: int,
) -> Any:
    """HiGHS's answer to rows of factors, as `csr_array` takes them, with the limits of their sums,
    and columns between two values."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    entries, most = rows
    matrix = csr_array(entries, shape=(len(most), len(cost)))
    # SciPy takes arrays of bounds, which its annotations do not say.
    bounds: Any = between
    sums: Any = (np.full(len(most), -np.inf), most)
    with _nothing_printed():
        return milp(
            cost,
            constraints=LinearConstraint(matrix, *sums),
            integrality=whole,
            bounds=Bounds(*bounds),
            options={"mip_rel_gap": gap, "node_limit": nodes, "time_limit": HANGS_S},
        )


def _bound(found: Any) -> float:
    return -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Silences HiGHS, which sometimes writes a line to standard output in spite of its options; a
    JSON document must stay alone there."""
    c = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
        c.fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)
