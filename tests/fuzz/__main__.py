"""`python -m tests.fuzz`: see the package."""

from __future__ import annotations

import argparse
import difflib
import random
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path

from tests import fuzz
from tests.fuzz import kinds, mistakes, runner


def _input(kind: str, seed: int, without: tuple[int | str, ...] = ()) -> Iterator[str]:
    """An input as text: its command, what differs from the shipped file, what is said."""
    with tempfile.TemporaryDirectory(prefix="dse-fuzz-") as name:
        words = fuzz.command(kind, seed, Path(name), without)
        yield f"== {kind} {seed}: dse {shlex.join(words)[:400]}"
        if kind in kinds.KINDS:
            before = mistakes.Dice(f"{kind} {seed}").choice(kinds.KINDS[kind].texts())
            files = [one for one in Path(name).iterdir() if one.is_file() and not one.is_symlink()]
            for file in files:
                if file.name == kinds.KINDS[kind].name:
                    after = file.read_text("utf-8", errors="replace")
                    diff = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0)
                    yield from (f"   {line[:200]!r}" for line in list(diff)[2:20] if line[0] != "@")
        with chdir(name):
            try:
                said = fuzz.say([word for word in words if word != "--json"])
            except Exception as error:  # noqa: BLE001 - whatever it is
                yield f"-> {type(error).__name__}: {error}"
                return
        yield f"-> {said.code}"
        yield from (f"   {line}" for line in (said.err + said.out).splitlines()[:12])


def read(names: Sequence[str], most: int, seed: int) -> int:
    """Prints accepted inputs, drawn at random."""
    dice, count = random.Random(seed), 0  # noqa: S311 - no secret
    while count < most:
        lines = list(_input(dice.choice(names), dice.randrange(10**9)))
        if "-> 0" in lines:
            count += 1
            print(f"#{count}", *lines, sep="\n", flush=True)
    return 0


def show(kind: str, seed: int) -> int:
    """One input with as few mistakes as fail, and what is said of it."""
    with tempfile.TemporaryDirectory(prefix="dse-fuzz-") as name:
        without = fuzz.shrunk(kind, seed, Path(name))
    for line in _input(kind, seed, without):
        print(line, flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=fuzz.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first input")
    parser.add_argument("--kinds", default="", help=", ".join(fuzz.SHARES))
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--read", type=int, default=0, metavar="N", help="print N accepted inputs")
    parser.add_argument("--show", nargs=2, metavar=("KIND", "SEED"), help="one input")
    asked = parser.parse_args()
    if asked.show:
        return show(asked.show[0], int(asked.show[1]))
    names = asked.kinds.split(",") if asked.kinds else fuzz.ROUND
    if asked.read:
        return read(names, asked.read, asked.seed)
    return runner.run(names, asked.inputs, asked.seed, asked.jobs)


if __name__ == "__main__":
    sys.exit(main())
