"""`dse.levers`: what each figure of a chip does for training and for serving."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dse import units
from dse.answer.answer import Answer, Column, Figure, Table
from dse.answer.numbers import share
from dse.answer.plots import PALETTE, bars, names_axis, plain
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.errors import InputError, NothingFeasible
from dse.questions.estimate.ask import estimate
from dse.questions.train.ask import train
from dse.record import record
from dse.schema.catalog import with_own_chips
from dse.schema.costs import BASIS as OWNED
from dse.schema.derive import derive
from dse.schema.model_catalog import load_model

CHIPS = 1024  # that train a model which is asked for


def levers(
    chip: str = "h100_sxm",
    *,
    models: Sequence[str] = (),
    chips: int = CHIPS,
    prompt_tokens: int = 2048,
    output_tokens: int = 512,
    tpot_limit: str = "50ms",
    price_basis: str = "rental_3yr",
    catalog: Catalog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """How training, a token of one user and a served token under load change with twice the FLOP/s,
    bandwidth, capacity, link and power of a chip, and what that is worth.

        dse.levers("h100_sxm").document["levers"][0]["change"]

    Each of `models` is trained on `chips`; without models four are taken, small and large, dense
    and sparse, on clusters of their size. Raises InputError for what cannot be read.
    """
    catalog, chip = with_basis(catalog or load_catalog(), OWNED).with_chip(chip)
    price = catalog.prices.select(price_basis).get(chip)
    asked = Asked(
        chip,
        prompt_tokens,
        output_tokens,
        seconds(tpot_limit),
        None if price is None else price.usd_per_chip_hour,
    )
    wanted = dict.fromkeys(models, chips) if models else MODELS
    found = levers_of(catalog, asked, wanted, progress)
    prices = unit_prices(catalog, ())
    return Answer(
        question="levers",
        title=f"What binds training and serving: {chip}",
        asked=f"{chip}, prompt {prompt_tokens:,}, output {output_tokens:,}, {tpot_limit} a token",
        headline=_headline(found),
        sentences=[
            "Plans and loads are searched again; power is from half of what is rated to all of it."
        ],
        blocks=[_picture(found), _changes(found), _worth(found, asked), _units(prices)],
        document={
            "chip": chip,
            "price_basis": price_basis,
            "usd_per_chip_hour": asked.price,
            "levers": [asdict(one) for one in found],
            "mean": {task: _means(found, task) for task in (TRAINING, ONE_USER, LOAD)},
            "unit_prices": prices,
        },
        names=catalog.names,
    )


def _means(found: Sequence[Lever], task: str) -> dict[str, float | None]:
    """The mean change of a task over its models, by figure."""
    means: dict[str, float | None] = {}
    for figure in FIGURES:
        known = [c for one in found if one.task == task and (c := one.change[figure]) is not None]
        means[figure] = sum(known) / len(known) if known else None
    return means


def _headline(found: Sequence[Lever]) -> str:
    said = []
    for task in (TRAINING, ONE_USER, LOAD):
        means = {name: mean for name, mean in _means(found, task).items() if mean is not None}
        if means:
            first = min(means, key=lambda name: means[name])
            said.append(f"{task} most by {first} ({share(means[first])})")
    return f"Twice a figure shortens {', '.join(said)}." if said else "Nothing fits."


def _changes(found: Sequence[Lever]) -> Table:
    return Table.of(
        "changes",
        "Change of chip-seconds with twice the figure",
        found,
        (
            Column("task", "task"),
            Column("model", "model"),
            Column("chips", "chips", "count"),
            *(
                Column(name, name, "change", of=lambda one, name=name: one.change[name])
                for name in FIGURES
            ),
        ),
    )


def _worth(found: Sequence[Lever], asked: Asked) -> Table:
    return Table.of(
        "worth",
        "What twice the figure may add to the price of a chip-hour",
        found,
        (
            Column("task", "task"),
            Column("model", "model"),
            *(
                Column(name, name, "dollars", of=lambda one, name=name: one.usd_per_chip_hour[name])
                for name in FIGURES
                if name != "power"
            ),
        ),
        notes=("A chip without a price has dashes.",) if asked.price is None else (),
    )


def _units(prices: Sequence[dict[str, object]]) -> Table:
    return Table.of(
        "unit_prices",
        "Dollars a chip-hour for each PFLOP/s (dense, 16 bits), TB/s and 100 GB",
        prices,
        (
            Column("chip", "chip"),
            Column("year", "year"),
            Column("basis", "basis"),
            Column("usd_per_chip_hour", "chip-hour", "dollars"),
            Column("usd_per_pflop", "PFLOP/s", "dollars"),
            Column("usd_per_tb_per_s", "TB/s", "dollars"),
            Column("usd_per_100_gb", "100 GB", "dollars"),
        ),
        on_console=False,
    )


def _picture(found: Sequence[Lever]) -> Figure:
    """Bars of the elasticities by figure, a row for each task and model."""
    names = [plain(f"{one.task}: {one.model}") for one in found][::-1]
    data = [
        bars(figure, [one.elasticity[figure] for one in found][::-1], names, PALETTE[k])
        for k, figure in enumerate(FIGURES)
    ]
    layout = {
        "barmode": "group",
        "xaxis": {"title": {"text": "elasticity of time: -1 halves it with twice the figure"}},
        "yaxis": names_axis(names),
    }
    shows = "Bars of how far the time of each task falls with each figure of the chip."
    return Figure("levers", "What each figure does", {"data": data, "layout": layout}, shows)


# Twice a figure of a chip: how much shorter training, a token of one user, and a served token under
# load become, and what that is worth.
#
# The change is t(2 x) / t(x) - 1, the elasticity ln(t(2 x) / t(x)) / ln 2, of a time t in chip-
# hours; of power it is taken from half of the rated power up to it. Plans of training are searched
# again, serving keeps its chips; loads are searched again within the limit of latency. Twice the
# figure pays for a price per chip-hour of t(x) / t(2 x) times today's: what is above today's is its
# shadow price.

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
