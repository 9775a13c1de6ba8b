"""What is known of the choices of a space or study, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.economics.priced import unsold
from dse.errors import InputError
from dse.physics.workload import POISSON
from dse.questions.risk.choices import Choices
from dse.questions.risk.measure_next import Measurement
from dse.questions.risk.price_spread import PriceSpread
from dse.questions.risk.robust import RateInterval, Robust, Uncertain
from dse.questions.whatif.demand import tokens_per_request
from dse.questions.whatif.subject import Subject
from dse.schema.load import read_rate
from dse.schema.study import Study
from dse.study.folder import STUDY, find_item

QUALITY = ("predicted_loss", "dense_equivalent_parameters")


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a point of a study, or of several that have the same; its quality in words."""

    name: str
    config: Mapping[str, Any]
    quality: str


@dataclass(frozen=True, slots=True)
class Risk:
    """What is known of the choices of a subject. `catalog` has the prices of the study's basis;
    `price_interval` is a share either way, None for what the published rows say; `shapes` are none
    where the space has one model."""

    subject: Subject
    catalog: Catalog
    shapes: tuple[Shape, ...]
    draws: int
    seed: int
    price_interval: float | None
    uncertain: Uncertain
    prices: tuple[PriceSpread, ...]
    robust: Robust
    measurements: tuple[Measurement, ...]

    @property
    def study(self) -> Study:
        return self.subject.problem.study

    @property
    def objective(self) -> str:
        return self.uncertain.choices.objective

    @property
    def chips(self) -> list[str]:
        return list(dict.fromkeys(item.chip for item in self.uncertain.items))

    @property
    def unsold(self) -> dict[str, str]:
        return unsold(self.catalog, self.chips)


def shapes_of(source: str | Mapping[str, Any], points: Sequence[str], study: Study) -> list[Shape]:
    """Unlike shapes of the points, each by the names that were asked for."""
    folder = Path() if isinstance(source, Mapping) else Path(source)
    if isinstance(source, Mapping) or not (folder / STUDY).is_file():
        if points:
            raise InputError(
                f"read {points[0]!r} of a space, which is no study",
                field="--point",
                accepted="the folder of a finished study as STUDY",
            )
        return []
    if not points and study.model is None:
        raise InputError(
            f"{folder} searched shapes: of which point?",
            field="--point",
            accepted="its number in front.csv, or start, cheapest, fastest, best, knee",
        )
    found: list[tuple[list[str], dict[str, Any]]] = []
    for point in dict.fromkeys(points):
        item = find_item(folder, point)
        alike = [names for names, known in found if known["model"] == item["model"]]
        alike[0].append(point) if alike else found.append(([point], item))
    if len(found) > 1 and not quality_limits(study):
        raise InputError(
            f"{study.name} limits no quality, and the cheapest of several shapes is the smallest",
            field="--point",
            accepted=f"one point, or a space with a limit on {' or '.join(QUALITY)}",
        )
    return [
        Shape(", ".join(names), item["model"], _quality(item["metrics"].get("predicted_loss")))
        for names, item in found
    ]


def _quality(loss: float | None) -> str:
    return "predicted loss not known" if loss is None else f"predicted loss {loss:.4g}"


def quality_limits(study: Study) -> list[str]:
    """Limits of a study by which all its points are good enough."""
    return [limit.text for limit in study.constraints if limit.metric in QUALITY]


def rate_of(text: str, subject: Subject, choices: Choices) -> RateInterval:
    """Requests per second of `1B/day..4B/day`, or of one rate: as many as instances of a deployment
    that runs full serve. Raises InputError."""
    if not choices.priced:
        raise InputError(
            "demand changes no time", field="--demand", accepted="an objective in dollars"
        )
    if any(load.serving == POISSON for load in subject.problem.study.workloads):
        raise InputError(
            "the workload has a rate of arrivals already",
            field="--demand",
            accepted="a space whose serving is continuous, static or offline",
        )
    low, dots, high = text.partition("..")
    try:
        each = tokens_per_request(subject.problem)
        ends = [read_rate(end.strip()) / each for end in (low, high if dots else low)]
    except InputError:
        ends = [1.0, 0.0]
    if ends[0] > ends[1]:
        raise InputError(
            f"read {text!r}",
            field="--demand",
            accepted="tokens by time, LOW..HIGH: such as 1B/day..4B/day",
        )
    return RateInterval(*ends)
