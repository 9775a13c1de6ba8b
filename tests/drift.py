"""How headline predictions moved since the last commit.

    python -m tests.drift            what moved by more than 0.5%
    python -m tests.drift --write    and rewrites tests/golden/headlines.csv

A line of that file is a point (the flags of `dse estimate`), a metric and its value; a point is
added as lines with an empty value. A change that moves a value says so in CHANGELOG.md, with the
words "headline predictions".
"""

from __future__ import annotations

import csv
import io
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import dse

ROOT = Path(__file__).resolve().parents[1]
FILE = "tests/golden/headlines.csv"
CHANGELOG = "CHANGELOG.md"
TOLERANCE = 0.005

Headlines = dict[tuple[str, str], float | None]


def read(text: str) -> Headlines:
    """(point, metric) -> value, None where the line has none yet."""
    return {
        (row["point"], row["metric"]): float(row["value"]) if row["value"] else None
        for row in csv.DictReader(io.StringIO(text))
    }


def written() -> Headlines:
    """What the file says."""
    return read((ROOT / FILE).read_text(encoding="utf-8"))


def committed(name: str) -> str | None:
    """A file as of the last commit; None where there is no git, no commit or no such file."""
    try:
        shown = subprocess.run(
            ["git", "show", f"HEAD:{name}"],
            cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8",
        )  # fmt: skip
    except FileNotFoundError:
        return None
    return shown.stdout if shown.returncode == 0 else None


def predicted(headlines: Headlines) -> Headlines:
    """The same lines with today's values, 6 significant digits."""
    answers = {
        point: dse("estimate", *shlex.split(point), "--json").json()
        for point in dict.fromkeys(point for point, _ in headlines)
    }
    values = {key: answers[key[0]][key[1]] for key in headlines}
    absent = [" of ".join(reversed(key)) for key, value in values.items() if value is None]
    assert not absent, f"no headline, it does not apply: {absent}"
    return {key: float(f"{value:.6g}") for key, value in values.items()}


def moved(before: Headlines, after: Headlines) -> list[tuple[float, str]]:
    """(change, lines to print) of what moved by more than TOLERANCE, the largest change first."""
    found = []
    for key, now in after.items():
        then = before.get(key)
        if then is None or now is None or abs(now / then - 1.0) <= TOLERANCE:
            continue
        found.append((now / then - 1.0, f"{key[1]} {then:.4g} -> {now:.4g}\n         {key[0]}"))
    return sorted(found, key=lambda item: -abs(item[0]))


def main(arguments: list[str]) -> None:
    """Prints what moved; with `--write`, brings the file up to date."""
    after = predicted(written())
    last = committed(FILE)
    before = written() if last is None else read(last)
    against = "the file (it is in no commit yet)" if last is None else "the last commit"
    changes = moved(before, after)
    for change, line in changes:
        print(f"{change:+7.1%}  {line}")
    new = len(after.keys() - before.keys())
    print(
        f"{len(changes)} of {len(after)} headline predictions moved against {against}, {new} new."
    )
    if changes:
        print(f'Say so in {CHANGELOG}, with the words "headline predictions".')
    if "--write" in arguments:
        with (ROOT / FILE).open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(("point", "metric", "value"))
            lines.writerows((*key, f"{value:.6g}") for key, value in after.items())


if __name__ == "__main__":
    main(sys.argv[1:])
