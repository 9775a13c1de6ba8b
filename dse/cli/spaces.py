"""dse spaces: what can be searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import json_option, space_catalog
from dse.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    from dse.schema.axes import Axis
    from dse.schema.costs import Costs


@click.group("spaces")
def command() -> None:
    """Search spaces: those that come with the project, and files of yours."""


def _facts(text: str) -> dict[str, Any]:
    from dataclasses import asdict

    from dse.problem.words import mix_words
    from dse.schema.study import load_study
    from dse.space.space import Space
    from dse.study.unseen import unseen

    study = load_study(text, space_catalog(text))
    space = Space.of(study)
    first, *others = study.workloads
    words = f"{first.prompt_tokens:,} prompt and {first.output_tokens:,} output tokens, "
    words += first.serving
    if others:
        words = mix_words([load.row() for load in study.workloads])
    return {
        "name": study.name,
        "title": study.title,
        "description": study.description,
        "size": space.size,
        "model": study.model,
        "workload": f"{words}, backend {first.backend}",
        **({"workloads": [load.row() for load in study.workloads]} if others else {}),
        "price_basis": study.price_basis,
        **({"training": asdict(study.training)} if study.training else {}),
        **({"lifetime": asdict(study.lifetime)} if study.lifetime else {}),
        "axes": [
            {
                "axis": axis.name,
                "values": len(axis.values),
                "choices": [_choice(value, axis) for value in axis.values],
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
    from dse.catalog import load_catalog

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
    from fractions import Fraction

    from dse import units

    if isinstance(value, bool):
        return str(value).lower()
    if axis.rule.kind == "tokens":
        return units.format(value, "tokens")
    return str(Fraction(value).limit_denominator(10_000)) if axis.ratio_of else str(value)


@command.command("list")
@json_option
def list_spaces(as_json: bool) -> None:
    """Every shipped space with its size."""
    from dse.schema.study import shipped_spaces

    facts = [_facts(name) for name in shipped_spaces()]
    if as_json:
        print_json(facts)
        return
    print_table(
        ("name", "points", "title"),
        [(row["name"], f"{row['size']:,}", row["title"]) for row in facts],
        right=(1,),
    )


@command.command("show")
@click.argument("space")
@json_option
def show_space(space: str, as_json: bool) -> None:
    """Axes, size, objectives and constraints of a space; its mistakes in plain words."""
    row = _facts(space)
    if as_json:
        print_json(row)
        return
    say(f"{row['name']}: {row['title']}")
    say(f"{row['size']:,} points; {row['workload']}; prices: {row['price_basis']}", "  ")
    if row["model"]:
        click.echo(f"model: {row['model']}")
    print_table(
        ("axis", "values", "choices"),
        [(axis["axis"], str(axis["values"]), _choices(axis)) for axis in row["axes"]],
        right=(1,),
    )
    if "training" in row:
        say(f"training: every shape on {row['training']['chips']:,} {row['training']['chip']}")
    if "lifetime" in row:
        say(f"lifetime: {_forecast(row['lifetime'])} served")
    say("objectives: " + "; ".join(row["objectives"]), "  ")
    say("constraints: " + ("; ".join(row["constraints"]) or "none of the user's"), "  ")
    if row["costs"]:
        say("costs of its own: " + "; ".join(row["costs"]), "  ")
    for chip in row["left_out"]:
        say(f"left out: {row['why_left_out'][chip]}", "  ")
    for sentence in row["not_seen"]:
        say(sentence, "  ")


def _forecast(life: dict[str, Any]) -> str:
    """`30T tokens`, or so many in the first of some years."""
    from dse import units

    if life["tokens"] is not None:
        return f"{units.format(life['tokens'], 'tokens')} tokens"
    first = units.format(life["tokens_per_year"], "tokens")
    return f"{first} tokens in the first of {life['years']:g} years, {life['growth']:+.0%} a year,"


def _choices(axis: dict[str, Any]) -> str:
    times = f" x {axis['ratio_of']}" if axis["ratio_of"] else ""
    return ", ".join(axis["choices"]) + times


@command.command("check")
@click.argument("space")
def check_space(space: str) -> None:
    """Say whether a space file is well-formed; exit code 2 and every mistake if not."""
    row = _facts(space)
    click.echo(f"{row['name']}: {row['size']:,} points, no mistake found")
    for sentence in row["not_seen"]:
        say(sentence, "  ")
