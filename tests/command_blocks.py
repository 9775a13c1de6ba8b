"""Runs every command block of README.md and docs/: `python -m tests.command_blocks [PAGE ...]`.

Each page gets a copy of the repository in a temporary folder; its commands run there in order, so
that a page can build on its own files. What a page holds, and what is made of it:

- ```bash: commands, one a line (`\\` continues one). Each must end with exit code 0. `make study`
  runs the line that the Makefile gives it; other lines of `make` are left to `make`.
- ```console: `$ command` and its answer. The command must be refused, with exit code 2 or 3.
- any block whose first line is `# PATH.yaml` or `# PATH.py`: the file of that path.
- ```diff: a change of the copy, as `git apply` makes it.
- ```text or a bare ```, the next block after commands: what the last of them prints. Every word
  of it must be printed; where only numbers differ, a line says so. `...` stands for lines left out.

`--write` puts what was printed into the pages. Pages run at the same time, one on each core; what
is said of a page that is wrong goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
COPIED = ("dse", "hardware", "search_spaces", "tests", "tools", "benchmarks", "pyproject.toml")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
RUN = ("bash", "console")
FILE = re.compile(r"# (\S+\.(?:yaml|py))\n")
REFUSED = (2, 3)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its content, where the content starts and ends in the page,
    and whether the block above it holds commands."""

    language: str
    content: str
    start: int
    end: int
    below_bash: bool


class Failure(Exception):
    """A command that ended otherwise than its page promises."""


def blocks(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    for match in BLOCK.finditer(text):
        below = bool(found) and found[-1].language == "bash"
        found.append(Block(match[1], match[2], match.start(2), match.end(2), below))
    return found


def commands(content: str) -> list[str]:
    """The commands of a bash block: continued lines joined; no comments, no `make`."""
    study = re.search(r"^study:.*\n\t\$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert study
    lines = (line.strip() for line in re.sub(r"\\\n\s*", "", content).splitlines())
    real = [study[1] if line == "make study" else line for line in lines]
    return [line for line in real if line and not line.startswith(("#", "make "))]


def unprinted(shown: str, printed: str) -> list[str]:
    """The lines of `shown` with a word (three letters or more) that `printed` does not have."""
    word = re.compile(r"[A-Za-z]{3,}")
    known = set(word.findall(printed))
    return [line for line in shown.splitlines() if not known.issuperset(word.findall(line))]


def excerpt(shown: str, printed: str) -> str:
    """What was printed, with the lines left out that `shown` leaves out at its `...`."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    old = shown.splitlines()
    if "..." in old:
        head = old.index("...")
        tail = len(old) - head - 1
        lines = [*lines[:head], "...", *lines[len(lines) - tail :]]
    return "".join(f"{line}\n" for line in lines)


def execute(
    command: str, folder: Path, said: list[str], promised: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Runs one command in the copy, 100 columns wide, and puts it with its seconds into `said`.
    Raises Failure for an exit code that is not promised."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(folder),
        "COLUMNS": "100",
    }
    began = time.perf_counter()
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    first = command.split("\n", 1)[0]
    said.append(f"  {time.perf_counter() - began:5.1f} s  $ {first}")
    if ended.returncode not in promised:
        raise Failure(f"exit code {ended.returncode}: {first}\n{ended.stdout}{ended.stderr}")
    return ended


def run(page: Path, folder: Path, said: list[str]) -> tuple[str, bool]:
    """The page with what its commands print now, and whether a line has other words than that. What
    there is to say goes into `said`. Raises Failure at the first command that ends otherwise than
    promised."""
    text = page.read_text(encoding="utf-8")
    fresh = text
    printed, same = "", True

    def compare(block: Block, shown: str, printed: str, before: str = "") -> None:
        nonlocal fresh, same
        for line in unprinted(shown, printed):
            same = False
            said.append(f"{page.name}: not printed: {line.strip()}")
        new = before + excerpt(shown, printed)
        place = block.start + len(fresh) - len(text)
        fresh = fresh[:place] + new + fresh[place + block.end - block.start :]

    for block in blocks(text):
        named = FILE.match(block.content)
        if named:
            (folder / named[1]).write_text(block.content, encoding="utf-8")
        elif block.language == "diff":
            execute(f"git apply --recount - <<'END'\n{block.content}END", folder, said)
        elif block.language == "bash":
            for command in commands(block.content):
                printed = execute(command, folder, said).stdout
        elif block.language == "console":
            command, shown = block.content.removeprefix("$ ").split("\n", 1)
            compare(block, shown, execute(command, folder, said, REFUSED).stderr, f"$ {command}\n")
        elif block.language in ("", "text") and block.below_bash:
            compare(block, block.content, printed)
    return fresh, same


def ran(page: Path, write: bool) -> tuple[bool, list[str]]:
    """Whether a page is right, and what is to be said of it; with `write` it is put right."""
    said = [page.name]
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, Path(folder) / name)
        try:
            fresh, same = run(page, Path(folder), said)
        except Failure as failure:
            return False, [*said, f"{page.name}: {failure}"]
    if write:
        page.write_text(fresh, encoding="utf-8")
    elif same and fresh != text:
        said.append(f"{page.name}: some numbers shown differ from those printed; --write mends it")
    return same or write, said


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run; all without any")
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="pages at the same time")
    asked = parser.parse_args(arguments)
    began = time.perf_counter()
    pages = [
        page
        for page in asked.pages or PAGES
        if any(block.language in RUN for block in blocks(page.read_text(encoding="utf-8")))
    ]
    right = True
    with ThreadPoolExecutor(max(asked.jobs, 1)) as pool:
        for good, said in pool.map(ran, pages, [asked.write] * len(pages)):
            right = right and good
            print("\n".join(said), file=sys.stdout if good else sys.stderr, flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
