"""What a model costs over its whole life: trained once, served for every token. Arrays are (n,).

    dollars = dollars of training + tokens served x dollars per token
    FLOP    = 6 N D + 2 N T        N active parameters, D training tokens, T tokens served

(Sardana et al. 2023, arXiv 2401.00448, equation 3 in FLOP, equation 6 in dollars; attention beside
2 N is left out as there). A model that costs less to serve pays beyond the tokens at which the two
straight lines in T cross.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.record import record

Floats = NDArray[np.float64]

TRAINING_FLOP_PER_PARAMETER, SERVING_FLOP_PER_PARAMETER = 6.0, 2.0
BISECTIONS = 100
SIGNIFICANT = 9


@record
class Lifetime:
    """(n,) each: dollars in all and those of serving, FLOP and chip-hours of both halves. NaN where
    a price is not known."""

    usd: Floats
    serving_usd: Floats
    training_flops: Floats
    serving_flops: Floats
    training_chip_hours: Floats
    serving_chip_hours: Floats

    @property
    def serving_share(self) -> Floats:
        """(n,) of the dollars."""
        return self.serving_usd / self.usd

    @property
    def flops(self) -> Floats:
        return self.training_flops + self.serving_flops


def lifetime(
    active_parameters: Floats,
    training_tokens: Floats,
    training_usd: Floats,
    training_chip_hours: Floats,
    served_tokens: Floats | float,
    usd_per_million: Floats,
    chip_s_per_token: Floats,
) -> Lifetime:
    """Of models that serve `served_tokens` at `usd_per_million` tokens and `chip_s_per_token`."""
    serving_usd = served_tokens * usd_per_million / 1e6
    return Lifetime(
        usd=training_usd + serving_usd,
        serving_usd=serving_usd,
        training_flops=TRAINING_FLOP_PER_PARAMETER * active_parameters * training_tokens,
        serving_flops=SERVING_FLOP_PER_PARAMETER * active_parameters * served_tokens,
        training_chip_hours=training_chip_hours,
        serving_chip_hours=served_tokens * chip_s_per_token / 3600.0,
    )


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
