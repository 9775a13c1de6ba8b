"""A fleet plan as its user writes it: what is asked for, what may be bought or rented, and what
must not be exceeded. `dse.schema.plan_reader` makes a `Plan` of the file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from dse.schema.catalog import Source
from dse.schema.costs import Costs
from dse.schema.loader import STRICT
from dse.schema.owning import YEAR_HOURS, Owning
from dse.schema.traffic import Class, mean_of

QUARTER_HOURS = YEAR_HOURS / 4.0
RENT, BUY = "rent", "buy"


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Requests of one kind. `requests_per_s` is the mean of the first quarter; the fleet is sized
    for `peak` times it, which grows by `growth` a quarter. `most_loss` is the quality floor.

    `streams` are its lengths, as shares that sum to 1; the tokens are those in the mean. `ttft_s`
    holds for the median of a steady load, or, with a `percentile`, for that percentile of requests
    that arrive at random, in each of the streams."""

    name: str
    models: tuple[str, ...]
    requests_per_s: float
    streams: tuple[Class, ...]
    ttft_s: float
    tpot_s: float
    peak: float
    growth: float
    most_loss: float
    weight_dtypes: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    percentile: int | None = None
    source: str = ""

    @property
    def mean(self) -> Class:
        """All requests at their mean lengths."""
        return mean_of(self.streams)

    @property
    def prompt_tokens(self) -> float:
        return self.mean.prompt

    @property
    def output_tokens(self) -> float:
        return self.mean.output

    def mean_per_s(self, quarter: int) -> float:
        """Requests per second in the mean of a quarter, the first being 0."""
        return self.requests_per_s * (1.0 + self.growth) ** quarter

    def peak_per_s(self, quarter: int) -> float:
        return self.mean_per_s(quarter) * self.peak


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a chip. `usd` is per chip-hour of rent, or the capital of a chip bought (with
    its share of server and network), in the first quarter; it changes by `price_change` a quarter
    and is fixed when ordered. What is ordered in quarter q serves from q + lead_quarters on: rented
    for `term_quarters`, bought for `life_quarters`."""

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
    """A chip of the plan: chips of one server, watts at the meter per chip, chips that are owned
    already, and how more can be had. `classes`: those it may serve, all where empty. `owning` is
    what one takes to own, None where none is owned or bought."""

    chip: str
    server: int
    watts: float
    power_words: str
    chips_per_rack: int
    rack_words: str
    stock: int
    offers: tuple[Offer, ...]
    classes: tuple[str, ...] = ()
    owning: Owning | None = None


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
    """`discount_rate` is per year. `costs` are those of what is owned; nothing of it is spread over
    the hours that it serves, as the fleet counts what is idle. `own` has the files and the date
    that the prices rest on."""

    name: str
    title: str
    description: str
    file: str
    quarters: int
    price_basis: str
    backend: str
    discount_rate: float
    costs: Costs
    spare_servers: int
    spare_share: float
    disaggregated: bool
    largest_instance: int
    demand: tuple[DemandClass, ...]
    chips: tuple[FleetChip, ...]
    limits: Limits
    own: Source
    assumed: tuple[str, ...] = ()

    @property
    def busy(self) -> float:
        """The mean of the demand over its peak, classes by their tokens: how far what is on is
        loaded; what is spare, or left over of whole servers, is taken to be loaded alike."""
        means = [
            one.requests_per_s * (one.prompt_tokens + one.output_tokens) for one in self.demand
        ]
        peaks = [mean * one.peak for mean, one in zip(means, self.demand, strict=True)]
        return math.fsum(means) / math.fsum(peaks)

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
    prompt_tokens: int | None = Field(default=None, gt=0, le=10**8)
    output_tokens: int | None = Field(default=None, gt=0, le=10**8)
    trace: str | None = None
    window: str = "60 s"
    ttft: str
    tpot: str
    percentile: Literal[50, 90, 99] | None = None
    peak_over_average: float = Field(default=1.0, ge=1.0, le=1000.0)
    growth_per_quarter: str = "0 %"
    predicted_loss_at_most: float | None = Field(default=None, gt=0.0)
    weight_dtype: Any = None
    kv_dtype: Any = None
    prefix_hit_rate: float = Field(default=0.0, ge=0.0, lt=1.0)


class _OfferFile(BaseModel):
    model_config = STRICT

    lead_quarters: int = Field(default=0, ge=0, le=100)
    chips_per_quarter: int | None = Field(default=None, ge=0, le=10**9)
    price_change_per_quarter: str = "0 %"


class RentFile(_OfferFile):
    basis: str | None = None
    price: str | None = None
    source: str | None = None
    term_quarters: int | None = Field(default=None, ge=1, le=100)
    site: Literal["own", "provider"] = "own"


class BuyFile(_OfferFile):
    """At the price that `costs:` or hardware/purchases.csv gives: one written here is refused with
    where it goes."""

    price: Any = None
    server_price: Any = None


class FleetChipFile(BaseModel):
    model_config = STRICT

    chip: str
    rent: RentFile | list[RentFile] | None = None
    buy: BuyFile | None = None
    power: Any = None  # refused, with where it goes
    server: int | None = Field(default=None, ge=1, le=10_000)
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
    discount_rate: str | None = None
    costs: Any = None
    disaggregated: bool = False
    largest_instance: int = Field(default=16, ge=1, le=1024)
    demand: list[DemandFile] = Field(min_length=1, max_length=20)
    chips: list[FleetChipFile] = Field(min_length=1, max_length=30)
    stock: list[StockFile] = Field(default=[])
    spares: SparesFile = SparesFile()
    limits: LimitsFile = LimitsFile()
