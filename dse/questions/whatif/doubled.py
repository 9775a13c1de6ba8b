"""What twice a figure of a chip does for training, for a token of one user and for a served token
under load, and what that is worth.

The change is t(2 x) / t(x) - 1, the elasticity ln(t(2 x) / t(x)) / ln 2, of a time t in chip-hours;
of power it is taken from half of the rated power up to it. Plans of training are searched again,
serving keeps its chips; loads are searched again within the limit of latency. Twice the figure pays
for a price per chip-hour of t(x) / t(2 x) times today's: what is above today's is its worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse.answer.frames import bar_chart, of_rows
from dse.answer.numbers import share
from dse.catalog import Catalog
from dse.economics.tco import with_basis
from dse.errors import InputError, NothingFeasible
from dse.questions.estimate.ask import estimate
from dse.questions.train import train
from dse.questions.whatif.solve import Part
from dse.schema.catalog import with_own_chips
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.model_catalog import load_model

# By figure, its name in `dse.schema.derive`; power is a cap.
DOUBLED = {
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
# Seconds of a task on a chip of a catalog under a power cap; None where nothing fits.
Time = Callable[[Catalog, str, str | None], float | None]


def doubled(
    catalog: Catalog,
    chip: str,
    models: Mapping[str, int],
    prompt_tokens: int,
    output_tokens: int,
    tpot_limit_s: float,
    price_basis: str,
    progress: Callable[[str], None] = lambda _: None,
) -> Part:
    """Each task of each of `models`, by the chips that train it, and each figure; the mean over the
    models; and dollars per unit of the figures of every chip with a price. Tasks that the chip
    cannot do are left out."""
    catalog = with_basis(catalog, OWNED)
    found = catalog.prices.select(price_basis).get(chip)
    price = None if found is None else found.usd_per_chip_hour
    changed = {figure: _changed(catalog, chip, figure) for figure in DOUBLED}
    load = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "weight_dtype": WEIGHTS}
    rows: list[dict[str, Any]] = []
    for model, chips in models.items():
        progress(model)
        for task, time, count in _tasks(catalog, chip, model, chips, load, tpot_limit_s):
            if (now := time(catalog, chip, None)) is None:
                continue
            for figure, to in changed.items():
                capped = task == TRAINING and figure == "power"
                then = None if to is None or capped else time(*to)
                rows.append(
                    {"chip": chip, "task": task, "model": model, "chips": count}
                    | {"figure": figure, "seconds": now, **_moved(now, then, figure, price)}
                )
    means = []
    for task in dict.fromkeys(row["task"] for row in rows):
        for figure in DOUBLED:
            mine = [row["change"] for row in rows if (row["task"], row["figure"]) == (task, figure)]
            known = [change for change in mine if change is not None]
            mean = sum(known) / len(known) if known else None
            means.append({"chip": chip, "task": task, "figure": figure, "change": mean})
    units = unit_prices(catalog)
    facts = {"doubled": rows, "doubled_mean": means, "unit_prices": units}
    return Part(facts, [_said(means)], _shown(rows, means, units, chip))


def _changed(catalog: Catalog, chip: str, figure: str) -> tuple[Catalog, str, str | None] | None:
    """The catalog, chip and power cap with twice the figure; of power, with half of it. None where
    the chip has no such figure."""
    if figure == "power":
        watts = catalog.chip(chip).tdp_w
        return None if watts is None else (catalog, chip, f"{watts / 2:g} W")
    try:
        own = derive(catalog, chip, [f"{DOUBLED[figure]}=2x"])
    except InputError:
        return None
    return with_own_chips(catalog, [own]), own.chip.id, None


def _moved(now: float, then: float | None, figure: str, price: float | None) -> dict[str, Any]:
    """Of power, `then` is at half of it: the change from there up to all of it."""
    if then is None:
        return dict.fromkeys(("change", "elasticity", "worth_usd_per_chip_hour"))
    ratio = now / then if figure == "power" else then / now
    worth = None if price is None or figure == "power" else price * (1.0 / ratio - 1.0)
    elasticity = math.log(ratio) / math.log(2.0) + 0.0
    return {
        "change": ratio - 1.0,
        "elasticity": elasticity,
        "worth_usd_per_chip_hour": worth,
    }


def _tasks(
    catalog: Catalog,
    chip: str,
    model: str,
    chips: int,
    load: Mapping[str, Any],
    tpot_limit_s: float,
) -> list[tuple[str, Time, int]]:
    """Each task, the seconds that it takes, its chips: training, and serving on the fewest chips, a
    power of two, that hold the model for one request."""
    sparse = bool(load_model(model).experts)

    def trained(of: Catalog, name: str, cap: str | None) -> float | None:
        """A token of training on the best plan."""
        found = train(model, name, chips, tokens=TOKENS, catalog=of).document
        return chips / found["tokens_per_s"] if found["feasible"] else None

    def served(of: Catalog, name: str, cap: str | None, group: int, flight: int) -> Any:
        own = {"tp": group, "ep": group if sparse else 1, "concurrency": flight}
        try:
            found = estimate(model, name, **own, **load, power_cap=cap, catalog=of).document
        except (InputError, NothingFeasible):
            return None
        return found if found["feasible"] else None

    def token(of: Catalog, name: str, cap: str | None) -> float | None:
        """A token of one user."""
        found = served(of, name, cap, group, 1)
        return None if found is None else float(found["tpot_s"])

    def loaded(of: Catalog, name: str, cap: str | None) -> float | None:
        """Chip-seconds of an output token at the load that reaches the limit, between the last one
        that keeps it and the next."""
        last: tuple[float, float] | None = None
        for flight in LOADS:
            found = served(of, name, cap, group, flight * group)
            if found is None:
                break
            tpot_s, cost = found["tpot_s"], 1.0 / found["output_tokens_per_s_per_chip"]
            if tpot_s > tpot_limit_s:
                if last is None:
                    return None
                part = (tpot_limit_s - last[0]) / (tpot_s - last[0])
                return last[1] + part * (cost - last[1])
            last = tpot_s, cost
        return last and last[1]

    tasks: list[tuple[str, Time, int]] = [(TRAINING, trained, chips)]
    fits = (size for size in GROUPS if served(catalog, chip, None, size, 1) is not None)
    if group := next(fits, 0):
        tasks += [(ONE_USER, token, group), (LOAD, loaded, group)]
    return tasks


def unit_prices(catalog: Catalog) -> list[dict[str, Any]]:
    """Dollars a chip-hour over its dense 16-bit PFLOP/s, TB/s of memory and 100 GB, by chip and
    price basis, the oldest first."""
    rows = []
    for basis in catalog.prices.bases():
        for chip, price in catalog.prices.select(basis).items():
            if (spec := catalog.chips.get(chip)) is None:
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


def _said(means: Sequence[Mapping[str, Any]]) -> str:
    """By which figure each task gains most."""
    said = []
    for task in dict.fromkeys(row["task"] for row in means):
        known = [row for row in means if row["task"] == task and row["change"] is not None]
        if known:
            first = min(known, key=lambda row: row["change"])
            said.append(f"{task} most by {first['figure']} ({share(first['change'])})")
    return f"Twice a figure shortens {', '.join(said)}." if said else "Nothing fits."


def _shown(
    rows: Sequence[Mapping[str, Any]],
    means: Sequence[Mapping[str, Any]],
    units: Sequence[Mapping[str, Any]],
    chip: str,
) -> list[Any]:
    names = list(dict.fromkeys(f"{row['task']}: {row['model']}" for row in rows))
    by_figure = {
        figure: [row["elasticity"] for row in rows if row["figure"] == figure] for figure in DOUBLED
    }
    across = "elasticity of time: -1 halves it with twice the figure"
    shows = "Bars of how far the time of each task falls with each figure of the chip."
    keys = ("task", "model", "chips", "figure", "change", "worth_usd_per_chip_hour")
    prices = ("usd_per_chip_hour", "usd_per_pflop", "usd_per_tb_per_s", "usd_per_100_gb")
    caption = f"Change of chip-seconds with twice a figure of {chip}"
    per_unit = "Dollars per chip-hour for each PFLOP/s (dense, 16 bits), TB/s and 100 GB"
    return [
        bar_chart("doubled", "What each figure does", names, by_figure, across, shows),
        of_rows("doubled_mean", f"{caption}, mean", means, ("task", "figure", "change")),
        of_rows("doubled", caption, rows, keys, on_console=len(names) < 4),
        of_rows(
            "unit_prices", per_unit, units, ("chip", "year", "basis", *prices), on_console=False
        ),
    ]
