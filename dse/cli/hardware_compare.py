"""dse hardware compare: chips side by side, with a model on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import json_option, read_catalog, refuse
from dse.cli.point import POINT_FLAGS, estimate_flags, point_options
from dse.cli.printing import command_line, print_json, print_table, say


@click.command("compare")
@click.argument("chips", nargs=-1, required=True, metavar="CHIP...")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write a page there.")
@point_options
@json_option
def compare_chips(chips: tuple[str, ...], out: Path | None, as_json: bool, **flags: Any) -> None:
    """Chips side by side: figures, prices and, with --model, its operators on each.

    \b
    dse hardware compare h200_sxm b200_sxm mi355x
    dse hardware compare h200_sxm --set hbm_bandwidth=2x --model llama-3-70b --tp 8 --concurrency 1
    dse hardware compare h200_sxm b200_sxm --model deepseek-v3 --tp 8 --out compared

    CHIP is an id or the path of a chip file. --set adds a hypothetical chip: the first one with
    that change. The page has a roofline: a roof for each chip, with the model's operators under it.
    """
    from dse.catalog import with_own_chips
    from dse.economics.tco import with_basis
    from dse.errors import InputError
    from dse.questions.compare.chips import chip_row, leaders, point_row
    from dse.questions.compare.chips_words import MARKS_KEY
    from dse.schema.derive import derive

    refuse(["chip"], "dse hardware compare, which takes chips as its arguments")
    if flags["model"] is None:
        refuse(
            [name for name in POINT_FLAGS if name not in ("settings", "price_basis", "chip_files")],
            "a comparison of figures: it takes --model",
        )
    if len(chips) > MOST:
        raise InputError(f"{len(chips)} chips", field="CHIP", accepted=f"at most {MOST}")
    names, catalog = [], read_catalog(flags["chip_files"])
    for chip in chips:
        catalog, name = catalog.with_chip(chip)
        names.append((name, ()))
    files = catalog.source.chips
    if flags["settings"]:
        own = derive(catalog, names[0][0], flags["settings"])
        catalog = with_own_chips(catalog, [own])
        names.insert(1, (own.chip.id, flags["settings"]))
    catalog = with_basis(catalog, flags["price_basis"])
    catalog.prices.select(flags["price_basis"])
    names = list(dict.fromkeys(names))
    document: dict[str, Any] = {
        "chips": [chip_row(catalog, name, flags["price_basis"]) for name, _ in names],
        "price_basis": flags["price_basis"],
        "model": None,
        "points": [],
        "leaders": None,
    }
    if flags["model"] is not None:
        for name, settings in names:
            chip = names[0][0] if settings else name
            asked = {"chip": chip, "settings": settings, "chip_files": files}
            catalog.chip(name)
            found = _estimate(flags | asked)
            document["points"].append(point_row(name, found))
            if not isinstance(found, InputError):
                document["model"] = found.model.name
        document["leaders"] = leaders(document["points"])
    page = None
    if out is not None:
        from dse.render.chips import write_comparison

        page = write_comparison(out, {**document, "command": command_line()})
    if as_json:
        print_json(document)
        return
    _print(document)
    say(MARKS_KEY, "  ")
    if page is not None:
        say(f"Page: {page}")


MOST = 6


def _estimate(flags: dict[str, Any]) -> Any:
    """The estimate on one chip, or the error of a chip that lacks a figure for it."""
    from dse.errors import InputError

    try:
        return estimate_flags(flags, keep=True)
    except InputError as error:
        catalog = read_catalog(flags["chip_files"])
        degrees = flags["tp"] * flags["pp"] * flags["dp"]
        if catalog.refusal(flags["chip"], degrees):
            return error
        raise


def _print(document: dict[str, Any]) -> None:
    from dse.problem.words import heading
    from dse.questions.compare.chips_words import (
        estimated,
        figure_rows,
        hypothetical_lines,
        lead,
        metric_rows,
        operator_rows,
    )

    for line in lead(document) + hypothetical_lines(document):
        say(line, "  ")
    ids = [chip["id"] for chip in document["chips"]]
    print_table(("figure", *ids), figure_rows(document))
    points = estimated(document)
    if not points:
        return
    deployment = {**points[0]["deployment"], "chip": "each chip"}
    for line in heading({**points[0], **document, "deployment": deployment}):
        say(line)
    ids = [point["chip"] for point in points]
    print_table(("metric", *ids), metric_rows(document))
    for phase, title in (("prefill", "prefill of one prompt"), ("decode", "decode step")):
        print_table((title, *ids), operator_rows(document, phase))
