"""The shapes of a case on their best deployments, with the figures that explain quality and price.

Rows 0 to k - 1 are the shapes of the space, row k is the expert's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.problem.objective import PhysicsProblem
from dse.problem.shape_table import Adapt, Served, metrics_of
from dse.quality import depth_factor
from dse.schema.dtypes import DTYPES
from dse.space.candidates import Floats

# Metrics that stand in a table as they are.
METRICS = (
    "predicted_loss",
    "dense_equivalent_parameters",
    "ttft_s",
    "tpot_s",
    "total_parameters",
    "active_parameters",
    "kv_bytes_per_token",
    "running_requests",
    "chips",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "memory_weights_bytes_per_chip",
    "memory_capacity_bytes_per_chip",
)
DEGREES = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "data_parallel": "dp",
    "expert_parallel": "ep",
    "replicas": "x",
}


@dataclass(frozen=True, slots=True)
class Table:
    """`price` (n,), inf where a shape cannot be served within the limits; `columns` (n,) each, and
    `values` of all axes. Columns mean nothing where the price is inf."""

    price: Floats
    columns: Mapping[str, Floats]
    values: Mapping[str, NDArray]
    shape_axes: tuple[str, ...]

    @property
    def loss(self) -> Floats:
        return self.columns["predicted_loss"]

    @property
    def equivalent(self) -> Floats:
        return self.columns["dense_equivalent_parameters"]

    @property
    def served(self) -> NDArray[np.bool_]:
        return np.isfinite(self.price)

    def row(self, i: int) -> dict[str, Any]:
        """One row as JSON values."""
        return {
            "shape": {name: _plain(self.values[name][i]) for name in self.shape_axes},
            "deployment": self.deployment(i),
            "price": float(self.price[i]),
            **{name: _known(column[i]) for name, column in self.columns.items()},
        }

    def deployment(self, i: int) -> dict[str, Any]:
        """Degrees above 1, formats and requests in flight."""
        degrees = {
            name: int(self.values[name][i])
            for name in DEGREES
            if name in self.values and self.values[name][i] > 1.0
        }
        return degrees | {
            "weight_dtype": DTYPES[int(self.values["weight_dtype"][i])],
            "kv_dtype": DTYPES[int(self.values["kv_dtype"][i])],
            "concurrency": int(self.values["concurrency"][i]),
        }


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def tabled(
    problem: PhysicsProblem, served: Served, adapt: Adapt, shape_axes: tuple[str, ...]
) -> Table:
    """The columns of served shapes."""
    metrics = metrics_of(problem, served.values, adapt)
    columns = {name: metrics.values[name] for name in METRICS}
    columns |= quality_terms(served.values, metrics.parameters.active_non_embedding)
    columns["efficiency_leverage"] = metrics.quality.efficiency_leverage
    return Table(served.price, columns, served.values, shape_axes)


def quality_terms(values: Mapping[str, NDArray], active: Floats) -> dict[str, Floats]:
    """What the default law makes a loss of, but for the leverage; of a dense shape, an activation
    ratio of 1 and a granularity of 2."""
    zeros = np.zeros(len(active))
    experts = values.get("num_experts", zeros)
    sparse, shared = experts > 0.0, values.get("num_shared_experts", zeros)
    used = values.get("num_experts_per_tok", zeros) + shared
    width = np.where(sparse, values.get("moe_intermediate_size", zeros), values["hidden_size"])
    return {
        "active_non_embedding": active,
        "activation_ratio": np.where(sparse, used, 1.0) / np.where(sparse, experts + shared, 1.0),
        "granularity": 2.0 * values["hidden_size"] / width,
        "depth_factor": depth_factor(values["hidden_size"], values["num_hidden_layers"], active),
    }


def joined(one: Served, other: Served) -> Served:
    """The rows of both, one after the other."""
    return Served(
        np.concatenate([one.price, other.price]),
        {name: np.concatenate([v, other.values[name]]) for name, v in one.values.items()},
    )
