"""What a token costs: by its chip-seconds and energy, at a load that varies, over a model's life.
Arrays are (n,).

Peak and average: a deployment that is sized for the peak is paid around the clock. One serves at
most c tokens a second. For a peak p and an average a, both in tokens a second, n = ceil(p / c) of
them are held, and each token is dearer by the capacity that waits:

    price at average load = busy price x n c / a

for chips whose price does not depend on the load (rented ones). Of owned ones, the electricity that
depends on the load is not drawn by what waits:

    price at average load = busy price x (1 - e + e u) / u,   u = a / (n c)

with e the share of the chip-hour's price that depends on the load. Where chips are had in servers
of s, the n deployments of k chips stand in whole ones, ceil(n / floor(s / k)) of them, or
ceil(n k / s) where a deployment is larger than a server, and u is over all of their chips. Without
an average to size for, only the ratio p / a is known, and n c = p: deployments of any size, and no
whole servers.

Lifetime: a model is trained once and served for every token.

    dollars = dollars of training + tokens served x dollars per token
    FLOP    = 6 N D + 2 N T        N active parameters, D training tokens, T tokens served

(Sardana et al. 2023, arXiv 2401.00448, equation 3 in FLOP, equation 6 in dollars; attention beside
2 N is left out as there). A model that costs less to serve pays beyond the tokens at which the two
straight lines in T cross.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.schema.traffic import Demand

if TYPE_CHECKING:
    from dse.physics.energy import Energy

Floats = NDArray[np.float64]


# Dollars per million tokens. Input tokens carry the prefill chip-seconds, output tokens the decode
# chip-seconds, total both over all tokens; `all_in` is the other common convention, everything on
# the output tokens.
PRICES = (
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in",
)


def cost(
    chip_seconds_prefill_per_request: Floats,
    chip_seconds_decode_per_request: Floats,
    prompt_tokens: Floats | float,
    output_tokens: Floats | float,
    usd_per_chip_hour: Floats | float,
) -> dict[str, Floats]:
    """PRICES of one request, (n,) each: chip-seconds x dollars per chip-hour / 3600 / tokens.

    Chip-seconds are chips held times seconds held, idle chips included, over the requests served
    in that time. `prompt_tokens` and `output_tokens` are per request and at least 1. A NaN price
    gives NaN costs.
    """
    usd_per_chip_second = usd_per_chip_hour / 3600.0
    prefill_usd = chip_seconds_prefill_per_request * usd_per_chip_second
    decode_usd = chip_seconds_decode_per_request * usd_per_chip_second
    both_usd = prefill_usd + decode_usd
    return {
        "usd_per_million_input_tokens": prefill_usd / prompt_tokens * 1e6,
        "usd_per_million_output_tokens": decode_usd / output_tokens * 1e6,
        "usd_per_million_total_tokens": both_usd / (prompt_tokens + output_tokens) * 1e6,
        "usd_per_million_output_tokens_all_in": both_usd / output_tokens * 1e6,
    }


# What `energy_metrics` gives, in the order of a table.
COUNTED = (
    "joules_per_output_token",
    "tokens_per_joule",
    "watts_per_chip",
    "energy_data_movement_share",
)


@np.errstate(divide="ignore", invalid="ignore")
def energy_metrics(energy: Energy, output_tokens: Floats) -> dict[str, Floats]:
    """Energy of a request of `output_tokens` as metrics, (n,) each; NaN where the chip has no
    power figure.

    `joules_per_output_token`: of all chips held, prefill and idle time included, and of the network
    between them. `tokens_per_joule`: its inverse. `watts_per_chip`: a chip's own mean power while
    it serves. `energy_data_movement_share`: of all these joules, those that move data inside the
    chip, to its memory, over links and over the network.
    """
    levels = energy.of_phases
    moved = levels.movement
    joules = levels.arithmetic + moved + energy.idle
    return {
        "joules_per_output_token": joules / output_tokens,
        "tokens_per_joule": output_tokens / joules,
        "watts_per_chip": energy.watts,
        "energy_data_movement_share": moved / joules,
    }


# Rounding in the last place buys no deployment more.
_EXACT = 1.0 - 1e-12
Numbers = Floats | float


@record
class Load:
    """What a demand makes of busy prices, (n,) each. `deployment_tokens_per_s` are total tokens
    (input and output) that one deployment serves, `deployments` how many are held (None where the
    demand is a ratio alone), `chips` those that are paid, `busy_share` that of the deployments'
    capacity which the average uses, `dearer` how many times the busy price a token costs. NaN where
    a deployment serves nothing, or has no price."""

    average_tokens_per_s: float | None
    peak_over_average: float
    deployment_tokens_per_s: Numbers
    deployments: Numbers | None
    chips: Numbers | None
    busy_share: Numbers
    dearer: Numbers
    usd_per_hour: Numbers | None
    usd_per_million_input_tokens: Numbers
    usd_per_million_output_tokens: Numbers
    usd_per_million_total_tokens: Numbers

    def as_json(self, row: int = 0) -> dict[str, Any]:
        """Of candidate `row`; null where a number is not known."""
        names = [one.name for one in fields(self) if one.name != "dearer"]
        found = {name: _at(getattr(self, name), row) for name in names}
        held = found["deployments"]
        return found | {"deployments": None if held is None else round(held)}


def at_load(
    demand: Demand,
    *,
    tokens_per_s: Numbers,
    chips: Numbers,
    usd_per_chip_hour: Numbers,
    load_share: Numbers,
    usd_per_million: tuple[Numbers, Numbers, Numbers],
    server: Numbers = 1.0,
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
        average,
        demand.peak_over_average,
        can,
        held,
        in_all,
        busy,
        dearer,
        None if in_all is None else in_all * usd_per_chip_hour * drawn,
        *(usd * dearer for usd in usd_per_million),
    )


def load_at(
    demand: Demand,
    values: Mapping[str, Floats],
    load_share: Numbers,
    server: Numbers = 1.0,
    slower: Numbers = 1.0,
) -> Load:
    """`at_load` of deployments by their busy metrics, (n,) each, at their rate over `slower`."""
    usd, chips = values["chip_usd_per_hour"], values["chips"]
    first, second, total = (values[name] for name in PRICES[:3])
    with np.errstate(divide="ignore", invalid="ignore"):
        return at_load(
            demand,
            # Input and output tokens a second follow from the busy price.
            tokens_per_s=chips * usd / 3600.0 / (total / 1e6) / slower,
            chips=chips,
            usd_per_chip_hour=usd,
            load_share=load_share,
            server=server,
            usd_per_million=(first * slower, second * slower, total * slower),
        )


def _whole(held: Numbers, chips: Numbers, server: Numbers) -> Numbers:
    """(n,) chips of the whole servers that hold `held` deployments of `chips`."""
    each = np.floor(server / chips * (1.0 + 1e-12))
    with np.errstate(divide="ignore"):
        servers = np.where(each >= 1.0, np.ceil(held / each), np.ceil(held * chips / server))
    return servers * server


def _at(value: Numbers | None, row: int) -> float | None:
    if value is None:
        return None
    values = np.atleast_1d(value)
    found = float(values[row if len(values) > 1 else 0])
    return found if math.isfinite(found) else None


TRAINING_FLOP_PER_PARAMETER, SERVING_FLOP_PER_PARAMETER = 6.0, 2.0
BISECTIONS = 100
SIGNIFICANT = 9


def lifetime(
    active_parameters: Floats,
    training_tokens: Floats,
    training_usd: Floats,
    training_chip_hours: Floats,
    served_tokens: Floats | float,
    usd_per_million: Floats,
    chip_s_per_token: Floats,
) -> dict[str, Floats]:
    """Of models that serve `served_tokens` at `usd_per_million` tokens and `chip_s_per_token`, (n,)
    each: dollars in all and the share of serving, FLOP and chip-hours of both halves. NaN where a
    price is not known."""
    serving_usd = served_tokens * usd_per_million / 1e6
    usd = training_usd + serving_usd
    training_flops = TRAINING_FLOP_PER_PARAMETER * active_parameters * training_tokens
    serving_flops = SERVING_FLOP_PER_PARAMETER * active_parameters * served_tokens
    return {
        "lifetime_usd": usd,
        "lifetime_serving_share": serving_usd / usd,
        "lifetime_flops": training_flops + serving_flops,
        "lifetime_chip_hours": training_chip_hours + served_tokens * chip_s_per_token / 3600.0,
    }


def break_even_tokens(
    training_usd: Floats,
    usd_per_million: Floats,
    other_training_usd: Floats,
    other_usd_per_million: Floats,
) -> Floats:
    """(n,) served tokens beyond which the first model, cheaper to serve, costs less than the other;
    0 where it costs less from the start, infinite where it never does."""
    saved = (other_usd_per_million - usd_per_million) / 1e6
    more = training_usd - other_training_usd
    pays = np.where(more > 0.0, more / np.where(saved > 0.0, saved, 1.0), 0.0)
    never = (saved < 0.0) | ((saved == 0.0) & (more > 0.0))
    return np.where(never, np.inf, pays)


def tokens_over_years(first_year: float, years: float, growth: float) -> float:
    """Tokens served in `years` (a part of a year counts as its part) where each year serves
    1 + `growth` times those of the year before."""
    whole = int(years)
    served = sum(first_year * (1.0 + growth) ** k for k in range(whole))
    return served + (years - whole) * first_year * (1.0 + growth) ** whole


@record
class LossLaw:
    """Loss = floor + a / N^alpha + b / D^beta."""

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def tokens(self, parameters: Floats, loss: Floats | float) -> Floats:
        """(n,) tokens at which a model reaches the loss; infinite where it never does."""
        left = loss - self.floor - self.a * parameters**-self.alpha
        reached = (self.b / np.where(left > 0.0, left, 1.0)) ** (1.0 / self.beta)
        return np.where(left > 0.0, reached, np.inf)

    def elasticity_ratio(self, parameters: Floats, tokens: Floats) -> Floats:
        """(n,) eps_N / eps_D: how much more the loss falls for a percent more parameters than for
        a percent more tokens."""
        of_parameters = self.alpha * self.a * parameters**-self.alpha
        return of_parameters * tokens**self.beta / (self.beta * self.b)


def cheapest_shape(law: LossLaw, loss: Floats, served_tokens: Floats) -> tuple[Floats, Floats]:
    """(n,) parameters and training tokens that reach `loss` with the least FLOP of 6 N D + 2 N T.

    Where the loss is held, the least cost lies where eps_N / eps_D = 1 + T / (3 D) (the first-order
    condition of Sardana et al. 2023, equation 3): 1 is the compute-optimal model of Hoffmann et al.
    2022, more is a smaller one that trains longer. Found by bisection of ln N."""
    low = np.log((law.a / (loss - law.floor)) ** (1.0 / law.alpha)) + 1e-9
    high = low + 60.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        parameters = np.exp(middle)
        tokens = law.tokens(parameters, loss)
        # eps_N / eps_D falls as N grows along the line of equal loss, and T / D rises.
        smaller = law.elasticity_ratio(parameters, tokens) < 1.0 + served_tokens / (3.0 * tokens)
        low, high = np.where(smaller, low, middle), np.where(smaller, middle, high)
    parameters = np.exp(0.5 * (low + high))
    return parameters, law.tokens(parameters, loss)


def lower_envelope(training_usd: Floats, usd_per_million: Floats) -> tuple[list[int], list[float]]:
    """Of n models that would all do: which costs least, as served tokens grow from 0. The rows in
    that order, and the tokens from which each is the cheapest (the first from 0)."""
    # Dollars that differ by rounding alone are the same.
    digits = SIGNIFICANT - 1 - np.floor(np.log10(np.maximum(training_usd.max(), 1e-300)))
    training_usd = np.round(training_usd * 10.0**digits) / 10.0**digits
    first = np.lexsort((usd_per_million, training_usd))[0]
    rows, starts = [int(first)], [0.0]
    while True:
        here = rows[-1]
        cheaper = np.flatnonzero(usd_per_million < usd_per_million[here])
        if not len(cheaper):
            return rows, starts
        # From the line that is lowest now, the next is the one that it meets first.
        crossing = break_even_tokens(
            training_usd[cheaper],
            usd_per_million[cheaper],
            np.full(len(cheaper), training_usd[here]),
            np.full(len(cheaper), usd_per_million[here]),
        )
        k = np.lexsort((usd_per_million[cheaper], crossing))[0]
        rows.append(int(cheaper[k]))
        starts.append(float(crossing[k]))
