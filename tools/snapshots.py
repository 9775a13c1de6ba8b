"""What 60 commands print and write, kept so that a change can be held against it.

python tools/snapshots.py DIR               runs every line of tools/snapshots.txt from this folder
python tools/snapshots.py DIR --only NAME   those whose name starts with NAME
diff -r BEFORE AFTER                        nothing, where a change only moved code

Seconds and versions are left out: they differ without a reason.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
_TIMED = "(?:seconds|evaluate|sample|store|proof|importance|report|total)"
TIMES = re.compile(rf'("{_TIMED}": |{_TIMED} )[0-9.e-]+(?=[,\n]| s)')
KEPT = (".csv", ".json", ".md", ".sh", ".py", ".yaml")


def commands() -> dict[str, str]:
    """{name: arguments} of the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def snapshot(name: str, arguments: str, folder: Path) -> str:
    """Runs one command; keeps its exit code, what it printed and the text files it wrote."""
    written = folder / name
    written.mkdir(parents=True, exist_ok=True)
    words = shlex.split(arguments.replace("{out}", str(written / "out")))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "dse", *words], capture_output=True, text=True, check=False
    )
    text = f"{done.stdout}\n--- {done.returncode}\n{done.stderr if done.returncode else ''}"
    (written / "printed.txt").write_text(_steady(text, folder), encoding="utf-8")
    for file in (written / "out").rglob("*"):
        if file.suffix in KEPT:
            file.write_text(_steady(file.read_text(encoding="utf-8"), folder), encoding="utf-8")
        elif file.is_file():
            file.unlink()
    return f"{name}: exit {done.returncode}"


def _steady(text: str, folder: Path) -> str:
    return TIMES.sub(r"\g<1>0", text.replace(str(folder), "DIR"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    chosen = [(n, a) for n, a in commands().items() if n.startswith(asked.only)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for line in pool.map(lambda one: snapshot(one[0], one[1], asked.folder.resolve()), chosen):
            print(line, flush=True)


if __name__ == "__main__":
    main()
