"""Claims as an Answer: all of them, or one with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from dse.accuracy.claims.engine import VERDICTS, Claim, Finding
from dse.accuracy.claims.engine import Table as Evidence
from dse.answer.answer import Answer, Column, Commands, Table
from dse.answer.numbers import NONE

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
            "tables": [asdict(table) for table in finding.tables],
        }
        for claim, finding in found
    ]


def claims_answer(found: Found, command: str = "") -> Answer:
    """A line for each claim."""
    counts = Counter(finding.verdict for _, finding in found)
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return Answer(
        question="claims",
        title="Claims",
        headline=f"Of {len(found)} claims about models and hardware: {tally}.",
        sentences=["Each verdict follows from the numbers by a rule, and changes when they do."],
        blocks=[
            Table.of(
                "claims",
                "Verdicts",
                found,
                (
                    Column("claim", "", "count", of=lambda one: one[0].number),
                    Column("text", "claim", of=lambda one: one[0].text),
                    Column("verdict", "verdict", of=lambda one: one[1].verdict),
                    Column("number", "in numbers", of=lambda one: one[1].number),
                ),
                notes=("dse validate --claims N prints the rule and the evidence of one.",),
            ),
        ],
        document=document(found),
        command=command,
    )


def claim_answer(one: Claim, finding: Finding, command: str = "") -> Answer:
    """One claim with its rule and its evidence."""
    said = (
        ("Rule", one.rule),
        ("Holds for", finding.conditions),
        ("What the numbers are", finding.kinds),
        ("Not known", finding.unknown),
    )
    return Answer(
        question="claim",
        title=f"Claim {one.number}",
        asked=f"Claim {one.number}: {one.text}",
        headline=f"{finding.verdict.capitalize()}: {finding.number}.",
        sentences=[f"{name}: {text}" for name, text in said if text],
        blocks=[
            *(_evidence(f"table {k}", table) for k, table in enumerate(finding.tables, 1)),
            *([Commands("Commands", one.commands[1:])] if one.commands[1:] else []),
        ],
        document=document([(one, finding)])[0],
        command=command,
    )


def _evidence(name: str, table: Evidence) -> Table:
    """Columns whose cells start with a digit, or hold no number at all, are aligned to the right.
    Titles may repeat."""
    columns = [
        Column(
            f"{k} {title}",
            title,
            right=k > 0 and all(_is_number(row[k]) for row in table.rows),
            of=itemgetter(k),
        )
        for k, title in enumerate(table.head)
    ]
    return Table.of(name, table.title, table.rows, columns)


def _is_number(cell: str) -> bool:
    return cell == NONE or cell.lstrip("$-")[:1].isdigit()
