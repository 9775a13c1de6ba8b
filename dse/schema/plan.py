"""A fleet plan as its user writes it: what is asked for, what may be bought or rented, and what
must not be exceeded. `dse.schema.plan_reader` makes a `Plan` of the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

from dse.schema.axes import AXES, POOL_AXES
from dse.schema.catalog import Source
from dse.schema.costs import Costs
from dse.schema.dtypes import DTYPES
from dse.schema.loader import did_you_mean
from dse.schema.owning import YEAR_HOURS, Owning
from dse.schema.plausible import TPOT, TTFT, USD_PER_HOUR
from dse.schema.prices import PRICE_TIERS, Basis
from dse.schema.reader import (
    ByName,
    Date,
    Field,
    Flag,
    Listed,
    Number,
    Percent,
    Place,
    Quantity,
    Raw,
    Refused,
    Table,
    Text,
    Then,
    Whole,
    WithText,
    Word,
)
from dse.schema.traffic import Requests, Traffic
from dse.schema.workloads import SERVED

QUARTER_HOURS = YEAR_HOURS / 4.0
RENT, BUY = "rent", "buy"


@dataclass(frozen=True, slots=True)
class DemandClass:
    """What is asked of a fleet for requests of one kind: who may serve its `traffic`, and within
    which limits. `ttft_s` holds for the median of a steady load, or, with a `percentile`, for that
    percentile of requests that arrive at random, in each of their streams. `most_loss` is the
    quality floor. Formats, `draft_tokens` and `redundant_experts` are to choose from: the
    checkpoint's own, none and those that are tried where empty. `details` holds what was written of
    `dse.schema.workloads.SERVED`, `pools` the axes that a worker of either pool may have."""

    name: str
    models: tuple[str, ...]
    traffic: Traffic
    ttft_s: float
    tpot_s: float
    most_loss: float = math.inf
    weight_dtypes: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ()
    percentile: int | None = None
    draft_tokens: tuple[int, ...] = ()
    redundant_experts: tuple[int, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(
        default_factory=lambda: {pool: {} for pool in POOL_AXES}
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a chip. `usd` is per chip-hour of rent, or the capital of a chip bought (with
    its share of server and network), in the first quarter; it changes by `price_change` a quarter
    and is fixed when ordered. What is ordered in quarter q serves from q + lead_quarters on: rented
    for `term_quarters`, bought for `life_quarters`. `basis` is empty for a price of the plan's own.
    `breaks` is the label of the rent that this one breaks, empty of all others: their prices move
    together.
    """

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
    basis: str = ""
    breaks: str = ""

    @property
    def group(self) -> str:
        """The label of what is signed, whenever it is broken."""
        return self.breaks or self.label

    @property
    def usd_per_chip_hour(self) -> float:
        """The price of an hour; of what is bought, over its life."""
        hours = self.life_quarters * QUARTER_HOURS
        return self.usd / (1.0 if self.way == RENT else hours)

    def usd_in(self, quarter: int) -> float:
        """The price of an order of that quarter."""
        return self.usd * (1.0 + self.price_change) ** quarter


@dataclass(frozen=True, slots=True)
class FleetChip:
    """A chip of the plan: chips of one server, watts at the meter per chip, chips that are owned
    already, and how more can be had. `classes`: those it may serve, all where empty. `owning` is
    what one takes to own, None where none is owned or bought; `sale_usd` what a buyer pays today
    for one that is owned, where the plan says it."""

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
    sale_usd: float | None = None


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
class Uncertainty:
    """What is not known of the future. `demand` is the 80% interval of what a quarter's demand adds
    to the error of the one before, a share either way; `late` the chance that what has a lead time
    comes a quarter late; `prices` the 80% interval of prices, a share either way, None for what
    published rows say. The throughput of `measured` chips is known."""

    demand: float = 0.2
    late: float = 0.2
    prices: float | None = None
    measured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """`discount_rate` is per year; `used_after_end` the share of what is signed beyond the last
    quarter that is of use then. `costs` are those of what is owned; nothing of it is spread over
    the hours that it serves, as the fleet counts what is idle. `own` has the files and the date
    that the prices rest on. With a `service_level`, that share of futures is to be served; `signed`
    has the servers that are then ordered in the first quarter, by offer, None where that is open.
    """

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
    used_after_end: float = 0.0
    service_level: float | None = None
    uncertainty: Uncertainty = Uncertainty()
    signed: Mapping[str, int] | None = None

    @property
    def busy(self) -> float:
        """The mean of the demand over its peak, classes by their tokens: how far what is on is
        loaded; what is spare, or left over of whole servers, is taken to be loaded alike."""
        every = [one.traffic for one in self.demand]
        means = [one.requests_per_s * one.tokens for one in every]
        peaks = [mean * one.peak for mean, one in zip(means, every, strict=True)]
        return math.fsum(means) / math.fsum(peaks)

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for chip in self.chips for offer in chip.offers)

    @property
    def unbroken(self) -> tuple[Offer, ...]:
        """One offer of each price: a rent that may be broken for its whole term alone."""
        return tuple(offer for offer in self.offers if not offer.breaks)

    def chip(self, name: str) -> FleetChip:
        return next(chip for chip in self.chips if chip.chip == name)

    def offer(self, label: str) -> Offer:
        return next(offer for offer in self.offers if offer.label == label)


# Quarters for which a rent on a basis is signed; a basis that is not here must say so itself.
TERMS = {basis: t.quarters for basis, t in PRICE_TIERS.items() if t.quarters is not None}
DAY_S = 86400.0
LENGTHS, RATES = ("prompt_tokens", "output_tokens"), ("requests_per_second", "tokens_per_day")
FROM_TRACE = (*RATES, *LENGTHS, "peak_over_average", "prefix_hit_rate")  # what a trace stands for


def _percentile(value: int) -> int:
    if value in (50, 90, 99):
        return value
    raise Refused(f"read {value}", "50, 90 or 99")


def _class(
    *,
    model: str | None,
    models: tuple[str, ...] | None,
    growth_per_quarter: float,
    peak_over_average: float,
    **row: Any,
) -> SimpleNamespace:
    """A class as it is written; `traffic` is None where a trace says it."""
    found = {one.name: row.pop(one.name) for one in SERVED}
    row["details"] = {name: value for name, value in found.items() if value is not None}
    prefix_hit_rate = row["details"].pop("prefix_hit_rate", 0.0)
    drafted = {"acceptance", "draft_share"} & {*row["details"]}
    if drafted and not row["draft_tokens"]:
        raise Refused("without draft_tokens", "draft_tokens: [0, 3], too", min(drafted))
    if bool(models) == bool(model):
        raise Refused("names no model, or both", "`model: ID` or `models: [ID, ...]`")
    traffic = None
    if row["trace"] is None:
        for name in LENGTHS:
            if row[name] is None:
                raise Refused("is missing", "tokens, or `trace: FILE.csv`", name)
        prompt, output = (float(row[name]) for name in LENGTHS)
        one = Requests(1.0, prompt, output, prefix_hit_rate)
        traffic = Traffic((one,), _rate(prompt + output, **row), peak_over_average)
    row["models"], row["named_by"] = (models, "models") if models else ((model,), "model")
    return SimpleNamespace(growth=growth_per_quarter, traffic=traffic, **row)


def _rate(tokens_each: float, **row: Any) -> float:
    """Requests per second in the mean."""
    given = [name for name in RATES if row[name] is not None]
    if len(given) != 1:
        raise Refused(
            "demand is given not at all, or twice",
            "requests_per_second or tokens_per_day (prompt and output tokens)",
        )
    name = given[0]
    text = rate = row[name]
    if name == "tokens_per_day":
        tokens, text = row[name]
        rate = tokens / DAY_S / tokens_each
    if not 0.0 < rate < 1e9:
        nothing = ": a demand of nothing needs no fleet" if rate == 0.0 else ""
        accepted = "more than 0; leave out a class that is not served"
        raise Refused(f"read {text!r}{nothing}", accepted, name)
    return rate


class _TokensADay:
    """Tokens of a day; 1B, or 1B/day."""

    def read(self, written: Any, at: Place) -> float | None:
        text = str(written).strip().removesuffix("/day") if isinstance(written, str) else written
        return Quantity("tokens").read(text, at)


_TIME = Quantity("s", "a time above 0")
_PRICE = Quantity("usd/h", "a price above 0; what is owned already is `stock`", usual=USD_PER_HOUR)


def _choice(axis: str, meaning: str) -> Field:
    """An axis of a deployment that the plan may choose on."""
    rule = AXES[axis]
    kinds = {"dtype": Word(DTYPES), "chip": Text()}
    kind = kinds.get(rule.kind, Whole(rule.least, rule.most))
    return Field(axis, Listed(kind, one=True), None, meaning=meaning)


def _given(**row: tuple[Any, ...] | None) -> dict[str, tuple[Any, ...]]:
    return {axis: values for axis, values in row.items() if values is not None}


# Axes of a deployment that a plan chooses on, and what holds where it says nothing of one.
CHOICES = {
    "weight_dtype": "the checkpoint's own",
    "kv_dtype": "the checkpoint's own",
    "draft_tokens": "none",
    "redundant_experts": "the fewest that divide, and one more a rank",
}
# Axes of a worker of a pool of its own.
_OF_WORKER = [axis for axis in POOL_AXES["prefill"] if axis in POOL_AXES["decode"]]
_FOLLOWS = "is no field of a plan: it follows from the demand"
_TRIED = "is no field of a plan: every division up to `largest_instance` is tried"
_POOLED = "is no field of a plan: `disaggregated: true` tries pools of all its chips"
_SPACE = "is no field of a plan: a space takes it (dse run)"
# What a space says of a deployment and a plan does not, with the reason.
NOT_OF_A_PLAN = {
    **dict.fromkeys(("chips", "replicas", "concurrency"), _FOLLOWS),
    "serving": "is no field of a plan: `percentile` says whether requests come at random",
    **{f"{one}_parallel": _TRIED for one in ("tensor", "pipeline", "data", "expert")},
    **dict.fromkeys(("pools", "pool_chips", "busy_percent"), _POOLED),
    "scale_up_domain": _SPACE,
    "offload_tier": _SPACE,
    "weights_offloaded_percent": _SPACE,
    "kv_offloaded_percent": _SPACE,
}
_WORKER = Table(
    *(_choice(axis, AXES[axis].meaning) for axis in _OF_WORKER),
    make=_given,
    elsewhere=NOT_OF_A_PLAN,
)
_DEMAND = Table(
    Field("name", Text(1, 40)),
    Field("model", Text(), None, meaning="that serves the class"),
    Field("models", Listed(Text()), None, meaning="to choose from"),
    Field("requests_per_second", Number(), None, meaning="in the mean"),
    Field("tokens_per_day", WithText(_TokensADay()), None, meaning="prompt and output"),
    Field("prompt_tokens", Whole(above=0, most=10**8), None, meaning="of one request"),
    Field("output_tokens", Whole(above=0, most=10**8), None, meaning="of one request"),
    Field("trace", Text(), None, meaning="a CSV file of requests, in place of these lines"),
    Field("window", WithText(_TIME), (60.0, "60 s"), meaning="whose busiest a trace is sized for"),
    Field("windows", Number(0.0, 1.0), 1.0, meaning="share of them no busier than that one"),
    Field("lengths", Whole(1, 32), None, meaning="groups of prompt lengths of a trace"),
    Field("ttft", replace(_TIME, usual=TTFT), meaning="time to first token at most"),
    Field("tpot", replace(_TIME, usual=TPOT), meaning="time per output token at most"),
    Field("percentile", Then(Whole(), _percentile), None, meaning="of requests within ttft"),
    Field("peak_over_average", Number(1.0, 1000.0), 1.0),
    Field("growth_per_quarter", Percent(-0.9), 0.0),
    Field("predicted_loss_at_most", Number(above=0.0), None, meaning="the quality floor"),
    *(_choice(axis, f"to choose from; {otherwise}") for axis, otherwise in CHOICES.items()),
    *(
        Field(pool, _WORKER, {}, meaning=f"what workers of a {pool} pool may be; else all")
        for pool in POOL_AXES
    ),
    *SERVED,
    make=_class,
    elsewhere=NOT_OF_A_PLAN
    | dict.fromkeys(("backend", "disaggregated"), "stands beside `demand`")
    | {"chip": "stands under `chips`"},
)
_OFFER = (
    Field("lead_quarters", Whole(0, 100), 0, meaning="from the order to the first use"),
    Field("chips_per_quarter", Whole(0, 10**9), None, meaning="that can be had"),
    Field("price_change_per_quarter", Percent(-0.5, 0.5), 0.0),
)
_RENT = Table(
    *_OFFER,
    Field("basis", Basis(computed=True), None, meaning="of hardware/prices.csv"),
    Field("price", WithText(_PRICE), None, meaning="of your own, in place of the basis"),
    Field("source", Text(), None, meaning="of that price"),
    Field("term_quarters", Whole(1, 100), None),
    Field(
        "break",
        Table(
            Field("after_quarters", Whole(1, 100), meaning="from which on it may be given back"),
            Field("fee_quarters", Number(0.0, 100.0), meaning="of rent that this costs"),
            make=SimpleNamespace,
        ),
        None,
        to="back",
    ),
    Field("site", Word(("own", "provider")), "own", meaning="whose power and racks it takes"),
    make=SimpleNamespace,
)
NO_TERMS: Any = _RENT.of({})  # a chip that is rented on the basis of the plan
# At the price that `costs:` or hardware/purchases.csv gives: one written here is refused with where
# it goes.
_BUY = Table(
    *_OFFER, Field("price", Raw(), None), Field("server_price", Raw(), None), make=SimpleNamespace
)


def _chip(chip: str, power: object, buy: Any, **row: Any) -> SimpleNamespace:
    """A chip as it is written; a figure that is a cost is refused: the lines of `costs:` say it."""
    costs = [("power", power, "power")]
    if buy is not None:
        costs += [(name, getattr(buy, name), "buy", name) for name in ("price", "server_price")]
    for name, value, *path in costs:
        if value is not None:
            place = f"`costs: {{chips: {{{chip}: {{{name}: {value}}}}}}}`"
            raise Refused(f"read {value!r}: it is one of the costs", place, *path)
    return SimpleNamespace(chip=chip, buy=buy, **row)


_CHIP = Table(
    Field("chip", Text()),
    Field("rent", Listed(_RENT, one=True), None),
    Field("buy", _BUY, None),
    Field("power", Raw(), None, meaning="refused: it is one of the costs"),
    Field("server", Whole(1, 10_000), None, meaning="chips that are had at once"),
    Field("chips_per_rack", Whole(1, 10_000), None),
    Field("classes", Listed(Text()), (), meaning="that it may serve; all where left out"),
    make=_chip,
)
_STOCK = Table(
    Field("chip", Text()),
    Field("chips", Whole(1, 10**7), meaning="owned already"),
    Field("sale", Quantity("usd"), None, meaning="what a buyer pays today, a chip in its server"),
    make=SimpleNamespace,
)


def _limits(**found: float | None) -> Limits:
    return Limits(**{name: float(one) for name, one in found.items() if one is not None})


def _limit(dimension: str, least: float, most: float) -> Quantity:
    """From what one small chip takes to the largest programmes that were announced (10 GW, 500
    billion dollars), with some room."""
    return Quantity(dimension, usual=(least, most))


_LIMITS = Table(
    Field("budget_per_hour", _limit("usd/h", 0.05, 1e8), None, to="usd_per_hour"),
    Field("budget_per_quarter", _limit("usd", 100.0, 2e11), None, to="usd_per_quarter"),
    Field("budget_total", _limit("usd", 100.0, 5e12), None, to="usd_total"),
    Field("power", _limit("W", 5.0, 2e10), None, to="watts", meaning="at the meter"),
    Field("racks", Whole(1, 10**7), None),
    Field("chips", Whole(1, 10**7), None),
    make=_limits,
)


SERVICE_LEVEL = Percent(0.5, 0.99)
_UNCERTAINTY = Table(
    Field("demand", Percent(0.0, 2.0), 0.2, meaning="80% interval of a quarter's change, assumed"),
    Field("late", Percent(0.0, 1.0), 0.2, meaning="chance of a delivery a quarter late, assumed"),
    Field("prices", Percent(0.0, 2.0), None, meaning="80% interval; else of published rows"),
    Field("measured", Listed(Text()), (), meaning="chips whose throughput is known"),
    make=Uncertainty,
)


def _plan(**written: Any) -> SimpleNamespace:
    """A plan as it is written, its lines checked against each other."""
    one = SimpleNamespace(**written)
    classes, chips = [row.name for row in one.demand], [row.chip for row in one.chips]
    for key, names in (
        ("demand", classes),
        ("chips", chips),
        ("stock", [row.chip for row in one.stock]),
    ):
        for k, name in enumerate(names):
            if name in names[:k]:
                raise Refused(f"{name!r} is listed twice", "each once", key, k)
    for k, row in enumerate(one.stock):
        if row.chip not in chips:
            near = did_you_mean(row.chip, chips)
            said = f"{row.chip!r} is not among `chips`{near}"
            raise Refused(said, ", ".join(chips), "stock", k, "chip")
    for k, row in enumerate(one.demand):
        for pool in POOL_AXES:
            own = getattr(row, pool)
            if own and not one.disaggregated:
                raise Refused("of one pool", "also `disaggregated: true`", "demand", k, pool)
            for name in own.get("chip", ()):
                if name not in chips:
                    said = f"{name!r} is not among `chips`{did_you_mean(name, chips)}"
                    raise Refused(said, ", ".join(chips), "demand", k, pool, "chip")
        if row.percentile is not None and one.disaggregated:
            raise Refused(
                "pools of their own for prefill and decode are sized for a steady load",
                "no percentile (--percentile steady), or no `disaggregated`",
                *("demand", k, "percentile"),
            )
    for k, name in enumerate(one.uncertainty.measured):
        if name not in chips:
            said = f"{name!r} is not among `chips`{did_you_mean(name, chips)}"
            raise Refused(said, ", ".join(chips), "uncertainty", "measured", k)
    for k, row in enumerate(one.chips):
        for i, name in enumerate(row.classes):
            if name not in classes:
                said = f"unknown class {name!r}{did_you_mean(name, classes)}"
                raise Refused(said, ", ".join(classes), "chips", k, "classes", i)
    return one


PLAN = Table(
    Field("name", Text(1, 80)),
    Field("title", Text()),
    Field("description", Text(), ""),
    Field("quarters", Whole(1, 20), 4),
    Field("price_basis", Text(), meaning="of what is rented"),
    Field("backend", Text(), "current"),
    Field(
        "discount_rate",
        Percent(0.0, 1.0),
        None,
        meaning="a year; the cost of capital where left out",
    ),
    Field("used_after_end", Percent(0.0, 1.0), 0.0, meaning="of rents and purchases; else lost"),
    Field(
        "currency",
        ByName(
            Table(
                Field("usd", Number(above=0.0), meaning="of one of it"),
                Field("date", Date(), meaning="of that rate"),
                Field("source", Text(), ""),
                make=SimpleNamespace,
            ),
            says="such as EUR: {usd: 1.16, date: 2026-11-20, source: ECB}",
        ),
        {},
        meaning="of prices that are not in dollars, with its rate",
    ),
    Field("costs", Raw(), None, meaning="in place of lines of hardware/costs.yaml"),
    Field("disaggregated", Flag(), False, meaning="pools of their own for prefill and decode"),
    Field("largest_instance", Whole(1, 1024), 16, meaning="chips"),
    Field("demand", Listed(_DEMAND, 1, 20)),
    Field("chips", Listed(_CHIP, 1, 200)),
    Field("stock", Listed(_STOCK), ()),
    Field(
        "spares",
        Table(
            Field("servers", Whole(0, 1000), 0, to="spare_servers"),
            Field("share", Percent(0.0, 1.0), 0.0, to="spare_share"),
        ),
        {"spare_servers": 0, "spare_share": 0.0},
    ),
    Field("limits", _LIMITS, Limits(), meaning="what no quarter may exceed"),
    Field("service_level", SERVICE_LEVEL, None, meaning="share of futures that are to be served"),
    Field("uncertainty", _UNCERTAINTY, Uncertainty(), meaning="of these futures"),
    make=_plan,
    elsewhere=dict.fromkeys(_DEMAND.names, "stands in a class of `demand`") | NOT_OF_A_PLAN,
)
