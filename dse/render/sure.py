"""How sure a front is, in words and a small picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def sentences(study: Mapping[str, Any]) -> list[str]:
    """`proof` of study.json in words, for the report and the console; nothing without one."""
    proof = study.get("proof")
    if not proof:
        return []
    if study.get("evaluator"):
        if study.get("true_hypervolume_share") is not None:
            return []
        return [
            f"Each evaluation is a call of {study['evaluator']}, so none was spent on proof: how "
            "near the front is to the true one is not known."
        ]
    said: list[str] = []
    if whole := proof.get("enumerated"):
        if whole["found"] == whole["true_front_size"] and whole["additive_epsilon"] == 0.0:
            said.append(
                f"All {whole['evaluations']:,} points of the space were evaluated: this is the "
                "true front of the model."
            )
        else:
            said.append(
                f"Against all {whole['evaluations']:,} points of the space, evaluated afterwards, "
                f"the front has {percent(whole['true_hypervolume_share'])} of the true "
                f"hypervolume and {whole['found']:,} of {whole['true_front_size']:,} true points; "
                f"additive epsilon {whole['additive_epsilon']:.2g} of an objective's range."
            )
    else:
        said.append("The space was not enumerated: what follows is evidence, not proof.")
    if local := proof.get("local"):
        said.append(
            f"One parameter away from the front lie {local['neighbours']:,} points, "
            f"{local['feasible']:,} of them feasible; all were evaluated: "
            + (
                "none improves the front."
                if not local["better"]
                else f"{local['better']:,} would improve it, and {percent(local['share'])} of "
                "its points stay unbeaten."
            )
        )
    if runs := proof.get("restarts"):
        shares = [run["share"] for run in runs[1:]]
        said.append(
            f"{len(shares)} more searches that share nothing with this one found {_range(shares)} "
            f"of the hypervolume of all together; this one found {percent(runs[0]['share'])}."
        )
    if part := proof.get("subgrid"):
        said.append(
            f"On {part['size']:,} points spread over the space that were all evaluated, the same "
            f"search finds {percent(part['true_hypervolume_share'])} of the true hypervolume with "
            f"{part['evaluations']:,} evaluations."
        )
    return said


def _range(shares: Sequence[float]) -> str:
    least, most = percent(min(shares)), percent(max(shares))
    return f"{least} each" if least == most else f"{least} to {most}"


def percent(share: float) -> str:
    """A share with as many nines as it has, never rounded up to 100%."""
    for digits in (2, 3, 4, 5, 6):
        text = f"{100 * share:.{digits}f}"
        if share >= 1.0 or not text.startswith("100"):
            return f"{100 * min(share, 1.0):g}%" if share >= 1.0 else f"{text}%"
    return "over 99.999999%"


WIDTH, HEIGHT = 560, 180
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 40


def history_svg(history: Sequence[Mapping[str, Any]]) -> str:
    """Share of the final hypervolume over evaluations (logarithmic), as an SVG element; nothing for
    fewer than three points."""
    points = [(float(row["evaluations"]), float(row["share"])) for row in history]
    points = [(evaluations, share) for evaluations, share in points if evaluations > 0]
    if len(points) < 3:
        return ""
    first, last = math.log10(points[0][0]), math.log10(points[-1][0])
    least = math.floor(10 * min(share for _, share in points)) / 10
    if last <= first or least >= 1.0:
        return ""

    def at(evaluations: float, share: float) -> tuple[float, float]:
        x = LEFT + (math.log10(evaluations) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        y = TOP + (1.0 - share) / (1.0 - least) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" class="history" '
        'aria-label="Hypervolume over evaluations" style="max-width:100%;height:auto">'
    ]
    for share in (least, (1.0 + least) / 2, 1.0):
        y = at(points[0][0], share)[1]
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="currentColor" '
            f'stroke-opacity="0.15"/><text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" '
            f'font-size="12" fill="currentColor">{share:.0%}</text>'
        )
    marks = [points[0][0], *(10**k for k in range(1, 10)), points[-1][0]]
    placed = -math.inf
    for mark in sorted({m for m in marks if points[0][0] <= m <= points[-1][0]}):
        x = at(mark, 1.0)[0]
        if x - placed < 70 or (mark != points[-1][0] and WIDTH - RIGHT - x < 70):
            continue
        placed = x
        anchor = "end" if mark == points[-1][0] else "middle"
        parts.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}" font-size="12" '
            f'fill="currentColor">{mark:,.0f}</text>'
        )
    line = " ".join(f"{x},{y}" for x, y in (at(*point) for point in points))
    parts.append(
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="2"/>'
        + "".join(
            f'<circle cx="{x}" cy="{y}" r="3" fill="currentColor"/>'
            for x, y in (at(*point) for point in points)
        )
        + f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" '
        'font-size="12" fill="currentColor">evaluations, logarithmic</text></svg>'
    )
    return "".join(parts)
