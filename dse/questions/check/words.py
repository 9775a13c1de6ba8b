"""The answer of `dse check` as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.numbers import tenths
from dse.answer.sentences import listed
from dse.problem.words import SHORT_DEGREES
from dse.rules.kinds import message

SHOWN, REASONS = 3, 3  # refused degrees, and reasons of each
SEEN = 5e-4  # shares below it are none
TITLES = {"error": "Refused", "waste": "Costs time", "note": "Worth knowing"}


def answer(document: dict[str, Any]) -> str:
    """One sentence: whether the shape fits, and what it costs."""
    stacks = document["stacks"]
    taken = [name for name, takes in stacks.items() if takes]
    refusing = [name for name, takes in stacks.items() if not takes]
    where = f"{document['model']} on {document['chip']} ({_degrees(document['deployment'])})"
    if not document["ok"]:
        first = _by_rule([row for row in document["rules"] if row["binds"]])[0]
        by = f"; refused by {listed(refusing)}" if refusing else ""
        rest = f"; no rule here of {listed(taken)} does" if taken and refusing else ""
        words = message(first["rule"], first["says"], first["found"])
        return f"{where} does not fit: it {words}{by}{rest}."
    fits = "fits"
    if refusing:
        fits += f" ({listed(refusing)} {'refuse' if len(refusing) > 1 else 'refuses'} it)"
    if document["prefill"] is None:
        return f"{where} {fits} as far as degrees go; what it wastes is not known."
    if document["fills"] is None:
        return f"{where} {fits}; no rules of matrix products are known for this chip."
    added, lost = (
        [tenths(document[phase][name]) for phase in ("prefill", "decode")]
        if max(document[phase][name] for phase in ("prefill", "decode")) >= SEEN
        else None
        for name in ("added_share", "misaligned_share")
    )
    if added is None and lost is None:
        return f"{where} {fits} and wastes nothing that these rules see."
    words = []
    if lost is not None:
        words.append(
            f"misaligned sizes take {lost[0]} of the predicted prefill step and {lost[1]} of the "
            "decode step"
        )
    if added is not None:
        words.append(
            f"its shape adds up to {added[0]} to a prefill step and {added[1]} to a decode step"
        )
    return f"{where} {fits} and {'; '.join(words)}."


def _degrees(deployment: dict[str, Any]) -> str:
    used = [
        f"{name} {deployment[axis]}"
        for axis, name in SHORT_DEGREES.items()
        if deployment.get(axis, 1) > 1
    ]
    formats = dict.fromkeys(deployment["weight_dtypes"].values())
    return ", ".join([*(used or ["one chip"]), " and ".join(formats)])


def degree_lines(document: dict[str, Any]) -> list[str]:
    """Legal degrees: once where all software agrees, else by stack."""
    degrees = document["degrees"]
    by_stack = degrees["by_stack"]
    lines = [_by(by_stack, "tp", f"Tensor parallelism, up to {degrees['up_to']}")]
    if degrees["tp_with_ep"] is not None:
        lines.append(
            f"With each expert whole on one rank (EP = TP): {spans(degrees['tp_with_ep'])}"
        )
        lines.append(_by(by_stack, "ep", "Expert parallelism"))
    lines.append(_by(by_stack, "pp", "Pipeline stages"))
    refused = degrees["refused"]
    for row in refused[:SHOWN]:
        more = len(row["because"]) - REASONS
        because = [*row["because"][:REASONS], *([f"and {more} more"] if more > 0 else [])]
        lines.append(f"Not TP {row['tp']}: {'; '.join(because)}")
    if len(refused) > SHOWN:
        lines.append(f"And {len(refused) - SHOWN} higher degrees of tensor parallelism")
    return lines


def _by(by_stack: dict[str, Any], degree: str, title: str) -> str:
    groups: dict[str, list[str]] = {}
    for stack, found in by_stack.items():
        groups.setdefault(spans(found[degree]), []).append(stack)
    if len(groups) == 1:
        return f"{title}: {next(iter(groups))}"
    return f"{title}: " + "; ".join(f"{values} ({listed(who)})" for values, who in groups.items())


def spans(values: Sequence[int]) -> str:
    """1, 2, 4 to 9: whole numbers, four or more in a row as a span."""
    if not values:
        return "none"
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 3 else [str(value) for value in run]
    return ", ".join(words)


def rule_lines(document: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(title, sentences) of each severity that has a finding."""
    groups = []
    for severity, title in TITLES.items():
        rows = [row for row in document["rules"] if row["severity"] == severity]
        if severity == "error":  # one sentence a rule, whatever sizes break it
            rows = _by_rule(rows)
        if rows:
            groups.append((title, [_sentence(row) for row in rows]))
    return groups


def _by_rule(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row["rule"], {})[row["found"]] = None
    first = {row["rule"]: row for row in reversed(rows)}
    return [first[name] | {"found": "; ".join(words)} for name, words in found.items()]


def _sentence(row: dict[str, Any]) -> str:
    name = row["rule"].replace("_", " ")
    if row["severity"] == "error":
        broken = f"It {message(row['rule'], row['says'], row['found'])}"
        by = f" Refused by {listed(row['refused_by'])}." if row["refused_by"] else ""
        return f"{broken}.{by} Source: {row['source']}."
    if row["severity"] == "note":
        return f"{name}: {row['found']}. Usual ({row['known']}): {row['says']}."
    costs = [
        f"{tenths(row[f'{phase}_share'])} of the {phase} step"
        for phase in ("prefill", "decode")
        if (row[f"{phase}_share"] or 0.0) >= SEEN
    ]
    cost = " and ".join(costs) or "no time that shows"
    kind = f"{row['known']}; in every prediction" if row["in_predictions"] else row["known"]
    return f"{name}: {cost} ({kind}): {row['found']}"
