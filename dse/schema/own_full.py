"""A chip of the user's own in full form: a file of `hardware/chips/` and, in the same file, its own
system, its prices, and what it was derived from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dse.record import record
from dse.schema.chip import HYPOTHETICAL, Chip, chip_table, read_chip
from dse.schema.figure import OWN_SOURCE, Figure, Figured
from dse.schema.loader import Document, did_you_mean, load_yaml
from dse.schema.prices import PriceRow, PurchaseRow, rows_of_file
from dse.schema.reader import (
    UNDATED,
    ByName,
    Field,
    Listed,
    Mistakes,
    Place,
    Raw,
    Table,
    Text,
)
from dse.schema.system import System, read_system


@record
class OwnChip:
    """What one file gives: the chip, its system where the file describes one, its prices, and its
    full form."""

    chip: Chip
    system: System | None
    prices: tuple[PriceRow, ...]
    purchases: tuple[PurchaseRow, ...]
    document: Document


# `system` is an id, or the content of a file of `hardware/systems/`, which is read by itself.
OWN_CHIP = chip_table(
    Field("system", Raw(), meaning="id of a system, or its content"),
    Field("prices", Raw(), {}, meaning="price per hour by basis, or one with its source; or rows"),
    Field(
        "derived_from",
        Table(Field("chip", Text(1)), Field("changes", Listed(Text(), 1))),
        None,
        meaning="what a hypothetical chip was made from",
    ),
)
BY_BASIS = ByName(Figured("usd/h", alone=True, bare=OWN_SOURCE))


def read_full_form(document: Document, folder: Path, efficiency: Sequence[str] = ()) -> OwnChip:
    """The chip of a document in full form, as `dse.schema.own_chip.read_own_chip` gives it. Raises
    InputError with every mistake at once."""
    mistakes = Mistakes(document)
    chip = mistakes.attempt(lambda: read_chip(document, OWN_CHIP))
    written = document.data.get("system")
    system = None
    if isinstance(written, Mapping):
        system = mistakes.attempt(lambda: read_system(document, "system"))
    prices, purchases = read_prices(document, mistakes)
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert chip is not None
    if system is not None:
        chip = replace(chip, system=system.id)
    if (origin := document.data.get("derived_from")) is not None:
        changes = tuple(str(change) for change in origin["changes"])
        chip = replace(
            chip,
            derived_from=origin["chip"],
            changes=changes,
            assumed=(f"hypothetical, {origin['chip']} with {'; '.join(changes)}", *chip.assumed),
        )
    return OwnChip(chip, system, prices, purchases, document)


def check_names(
    document: Document, folder: Path, efficiency: Sequence[str], mistakes: Mistakes
) -> None:
    """The id is new and says whether the chip is hypothetical; efficiency and system exist in the
    hardware folder, laws also in the files `efficiency`."""
    data = document.data
    name = data.get("id")
    if isinstance(name, str):
        if (folder / "chips" / f"{name}.yaml").exists():
            message = f"{name!r} is the id of {folder / 'chips' / name}.yaml too"
            mistakes.add(("id",), message, "an id of its own")
        said = name.startswith(f"{HYPOTHETICAL}_")
        if said != (data.get("availability") == HYPOTHETICAL) or (
            "derived_from" in data and not said
        ):
            message = f"read {name!r}, availability {data.get('availability', 'own')!r}"
            accepted = (
                f"an id that begins with {HYPOTHETICAL}_ and availability: {HYPOTHETICAL}, "
                "or neither (nor derived_from)"
            )
            mistakes.add(("id",), message, accepted)
    for field, place in (("efficiency", "efficiency"), ("system", "systems")):
        text = data.get(field)
        known = sorted(path.stem for path in (folder / place).glob("*.yaml"))
        if field == "efficiency":
            known += [str(load_yaml(path).data.get("id")) for path in efficiency]
        if isinstance(text, str) and text not in known:
            message = f"read {text!r}: no such {field}{did_you_mean(text, known)}"
            mistakes.add((field,), message, ", ".join(known))
        elif field == "system" and not isinstance(text, str | Mapping | None):
            message, accepted = f"read {text!r}", "the id of a system, or a mapping"
            mistakes.add((field,), message, accepted)


def read_prices(
    document: Document, mistakes: Mistakes
) -> tuple[tuple[PriceRow, ...], tuple[PurchaseRow, ...]]:
    """The prices per hour and bought. Those per hour may also stand by basis, each a text or a
    mapping with its source."""
    written = document.data.get("prices")
    if not isinstance(written, Mapping):
        return rows_of_file(document, mistakes)
    found: Mapping[str, Figure | None] = BY_BASIS.read(written, Place(mistakes, ("prices",))) or {}
    rows = []
    for basis, price in found.items():
        if price is None:
            continue
        bare = not isinstance(written[basis], Mapping)
        line = document.line(("prices", basis, *([] if bare else ["value"]))) or 0
        said = f"{price.kind}: {price.note}"
        about = (
            (OWN_SOURCE, UNDATED, document.file, "")
            if bare
            else (said, price.date, price.source, said)
        )
        rows.append(PriceRow(document.data.get("id", ""), basis, price.value, *about, line))
    alone = Document(document.file, {**document.data, "prices": ()}, document.lines)
    return tuple(rows), rows_of_file(alone, mistakes)[1]
