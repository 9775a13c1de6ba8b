"""The same point on every chip, as a table with the reasons where a chip does not do it."""

from __future__ import annotations

from dataclasses import dataclass

from dse.answer.labels import label
from dse.answer.numbers import show, significant
from dse.render.folder import Chosen, Json, StudyFolder


@dataclass(frozen=True, slots=True)
class Row:
    """One chip: `values` are (metric shown, against the point's own chip), in the order of
    `compared`; `verdict` is `yes`, `its own chip` or why not."""

    chip: str
    price: str
    values: tuple[tuple[str, str], ...]
    feasible: bool
    own: bool
    verdict: str


def elsewhere_rows(folder: StudyFolder, chosen: Chosen) -> list[Row]:
    """The point's own chip, then those that can do it by the first of `compared`, then those that
    cannot; `refused` names the chips that could not be evaluated."""
    own_chip = chosen.item["deployment"]["chip"]
    found = [row for row in chosen.detail.get("elsewhere") or [] if row["metrics"]]
    objective = compared(folder, chosen)[0]

    def order(row: Json) -> tuple[bool, bool, float]:
        value = row["metrics"].get(objective["metric"])
        sign = 1.0 if objective["direction"] == "minimize" else -1.0
        worst = float("inf")
        return (
            row["chip"] != own_chip, not row["feasible"], worst if value is None else sign * value
        )  # fmt: skip

    return [_row(folder, chosen, row, own_chip) for row in sorted(found, key=order)]


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


def _row(folder: StudyFolder, chosen: Chosen, row: Json, own_chip: str) -> Row:
    own = row["chip"] == own_chip
    values = []
    for objective in compared(folder, chosen):
        metric = objective["metric"]
        value, here = row["metrics"].get(metric), chosen.metrics.get(metric)
        ratio = ""
        if value and here and not own and label(metric).kind != "nats":
            ratio = f"× {significant(value / here)}"
        values.append((show(metric, value), ratio))
    notes = [row.get("note") or ""]
    if row["feasible"]:
        notes.insert(0, "its own chip" if own else "yes")
        notes.append(f"efficiencies {row['efficiency']}" if row["efficiency"] != "fitted" else "")
        notes.append(f"bound by {row['bottleneck']}")
    else:
        notes.insert(0, f"no: {row['why_not']}")
    return Row(
        row["chip"],
        show("chip_usd_per_hour", row["usd_per_chip_hour"]),
        tuple(values),
        row["feasible"],
        own,
        "; ".join(note for note in notes if note),
    )
