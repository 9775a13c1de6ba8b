"""A fleet plan: what is asked for, what may be bought or rented, and what must not be exceeded
(`search_spaces/plans/*.yaml` and files of the user's own)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dse import units
from dse.data import search_spaces_dir
from dse.errors import InputError
from dse.record import record
from dse.schema.axes import AXES, POOL_AXES
from dse.schema.catalog import Catalog, Source
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Cost, Costs, check_chips, read_costs
from dse.schema.dtypes import DTYPES
from dse.schema.loader import Document, KeyPath, did_you_mean, load_yaml
from dse.schema.model_catalog import resolve_model
from dse.schema.owning import (
    HOUR,
    LARGEST_DOMAIN,
    YEAR_HOURS,
    Owning,
    lacks_for_owning,
    lacks_power,
    owning,
    power_at_meter,
    rack_of,
    server_of,
)
from dse.schema.plausible import TPOT, TTFT, USD_PER_HOUR
from dse.schema.prices import COMPUTED, PRICE_TIERS, Basis
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
    read,
)
from dse.schema.trace import read_trace
from dse.schema.traffic import GROUPS, Requests, Traffic, traffic_of
from dse.schema.workloads import CURRENT_BACKEND, SERVED

QUARTER_HOURS = YEAR_HOURS / 4.0
RENT, BUY = "rent", "buy"
# Quarters for which a rent on a basis is signed; a basis that is not here must say so itself.
TERMS = {basis: t.quarters for basis, t in PRICE_TIERS.items() if t.quarters is not None}
DAY_S = 86400.0
LENGTHS, RATES = ("prompt_tokens", "output_tokens"), ("requests_per_second", "tokens_per_day")
FROM_TRACE = (*RATES, *LENGTHS, "peak_over_average", "prefix_hit_rate")  # what a trace stands for
GIVEN = "the plan given"  # what messages call a plan that is no file
LEAST_PER_S = 1e-3  # what is far less the program would round to no instance at all


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
# Axes of a deployment that a plan chooses on, and what holds where it says nothing of one.
CHOICES = {
    "weight_dtype": "the checkpoint's own",
    "kv_dtype": "the checkpoint's own",
    "draft_tokens": "none",
    "redundant_experts": "the fewest that divide, and one more a rank",
}


def _choice(axis: str) -> Kind:
    """One or several values of an axis of a deployment, each once."""
    rule = AXES[axis]
    kinds = {"dtype": Word(DTYPES), "chip": Text()}
    kind = kinds.get(rule.kind, Whole(rule.least, rule.most))
    return Then(Listed(kind, one=True), lambda values: tuple(dict.fromkeys(values)))


def _chosen(axis: str) -> Any:
    meaning = f"to choose from; {CHOICES[axis]}"
    return field(_choice(axis), default=(), null=True, written=axis, meaning=meaning)


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
    """What is asked of a fleet for requests of one kind: who may serve its `traffic`, which follows
    from what is `stated` of it, and within which limits. `ttft_s` holds for the median of a steady
    load, or, with a `percentile`, for that percentile of requests that arrive at random, in each of
    their streams. `most_loss` is the quality floor. Formats, `draft_tokens` and `redundant_experts`
    are to choose from: the checkpoint's own, none and those that are tried where empty. `details`
    holds what was written of `dse.schema.workloads.SERVED`, `pools` the axes that a worker of
    either pool may have."""

    elsewhere = (
        NOT_OF_A_PLAN
        | dict.fromkeys(("backend", "disaggregated"), "stands beside `demand`")
        | {"chip": "stands under `chips`"}
    )

    name: str = field(Text(1, 40))
    named: Mapping[str, Any] = gathered(
        Field("model", Text(), None, meaning="that serves the class"),
        Field("models", Listed(Text()), None, meaning="to choose from"),
        default={},
    )
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
    ttft_s: float = field(
        replace(_TIME, usual=TTFT), written="ttft", meaning="time to first token at most"
    )
    tpot_s: float = field(
        replace(_TIME, usual=TPOT), written="tpot", meaning="time per output token at most"
    )
    percentile: int | None = field(
        Then(Whole(), _percentile), default=None, meaning="of requests within ttft"
    )
    peak_over_average: float = field(Number(1.0, 1000.0), default=1.0)
    growth_per_quarter: float = field(Percent(-0.9), default=0.0)
    most_loss: float = field(
        Number(above=0.0),
        default=math.inf,
        null=True,
        written="predicted_loss_at_most",
        meaning="the quality floor",
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
    models: tuple[str, ...] = ()
    traffic: Traffic = Traffic((), 0.0)

    def check(self) -> DemandClass:
        """With its models, and the traffic where no trace says it."""
        stated, details = self.stated, dict(self.details)
        drafted = {"acceptance", "draft_share"} & {*details}
        if drafted and not self.draft_tokens:
            raise Refused("without draft_tokens", "draft_tokens: [0, 3], too", min(drafted))
        model, models = (self.named.get(name) for name in ("model", "models"))
        if bool(models) == bool(model):
            raise Refused("names no model, or both", "`model: ID` or `models: [ID, ...]`")
        cached, traffic = details.pop("prefix_hit_rate", 0.0), self.traffic
        if "trace" not in stated:
            for name in LENGTHS:
                if name not in stated:
                    raise Refused("is missing", "tokens, or `trace: FILE.csv`", name)
            prompt, output = (float(stated[name]) for name in LENGTHS)
            traffic = Traffic(
                (Requests(1.0, prompt, output, cached),),
                self._per_s(prompt + output),
                self.peak_over_average,
                self.growth_per_quarter,
            )
        return replace(self, models=models or (model,), traffic=traffic, details=details)

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


class _Ordered(Schema):
    """What a plan says of rents and purchases alike."""

    lead_quarters: int = field(Whole(0, 100), default=0, meaning="from the order to the first use")
    chips_per_quarter: float = field(
        Then(Whole(0, 10**9), float), default=math.inf, null=True, meaning="that can be had"
    )
    price_change: float = field(Percent(-0.5, 0.5), default=0.0, written="price_change_per_quarter")


class Break(Schema):
    """On what a rent may be given back before its term."""

    after_quarters: int = field(Whole(1, 100), meaning="from which on it may be given back")
    fee_quarters: float = field(Number(0.0, 100.0), meaning="of rent that this costs")


class Rent(_Ordered):
    """A rent as it is written: on a basis, or at a price of its own."""

    basis: str | None = field(Basis(computed=True), default=None, meaning="of hardware/prices.csv")
    price: tuple[float, str] | None = field(
        WithText(_PRICE), default=None, meaning="of your own, in place of the basis"
    )
    source: str | None = field(Text(), default=None, meaning="of that price")
    term_quarters: int | None = field(Whole(1, 100), default=None)
    back: Break | None = field(Break, default=None, written="break")
    site: str = field(
        Word(("own", "provider")), default="own", meaning="whose power and racks it takes"
    )


class Buy(_Ordered):
    """A purchase, at the price that `costs:` or hardware/purchases.csv gives: one written here is
    refused with where it goes."""

    price: Any = field(Raw(), default=None)
    server_price: Any = field(Raw(), default=None)


class FleetChip(Schema, kw_only=True):
    """A chip of the plan: chips of one server, watts at the meter per chip, chips that are owned
    already, and how more can be had. `classes`: those it may serve, all where empty. `owning` is
    what one takes to own, None where none is owned or bought; `sale_usd` what a buyer pays today
    for one that is owned, where the plan says it."""

    chip: str = field(Text())
    rent: tuple[Rent, ...] | None = field(Listed(Rent, one=True), default=None)
    buy: Buy | None = field(Buy, default=None)
    power: Any = field(Raw(), default=None, meaning="refused: it is one of the costs")
    server: int = field(Whole(1, 10_000), default=None, meaning="chips that are had at once")
    chips_per_rack: int = field(Whole(1, 10_000), default=None)
    classes: tuple[str, ...] = field(
        Listed(Text()), default=(), meaning="that it may serve; all where left out"
    )
    watts: float = math.nan
    power_words: str = ""
    rack_words: str = ""
    stock: int = 0
    offers: tuple[Offer, ...] = ()
    owning: Owning | None = None
    sale_usd: float | None = None

    def check(self) -> None:
        """A figure that is a cost is refused: the lines of `costs:` say it."""
        costs = [("power", self.power, "power")]
        if self.buy is not None:
            names = ("price", "server_price")
            costs += [(name, getattr(self.buy, name), "buy", name) for name in names]
        for name, value, *path in costs:
            if value is not None:
                place = f"`costs: {{chips: {{{self.chip}: {{{name}: {value}}}}}}}`"
                raise Refused(f"read {value!r}: it is one of the costs", place, *path)


class Stock(Schema):
    """Chips that are owned already."""

    chip: str = field(Text())
    chips: int = field(Whole(1, 10**7), meaning="owned already")
    sale: float | None = field(
        Quantity("usd"), default=None, meaning="what a buyer pays today, a chip in its server"
    )


def _limit(written: str, kind: Kind, meaning: str = "") -> Any:
    return field(kind, default=math.inf, null=True, written=written, meaning=meaning)


class Limits(Schema):
    """What no quarter may exceed, `usd_total` all of them together; infinite where not given. Usual
    is from what one small chip takes to the largest programmes that were announced (10 GW, 500
    billion dollars), with some room."""

    usd_per_hour: float = _limit("budget_per_hour", Quantity("usd/h", usual=(0.05, 1e8)))
    usd_per_quarter: float = _limit("budget_per_quarter", Quantity("usd", usual=(100.0, 2e11)))
    usd_total: float = _limit("budget_total", Quantity("usd", usual=(100.0, 5e12)))
    watts: float = _limit("power", Quantity("W", usual=(5.0, 2e10)), "at the meter")
    racks: float = _limit("racks", Then(Whole(1, 10**7), float))
    chips: float = _limit("chips", Then(Whole(1, 10**7), float))


SERVICE_LEVEL = Percent(0.5, 0.99)


class Uncertainty(Schema):
    """What is not known of the future. `demand` is the 80% interval of what a quarter's demand adds
    to the error of the one before, a share either way; `late` the chance that what has a lead time
    comes a quarter late; `prices` the 80% interval of prices, a share either way, None for what
    published rows say. The throughput of `measured` chips is known."""

    demand: float = field(
        Percent(0.0, 2.0), default=0.2, meaning="80% interval of a quarter's change, assumed"
    )
    late: float = field(
        Percent(0.0, 1.0), default=0.2, meaning="chance of a delivery a quarter late, assumed"
    )
    prices: float | None = field(
        Percent(0.0, 2.0), default=None, meaning="80% interval; else of published rows"
    )
    measured: tuple[str, ...] = field(
        Listed(Text()), default=(), meaning="chips whose throughput is known"
    )


class ExchangeRate(Schema):
    """Dollars of one of a currency."""

    usd: float = field(Number(above=0.0), meaning="of one of it")
    date: str = field(Date(), meaning="of that rate")
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
    price_basis: str = field(Text(), meaning="of what is rented")
    backend: str = field(Text(), default="current")
    discount_rate: float = field(
        Percent(0.0, 1.0), default=None, meaning="a year; the cost of capital where left out"
    )
    used_after_end: float = field(
        Percent(0.0, 1.0), default=0.0, meaning="of rents and purchases; else lost"
    )
    currency: Mapping[str, ExchangeRate] = field(
        ByName(ExchangeRate, says="such as EUR: {usd: 1.16, date: 2026-11-20, source: ECB}"),
        default={},
        meaning="of prices that are not in dollars, with its rate",
    )
    costs: Costs = field(Raw(), default=None, meaning="in place of lines of hardware/costs.yaml")
    disaggregated: bool = field(
        Flag(), default=False, meaning="pools of their own for prefill and decode"
    )
    largest_instance: int = field(Whole(1, 1024), default=16, meaning="chips")
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
    limits: Limits = field(Limits, default=Limits(), meaning="what no quarter may exceed")
    service_level: float | None = field(
        SERVICE_LEVEL, default=None, meaning="share of futures that are to be served"
    )
    uncertainty: Uncertainty = field(Uncertainty, default=Uncertainty(), meaning="of these futures")
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

    def check(self) -> None:
        """The lines of a plan against each other."""
        classes, chips = [row.name for row in self.demand], [row.chip for row in self.chips]
        for key, names in (
            ("demand", classes),
            ("chips", chips),
            ("stock", [row.chip for row in self.stock]),
        ):
            for k, name in enumerate(names):
                if name in names[:k]:
                    raise Refused(f"{name!r} is listed twice", "each once", key, k)

        def among(names: Sequence[str], *path: str | int) -> None:
            for i, name in enumerate(names):
                if name not in chips:
                    said = f"{name!r} is not among `chips`{did_you_mean(name, chips)}"
                    place = path if path[-1] == "chip" else (*path, i)
                    raise Refused(said, ", ".join(chips), *place)

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
                    said = f"unknown class {name!r}{did_you_mean(name, classes)}"
                    raise Refused(said, ", ".join(classes), "chips", k, "classes", i)


def shipped_plans() -> dict[str, Path]:
    """The shipped plans by name."""
    folder = search_spaces_dir() / "plans"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_plan(text: str) -> Path:
    """A shipped name or the path of a file. Raises InputError with near names."""
    known = shipped_plans()
    if text in known:
        return known[text]
    if Path(text).suffix in (".yaml", ".yml") or Path(text).exists():
        return Path(text)
    raise InputError(
        f"no plan {text!r}{did_you_mean(text, known)}",
        accepted=f"{', '.join(known)}, or the path of a .yaml file",
    )


def load_plan(plan: Path | str | Mapping[str, Any], catalog: Catalog) -> Plan:
    """Reads and checks one plan: a file, or what such a file says. Raises InputError with file,
    line and field."""
    document = Document(GIVEN, plan, None) if isinstance(plan, Mapping) else load_yaml(plan)
    written = document.data.get("currency")
    rates = {}
    for name, one in written.items() if isinstance(written, Mapping) else ():
        usd = one.get("usd") if isinstance(one, Mapping) else None
        if isinstance(usd, int | float) and not isinstance(usd, bool):
            rates[str(name)] = float(usd)
    document = replace(document, data=_in_dollars(document.data, rates))
    return _Resolved(document, read(Plan, document), catalog).plan()


def _in_dollars(written: Any, rates: Mapping[str, float]) -> Any:
    """What a plan says, its prices in dollars: `2 EUR/h` at 1.16 is `2.32 USD/h`."""
    if isinstance(written, Mapping):
        return {key: _in_dollars(one, rates) for key, one in written.items()}
    if isinstance(written, list):
        return [_in_dollars(one, rates) for one in written]
    for name, usd in rates.items() if isinstance(written, str) else ():
        price = re.fullmatch(rf"\s*(\d+(?:\.\d*)?)\s*{re.escape(name)}(/.*)?\s*", written)
        if price:
            return f"{float(price[1]) * usd:.10g} USD{price[2] or ''}"
    return written


def _source(cost: Cost) -> str:
    """Kind, source and date of a figure."""
    return ", ".join(part for part in (cost.kind, cost.source, cost.date) if part)


class _Resolved:
    """A plan as it is `written` with what the catalog says of its chips and prices. Its methods
    raise InputError where the two do not go together."""

    def __init__(self, document: Document, written: Plan, catalog: Catalog) -> None:
        self.document, self.written, self.catalog = document, written, catalog
        self.assumed: list[str] = [
            f"1 {name} is {one.usd:g} USD ({', '.join(filter(None, (one.date, one.source)))})"
            for name, one in written.currency.items()
        ]
        self.costs = self._costs()

    def plan(self) -> Plan:
        one = self.written
        backend = CURRENT_BACKEND if one.backend == "current" else one.backend
        if backend not in self.catalog.backends:
            known = self.catalog.backends
            said = f"unknown backend {backend!r}{did_you_mean(backend, known)}"
            raise self._wrong(("backend",), said, ", ".join(known))
        owned = {row.chip for row in one.stock} | {row.chip for row in one.chips if row.buy}
        rents = any(row.rent or row.chip not in owned for row in one.chips)
        if rents or one.price_basis not in COMPUTED:
            self._rent_basis(("price_basis",), one.price_basis)
        if one.discount_rate is None:
            one = replace(one, discount_rate=self.costs.value("cost_of_capital"))
        plan = replace(
            one,
            **one.spares,
            description=one.description.strip(),
            file=self.document.file,
            backend=backend,
            costs=self.costs,
            demand=tuple(self._class(("demand", k), row) for k, row in enumerate(one.demand)),
            chips=tuple(self._chip(("chips", k), row) for k, row in enumerate(one.chips)),
            own=self.catalog.source,
        )
        self._smallest_server(plan)
        return replace(plan, assumed=tuple(dict.fromkeys(self.assumed)))

    def _wrong(self, path: KeyPath, message: str, accepted: str) -> InputError:
        return self.document.error(path, message, accepted)

    def _costs(self) -> Costs:
        """What owning costs: the plan's own lines before those of the catalog. The share of the
        hours that carry the cost is all of them: the plan counts what is idle."""
        costs, written = self.catalog.costs, self.document.data.get("costs")
        if written is not None:
            costs = read_costs(self.document, ("costs",), written, costs)
            check_chips(costs, self.catalog.chips, self.document.file)
        if costs.value("utilisation") == 1.0:
            return costs
        if "utilisation" in (written or {}):
            said, accepted = (
                "a fleet counts what is idle itself",
                "`peak_over_average` and `spares`",
            )
            raise self._wrong(("costs", "utilisation"), said, accepted)
        self.assumed.append("`utilisation` of the costs is not used: the fleet counts what is idle")
        return costs.changed({"utilisation": 1.0})

    def _rent_basis(self, path: KeyPath, basis: str) -> None:
        """Refuses a basis that is none of rents."""
        bases = self.catalog.prices.bases()
        if basis in COMPUTED:
            said = (
                f"{basis} is no price of a rent: what is owned is `buy:` or `stock:` of the plan, "
                "at the costs of owned_tco"
            )
            raise self._wrong(path, said, ", ".join(bases))
        if basis not in bases:
            said = f"unknown price basis {basis!r}{did_you_mean(basis, bases)}"
            raise self._wrong(path, said, ", ".join(bases))

    def _class(self, at: KeyPath, row: DemandClass) -> DemandClass:
        for name in row.models:
            try:
                model = resolve_model(name)
            except InputError as error:
                named_by = "models" if row.named.get("models") else "model"
                accepted = error.accepted or "a model"
                raise self._wrong((*at, named_by), error.message, accepted) from None
            for pool, axes in () if model.experts else row.pools.items():
                if max(axes.get("expert_parallel", (1,))) > 1:
                    path = (*at, pool, "expert_parallel")
                    raise self._wrong(path, f"{name} has no experts", "no such line")
        if "trace" in row.stated:
            row = replace(row, traffic=self._trace(at, row))
        least = min(row.traffic.mean_per_s(q) for q in (0, self.written.quarters - 1))
        if least < LEAST_PER_S:
            raise self._wrong(
                at,
                f"a demand of {least:.3g} requests/s is too little for a fleet",
                f"{LEAST_PER_S:g} requests/s or more in every quarter; 2B tokens are two billion",
            )
        copies = self.document.data["demand"][at[1]].get("redundant_experts") is not None
        for name in row.models:
            model = resolve_model(name)
            if any(row.draft_tokens) and "acceptance" not in row.details and not model.drafts:
                said = f"no figure for {name}: what share of drafted tokens is accepted"
                raise self._wrong((*at, "draft_tokens"), said, "acceptance, too")
            if copies and not model.experts:
                path = (*at, "redundant_experts")
                raise self._wrong(path, f"{name} has no experts", "no such line")
        return row

    def _trace(self, at: KeyPath, row: DemandClass) -> Traffic:
        """What a trace says of a class: the peak is its busiest window. Lengths are kept apart for
        a percentile, which the longest prompts decide."""
        twice = {*FROM_TRACE} & {*self.document.data["demand"][at[1]]}
        if twice:
            raise self._wrong((*at, min(twice)), "a trace says it", "one of the two")
        file, share, (window_s, window) = (row.stated[n] for n in ("trace", "windows", "window"))
        groups = row.stated.get("lengths") or GROUPS[row.percentile or 50]
        path = Path(self.document.file).parent / file
        try:
            found = traffic_of(read_trace(path), window_s, share, groups)
        except InputError as error:
            if error.file is not None:
                raise
            accepted = error.accepted or "a time"
            raise self._wrong((*at, "window"), error.message, accepted) from None
        sized = f"busiest {window} of it"
        if share < 1.0:
            sized = f"{found.peak_per_s(0):.4g} in the {window} that {share:.4g} do not exceed"
        source = f"{file}: {found.requests_per_s:.4g} requests/s, {sized}"
        return replace(found, source=source, growth=row.growth_per_quarter)

    def _chip(self, at: KeyPath, row: FleetChip) -> FleetChip:
        try:
            self.catalog.require(row.chip)
        except InputError as error:
            raise self._wrong((*at, "chip"), error.message, error.accepted or "a chip") from None
        server = row.server or server_of(self.catalog, row.chip)
        if not row.server and server > LARGEST_DOMAIN:
            said = f"{row.chip} stands in a domain of {server} chips, which is not bought whole"
            raise self._wrong(at, said, "`server: N`, the fewest chips that are had at once")
        mine = next((one for one in self.written.stock if one.chip == row.chip), None)
        stock, sale = (0, None) if mine is None else (mine.chips, mine.sale)
        if stock % server:
            said = f"{stock} chips are no whole servers of {server}"
            raise self._wrong(("stock",), said, f"{server} x n")
        if (lack := lacks_power(self.catalog, row.chip, self.costs)) is not None:
            raise self._wrong(at, lack, f"`costs: {{chips: {{{row.chip}: {{power: 1.2 kW}}}}}}`")
        power, server_w, watts = power_at_meter(self.catalog, row.chip, self.costs)
        words = power.text
        if watts != power.value:
            words += f" x {server_w / power.value:g} (server)" if server_w != power.value else ""
            words += f" x {watts / server_w:g} (facility)"
        owned = None
        if stock or row.buy:
            if (lack := lacks_for_owning(self.catalog, row.chip, self.costs)) is not None:
                accepted = "`costs:` of the plan with it, or --costs FILE"
                raise self._wrong(("stock",) if stock else (*at, "buy"), lack, accepted)
            owned = owning(self.catalog, row.chip, self.costs)
        per_rack, rack = row.chips_per_rack, "of the plan"
        if not per_rack:
            per_rack, rack = rack_of(server)
        if per_rack % server:
            accepted = f"whole servers of {server} chips"
            raise self._wrong((*at, "chips_per_rack"), f"read {per_rack}", accepted)
        return replace(
            row,
            server=server,
            watts=watts,
            power_words=f"{words}, {_source(power)}",
            chips_per_rack=per_rack,
            rack_words=rack,
            stock=stock,
            offers=self._offers(at, row, owned, stock),
            owning=owned,
            sale_usd=sale,
        )

    def _offers(
        self, at: KeyPath, row: FleetChip, owned: Owning | None, stock: int
    ) -> tuple[Offer, ...]:
        listed = isinstance(self.document.data["chips"][at[1]].get("rent"), list)
        rents, path, basis = row.rent or (), (*at, "rent"), self.written.price_basis
        if not rents and row.buy is None and not stock:
            rents, path = (Rent(),), at
        elif row.rent is None and basis not in COMPUTED:
            price = self.catalog.prices.select(basis).get(row.chip)
            if price is not None:
                self.assumed.append(
                    f"{row.chip} is owned or bought alone: `rent: {{}}` of its line offers it at "
                    f"{price.usd_per_chip_hour:.4g} USD/h, too"
                )
        offers = []
        for i, one in enumerate(rents):
            offers += self._rent((*path, i) if listed else path, row.chip, one)
        if row.buy is not None and owned is not None:
            offers.append(self._buy((*at, "buy"), row.chip, row.buy, owned))
        labels = [offer.label for offer in offers]
        for i, label in enumerate(labels):
            if label in labels[:i]:
                raise self._wrong((*path, i), f"{label} is offered twice", "each basis once")
        return tuple(offers)

    def _rent(self, at: KeyPath, chip: str, one: Rent) -> list[Offer]:
        """A rent and, where it may be broken, the same for each shorter time that the plan may hold
        it, the fee spread over that time."""
        basis, quarters = one.basis or self.written.price_basis, self.written.quarters
        if one.price is not None:
            usd, text = one.price
            words = f"{text} (the plan's own{f': {one.source}' if one.source else ''})"
            label = f"{chip}, rent on {one.basis}" if one.basis else f"{chip}, rent"
        else:
            self._rent_basis((*at, "basis"), basis)
            price = self.catalog.prices.select(basis).get(chip)
            if price is None:
                has = sorted({row.basis for row in self.catalog.prices.rows if row.chip == chip})
                accepted = "`rent: {price: 2 USD/h}` of your own"
                accepted += f"; it has {', '.join(has)}" if has else ""
                raise self._wrong(at, f"{chip} has no price on the basis {basis}", accepted)
            usd = price.usd_per_chip_hour
            words = f"{usd:.4g} USD/h ({basis}, {price.rule})"
            label = f"{chip}, rent on {basis}"
        term = one.term_quarters or TERMS.get(basis)
        if term is None:
            raise self._wrong(at, f"the term of {basis} is not known", "`term_quarters: N`")
        offer = Offer(
            *(chip, RENT, label, usd, words),
            term_quarters=term,
            basis="" if one.price is not None else basis,
            on_site=one.site == "own",
            **self._terms(at, one),
        )
        if one.back is None:
            return [offer]
        after, fee = one.back.after_quarters, one.back.fee_quarters
        if one.chips_per_quarter < math.inf:
            said, accepted = "beside chips_per_quarter, which counts each alone", "one of the two"
            raise self._wrong((*at, "break"), said, accepted)
        if after >= term:
            said = f"read {after}: the term is {term} quarters"
            raise self._wrong((*at, "break", "after_quarters"), said, "fewer than the term")
        return [
            offer,
            *(
                replace(
                    offer,
                    label=f"{label}, back after {time} quarter{'s' * (time != 1)}",
                    usd=usd * (1.0 + fee / time),
                    words=f"{words}, and {fee:g} quarters of it to break",
                    term_quarters=time,
                    breaks=label,
                )
                for time in range(after, min(term, max(quarters, after) + 1))
            ),
        ]

    def _buy(self, at: KeyPath, chip: str, one: Buy, owned: Owning) -> Offer:
        life, price = self.costs.inputs["life"], owned.price
        if life.value < HOUR * QUARTER_HOURS:
            accepted = "`life` of a quarter or more in the costs"
            raise self._wrong(at, f"what is bought lives {life.text}", accepted)
        server = owned.server_usd / price.value
        words = (
            f"{owned.capital_usd:,.0f} USD a chip: {price.text}"
            + (f" x {server:g} (server)" if abs(server - 1.0) > 1e-9 else "")
            + f" x {owned.capital_usd / owned.server_usd:g} (network), {_source(price)}"
        )
        return Offer(
            *(chip, BUY, f"{chip}, bought", owned.capital_usd, words),
            life_quarters=life.value / HOUR / QUARTER_HOURS,
            basis=OWNED,
            **self._terms(at, one),
        )

    def _terms(self, at: KeyPath, one: _Ordered) -> dict[str, Any]:
        """What rents and purchases say alike."""
        lead, quarters = one.lead_quarters, self.written.quarters
        if lead >= quarters:
            said = f"read {lead}: nothing arrives within the {quarters} quarters"
            accepted = f"at most {quarters - 1}, or more `quarters`"
            raise self._wrong((*at, "lead_quarters"), said, accepted)
        return {line.to: getattr(one, line.to) for line in _Ordered.table.fields}

    def _smallest_server(self, plan: Plan) -> None:
        """Refuses a cap that not even one server of any chip meets."""
        limits = plan.limits
        here = all(offer.on_site for offer in plan.offers)
        power = {c.chip: c.watts * c.server for c in plan.chips if c.stock or c.offers}
        usd = {
            chip.chip: min((o.usd * chip.server for o in chip.offers if o.way == RENT), default=0.0)
            for chip in plan.chips
        }
        servers = {chip.chip: float(chip.server) for chip in plan.chips}
        for name, limit, needs, dimension in (
            ("power", limits.watts, power if here else {}, "W"),
            ("chips", limits.chips, servers, "count"),
            ("budget_per_hour", limits.usd_per_hour, usd, "usd/h"),
        ):
            chip = min(needs, key=needs.__getitem__, default=None)
            if chip is not None and limit < needs[chip]:
                need = units.format(needs[chip], dimension, 4)
                raise self._wrong(
                    ("limits", name),
                    f"read {self.document.data['limits'][name]!r}: below the smallest server, "
                    f"{plan.chip(chip).server} x {chip}, which needs {need}",
                    f"{need} or more",
                )
