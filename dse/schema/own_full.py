"""A chip of the user's own in full form: a file of `hardware/chips/` and, in the same file, its own
system, its prices, and what it was derived from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from dse.errors import InputError
from dse.schema.chip import (
    HYPOTHETICAL,
    UNDATED,
    Chip,
    ChipFile,
    SourcedSpec,
    each,
    quantity,
    read_chip,
    together,
)
from dse.schema.loader import STRICT, Document, KeyPath, did_you_mean, load_yaml, validate
from dse.schema.prices import PriceRow
from dse.schema.system import System, read_system

SOURCE = "the user's own file"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OwnChip:
    """What one file gives: the chip, its system where the file describes one, its prices, and its
    full form."""

    chip: Chip
    system: System | None
    prices: tuple[PriceRow, ...]
    document: Document


class _DerivedFrom(BaseModel):
    model_config = STRICT

    chip: str = Field(min_length=1)
    changes: tuple[str, ...] = Field(min_length=1)


class OwnChipFile(ChipFile):
    """`system` is an id, or the content of a file of `hardware/systems/`; a price is a text, or a
    mapping with its source."""

    system: Any
    prices: dict[str, Any] = Field(default_factory=dict)
    derived_from: _DerivedFrom | None = None


class _PricesFile(BaseModel):
    model_config = STRICT

    prices: dict[str, SourcedSpec]


class Mistakes:
    """Collects the mistakes of a file while its parts are read one after another."""

    def __init__(self) -> None:
        self.errors: list[InputError] = []

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What `read` gives; None where it raises, its mistakes noted."""
        try:
            return read()
        except InputError as error:
            self.errors += each(error)
            return None

    def finish(self) -> None:
        """Raises InputError where there was a mistake."""
        if self.errors:
            raise together(self.errors)


def read_full_form(document: Document, folder: Path, efficiency: Sequence[str] = ()) -> OwnChip:
    """The chip of a document in full form, as `dse.schema.own_chip.read_own_chip` gives it. Raises
    InputError with every mistake at once."""
    mistakes = Mistakes()
    chip = mistakes.attempt(lambda: read_chip(document, OwnChipFile))
    written = document.data.get("system")
    system = None
    if isinstance(written, Mapping):
        system = mistakes.attempt(lambda: read_system_part(document))
    prices = read_prices(document, mistakes)
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
    return OwnChip(chip, system, prices, document)


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
            mistakes.errors.append(document.error(("id",), message, "an id of its own"))
        said = name.startswith(f"{HYPOTHETICAL}_")
        if said != (data.get("availability") == HYPOTHETICAL) or (
            "derived_from" in data and not said
        ):
            message = f"read {name!r}, availability {data.get('availability', 'own')!r}"
            accepted = (
                f"an id that begins with {HYPOTHETICAL}_ and availability: {HYPOTHETICAL}, "
                "or neither (nor derived_from)"
            )
            mistakes.errors.append(document.error(("id",), message, accepted))
    for field, place in (("efficiency", "efficiency"), ("system", "systems")):
        text = data.get(field)
        known = sorted(path.stem for path in (folder / place).glob("*.yaml"))
        if field == "efficiency":
            known += [str(load_yaml(path).data.get("id")) for path in efficiency]
        if isinstance(text, str) and text not in known:
            message = f"read {text!r}: no such {field}{did_you_mean(text, known)}"
            mistakes.errors.append(document.error((field,), message, ", ".join(known)))
        elif field == "system" and not isinstance(text, str | Mapping | None):
            message, accepted = f"read {text!r}", "the id of a system, or a mapping"
            mistakes.errors.append(document.error((field,), message, accepted))


def part(document: Document, name: str) -> Document:
    """The mapping at `name` as a document, with its lines in the file."""
    lines = {path[1:]: n for path, n in (document.lines or {}).items() if path[0] == name}
    return Document(document.file, document.data[name], lines)


def read_system_part(document: Document) -> System:
    """The system that stands in full form inside a chip file."""
    try:
        return read_system(part(document, "system"))
    except InputError as error:
        inside = [
            InputError(
                one.message, file=one.file, line=one.line, accepted=one.accepted,
                field=f"system.{one.field}" if one.field else "system",
            )
            for one in each(error)
        ]  # fmt: skip
        raise together(inside) from None


def read_prices(document: Document, mistakes: Mistakes) -> tuple[PriceRow, ...]:
    """The prices by basis, each a text or a mapping with its source."""
    written = document.data.get("prices")
    if not isinstance(written, Mapping):
        return ()
    rows = []
    for basis, price in written.items():
        path: KeyPath = ("prices", str(basis))
        if isinstance(price, Mapping):
            one = Document(document.file, {"prices": {basis: price}}, document.lines)
            spec = mistakes.attempt(lambda one=one: validate(_PricesFile, one))
            if spec is None:
                continue
            sourced = spec.prices[basis]
            text, date, note = sourced.value, sourced.date, f"{sourced.kind}: {sourced.note}"
            provider, source, path = note, sourced.source, (*path, "value")
        elif isinstance(price, str | int | float):
            text, provider, date, source, note = str(price), SOURCE, UNDATED, document.file, ""
        else:
            message, accepted = f"read {price!r}", "a price per hour, such as 2.5 USD/h"
            mistakes.errors.append(document.error(path, message, accepted))
            continue
        usd = mistakes.attempt(lambda path=path, text=text: quantity(document, path, text, "usd/h"))
        if usd is not None:
            line = document.line(path) or 0
            row = (document.data.get("id", ""), str(basis), usd, provider, date, source, note, line)
            rows.append(PriceRow(*row))
    return tuple(rows)
