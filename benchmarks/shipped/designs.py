"""The designs to start from, beside published models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.temptations.published import Measured, alike, bands, measure, outside
from dse.schema.model import model_of
from dse.study.result import Study

Row = dict[str, Any]
# What the table shows: measures of `benchmarks.temptations.published`, and how.
SHOWN = {
    "width_per_layer": "{:.0f}",
    "attention_share": "{:.0%}",
    "experts": "{:.0f}",
    "experts_per_token": "{:.0f}",
    "granularity": "{:.1f}",
    "tokens_per_active_parameter": "{:,.0f}",
}
HEAD = (
    "space|parameters, active|trained on|hidden size / layers|attention|experts|a token|"
    "granularity|tokens / active|beyond published models"
)


def design(study: Study) -> Row:
    """The start-here design of a study: its sizes and measures, and in words each measure that is
    beyond what two published models of the kind have."""
    point = study.start
    model = model_of(point.model, "front.json")
    (shape,) = measure([model])
    return {
        "space": study.document["space"],
        "parameters": point.metrics["total_parameters"],
        "active": point.metrics["active_parameters"],
        "tokens": model.training_tokens,
        "shape": shape,
        "beyond": [
            f"{words}; {_who(name, shape)}" for name, words in outside(shape, beyond=1.0).items()
        ],
    }


def _who(name: str, shape: Measured) -> str:
    """The published models that are as far out, by name."""
    (value, *_), known = shape.values[name], bands(shape.sparse, shape.hybrid)[name]
    above = value > known[1]
    ends = {model: (max if above else min)(own) for model, own in alike(name, shape.sparse).items()}
    as_far = [model for model, end in ends.items() if (end >= value if above else end <= value)]
    return f"{', '.join(as_far)} alone has as much" if as_far else "none has as much"


def rows(found: Sequence[Row]) -> list[list[str]]:
    """The designs, and last the bands of published models."""
    table = [
        [
            row["space"],
            f"{row['parameters'] / 1e9:.3g}B, {row['active'] / 1e9:.3g}B",
            f"{row['tokens'] / 1e12:.3g}T",
            *(_cell(row["shape"], name) for name in SHOWN),
            "; ".join(row["beyond"]) or "–",
        ]
        for row in found
    ]
    for title, sparse in (("published, dense", False), ("published, sparse", True)):
        known = bands(sparse, False)
        ends = [
            "–" if name not in known else " to ".join(text.format(end) for end in known[name])
            for name, text in SHOWN.items()
        ]
        table.append([title, "", "", *ends, ""])
    return table


def _cell(shape: Measured, name: str) -> str:
    values = shape.values.get(name)
    return SHOWN[name].format(values[0]) if values else "–"
