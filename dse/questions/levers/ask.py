"""`dse.levers`: what each figure of a chip does for training and for serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from dse.answer.answer import Answer, Column, Figure, Table
from dse.answer.numbers import share
from dse.answer.palette import PALETTE, plain
from dse.answer.plots import bars, names_axis
from dse.catalog import Catalog, load_catalog
from dse.economics.tco import with_basis
from dse.questions.levers.answer import (
    FIGURES,
    LOAD,
    MODELS,
    ONE_USER,
    TRAINING,
    Asked,
    Lever,
    levers_of,
    seconds,
    unit_prices,
)
from dse.schema.costs import BASIS as OWNED

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
    command: str = "",
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
        command=command,
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
