"""The claims that people make about models and hardware, each as a number of this model.

A claim stands in a file of this package, in its `CLAIMS`, and has a line in CLAIMS here. `dse
claims` prints them, docs/claims.md is what `dse claims --markdown` writes.
"""

from __future__ import annotations

import importlib

from dse.accuracy.claims.frame import Claim
from dse.errors import InputError

# Number of the claim: the module of this package that holds it.
CLAIMS = {
    1: "roofline",
    2: "floor",
    3: "pipeline",
    4: "scale_up",
    5: "scale_up",
    6: "all_to_all",
    7: "jitter",
    8: "generations",
    9: "dram",
    10: "sram",
    11: "sram",
    12: "racks",
    13: "pools",
    14: "alignment",
    15: "joules",
    16: "training_memory",
    17: "training_backward",
    18: "training_utilisation",
    19: "training_input",
    20: "single_user",
    21: "use_cases",
    22: "experts",
    23: "training_sites",
    24: "joules",
    25: "bottleneck",
    26: "training_serving",
}


def claim(number: int) -> Claim:
    """Raises InputError for a number that is none."""
    if number not in CLAIMS:
        raise InputError(
            f"no claim {number}", field="N", accepted=f"one of {min(CLAIMS)} to {max(CLAIMS)}"
        )
    module = importlib.import_module(f"dse.accuracy.claims.{CLAIMS[number]}")
    return next(one for one in module.CLAIMS if one.number == number)
