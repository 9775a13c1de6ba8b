"""Energy of a token from the energy of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dse.physics.energy import Energy

Floats = NDArray[np.float64]


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
