"""The choices of a space or study, how sure their order is, and what to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.economics.priced import price_documents, prices_rest_on, unsold
from dse.errors import InputError
from dse.problem.objective import on_terms, pose
from dse.questions.risk.measure_next import Measurement, measure_next
from dse.questions.risk.price_spread import PriceSpread, price_spreads
from dse.questions.whatif.choices import RETUNED, Choices, Progress, choices_of, joined
from dse.questions.whatif.demand import tokens_per_request
from dse.questions.whatif.require import space_file_of
from dse.questions.whatif.robust import Demand, Robust, Uncertain, draw, robustness
from dse.questions.whatif.subject import limit_from
from dse.schema.load import read_rate
from dse.schema.study import Study, load_study
from dse.study.folder import find_item, read_study

QUALITY = ("predicted_loss", "dense_equivalent_parameters")
BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs


@dataclass(frozen=True, slots=True)
class Asked:
    """What the answer rests on beside the space. `price_interval`: a share either way, None for
    what the published rows say. `demand`: LOW..HIGH in tokens, `limits` are further ones."""

    draws: int = 10_000
    seed: int = 0
    objective: str | None = None
    price_interval: float | None = None
    demand: str | None = None
    retune: bool = False
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a point of a study, or of several that have the same; its quality in words."""

    name: str
    config: Mapping[str, Any]
    quality: str


@dataclass(frozen=True, slots=True)
class Risk:
    """The answer to `asked` of a study."""

    study: Study
    asked: Asked
    uncertain: Uncertain
    prices: tuple[PriceSpread, ...]
    robust: Robust
    measurements: tuple[Measurement, ...]
    shapes: tuple[Shape, ...]  # none where the space has one model
    reached: frozenset[str]  # chips that `dse calibrate` can measure
    parts: tuple[Mapping[str, Any], ...]  # of each chip-hour, where chips are owned
    prices_rest_on: tuple[str, ...]
    prices_given: Mapping[str, Any]
    unsold: Mapping[str, str]  # chips that are not on general sale, and why

    @property
    def objective(self) -> str:
        return self.uncertain.choices.objective


def found_of(
    source: str | Mapping[str, Any],
    catalog: Catalog,
    points: Sequence[str],
    asked: Asked,
    progress: Progress = lambda what, done, total: None,
) -> Risk:
    """Of a space (a shipped name, a path or a dict) or of the folder of a finished study. `points`
    of that study name the shape, where the space searches shapes, or the shapes that are compared.
    What a study was made with stands beneath the catalog.

    Raises InputError for a wrong source, point, objective or demand, for several shapes of a study
    that limits no quality, and NothingFeasible where no chip keeps the limits.
    """
    study, catalog, shapes = _source(source, catalog, points)
    more = tuple(limit_from(text) for text in asked.limits)
    study = replace(study, constraints=(*study.constraints, *more))
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    return risk_of(study, catalog, shapes, asked, progress)


def risk_of(
    study: Study,
    catalog: Catalog,
    shapes: Sequence[Shape],
    asked: Asked,
    progress: Progress = lambda what, done, total: None,
) -> Risk:
    """The same of a study that was read; no shape where its model is one."""
    problem = pose(study, catalog)
    configurations = RETUNED if asked.retune else 1

    def of(shape: Shape | None) -> Choices:
        config = None if shape is None else shape.config
        return choices_of(problem, asked.objective, config, configurations, progress)

    if len(shapes) > 1:
        choices = joined({shape.name: of(shape) for shape in shapes})
    else:
        choices = of(shapes[0] if shapes else None)
    demand = None
    if asked.demand is not None:
        _check_demand(study, choices.priced)
        demand = demand_of(asked.demand, tokens_per_request(problem))
    chips = list(dict.fromkeys(item.chip for item in choices.items))
    prices: tuple[PriceSpread, ...] = ()
    if choices.priced:
        prices = price_spreads(catalog.prices, study.price_basis, chips, asked.price_interval)
    sd = {one.chip: one.sd for one in prices}
    moved = np.array([sd.get(item.chip, 0.0) for item in choices.items])
    kin_of = dict(zip(problem.machines.ids, problem.machines.kin, strict=True))
    kin = tuple(kin_of[item.chip] for item in choices.items)
    uncertain = Uncertain(choices, moved, demand, kin)
    draws = draw(uncertain, asked.draws, asked.seed)
    robust = robustness(uncertain, draws)
    found = measure_next(uncertain, draws, robust, progress)
    reached = frozenset(chip for chip in chips if catalog.chips[chip].vendor in BY_TORCH)
    basis = study.price_basis
    return Risk(
        study=study,
        asked=asked,
        uncertain=uncertain,
        prices=prices,
        robust=robust,
        measurements=tuple(found),
        shapes=tuple(shapes),
        reached=reached,
        parts=tuple(price_documents(catalog, chips, basis)),
        prices_rest_on=tuple(prices_rest_on(catalog, chips, basis)),
        prices_given=catalog.source.own_prices(),
        unsold=unsold(catalog, chips),
    )


def _source(
    source: str | Mapping[str, Any], catalog: Catalog, points: Sequence[str]
) -> tuple[Study, Catalog, list[Shape]]:
    folder = Path() if isinstance(source, Mapping) else Path(source)
    if isinstance(source, Mapping) or not folder.is_dir():
        if points:
            raise InputError(
                f"read {points[0]!r} of a space, which is no study",
                field="--point",
                accepted="the folder of a finished study as STUDY",
            )
        return load_study(source, catalog), catalog, []
    document, _ = read_study(folder)
    catalog = catalog.over(document)
    study = load_study(space_file_of(document, folder), catalog, document.get("quality_law"))
    if study.fingerprint != document["fingerprint"]:
        raise InputError(
            f"{study.path} is not the space that {folder} was made from",
            field="STUDY",
            accepted="a new `dse run` of this space",
        )
    if not points and study.model is None:
        raise InputError(
            f"{folder} searched shapes: of which point?",
            field="--point",
            accepted="its number in front.csv, or cheapest, fastest, best, knee",
        )
    shapes = _shapes(folder, points)
    if len(shapes) > 1 and not quality_limits(study):
        raise InputError(
            f"{study.name} limits no quality, and the cheapest of several shapes is the smallest",
            field="--point",
            accepted=f"one point, or a space with a limit on {' or '.join(QUALITY)}",
        )
    return study, catalog, shapes


def _shapes(folder: Path, points: Sequence[str]) -> list[Shape]:
    """Unlike shapes of the points, each by the names that were asked for."""
    found: list[tuple[list[str], dict[str, Any]]] = []
    for point in dict.fromkeys(points):
        item = find_item(folder, point)
        alike = [names for names, known in found if known["model"] == item["model"]]
        alike[0].append(point) if alike else found.append(([point], item))
    return [
        Shape(", ".join(names), item["model"], _quality(item["metrics"])) for names, item in found
    ]


def _quality(metrics: Mapping[str, Any]) -> str:
    loss = metrics.get("predicted_loss")
    return "predicted loss not known" if loss is None else f"predicted loss {loss:.4g}"


def quality_limits(study: Study) -> list[str]:
    """Limits of a study by which all its points are good enough."""
    return [limit.text for limit in study.constraints if limit.metric in QUALITY]


def _check_demand(study: Study, priced: bool) -> None:
    """Demand counts instances of a deployment that runs full."""
    if not priced:
        raise InputError(
            "demand changes no time", field="--demand", accepted="an objective in dollars"
        )
    if any(load.serving == "poisson" for load in study.workloads):
        raise InputError(
            "the workload has a rate of arrivals already",
            field="--demand",
            accepted="a space whose serving is continuous, static or offline",
        )


def demand_of(text: str, tokens_per_request: float) -> Demand:
    """Requests per second of `1B/day..4B/day`, or of one rate. Raises InputError."""
    low, dots, high = text.partition("..")
    try:
        ends = [read_rate(end.strip()) / tokens_per_request for end in (low, high if dots else low)]
    except InputError:
        ends = [1.0, 0.0]
    if ends[0] > ends[1]:
        raise InputError(
            f"read {text!r}",
            field="--demand",
            accepted="tokens by time, LOW..HIGH: such as 1B/day..4B/day",
        )
    return Demand(*ends)
