"""Peak and average: a deployment that is sized for the peak is paid around the clock.

One deployment serves at most c tokens a second. For a peak p and an average a, both in tokens a
second, n = ceil(p / c) of them are held, and each token is dearer by the capacity that waits:

    price at average load = busy price x n c / a

for chips whose price does not depend on the load (rented ones). Of owned ones, the electricity that
depends on the load is not drawn by what waits:

    price at average load = busy price x (1 - e + e u) / u,   u = a / (n c)

with e the share of the chip-hour's price that depends on the load. Without an average to size for,
only the ratio p / a is known, and n c = p: deployments of any size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dse.errors import InputError
from dse.specs.load import Demand


@dataclass(frozen=True, slots=True)
class Load:
    """What a demand makes of a busy price. `tokens_per_s` are total tokens (input and output) that
    one deployment serves, `deployments` how many are held (None where the demand is a ratio alone),
    `busy` the share of their capacity that the average uses."""

    demand: Demand
    tokens_per_s: float
    deployments: int | None
    chips: float | None
    busy: float
    usd_per_hour: float | None
    usd_per_million_input_tokens: float
    usd_per_million_output_tokens: float
    usd_per_million_total_tokens: float

    def as_json(self) -> dict:
        return {
            "average_tokens_per_s": self.demand.average_tokens_per_s,
            "peak_over_average": self.demand.peak_over_average,
            "deployment_tokens_per_s": _known(self.tokens_per_s),
            "deployments": self.deployments,
            "chips": self.chips,
            "busy_share": _known(self.busy),
            "usd_per_hour": _known(self.usd_per_hour),
            "usd_per_million_input_tokens": _known(self.usd_per_million_input_tokens),
            "usd_per_million_output_tokens": _known(self.usd_per_million_output_tokens),
            "usd_per_million_total_tokens": _known(self.usd_per_million_total_tokens),
        }


def at_load(
    demand: Demand,
    *,
    tokens_per_s: float,
    chips: float,
    usd_per_chip_hour: float,
    load_share: float,
    usd_per_million: tuple[float, float, float],
) -> Load:
    """The prices (input, output, total) of a deployment of `chips` at the average of a demand.

    `load_share` is e above. Raises InputError where one deployment serves nothing.
    """
    if not tokens_per_s > 0.0:
        raise InputError("this deployment serves no tokens", accepted="one that is feasible")
    deployments = None
    busy = 1.0 / demand.peak_over_average
    if demand.average_tokens_per_s is not None:
        peak = demand.average_tokens_per_s * demand.peak_over_average
        deployments = max(math.ceil(peak / tokens_per_s * (1.0 - 1e-12)), 1)
        busy = demand.average_tokens_per_s / (deployments * tokens_per_s)
    drawn = 1.0 - load_share + load_share * busy
    dearer = drawn / busy
    held = None if deployments is None else deployments * chips
    return Load(
        demand,
        tokens_per_s,
        deployments,
        held,
        busy,
        None if held is None else held * usd_per_chip_hour * drawn,
        *(usd * dearer for usd in usd_per_million),
    )


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
