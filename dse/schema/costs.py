"""What owning a chip costs beside its price: `hardware/costs.yaml`, and files of the user's own
that take the place of any line of it; and what a chip then takes to own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse import units
from dse.data import rows_beside
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import (
    ACCEPTED_CHIPS,
    Document,
    KeyPath,
    did_you_mean,
    load_yaml,
    unknown,
)
from dse.schema.plausible import near, unusual
from dse.schema.reader import (
    OPTIONAL,
    REQUIRED,
    ByName,
    Date,
    Field,
    Listed,
    Mistakes,
    Place,
    Quantity,
    Raw,
    Refused,
    Table,
    Text,
    read,
)

if TYPE_CHECKING:
    from dse.schema.catalog import Catalog
    from dse.schema.prices import PurchaseRow

FILE = "costs.yaml"
BASIS = "owned_tco"
# Prices of a chip, of which one is said.
_PRICES = ("price", "server_price")
_YEAR_S = 365 * 86400.0
_SHARE = {"%": 0.01, "": 1.0}
_AMOUNT = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
_NUMBER = re.compile(rf"{_AMOUNT}(.*?)\s*")
_UNITS: dict[str, dict[str, float]] = {
    "share": _SHARE,
    "usd/kWh": {"USD/kWh": 1.0, "$/kWh": 1.0},
    "usd/kW-month": {"USD/kW-month": 1.0, "$/kW-month": 1.0},
    "usd/year": {"USD/year": 1.0, "$/year": 1.0},
    "g/kWh": {"g/kWh": 1.0, "kg/kWh": 1e3},
}


@record
class Rule:
    """What a line may say: its unit, and from which value to which."""

    unit: str
    least: float
    most: float
    accepted: str
    above: bool = False  # more than `least`, not equal to it
    usual: tuple[float, float] | None = None  # what of one's own is doubted outside

    def allows(self, value: float) -> bool:
        return value <= self.most and (value > self.least if self.above else value >= self.least)

    def read(self, written: Any) -> float:
        """A written value in the unit of `Cost`. Raises InputError."""
        value = math.nan
        if self.unit in _UNITS:
            found = _NUMBER.fullmatch(str(written))
            if found is not None and not isinstance(written, bool):
                value = float(found[1]) * _UNITS[self.unit].get(found[2], math.nan)
        else:
            with suppress(InputError):
                value = units.parse(written, self.unit)
        if self.allows(value):
            return value
        raise InputError(f"read {written!r}", accepted=self.accepted)

    def unusual(self, value: float, known: Sequence[float] = ()) -> str:
        """What is said of a value that is far from its usual ones or, where the rule has none, from
        those that are known; nothing of others."""
        if self.usual is None and self.unit == "share":
            return ""  # their bounds are narrow enough
        step = 100.0 if self.unit == "share" else 1000.0
        return unusual(value, self.usual or near(known), self.show, step)

    def show(self, value: float) -> str:
        """A value as a person reads it."""
        if self.unit == "share":
            return f"{value:.6g}"
        if self.unit == "s":
            return f"{value / _YEAR_S:.6g} years"
        if self.unit == "W":
            return units.format(value, "W", 6)
        number = f"{value:,.0f}" if value >= 1e4 else f"{value:.6g}"
        return f"{number} {self.unit.replace('usd', 'USD')}"


def _rules(of: str) -> Mapping[str, Rule]:
    """The lines of costs.csv that are of all chips, of one `chip`, or `carbon`."""
    return {
        row["name"]: Rule(
            row["unit"],
            float(row["least"]),
            float(row["most"]),
            row["accepted"],
            above=row["above"] == "yes",
            usual=(float(row["usual_least"]), float(row["usual_most"]))
            if row["usual_least"]
            else None,
        )
        for row in rows_beside(__file__, "costs.csv")
        if row["of"] == of
    }


RULES = _rules("all")
# Of one chip, in place of what the catalog and the lines above give.
CHIP_RULES = _rules("chip")
# Grams of CO2 of a kWh, which costs nothing here and is counted.
CARBON = _rules("carbon")["carbon"]


@record
class Cost:
    """One input. `value` is in dollars, seconds, watts, shares, USD/kWh, USD/kW-month or USD/year;
    `text` is what the file says. `kind` is that of a figure, or `given` where the user wrote a bare
    value."""

    name: str
    value: float
    text: str
    kind: str
    source: str
    date: str
    note: str


# What a line of one's own is paid for: a part of a unit, and of a year how often.
THINGS = ("chip", "server", "rack", "GB")
PERIODS = {"year": 1.0, "month": 12.0, "hour": 8760.0}
_LINE = re.compile(
    rf"{_AMOUNT}(?:%|(?:USD|\$)/({'|'.join(THINGS)})(?:-({'|'.join(PERIODS)}))?)\s*",
)
LINES = (
    "USD a chip, server, rack or GB and year, month or hour, such as 4500 USD/chip-year; a sum "
    "once (2000 USD/rack); or a share of the capital a year (0.5 %)"
)


@record
class CostLine(Cost):
    """A line of one's own: `value` dollars a year for one of THINGS (with `once` dollars that are
    spread over the life), or for `capital` the share of it a year. Of GB each chip has `gb`. One
    that is not `counted` is known with its source, for who asks for it by name."""

    per: str
    once: bool
    gb: float
    counted: bool


@record
class Costs:
    """The inputs by name, those of single chips by chip and name, and `lines` of one's own.
    `all_in_power` are chips whose published system power is at the facility's meter,
    `whole_machines` those that need no server. `files` are the user's own that are in it; documents
    name them without their folders. `regions` are electricity and carbon by name, `carbon` the CO2
    of a kWh where it is said."""

    inputs: Mapping[str, Cost] = field(default_factory=dict)
    chips: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict)
    all_in_power: frozenset[str] = frozenset()
    whole_machines: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    lines: Mapping[str, CostLine] = field(default_factory=dict)
    regions: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict)
    carbon: Cost | None = None

    def value(self, name: str) -> float:
        return self.inputs[name].value

    def of_chip(self, chip: str, name: str) -> Cost | None:
        """What is said of one chip itself."""
        return self.chips.get(chip, {}).get(name)

    @property
    def counted(self) -> dict[str, CostLine]:
        """The lines that are part of a price."""
        return {name: one for name, one in self.lines.items() if one.counted}

    def as_json(self) -> dict[str, Any]:
        """What `costs_of` reads back."""
        return {
            "inputs": _documents(self.inputs),
            "chips": {chip: _documents(own) for chip, own in self.chips.items()},
            "all_in_power": sorted(self.all_in_power),
            "whole_machines": sorted(self.whole_machines),
            "files": [Path(file).name for file in self.files],
            "lines": _documents(self.counted),
        }

    def values(self) -> dict[str, Any]:
        """All that decides a price, without sources."""
        own = {
            f"{chip} {name}": one.value
            for chip, lines in self.chips.items()
            for name, one in lines.items()
        }
        lists = {"all_in_power": self.all_in_power, "whole_machines": self.whole_machines}
        return {
            **{name: one.value for name, one in self.inputs.items()},
            **own,
            **{name: sorted(chips) for name, chips in lists.items()},
            **{f"{n} per {one.per}": (one.value, one.gb) for n, one in self.counted.items()},
        }

    def changed(
        self,
        values: Mapping[str, float],
        chips: Mapping[str, Mapping[str, float]] | None = None,
        source: str = "given",
    ) -> Costs:
        """The same with inputs set, and those of single chips, in the units of `Cost`; of a chip's
        `price` and `server_price`, one takes the place of the other. Raises InputError for a name
        that does not exist or a value that it cannot have."""
        own = {chip: dict(lines) for chip, lines in self.chips.items()}
        for chip, lines in (chips or {}).items():
            if set(_PRICES) <= set(lines):
                message = f"price and server_price of {chip}: both say what it costs to buy"
                raise InputError(message, accepted="one of the two")
            new = _set(lines, CHIP_RULES, source)
            drop = _PRICES if set(_PRICES) & set(new) else ()
            kept = {name: one for name, one in own.get(chip, {}).items() if name not in drop}
            own[chip] = kept | new
        return replace(self, inputs={**self.inputs, **_set(values, RULES, source)}, chips=own)


NO_COSTS = Costs()


def _documents(costs: Mapping[str, Cost]) -> dict[str, dict[str, Any]]:
    return {name: asdict(one) for name, one in costs.items()}


def costs_of(document: Mapping[str, Any]) -> Costs:
    """The costs that a study wrote down."""

    def read(costs: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
        return {name: Cost(**one) for name, one in costs.items()}

    return Costs(
        read(document["inputs"]),
        {chip: read(own) for chip, own in document["chips"].items()},
        frozenset(document["all_in_power"]),
        frozenset(document["whole_machines"]),
        tuple(document["files"]),
        {name: CostLine(**one) for name, one in document.get("lines", {}).items()},
    )


def load_costs(path: Path | str, base: Costs = NO_COSTS) -> Costs:
    """Reads a file of costs. Lines that it does not have are those of `base`; without a base it
    must have them all, each with source, date and kind.

    Raises InputError with the file, line and field of every mistake.
    """
    document = load_yaml(path)
    return read_costs(document, (), document.data, base, str(path))


def read_costs(
    document: Document, at: KeyPath, written: Any, base: Costs, file: str | None = None
) -> Costs:
    """The same for a part of a document, found at `at`."""
    own = bool(base.inputs)
    found = read(OWN_COSTS if own else COSTS, document, at, written)
    of_chips, chips = found.pop("chips"), dict(base.chips)
    for chip, of_chip in of_chips.items():
        chips[chip] = {**chips.get(chip, {}), **of_chip}
    lines = dict(base.lines)
    for name, line in found.pop("lines").items():
        if line is None and name not in base.lines:
            known = ", ".join(base.lines)
            raise document.error((*at, "lines", name), "no shipped line of that name", known)
        lines[name] = replace(base.lines[name], counted=True) if line is None else line
    regions = {**base.regions, **found.pop("regions")}
    region, carbon = found.pop("region", None), found.pop("carbon", None)
    if region is not None and region not in regions:
        message = f"unknown region {region!r}{did_you_mean(region, regions)}"
        raise document.error((*at, "region"), message, ", ".join(regions))
    if own:
        _doubt(document, at, base, {**found, **({"carbon": carbon} if carbon else {})})
        for name in regions.keys() - base.regions.keys():
            _doubt(document, (*at, "regions", name), base, regions[name])
        for chip, lines_of in of_chips.items():
            _doubt(document, (*at, "chips", chip), base, lines_of)
    power = {name: one for name, one in regions.get(region or "", {}).items() if name != "carbon"}
    return Costs(
        lines=lines,
        chips=chips,
        regions=regions,
        carbon=carbon or regions.get(region or "", {}).get("carbon", base.carbon),
        all_in_power=base.all_in_power | {*found.pop("all_in_power")},
        whole_machines=base.whole_machines | {*found.pop("whole_machines")},
        inputs={**base.inputs, **power, **found},
        files=(*base.files, file) if own and file else base.files,
    )


def _doubt(document: Document, at: KeyPath, base: Costs, found: Mapping[str, Cost]) -> None:
    """Warns of lines that are far from those of `base`, or from any chip's."""
    carbon = [one["carbon"].value for one in base.regions.values() if "carbon" in one]
    for name, one in found.items():
        rule = {"carbon": CARBON, **CHIP_RULES, **RULES}.get(name)
        shipped = [base.inputs[name].value] if name in base.inputs else []
        if rule and (message := rule.unusual(one.value, carbon if name == "carbon" else shipped)):
            Place(Mistakes(document), (*at, name)).doubt(f"read {one.text!r}{message}")


def _sourced(own: bool) -> tuple[Field, ...]:
    """Where a value comes from, which the user's own file need not say."""
    needed = "" if own else REQUIRED
    return (
        *(Field(name, Text(), needed) for name in ("kind", "source")),
        Field("date", Date(), needed),
        Field("note", Text(), ""),
    )


@record
class _Amount:
    """(value, text) of a line."""

    rule: Rule

    def read(self, written: Any, at: Place) -> tuple[float, str] | None:
        value = at.call(lambda: self.rule.read(written))
        return None if value is None else (value, str(written))


class _Line:
    """One line: a mapping with its source, or, in a file of the user's own, a bare value."""

    def __init__(self, rule: Rule, own: bool) -> None:
        self.own, self.amount = own, _Amount(rule)
        self.table = Table(Field("value", self.amount, meaning=rule.accepted), *_sourced(own))

    def read(self, written: Any, at: Place) -> Cost | None:
        name, file = str(at.path[-1]), at.mistakes.document.file
        if self.own and not isinstance(written, Mapping):
            found = self.amount.read(written, at)
            return found and Cost(name, *found, "given", file, "", "")
        found = self.table.read(written, at)
        if found is None:
            return None
        if not self.own and found["kind"] == "assumed" and not found["note"]:
            return at.wrong("an assumed cost without its reason", "a `note` that says why")
        kind, source = found["kind"] or "given", found["source"] or file
        value, text = found["value"]
        return Cost(name, value, text, kind, source, found["date"], found["note"])


_GB = units.parse("1 GB", "bytes")


class _OwnLine:
    """A line of one's own: a value, a mapping with its source, or `shipped` (None)."""

    def __init__(self, own: bool) -> None:
        self.own = own
        self.table = Table(
            Field("value", Raw(), meaning=LINES),
            Field("amount", Quantity("bytes"), None, meaning="of GB, that of one chip"),
            *_sourced(own),
        )

    def read(self, written: Any, at: Place) -> CostLine | None:
        if self.own and written == "shipped":
            return None
        bare = self.own and not isinstance(written, Mapping)
        found = self.table.read({"value": written} if bare else written, at)
        if found is None or found["value"] is None:
            return None
        return at.call(lambda: self._made(str(at.path[-1]), at.mistakes.document.file, **found))

    def _made(
        self, name: str, file: str, value: Any, amount: float | None, **found: str
    ) -> CostLine:
        written = _LINE.fullmatch(str(value))
        if written is None:
            raise Refused(f"read {value!r}", LINES, "value")
        number, per, often = float(written[1]), *written.groups()[1:]
        if not 0.0 <= number <= (1e9 if per else 100.0):
            raise Refused(f"read {value!r}", "0 or more; of a share at most 100 %", "value")
        if per == "GB" and amount is None:
            message, accepted = f"read {value!r}: of how much?", "amount: 2 TB, that of one chip"
            raise Refused(message, accepted, "amount")
        return CostLine(
            name=name,
            value=number * PERIODS.get(often, 1.0) if per else number / 100.0,
            text=str(value),
            per=per or "capital",
            once=bool(per) and often is None,
            gb=(amount or 0.0) / _GB if per else 0.0,
            counted=self.own,
            **found | {"kind": found["kind"] or "given", "source": found["source"] or file},
        )


def _region(electricity: Any, carbon: Any, **found: Any) -> dict[str, Cost]:
    """Its price of electricity and, where it is said, the CO2 of a kWh, from one source."""
    found["kind"] = found["kind"] or "given"
    figures = {"electricity": electricity, "carbon": carbon}
    return {name: Cost(name, *one, **found) for name, one in figures.items() if one is not None}


def _costs(own: bool) -> Table[dict[str, Any]]:
    """The table of a file of costs: of the catalog, each line is there, or the user's `own`."""
    example = "h100_sxm: {price: 30000 USD}"
    chip = Table(*(Field(n, _Line(r, True), OPTIONAL) for n, r in CHIP_RULES.items()), says=example)
    names = Listed(Text(), says="a list of chip ids")
    region = Table(
        Field("electricity", _Amount(RULES["electricity"])),
        Field("carbon", _Amount(CARBON), None, meaning="CO2 of a kWh, such as 380 g/kWh"),
        *_sourced(own),
        make=_region,
    )
    place = (
        Field("region", Text(), OPTIONAL, meaning="of these, whose electricity and CO2 count"),
        Field("carbon", _Line(CARBON, True), OPTIONAL, meaning=CARBON.accepted),
    )
    lines = ByName(_OwnLine(own), says="such as software licence: 4500 USD/chip-year")
    return Table(
        *(Field(n, _Line(rule, own), OPTIONAL if own else REQUIRED) for n, rule in RULES.items()),
        Field("chips", ByName(chip, says=example), {}, meaning="in place of these lines, by chip"),
        Field("lines", lines, {}, meaning="of one's own, by name, or shipped"),
        Field("regions", ByName(region), {}, meaning="electricity and CO2 where chips stand"),
        *(place if own else ()),
        Field("all_in_power", names, (), meaning="chips whose system power is at the meter"),
        Field("whole_machines", names, (), meaning="chips that need no server"),
        says=f"lines such as life: 4 years ({FILE})",
    )


COSTS, OWN_COSTS = _costs(own=False), _costs(own=True)


def check_chips(costs: Costs, chips: Iterable[str], file: str | None = None) -> None:
    """Raises InputError where costs speak of a chip that is not one; `file` is where they were
    read, else the last of their own."""
    known = set(chips)
    named = [("chips", chip) for chip in costs.chips]
    named += [("all_in_power", chip) for chip in sorted(costs.all_in_power)]
    named += [("whole_machines", chip) for chip in sorted(costs.whole_machines)]
    for where, chip in named:
        if chip not in known:
            place = file or (costs.files[-1] if costs.files else None)
            raise unknown("unknown chip", chip, known, ACCEPTED_CHIPS, file=place, field=where)


def _set(values: Mapping[str, float], rules: Mapping[str, Rule], source: str) -> dict[str, Cost]:
    """The lines that values make. Raises InputError."""
    new = {}
    for name, value in values.items():
        if name not in rules:
            raise unknown("no cost", name, rules)
        rule = rules[name]
        if not rule.allows(value):
            raise InputError(f"read {value!r}", field=name, accepted=rule.accepted)
        new[name] = Cost(name, value, rule.show(value), "given", source, "", "")
    return new


# What a chip takes to own, in dollars and watts, the published figures that these rest on, and
# which chips can be priced as owned (`owned_tco`).

# What a buyer pays, most telling kind first: the street, the list, a share of a whole system, the
# list at launch. Ends of a range, what a chip costs to make and guesses are no buyer's price.
KINDS = (
    ("purchase_street", "purchase_new"),
    ("msrp", "purchase_msrp", "purchase_kit", "list_single_unit"),
    ("purchase_system",),
    ("msrp_launch",),
)
HOUR = 3600.0
YEAR_HOURS = 8760.0


def buyers_rows(rows: Iterable[PurchaseRow], chip: str) -> tuple[PurchaseRow, ...]:
    """The rows of a chip that are of the first kind of KINDS that it has any of."""
    mine = [row for row in rows if row.chip == chip]
    for kinds in KINDS:
        if found := tuple(row for row in mine if row.kind in kinds):
            return found
    return ()


def capital_rows(catalog: Catalog, chip: str) -> tuple[PurchaseRow, ...]:
    """Published prices of a whole system where there are any, else what a buyer pays."""
    system = tuple(
        row for row in catalog.purchases if row.chip == chip and row.kind == "purchase_system"
    )
    return system or buyers_rows(catalog.purchases, chip)


def own_cost(catalog: Catalog, costs: Costs, chip: str, name: str) -> Cost | None:
    """What is said of a chip itself, or of the one that it was derived from."""
    return costs.of_chip(chip, name) or costs.of_chip(catalog.chips[chip].derived_from, name)


def lacks_for_owning(catalog: Catalog, chip: str, costs: Costs | None = None) -> str | None:
    """Why a chip cannot be priced as owned; None where it can."""
    costs = costs or catalog.costs
    given = any(own_cost(catalog, costs, chip, name) for name in ("price", "server_price"))
    if not given and not capital_rows(catalog, chip):
        return (
            f"{chip} has no price that a buyer pays; a file for --costs may say one: "
            f"chips: {{{chip}: {{price: 30000 USD}}}}"
        )
    return lacks_power(catalog, chip, costs)


def lacks_power(catalog: Catalog, chip: str, costs: Costs | None = None) -> str | None:
    """Why the power at the meter of a chip is not known; None where it is."""
    spec = catalog.chips[chip]
    unknown = spec.tdp_w is None and spec.system_w_per_chip is None
    if unknown and own_cost(catalog, costs or catalog.costs, chip, "power") is None:
        return (
            f"{chip} has no rated power, which its electricity needs; a file for --costs may say "
            f"it: chips: {{{chip}: {{power: 1.2 kW}}}}"
        )
    return None


@record
class Owning:
    """What an owned chip takes: dollars of the chip with its share of the server and of the network
    between them, watts of the server and at the meter, and the figures that these rest on; `lines`
    of one's own are dollars a chip and year, with what they follow from."""

    server_usd: float
    network_usd: float
    server_w: float
    meter_w: float
    price: Cost
    power: Cost
    lines: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def capital_usd(self) -> float:
        return self.server_usd + self.network_usd


def owning(catalog: Catalog, chip: str, costs: Costs | None = None) -> Owning:
    """What a chip takes to own, on the catalog's costs or others.

    Raises InputError for a chip that lacks a price or a power.
    """
    _refuse(lacks_for_owning(catalog, chip, costs))
    costs = costs or catalog.costs
    price, server = _server_price(catalog, chip, costs)
    power, server_w, meter_w = power_at_meter(catalog, chip, costs)
    network = server * costs.value("network_share")
    lines = _lines(catalog, chip, costs, server + network)
    return Owning(server, network, server_w, meter_w, price, power, lines)


def _lines(
    catalog: Catalog, chip: str, costs: Costs, capital_usd: float
) -> dict[str, tuple[float, str]]:
    """(dollars a chip and year, what they follow from) of the lines of one's own."""
    server = server_of(catalog, chip)
    chips = {"chip": 1, "server": server, "rack": rack_of(server)[0], "GB": 1}
    years = costs.value("life") / HOUR / YEAR_HOURS
    found = {}
    for name, one in costs.counted.items():
        if one.per == "capital":
            found[name] = one.value * capital_usd, f"{one.text} of {capital_usd:,.0f} USD a year"
            continue
        usd = one.value / chips[one.per] * (one.gb if one.per == "GB" else 1.0)
        words = f"{one.text}, {chips[one.per]} chips" if chips[one.per] > 1 else one.text
        words += f" x {one.gb:,.0f} GB" if one.per == "GB" else ""
        found[name] = (usd / years, f"{words} / {years:.3g} years") if one.once else (usd, words)
    return found


def power_at_meter(
    catalog: Catalog, chip: str, costs: Costs | None = None
) -> tuple[Cost, float, float]:
    """(what it rests on, watts of a chip with its share of the server, watts at the meter), for a
    chip that has a price and for one that has none.

    Raises InputError for a chip without a power.
    """
    _refuse(lacks_power(catalog, chip, costs))
    costs = costs or catalog.costs
    facility, spec = costs.value("facility_factor"), catalog.chips[chip]
    if (given := own_cost(catalog, costs, chip, "power")) is not None:
        return given, given.value / facility, given.value
    figure = spec.figure("system_power") or spec.figure("tdp")
    assert figure is not None, "a chip without power lacks_power"
    rest = (figure.kind, figure.source, str(figure.date), figure.note or "")
    cost = Cost(figure.name, figure.value, figure.text, *rest)
    names = {chip, spec.derived_from}
    if names & costs.all_in_power and figure.name == "system_power":
        return cost, figure.value / facility, figure.value
    server_w = figure.value
    if figure.name == "tdp" and not names & costs.whole_machines:
        server_w *= costs.value("server_power_factor")
    return cost, server_w, server_w * facility


def _refuse(lack: str | None) -> None:
    if lack is not None:
        raise InputError(lack, field="chip", accepted="a chip with that figure")


def _server_price(catalog: Catalog, chip: str, costs: Costs) -> tuple[Cost, float]:
    """(what the capital rests on, dollars of a chip with its share of the server)."""
    names = {chip, catalog.chips[chip].derived_from}
    factor = 1.0 if names & costs.whole_machines else costs.value("server_factor")
    if (given := own_cost(catalog, costs, chip, "server_price")) is not None:
        return given, given.value
    if (given := own_cost(catalog, costs, chip, "price")) is not None:
        return given, given.value * factor
    rows = capital_rows(catalog, chip)
    from statistics import median  # noqa: PLC0415 - 7 ms that few commands need

    usd = median(row.usd_per_chip for row in rows)
    kinds = ", ".join(dict.fromkeys(f"{row.kind}, {row.provider}" for row in rows))
    cost = Cost(
        name="server_price" if rows[0].kind == "purchase_system" else "price",
        value=usd,
        text=f"{usd:,.0f} USD",
        kind="claimed",
        source="; ".join(dict.fromkeys(row.source for row in rows)),
        date=max(row.date for row in rows),
        note=f"median of {len(rows)}: {kinds}" if len(rows) > 1 else kinds,
    )
    return cost, usd if cost.name == "server_price" else usd * factor


# The fewest chips that are had at once.

LARGEST_DOMAIN = 72  # a larger scale-up domain is not sold whole
SERVERS_PER_RACK = 4


def server_of(catalog: Catalog, chip: str) -> int:
    """Chips of the scale-up domain, which up to LARGEST_DOMAIN is a server or a rack (assumed to be
    had whole)."""
    return catalog.systems[catalog.chip(chip).system].levels[0].size or 1


def rack_of(server: int) -> tuple[int, str]:
    """(chips of a rack, why) of servers of so many."""
    if server < LARGEST_DOMAIN:
        return SERVERS_PER_RACK * server, f"assumed: {SERVERS_PER_RACK} servers in a rack"
    return server, "a server that fills a rack"
