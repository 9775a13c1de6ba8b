"""What a fault costs a search: `python -m benchmarks.faults [--only NAME] [--write]`.

Each row does one thing to a running `dse run tiny --seed 1`, or to two of them, and then gives the
same command again. "lost" counts what the journal held before and does not hold after (trials of
SQLite are counted); "waits" is how long the next process waits for the locks that were left;
the front must be byte for byte that of an undisturbed run. A full and a read-only disk need root,
who can mount a small one; PostgreSQL is stopped and started where it is installed
(tests/extra/install.sh). `--write` puts the table into docs/workers.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dse.search.claims import Board
from dse.search.journal import JournalFile
from tools.written import markdown, write

RUN = ("run", "tiny", "--seed", "1")
# Code that runs before dse does.
JUMPING = "import time; t=time.time; time.time=lambda: t()+86400*(int(t()*20)%3-1)"
ANOTHER = "import dse; dse.__version__='9.9.9'"
Process = subprocess.Popen[str]


@dataclass
class Seen:
    """What one fault did. `said`: exit codes in order, and what the first that failed said."""

    said: list[str] = field(default_factory=list)
    lost: int = 0
    waits_s: float = 0.0
    same: bool = False


def start(folder: Path, *words: str, before: str = "", arguments: Sequence[str] = RUN) -> Process:
    """`dse run` in a process of its own, after the code `before`."""
    code = f"{before}\nfrom dse.cli import main; main()"
    given = [*arguments, *(("--out", str(folder)) if arguments[0] == "run" else ()), *words]
    return subprocess.Popen(  # noqa: S603 - commands of this file
        [sys.executable, "-c", code, *given],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: Process, seen: Seen, folder: Path) -> int:
    """Its exit code, noted."""
    _, said = process.communicate(timeout=600)
    if "Traceback" in said:
        raise AssertionError(said)
    seen.said.append(str(process.returncode))
    if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM):
        words = [line for line in said.splitlines() if line.startswith("dse: ")]
        said = words[-1].removeprefix("dse: ").replace(str(folder), "DIR") if words else ""
        seen.said[-1] += f" ({said[:60].strip()})" if said else ""
    return process.returncode


def whole_lines(folder: Path) -> bytes:
    with suppress(FileNotFoundError):
        text = (folder / "journal.log").read_bytes()
        return text[: text.rfind(b"\n") + 1]
    return b""


def wait_until(condition: Callable[[], bool], running: Process) -> None:
    while running.poll() is None and not condition():
        time.sleep(0.001)


def again(folder: Path, true: bytes, seen: Seen) -> Seen:
    """The command once more: what it finds, waits for and loses."""
    before = whole_lines(folder)
    if (folder / "journal.log").exists():
        since = time.perf_counter()
        JournalFile(folder / "journal.log").mend()
        seen.waits_s = time.perf_counter() - since
    ended(start(folder), seen, folder)
    after = whole_lines(folder)
    if not after.startswith(before):
        seen.lost = len(set(before.splitlines()) - set(after.splitlines()))
    seen.same = (folder / "front.csv").read_bytes() == true
    return seen


def signalled(number: int) -> Callable[[Path, bytes], Seen]:
    """A signal while the journal is locked, some trials being stored."""

    def fault(folder: Path, true: bytes) -> Seen:
        seen, running = Seen(), start(folder)
        wait_until(lambda: len(whole_lines(folder)) > 100_000, running)
        wait_until((folder / "journal.log.lock").exists, running)
        running.send_signal(number)
        ended(running, seen, folder)
        return again(folder, true, seen)

    return fault


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    def mount(*words: str) -> None:
        subprocess.run(["mount", *words, str(folder)], check=True)  # noqa: S603, S607

    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=400k", "tmpfs")
    try:
        if options:
            mount("-o", f"remount,{options}")
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607


def disk(options: str) -> Callable[[Path, bytes], Seen]:
    """A disk that is full or read-only at first, and then is not."""

    def fault(folder: Path, true: bytes) -> Seen:
        seen = Seen()
        with small_disk(folder, options):
            ended(start(folder / "s"), seen, folder)
            subprocess.run(  # noqa: S603
                ["mount", "-o", "remount,rw,size=200m", str(folder)],  # noqa: S607
                check=True,
            )
            return again(folder / "s", true, seen)

    return fault


def two_runs(folder: Path, true: bytes) -> Seen:
    seen = Seen()
    for running in [start(folder) for _ in range(2)]:
        ended(running, seen, folder)
    return again(folder, true, seen)


def jumping_clock(folder: Path, true: bytes) -> Seen:
    seen, running = Seen(), start(folder, before=JUMPING)
    wait_until(lambda: len(whole_lines(folder)) > 100_000, running)
    running.kill()
    ended(running, seen, folder)
    ended(start(folder, before=JUMPING), seen, folder)
    return again(folder, true, seen)


def other_version(folder: Path, true: bytes) -> Seen:
    seen, running = Seen(), start(folder)
    wait_until(lambda: len(whole_lines(folder)) > 100_000, running)
    ended(start(folder, before=ANOTHER), seen, folder)
    ended(running, seen, folder)
    return again(folder, true, seen)


def killed_worker(folder: Path, true: bytes) -> Seen:
    """Of two that share an enumeration through SQLite one is killed; the front is compared with
    that of an enumeration by one process."""
    seen, engine = Seen(), ("--engine", "exhaustive")
    alone = folder / "alone"
    ended(start(alone, *engine), seen, folder)
    url = f"sqlite:///{folder / 'studies.db'}"
    first = start(folder / "s", *engine, "--storage", url)
    second = start(folder, "tiny", "--storage", url, arguments=("worker",))
    wait_until((folder / "studies.db").exists, second)
    time.sleep(3.0)
    board = Board(url, "tiny")
    second.kill()
    ended(second, seen, folder)
    since = time.perf_counter()
    board.claim(())
    seen.waits_s = time.perf_counter() - since
    ended(first, seen, folder)
    names = [one / "front.csv" for one in (alone, folder / "s")]
    seen.same = names[0].read_bytes() == names[1].read_bytes()
    return seen


FAULTS: Mapping[str, Callable[[Path, bytes], Seen]] = {
    "kill -9": signalled(signal.SIGKILL),
    "SIGTERM": signalled(signal.SIGTERM),
    "Ctrl-C": signalled(signal.SIGINT),
    "disk full": disk(""),
    "read-only": disk("ro"),
    "two runs in one folder": two_runs,
    "clock jumping by a day": jumping_clock,
    "a run of another version": other_version,
    "a worker killed (SQLite)": killed_worker,
}


def measure(names: Sequence[str]) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        undisturbed = Seen()
        ended(start(root / "true"), undisturbed, root)
        true = (root / "true" / "front.csv").read_bytes()
        for k, what in enumerate(names):
            if what in ("disk full", "read-only") and os.geteuid() != 0:
                rows.append([what, "not run: needs root", "", "", ""])
                continue
            folder = root / str(k)
            folder.mkdir()
            seen = FAULTS[what](folder, true)
            waits = f"{seen.waits_s:.1f} s"
            rows.append([what, ", ".join(seen.said), str(seen.lost), waits, str(seen.same)])
            print("; ".join(rows[-1]), flush=True)
            shutil.rmtree(folder)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(FAULTS), action="append")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rows = measure(asked.only or list(FAULTS))
    text = markdown(["fault", "exit codes", "lost", "waits", "front identical"], rows)
    if asked.write:
        write("workers.md", "python -m benchmarks.faults", text)
    print(text)


if __name__ == "__main__":
    main()
