"""Peak and average: a deployment that is sized for the peak is paid around the clock.

One deployment serves at most c tokens a second. For a peak p and an average a, both in tokens a
second, n = ceil(p / c) of them are held, and each token is dearer by the capacity that waits:

    price at average load = busy price x n c / a

for chips whose price does not depend on the load (rented ones). Of owned ones, the electricity that
depends on the load is not drawn by what waits:

    price at average load = busy price x (1 - e + e u) / u,   u = a / (n c)

with e the share of the chip-hour's price that depends on the load. Where chips are had in servers
of s, the n deployments of k chips stand in whole ones, ceil(n / floor(s / k)) of them, or
ceil(n k / s) where a deployment is larger than a server, and u is over all of their chips. Without
an average to size for, only the ratio p / a is known, and n c = p: deployments of any size, and no
whole servers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.schema.load import Demand

# Rounding in the last place buys no deployment more.
_EXACT = 1.0 - 1e-12
Floats = NDArray[np.float64] | float


@record
class Load:
    """What a demand makes of busy prices, (n,) each. `tokens_per_s` are total tokens (input and
    output) that one deployment serves, `deployments` how many are held (None where the demand is a
    ratio alone), `chips` those that are paid, `busy` the share of the deployments' capacity that
    the average uses, `dearer` how many times the busy price a token costs. NaN where a deployment
    serves nothing, or has no price."""

    demand: Demand
    tokens_per_s: Floats
    deployments: Floats | None
    chips: Floats | None
    busy: Floats
    dearer: Floats
    usd_per_hour: Floats | None
    usd_per_million_input_tokens: Floats
    usd_per_million_output_tokens: Floats
    usd_per_million_total_tokens: Floats

    def as_json(self, row: int = 0) -> dict[str, Any]:
        """Of candidate `row`; null where a number is not known."""
        held = _at(self.deployments, row)
        return {
            "average_tokens_per_s": self.demand.average_tokens_per_s,
            "peak_over_average": self.demand.peak_over_average,
            "deployment_tokens_per_s": _at(self.tokens_per_s, row),
            "deployments": None if held is None else round(held),
            "chips": _at(self.chips, row),
            "busy_share": _at(self.busy, row),
            "usd_per_hour": _at(self.usd_per_hour, row),
            "usd_per_million_input_tokens": _at(self.usd_per_million_input_tokens, row),
            "usd_per_million_output_tokens": _at(self.usd_per_million_output_tokens, row),
            "usd_per_million_total_tokens": _at(self.usd_per_million_total_tokens, row),
        }


def at_load(
    demand: Demand,
    *,
    tokens_per_s: Floats,
    chips: Floats,
    usd_per_chip_hour: Floats,
    load_share: Floats,
    usd_per_million: tuple[Floats, Floats, Floats],
    server: Floats = 1.0,
) -> Load:
    """The prices (input, output, total) of deployments of `chips` at the average of a demand, (n,)
    or one number each; `load_share` is e above, `server` the fewest chips that are had at once."""
    can = np.where(np.asarray(tokens_per_s) > 0.0, tokens_per_s, np.nan)
    average, held = demand.average_tokens_per_s, None
    busy = 1.0 / demand.peak_over_average + 0.0 * can
    if average is not None:
        peak = average * demand.peak_over_average
        held = np.maximum(np.ceil(peak / can * _EXACT), 1.0)
        busy = average / (held * can)
    in_all = None if held is None else _whole(held, chips, server)
    # Of all chips that are paid, those beside the deployments do nothing.
    used = busy if in_all is None or held is None else busy * (held * chips / in_all)
    drawn = 1.0 - load_share + load_share * used
    dearer = drawn / used
    return Load(
        demand,
        can,
        held,
        in_all,
        busy,
        dearer,
        None if in_all is None else in_all * usd_per_chip_hour * drawn,
        *(usd * dearer for usd in usd_per_million),
    )


def _whole(held: Floats, chips: Floats, server: Floats) -> Floats:
    """(n,) chips of the whole servers that hold `held` deployments of `chips`."""
    each = np.floor(server / chips * (1.0 + 1e-12))
    with np.errstate(divide="ignore"):
        servers = np.where(each >= 1.0, np.ceil(held / each), np.ceil(held * chips / server))
    return servers * server


def total_tokens_per_s(
    chips: Floats, usd_per_chip_hour: Floats, usd_per_million_total_tokens: Floats
) -> Floats:
    """(n,) input and output tokens a second that a deployment serves, from its busy price."""
    return chips * usd_per_chip_hour / 3600.0 / (usd_per_million_total_tokens / 1e6)


def _at(value: Floats | None, row: int) -> float | None:
    if value is None:
        return None
    found = float(np.atleast_1d(value)[row])
    return found if math.isfinite(found) else None
