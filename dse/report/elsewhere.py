"""The same point on every chip, as a table with the reasons where a chip does not do it."""

from __future__ import annotations

from dataclasses import dataclass

from dse.report.folder import Chosen, Json, StudyFolder
from dse.report.labels import label, show


@dataclass(frozen=True, slots=True)
class Row:
    """One chip: `values` are (metric shown, against the point's own chip), in the order of the
    objectives; `verdict` is `yes`, `its own chip` or why not."""

    chip: str
    price: str
    values: tuple[tuple[str, str], ...]
    feasible: bool
    own: bool
    verdict: str


def elsewhere_rows(folder: StudyFolder, chosen: Chosen) -> list[Row]:
    """The point's own chip, then those that can do it by the first objective that differs from
    chip to chip, then the rest; empty where the study holds none."""
    own_chip = chosen.item["deployment"]["chip"]
    found: list[Json] = chosen.detail.get("elsewhere") or []
    objective = _differing(folder, found)

    def order(row: Json) -> tuple[bool, bool, float]:
        value = (row["metrics"] or {}).get(objective["metric"])
        sign = 1.0 if objective["direction"] == "minimize" else -1.0
        worst = float("inf")
        return (
            row["chip"] != own_chip, not row["feasible"], worst if value is None else sign * value
        )  # fmt: skip

    return [_row(folder, chosen, row, own_chip) for row in sorted(found, key=order)]


def _differing(folder: StudyFolder, found: list[Json]) -> Json:
    for objective in folder.objectives:
        values = {(row["metrics"] or {}).get(objective["metric"]) for row in found}
        if len(values - {None}) > 1:
            return objective
    return folder.objectives[0]


def _row(folder: StudyFolder, chosen: Chosen, row: Json, own_chip: str) -> Row:
    own = row["chip"] == own_chip
    values = []
    for objective in folder.objectives:
        metric = objective["metric"]
        value, here = (row["metrics"] or {}).get(metric), chosen.metrics.get(metric)
        ratio = ""
        if value and here and not own and label(metric).kind != "nats":
            ratio = f"× {value / here:.2f}"
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
