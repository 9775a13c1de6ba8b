"""The page of claims and its pictures: python -m tools.claims_page docs/claims.md

`claims_page.md` beside this file is the page without its tables.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape as in_svg

from dse.answer.numbers import show_as
from dse.answer.plots import BLUE, VERMILION
from dse.catalog import load_catalog
from dse.questions.claims import (
    ASKED,
    CONFIRMED,
    CONTRADICTED,
    TRUE_IF,
    UNDECIDED,
    VERDICTS,
    asker,
    bounds,
    judged,
    load_claim,
    shipped,
    verdict_words,
)
from dse.render.markdown import escape, table
from tools.written import filled, write_page

MARKS = {CONFIRMED: "●", TRUE_IF: "◐", CONTRADICTED: "○", UNDECIDED: "?"}
FEW = 4  # cases from which on a part has a picture
LEFT, WIDE, ROW, TOP, RIGHT = 300, 340, 22, 34, 90  # pixels
DECADES = 1.5  # from which on the axis is logarithmic

Judged = Mapping[str, Any]


def page(claims: Sequence[Judged], path: str, pictures: dict[str, str]) -> str:
    """All verdicts first, then each claim, as `judged` leaves them."""
    counts = Counter(part["verdict"] for claim in claims for part in claim["parts"])
    lines: list[str] = []
    for claim in claims:
        name = claim["claim"]
        lines += [f"## {name}. {escape(claim['title'])}", "", f"> {escape(claim['statement'])}", ""]
        rows = [(p["says"], verdict_words(p), p["number"], p["rule"]) for p in claim["parts"]]
        lines += table(("part", "verdict", "number", "rule"), rows)
        if (drawn := _drawn(claim["parts"])) is not None:
            pictures[f"claims-{name}.svg"] = bars_svg(drawn)
            words = f"{drawn['says']}: {verdict_words(drawn)}"
            lines += [f"![{escape(words)}](claims-{name}.svg)", ""]
        lines += [f"{escape(claim['about'])} `dse claims check {name}`".strip(), ""]
    return filled(
        __file__,
        {
            "path": path,
            "tally": ", ".join(f"{MARKS[v]} {counts[v]} {v}" for v in VERDICTS if counts[v]),
            "verdicts": "\n".join(table(("", "claim", "its parts"), map(_row, claims))),
            "claims": "\n".join(lines),
            "asked": ", ".join(f"`{name}`" for name in sorted(ASKED)),
        },
    )


def _row(claim: Judged) -> tuple[str, str, str]:
    parts = (f"{MARKS[part['verdict']]} {part['says']}" for part in claim["parts"])
    return claim["claim"], claim["title"], "; ".join(parts)


def _drawn(parts: Sequence[Judged]) -> Judged | None:
    """The part whose cases are worth a picture: one that is not simply confirmed, if any."""
    many = [part for part in parts if len(_known(part)) >= FEW]
    return next((part for part in many if part["verdict"] != CONFIRMED), many[0] if many else None)


def _known(part: Judged) -> list[tuple[str, float, bool]]:
    cases = (case for case in part["cases"] if case["value"] is not None)
    return [(case["name"], case["value"], case["holds"]) for case in cases]


def bars_svg(part: Judged) -> str:
    """A bar for each case, coloured by whether the part holds for it, and a line at each bound of
    the rule. Numbers above zero that span more than DECADES have a logarithmic axis, that of years
    begins before the first."""
    cases, ends = _known(part), [bound for _, bound in bounds(part["holds"])]
    every = [value for _, value, _ in cases] + ends
    log = min(every) > 0.0 and math.log10(max(every) / min(every)) > DECADES
    low, high = min(0.0, *every), max(0.0, *every)
    if log:
        low, high = math.log10(min(every)) - 0.1, math.log10(max(every))
    elif part["show"] == "year":  # none is near 0
        low = min(every) - 1.0

    def x(value: float) -> float:
        at = math.log10(value) if log else value
        return LEFT + WIDE * (at - low) / (high - low or 1.0)

    start = max(LEFT, x(0.0)) if not log else LEFT
    height = TOP + ROW * len(cases) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + RIGHT}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="8" y="20" font-size="13">{in_svg(part["says"])}: holds where '
        f"{in_svg(part['holds'])}{' (logarithmic)' if log else ''}</text>",
    ]
    for k, (name, value, holds) in enumerate(cases):
        number = in_svg(show_as(part["show"], value))
        y, (left, right) = TOP + ROW * k, sorted((start, x(value)))
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{in_svg(name)}</text>'
            f'<rect x="{left:.1f}" y="{y + 3}" width="{max(1.0, right - left):.1f}" '
            f'height="{ROW - 8}" fill="{BLUE if holds else VERMILION}"/>'
            f'<text x="{right + 6:.1f}" y="{y + 14}">{number}</text>'
        )
    parts += [
        f'<path d="M{x(bound):.1f} {TOP - 4}v{ROW * len(cases) + 8}" stroke="#16202b" '
        'stroke-dasharray="4 3"/>'
        for bound in ends
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(path: Path) -> None:
    """Judges every shipped claim and writes the page, and its pictures beside it."""
    ask, pictures = asker(load_catalog()), {}
    claims = [
        judged(load_claim(name), ask, lambda text: print(text, file=sys.stderr))
        for name in shipped()
    ]
    text = page(claims, str(path), pictures)
    write_page(path, text, pictures)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
