"""Claims as an Answer: the verdicts of many, or one with its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dse.accuracy.claims.claim import Claim
from dse.accuracy.claims.judge import VERDICTS, Case, Finding
from dse.answer.answer import Answer, Column, Commands, Figure, Section, Table
from dse.answer.bars import share_bars
from dse.answer.numbers import show_as
from dse.answer.plots import BLUE, VERMILION, bars, names_axis, plain, upright

Judged = Sequence[tuple[Claim, tuple[Finding, ...]]]
CASES = (
    Column("case", "case"),
    Column("number", "number", right=True),
    Column("holds", "holds"),
)
FEW = 3  # cases from which on a picture says more


def document(claim: Claim, findings: Sequence[Finding]) -> dict[str, Any]:
    """One claim as `dse claims check --json` prints it."""
    return {
        "claim": claim.name,
        "title": claim.title,
        "statement": claim.statement,
        "about": claim.about,
        "parts": [_part(finding) for finding in findings],
    }


def _part(finding: Finding) -> dict[str, Any]:
    part = finding.part
    said = {"says": part.says, "rule": part.rule, "holds": part.holds.text}
    cases = [
        {"name": one.name, "value": one.value, "holds": one.holds, "why": one.why or None}
        | {"command": one.command or None}
        for one in finding.cases
    ]
    verdict = {"verdict": finding.verdict, "condition": finding.condition or None}
    return said | verdict | {"number": finding.number, "cases": cases}


def claims_answer(judged: Judged) -> Answer:
    """A row for each part of each claim."""
    rows = [
        {
            "claim": claim.name if k == 0 else "",
            "title": claim.title if k == 0 else "",
            "part": finding.part.says,
            "verdict": finding.words,
            "number": finding.number,
        }
        for claim, findings in judged
        for k, finding in enumerate(findings)
    ]
    counts = Counter(finding.verdict for _, findings in judged for finding in findings)
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    columns = [
        Column(key, title) for key, title in (("claim", ""), ("title", "claim"), ("part", "part"))
    ]
    columns += [Column("verdict", "verdict"), Column("number", "number", right=True)]
    return Answer(
        question="claims",
        title="Claims",
        headline=f"Of {len(rows)} parts of {len(judged)} claims: {tally}.",
        sentences=["Each rule stands beside its number: dse claims check N prints both."],
        blocks=[_tally(counts, len(rows)), Table("claims", "Verdicts", columns, rows)],
        document=[document(claim, findings) for claim, findings in judged],
    )


def _tally(counts: Mapping[str, int], parts: int) -> Figure:
    shares = {verdict: counts[verdict] / parts for verdict in VERDICTS if counts[verdict]}
    return share_bars("verdicts", "Parts of claims by verdict", "the parts", shares)


def claim_answer(claim: Claim, findings: Sequence[Finding]) -> Answer:
    """One claim: its parts, the rule of each, the number of each case."""
    lines = dict.fromkeys(one.command for finding in findings for one in finding.cases[:1])
    return Answer(
        question="claim",
        title=f"Claim {claim.name}: {claim.title}",
        asked=claim.statement,
        headline="; ".join(f"{one.part.says}: {one.words}" for one in findings) + ".",
        sentences=[claim.about] if claim.about else [],
        blocks=[
            *(_section(k, finding) for k, finding in enumerate(findings, 1)),
            Commands("Commands", [line for line in lines if line]),
        ],
        document=document(claim, findings),
    )


def _section(k: int, finding: Finding) -> Section:
    part = finding.part
    rows = [_row(finding, one) for one in finding.cases]
    table = Table(f"part {k}", f"Holds where the number is {part.holds.text}", CASES, rows)
    about = [f"Rule: {part.rule}.", f"Verdict: {finding.words}."]
    blocks = [table]
    if len(rows) >= FEW:
        blocks = [picture(f"picture {k}", finding), table]
    return Section(part.says, blocks, about)


def _row(finding: Finding, case: Case) -> dict[str, Any]:
    holds = {True: "yes", False: "no", None: case.why}[case.holds]
    number = show_as(finding.part.show, case.value)
    return {"case": case.name or finding.part.says, "number": number, "holds": holds}


def picture(name: str, finding: Finding) -> Figure:
    """A bar for each case, by whether the part holds for it, and lines at the threshold."""
    part, title = finding.part, finding.part.says
    known = [one for one in finding.cases if one.value is not None]
    names = [plain(one.name) for one in known][::-1]
    data = [
        bars(
            words,
            [one.value if one.holds is holds else None for one in known][::-1],
            names,
            colour,
        )
        for words, holds, colour in (("holds", True, BLUE), ("does not", False, VERMILION))
    ]
    layout = {
        "barmode": "overlay",
        "yaxis": names_axis(names),
        "shapes": [upright(bound) for _, bound in part.holds.bounds],
    }
    if part.show == "year":  # none is near 0
        ends = [one.value for one in known if one.value is not None]
        layout["xaxis"] = {"range": [min(ends) - 1.0, max(ends) + 1.0]}
    shows = f"A bar for each case; the part holds where the number is {part.holds.text}."
    return Figure(name, title, {"data": data, "layout": layout}, shows)
