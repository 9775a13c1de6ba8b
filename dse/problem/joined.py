"""Candidates that different software serves: each part under its own, joined again row by row.

Row i of the joined metrics is, bit for bit, that of its part alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.physics.serving import Detail
from dse.problem.evaluate import Metrics, Part
from dse.problem.models import Models
from dse.schema.backend import Backend
from dse.space.candidates import CandidateBatch, Floats


def by_backend(
    batch: CandidateBatch,
    backends: Sequence[Backend],
    evaluate: Callable[[CandidateBatch, Backend], Metrics],
    models: Models,
) -> Metrics:
    """The metrics of n candidates, each under the backend of its code; `models` are those of all
    n."""
    assert batch.backend is not None
    parts = []
    for code in np.unique(batch.backend):
        rows = np.flatnonzero(batch.backend == code)
        found = evaluate(replace(batch[rows], backend=None), backends[code])
        parts.append(Part(rows, found))
    if len(parts) == 1:
        return parts[0].metrics
    return _joined(len(batch), tuple(parts), models)


def _joined(n: int, parts: tuple[Part, ...], models: Models) -> Metrics:
    first = parts[0].metrics
    performances = [part.metrics.performance for part in parts]

    def whole(every: Sequence[Any]) -> dict[str, NDArray]:
        """The arrays of a record that each part has, joined."""
        columns = {
            field.name: [getattr(one, field.name) for one in every] for field in fields(every[0])
        }
        return {
            name: _scatter(n, parts, column)
            for name, column in columns.items()
            if isinstance(column[0], np.ndarray)
        }

    def detail() -> Detail:
        every = [one.detail for one in performances]
        return replace(every[0], **whole(every))

    return replace(
        first,
        values=_Scattered(n, parts),
        violations={
            rule: _scatter(n, parts, [part.metrics.violations[rule] for part in parts])
            for rule in first.violations
        },
        models=models,
        performance=replace(first.performance, **whole(performances), look=cache(detail)),
        provenance=_scatter(n, parts, [part.metrics.provenance for part in parts]),
        members=(),
        parts=parts,
    )


def _scatter(n: int, parts: Sequence[Part], columns: Sequence[NDArray]) -> NDArray:
    """(n,) each part's column at its rows."""
    found = np.empty(n, dtype=columns[0].dtype)
    for part, column in zip(parts, columns, strict=True):
        found[part.rows] = column
    return found


class _Scattered(Mapping[str, Floats]):
    """The values of all parts by name, joined when they are first asked for."""

    __slots__ = ("_known", "_n", "_parts")

    def __init__(self, n: int, parts: tuple[Part, ...]) -> None:
        self._n, self._parts = n, parts
        self._known: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        if name not in self._known:
            columns = [part.metrics.values[name] for part in self._parts]
            self._known[name] = _scatter(self._n, self._parts, columns)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts[0].metrics.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts[0].metrics.values)

    def __len__(self) -> int:
        return len(self._parts[0].metrics.values)
