"""The prices that an answer was worked out with: whose they are, as of when, and their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.answer.text_table import Table
from dse.catalog import Catalog
from dse.economics.tco import Breakdown, usd_per_chip_hour
from dse.schema.catalog import Source
from dse.schema.costs import BASIS as OWNED
from dse.schema.own_prices import OWN
from dse.schema.study import Study

UNSOLD = (
    "announced",
    "announced_ramping",
    "announced_deprioritised",
    "internal",
    "restricted",
    "limited",
    "hypothetical",
)
NAMED = 8  # chips that are left out for one reason and named


@dataclass(frozen=True, slots=True)
class Paid:
    """Prices on the basis of a study. `own` has the files and the date, `owned` the chips
    whose price is a row of such a file, `parts` those of each chip where a price is computed.
    `unsold`: chips that are not on general sale, by what their files say."""

    basis: str
    own: Source
    owned: tuple[str, ...]
    parts: tuple[Breakdown, ...]
    unsold: Mapping[str, str]


def paid_with(catalog: Catalog, study: Study, chips: Sequence[str]) -> Paid:
    """Of `chips` that have a price; `catalog` is on the terms of the study."""
    basis, prices = study.price_basis, catalog.prices.select(study.price_basis)
    priced = [chip for chip in chips if chip in prices]
    owned = [chip for chip in priced if any(row.note.startswith(OWN) for row in prices[chip].rows)]
    parts = [usd_per_chip_hour(catalog, chip, OWNED) for chip in priced if basis == OWNED]
    sale = {chip: catalog.chips[chip].availability for chip in chips}
    unsold = {chip: word.replace("_", ", ") for chip, word in sale.items() if word in UNSOLD}
    return Paid(basis, catalog.source, tuple(owned), tuple(parts), unsold)


def unsold_words(paid: Paid, chip: str) -> list[str]:
    """A warning where the chip that is advised is not on general sale."""
    word = paid.unsold.get(chip)
    return (
        []
        if word is None
        else [f"{chip} is not on general sale ({word}): the next may have to do."]
    )


def paid_sentences(paid: Paid) -> list[str]:
    """Chips that nobody sells to all, and what prices rest on but the shipped ones of today."""
    words = []
    if paid.unsold:
        chips = ", ".join(f"{chip} ({word})" for chip, word in paid.unsold.items())
        words.append(f"not on general sale: {chips}")
    if paid.owned:
        files = ", ".join(Path(file).name for file in paid.own.prices)
        words.append(f"prices of yours ({files}): {', '.join(paid.owned)}")
    elif paid.own.prices:
        files = ", ".join(Path(file).name for file in paid.own.prices)
        words.append(f"no row of {files} is of these chips on basis {paid.basis}")
    if paid.own.as_of is not None:
        words.append(f"prices as they were known in {paid.own.as_of} (--as-of)")
    if paid.own.costs is not None:
        read = f" (not read: the basis is not {OWNED})" if paid.basis != OWNED else ""
        words.append(f"costs of owning of yours: {Path(paid.own.costs).name}{read}")
    assumed = dict.fromkeys(
        one.name for found in paid.parts for one in found.inputs if one.kind == "assumed"
    )
    if assumed:
        words.append(f"costs of owning that are assumed: {', '.join(assumed)}")
    return words


def left_out(study: Study, others: Mapping[str, str]) -> list[str]:
    """Chips of the space that are no choice, by reason: those that the study says, and `others`."""
    chips: dict[str, list[str]] = {}
    for chip, why in {**study.why_left_out, **others}.items():
        reason = why.removeprefix(f"{chip} ").partition(";")[0]  # what follows is advice
        chips.setdefault(reason, []).append(chip)
    return [
        f"left out, {why}: {', '.join(names) if len(names) <= NAMED else f'{len(names)} chips'}"
        for why, names in chips.items()
    ]


def paid_tables(paid: Paid) -> list[Table]:
    """The parts of each chip-hour; nothing where chips are rented."""
    if not paid.parts:
        return []
    names = [part.name for part in paid.parts[0].parts]
    rows = [
        (
            one.chip,
            f"{one.usd_per_chip_hour:.3f}",
            *(f"{part.usd_per_chip_hour:.3f}" for part in one.parts),
        )
        for one in paid.parts
    ]
    caption = f"What a chip-hour is made of, USD on basis {paid.basis}"
    right = tuple(range(1, len(names) + 2))
    return [Table(caption, ("chip", "USD/h", *names), rows, right)]


def paid_rows(paid: Paid) -> list[dict[str, str | float]]:
    """The same as rows of numbers, a chip each."""
    return [
        {"chip": one.chip, "usd_per_chip_hour": one.usd_per_chip_hour}
        | {part.name: part.usd_per_chip_hour for part in one.parts}
        for one in paid.parts
    ]
