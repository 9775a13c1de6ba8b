"""The page of claims: python -m tools.claims_page docs/claims.md

`claims_page.md` beside this file is the page without its tables.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.catalog import load_catalog
from dse.files import write_text
from dse.questions.claims import (
    ASKED,
    CONFIRMED,
    CONTRADICTED,
    COUNTS,
    TRUE_IF,
    UNDECIDED,
    asker,
    judged,
    load_claim,
    shipped,
    verdict_words,
)
from dse.render.markdown import escape, table
from tools.written import filled

MARKS = {CONFIRMED: "●", TRUE_IF: "◐", CONTRADICTED: "○", UNDECIDED: "?"}

Judged = Mapping[str, Any]


def page(claims: Sequence[Judged], path: str) -> str:
    """All verdicts first, then each claim, as `judged` leaves them."""
    counts = Counter(part["verdict"] for claim in claims for part in claim["parts"])
    lines: list[str] = []
    for claim in claims:
        name = claim["claim"]
        lines += [f"## {name}. {escape(claim['title'])}", "", f"> {escape(claim['statement'])}", ""]
        rows = [(p["says"], verdict_words(p), p["number"], p["rule"]) for p in claim["parts"]]
        lines += table(("part", "verdict", "number", "rule"), rows)
        lines += [f"{escape(claim['about'])} `dse claims check {name}`".strip(), ""]
    return filled(
        __file__,
        {
            "path": path,
            "tally": ", ".join(f"{MARKS[v]} {counts[v]} {v}" for v in COUNTS if counts[v]),
            "verdicts": "\n".join(table(("", "claim", "its parts"), map(_row, claims))),
            "claims": "\n".join(lines),
            "asked": ", ".join(f"`{name}`" for name in sorted(ASKED)),
        },
    )


def _row(claim: Judged) -> tuple[str, str, str]:
    parts = (f"{MARKS[part['verdict']]} {part['says']}" for part in claim["parts"])
    return claim["claim"], claim["title"], "; ".join(parts)


def main(path: Path) -> None:
    """Judges every shipped claim and writes the page."""
    ask = asker(load_catalog())
    claims = [
        judged(load_claim(name), ask, lambda text: print(text, file=sys.stderr))
        for name in shipped()
    ]
    write_text(path.parent, path.name, page(claims, str(path)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
