"""dse compare: two studies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import json_option
from dse.cli.printing import print_json, print_table, say


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@json_option
def command(a: Path, b: Path, as_json: bool) -> None:
    """Hypervolume of study B over A, and which points entered and left the front.

    \b
    dse run tiny --engine exhaustive --out studies/true
    dse run tiny --engine nsga2 --out studies/found
    dse compare studies/true studies/found
    """
    from dse.study.compare import compare
    from dse.study.words import spans

    document = compare(a, b)
    if as_json:
        print_json(document)
        return
    print_table(
        ("", f"A: {a}", f"B: {b}"),
        [
            ("engine", document["engine_a"], document["engine_b"]),
            ("points on the front", f"{document['front_a']:,}", f"{document['front_b']:,}"),
            (
                "points evaluated",
                f"{document['evaluations_a']:,}",
                f"{document['evaluations_b']:,}",
            ),
            (
                "hypervolume",
                f"{document['hypervolume_a']:.6f}",
                f"{document['hypervolume_b']:.6f}",
            ),
        ],
        right=(1, 2),
    )
    ratio = document["ratio"]
    say(
        f"B has {'no measure of' if ratio is None else f'{ratio:.4%} of'} A's hypervolume, the "
        "share of objective space that a front beats (scaled by the front of: "
        f"{document['reference_front']}; reference point 1.1). Additive epsilon of B against A, "
        f"the worst step by which B falls short: {document['epsilon']:.5f}."
    )
    if document["true_hypervolume_share"] is not None:
        click.echo(f"Share of the true hypervolume: {document['true_hypervolume_share']:.4%}.")
    for what, of in (("entered", "B"), ("left", "A")):
        points = document[what]
        numbers = f": points {spans(points)} of {of}" if points else ""
        say(f"{len(points):,} {what} the front{numbers}.", "  ")
    _print_prices(document)
    if not document["same_space"]:
        click.echo("The two studies searched different spaces.")
    if not document["same_workload"]:
        say("They serve different workloads, so that the ratio says nothing of search or space.")
    if not document["same_data"]:
        click.echo("The two studies used different hardware data.")


def _print_prices(document: dict[str, Any]) -> None:
    """Which prices differ, and what became of the chosen points."""
    prices = document["prices"]
    if costs := document["costs"]:
        each = [f"{row['name']} {row['a'] or '-'} -> {row['b'] or '-'}" for row in costs]
        say(f"Costs of owning that differ: {', '.join(each)}.", "  ")
    if not prices:
        return
    print_table(
        ("chip", "A, $/chip-hour", "B, $/chip-hour", "change", "A of", "B of"),
        [
            (
                row["chip"],
                *("-" if row[side] is None else f"{row[side]:.3f}" for side in ("a", "b")),
                "-" if row["ratio"] is None else f"{row['ratio'] - 1:+.1%}",
                row["date_a"] or "-",
                row["date_b"] or "-",
            )
            for row in prices
        ],
        right=(1, 2, 3),
    )
    from dse.study.words import show

    for row in document["chosen"]:
        moved = ", ".join(
            f"{metric} {show(metric, ends['a'])} -> {show(metric, ends['b'])}"
            for metric, ends in row["metrics"].items()
            if ends["a"] != ends["b"]
        )
        same = "the same design" if row["same_design"] else f"{row['a']} -> {row['b']}"
        say(f"{row['name']}: {same}{'; ' + moved if moved else ''}.", "  ")
