"""A fleet plan as its user writes it: what is asked for, what may be bought or rented, and what
must not be exceeded. `dse.schema.plan_reader` adds what the catalog says of its chips."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dse.data import rows_beside
from dse.record import record
from dse.schema.axes import AXES, POOL_AXES
from dse.schema.catalog import Source
from dse.schema.costs import (
    YEAR_HOURS,
    Costs,
    Owning,
)
from dse.schema.dtypes import DTYPES
from dse.schema.loader import did_you_mean
from dse.schema.plausible import TPOT, TTFT, USD_PER_HOUR
from dse.schema.prices import PRICE_TIERS, Basis
from dse.schema.reader import (
    ByName,
    Date,
    Field,
    Flag,
    Kind,
    Listed,
    Number,
    Percent,
    Place,
    Quantity,
    Raw,
    Refused,
    Schema,
    Table,
    Text,
    Then,
    Whole,
    WithText,
    Word,
    field,
    gathered,
)
from dse.schema.traffic import Requests, Windows, mean_of
from dse.schema.workloads import SERVED

QUARTER_HOURS = YEAR_HOURS / 4.0
RENT, BUY = "rent", "buy"
# Quarters for which a rent on a basis is signed; a basis that is not here must say so itself.
TERMS = {basis: t.quarters for basis, t in PRICE_TIERS.items() if t.quarters is not None}
DAY_S = 86400.0
LENGTHS, RATES = ("prompt_tokens", "output_tokens"), ("requests_per_second", "tokens_per_day")
FROM_TRACE = (*RATES, *LENGTHS, "peak_over_average", "prefix_hit_rate")  # what a trace stands for


def _percentile(value: int) -> int:
    if value in (50, 90, 99):
        return value
    raise Refused(f"read {value}", "50, 90 or 99")


class _TokensADay:
    """Tokens of a day; 1B, or 1B/day."""

    def read(self, written: Any, at: Place) -> float | None:
        text = str(written).strip().removesuffix("/day") if isinstance(written, str) else written
        return Quantity("tokens").read(text, at)


_TIME = Quantity("s", "a time above 0")
_PRICE = Quantity("usd/h", "a price above 0; what is owned already is `stock`", usual=USD_PER_HOUR)
# Axes of a deployment that a plan chooses on.
CHOICES = ("weight_dtype", "kv_dtype", "draft_tokens", "redundant_experts")


def _choice(axis: str) -> Kind:
    """One or several values of an axis of a deployment, each once."""
    rule = AXES[axis]
    kinds = {"dtype": Word(DTYPES), "chip": Text()}
    kind = kinds.get(rule.kind, Whole(rule.least, rule.most))
    return Then(Listed(kind, one=True), lambda values: tuple(dict.fromkeys(values)))


def _chosen(axis: str) -> Any:
    return field(_choice(axis), default=(), null=True, written=axis)


# What a space says of a deployment and a plan does not, with the reason.
NOT_OF_A_PLAN = {
    name: f"is no field of a plan: {row['why']}"
    for row in rows_beside(__file__, "not_of_a_plan.csv")
    for name in row["fields"].split()
}
# Axes that a worker of either pool of its own may have.
_WORKER = Table(
    *(
        Field(axis, _choice(axis), None, meaning=AXES[axis].meaning)
        for axis in POOL_AXES["prefill"]
        if axis in POOL_AXES["decode"]
    ),
    make=lambda **axes: {axis: values for axis, values in axes.items() if values is not None},
    elsewhere=NOT_OF_A_PLAN,
)


class DemandClass(Schema, kw_only=True):
    """What is asked of a fleet for requests of one kind: who may serve them, how many come, and
    within which limits. `streams` are their lengths, as shares that sum to 1, `requests_per_s` come
    in the mean of the first quarter, which grows by `growth_per_quarter`; a fleet is sized for
    `peak_over_average` times the mean. That follows from what is `stated`, or from a trace, whose
    `source` and `windows` are kept. A study knows less: `WorkloadSpec` is the lengths of its
    requests, `schema.traffic.Demand` their tokens a second and its peak. `ttft_s` holds for the
    median of a steady load, or, with a `percentile`, for that percentile of requests that arrive at
    random, in each of their streams. `most_loss` is the quality floor. Formats, `draft_tokens` and
    `redundant_experts` are to choose from: the checkpoint's own, none and those that are tried
    where empty. `details` holds what was written of `dse.schema.workloads.SERVED`, `pools` the axes
    that a worker of either pool may have."""

    elsewhere = (
        NOT_OF_A_PLAN
        | dict.fromkeys(("backend", "disaggregated"), "stands beside `demand`")
        | {"chip": "stands under `chips`"}
    )

    name: str = field(Text(1, 40))
    model: str | None = field(Text(), default=None)
    models: tuple[str, ...] = field(Listed(Text()), default=(), null=True)
    stated: Mapping[str, Any] = gathered(
        Field("requests_per_second", Number(), None, meaning="in the mean"),
        Field("tokens_per_day", _TokensADay(), None, meaning="prompt and output"),
        Field("prompt_tokens", Whole(above=0, most=10**8), None, meaning="of one request"),
        Field("output_tokens", Whole(above=0, most=10**8), None, meaning="of one request"),
        Field("trace", Text(), None, meaning="a CSV file of requests, in place of these lines"),
        Field(
            "window", WithText(_TIME), (60.0, "60 s"), meaning="whose busiest a trace is sized for"
        ),
        Field("windows", Number(0.0, 1.0), 1.0, meaning="share of them no busier than that one"),
        Field("lengths", Whole(1, 32), None, meaning="groups of prompt lengths of a trace"),
        default={},
    )
    ttft_s: float = field(replace(_TIME, usual=TTFT), written="ttft")
    tpot_s: float = field(replace(_TIME, usual=TPOT), written="tpot")
    percentile: int | None = field(Then(Whole(), _percentile), default=None)
    peak_over_average: float = field(Number(1.0, 1000.0), default=1.0)
    growth_per_quarter: float = field(Percent(-0.9), default=0.0)
    most_loss: float = field(
        Number(above=0.0), default=math.inf, null=True, written="predicted_loss_at_most"
    )
    weight_dtypes: tuple[str, ...] = _chosen("weight_dtype")
    kv_dtypes: tuple[str, ...] = _chosen("kv_dtype")
    draft_tokens: tuple[int, ...] = _chosen("draft_tokens")
    redundant_experts: tuple[int, ...] = _chosen("redundant_experts")
    pools: Mapping[str, Mapping[str, tuple[Any, ...]]] = gathered(
        *(
            Field(pool, _WORKER, {}, meaning=f"what workers of a {pool} pool may be; else all")
            for pool in POOL_AXES
        ),
        default={pool: {} for pool in POOL_AXES},
    )
    details: Mapping[str, Any] = gathered(*SERVED, default={})
    streams: tuple[Requests, ...] = ()
    requests_per_s: float = 0.0
    source: str = ""
    windows: Windows | None = None

    @property
    def mean(self) -> Requests:
        """All requests at their mean lengths."""
        return mean_of(self.streams)

    @property
    def tokens(self) -> float:
        """Prompt and output tokens of a request, in the mean."""
        return self.mean.prompt_tokens + self.mean.output_tokens

    def mean_per_s(self, quarter: int) -> float:
        """Requests per second in the mean of a quarter, the first being 0."""
        return self.requests_per_s * (1.0 + self.growth_per_quarter) ** quarter

    def peak_per_s(self, quarter: int) -> float:
        return self.mean_per_s(quarter) * self.peak_over_average

    def check(self) -> DemandClass:
        """With its models, and with streams and rate where no trace says them."""
        stated, details = self.stated, dict(self.details)
        if "acceptance" in details and not self.draft_tokens:
            raise Refused("without draft_tokens", "draft_tokens: [0, 3], too", "acceptance")
        if bool(self.models) == bool(self.model):
            raise Refused("names no model, or both", "`model: ID` or `models: [ID, ...]`")
        cached, streams, rate = details.pop("prefix_hit_rate", 0.0), self.streams, 0.0
        if "trace" not in stated:
            for name in LENGTHS:
                if name not in stated:
                    raise Refused("is missing", "tokens, or `trace: FILE.csv`", name)
            prompt, output = (float(stated[name]) for name in LENGTHS)
            streams, rate = (Requests(1.0, prompt, output, cached),), self._per_s(prompt + output)
        models = (self.model,) if self.model else self.models
        return replace(self, models=models, details=details, streams=streams, requests_per_s=rate)

    def _per_s(self, tokens_each: float) -> float:
        """Requests per second in the mean."""
        given = [name for name in RATES if name in self.stated]
        if len(given) != 1:
            raise Refused(
                "demand is given not at all, or twice",
                "requests_per_second or tokens_per_day (prompt and output tokens)",
            )
        rate = self.stated[given[0]]
        if given == ["tokens_per_day"]:
            rate = rate / DAY_S / tokens_each
        if not 0.0 < rate < 1e9:
            nothing = ": a demand of nothing needs no fleet" if rate == 0.0 else ""
            accepted = "more than 0; leave out a class that is not served"
            raise Refused(f"read {{}}{nothing}", accepted, given[0])
        return rate


@record
class Offer:
    """One way to get a chip. `usd` is per chip-hour of rent, or the capital of a chip bought (with
    its share of server and network), in the first quarter; it changes by `price_change` a quarter
    and is fixed when ordered, at the earliest in `from_quarter`, 1 being the first. What is ordered
    in quarter q serves from q + lead_quarters on: rented for `term_quarters`, bought for
    `life_quarters`. `basis` is empty for a price of the plan's own.
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
    from_quarter: int = 1
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

    def arrives(self, ordered: int, quarters: int) -> bool:
        """Whether an order of that quarter, the first being 0, may be had within so many."""
        return self.from_quarter - 1 <= ordered < quarters - self.lead_quarters

    def usd_in(self, quarter: int) -> float:
        """The price of an order of that quarter."""
        return self.usd * (1.0 + self.price_change) ** quarter


class Ordered(Schema):
    """What a plan says of rents and purchases alike."""

    from_quarter: int = field(Whole(1, 100), default=1)
    lead_quarters: int = field(Whole(0, 100), default=0)
    chips_per_quarter: float = field(Then(Whole(0, 10**9), float), default=math.inf, null=True)
    price_change: float = field(Percent(-0.5, 0.5), default=0.0, written="price_change_per_quarter")


class Break(Schema):
    """On what a rent may be given back before its term."""

    after_quarters: int = field(Whole(1, 100))
    fee_quarters: float = field(Number(0.0, 100.0))


class Rent(Ordered):
    """A rent as it is written: on a basis, or at a price of its own."""

    basis: str | None = field(Basis(computed=True), default=None)
    price: tuple[float, str] | None = field(WithText(_PRICE), default=None)
    source: str | None = field(Text(), default=None)
    term_quarters: int | None = field(Whole(1, 100), default=None)
    back: Break | None = field(Break, default=None, written="break")
    site: str = field(Word(("own", "provider")), default="own")


class _OfCosts:
    """A figure of a chip that is a cost is refused: the lines of `costs:` say it."""

    def read(self, written: Any, at: Place) -> None:
        chip, name = at.mistakes.document.data["chips"][at.path[1]].get("chip"), at.path[-1]
        place = f"`costs: {{chips: {{{chip}: {{{name}: {written}}}}}}}`"
        at.wrong(f"read {written!r}: it is one of the costs", place)


class Buy(Ordered):
    """A purchase, at the price that `costs:` or hardware/purchases.csv gives: one written here is
    refused with where it goes."""

    price: None = field(_OfCosts(), default=None)
    server_price: None = field(_OfCosts(), default=None)


class FleetChip(Schema, kw_only=True):
    """A chip of the plan: chips of one server, watts at the meter per chip, chips that are owned
    already, and how more can be had. `classes`: those it may serve, all where empty. `owning` is
    what one takes to own, None where none is owned or bought; `sale_usd` what a buyer pays today
    for one that is owned, where the plan says it."""

    chip: str = field(Text())
    rent: tuple[Rent, ...] | None = field(Listed(Rent, one=True), default=None)
    buy: Buy | None = field(Buy, default=None)
    power: None = field(_OfCosts(), default=None)
    server: int = field(Whole(1, 10_000), default=None)
    chips_per_rack: int = field(Whole(1, 10_000), default=None)
    classes: tuple[str, ...] = field(Listed(Text()), default=())
    watts: float = math.nan
    power_words: str = ""
    rack_words: str = ""
    stock: int = 0
    offers: tuple[Offer, ...] = ()
    owning: Owning | None = None
    sale_usd: float | None = None


class Stock(Schema):
    """Chips that are owned already."""

    chip: str = field(Text())
    chips: int = field(Whole(1, 10**7))
    sale: float | None = field(Quantity("usd"), default=None)


def _limit(written: str, kind: Kind) -> Any:
    return field(kind, default=math.inf, null=True, written=written)


class Limits(Schema):
    """What no quarter may exceed, `usd_total` all of them together; infinite where not given. Usual
    is from what one small chip takes to the largest programmes that were announced (10 GW, 500
    billion dollars), with some room."""

    usd_per_hour: float = _limit("budget_per_hour", Quantity("usd/h", usual=(0.05, 1e8)))
    usd_per_quarter: float = _limit("budget_per_quarter", Quantity("usd", usual=(100.0, 2e11)))
    usd_total: float = _limit("budget_total", Quantity("usd", usual=(100.0, 5e12)))
    watts: float = _limit("power", Quantity("W", usual=(5.0, 2e10)))
    racks: float = _limit("racks", Then(Whole(1, 10**7), float))
    chips: float = _limit("chips", Then(Whole(1, 10**7), float))


SERVICE_LEVEL = Percent(0.5, 0.99)


class Uncertainty(Schema):
    """What is not known of the future. `demand` is the 80% interval of what a quarter's demand adds
    to the error of the one before, a share either way; `late` the chance that what has a lead time
    comes a quarter late; `prices` the 80% interval of prices, a share either way, None for what
    published rows say. The throughput of `measured` chips is known."""

    demand: float = field(Percent(0.0, 2.0), default=0.2)
    late: float = field(Percent(0.0, 1.0), default=0.2)
    prices: float | None = field(Percent(0.0, 2.0), default=None)
    measured: tuple[str, ...] = field(Listed(Text()), default=())


class ExchangeRate(Schema):
    """Dollars of one of a currency."""

    usd: float = field(Number(above=0.0))
    date: str = field(Date())
    source: str = field(Text(), default="")


class Plan(Schema, kw_only=True):
    """`discount_rate` is per year; `used_after_end` the share of what is signed beyond the last
    quarter that is of use then. `costs` are those of what is owned; nothing of it is spread over
    the hours that it serves, as the fleet counts what is idle. `own` has the files and the date
    that the prices rest on. With a `service_level`, that share of futures is to be served; `signed`
    has the servers that are then ordered in the first quarter, by offer, None where that is open.
    """

    elsewhere = (
        dict.fromkeys(DemandClass.table.names, "stands in a class of `demand`") | NOT_OF_A_PLAN
    )

    name: str = field(Text(1, 80))
    title: str = field(Text())
    description: str = field(Text(), default="")
    quarters: int = field(Whole(1, 20), default=4)
    price_basis: str = field(Text())
    backend: str = field(Text(), default="current")
    discount_rate: float = field(Percent(0.0, 1.0), default=None)
    used_after_end: float = field(Percent(0.0, 1.0), default=0.0)
    currency: Mapping[str, ExchangeRate] = field(
        ByName(ExchangeRate, says="such as EUR: {usd: 1.16, date: 2026-11-20, source: ECB}"),
        default={},
    )
    costs: Costs = field(Raw(), default=None)
    disaggregated: bool = field(Flag(), default=False)
    largest_instance: int = field(Whole(1, 1024), default=16)
    demand: tuple[DemandClass, ...] = field(Listed(DemandClass, 1, 20))
    chips: tuple[FleetChip, ...] = field(Listed(FleetChip, 1, 200))
    stock: tuple[Stock, ...] = field(Listed(Stock), default=())
    spares: Mapping[str, Any] = field(
        Table(
            Field("servers", Whole(0, 1000), 0, to="spare_servers"),
            Field("share", Percent(0.0, 1.0), 0.0, to="spare_share"),
        ),
        default={},
    )
    limits: Limits = field(Limits, default=Limits())
    service_level: float | None = field(SERVICE_LEVEL, default=None)
    uncertainty: Uncertainty = field(Uncertainty, default=Uncertainty())
    spare_servers: int = 0
    spare_share: float = 0.0
    file: str = ""
    own: Source = Source(Path())
    assumed: tuple[str, ...] = ()
    signed: Mapping[str, int] | None = None

    @property
    def busy(self) -> float:
        """The mean of the demand over its peak, classes by their tokens: how far what is on is
        loaded; what is spare, or left over of whole servers, is taken to be loaded alike."""
        means = [one.requests_per_s * one.tokens for one in self.demand]
        peaks = [m * one.peak_over_average for m, one in zip(means, self.demand, strict=True)]
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

    def with_offers(self, change: Callable[[Offer], Offer | None]) -> Plan:
        """Each offer as `change` makes it, without those that it makes None."""
        chips = (
            replace(one, offers=tuple(filter(None, map(change, one.offers)))) for one in self.chips
        )
        return replace(self, chips=tuple(chips))

    def check(self) -> None:
        """The lines of a plan against each other."""
        classes, chips = [row.name for row in self.demand], [row.chip for row in self.chips]
        owned = [row.chip for row in self.stock]
        for key, names in {"demand": classes, "chips": chips, "stock": owned}.items():
            for k, name in enumerate(names):
                if name in names[:k]:
                    raise Refused(f"{name!r} is listed twice", "each once", key, k)

        def among(names: Sequence[str], *path: str | int) -> None:
            for i, name in enumerate(names):
                if name not in chips:
                    message = f"{name!r} is not among `chips`{did_you_mean(name, chips)}"
                    place = path if path[-1] == "chip" else (*path, i)
                    raise Refused(message, ", ".join(chips), *place)

        for k, row in enumerate(self.stock):
            among([row.chip], "stock", k, "chip")
        for k, row in enumerate(self.demand):
            for pool, axes in row.pools.items():
                if axes and not self.disaggregated:
                    raise Refused("of one pool", "also `disaggregated: true`", "demand", k, pool)
                among(axes.get("chip", ()), "demand", k, pool, "chip")
            if row.percentile is not None and self.disaggregated:
                raise Refused(
                    "pools of their own for prefill and decode are sized for a steady load",
                    "no percentile (--percentile steady), or no `disaggregated`",
                    *("demand", k, "percentile"),
                )
        among(self.uncertainty.measured, "uncertainty", "measured")
        for k, row in enumerate(self.chips):
            for i, name in enumerate(row.classes):
                if name not in classes:
                    message = f"unknown class {name!r}{did_you_mean(name, classes)}"
                    raise Refused(message, ", ".join(classes), "chips", k, "classes", i)
