"""A fleet plan as its user writes it: what is asked for, what may be bought or rented, and what
must not be exceeded. `dse.specs.plan_reader` makes a `Plan` of the file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from dse.specs.loader import STRICT
from dse.specs.owning import YEAR_HOURS

QUARTER_HOURS = YEAR_HOURS / 4.0
RENT, BUY = "rent", "buy"


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Requests of one kind. `requests_per_s` is the mean of the first quarter; the fleet is sized
    for `peak` times it, which grows by `growth` a quarter. `most_loss` is the quality floor."""

    name: str
    models: tuple[str, ...]
    requests_per_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    tpot_s: float
    peak: float
    growth: float
    most_loss: float
    weight_dtypes: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    prefix_hit_rate: float

    def mean_per_s(self, quarter: int) -> float:
        """Requests per second in the mean of a quarter, the first being 0."""
        return self.requests_per_s * (1.0 + self.growth) ** quarter

    def peak_per_s(self, quarter: int) -> float:
        return self.mean_per_s(quarter) * self.peak


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a chip. `usd` is per chip-hour of rent, per chip bought, in the first quarter;
    it changes by `price_change` a quarter and is fixed when ordered. What is ordered in quarter q
    serves from q + lead_quarters on: rented for `term_quarters`, bought for `life_quarters`."""

    chip: str
    way: Literal["rent", "buy"]
    label: str
    usd: float
    words: str
    lead_quarters: int = 0
    term_quarters: int = 1
    life_quarters: float = 16.0
    chips_per_quarter: float = math.inf
    price_change: float = 0.0
    on_site: bool = True

    def usd_in(self, quarter: int) -> float:
        """The price of an order of that quarter."""
        return self.usd * (1.0 + self.price_change) ** quarter


@dataclass(frozen=True, slots=True)
class FleetChip:
    """A chip of the plan: chips of one server, all-in watts per chip, chips that are owned already,
    and how more can be had. `classes`: those it may serve, all where empty."""

    chip: str
    server: int
    watts: float
    power_words: str
    chips_per_rack: int
    rack_words: str
    stock: int
    offers: tuple[Offer, ...]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What no quarter may exceed, `usd_total` all of them together; infinite where not given."""

    usd_per_hour: float = math.inf
    usd_per_quarter: float = math.inf
    usd_total: float = math.inf
    watts: float = math.inf
    racks: float = math.inf
    chips: float = math.inf


@dataclass(frozen=True, slots=True)
class Plan:
    """`discount_rate` is per year and also the interest on what is bought."""

    name: str
    title: str
    description: str
    file: str
    quarters: int
    price_basis: str
    backend: str
    discount_rate: float
    usd_per_kwh: float
    spare_servers: int
    spare_share: float
    disaggregated: bool
    largest_instance: int
    demand: tuple[DemandClass, ...]
    chips: tuple[FleetChip, ...]
    limits: Limits
    assumed: tuple[str, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for chip in self.chips for offer in chip.offers)

    def chip(self, name: str) -> FleetChip:
        return next(chip for chip in self.chips if chip.chip == name)


class DemandFile(BaseModel):
    model_config = STRICT

    name: str = Field(min_length=1, max_length=40)
    model: str | None = None
    models: list[str] | None = None
    requests_per_second: float | None = None
    tokens_per_day: str | None = None
    prompt_tokens: int = Field(gt=0, le=10**8)
    output_tokens: int = Field(gt=0, le=10**8)
    ttft: str
    tpot: str
    peak_over_average: float = Field(default=1.0, ge=1.0, le=1000.0)
    growth_per_quarter: str = "0 %"
    predicted_loss_at_most: float | None = Field(default=None, gt=0.0)
    weight_dtype: Any = None
    kv_dtype: Any = None
    prefix_hit_rate: float = Field(default=0.0, ge=0.0, lt=1.0)


class _OfferFile(BaseModel):
    model_config = STRICT

    price: str | None = None
    source: str | None = None
    lead_quarters: int = Field(default=0, ge=0, le=100)
    chips_per_quarter: int | None = Field(default=None, ge=0, le=10**9)
    price_change_per_quarter: str = "0 %"


class RentFile(_OfferFile):
    basis: str | None = None
    term_quarters: int | None = Field(default=None, ge=1, le=100)
    site: Literal["own", "provider"] = "own"


class BuyFile(_OfferFile):
    life: str = "4 years"


class FleetChipFile(BaseModel):
    model_config = STRICT

    chip: str
    rent: RentFile | list[RentFile] | None = None
    buy: BuyFile | None = None
    server: int | None = Field(default=None, ge=1, le=10_000)
    power: str | None = None
    chips_per_rack: int | None = Field(default=None, ge=1, le=10_000)
    classes: list[str] = Field(default=[])


class StockFile(BaseModel):
    model_config = STRICT

    chip: str
    chips: int = Field(ge=1, le=10**7)


class LimitsFile(BaseModel):
    model_config = STRICT

    budget_per_hour: str | None = None
    budget_per_quarter: str | None = None
    budget_total: str | None = None
    power: str | None = None
    racks: int | None = Field(default=None, ge=1, le=10**7)
    chips: int | None = Field(default=None, ge=1, le=10**7)


class SparesFile(BaseModel):
    model_config = STRICT

    servers: int = Field(default=0, ge=0, le=1000)
    share: str = "0 %"


class PlanFile(BaseModel):
    model_config = STRICT

    name: str = Field(min_length=1, max_length=80)
    title: str
    description: str = ""
    quarters: int = Field(default=4, ge=1, le=20)
    price_basis: str
    backend: str = "current"
    discount_rate: str = "8 %"
    usd_per_kwh: float = Field(default=0.12, ge=0.0, le=10.0)
    pue: float = Field(default=1.25, ge=1.0, le=5.0)
    disaggregated: bool = False
    largest_instance: int = Field(default=16, ge=1, le=1024)
    demand: list[DemandFile] = Field(min_length=1, max_length=20)
    chips: list[FleetChipFile] = Field(min_length=1, max_length=30)
    stock: list[StockFile] = Field(default=[])
    spares: SparesFile = SparesFile()
    limits: LimitsFile = LimitsFile()
