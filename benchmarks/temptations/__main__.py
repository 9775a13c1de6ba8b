"""What tempts the search, and what it took: python -m benchmarks.temptations [NAME ..]

A NAME is a space of this folder, a shipped one, or the path of a space file; without one, all of
the folder run (half a minute). Prints a row a space: points, designs on the front, how many of
these the oracle refuses, by what, and one of them in words. Exits 1 where any is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.temptations.judge import Row, judge, spaces
from dse.catalog import load_catalog

MOST_NAMED = 4  # of the rules that refuse something, in the table
DOC = Path(__file__).parents[2] / "docs" / "search.md"
MARKS = (
    "<!-- written by `python -m benchmarks.temptations --write` -->\n\n",
    "\n<!-- end of what that command writes -->",
)


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| space | points | front | refused | by | for example |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        names = list(row["by"])
        by = ", ".join(f"{name} {row['by'][name]:,}" for name in names[:MOST_NAMED])
        more = f", {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        example = row["examples"][names[0]] if names else "–"
        if row["said"]:
            by = "nothing is feasible" if row["nothing_feasible"] else "the space is refused"
            example = row["said"].splitlines()[0].replace("|", "/")
        lines.append(
            f"| {row['space']} | {row['points']:,} | {row['front']:,} | {row['refused']:,} "
            f"| {by + more or '–'} | {example} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.temptations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a space of the folder or a path")
    parser.add_argument("--json", action="store_true", help="one JSON document, with every example")
    parser.add_argument("--write", action="store_true", help="put the table into docs/search.md")
    options = parser.parse_args(arguments)
    known, catalog = spaces(), load_catalog()
    rows = [judge(known.get(name, name), catalog) for name in options.names or known]
    print(json.dumps({"spaces": rows}, indent=1) if options.json else table(rows))
    if options.write:
        begin, end = MARKS
        before, _, rest = DOC.read_text(encoding="utf-8").partition(begin)
        after = rest.partition(end)[2]
        DOC.write_text(f"{before}{begin}{table(rows)}{end}{after}", encoding="utf-8")
    return 1 if any(row["by"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
