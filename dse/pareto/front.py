"""Non-dominated sets, of one array or of a stream. All objectives are minimised."""

from __future__ import annotations

import moocore
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]

# Rows wait until there are this many, or as many as the front holds: a merge then costs a bounded
# share of the work, however large the front grows. So many at once are compared alone first.
PENDING_ROWS = 20_000


def non_dominated(F: Floats) -> Flags:
    """(n,) True where no other row of F (n, m) is as good everywhere and better somewhere.

    Of equal rows only the first is True. +inf is a value like any other; NaN raises ValueError,
    because it compares as neither better nor worse and would remove every other row.
    """
    _refuse_unknown(F)
    return moocore.is_nondominated(F)


def _refuse_unknown(F: Floats) -> None:
    if np.isnan(F).any():
        raise ValueError("an objective is NaN")


class Archive:
    """The non-dominated rows of everything added, with their ids, ordered by id.

    The content depends on neither the order nor the chunks in which rows came: of equal rows the
    one with the smallest id stays.
    """

    def __init__(self, objectives: int) -> None:
        self._F: Floats = np.empty((0, objectives))
        self._ids: Ids = np.empty(0, dtype=np.int64)
        self._pending: list[tuple[Floats, Ids]] = []
        self._pending_rows = 0

    def add(self, F: Floats, ids: Ids) -> None:
        """Offer rows F (k, m) with ids (k,)."""
        _refuse_unknown(F)
        rows = (F, ids) if len(ids) < PENDING_ROWS else _reduce(F, ids)
        self._pending.append(rows)
        self._pending_rows += len(rows[1])
        if self._pending_rows >= max(PENDING_ROWS, len(self._ids)):
            self._merge()

    @property
    def F(self) -> Floats:
        """(k, m) objectives of the front."""
        self._merge()
        return self._F

    @property
    def ids(self) -> Ids:
        """(k,) ids of the front, increasing."""
        self._merge()
        return self._ids

    def __len__(self) -> int:
        return len(self.ids)

    def _merge(self) -> None:
        if not self._pending:
            return
        parts = [(self._F, self._ids), *self._pending]
        self._F, self._ids = _reduce(
            np.concatenate([F for F, _ in parts]), np.concatenate([ids for _, ids in parts])
        )
        self._pending, self._pending_rows = [], 0


def _reduce(F: Floats, ids: Ids) -> tuple[Floats, Ids]:
    order = np.argsort(ids, kind="stable")
    F, ids = F[order], ids[order]
    keep = non_dominated(F)
    return F[keep], ids[keep]
