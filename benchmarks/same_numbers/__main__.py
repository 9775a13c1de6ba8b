"""Whether the numbers of sixty commands and five studies are what they were.

    python -m benchmarks.same_numbers record DIR [PATTERN]   of the tree in this folder
    python -m benchmarks.same_numbers compare BEFORE AFTER   exit status 1 on a difference

With a pattern, such as 'fleet*', only the commands that match are recorded, and the studies where
DIR lacks them; what one of two recordings lacks is not compared.

A recording has the `--json` document of each command of commands.txt, the text of some, the seconds
of all, and front.csv and study.json of five studies. Rows of a table are matched by their texts,
not by their place, and fronts on the columns that both have. declared.json says what may go, come,
move or change in the documents of which commands, each with its reason. Of a command whose document
was built anew, it says so under `rebuilt`: there each number of the old document must stand in the
new one, anywhere, but for those that may go or change.
"""

from __future__ import annotations

import bisect
import csv
import fnmatch
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STUDIES = ("tiny", "quickstart", "deploy-llama-3-70b", "pools-deepseek-v3", "lifetime-dense")
# What differs from run to run, by key.
FLEETING = (
    "seconds",
    "versions",
    "date",
    "command",
    "started",
    "folder",
    "study",
    "studies",
    "file",
)


def commands() -> list[tuple[str, bool]]:
    """(words of a command, whether its text is kept)."""
    lines = (HERE / "commands.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return [(line.removeprefix("! "), line.startswith("! ")) for line in kept]


def run(words: list[str]) -> tuple[str, float]:
    """What `dse WORDS` prints, and its seconds; what went wrong where it ends with 2 or more."""
    began = time.perf_counter()
    said = subprocess.run(  # noqa: S603 - commands of commands.txt
        [sys.executable, "-m", "dse", *words], capture_output=True, text=True, check=False
    )
    text = said.stdout or json.dumps({"exit": said.returncode, "error": said.stderr})
    return text, time.perf_counter() - began


def record(folder: Path, pattern: str = "*") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    studies = folder / "studies"
    for name in STUDIES:
        if pattern != "*" and (studies / name / "front.csv").exists():
            continue
        seconds[f"run {name}"] = run(["run", name, "--seed", "1", "--out", str(studies / name)])[1]
        print(f"run {name}: {seconds[f'run {name}']:.1f} s", flush=True)
    for k, (line, as_text) in enumerate(commands(), 1):
        if not fnmatch.fnmatchcase(line, pattern):
            continue
        words = shlex.split(line.replace("STUDIES", str(studies)))
        text, seconds[line] = run([*words, "--json"])
        (folder / f"{k:02}.json").write_text(text, encoding="utf-8")
        if as_text:
            (folder / f"{k:02}.txt").write_text(run(words)[0], encoding="utf-8")
        print(f"{k:02} {seconds[line]:5.1f} s {line}", flush=True)
    (folder / "times.json").write_text(json.dumps(seconds, indent=1), encoding="utf-8")


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping or list, with its path; a row is called by its texts."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key not in FLEETING:
                yield from leaves(one, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        seen: Counter[str] = Counter()
        for k, one in enumerate(value):
            texts = [v for v in one.values() if isinstance(v, str)] if isinstance(one, dict) else ()
            name = "/".join(texts) or str(k)
            seen[name] += 1
            yield from leaves(one, f"{at}[{name}{f'#{seen[name]}' if seen[name] > 1 else ''}]")
    else:
        yield at, value


def same(a: Any, b: Any) -> bool:
    """Types count: 1 is not true, and 3 is not "3"; numbers to 1e-12."""
    if isinstance(a, bool | str) or isinstance(b, bool | str):
        return type(a) is type(b) and a == b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    return a == b


def moved(path: str, renamed: Mapping[str, str]) -> str:
    for old, new in renamed.items():
        path = path.replace(old, new)
    return path


def differences(before: Any, after: Any, declared: Mapping[str, Any]) -> tuple[list[str], int]:
    """Lines that say what differs, and how many values were compared. `declared` has patterns of
    paths under gone, new, changed (each with its reason), and parts of paths under renamed."""
    renamed = {old: new["to"] for old, new in declared.get("renamed", {}).items()}
    old = {moved(path, renamed): value for path, value in leaves(before)}
    new = dict(leaves(after))

    def undeclared(paths: set[str], kind: str) -> list[str]:
        known = declared.get(kind, {})
        return sorted(p for p in paths if not any(fnmatch.fnmatchcase(p, one) for one in known))

    both = old.keys() & new.keys()
    differ = undeclared({path for path in both if not same(old[path], new[path])}, "changed")
    lines = [f"differs {path}: {old[path]!r} -> {new[path]!r}" for path in differ]
    lines += [f"gone    {path}" for path in undeclared(old.keys() - new.keys(), "gone")]
    lines += [f"new     {path}" for path in undeclared(new.keys() - old.keys(), "new")]
    return lines, len(both)


def lost(before: Any, after: Any, declared: Mapping[str, Any]) -> tuple[list[str], int]:
    """As `differences` of a document that was built anew: the numbers that stand nowhere in it."""
    known = sorted(float(v) for _, v in leaves(after) if isinstance(v, int | float))
    gone = [*declared.get("gone", {}), *declared.get("changed", {})]
    lines, count = [], 0
    for path, value in leaves(before):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        k = bisect.bisect_left(known, value - 1e-12 * abs(value))
        count += 1
        stands = k < len(known) and same(float(value), known[k])
        if not stands and not any(fnmatch.fnmatchcase(path, one) for one in gone):
            lines.append(f"nowhere {path}: {value!r}")
    return lines, count


def front(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    return [dict(zip(names, row, strict=True)) for row in rows]


def compare(before: Path, after: Path) -> int:
    known = json.loads((HERE / "declared.json").read_text(encoding="utf-8"))
    bad = total = 0
    for k, (line, _) in enumerate(commands(), 1):
        old, new = (folder / f"{k:02}.json" for folder in (before, after))
        if not (old.exists() and new.exists()):
            continue
        mine = [of for pattern, of in known.items() if fnmatch.fnmatchcase(line, pattern)]
        declared = {
            kind: {key: why for of in mine for key, why in of.get(kind, {}).items()}
            for kind in ("gone", "new", "renamed", "changed")
        }
        rebuilt = any("rebuilt" in of for of in mine)
        lines, count = (lost if rebuilt else differences)(
            json.loads(old.read_text()), json.loads(new.read_text()), declared
        )
        bad, total = bad + bool(lines), total + count
        print(f"{k:02} {count:6} compared, {len(lines)} differ  {line}")
        for text in lines[:12]:
            print(f"     {text[:200]}")
    for name in STUDIES:
        old, new = (front(folder / "studies" / name / "front.csv") for folder in (before, after))
        shared = [key for key in old[0] if key in new[0]] if old and new else []
        rows = [[[row[key] for key in shared] for row in table] for table in (old, new)]
        bad += rows[0] != rows[1]
        verdict = "same" if rows[0] == rows[1] else "DIFFERENT"
        print(f"front of {name}: {len(rows[0])} designs, {verdict}")
    print(f"{total:,} values compared; {bad} of {len(commands()) + len(STUDIES)} differ")
    return int(bad > 0)


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    if sys.argv[1:2] == ["record"] and len(sys.argv) in (3, 4):
        record(Path(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 4:
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        sys.exit(__doc__)
