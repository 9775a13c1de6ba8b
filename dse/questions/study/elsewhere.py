"""The same point on every chip, as a table with the reasons where a chip does not do it."""

from __future__ import annotations

from dse.answer.answer import Column, Table
from dse.answer.labels import label
from dse.questions.study.folder import Chosen, Json, StudyFolder
from dse.questions.study.words import capital


def elsewhere_table(folder: StudyFolder, chosen: Chosen) -> Table:
    """The point's own chip, then those that can do it by the first of `compared`, then those that
    cannot; below it the chips that could not be evaluated."""
    own = chosen.item["deployment"]["chip"]
    found = [row for row in chosen.detail.get("elsewhere") or [] if row["metrics"]]
    objectives = compared(folder, chosen)
    first = objectives[0]

    def order(row: Json) -> tuple[bool, bool, float]:
        value = row["metrics"].get(first["metric"])
        sign = 1.0 if first["direction"] == "minimize" else -1.0
        least = float("inf") if value is None else sign * value
        return row["chip"] != own, not row["feasible"], least

    names = [objective["metric"] for objective in objectives]
    ratios = [name for name in names if label(name).kind != "nats"]
    why_not = refused(chosen)
    return Table(
        f"elsewhere-of-{chosen.item['point']}",
        capital(chosen.label),
        (
            Column("chip", "chip"),
            Column("usd_per_chip_hour", "USD per chip-hour", "chip_usd_per_hour"),
            *(Column(name, label(name).text, name) for name in names),
            *(
                Column(f"{name}_ratio", f"{label(name).short}, × its own", "rate")
                for name in ratios
            ),
            Column("verdict", "does it?"),
        ),
        [_row(chosen, row, names, own) for row in sorted(found, key=order)],
        notes=[f"Not evaluated: {why_not}."] if why_not else [],
    )


def compared(folder: StudyFolder, chosen: Chosen) -> list[Json]:
    """The objectives that differ from chip to chip; all where none does."""
    found = [row["metrics"] for row in chosen.detail.get("elsewhere") or [] if row["metrics"]]
    differing = [
        objective
        for objective in folder.objectives
        if len({metrics.get(objective["metric"]) for metrics in found}) > 1
    ]
    return differing or folder.objectives


def refused(chosen: Chosen) -> str:
    """`no peak_bf16: dgx_spark, tt_n150; ...`: chips that could not be evaluated, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in chosen.detail.get("elsewhere") or []:
        if not row["metrics"]:
            reason = row["why_not"].removeprefix(row["chip"]).lstrip(": ").removeprefix("has ")
            reasons.setdefault(reason, []).append(row["chip"])
    return "; ".join(f"{reason}: {', '.join(chips)}" for reason, chips in reasons.items())


def _row(chosen: Chosen, row: Json, names: list[str], own_chip: str) -> Json:
    own, found = row["chip"] == own_chip, dict(row["metrics"])
    for name in names:
        value, here = found.get(name), chosen.metrics.get(name)
        found[f"{name}_ratio"] = value / here if value and here and not own else None
    notes = [row.get("note") or ""]
    if row["feasible"]:
        notes.insert(0, "its own chip" if own else "yes")
        notes.append(f"efficiencies {row['efficiency']}" if row["efficiency"] != "fitted" else "")
        notes.append(f"bound by {row['bottleneck']}")
    else:
        notes.insert(0, f"no: {row['why_not']}")
    verdict = "; ".join(note for note in notes if note)
    return {**row, **found, "verdict": verdict}
