"""What owning a chip costs beside its price: `hardware/costs.yaml`, and files of the user's own
that take the place of any line of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dse import units
from dse.errors import InputError, InputErrors
from dse.schema.loader import Document, KeyPath, did_you_mean, load_yaml

FILE = "costs.yaml"
BASIS = "owned_tco"
_SOURCED = ("value", "kind", "source", "date", "note")
_LISTS = ("all_in_power", "whole_machines")
# Prices of a chip, of which one is said.
_PRICES = ("price", "server_price")
_YEAR_S = 365 * 86400.0
_SHARE = {"%": 0.01, "": 1.0}
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")
_UNITS: dict[str, dict[str, float]] = {
    "share": _SHARE,
    "usd/kWh": {"USD/kWh": 1.0, "$/kWh": 1.0},
    "usd/kW-month": {"USD/kW-month": 1.0, "$/kW-month": 1.0},
    "usd/year": {"USD/year": 1.0, "$/year": 1.0},
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a line may say: its unit, and from which value to which."""

    unit: str
    least: float
    most: float
    accepted: str
    above: bool = False  # more than `least`, not equal to it

    def allows(self, value: float) -> bool:
        return value <= self.most and (value > self.least if self.above else value >= self.least)

    def read(self, written: Any) -> float:
        """A written value in the unit of `Cost`. Raises InputError."""
        try:
            value = _parse(written, self.unit)
        except InputError:
            value = math.nan
        if self.allows(value):
            return value
        raise InputError(f"read {written!r}", accepted=self.accepted)

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


_ANY = 1e6
RULES: Mapping[str, Rule] = {
    "life": Rule("s", 3600.0, 1e10, "a time of at least 1 h, such as 5 years"),
    "cost_of_capital": Rule("share", 0.0, 1.0, "0 to 100 % a year, such as 10 %"),
    "resale": Rule("share", 0.0, 1.0, "0 to 100 % of the capital"),
    "server_factor": Rule("share", 1.0, 100.0, "1 or more, such as 1.4"),
    "network_share": Rule("share", 0.0, 10.0, "0 to 1000 %, such as 19 %"),
    "maintenance": Rule("share", 0.0, 1.0, "0 to 100 % of the capital a year"),
    "staff": Rule("usd/year", 0.0, _ANY, "dollars a chip and year, such as 150 USD/year"),
    "server_power_factor": Rule("share", 1.0, 100.0, "1 or more, such as 1.82"),
    "facility_factor": Rule("share", 1.0, 100.0, "1 or more, such as 1.36"),
    "electricity": Rule("usd/kWh", 0.0, 100.0, "a price such as 0.087 USD/kWh"),
    "load_share": Rule("share", 0.0, 1.0, "0 to 100 % of the power"),
    "space": Rule("usd/kW-month", 0.0, _ANY, "a rent such as 184 USD/kW-month"),
    "utilisation": Rule("share", 0.0, 1.0, "more than 0 % and at most 100 %", above=True),
}
# Of one chip, in place of what the catalog and the lines above give.
CHIP_RULES: Mapping[str, Rule] = {
    "price": Rule("usd", 0.0, 1e9, "more than 0 USD, the chip alone, such as 30000 USD", True),
    "server_price": Rule(
        "usd", 0.0, 1e9, "more than 0 USD, a chip with its share of the server", True
    ),
    "power": Rule("W", 0.0, 1e7, "more than 0 W at the meter, such as 1.73 kW", True),
}


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Costs:
    """The inputs by name, those of single chips by chip and name. `all_in_power` are chips whose
    published system power is at the facility's meter, `whole_machines` those that need no server.
    `files` are the user's own that are in it."""

    inputs: Mapping[str, Cost] = field(default_factory=dict)
    chips: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict)
    all_in_power: frozenset[str] = frozenset()
    whole_machines: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        return self.inputs[name].value

    def of_chip(self, chip: str, name: str) -> Cost | None:
        """What is said of one chip itself."""
        return self.chips.get(chip, {}).get(name)

    def as_json(self) -> dict[str, Any]:
        """What `costs_of` reads back."""
        return {
            "inputs": {name: asdict(one) for name, one in self.inputs.items()},
            "chips": {
                chip: {name: asdict(one) for name, one in own.items()}
                for chip, own in self.chips.items()
            },
            "all_in_power": sorted(self.all_in_power),
            "whole_machines": sorted(self.whole_machines),
            "files": list(self.files),
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


def costs_of(document: Mapping[str, Any]) -> Costs:
    """The costs that a study wrote down."""
    return Costs(
        {name: Cost(**one) for name, one in document["inputs"].items()},
        {
            chip: {name: Cost(**one) for name, one in own.items()}
            for chip, own in document["chips"].items()
        },
        frozenset(document["all_in_power"]),
        frozenset(document["whole_machines"]),
        tuple(document["files"]),
    )


def load_costs(path: Path | str, base: Costs = NO_COSTS) -> Costs:
    """Reads a file of costs. Lines that it does not have are those of `base`; without a base it
    must have them all, each with source, date and kind.

    Raises InputError with the file, line and field of every mistake.
    """
    document = load_yaml(path)
    if not isinstance(document.data, Mapping):
        raise document.error((), "no lines of the form name: value", ", ".join(RULES))
    return read_costs(document, (), document.data, base, str(path))


def read_costs(
    document: Document, at: KeyPath, written: Any, base: Costs, file: str | None = None
) -> Costs:
    """The same for a part of a document, found at `at`."""
    if not isinstance(written, Mapping):
        raise document.error(at, f"read {written!r}", f"lines such as life: 4 years ({FILE})")
    known = (*RULES, "chips", *_LISTS)
    errors: list[InputError] = []
    inputs, chips = dict(base.inputs), {name: dict(own) for name, own in base.chips.items()}
    lists = {"all_in_power": base.all_in_power, "whole_machines": base.whole_machines}
    own = bool(base.inputs)
    for name, value in written.items():
        try:
            if name == "chips":
                _read_chips(document, (*at, "chips"), value, chips)
            elif name in _LISTS:
                lists[name] |= _names(document, (*at, name), value)
            elif name in RULES:
                inputs[name] = _read(document, (*at, name), name, value, RULES[name], own)
            else:
                hint = did_you_mean(name, known)
                raise document.error((*at, str(name)), f"no such cost{hint}", ", ".join(known))
        except InputErrors as error:
            errors += error.errors
        except InputError as error:
            errors.append(error)
    absent = [name for name in RULES if name not in inputs]
    if absent and not errors:
        errors.append(document.error(at, f"no {', no '.join(absent)}", "every cost"))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    files = (*base.files, file) if own and file else base.files
    return Costs(inputs, chips, lists["all_in_power"], lists["whole_machines"], files)


def check_chips(costs: Costs, chips: Iterable[str], file: str | None = None) -> None:
    """Raises InputError where costs speak of a chip that is not one; `file` is where they were
    read, else the last of their own."""
    known = set(chips)
    named = [("chips", chip) for chip in costs.chips]
    named += [("all_in_power", chip) for chip in sorted(costs.all_in_power)]
    named += [("whole_machines", chip) for chip in sorted(costs.whole_machines)]
    for where, chip in named:
        if chip not in known:
            raise InputError(
                f"unknown chip {chip!r}{did_you_mean(chip, known)}",
                file=file or (costs.files[-1] if costs.files else None),
                field=where,
                accepted="an id that `dse hardware list` prints",
            )


def _read_chips(
    document: Document, at: KeyPath, written: Any, chips: dict[str, dict[str, Cost]]
) -> None:
    example = "h100_sxm: {price: 30000 USD}"
    if not isinstance(written, Mapping):
        raise document.error(at, f"read {written!r}", example)
    for chip, lines in written.items():
        place = (*at, str(chip))
        if not isinstance(lines, Mapping):
            raise document.error(place, f"read {lines!r}", example)
        for name, value in lines.items():
            absent = document.error((*place, str(name)), "no such cost", ", ".join(CHIP_RULES))
            rule = _rule(str(name), CHIP_RULES, absent)
            cost = _read(document, (*place, name), name, value, rule, True)
            chips.setdefault(str(chip), {})[name] = cost


def _names(document: Document, at: KeyPath, written: Any) -> frozenset[str]:
    if not isinstance(written, list) or not all(isinstance(one, str) for one in written):
        raise document.error(at, f"read {written!r}", "a list of chip ids")
    return frozenset(written)


def _read(document: Document, at: KeyPath, name: str, written: Any, rule: Rule, own: bool) -> Cost:
    """One line: a mapping with its source, or, in a file of the user's own, a bare value."""
    if not isinstance(written, Mapping):
        if not own:
            raise document.error(at, f"read {written!r}", ", ".join(_SOURCED))
        value = _value(document, at, written, rule)
        return Cost(name, value, str(written), "given", document.file, "", "")
    for key in written:
        if key not in _SOURCED:
            hint = did_you_mean(key, _SOURCED)
            raise document.error((*at, str(key)), f"no such field{hint}", ", ".join(_SOURCED))
    needed = ("value",) if own else ("value", "kind", "source", "date")
    for key in needed:
        if key not in written:
            raise document.error(at, f"{key} is missing", ", ".join(needed))
    rest = {key: str(written.get(key, "")) for key in _SOURCED[1:]}
    if not own and rest["kind"] == "assumed" and not rest["note"]:
        raise document.error(at, "an assumed cost without its reason", "a `note` that says why")
    rest["kind"] = rest["kind"] or "given"
    rest["source"] = rest["source"] or document.file
    value = _value(document, (*at, "value"), written["value"], rule)
    return Cost(name, value, str(written["value"]), **rest)


def _value(document: Document, at: KeyPath, written: Any, rule: Rule) -> float:
    try:
        return rule.read(written)
    except InputError as error:
        raise document.error(at, error.message, rule.accepted) from None


def _parse(written: Any, unit: str) -> float:
    if unit not in _UNITS:
        return units.parse(written, unit)
    found = _NUMBER.fullmatch(str(written))
    factor = None if found is None or isinstance(written, bool) else _UNITS[unit].get(found[2])
    if found is None or factor is None:
        raise InputError(f"read {written!r}")
    return float(found[1]) * factor


def _set(values: Mapping[str, float], rules: Mapping[str, Rule], source: str) -> dict[str, Cost]:
    """The lines that values make. Raises InputError."""
    new = {}
    for name, value in values.items():
        rule = _rule(name, rules, InputError(f"no cost {name!r}", accepted=", ".join(rules)))
        if not rule.allows(value):
            raise InputError(f"read {value!r}", field=name, accepted=rule.accepted)
        new[name] = Cost(name, value, rule.show(value), "given", source, "", "")
    return new


def _rule(name: str, rules: Mapping[str, Rule], absent: InputError) -> Rule:
    if name in rules:
        return rules[name]
    raise InputError(
        f"{absent.message}{did_you_mean(name, rules)}",
        file=absent.file, line=absent.line, field=absent.field, accepted=absent.accepted,
    )  # fmt: skip
