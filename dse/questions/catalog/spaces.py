"""`dse catalog spaces`: what can be searched, shipped or a file of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from dse import units
from dse.answer.answer import Answer, Column, Table
from dse.catalog import Catalog, load_catalog
from dse.schema.axes import Axis, points
from dse.schema.costs import Costs
from dse.schema.study import Study, load_study, shipped_spaces
from dse.schema.workloads import mix_words
from dse.study.unseen import unseen


def list_spaces(catalog_of: Callable[[Path], Catalog]) -> Answer:
    """Every shipped space with its size. `catalog_of` gives the catalog of a space by its file."""
    facts = [_facts(path, catalog_of(path)) for path in shipped_spaces().values()]
    return Answer(
        question="spaces",
        title="Search spaces",
        headline=f"{len(facts)} search spaces come with dse.",
        blocks=[
            Table(
                "spaces",
                "Spaces",
                (
                    Column("name", "name"),
                    Column("size", "points", "count"),
                    Column("title", "title"),
                ),
                facts,
            )
        ],
        document=facts,
    )


def show_space(space: str, catalog: Catalog) -> Answer:
    """Axes, size, objectives and constraints of a space. Raises InputErrors with every mistake of
    its file."""
    row = _facts(space, catalog)
    facts = [f"model: {row['model']}"] if row["model"] else []
    if "training" in row:
        chips = row["training"]["chips"]
        facts.append(f"training: every shape on {chips:,} {row['training']['chip']}")
    if "lifetime" in row:
        facts.append(f"lifetime: {_forecast(row['lifetime'])} served")
    facts.append("objectives: " + "; ".join(row["objectives"]))
    facts.append("constraints: " + ("; ".join(row["constraints"]) or "none of the user's"))
    if row["costs"]:
        facts.append("costs of its own: " + "; ".join(row["costs"]))
    facts += [f"left out: {row['why_left_out'][chip]}" for chip in row["left_out"]]
    return Answer(
        question="space",
        title=row["title"],
        asked=f"{row['name']}: {row['title']}",
        headline=f"{row['size']:,} points; {row['workload']}; prices: {row['price_basis']}",
        sentences=[*facts, *row["not_seen"]],
        blocks=[
            Table.of(
                "axes",
                "Axes",
                row["axes"],
                (
                    Column("axis", "axis"),
                    Column("values", "values", "count"),
                    Column("choices", "choices", of=_choices),
                ),
            )
        ],
        document=row,
    )


def check_space(space: str, catalog: Catalog) -> Answer:
    """Whether a space file is well-formed. Raises InputErrors with every mistake."""
    row = _facts(space, catalog)
    return Answer(
        question="space",
        title=row["title"],
        headline=f"{row['name']}: {row['size']:,} points, no mistake found",
        sentences=row["not_seen"],
        document={key: row[key] for key in ("name", "size", "not_seen")},
    )


def _facts(space: str | Path, catalog: Catalog) -> dict[str, Any]:
    study = load_study(space, catalog)
    first, *others = study.workloads
    words = f"{first.prompt_tokens:,} prompt and {first.output_tokens:,} output tokens, "
    words += first.serving
    if others:
        words = mix_words([load.row() for load in study.workloads])
    own = any(axis.name == "backend" for axis in study.axes)
    software = "the backend is an axis" if own else f"backend {first.backend}"
    return {
        "name": study.name,
        "title": study.title,
        "description": study.description,
        "size": points(study.name, study.axes),
        "model": study.model,
        "workload": f"{words}, {software}",
        **({"systems": dict(study.systems)} if study.systems else {}),
        **({"workloads": [load.row() for load in study.workloads]} if others else {}),
        "price_basis": study.price_basis,
        **({"training": asdict(study.training)} if study.training else {}),
        **({"lifetime": asdict(study.lifetime)} if study.lifetime else {}),
        "axes": [
            {
                "axis": axis.name,
                "values": len(axis.values),
                "choices": [_choice(value, axis) for value in axis.values],
                **({"by_chip": _by_chip(study, axis)} if axis.by_chip else {}),
                "ratio_of": axis.ratio_text or None,
            }
            for axis in study.axes
        ],
        "objectives": [f"{o.direction} {o.metric}" for o in study.objectives],
        "constraints": [c.text for c in study.constraints],
        "costs": _own_costs(study.costs),
        "left_out": list(study.left_out),
        "why_left_out": dict(study.why_left_out),
        "not_seen": list(unseen(study.model_axes)),
        "fingerprint": study.fingerprint,
    }


def _own_costs(costs: Costs | None) -> list[str]:
    """`life 4 years (assumed: two generations of cards)`: costs of owning that are not shipped."""
    if costs is None:
        return []
    shipped = load_catalog().costs
    own = [(name, one) for name, one in costs.inputs.items() if one != shipped.inputs[name]]
    own += [
        (f"{chip} {name}", one)
        for chip, lines in costs.chips.items()
        for name, one in lines.items()
        if one != shipped.of_chip(chip, name)
    ]
    return [
        f"{name.replace('_', ' ')} {one.text} ({one.kind}{': ' if one.note else ''}{one.note})"
        for name, one in own
    ]


def _choice(value: Any, axis: Axis) -> str:
    """A value as a space file writes it, a ratio as a fraction."""
    if isinstance(value, bool):
        return str(value).lower()
    if axis.rule.kind == "tokens":
        return units.format(value, "tokens")
    return str(Fraction(value).limit_denominator(10_000)) if axis.ratio_of else str(value)


def _by_chip(study: Study, axis: Axis) -> dict[str, list[str]]:
    """What each chip takes of an axis."""
    (chips,) = (one.values for one in study.axes if one.name == axis.chip_axis)
    return {
        str(chip): [_choice(axis.values[j], axis) for j in axis.positions(k)]
        for k, chip in enumerate(chips)
    }


def _choices(axis: dict[str, Any]) -> str:
    if "by_chip" in axis:
        of = axis["by_chip"].items()
        return "; ".join(f"{chip}: {', '.join(choices)}" for chip, choices in of)
    times = f" x {axis['ratio_of']}" if axis["ratio_of"] else ""
    return ", ".join(axis["choices"]) + times


def _forecast(life: dict[str, Any]) -> str:
    """`30T tokens`, or so many in the first of some years."""
    if life["tokens"] is not None:
        return f"{units.format(life['tokens'], 'tokens')} tokens"
    first = units.format(life["tokens_per_year"], "tokens")
    return f"{first} tokens in the first of {life['years']:g} years, {life['growth']:+.0%} a year,"
