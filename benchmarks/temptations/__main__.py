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

from benchmarks.temptations.judge import Row, judge, spaces
from dse.catalog import load_catalog
from tools.written import markdown, write

MOST_NAMED = 4  # of the rules that refuse something, in the table
HEAD = ("space", "points", "front", "refused", "by", "for example")


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = []
    for row in rows:
        names = list(row["by"])
        by = ", ".join(f"{name} {row['by'][name]:,}" for name in names[:MOST_NAMED])
        more = f", {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        example = row["examples"][names[0]] if names else "–"
        if row["said"]:
            by = "nothing is feasible" if row["nothing_feasible"] else "the space is refused"
            example = row["said"].splitlines()[0].replace("|", "/")
        counts = (f"{row[name]:,}" for name in ("points", "front", "refused"))
        lines.append((row["space"], *counts, by + more or "–", example))
    return markdown(HEAD, lines)


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
        write("search.md", "python -m benchmarks.temptations --write", table(rows))
    return 1 if any(row["by"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
