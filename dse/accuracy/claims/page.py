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
    """The page: a table of all claims, then a section for each."""
    counts = [(v, sum(finding.verdict == v for _, finding in found)) for v in VERDICTS]
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    lines = [
        "# Claims",
        "",
        f"Written by `{command}`; nobody edits it. What people hold to be true about models and "
        "hardware, and what this model finds. Each",
        "verdict follows from the numbers by the rule in its section, and changes when they do.",
        "",
        f"Of {len(found)}: {tally}. The first command of a section prints the tables behind its "
        "verdict.",
        "",
        *_table(
            ("", "claim", "verdict"),
            (
                (
                    str(claim.number),
                    escape(claim.text),
                    f"[{finding.verdict}](#claim-{claim.number})",
                )
                for claim, finding in found
            ),
        ),
    ]
    for claim, finding in found:
        lines += _section(claim, finding)
    return "\n".join(lines)


def _section(claim: Claim, finding: Finding) -> list[str]:
    lines = [f"## Claim {claim.number}", "", f"*{escape(claim.text)}*", ""]
    lines += [f"**{finding.verdict.capitalize()}**: {escape(finding.number)}.", ""]
    if claim.commands:
        lines += ["```bash", *claim.commands, "```", ""]
    for name, text in (
        ("Rule", claim.rule),
        ("Holds for", finding.conditions),
        ("What the numbers are", finding.kinds),
        ("Not known", finding.unknown),
    ):
        if text:
            lines.append(f"- {name}: {escape(text)}")
    if claim.rule:
        lines.append("")
    return lines


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(head)
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|#~<>])", r"\\\1", text)
