"""How sure a front is, in words and a small picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Figure


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


def history_figures(history: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Share of the final hypervolume over evaluations; nothing for fewer than three points, or
    where all of it was there from the start."""
    rows = [row for row in history if row["evaluations"] > 0]
    counts = [row["evaluations"] for row in rows]
    if len(rows) < 3 or counts[0] >= counts[-1] or min(row["share"] for row in rows) >= 1.0:
        return []
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": counts,
        "y": [row["share"] for row in rows],
        "line": {"color": "ink", "width": 2},
        "marker": {"color": "ink", "size": 5},
        "hovertemplate": "%{x:,} evaluations: %{y:.2%}<extra></extra>",
    }
    layout = {
        "height": 240,
        "xaxis": {"title": {"text": "evaluations"}, "type": "log", "dtick": 1},
        "yaxis": {"tickformat": ".0%"},
    }
    shows = "How the front grew: its share of the final hypervolume after so many evaluations."
    return [Figure("history", "", {"data": [line], "layout": layout}, shows)]
