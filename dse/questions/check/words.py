"""The answer of `dse check` as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.numbers import NONE, digits, tenths
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
        by = f"; refused by {_join(refusing)}" if refusing else ""
        rest = f"; no rule here of {_join(taken)} does" if taken and refusing else ""
        words = message(first["rule"], first["says"], first["found"])
        return f"{where} does not fit: it {words}{by}{rest}."
    fits = "fits"
    if refusing:
        fits += f" ({_join(refusing)} {'refuse' if len(refusing) > 1 else 'refuses'} it)"
    if document["prefill"] is None:
        return f"{where} {fits} as far as degrees go; what it wastes is not known."
    prefill, decode = (document[phase]["added_share"] for phase in ("prefill", "decode"))
    if document["fills"] is None:
        return f"{where} {fits}; no rules of matrix products are known for this chip."
    if prefill < SEEN and decode < SEEN:
        return f"{where} {fits} and wastes nothing that these rules see."
    return (
        f"{where} {fits} and its shape adds up to {tenths(prefill)} to a prefill step and "
        f"{tenths(decode)} to a decode step."
    )


def _degrees(deployment: dict[str, Any]) -> str:
    short = {
        "tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP",
        "expert_parallel": "EP",
    }  # fmt: skip
    used = [f"{name} {deployment[axis]}" for axis, name in short.items() if deployment[axis] > 1]
    formats = dict.fromkeys(deployment["weight_dtypes"].values())
    return ", ".join([*(used or ["one chip"]), " and ".join(formats)])


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def degree_lines(document: dict[str, Any]) -> list[str]:
    """Legal degrees: once where all software agrees, else by stack."""
    degrees = document["degrees"]
    by_stack = degrees["by_stack"]
    lines = [_by(by_stack, "tp", f"Tensor parallelism, up to {degrees['up_to']}")]
    if degrees["tp_with_ep"] is not None:
        lines.append(
            f"  with each expert whole on one rank (EP = TP): {spans(degrees['tp_with_ep'])}"
        )
        lines.append(_by(by_stack, "ep", "Expert parallelism"))
    lines.append(_by(by_stack, "pp", "Pipeline stages"))
    refused = degrees["refused"]
    for row in refused[:SHOWN]:
        more = len(row["because"]) - REASONS
        because = [*row["because"][:REASONS], *([f"and {more} more"] if more > 0 else [])]
        lines.append(f"  not TP {row['tp']}: {'; '.join(because)}")
    if len(refused) > SHOWN:
        lines.append(f"  and {len(refused) - SHOWN} higher")
    return lines


def _by(by_stack: dict[str, Any], degree: str, title: str) -> str:
    groups: dict[str, list[str]] = {}
    for stack, found in by_stack.items():
        groups.setdefault(spans(found[degree]), []).append(stack)
    if len(groups) == 1:
        return f"{title}: {next(iter(groups))}"
    return f"{title}: " + "; ".join(f"{values} ({_join(who)})" for values, who in groups.items())


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
        by = f" Refused by {_join(row['refused_by'])}." if row["refused_by"] else ""
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


def gemm_table(
    document: dict[str, Any], phase: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows of the products of one phase; shares are of the step. Columns of what was not
    judged are left out."""
    fills, prefill = document["fills"], phase == "prefill"
    judged = {
        "bytes": fills == "tiles",
        "aligned": fills == "tiles",
        "tiles": fills == "tiles" and prefill,
        "waves": fills == "tiles" and prefill,
        "unit": fills == "matrix_unit" and prefill,
        "share": True,
        "added": fills is not None,
    }
    shown = [title for title, there in judged.items() if there]
    rows = []
    for row in document["gemms"]:
        if row["phase"] != phase:
            continue
        cost = row["added_share"]
        cells = {
            "bytes": f"{row['aligned_bytes']:g}",
            "aligned": f"{row['alignment_efficiency']:.0%}",
            "tiles": f"{row['tile_efficiency']:.0%}",
            "waves": f"{row['wave_efficiency']:.0%}",
            "unit": f"{row['tile_efficiency']:.0%}",
            "share": tenths(row["share"]),
            "added": "0" if cost < SEEN else tenths(cost, sign=True),
        }
        name = row["name"].replace("projections", "proj.").replace("projection", "proj.")
        rows_of = f"{_plain(row['m'])}{_groups(row['groups'])}"
        sizes = (rows_of, f"{row['n']:,.0f}", f"{row['k']:,.0f}")
        rows.append((name, *sizes, *(cells[title] for title in shown)))
    return ("product", "M", "N", "K", *shown), rows


def _plain(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= 100.0 or rows % 1.0 == 0.0 else digits(rows)


def _groups(groups: float) -> str:
    return f" x {groups:,.0f}" if groups > 1 else ""


NEAR_TITLES = ("change", "parameters", "loss, nats", "prefill", "decode", "added, prefill")


def near_lines(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of nearest shapes."""
    rows = []
    for near in document["nearest"]:
        changes = "; ".join(
            f"{name} {before:,} -> {after:,}" for name, (before, after) in near["change"].items()
        )
        loss = near["loss_nats"]
        rows.append(
            (
                changes,
                _percent(near["parameters_share"]),
                NONE if loss is None else f"{loss:+.4f}",
                _percent(near["prefill_step_share"]),
                _percent(near["decode_step_share"]),
                _percent(near["prefill_added_share"], sign=False),
            )
        )
    return rows


def _percent(share: float | None, sign: bool = True) -> str:
    return NONE if share is None else tenths(share, sign=sign)
