"""Twice a figure of a chip: how much shorter training, a token of one user, and a served token
under load become, and what that is worth.

The change is t(2 x) / t(x) - 1, the elasticity ln(t(2 x) / t(x)) / ln 2, of a time t in chip-hours;
of power it is taken from half of the rated power up to it. Plans of training are searched again,
serving keeps its chips; loads are searched again within the limit of latency. Twice the figure pays
for a price per chip-hour of t(x) / t(2 x) times today's: what is above today's is its shadow price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse import units
from dse.catalog import Catalog
from dse.errors import InputError, NothingFeasible
from dse.questions.estimate.ask import estimate
from dse.questions.train.ask import train
from dse.record import record
from dse.schema.catalog import with_own_chips
from dse.schema.derive import derive
from dse.schema.model_catalog import load_model

# By figure, its name in `dse.schema.derive`; power is a cap.
FIGURES = {
    "FLOP/s": "flops",
    "memory bandwidth": "bandwidth",
    "memory capacity": "capacity",
    "link bandwidth": "link_bandwidth",
    "network bandwidth": "network_bandwidth",
    "power": "",
}
TRAINING, ONE_USER, LOAD = "training", "one user's token", "served under load"
# Model and the chips that train it where no model is asked for: small and large, dense and sparse.
MODELS = {"llama-3-8b": 1024, "llama-3.1-405b": 16_384, "gpt-oss-20b": 512, "deepseek-v3": 2048}
TOKENS, WEIGHTS = "15T", "fp8"
GROUPS = (1, 2, 4, 8, 16, 32, 64)
LOADS = tuple(round(2 ** (k / 2)) for k in range(0, 23))  # requests in flight a chip


@record
class Lever:
    """One task of one model: chip-hours' time now (seconds), `change` and `elasticity` by figure,
    None where the task does not have it, and what twice the figure may add to the price of a
    chip-hour."""

    task: str
    model: str
    chips: int
    seconds: float
    change: Mapping[str, float | None]
    elasticity: Mapping[str, float | None]
    usd_per_chip_hour: Mapping[str, float | None]


@record
class Asked:
    """`price` of a chip-hour: None where the chip has none. Lengths are of a request."""

    chip: str
    prompt_tokens: int
    output_tokens: int
    tpot_limit_s: float
    price: float | None


def levers_of(
    catalog: Catalog,
    asked: Asked,
    models: Mapping[str, int],
    progress: Callable[[str], None] = lambda _: None,
) -> list[Lever]:
    """The levers of each task of each model that the chip can do; those with no time are left
    out."""
    changed = {figure: _doubled(catalog, asked.chip, figure) for figure in FIGURES}
    found = []
    for model, chips in models.items():
        progress(model)
        for task, time, count in _tasks(catalog, asked, model, chips):
            now = time(catalog, asked.chip, None)
            if now is None:
                continue
            times = {
                figure: _time_at(time, change, task, figure) for figure, change in changed.items()
            }
            found.append(_lever(task, model, count, now, times, asked.price))
    return found


Time = Callable[[Catalog, str, str | None], float | None]


def _tasks(catalog: Catalog, asked: Asked, model: str, chips: int) -> list[tuple[str, Time, int]]:
    """Each task, the seconds that it takes on a chip of a catalog, its chips."""
    group = _group(catalog, asked, model)
    tasks: list[tuple[str, Time, int]] = [
        (TRAINING, lambda c, chip, cap: _trained(c, model, chip, chips), chips)
    ]
    if group is not None:
        one = _Served(asked, model, group)
        tasks.append((ONE_USER, one.token, group))
        tasks.append((LOAD, one.loaded, group))
    return tasks


def _doubled(catalog: Catalog, chip: str, figure: str) -> tuple[Catalog, str, str | None] | None:
    """The catalog, chip and power cap with twice the figure; of power, with half of it. None where
    the chip has no such figure."""
    if figure == "power":
        watts = catalog.chip(chip).tdp_w
        return None if watts is None else (catalog, chip, f"{watts / 2:g} W")
    try:
        own = derive(catalog, chip, [f"{FIGURES[figure]}=2x"])
    except InputError:
        return None
    return with_own_chips(catalog, [own]), own.chip.id, None


def _time_at(
    time: Time, change: tuple[Catalog, str, str | None] | None, task: str, figure: str
) -> float | None:
    if change is None or (task == TRAINING and figure == "power"):
        return None
    return time(*change)


def _lever(
    task: str,
    model: str,
    chips: int,
    now: float,
    times: Mapping[str, float | None],
    price: float | None,
) -> Lever:
    # Of power, `times` are at half of it: the change from there up to all of it.
    ratios = {
        figure: None if at is None else now / at if figure == "power" else at / now
        for figure, at in times.items()
    }
    return Lever(
        task,
        model,
        chips,
        now,
        {name: None if r is None else r - 1.0 for name, r in ratios.items()},
        {
            name: None if r is None else math.log(r) / math.log(2.0) + 0.0
            for name, r in ratios.items()
        },
        {
            name: None if r is None or price is None or name == "power" else price * (1.0 / r - 1.0)
            for name, r in ratios.items()
        },
    )


def _trained(catalog: Catalog, model: str, chip: str, chips: int) -> float | None:
    """Seconds of a token of training on the best plan; None where nothing fits."""
    found = train(model, chip, chips, tokens=TOKENS, catalog=catalog).document
    return chips / found["tokens_per_s"] if found["feasible"] else None


def _group(catalog: Catalog, asked: Asked, model: str) -> int | None:
    """The fewest chips, a power of two, that hold the model for one request."""
    for chips in GROUPS:
        if _Served(asked, model, chips).token(catalog, asked.chip, None) is not None:
            return chips
    return None


class _Served:
    """A model on a group of chips."""

    def __init__(self, asked: Asked, model: str, chips: int) -> None:
        self.asked, self.model, self.chips = asked, model, chips
        self.sparse = bool(load_model(model).experts)

    def token(self, catalog: Catalog, chip: str, cap: str | None) -> float | None:
        """Seconds of a token of one user."""
        found = self._at(catalog, chip, cap, 1)
        return None if found is None else float(found["tpot_s"])

    def loaded(self, catalog: Catalog, chip: str, cap: str | None) -> float | None:
        """Chip-seconds of an output token at the load that reaches the limit, between the last one
        that keeps it and the next."""
        last: tuple[float, float] | None = None
        limit = self.asked.tpot_limit_s
        for load in LOADS:
            found = self._at(catalog, chip, cap, load * self.chips)
            if found is None:
                break
            here = found["tpot_s"], 1.0 / found["output_tokens_per_s_per_chip"]
            if here[0] > limit:
                return last and _between(last, here, limit)
            last = here
        return last and last[1]

    def _at(self, catalog: Catalog, chip: str, cap: str | None, load: int) -> dict[str, Any] | None:
        try:
            found = estimate(
                self.model,
                chip,
                tp=self.chips,
                ep=self.chips if self.sparse else 1,
                weight_dtype=WEIGHTS,
                prompt_tokens=self.asked.prompt_tokens,
                output_tokens=self.asked.output_tokens,
                concurrency=load,
                power_cap=cap,
                catalog=catalog,
            ).document
        except (InputError, NothingFeasible):
            return None
        return found if found["feasible"] else None


def _between(a: tuple[float, float], b: tuple[float, float], limit: float) -> float:
    """The cost at the limit, of two loads (time per token, cost) around it."""
    part = (limit - a[0]) / (b[0] - a[0])
    return a[1] + part * (b[1] - a[1])


def unit_prices(catalog: Catalog, chips: Sequence[str]) -> list[dict[str, Any]]:
    """Dollars a chip-hour over its dense 16-bit PFLOP/s, TB/s of memory and GB, by chip and price
    basis, the oldest first."""
    rows = []
    for basis in catalog.prices.bases():
        for chip, price in catalog.prices.select(basis).items():
            spec = catalog.chips.get(chip)
            if spec is None or (chips and chip not in chips):
                continue
            hour, peak = price.usd_per_chip_hour, spec.peak_flops_per_s.get("bf16")
            bandwidth = spec.memories[0].bytes_per_s
            rows.append(
                {
                    "chip": chip,
                    "year": spec.year,
                    "basis": basis,
                    "usd_per_chip_hour": hour,
                    "usd_per_pflop": hour / (peak / 1e15) if peak else None,
                    "usd_per_tb_per_s": hour / (bandwidth / 1e12) if bandwidth else None,
                    "usd_per_100_gb": hour / (spec.capacity_bytes / 1e11),
                }
            )
    return sorted(rows, key=lambda row: (row["basis"], row["year"] or 0, row["chip"]))


def seconds(text: str) -> float:
    """Raises InputError for what is no time above zero."""
    value = units.parse(text, "s", field="--tpot-limit")
    if not value > 0.0:
        raise InputError(f"read {text!r}", field="--tpot-limit", accepted="above 0 s, such as 50ms")
    return value
