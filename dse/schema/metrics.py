"""The metrics that objectives and constraints may name, and how a limit on one is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from dse import units
from dse.data import rows_beside
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import unknown
from dse.schema.plausible import OF_METRIC, unusual
from dse.vocabulary import Quantity, quantities

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Metric = Quantity

# Every metric, and those that objectives and constraints may name.
EVERY: Mapping[str, Metric] = {name: row for name, row in quantities().items() if row.dimension}
METRICS: Mapping[str, Metric] = {name: row for name, row in EVERY.items() if row.searched}

# Units that only metrics have: what may follow the number, and its factor.
_UNITS: dict[str, dict[str, float]] = {}
for _row in rows_beside(__file__, "metric_units.csv"):
    _UNITS.setdefault(_row["dimension"], {})[_row["unit"]] = float(_row["factor"])
# Sizes of models are counts too: "70B" is read as it is for tokens.
_READ_AS = {"count": "tokens"}
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CONSTRAINT = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=)\s*(.+?)\s*")


class Measured(Protocol):
    """Metrics of n candidates (`dse.problem.evaluate`): `values[metric]` (n,) in SI; `members` are
    those of each workload of a mix."""

    @property
    def values(self) -> Mapping[str, NDArray[np.float64]]: ...

    @property
    def members(self) -> Sequence[Member]: ...


class Member(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def metrics(self) -> Measured: ...


@record
class Limit:
    """`metric operator limit`, the limit in SI; `text` is what a person reads. `workload` names the
    one of several that it limits; empty: the worst."""

    metric: str
    operator: Literal["<=", ">="]
    limit: float
    text: str
    workload: str = ""

    @property
    def unusual(self) -> str:
        """What is said of a limit far from what is usual of its metric; nothing of others."""
        if self.metric not in OF_METRIC:
            return ""
        dimension = METRICS[self.metric].dimension
        said = unusual(self.limit, OF_METRIC[self.metric], lambda one: units.format(one, dimension))
        return said and f"read {self.text!r}{said}"

    @property
    def sign(self) -> float:
        """1 where the metric is at most the limit, -1 where it is at least that."""
        return 1.0 if self.operator == "<=" else -1.0

    def used(self, metrics: Measured) -> NDArray[np.float64]:
        """(n,) the metric that is limited."""
        of = (member.metrics for member in metrics.members if member.name == self.workload)
        return next(of, metrics).values[self.metric]

    def amount(self, metrics: Measured) -> NDArray[np.float64]:
        """(n,) used / limit - 1, positive where broken; an unknown value breaks it."""
        amount = self.sign * (self.used(metrics) - self.limit) / (abs(self.limit) or 1.0)
        amount[amount != amount] = 1.0  # NaN  # noqa: PLR0124
        return amount


def metric(name: object) -> Metric:
    """Raises InputError with the nearest name for a metric that does not exist."""
    if isinstance(name, str) and name in METRICS:
        return METRICS[name]
    raise unknown("unknown metric", name, METRICS)


def parse_constraint(text: object) -> Limit:
    """`ttft_s <= 2 s` as a limit. Raises InputError: the form, the metric, the unit, a limit
    of zero (a constraint is scaled by its limit)."""
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"read {text!r}: not `metric <= limit` or `metric >= limit`", accepted="ttft_s <= 2 s"
        )
    name, operator, limit = match[1], match[2], match[3]
    value = parse_limit(limit, metric(name).dimension)
    if value <= 0.0:
        raise InputError(f"read {text!r}: the limit is zero", accepted="a limit above zero")
    written = f"{name} {operator} {limit}"
    return Limit(name, "<=" if operator == "<=" else ">=", value, written)


def parse_limit(text: str, dimension: str) -> float:
    """SI value of a limit on a metric of `dimension`. Raises InputError."""
    if dimension not in _UNITS:
        return units.parse(text, _READ_AS.get(dimension, dimension))
    known = _UNITS[dimension]
    number = _NUMBER.match(text)
    unit = text[number.end() :].strip() if number else text
    value = float(number[0]) if number else float("inf")
    if value == float("inf") or unit not in known:
        accepted = f"a finite number with {' or '.join(u or 'no unit' for u in known)}"
        raise InputError(f"read {text!r}: not a limit in {dimension}", accepted=accepted)
    return value * known[unit]
