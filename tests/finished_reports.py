"""Makes the folders of reports/ again, each by the command on its first line:
`python -m tests.finished_reports [--into DIR] [SPACE ...]`.

Without SPACE every folder; one that has no folder yet is made with the default command. Prints
seconds, peak memory and the size of the page.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

REPORTS = Path(__file__).resolve().parents[1] / "reports"
KEPT = (
    "report.html", "report.md", "front.csv", "study.json", "scale.html", "compare.html",
    "compare.md", "fleet.html", "fleet.csv", "fleet.json", "fleet.xlsx", "memo.html",
    "whatif.html", "whatif.csv", "whatif.xlsx", "risk.html", "risk.csv", "risk.xlsx",
)  # fmt: skip


def command_of(name: str) -> list[str]:
    """The words of the command that made the folder `name` of reports/."""
    default = f"dse run {name} --out reports/{name} --seed 0 --engine auto"
    pages = [REPORTS / name / kept for kept in KEPT if kept.endswith((".md", ".html"))]
    page = next((page for page in pages if page.exists()), None)
    if page is None:
        return shlex.split(default)
    first = page.read_text(encoding="utf-8").lstrip().split("\n", 1)[0]
    found = re.fullmatch(r"<!-- (dse .+) -->", first)
    if found is None:
        raise SystemExit(f"{page}: its first line is no `<!-- dse ... -->`: {first}")
    return shlex.split(html.unescape(found[1]))


def make(name: str, into: Path) -> bool:
    """Runs the command of `name` in an empty folder, keeps its result in `into`, prints a line."""
    words = command_of(name)
    folder = Path(words[words.index("--out") + 1])
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.chdir(scratch)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.execvp(sys.executable, [sys.executable, "-m", *words])  # noqa: S606
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - start
        if status != 0:
            print(f"{name}: `{shlex.join(words)}` failed", file=sys.stderr)
            return False
        target = into / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for made in sorted((Path(scratch) / folder).iterdir()):
            if made.name in KEPT:
                shutil.copy(made, target)
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    size = max(page.stat().st_size for page in target.glob("*.html"))
    print(
        f"{name:24} {seconds:6.1f} s {usage.ru_maxrss / unit:7,.0f} MiB {size / 1e6:5.2f} MB",
        flush=True,
    )
    return True


def main() -> int:
    """Stops with exit code 1 at the first command that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spaces", nargs="*", metavar="SPACE")
    parser.add_argument("--into", type=Path, default=REPORTS, metavar="DIR")
    asked = parser.parse_args()
    names = asked.spaces or sorted(path.name for path in REPORTS.iterdir() if path.is_dir())
    return 0 if all(make(name, asked.into) for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
