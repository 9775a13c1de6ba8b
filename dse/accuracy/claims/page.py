"""The claims as a Markdown page, and as one JSON document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dse.accuracy.claims.engine import VERDICTS, Claim, Finding

Found = Sequence[tuple[Claim, Finding]]


def document(found: Found) -> list[dict[str, Any]]:
    """What `dse validate --claims --json` prints: one item a claim."""
    return [
        {
            "claim": claim.number,
            "text": claim.text,
            "verdict": finding.verdict,
            "number": finding.number,
            "figures": dict(finding.figures),
            "commands": list(claim.commands),
            "rule": claim.rule,
            "conditions": finding.conditions,
            "kinds": finding.kinds,
            "unknown": finding.unknown,
            "tables": [
                {
                    "title": table.title,
                    "head": list(table.head),
                    "rows": [list(r) for r in table.rows],
                }
                for table in finding.tables
            ],
        }
        for claim, finding in found
    ]


def markdown(found: Found, command: str) -> str:
    """The page: a table of all claims, with what was found."""
    counts = [(v, sum(finding.verdict == v for _, finding in found)) for v in VERDICTS]
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    return "\n".join(
        [
            "# Claims",
            "",
            f"Written by `{command}`. What people hold to be true about models and hardware, and "
            "what this model finds.",
            "",
            f"Of {len(found)}: {tally}.",
            "",
            "A rule decides each verdict from the numbers, so that it changes when they do. Most "
            "numbers are predictions. `dse validate --claims N` prints the rule of claim N, what "
            "it holds for, which numbers are measured, what is "
            "not known, the tables behind it, and a command to try.",
            "",
            "```bash",
            "dse validate --claims 2",
            "```",
            "",
            *_table(
                ("", "claim", "found", "verdict"),
                (
                    (str(one.number), escape(one.text), escape(said.number), said.verdict)
                    for one, said in found
                ),
            ),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(head)
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|#~<>])", r"\\\1", text)
