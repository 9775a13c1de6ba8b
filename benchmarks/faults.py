"""What a fault costs: `python -m benchmarks.faults [--verbs] [--only NAME] [--write]`.

Each row does one thing to a running `dse run tiny --seed 1`, or to two of them, and then gives the
same command again. "lost" counts what the journal held before and does not hold after (trials of
SQLite are counted); "waits" is how long the next process waits for the locks that were left;
the front must be byte for byte that of an undisturbed run. A full and a read-only disk need root,
who can mount a small one; PostgreSQL is stopped and started where it is installed
(tests/extra/install.sh). With `--verbs` each verb that writes files meets a full disk and Ctrl-C,
and files that are not whole are counted. `--write` puts the table into docs/workers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from optuna.trial import TrialState

from dse.search.storage import JournalFile, failures, open_storage, sole_writer
from tests.extra.conftest import PASSWORD, postgres_data, program
from tools.written import markdown, write

RUN = ("run", "tiny", "--seed", "1")
# Code that runs before dse does.
JUMPING = "import time; t=time.time; time.time=lambda: t()+86400*(int(t()*20)%3-1)"
# Ctrl-C is heard once the command begins, by a job in the background of a shell, too: before, it
# ends Python, which says so in its own way.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
LISTENING = "signal.signal(signal.SIGINT, signal.default_int_handler)"
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
    out = ("--out", str(folder)) if arguments[0] == "run" and "--out" not in arguments else ()
    code = f"{DEAF}\n{before}\nfrom dse.cli import main\n{LISTENING}\nmain()"
    return subprocess.Popen(  # noqa: S603 - commands of this file
        [sys.executable, "-c", code, *arguments, *out, *words],
        cwd=folder if "--out" in arguments else None,
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
        with sole_writer(folder):
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
def small_disk(folder: Path, options: str, size: int = 400 << 10) -> Iterator[None]:
    def mount(*words: str) -> None:
        subprocess.run(["mount", *words, str(folder)], check=True)  # noqa: S603, S607

    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
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
    """The second is refused while the first writes."""
    seen, first = Seen(), start(folder)
    wait_until((folder / "journal.log").exists, first)
    second = start(folder)
    for running in (second, first):
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
    running.kill()
    ended(running, seen, folder)
    ended(start(folder, before=ANOTHER), seen, folder)
    return again(folder, true, seen)


def complete(url: str) -> set[tuple[str, int]]:
    """Studies and trials that a storage holds; none where there is no such yet."""
    with suppress(*failures()):
        storage, done = open_storage(url), (TrialState.COMPLETE,)
        return {
            (study.study_name, trial.number)
            for study in storage.get_all_studies()
            for trial in storage.get_all_trials(study._study_id, deepcopy=False, states=done)
        }
    return set()


def answers(server: str) -> None:
    """Waits for a server that begins to listen before it has read what it keeps."""
    psycopg = import_module("psycopg")
    for _ in range(300):
        with suppress(psycopg.OperationalError), psycopg.connect(f"{server}/postgres"):
            return
        time.sleep(0.1)


def stopped_server(folder: Path, true: bytes) -> Seen:
    """PostgreSQL is stopped while a run stores its trials there, and started again."""
    psycopg = import_module("psycopg")  # where it is installed

    initdb, postgres = program("initdb"), program("postgres")
    assert initdb is not None
    assert postgres is not None
    seen = Seen()
    with postgres_data(initdb) as run:
        with run(postgres) as port:
            server = f"postgresql://dse:{PASSWORD}@127.0.0.1:{port}"
            url = f"{server}/studies"
            answers(server)
            with psycopg.connect(f"{server}/postgres", autocommit=True) as one:
                one.execute("CREATE DATABASE studies")
            first = start(folder / "s", "--storage", url)
            wait_until(lambda: len(complete(url)) > 100, first)
            before = complete(url)
        ended(first, seen, folder)
        with run(postgres):
            answers(server)
            since = time.perf_counter()
            open_storage(url)
            seen.waits_s = time.perf_counter() - since
            ended(start(folder / "s", "--storage", url), seen, folder)
            seen.lost = len(before - complete(url))
    seen.same = (folder / "s" / "front.csv").read_bytes() == true
    if any(PASSWORD.encode() in path.read_bytes() for path in (folder / "s").iterdir()):
        raise AssertionError("a password was written")
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
    "PostgreSQL stopped and started": stopped_server,
}


def measure(names: Sequence[str]) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        undisturbed = Seen()
        ended(start(root / "true"), undisturbed, root)
        true = (root / "true" / "front.csv").read_bytes()
        for k, what in enumerate(names):
            if reason := cannot(what):
                rows.append([what, f"not run: {reason}", "", "", ""])
                continue
            folder = root / str(k)
            folder.mkdir()
            seen = FAULTS[what](folder, true)
            waits = f"{seen.waits_s:.1f} s"
            rows.append([what, ", ".join(seen.said), str(seen.lost), waits, str(seen.same)])
            print("; ".join(rows[-1]), flush=True)
            shutil.rmtree(folder)
    return rows


def cannot(what: str) -> str:
    if what in ("disk full", "read-only") and os.geteuid() != 0:
        return "needs root"
    if what.startswith("PostgreSQL") and not (program("initdb") and find_spec("psycopg")):
        return "tests/extra/install.sh and the extra postgres install it"
    return ""


# Verbs that write, on a disk that is full and stopped by Ctrl-C. STUDY is a finished study.
POINT = ("--model", "llama-3-8b", "--chip", "h100_sxm")
VERBS: Mapping[str, tuple[str, ...]] = {
    "run, again": ("run", "tiny", "--seed", "1", "--out", "out"),
    "estimate": ("estimate", *POINT, "--out", "out"),
    "estimate --points": ("estimate", "--points", "POINTS", "--out", "out/points.csv"),
    "export": ("export", "STUDY", "best", "--format", "vllm", "--out", "out"),
    "whatif": ("whatif", "STUDY", "--set", "chip.h100_sxm.price=-20%", "--out", "out"),
    "fleet": (
        *("fleet", *POINT, "--demand", "1B/day", "--prompt-tokens", "1024"),
        *("--output-tokens", "128", "--out", "out"),
    ),
    "check": ("check", "llama-3-8b", "--chip", "h100_sxm", "--out", "out"),
    "compare": ("compare", "h100_sxm", "h200_sxm", "--out", "out"),
    "catalog chips derive": (
        *("catalog", "chips", "derive", "--from", "h200_sxm"),
        *("--set", "hbm_bandwidth=1.5x", "--out", "out/fast.yaml"),
    ),
}
STOPS = 8


def whole(path: Path) -> bool:
    """Whether a file ends as its kind does."""
    content = path.read_bytes()
    if path.suffix == ".json":
        with suppress(ValueError):
            return json.loads(content) is not None
        return False
    if path.suffix == ".xlsx":
        return zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None
    return (
        content.rstrip().endswith(b"</html>") if path.suffix == ".html" else content[-1:] == b"\n"
    )


def spoiled(out: Path, there: set[str]) -> int:
    """Files that are not whole or that no run leaves, and files that lack others of their set."""
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    bad = {name for name in names if name.startswith(".") or name not in there}
    bad |= {name for name in names - bad if not whole(out / name)}
    return len(bad) + len(names and there - names)


def verbs(names: Sequence[str]) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ended(start(root / "study"), Seen(), root)
        points = root / "points.csv"
        points.write_text(
            "model,chip,serving,metric,prompt_tokens,output_tokens\n"
            + "llama-3-8b,h100_sxm,static,tpot_s,1024,128\n" * 2000,
            encoding="utf-8",
        )
        places = {"POINTS": str(points), "STUDY": str(root / "study")}
        for verb in names:
            words = [places.get(word, word) for word in VERBS[verb]]
            rows.append([verb, *faults_of(words, root)])
            print("; ".join(rows[-1]), flush=True)
    return rows


def faults_of(words: Sequence[str], root: Path) -> list[str]:
    """Exit codes on a full disk and after Ctrl-C at STOPS times, and the files spoiled."""
    own, out = words[0] == "run", root / "out"
    study = root / "study" if own else None

    def fresh() -> None:
        shutil.rmtree(out, ignore_errors=True)
        if study is not None:
            shutil.copytree(study, out)

    def begin() -> Process:
        return start(root, arguments=words)

    fresh()
    since = time.perf_counter()
    ended(begin(), Seen(), root)
    takes_s, there = time.perf_counter() - since, {path.name for path in out.iterdir()}
    full, stopped, bad = Seen(), Seen(), 0
    size = sum(-(-path.stat().st_size // 4096) * 4096 for path in out.iterdir())
    if os.geteuid() == 0:
        for part in (0.1, 0.4) if own else (0.3, 0.9):
            shutil.rmtree(out)
            with small_disk(out, "", int(size * (own + part))):
                if study is not None:
                    shutil.copytree(study, out, dirs_exist_ok=True)
                ended(begin(), full, root)
                bad += spoiled(out, there)
    for k in range(STOPS):
        fresh()
        running = begin()
        time.sleep(takes_s * (k + 1) / STOPS)
        running.send_signal(signal.SIGINT)
        ended(running, stopped, root)
        bad += spoiled(out, there)
    return [codes(full), codes(stopped), str(bad)]


def codes(seen: Seen) -> str:
    found = [word.partition(" ")[0] for word in seen.said]
    return ", ".join(f"{found.count(code)} x {code}" for code in sorted(set(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*FAULTS, *VERBS], action="append")
    parser.add_argument("--verbs", action="store_true", help="verbs that write, and no search")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    command = "python -m benchmarks.faults" + " --verbs" * asked.verbs
    if asked.verbs:
        text = markdown(
            ["verb", "disk full", "Ctrl-C", "files spoiled"], verbs(asked.only or list(VERBS))
        )
    else:
        rows = measure(asked.only or list(FAULTS))
        text = markdown(["fault", "exit codes", "lost", "waits", "front identical"], rows)
    if asked.write:
        write("workers.md", command, text)
    print(text)


if __name__ == "__main__":
    main()
