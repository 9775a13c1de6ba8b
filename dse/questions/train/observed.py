"""From an MFU that was observed back to its likely causes.

The best plan of the run reaches more. Each cause is run alone, the rest still the best that is
left: what it takes from the best plan's MFU is how much of the gap it explains, by logarithms, so
that causes which act one after the other add up. Two causes have a size that explains all of it:
what the input delivers, and how late ranks are. Mending a cause is taken to give back what it takes
alone: hours x (1 - MFU with it / MFU without).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dse.answer.numbers import share
from dse.catalog import Catalog
from dse.errors import Doubt, InputError
from dse.questions.train.answer import Training, train
from dse.schema.catalog import with_own_chips
from dse.schema.derive import derive
from dse.schema.plausible import unusual

SMALLER = (4.0, 16.0)
SLOWER = 4.0  # a network at a quarter of its rate
MOST_LATE = 10.0
STEPS = 12
USUAL = (0.01, 1.0)  # MFU that anybody would ask about


def observed(found: Training, catalog: Catalog, mfu: float) -> dict[str, Any]:
    """`mfu`, `best_mfu`, `days`, `usd`, and `causes`: each with the `mfu` that it alone leaves, the
    share of the gap that it `explains`, and the days and dollars that mending it `saves`; the most
    first. Raises InputError where the run does not fit or its best plan reaches less than `mfu`."""
    if not found.feasible:
        raise InputError("the run does not fit", field="--observed-mfu", accepted="a run that fits")
    document = found.as_json()
    best = document["mfu"]
    if not 0.0 < mfu < best:
        accepted = f"above 0 and below the {best:.1%} of the best plan"
        raise InputError(f"read {mfu:.1%}", field="--observed-mfu", accepted=accepted)
    if said := unusual(mfu, USUAL, share, 100.0):
        warnings.warn(f"--observed-mfu: read {share(mfu)}{said}", Doubt, stacklevel=2)
    slower = best / mfu
    whole = {name: document[name] and document[name] * slower for name in ("days", "usd")}
    causes = [
        {
            "cause": cause,
            "mfu": alone,
            "explains": min(1.0, math.log(best / alone) / math.log(slower)),
            "saves_days": whole["days"] * (1.0 - alone / best),
            "saves_usd": whole["usd"] and whole["usd"] * (1.0 - alone / best),
        }
        for cause, alone in _alone(found, catalog, best, mfu)
        if alone < best
    ]
    causes.sort(key=lambda row: -row["explains"])
    return {"mfu": mfu, "best_mfu": best, **whole, "causes": causes}


def _alone(found: Training, catalog: Catalog, best: float, mfu: float) -> list[tuple[str, float]]:
    """Each cause and the MFU that it alone leaves; those that the run cannot have are left out."""

    def reached(source: Catalog = catalog, **changed: Any) -> float | None:
        try:
            terms = replace(found.terms, **changed)
            one = train(source, found.model, terms, found.tokens, found.price_basis)
        except InputError:
            return None
        return one.mfu(0) if one.feasible else None

    rate = found.as_json()["tokens_per_s"]
    needed = rate * mfu / best
    causes: dict[str, float | None] = {
        f"the input delivers {needed / 1e6:.3g}M tokens/s of {rate / 1e6:.3g}M": mfu
    }
    late = _late(lambda straggler: reached(straggler=straggler), mfu)
    if late is not None:
        causes[f"ranks are late by {late:.0%} of a step in the mean"] = mfu
    batch = float(found.plans.batch.global_batch_tokens[0])
    for part in SMALLER:
        causes[f"batches of {batch / part / 1e6:.3g}M tokens"] = reached(
            global_batch_tokens=int(batch / part)
        )
    causes["all layers are recomputed"] = reached(recompute="full")
    causes["weights are sharded over all chips (ZeRO 3)"] = reached(zero=3)
    for name, degrees in _careless(found, catalog).items():
        causes[name] = reached(degrees={**found.terms.degrees, **degrees})
    slow = _slow_network(catalog, found.terms.chip)
    if slow is not None:
        causes[f"the network gives 1/{SLOWER:g} of its rate"] = reached(slow[0], chip=slow[1])
    return [(cause, value) for cause, value in causes.items() if value is not None]


def _careless(found: Training, catalog: Catalog) -> Mapping[str, dict[str, int]]:
    """Degrees that no one should choose: by words."""
    level = catalog.systems[catalog.chip(found.terms.chip).system].levels[0]
    stages = 2 ** int(math.log2(max(1, min(32, sum(b.count for b in found.model.blocks) // 2))))
    deep = {"pipeline_parallel": stages, "virtual_stages": 1}
    careless = {f"{stages} stages without virtual ones": deep}
    if level.size and math.isfinite(level.size):
        wide = 2 * int(level.size)
        careless[f"tensor parallelism over servers ({wide})"] = {"tensor_parallel": wide}
    return careless


def _slow_network(catalog: Catalog, chip: str) -> tuple[Catalog, str] | None:
    try:
        own = derive(catalog, chip, [f"network_bandwidth={1.0 / SLOWER}x"])
    except InputError:
        return None
    return with_own_chips(catalog, [own]), own.chip.id


def _late(reached: Callable[[float], float | None], mfu: float) -> float | None:
    """The mean delay of a rank, as a share of a step, that leaves `mfu`, by bisection."""
    low, high = 0.0, MOST_LATE
    if (reached(high) or 0.0) > mfu:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if (reached(middle) or 0.0) > mfu else (low, middle)
    return (low + high) / 2.0


def written(text: str) -> float:
    """`11%` or `0.11`. Raises InputError for anything else."""
    number, percent, rest = text.strip().partition("%")
    try:
        if not rest:
            return float(number) / (100.0 if percent else 1.0)
    except ValueError:
        pass
    raise InputError(f"read {text!r}", field="--observed-mfu", accepted="an MFU such as 11%")
