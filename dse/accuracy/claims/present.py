"""Claims as an Answer: all of them, or one with its rule and its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dse.accuracy.claims.engine import VERDICTS, Claim, Finding
from dse.accuracy.claims.engine import Table as Evidence
from dse.accuracy.claims.page import Found, document
from dse.answer.answer import Answer, Cell, Column, Notes, Table


def claims_answer(found: Found) -> Answer:
    """A line for each claim."""
    counts = [(v, sum(finding.verdict == v for _, finding in found)) for v in VERDICTS]
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    return Answer(
        question="claims",
        title="Claims",
        headline=f"Of {len(found)} claims about models and hardware: {tally}.",
        blocks=[
            Table(
                "claims",
                "Verdicts",
                (
                    Column("claim", "", right=True),
                    Column("text", "claim"),
                    Column("verdict", "verdict"),
                    Column("number", "in numbers"),
                ),
                [
                    {
                        "claim": str(one.number),
                        "text": one.text,
                        "verdict": finding.verdict,
                        "number": finding.number,
                    }
                    for one, finding in found
                ],
                notes=("dse validate --claims N prints the rule and the evidence of one.",),
            )
        ],
        document=document(found),
    )


def claim_answer(one: Claim, finding: Finding) -> Answer:
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
            *([Notes("Commands", one.commands)] if one.commands else []),
        ],
        document=document([(one, finding)])[0],
    )


def _evidence(name: str, table: Evidence) -> Table:
    right = _numbers(table.rows)
    keys = [str(k) for k in range(len(table.head))]
    rows: list[dict[str, Cell]] = [dict(zip(keys, row, strict=True)) for row in table.rows]
    columns = [
        Column(key, title, right=k in right)
        for k, (key, title) in enumerate(zip(keys, table.head, strict=True))
    ]
    return Table(name, table.title, columns, rows)


def _numbers(rows: Sequence[Sequence[str]]) -> list[int]:
    """Columns whose cells start with a digit, or hold no number at all."""
    return [
        k
        for k in range(1, len(rows[0]) if rows else 0)
        if all(row[k].lstrip("$-")[:1].isdigit() or row[k] == "–" for row in rows)
    ]
