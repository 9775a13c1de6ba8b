"""What commands cost to start: `python -m benchmarks.commands [--against CHECKOUT]`.

Seconds of processor time (user and system) of whole processes, the median of seven runs: with this
checkout and, in turn with it, another one of the project (`git worktree add ../before COMMIT`).
"cold" is the first run of a checkout: nothing of its YAML files is compiled yet. The caption says
how busy the machine was. `--write` puts the table into docs/extending.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tools.written import markdown, write

ROOT = Path(__file__).parents[1]
MODEL, CHIP = "llama-3-8b", "h100_sxm"
COMMANDS = (
    "--help",
    "catalog chips list",
    "catalog models list",
    "catalog spaces list",
    "catalog prices list",
    "catalog racks list",
    f"estimate --model {MODEL} --chip {CHIP}",
    f"check {MODEL} --chip {CHIP}",
    f"train {MODEL} --chip {CHIP} --chips 8 --tokens 1B",
    f"compare {CHIP} b200_sxm",
    "run tiny --fresh --out STUDY",
    "estimate STUDY knee",
    "export STUDY knee --format vllm --out FILES",
    f"whatif STUDY --set chip.{CHIP}.price=-30%",
)
RUNS = 7


def seconds(command: str, checkout: Path, folder: Path, cold: bool = False) -> float:
    """Of processor time, user and system, of the command as a process of its own. Raises
    CalledProcessError where it fails."""
    words = [word.replace("STUDY", "s").replace("FILES", "f") for word in command.split()]
    caches = folder / ("cold" if cold else "warm")
    environment = {**os.environ, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(caches)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = used()
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        if cold:
            environment["XDG_CACHE_HOME"] = empty
        subprocess.run(  # noqa: S603 - commands of this file
            [sys.executable, "-m", "dse", *words],
            check=True,
            cwd=folder,
            env=environment,
            capture_output=True,
        )
    return used() - before


def used() -> float:
    """Seconds of processor time of all processes that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def measure(checkouts: Sequence[Path], runs: int) -> dict[str, list[float]]:
    """By command: the median of each checkout, in turn, then the cold one of the last."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(k) for k in range(len(checkouts))]
        for folder in folders:
            folder.mkdir()
        for command in COMMANDS:
            print(f"dse {command}", file=sys.stderr)
            pairs = list(zip(checkouts, folders, strict=True))
            for checkout, folder in pairs:
                seconds(command, checkout, folder)
            rounds = [[seconds(command, *pair) for pair in pairs] for _ in range(runs)]
            cold = median(seconds(command, *pairs[-1], cold=True) for _ in range(3))
            found[command] = [*(median(column) for column in zip(*rounds, strict=True)), cold]
    return found


def table(found: Mapping[str, Sequence[float]], before: bool) -> str:
    """In Markdown."""
    head = ["command", *(["before, s"] if before else []), "s", "cold, s"]
    rows = [[f"`dse {one}`", *(f"{value:.2f}" for value in found[one])] for one in found]
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="a checkout of before")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    checkouts = [*([asked.against.resolve()] if asked.against else []), ROOT]
    before = os.getloadavg()[0]
    measured = measure(checkouts, asked.runs)
    load = f"{before:.1f} before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores"
    found = f"Load of the machine: {load}; {asked.runs} rounds.\n\n"
    found += table(measured, asked.against is not None)
    if asked.write:
        write("extending.md", "python -m benchmarks.commands", found)
    print(found)


if __name__ == "__main__":
    main()
