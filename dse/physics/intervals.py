"""80% intervals: how far predictions of configurations that no fit had seen have been off.

`hardware/efficiency/serving/calibration.yaml` holds, for five classes of metrics and each kind of
kernel efficiency, the narrowest ends that hold 80% of measured / predicted on rows whose source was
left out (`dse.accuracy.fits`). A prediction x is taken to lie in [x low, x high] four
times out of five; of a stock launch both ends are taken to a power.

Chips whose kernel laws err together are kin. Two chips of one family were measured under the same
software, and laws that one lends the other are the same numbers: what is wrong with them is wrong
for both. Laws that were measured on no chip are those of a class, whose constants are medians of
other vendors' chips; of these the chips of one vendor are kin (assumed)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dse.schema.backend import KINDS, PREFILL_FIRST, Calibration
from dse.schema.catalog import Catalog
from dse.schema.chip import Chip
from dse.space.candidates import Floats

Spread = Mapping[str, NDArray[np.float64]]  # class of metrics -> (kinds, 2): low, high
LABEL = "fitted"
THROUGHPUT_METRICS = (
    "output_tokens_per_s",
    "output_tokens_per_s_per_chip",
    "usd_per_million_output_tokens",
    "usd_per_million_input_tokens",
    "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in",
)
ENERGY_METRICS = ("joules_per_output_token", "tokens_per_joule")
POWER_METRICS = ("watts_per_chip",)
# Energy has no rows that a fit could hold out: both are assumed, so that the published figures of
# docs/energy.md lie inside.
ASSUMED = {"energy": (0.5, 2.0), "power": (0.7, 1.4)}
CLASS: dict[str, str] = {
    metric: name
    for name, metrics in (
        ("step", ("tpot_s", "decode_step_s", "output_tokens_per_s_per_user")),
        ("first token", ("ttft_s",)),
        ("prefill", ("prefill_s", "e2e_s")),
        ("throughput", THROUGHPUT_METRICS),
        ("energy", ENERGY_METRICS),
        ("power", POWER_METRICS),
    )
    for metric in metrics
}
# Dense-equivalent parameters: dense models within 1.25 of the law's, sparse ones within a factor of
# 2 (DeepSeek-V2 is predicted level with a dense 175B and scored below Llama-3-70B).
EQUIVALENT_FACTOR = {"dense": 1.25, "sparse": 2.0}
INVERSE = frozenset(
    ("output_tokens_per_s_per_user", *(m for m in THROUGHPUT_METRICS if not m.startswith("output")))
)
# Where prompts come before decodes (SGLang), a first token depends on how many come together: its
# interval is twice as wide.
FIRST_TOKEN, PROMPTS_FIRST = "first token", "first token, prompts first"
PREFILL, STATIC = "prefill", "static"
CLASSES = (*dict.fromkeys(name for name in CLASS.values() if name not in ASSUMED), PROMPTS_FIRST)
# Without a calibration file nothing was held out: a factor of two either way, assumed.
UNKNOWN = (0.5, 2.0)


def spread_of(calibration: Calibration) -> Spread:
    """The file's table as arrays."""
    fitted = {
        name: np.array([calibration.spread.get(name, {}).get(kind, UNKNOWN) for kind in KINDS])
        for name in CLASSES
    }
    return fitted | {name: np.array([ends for _ in KINDS]) for name, ends in ASSUMED.items()}


def first_token_class(serving: str, scheduler: str) -> str:
    """The class of a first token: a static batch meets no server, so it is prefill alone."""
    if serving == STATIC:
        return PREFILL
    return PROMPTS_FIRST if scheduler == PREFILL_FIRST else FIRST_TOKEN


def widened(spread: Spread, power: float) -> Spread:
    """With the ends of fitted classes taken to a power."""
    return {
        name: ends if name in ASSUMED else np.power(ends, power) for name, ends in spread.items()
    }


def interval(
    metric: str, value: Floats, provenance: NDArray[np.intp], spread: Spread
) -> tuple[Floats, Floats]:
    """(low, high), (n,) each, of a metric in CLASS; `provenance` indexes KINDS. Of a time the ends
    are as measured; costs fall where throughput rises."""
    low, high = spread[CLASS[metric]][provenance].T
    if metric in INVERSE:
        low, high = 1.0 / high, 1.0 / low
    return value * low, value * high


# Correlation of the shared error of two chips of a kin, the part that one model's rows on a chip
# have in common. Measured on held-out serving rows (`python -m tools.fits.serving kin`): 0.49
# over 25 pairs of chips of one family that served one model, 0.13 over 44 pairs of unlike families,
# which is taken for 0.
COMMON = 0.5


def kin_of(catalog: Catalog, chip: Chip) -> str:
    """The family of the chip that its laws were measured on; where there is none, its vendor."""
    measured = catalog.chips.get(chip.efficiency.partition(":")[0])
    return measured.family if measured is not None else f"{chip.vendor}, unmeasured"


def eldest(names: Sequence[str]) -> NDArray[np.intp]:
    """(C,) where each name stands first."""
    return np.array([names.index(name) for name in names], dtype=np.intp)


def alike(kin: Floats, own: Floats) -> Floats:
    """Standard normals of chips that agree by COMMON where `kin` is the same; `own` is the chip's:

    A = sqrt(COMMON) K + sqrt(1 - COMMON) O
    """
    return math.sqrt(COMMON) * kin + math.sqrt(1.0 - COMMON) * own


def normals(
    seeds: Sequence[np.random.SeedSequence],
    count: int,
    configurations: Sequence[int],
    chip: NDArray[np.intp],
    kin: NDArray[np.intp],
) -> tuple[Floats, Floats, list[Floats]]:
    """Standard normals of C choices, each of its own seed: errors of chips and of prices, (count,
    C), and of configurations, (count, k) each. `chip` and `kin` (C,) are the first choices on the
    same chip, and of the same kin."""
    of_chip, of_price, of_kin, own = [], [], [], []
    for seed, k in zip(seeds, configurations, strict=True):
        rng = np.random.default_rng(seed)
        of_chip.append(rng.standard_normal(count))
        of_price.append(rng.standard_normal(count))
        own.append(rng.standard_normal((count, k)))
        of_kin.append(rng.standard_normal(count))
    by_chip, price = (np.stack(of, axis=1)[:, chip] for of in (of_chip, of_price))
    return alike(np.stack(of_kin, axis=1)[:, kin], by_chip), price, own
