"""`dse risk`: the choices of a space or study, how sure their order is, and what to measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.specs.catalog import Catalog, load_catalog
from dse.specs.own_prices import OwnPrices, in_force, using_prices
from dse.specs.study import Study, load_study, resolve_space
from dse.study.folder import find_item, read_study
from dse.study.physics import on_terms, pose
from dse.study.require import space_of
from dse.whatif.choices import RETUNED, Progress, choices_of
from dse.whatif.kin import kin_of
from dse.whatif.measure_next import Measurement, measure_next
from dse.whatif.paid import Paid, paid_with
from dse.whatif.price_spread import PriceSpread, price_spreads
from dse.whatif.robust import Demand, Robust, Uncertain, draw, robustness

BY_TORCH = ("NVIDIA", "AMD")  # whose chips PyTorch reaches as `dse calibrate` needs


@dataclass(frozen=True, slots=True)
class Asked:
    """What the answer rests on beside the space. `price_interval`: a share either way, None for
    what the published rows say."""

    draws: int = 10_000
    seed: int = 0
    objective: str | None = None
    price_interval: float | None = None
    demand: Demand | None = None
    retune: bool = False


@dataclass(frozen=True, slots=True)
class Risk:
    """The answer to `asked` of a study."""

    study: Study
    asked: Asked
    uncertain: Uncertain
    prices: tuple[PriceSpread, ...]
    robust: Robust
    measurements: tuple[Measurement, ...]
    shape: str | None  # the point whose shape it is
    reached: frozenset[str]  # chips that `dse calibrate` can measure
    paid: Paid

    @property
    def objective(self) -> str:
        return self.uncertain.choices.objective


def risk(
    source: str,
    point: str | None,
    asked: Asked,
    progress: Progress = lambda what, done, total: None,
) -> Risk:
    """Of a space (a shipped name or a path) or of the folder of a finished study; `point` of that
    study names the shape, where the space searches shapes.

    Raises InputError for a wrong source, point, objective or demand, and NothingFeasible where no
    chip keeps the limits.
    """
    with _prices_of(source):
        study, config = _source(source, point)
        catalog = on_terms(load_catalog(extra_chip_files=study.chip_files), study)
        return risk_of(study, catalog, config, point, asked, progress)


def risk_of(
    study: Study,
    catalog: Catalog,
    config: Mapping[str, Any] | None,
    point: str | None,
    asked: Asked,
    progress: Progress = lambda what, done, total: None,
) -> Risk:
    """The same of a study that was read."""
    problem = pose(study, catalog)
    configurations = RETUNED if asked.retune else 1
    choices = choices_of(problem, asked.objective, config, configurations, progress)
    if asked.demand is not None:
        _check_demand(study, choices.priced)
    chips = [item.chip for item in choices.items]
    prices: tuple[PriceSpread, ...] = ()
    if choices.priced:
        prices = price_spreads(catalog.prices, study.price_basis, chips, asked.price_interval)
    moved = np.array([one.sd for one in prices]) if prices else np.zeros(len(chips))
    kin = tuple(kin_of(catalog, chip) for chip in chips)
    uncertain = Uncertain(choices, moved, asked.demand, kin)
    draws = draw(uncertain, asked.draws, asked.seed)
    robust = robustness(uncertain, draws)
    found = measure_next(uncertain, draws, robust, progress)
    reached = frozenset(chip for chip in chips if catalog.chips[chip].vendor in BY_TORCH)
    paid = paid_with(catalog, study, chips)
    return Risk(study, asked, uncertain, prices, robust, tuple(found), point, reached, paid)


def _prices_of(source: str) -> AbstractContextManager[None]:
    """The prices that a study was made with in force, unless others are given."""
    folder = Path(source)
    if not folder.is_dir() or in_force() != OwnPrices():
        return nullcontext()
    return using_prices(**read_study(folder)[0].get("own_prices", {}))


def _source(source: str, point: str | None) -> tuple[Study, Mapping[str, Any] | None]:
    folder = Path(source)
    if not folder.is_dir():
        if point is not None:
            raise InputError(
                f"read {point!r} of {source}, which is no study",
                field="--point", accepted="the folder of a finished study as STUDY",
            )  # fmt: skip
        return load_study(resolve_space(source)), None
    document, _ = read_study(folder)
    study = load_study(resolve_space(space_of(document)), law=document.get("quality_law"))
    if study.fingerprint != document["fingerprint"]:
        raise InputError(
            f"{study.path} is not the space that {folder} was made from",
            field="STUDY", accepted="a new `dse run` of this space",
        )  # fmt: skip
    if point is None and study.model is None:
        raise InputError(
            f"{folder} searched shapes: of which point?",
            field="--point", accepted="its number in front.csv, or cheapest, fastest, best, knee",
        )  # fmt: skip
    return study, None if point is None else find_item(folder, point)["model"]


def _check_demand(study: Study, priced: bool) -> None:
    """Demand counts instances of a deployment that runs full."""
    if not priced:
        raise InputError(
            "demand changes no time", field="--demand", accepted="an objective in dollars"
        )
    if any(load.serving == "poisson" for load in study.workloads):
        raise InputError(
            "the workload has a rate of arrivals already",
            field="--demand", accepted="a space whose serving is continuous, static or offline",
        )  # fmt: skip


def demand_of(text: str) -> Demand:
    """`5..20`, or one number. Raises InputError."""
    low, dots, high = text.partition("..")
    try:
        ends = (float(low), float(high if dots else low))
    except ValueError:
        ends = (math.nan, math.nan)
    if not (0.0 < ends[0] <= ends[1] < 1e12):
        raise InputError(
            f"read {text!r}", field="--demand",
            accepted="requests per second, LOW..HIGH, both above 0: such as 5..20",
        )  # fmt: skip
    return Demand(*ends)
