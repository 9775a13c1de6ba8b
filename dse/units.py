"""Quantities at the edge: "3.35 TB/s" -> 3.35e12 and back. Inside there are SI floats only.

Prefixes are decimal (GB = 1e9 bytes) unless written binary (GiB = 2**30 bytes); a small b is a bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from dse.errors import InputError

_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}
_SMALL = {"m": -3, "u": -6, "n": -9}


def _scaled(unit: str, *prefixes: str, factor: str = "1") -> dict[str, Decimal]:
    powers = _DECIMAL | _SMALL
    return {p + unit: Decimal(factor).scaleb(powers[p]) for p in prefixes}


def _data(suffix: str) -> dict[str, Decimal]:
    units = _scaled("B" + suffix, "", "k", "M", "G", "T", "P", "E")
    return units | {p + "B" + suffix: Decimal(1024**power) for p, power in _BINARY.items()}


_BITS = _scaled("b/s", "", "k", "M", "G", "T", factor="0.125")
_BITS |= {unit.replace("b/s", "bit/s"): factor for unit, factor in _BITS.items()}
_WORK = ("", "k", "M", "G", "T", "P", "E", "Z")
_RATE = _scaled("FLOP/s", *_WORK)
_TIME = _scaled("s", "", "m", "u", "n") | {"µs": Decimal("1e-6"), "μs": Decimal("1e-6")}
_TIME |= {"min": Decimal(60), "h": Decimal(3600), "day": Decimal(86400)}
_TIME |= {"days": Decimal(86400), "year": Decimal(31536000), "years": Decimal(31536000)}
_THOUSANDS = {"": Decimal(1), "k": Decimal("1e3"), "K": Decimal("1e3"), "M": Decimal("1e6")}
_THOUSANDS |= {"B": Decimal("1e9"), "T": Decimal("1e12")}

_POUND = Decimal("0.45359237")
_KILONEWTON = 1000 / Decimal("9.80665")  # kilograms that weigh 1 kN (standard gravity)

# Factor of every unit that is read, by dimension.
_READ: dict[str, dict[str, Decimal]] = {
    "bytes": _data(""),
    "bytes/s": _data("/s") | _BITS,
    "flop/s": _RATE | _scaled("FLOPS", *_WORK) | _scaled("OP/s", *_WORK) | _scaled("OPS", *_WORK),
    "flop": _scaled("FLOP", *_WORK) | _scaled("FLOPs", *_WORK),
    "s": _TIME,
    "Hz": _scaled("Hz", "", "k", "M", "G"),
    "W": _scaled("W", "m", "", "k", "M"),
    "J": _scaled("J", "n", "u", "m", "", "k", "M")
    | {"pJ": Decimal("1e-12"), "µJ": Decimal("1e-6"), "μJ": Decimal("1e-6")},
    "J/byte": {"pJ/bit": Decimal("8e-12"), "pJ/B": Decimal("1e-12"), "J/B": Decimal(1)},
    "usd/h": _scaled("USD/h", "") | _scaled("$/h", "") | _scaled("usd/h", ""),
    "usd": _scaled("USD", "", "k", "M") | _scaled("$", "") | _scaled("usd", ""),
    "tokens": _THOUSANDS | {f"{p} tokens".strip(): factor for p, factor in _THOUSANDS.items()},
    "count": {"": Decimal(1)},
    "m": {"mm": Decimal("1e-3"), "cm": Decimal("1e-2"), "m": Decimal(1), "km": Decimal(1000)},
    "m2": {"mm2": Decimal("1e-6"), "cm2": Decimal("1e-4"), "m2": Decimal(1)},
    "kg": {"g": Decimal("1e-3"), "kg": Decimal(1), "t": Decimal(1000), "lb": _POUND},
    "kg/m2": {"kg/m2": Decimal(1), "kN/m2": _KILONEWTON, "kPa": _KILONEWTON},
}
# Units that are printed, smallest first.
_PRINTED: dict[str, tuple[str, ...]] = {
    "bytes": ("B", "kB", "MB", "GB", "TB", "PB"),
    "bytes/s": ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "flop/s": ("FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"),
    "flop": ("FLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"),
    "s": ("ns", "us", "ms", "s"),
    "Hz": ("Hz", "kHz", "MHz", "GHz"),
    "W": ("W", "kW", "MW"),
    "J": ("pJ", "nJ", "uJ", "mJ", "J", "kJ", "MJ"),
    "J/byte": ("pJ/B", "pJ/bit"),
    "usd/h": ("USD/h",),
    "usd": ("USD",),
    "tokens": ("", "k", "M", "B", "T"),
    "count": ("",),
    "m": ("mm", "m", "km"),
    "m2": ("mm2", "cm2", "m2"),
    "kg": ("g", "kg", "t"),
    "kg/m2": ("kg/m2",),
}
_NOUN = {
    "bytes": "a size", "bytes/s": "a bandwidth", "flop/s": "a rate of arithmetic",
    "flop": "an amount of arithmetic", "s": "a time", "Hz": "a frequency", "W": "a power",
    "J": "an energy", "J/byte": "an energy per byte",
    "usd/h": "a price per hour", "usd": "a price", "tokens": "a number of tokens",
    "count": "a number", "m": "a length", "m2": "an area", "kg": "a mass",
    "kg/m2": "a floor load",
}  # fmt: skip
_EXAMPLE = {
    "bytes": "80 GB or 180 GiB", "bytes/s": "3.35 TB/s or 400 Gb/s", "flop/s": "989 TFLOP/s",
    "flop": "1e24 FLOP", "s": "1.5 us or 30 ms", "Hz": "1830 MHz", "W": "700 W",
    "J": "300 mJ", "J/byte": "7 pJ/bit",
    "usd/h": "2.5 USD/h", "usd": "30000 USD", "tokens": "15.6T or 8192", "count": "8",
    "m": "1.5 m or 2 mm", "m2": "240 cm2", "kg": "1360 kg", "kg/m2": "2500 kg/m2 or 25 kN/m2",
}  # fmt: skip
# No figure of the field is as large, in SI units, or as small; products of a few stay numbers.
LARGEST, SMALLEST = 1e36, 1e-36
DIMENSIONS = tuple(_READ)

_QUANTITY = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(.*?)\s*")
_DOLLARS = re.compile(r"\s*\$\s*([0-9.eE+-]+)\s*(/h)?\s*")


def parse(text: str | float, dimension: str, *, field: str | None = None) -> float:
    """SI value of a written quantity.

    A bare number is refused where the dimension has a unit (zero included). Raises InputError for
    anything else than a finite number of at least zero with a unit of the dimension.
    """

    def refuse(reason: str) -> InputError:
        accepted = f"{_NOUN[dimension]}, such as {_EXAMPLE[dimension]}"
        return InputError(f"read {text!r}: {reason}", field=field, accepted=accepted)

    written = str(text)
    if dollars := _DOLLARS.fullmatch(written):
        written = f"{dollars[1]} USD{dollars[2] or ''}"
    match = _QUANTITY.fullmatch(written)
    if match is None or isinstance(text, bool):
        raise refuse("not a finite number with a unit")
    number, unit = match[1], match[2]
    units = _READ[dimension]
    if unit not in units:
        raise refuse(_why(unit, dimension))
    value = float(number)  # an exponent that float rounds to 0 or inf is beyond Decimal too
    if 0 < abs(value) < math.inf:
        value = float(Decimal(number) * units[unit])
    if math.isinf(value):
        raise refuse("not a finite number")
    if value < 0:
        raise refuse("negative")
    if value > LARGEST or 0.0 < value < SMALLEST:
        raise refuse("beyond every figure of the field")
    return value + 0.0


def example(dimension: str) -> str:
    """How a quantity of the dimension is written."""
    return _EXAMPLE[dimension]


FEWEST_TRAINING_TOKENS, MOST_TRAINING_TOKENS = 1e6, 1e18
TRAINING_TOKENS = "1M to 1e18 tokens, such as 15T"


def check_training_tokens(tokens: float, text: object, *, field: str | None = None) -> float:
    """`tokens`, read as `text`. Raises InputError where no model is trained on so few or so many;
    a bare 15 is most likely 15T."""
    if FEWEST_TRAINING_TOKENS <= tokens <= MOST_TRAINING_TOKENS:
        return tokens
    hint = ""
    if 0.0 < tokens < 1000.0:
        hint = f", which is {tokens:g} tokens; did you mean {tokens:g}T?"
    raise InputError(f"read {str(text)!r}{hint}", field=field, accepted=TRAINING_TOKENS)


def _why(unit: str, dimension: str) -> str:
    """Why `unit` is not one of `dimension`."""
    if not unit:
        return "a bare number, its unit is missing"
    for other, units in _READ.items():
        if unit in units and other != dimension:
            return f"{_NOUN[other]}, not {_NOUN[dimension]}"
    import difflib  # noqa: PLC0415 - for mistakes alone

    near = difflib.get_close_matches(unit, _READ[dimension], n=1)
    return f"unknown unit {unit!r}" + (f"; did you mean {near[0]}?" if near else "")


def format(value: float, dimension: str, digits: int = 3) -> str:
    """The quantity as text that `parse` reads back, to `digits` significant digits.

    Counts are printed in full.
    """
    if dimension == "count":
        return f"{value:.15g}"
    number, unit = scaled(value, dimension, digits=digits)
    separator = "" if dimension == "tokens" else " "
    return f"{number:.{digits}g}{separator}{unit}"


def scaled(
    value: float, dimension: str, names: Sequence[str] = (), digits: int = 3
) -> tuple[float, str]:
    """(number, unit): the value in the largest of the units `names`, smallest first, that leaves
    at least 1 once it is rounded to `digits`; in the smallest where none does."""
    names = names or _PRINTED[dimension]
    factors = [_READ[dimension][name] for name in names]
    size = abs(Decimal(f"{value:.{digits - 1}e}")) or Decimal(1)
    index = max((i for i, f in enumerate(factors) if f <= size), default=0)
    return float(Decimal(repr(float(value))) / factors[index]), names[index]
