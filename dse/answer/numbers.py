"""Numbers as people read them, the one formatter of the console, the pages and the files; and what
quantities are called.

`show(metric, value)` prints a metric by its row in `dse.schema.metrics`, `show_as(kind, value)` any
other number. A unit is the one that a person would use (12.3 µs, 8.01 ms, 2.3 h), `digits` are
significant, and what does not apply is a dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dse import units
from dse.data import rows_beside
from dse.vocabulary import find

NONE = "–"

# By dimension the `kind` of a metric; by dimension or kind the unit and scale of an axis (what is
# shown is SI x scale), by kind the unit of raw values.
SHOWN_AS = {row["name"]: row for row in rows_beside(__file__, "kinds.csv")}
_SHORT = ("ns", "µs", "ms", "s")
_CLOCK_FROM, _DAYS_FROM, _YEARS_FROM = 600.0, 172_800.0, 63_072_000.0


def show(metric: str, value: float | None) -> str:
    """A metric with its unit. One without a row is printed by the end of its name."""
    row = find(metric)
    return show_as(kind_of(metric), value, row.digits if row else 3)


def priced(metric: str, value: float | None) -> str:
    """A metric with its name: `$0.0694 per million tokens`, `time per output token 20 ms`."""
    row = find(metric)
    name = row.title if row else metric
    if name.startswith("cost "):
        return f"{show(metric, value)} {name.removeprefix('cost ')}"
    return f"{name} {show(metric, value)}"


def show_as(kind: str, value: float | None, digits: int = 3) -> str:
    """`value`, in SI, as a number of `kind` (a key of KINDS); None and NaN are a dash."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return KINDS[kind](float(value), digits)


def kind_of(metric: str) -> str:
    """How a quantity is printed: the kind of its row, empty for words; of one that the vocabulary
    lacks what its name ends in."""
    if row := find(metric):
        return row.kind or SHOWN_AS.get(row.dimension, {}).get("kind", "")
    if metric in KINDS:
        return metric
    if metric.endswith("_s") and "per_s" not in metric:
        return "time"
    if "usd" in metric:
        return "dollars"
    if metric.endswith("bytes_per_s"):
        return "bandwidth"
    return "bytes" if "bytes" in metric else "share" if metric.endswith("share") else "rate"


def significant(value: float, digits: int = 3) -> str:
    """Plain notation with every digit: 0.0812, 12.0, 1,230."""
    return f"{Decimal(f'{value:.{digits - 1}e}'):,f}"


def plain(value: float, digits: int = 3) -> str:
    """The same, without the zeros that end the fraction of a round value: a limit of 50 ms is `50`,
    a prediction of 50.02 ms is `50.0`."""
    text = significant(value, digits)
    if "." not in text or not math.isclose(float(text.replace(",", "")), value, rel_tol=1e-12):
        return text
    return text.rstrip("0").rstrip(".")


def time(seconds: float, digits: int = 3) -> str:
    """`12.3 µs`, `8.01 ms`, `1.24 s`, `12.5 min`, `2.3 h`, `65 days`."""
    size = abs(float(f"{seconds:.{digits - 1}e}"))
    names: tuple[str, ...] = _SHORT
    if size >= _YEARS_FROM:
        names = ("years",)
    elif size >= _DAYS_FROM:
        names = ("days",)
    elif size >= _CLOCK_FROM:
        names = ("min", "h")
    return _scaled(seconds, "s", names, digits) if size else "0 s"


def bytes_(size: float, digits: int = 3) -> str:
    """`640 GB`; decimal prefixes."""
    return _scaled(size, "bytes", ("B", "kB", "MB", "GB", "TB", "PB"), digits)


def binary(size: float, digits: int = 3) -> str:
    """Whole binary units where it is some, as message sizes are written: `32 KiB`."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        count = size / 1024**power
        if count >= 1 and count.is_integer():
            return f"{count:,.0f} {unit}"
    return bytes_(size, digits)


def bandwidth(rate: float, digits: int = 3) -> str:
    return _scaled(rate, "bytes/s", ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"), digits)


def power(watts: float, digits: int = 3) -> str:
    return _scaled(watts, "W", ("mW", "W", "kW", "MW"), digits)


def energy(joules: float, digits: int = 3) -> str:
    return _scaled(joules, "J", ("nJ", "µJ", "mJ", "J", "kJ", "MJ"), digits)


def large(number: float, digits: int = 3) -> str:
    """A size of a model, tokens, chip-hours: `8.03B`, `15T`, `125M`; in full below a million."""
    if abs(number) < 999_500:
        return plain(number, max(digits, 6))
    value, unit = units.scaled(number, "tokens", ("M", "B", "T"), digits)
    return f"{plain(value, digits)}{unit}"


def dollars(usd: float, digits: int = 3) -> str:
    """`$0.0690`, `$2.40`, `$1,234`, `$61.7M`, `$1.20B`: whole cents from a dollar on, whole dollars
    from a hundred on."""
    sign, size = "-" if usd < 0 else "", abs(usd)
    if size >= 999_999.5:
        value, unit = units.scaled(size, "tokens", ("M", "B", "T"), digits)
        return f"{sign}${significant(value, digits)}{unit}"
    if size >= 99.995:
        return f"{sign}${size:,.0f}"
    if size >= 0.9995 or size == 0.0:
        return f"{sign}${size:.2f}"
    return f"{sign}${significant(size, digits)}"


def share(part: float, digits: int = 2) -> str:
    """`43%`, `4.3%`, `0.43%`; 100% and 0% are said only of all and of none."""
    del digits  # a share is never worth more than two
    size = abs(part)
    if 0.995 <= size < 1.0:
        return f"{math.copysign(math.floor(size * 1000) / 10, part):.1f}%"
    if size >= 0.0995 or part == 0.0:
        return f"{part:,.0%}"
    return f"{plain(100 * part, 2)}%"


def signed(value: float, digits: int = 2) -> str:
    """`+0.83`, an elasticity: two decimals."""
    del digits
    return f"{value:+.2f}"


def count(number: float, digits: int = 3) -> str:
    """In full: `1,024`; a mean of counts in `digits`."""
    if number == round(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return plain(number, digits)


def ratio(value: float, digits: int = 3) -> str:
    """`1.24 x`."""
    return f"{plain(value, digits)} x"


def flop(work: float, digits: int = 3) -> str:
    """`1.24e24 FLOP`, as the field writes it."""
    return f"{work:.{digits}g} FLOP".replace("e+", "e")


def _scaled(value: float, dimension: str, names: tuple[str, ...], digits: int) -> str:
    if value == 0.0:
        return f"0 {names[min(1, len(names) - 1)]}" if dimension == "W" else f"0 {names[0]}"
    number, unit = units.scaled(value, dimension, names, digits)
    return f"{plain(number, digits)} {unit}"


def _kwh(amount: float, digits: int = 3) -> str:
    size = abs(float(f"{amount:.{digits - 1}e}"))
    factor, unit = (1e6, "GWh") if size >= 1e6 else (1e3, "MWh") if size >= 1e3 else (1.0, "kWh")
    return f"{plain(amount / factor, digits)} {unit}"


# How a number of each kind is printed: (value in SI, significant digits) -> text.
KINDS: Mapping[str, Callable[[float, int], str]] = {
    "time": time,
    "days": lambda value, digits: time(86_400.0 * value, digits),
    "year": lambda value, digits: f"{value:.0f}",
    "bytes": bytes_,
    "binary": binary,
    "bandwidth": bandwidth,
    "flop": flop,
    "tera": lambda value, digits: plain(value / 1e12, max(digits, 4)),
    "dollars": dollars,
    "share": share,
    "count": count,
    "tokens": large,
    "parameters": large,
    "large": large,
    "power": power,
    "energy": energy,
    "kwh": _kwh,
    "rate": plain,
    "number": plain,
    "ratio": ratio,
    "fixed": significant,
    "signed": signed,
    "signed4": lambda value, digits: f"{value:+.4f}",
    "change": lambda value, digits: tenths(value, sign=True),
    "tenths": lambda value, digits: tenths(value),
}


# Texts that only the claims and the accuracy pages use.
def percent(part: float | None) -> str:
    """A share in whole percent; 100% and 0% are said only of all and of none."""
    if part is None or math.isnan(part):
        return NONE
    if 0.0 < part < 0.005:
        return f"{math.ceil(part * 1000) / 10:.1f}%"
    return share(part) if part >= 0.995 else f"{part:.0%}"


def tenths(error: float | None, sign: bool = False) -> str:
    """An error or a width in tenths of a percent, from 100% on in whole ones."""
    if error is None:
        return NONE
    places = 0 if abs(error) >= 1.0 else 1
    return f"{100 * error:{'+' if sign else ''},.{places}f}%"


def times(value: float | None) -> str:
    """A ratio in three digits."""
    return NONE if value is None or math.isnan(value) else f"{digits(value)}x"


def digits(value: float | None, count: int = 3) -> str:
    """As `significant`, of a number that may be missing or 0."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:g}" if value == 0.0 or math.isinf(value) else significant(value, count)


def number(value: float) -> float | int | None:
    """A JSON number; null for what does not apply or is not known."""
    value = float(value)
    return value if math.isfinite(value) else None


# What metrics are called, the unit that an axis shows them in, and the words that a reader may not
# know.


@dataclass(frozen=True, slots=True)
class Label:
    """A metric on a page: `unit` and `scale` in tables and axes (shown = SI * scale)."""

    text: str
    kind: str
    unit: str = ""
    scale: float = 1.0
    meaning: str = ""
    short: str = ""


# Unit and scale of an axis by the kind of its metric, its dimension or its own name.
_AXES = {
    name: (row["axis_unit"], float(row["axis_scale"]))
    for name, row in SHOWN_AS.items()
    if row["axis_scale"]
}


BASES = {
    "rental_3yr": "chips rented on a three-year contract",
    "on_demand": "chips rented by the hour, without commitment",
    "owned_tco": "chips owned: server, network, capital, upkeep and power over their life",
}

BOUNDS = {
    "compute": "the chips' arithmetic is the limit",
    "memory bandwidth": "chips wait for weights and KV cache to come from their memory",
    "network": "chips wait for each other's results",
    "memory tier": "chips wait for weights and KV cache to come from a slower memory behind theirs",
    "power cap": "the clock is slowed so that the chip stays within its power cap",
    "fixed overhead": "launching kernels and scheduling on the host take the time, not the work",
}


def label(metric: str) -> Label:
    """The label of a metric; one without a row is shown under its own name."""
    row, kind = find(metric), kind_of(metric)
    if row is None:
        text = metric.replace("_", " ")
        if kind == "dollars":
            text = text.removeprefix("usd ").join(("USD ", ""))
        text = text.removesuffix(" s") if kind == "time" else text
        return Label(text, kind, *_axis(kind), short=text)
    names = (row.axis, row.dimension, kind)
    found = next((name for name in names if name in _AXES and name != "s"), kind)
    return Label(
        row.title, row.dimension, *_axis("s" if row.axis == "s" else found), row.meaning, row.short
    )


def _axis(name: str) -> tuple[str, float]:
    return _AXES.get(name, ("", 1.0))


def axis_title(metric: str, direction: str | None = None) -> str:
    """`cost per million tokens (USD), lower is better`."""
    known = label(metric)
    title = f"{known.text} ({known.unit})" if known.unit else known.text
    if direction is None:
        return title
    return f"{title}, {'lower' if direction == 'minimize' else 'higher'} is better"


# The words that a reader may not know, each explained once: the rows of glossary.csv.

GLOSSARY = {row["term"]: row["meaning"] for row in rows_beside(__file__, "glossary.csv")}
