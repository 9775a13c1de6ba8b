"""Mistakes that a file, a value or a path can hold. Each is drawn from dice of its own, so that the
mistakes of an input that fails can be left out one after another."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Dice = random.Random
ODD = (
    "", "0", "-1", "1e308", "-1e308", "1e-320", "1e999", "nan", ".nan", ".inf", "-inf", "null", "~",
    "true", "no", "[]", "{}", "[1, 2", "{a: 1}", "'", '"', "&a 1", "*a", "<<", "!!bool maybe",
    "!!int x", "!!float y", "!!timestamp 2026-13-99", "!!binary ???", "!!python/name:os.system",
    "!!set {a}", "2030-01-01", "2026-02-30", "99999999999999999999999999", "0x1F", "1_000", "1:30",
    "1e308 W", "1e308 GB", "1e308 TB/s", "1e308 TFLOP/s", "1e308 USD/h", "1e308 USD", "1e308 s",
    "1e-300 s", "1e-300 GB/s", "1e308/day", "-5 GB", "-3 %", "0 GB", "0 s", "3 parsecs", "5 %",
    "150 %", "1e300x", "-2x", "0x", "+1e308%", "-100%", "-101%", "1/0", "1/3", "-1/3",
    "../../etc/passwd", "/dev/null", "/dev/zero", ".", "a" * 3000, "[" * 2000, "9" * 5000,
    "\x1b[31mred", '"\\e[31mred"', '"\\u202Egnirts"', "\u202egnirts", "\x00", "\ufeff5", "\u2028",
    "[bold]x[/bold]", "<img src=x>", "é", "𝟙", "٣", "１", "llama-3-70b", "h100_sxm", "fp8", "=1+1",
)  # fmt: skip
SCALAR = re.compile(r"(?<=[:,\[(] )[^\s,:{}\[\]\"'][^,\n{}\[\]]*|(?<=: \")[^\"]*|(?<=,)[^,\n]+")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{k + 1}: &a{k + 1} [*a{k}, *a{k}]\n" for k in range(40))


def _value(text: str, dice: Dice) -> str:
    values = list(SCALAR.finditer(text)) or [re.compile(r"\S*").match(text)]
    found = dice.choice(values)
    assert found is not None
    return text[: found.start()] + dice.choice(ODD) + text[found.end() :]


def _number(text: str, dice: Dice) -> str:
    """A number by a power of ten or with another sign: the unit or the point has slipped."""
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return _value(text, dice)
    found = dice.choice(numbers)
    new = f"{float(found[0]) * dice.choice((1e-3, 1e3, 1e-6, 1e6, 1e-2, 10.0, 1e300, -1.0)):.15g}"
    return text[: found.start()] + new + text[found.end() :]


def _swapped(text: str, dice: Dice) -> str:
    values = list(SCALAR.finditer(text))
    if len(values) < 2:
        return _value(text, dice)
    a, b = sorted(dice.sample(values, 2), key=lambda found: found.start())
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def _columns(text: str, dice: Dice) -> str:
    """Two columns of a table change places, or lose their names."""
    rows = [line.split(",") for line in text.splitlines()]
    width = min(map(len, rows), default=0)
    if width < 2:
        return _swapped(text, dice)
    a, b = dice.sample(range(width), 2)
    for row in rows if dice.random() < 0.5 else rows[:1]:
        row[a], row[b] = row[b], row[a]
    return "".join(f"{','.join(row)}\n" for row in rows)


def _line(text: str, dice: Dice) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at, what = dice.randrange(len(lines)), dice.randrange(5)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(dice.randrange(len(lines) + 1), lines[at])
    elif what == 2:
        lines[at] = dice.choice(("  ", "\t", "- ", "# ", ": ")) + lines[at]
    elif what == 3:
        lines[at:] = []
    else:
        lines[at] = "\x00" if dice.random() < 0.1 else lines[at].upper()
    return "".join(lines)


def _character(text: str, dice: Dice) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice("{}[]:,\"'\t\x00é&*!%@`|>-0\u202e\ud800") + text[at:]


def _large(text: str, dice: Dice) -> str:
    """Much of something: nesting, aliases of aliases, a scalar of megabytes, lines."""
    return text + dice.choice(
        (
            "deep: " + "[" * 5000 + "]" * 5000 + "\n",
            "deep: " + "{a: " * 400 + "1" + "}" * 400 + "\n",
            _LAUGHS + "laughs: *a40\n",
            "long: " + "x" * 10_000_000 + "\n",
            "x" * 10_000_000,
            "- " * 3000,
            "\n" * 100_000,
        )
    )


_MISTAKES: Sequence[tuple[int, Callable[[str, Dice], str]]] = (
    (50, _value), (20, _number), (6, _swapped), (4, _columns), (12, _line), (8, _character),
)  # fmt: skip


def spoiled(text: str, dice: Dice) -> str:
    """The text with one mistake."""
    weights, ways = zip(*_MISTAKES, strict=True)
    return dice.choices(ways, weights)[0](text, dice)


def mistaken(text: str, seed: str, without: Collection[int | str] = ()) -> str:
    """The text with one to three mistakes, of which those of the numbers `without` are left out."""
    for k in range(Dice(seed).choice((1, 1, 1, 2, 3))):
        if k not in without:
            text = spoiled(text, Dice(f"{seed} {k}"))
    return text


def _flipped(content: bytes, dice: Dice) -> bytes:
    """Bytes changed, cut off or lost: a damaged disk."""
    found = bytearray(content)
    for _ in range(dice.choice((1, 1, 8, 200))):
        if found:
            found[dice.randrange(len(found))] = dice.randrange(256)
    at = dice.randrange(len(found) + 1)
    return bytes(found) if dice.random() < 0.7 else bytes(found[:at])


_ENCODED: Mapping[str, Callable[[str, Dice], bytes]] = {
    "utf-16": lambda text, dice: text.encode("utf-16", "surrogatepass"),
    "latin-1": lambda text, dice: ("é" + text).encode("latin-1", "replace"),
    "mark": lambda text, dice: b"\xef\xbb\xbf" + text.encode("utf-8", "replace"),
    "cr-lf": lambda text, dice: text.replace("\n", "\r\n").encode("utf-8", "replace"),
    "cr": lambda text, dice: text.replace("\n", "\r").encode("utf-8", "replace"),
    "bytes": lambda text, dice: _flipped(text.encode("utf-8", "replace"), dice),
    "large": lambda text, dice: _large(text, dice).encode("utf-8", "replace"),
    "empty": lambda text, dice: b"",
}


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


# What may stand in a file's place: the last cannot be read even by a superuser.
_PLACES: Sequence[Callable[[Path], None]] = (
    Path.mkdir, os.mkfifo, _loop, _to("/nowhere/at/all"), _to("/dev/zero"), _to("/dev/null"),
    _to("/proc/self/mem"), lambda path: None,
)  # fmt: skip
_NAMES = ("a" * 300, "\x1b[31mred", "\u202egnirts", "a b'c\"d", "-rf", "$(id)", "é", "a\nb")


def place(text: str, path: Path, seed: str, without: Collection[int | str] = ()) -> Path:
    """Writes the mistaken text as the file `path`, or as one of another name, or in a wrong
    encoding, or puts something else there; gives the path."""
    dice = Dice(f"{seed} file")
    how = dice.random()
    if how > 0.95 and "file" not in without:
        if how > 0.99:
            path = path.with_name(dice.choice(_NAMES) + path.suffix)
        elif how > 0.98:
            path.unlink(missing_ok=True)
            dice.choice(_PLACES)(path)
            return path
        else:
            content = dice.choice(list(_ENCODED.values()))(mistaken(text, seed, without), dice)
            path.write_bytes(content)
            return path
    content = mistaken(text, seed, without).encode("utf-8", "surrogatepass")
    with suppress(OSError):  # a name that no file can have
        path.write_bytes(content)
    return path


def damage(path: Path, seed: str) -> None:
    """Changes bytes of a file that is there."""
    path.write_bytes(_flipped(path.read_bytes(), Dice(seed)))
