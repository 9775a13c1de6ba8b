"""Price per token from chip-seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.record import record

Floats = NDArray[np.float64]


@record
class Cost:
    """Dollars per million tokens, (n,) each.

    Input tokens carry the prefill chip-seconds, output tokens the decode chip-seconds, total both
    over all tokens; `all_in` is the other common convention, everything on the output tokens.
    """

    usd_per_million_input_tokens: Floats
    usd_per_million_output_tokens: Floats
    usd_per_million_total_tokens: Floats
    usd_per_million_output_tokens_all_in: Floats


def cost(
    chip_seconds_prefill_per_request: Floats,
    chip_seconds_decode_per_request: Floats,
    prompt_tokens: Floats | float,
    output_tokens: Floats | float,
    usd_per_chip_hour: Floats | float,
) -> Cost:
    """Token prices of one request, (n,): chip-seconds x dollars per chip-hour / 3600 / tokens.

    Chip-seconds are chips held times seconds held, idle chips included, over the requests served
    in that time. `prompt_tokens` and `output_tokens` are per request and at least 1. A NaN price
    gives NaN costs.
    """
    usd_per_chip_second = usd_per_chip_hour / 3600.0
    prefill_usd = chip_seconds_prefill_per_request * usd_per_chip_second
    decode_usd = chip_seconds_decode_per_request * usd_per_chip_second
    both_usd = prefill_usd + decode_usd
    return Cost(
        usd_per_million_input_tokens=prefill_usd / prompt_tokens * 1e6,
        usd_per_million_output_tokens=decode_usd / output_tokens * 1e6,
        usd_per_million_total_tokens=both_usd / (prompt_tokens + output_tokens) * 1e6,
        usd_per_million_output_tokens_all_in=both_usd / output_tokens * 1e6,
    )
