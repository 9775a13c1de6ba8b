"""The claims that people make about models and hardware, each as a number of this model.

A claim stands in a file of this package, in its `CLAIMS`, and has a line in CLAIMS here. `dse
claims` prints them, docs/claims.md is what `dse claims --markdown` writes.
"""

from __future__ import annotations

import importlib

from dse.errors import InputError
from dse.validation.claims.frame import Claim

# Number of the claim: the module of this package that holds it.
CLAIMS = {
    1: "roofline",
    2: "floor",
    3: "pipeline",
    4: "waiting",
    5: "waiting",
    6: "waiting",
    7: "waiting",
    8: "generations",
    9: "waiting",
    10: "waiting",
    11: "waiting",
    12: "waiting",
    13: "pools",
    14: "alignment",
    15: "waiting",
    16: "training",
    17: "training",
    18: "training",
    19: "training",
    20: "single_user",
    21: "use_cases",
    22: "experts",
    23: "training",
    24: "waiting",
    25: "bottleneck",
    26: "training",
}


def claim(number: int) -> Claim:
    """Raises InputError for a number that is none."""
    if number not in CLAIMS:
        raise InputError(
            f"no claim {number}", field="N", accepted=f"one of {min(CLAIMS)} to {max(CLAIMS)}"
        )
    module = importlib.import_module(f"dse.validation.claims.{CLAIMS[number]}")
    return next(one for one in module.CLAIMS if one.number == number)
