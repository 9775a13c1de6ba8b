"""dse compare: two studies side by side."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import json_option, print_json, print_table


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

    document = compare(a, b)
    if as_json:
        print_json(document)
        return
    print_table(
        ("", str(a), str(b)),
        [
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
    click.echo(
        f"B has {'no measure of' if ratio is None else f'{ratio:.4%} of'} A's hypervolume "
        f"(scaled by the front of: {document['reference_front']}; reference point 1.1); additive "
        f"epsilon of B against A {document['epsilon']:.5f}."
    )
    if document["true_hypervolume_share"] is not None:
        click.echo(f"Share of the true hypervolume: {document['true_hypervolume_share']:.4%}.")
    click.echo(
        f"{len(document['entered']):,} points entered, {len(document['left']):,} left the front."
    )
    if not document["same_data"]:
        click.echo("The two studies used different hardware data.")
