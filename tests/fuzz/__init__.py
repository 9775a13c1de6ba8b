"""A fuzzer: files of every kind with one to three mistakes in them, and flags with odd values.

    python -m tests.fuzz --inputs 100000 [--seed 7] [--kinds space,chip] [--jobs 2]
    python -m tests.fuzz --show chip 12          one input: its command and what is wrong in it
    python -m tests.fuzz --read 200 --seed 5     accepted inputs, to be read by eye

Every input is a kind and a seed, so that what fails can be made again. A command may refuse an
input, in words and with its exit code. It may not end in an exception, work for 20 seconds, print
NaN, infinity, a negative price or a character that a terminal acts on.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from contextlib import chdir
from itertools import combinations
from operator import attrgetter
from pathlib import Path

from dse.errors import DseError
from tests.cli.conftest import Said, dse
from tests.fuzz.kinds import KINDS, READERS, ROUND, SHARES, command

__all__ = ["KINDS", "READERS", "ROUND", "SHARES", "command", "complaint", "nth", "say", "shrunk"]

LIMIT_S = 20
_ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNIT = r"(?:%|[mun]?s\b|[kMGTP]?B\b|tokens|W\b|kW|USD|FLOP)"
_NO_NUMBER = re.compile(
    rf"\$nan|\$inf|\$-|(?<![\w.])(?:nan|inf) ?{_UNIT}|(?<![\w.)])-[\d.]+ ?(?:tokens|[mun]s\b)"
)
_TITLE = re.compile(
    r"""^(?:title|name|note|source): ["']?(.*[A-Za-z].*-\d.*?)["']?$""", re.MULTILINE
)


def nth(k: int, seed: int, kinds: Sequence[str] = ROUND) -> tuple[str, int]:
    """(kind, seed) of the k-th input of a run that begins at `seed`."""
    rounds, at = divmod(k, len(kinds))
    return kinds[at], seed + rounds * kinds.count(kinds[at]) + kinds[:at].count(kinds[at])


def say(words: Sequence[str]) -> Said:
    """What a command says, or a reader that no command calls."""
    if "." not in words[0]:
        return dse(*words)
    module, _, name = words[0].partition(":")
    try:
        attrgetter(name)(importlib.import_module(module))(Path(words[1]))
    except DseError as error:
        return Said(error.exit_code, "", str(error))
    return Said(0, "", "")


def complaint(kind: str, seed: int, folder: Path, without: Sequence[int | str] = ()) -> str:
    """What is wrong with how an input was taken; nothing where it was taken well."""
    words = command(kind, seed, folder, without)
    try:
        with chdir(folder):  # an odd --out is written there
            said = say(words)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return f"{type(error).__name__}: {error}"
    return wrong(words, said, folder)


def _figures(out: str, folder: Path) -> str:
    """What is printed without the titles of the input, which may say what they like, and without
    the line that takes the network's hidden time off a sum."""
    files = [one for one in folder.iterdir() if one.is_file() and not one.is_symlink()]
    texts = (one.read_text("utf-8", errors="replace") for one in files)
    for title in {one for text in texts for one in _TITLE.findall(text)}:
        out = out.replace(title, "")
    return "\n".join(line for line in out.split("\n") if "network behind compute" not in line)


def wrong(words: Sequence[str], said: Said, folder: Path) -> str:
    """What is wrong with what was said of an input in a folder."""
    if said.code not in (0, 2, 3, 4):
        return f"exit code {said.code}"
    if said.code and not said.err.strip() and not said.out.strip():
        return "refused without a word"
    if "." not in words[0] and (found := _ACTS.search(said.out + said.err)):
        return f"prints {found[0]!r}"
    if said.code == 0 and "--json" in words:
        try:
            json.loads(said.out, parse_constant=_refuse)
        except ValueError as error:
            return f"no JSON: {error}"
    elif found := _NO_NUMBER.search(_figures(said.out, folder)):
        return f"answers with {found[0]!r}"
    return ""


def _refuse(word: str) -> None:
    raise ValueError(f"{word} in a document")


def shrunk(kind: str, seed: int, folder: Path) -> tuple[int | str, ...]:
    """The mistakes that can be left out of an input that fails, so that it still does: as many as
    there are. Each try has a folder of its own."""
    every: tuple[int | str, ...] = (0, 1, 2, "file")
    for count in (3, 2, 1):
        for without in combinations(every, count):
            place = folder / "-".join(map(str, without))
            place.mkdir()
            if complaint(kind, seed, place, without):
                return without
    return ()
