"""Hypothetical chips: a chip of the catalog with some of its figures changed.

The result is a chip file in full form. What is unchanged keeps its value, source, kind and date;
what is changed is `assumed`, and its note says from what. The id begins with `hypothetical_`.
"""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dse import units
from dse.data import hardware_dir, rows_beside
from dse.errors import InputError
from dse.record import record
from dse.schema.catalog import Catalog
from dse.schema.chip import DIMENSION, HYPOTHETICAL
from dse.schema.loader import Document, did_you_mean, load_yaml
from dse.schema.own_chip import OwnChip, read_full_form, read_own_chip
from dse.schema.reader import UNDATED, together
from dse.schema.system import TOPOLOGIES

SOURCE = "dse catalog chips derive"
PEAKS = tuple(name for name in DIMENSION if name.startswith("peak_"))
DEVICE = ("memory_capacity", "memory_capacity_driver_reported")
_ROWS = rows_beside(__file__, "derive.csv")
# Quantities of the fabric: the level (0: scale-up, -1: scale-out), its field, its dimension.
FABRIC = {
    row["figure"]: (int(row["level"]), row["field"], row["dimension"])
    for row in _ROWS
    if row["field"]
}
ALIASES = {alias: row["figure"] for row in _ROWS for alias in row["aliases"].split()}
ALIASES |= {name.removeprefix("peak_"): name for name in PEAKS}
_FACTOR = re.compile(r"(?:[x×]\s*([0-9.eE+-]+)|([0-9.eE+-]+)\s*[x×])")
_PERCENT = re.compile(r"([+-][0-9.eE]+)\s*%")
WAYS = "a factor (1.5x), a percentage (+20%) or a value with its unit"


@record
class Setting:
    """One `--set NAME=VALUE`. `factor` is None where a value was given; `says` is the factor as
    written: `1.5 x` or `+20% of`."""

    written: str
    name: str
    value: str
    factor: Decimal | None
    says: str


@dataclass(slots=True)
class _Derivation:
    """A chip file, and a system where links change, while they are edited."""

    parent: str
    chip: dict[str, Any]
    system: dict[str, Any]
    prices: dict[str, dict[str, str]]
    catalog: Catalog
    changes: list[str] = field(default_factory=list)
    fabric_changed: bool = False


def derive(
    catalog: Catalog, parent: str, settings: Sequence[str], name: str | None = None
) -> OwnChip:
    """The chip `parent` with `settings`, each `NAME=VALUE`. Its laws are those of the parent, as
    `derived`; its prices are the parent's, as assumed, unless set.

    Raises InputError with every wrong setting: an unknown name, a factor that is not above zero, a
    unit of another dimension, a factor of a figure that the parent does not have.
    """
    work = _start(catalog, parent)
    errors: list[InputError] = []
    seen: dict[str, str] = {}
    found = []
    for written in settings:
        try:
            setting = read_setting(written, catalog)
            for target in _targets(setting.name):
                if target in seen:
                    message = f"{target} is set by {seen[target]} too"
                    raise _refuse(written, message, "each figure once")
                seen[target] = written
            _apply(work, setting)
            found.append(setting)
        except InputError as error:
            errors.append(error)
    if not settings:
        accepted = ", ".join(_known(catalog))
        errors.append(InputError("nothing is changed", field="--set", accepted=accepted))
    if errors:
        raise together(errors)
    if "tdp" in seen and "matmul_power" not in seen:
        _keep_draw(work)
    return _finish(work, found, name)


def read_setting(written: str, catalog: Catalog) -> Setting:
    """Raises InputError for what is no `NAME=VALUE` of a known name."""
    name, equals, value = (text.strip() for text in written.partition("="))
    if not (equals and name and value):
        raise _refuse(written, "not NAME=VALUE", "hbm_bandwidth=1.5x")
    key = name.lower().replace("-", "_")
    key = ALIASES.get(key, key)
    known = _known(catalog)
    if key not in known:
        hint = did_you_mean(key, [*known, *ALIASES])
        raise _refuse(written, f"unknown figure {name!r}{hint}", ", ".join(_known(catalog)))
    factor, says = _factor(written, value)
    if key == "topology" and value not in TOPOLOGIES:
        hint = did_you_mean(value, TOPOLOGIES)
        raise _refuse(written, f"read {value!r}{hint}", ", ".join(TOPOLOGIES))
    return Setting(written, key, value, factor, says)


def _factor(written: str, value: str) -> tuple[Decimal | None, str]:
    """(1.5, "1.5 x") of `1.5x`, (1.2, "+20% of") of `+20%`; (None, "") of a value."""
    percent, times = _PERCENT.fullmatch(value), _FACTOR.fullmatch(value)
    if not (percent or times):
        return None, ""
    digits = percent[1] if percent else (times[1] or times[2]) if times else ""
    try:
        number = Decimal(digits)
    except ArithmeticError:
        raise _refuse(written, f"read {value!r}", WAYS) from None
    factor = 1 + number / 100 if percent else number
    if not (factor.is_finite() and Decimal("1e-6") <= factor <= Decimal("1e6")):
        accepted = "more than -100%" if percent else "a factor above zero, from 1e-6 to 1e6"
        raise _refuse(written, f"read {value!r}", accepted)
    return factor, f"{digits}% of" if percent else f"{number:f} x"


def _known(catalog: Catalog) -> tuple[str, ...]:
    own = [name for name in DIMENSION if name not in DEVICE]
    prices = [f"price.{basis}" for basis in catalog.prices.bases()]
    return (*own, "memory_capacity_driver_reported", "capacity", "flops", *FABRIC, "price", *prices)


def _targets(name: str) -> tuple[str, ...]:
    if name == "flops":
        return PEAKS
    return DEVICE if name == "capacity" else (name,)


def _refuse(written: str, message: str, accepted: str) -> InputError:
    return InputError(message, field=f"--set {written}", accepted=accepted)


def _start(catalog: Catalog, parent: str) -> _Derivation:
    """The parent in full form, with the prices that it has."""
    chip = catalog.chip(parent)
    full = read_own_chip(chip.file, efficiency=catalog.source.efficiency).document.data
    system = full["system"]
    if not isinstance(system, Mapping):
        system = load_yaml(hardware_dir() / "systems" / f"{system}.yaml").data
    prices = {}
    for basis in catalog.prices.bases():
        price = catalog.prices.select(basis).get(parent)
        if price is not None:
            prices[basis] = {
                "value": f"{price.usd_per_chip_hour:.12g} USD/h",
                "kind": "assumed",
                "source": "; ".join(price.sources),
                "date": price.newest_date,
                "note": f"that of {parent} ({price.rule})",
            }
    copied = copy.deepcopy(dict(full))
    return _Derivation(parent, copied, copy.deepcopy(dict(system)), prices, catalog)


def _apply(work: _Derivation, setting: Setting) -> None:
    """Several figures change by one factor; peaks to a value in proportion to that of bf16, and a
    capacity to a value is what the label and the driver would both say."""
    name, targets = setting.name, _targets(setting.name)
    if name in FABRIC:
        return _set_fabric(work, setting)
    if name == "price" or name.startswith("price."):
        return _set_prices(work, setting)
    figures = work.chip["figures"]
    own = [target for target in targets if target in figures] or [targets[0]]
    if name == "flops" and setting.factor is None:
        if "peak_bf16" not in figures:
            message = f"{work.parent} has no peak_bf16 that the others would follow"
            raise _refuse(setting.written, message, "a factor, or peaks one by one")
        wanted = _value(setting, "flop/s")
        ratio = wanted / units.parse(str(figures["peak_bf16"]["value"]), "flop/s")
        setting = Setting(setting.written, name, "", Decimal(repr(ratio)), f"{ratio:.6g} x")
    elif name == "flops" and own[0] not in figures:
        raise _refuse(setting.written, f"{work.parent} has no peak", "peaks one by one")
    elif name == "capacity" and setting.factor is None:
        own = [DEVICE[0]]
    for target in own:
        before = figures.get(target)
        figures[target] = _changed(work, setting, target, before, DIMENSION[target])
    if name == "capacity" and setting.factor is None:
        figures.pop(DEVICE[1], None)
    return None


def _set_fabric(work: _Derivation, setting: Setting) -> None:
    """One figure of one level. Where the links of a chip change, so does one link to a peer."""
    index, key, dimension = FABRIC[setting.name]
    level = work.system["levels"][index]
    before = level.get(key)
    total = _number(level.get("bandwidth_per_direction"))
    level[key] = _changed(work, setting, setting.name, before, dimension)
    work.fabric_changed = True
    if setting.name == "domain":
        size = _number(level["size"]) or 0.0
        beyond = [_number(one.get("size")) or math.inf for one in work.system["levels"][1:]]
        least = min(beyond, default=math.inf)
        if size >= least:
            message = f"a domain of {size:g} is not smaller than the level around it"
            raise _refuse(setting.written, message, f"less than {least:g}")
    pair = _number(level.get("bandwidth_per_pair"))
    if pair is None or setting.name not in ("topology", "domain", "scale_up_bandwidth"):
        return
    # Without its own figure a mesh or torus divides the bandwidth evenly (`dse.physics.fabrics`).
    if setting.name == "scale_up_bandwidth" and total:
        value = pair * (_number(level[key]) or 0.0) / total
        text = units.format(value, "bytes/s", 12)
        level["bandwidth_per_pair"] = _figure(text, "in proportion to all links")
    elif setting.name == "topology" or level["topology"]["value"] != "dragonfly":
        level.pop("bandwidth_per_pair")


def _set_prices(work: _Derivation, setting: Setting) -> None:
    """One basis; `price` alone, by a factor, every basis that the parent has a price on."""
    _, _, basis = setting.name.partition(".")
    if not basis and setting.factor is None:
        accepted = ", ".join(f"price.{name}" for name in work.catalog.prices.bases())
        raise _refuse(setting.written, "a price on which basis?", f"a factor, or {accepted}")
    for name in [basis] if basis else list(work.prices):
        before = work.prices.get(name)
        work.prices[name] = _changed(work, setting, f"price.{name}", before, "usd/h")
    if not work.prices:
        raise _refuse(setting.written, f"{work.parent} has no price", "price.BASIS=3USD/h")


def _keep_draw(work: _Derivation) -> None:
    """A chip with less `tdp` than its parent is the same silicon on less power: what it draws at
    its measured rate of large matrix products stays, so that its clock must fall
    (`dse.physics.energy`). With less of the peak of bf16 it draws so much less above idle; more of
    it comes at the same power, as where the `tdp` stays."""
    parent, figures = work.catalog.chip(work.parent), work.chip["figures"]
    if parent.tdp_w is None or parent.matmul_w is not None:
        return
    idle_w = work.catalog.energy.idle_w(parent)
    share, before = 1.0, parent.peak_flops_per_s.get("bf16")
    if before is not None:
        share = min(units.parse(str(figures["peak_bf16"]["value"]), "flop/s") / before, 1.0)
    draws_w = idle_w + (parent.tdp_w - idle_w) * share
    if not draws_w > units.parse(str(figures["tdp"]["value"]), "W"):
        return
    text = units.format(draws_w, "W", 12)
    of = "" if share == 1.0 else f", above idle {share:.6g} x as its peak_bf16"
    note = f"{text}: the tdp of {work.parent}{of}"
    figures["matmul_power"] = _figure(text, note)
    work.changes.append(f"matmul_power {note}")


def _changed(
    work: _Derivation, setting: Setting, name: str, before: Mapping[str, Any] | None, dimension: str
) -> dict[str, str]:
    """The figure that takes the place of `before`, its change noted."""
    of = f"{before['value']} of {work.parent}" if before else f"{work.parent} has none"
    if dimension == "text":
        if setting.factor is not None:
            raise _refuse(setting.written, f"a factor of {name}", ", ".join(TOPOLOGIES))
        text = setting.value
        note = f"{text} in place of {of}" if before else f"{text}; {of}"
    elif setting.factor is None:
        value = _value(setting, dimension)
        text = units.format(value, dimension, 12)
        note = f"{text} in place of {of}" if before else f"{text}; {of}"
    else:
        if before is None:
            message = f"{work.parent} has no {name} that could be multiplied"
            raise _refuse(setting.written, message, "a value with its unit")
        base = units.parse(str(before["value"]), dimension)
        value = base * float(setting.factor)
        if value == 0.0:
            message = f"{name} of {work.parent} is {before['value']}: no factor changes it"
            raise _refuse(setting.written, message, "a value with its unit")
        text = units.format(value, dimension, 12)
        note = f"{setting.says} {of}"
    if dimension == "count" and float(text) % 1:
        message = f"{name} would be {text}"
        raise _refuse(setting.written, message, f"what gives a whole number ({of})")
    work.changes.append(f"{name} {note}")
    return _figure(text, note)


def _value(setting: Setting, dimension: str) -> float:
    """SI value of a setting that is no factor. Raises InputError."""
    try:
        value = units.parse(setting.value, dimension)
    except InputError as error:
        accepted = f"1.5x, +20%, or {error.accepted}"
        raise _refuse(setting.written, error.message, accepted) from None
    if value == 0.0 and dimension != "s":
        raise _refuse(setting.written, f"read {setting.value!r}: zero", "more than zero")
    return value


def _figure(text: str, note: str) -> dict[str, str]:
    return {"value": text, "kind": "assumed", "source": SOURCE, "date": UNDATED, "note": note}


def _number(figure: Mapping[str, Any] | None) -> float | None:
    """The value of a figure of a level, SI."""
    if figure is None:
        return None
    text = str(figure["value"])
    return units.parse(text, "count" if re.fullmatch(r"[0-9.eE+]+", text) else "bytes/s")


def _finish(work: _Derivation, settings: Sequence[Setting], name: str | None) -> OwnChip:
    parent, chip = work.catalog.chip(work.parent), work.chip
    short = "_".join(one.written.replace("=", "_").replace("%", "pct") for one in settings)
    if len(short) > 48:
        short = f"{len(settings)}_changes_{hashlib.sha256(short.encode()).hexdigest()[:6]}"
    given = name if name is not None else f"{work.parent}_{short}"
    given = re.sub(r"[^A-Za-z0-9._+-]+", "_", given).strip("_")
    if not given.removeprefix(HYPOTHETICAL).strip("_"):
        message, accepted = f"read {name!r}", "letters, digits and underscores"
        raise InputError(message, field="--name", accepted=accepted)
    prefix = f"{HYPOTHETICAL}_"
    chip["id"] = given if given.startswith(prefix) else prefix + given
    chip["name"] = f"{parent.name.partition(', hypothetical')[0]}, hypothetical"
    chip["availability"] = HYPOTHETICAL
    if work.fabric_changed:
        work.system["id"] = f"{chip['id']}_system"
        work.system["name"] = f"{work.system['name'].partition(', hypothetical')[0]}, hypothetical"
        chip["system"] = work.system
    chip["prices"] = work.prices
    origin = parent.derived_from or work.parent
    chip["derived_from"] = {"chip": origin, "changes": [*parent.changes, *work.changes]}
    order = ("id", "name", "derived_from", "vendor", "family", "year", "availability")
    data = {key: chip[key] for key in order if chip.get(key) is not None}
    data |= {key: value for key, value in chip.items() if key not in data and value is not None}
    document = Document(f"derived from {work.parent}", data, {})
    return read_full_form(document, hardware_dir())


def as_yaml(own: OwnChip, command: str) -> str:
    """The file of a derived chip; its first line is the command that writes it."""
    command = " ".join(command.split())
    import yaml  # noqa: PLC0415 - it takes 20 ms

    text = yaml.safe_dump(
        own.document.data, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return f"# {command}\n{text}"
