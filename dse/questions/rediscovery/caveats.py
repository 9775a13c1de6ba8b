"""What a distance rests on besides shapes: quality beyond the law's data, memory of the chip."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dse.answer.sentences import listed
from dse.problem.quality import amount
from dse.quality import LAWS
from dse.questions.rediscovery.answer import Rediscovery
from dse.space.candidates import Floats

# Columns of a table that a law's range is for, and whether experts alone are meant.
QUANTITIES = {
    "activation_ratio": ("share of experts used", True),
    "granularity": ("granularity", True),
    "total_parameters": ("total parameters", True),
    "active_parameters": ("active parameters", False),
    "dense_equivalent_parameters": ("dense-equivalent parameters", False),
}
# Memory is named where the weights take so much less of it, and so many times the requests run.
LESS, MORE = 0.1, 1.25


def outside(found: Rediscovery) -> list[str]:
    """In what the shapes of the front, and the design, lie beyond what the law was fitted on."""
    columns, rows = found.table.columns, found.front.rows
    sparse = columns["activation_ratio"] < 1.0
    said, own = [], []
    for name, known in LAWS[found.case.study.quality_law].fit.items():
        if name not in QUANTITIES:
            continue
        words, experts = QUANTITIES[name]
        beyond = known.excludes(columns[name]) & (sparse if experts else True)
        if beyond[rows].any():
            shown = _share if name == "activation_ratio" else amount
            ends = [shown(end) for end in _ends(columns[name][rows][beyond[rows]])]
            low = f"on {shown(known.low)} " if known.low > 0.0 else "up "
            said.append(
                f"{beyond[rows].sum():,} in {words} ({' to '.join(ends)}; fitted {low}to "
                f"{shown(known.high)})"
            )
        if beyond[found.expert]:
            own.append(words)
    if not said:
        return []
    text = f"Of the {len(rows):,} shapes of the front the law extrapolates for {'; '.join(said)}"
    return [f"{text}; for the design in {listed(own)}." if own else f"{text}; not for the design."]


def memory(found: Rediscovery) -> list[str]:
    """Where the cheapest shape that is as good runs more requests on as many chips, because its
    weights leave more of their memory."""
    cheaper = found.distance.cheaper
    if cheaper is None or found.distance.cost_ratio is None:
        return []
    a, b = (found.table.row(i) for i in (found.expert, cheaper))
    (own, few), (other, many) = (
        (
            row["memory_weights_bytes_per_chip"] / row["memory_capacity_bytes_per_chip"],
            row["running_requests"] / row["chips"],
        )
        for row in (a, b)
    )
    if own - other < LESS or many < MORE * few:
        return []
    return [
        f"Part of that is memory, not speed: the design's weights take {own:.0%} of each chip's "
        f"and {few:,.0f} requests run on it at once, with the cheapest shape that is as good "
        f"{other:.0%} and {many:,.0f}."
    ]


def of_all(answers: Sequence[Rediscovery]) -> list[str]:
    """What to know of the figures of several cases side by side."""
    said = []
    for one in answers:
        known = LAWS[one.case.study.quality_law].fit.get("activation_ratio")
        used = one.table.columns["activation_ratio"][one.front.rows]
        if known is not None and (used < known.low).any():
            said.append(
                f"{one.case.title}: {(used < known.low).sum():,} of the {len(used):,} shapes of "
                f"the front use fewer of their experts (down to {_share(float(used.min()))}) than "
                f"the law has seen ({_share(known.low)})."
            )
        if memory(one):
            said.append(f"{one.case.title}: part of the cost is memory of the chip, not speed.")
    return said


def _ends(values: Floats) -> Sequence[float]:
    low, high = float(np.min(values)), float(np.max(values))
    return [low] if low == high else [low, high]


def _share(value: float) -> str:
    return f"{100.0 * value:.3g}%"
