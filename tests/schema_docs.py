"""Writes docs/fields.md, every field of every file that a person may write, from the tables that
read them: `python -m tests.schema_docs > docs/fields.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from math import inf

from dse import units
from dse.schema.backend import Backend
from dse.schema.chip import Chip
from dse.schema.constants import EnergyConstants, Reliability, TierDefaults
from dse.schema.costs import OWN_COSTS
from dse.schema.efficiency import Efficiency
from dse.schema.figure import Figured, Value, sourced
from dse.schema.own_chip import SHORT
from dse.schema.plan import Plan
from dse.schema.prices import Basis
from dse.schema.reader import (
    OPTIONAL,
    REQUIRED,
    ByName,
    Date,
    Field,
    Flag,
    Kind,
    Listed,
    Number,
    Percent,
    Quantity,
    Schema,
    Share,
    Table,
    Text,
    Then,
    Whole,
    WithText,
    Word,
    brief,
)
from dse.schema.study import Case, Study
from dse.schema.system import RACK, System
from dse.schema.training import STACK

INTRO = """\
# Fields of the files

Every field of every file that you may write, from the tables that read them
(`python -m tests.schema_docs > docs/fields.md`). A field inside a field is written `outer.inner`,
one of the items of a list `outer[].inner`, one below a name of your choice `outer.*.inner`.
Quantities are shown by an example; other units of the same kind do as well (`400 Gb/s` for
`3.35 TB/s`, `180 GiB` for `80 GB`, `30 ms` for `1.5 us`). A *figure* is a mapping with a value and
its source.
"""
PAGES = {
    "A figure": ("wherever a table says `figure`", sourced(Value("count"))),
    "A space": ("`search_spaces/*.yaml`; its axes are in [spaces.md](spaces.md)", Study),
    "A fleet plan": ("`search_spaces/plans/*.yaml`", Plan),
    "Costs of owning": ("`--costs FILE`, or `costs:` of a space or a plan", OWN_COSTS),
    "A chip of your own": ("`--chip FILE`, in short form", SHORT),
    "A chip": ("`hardware/chips/*.yaml`, and a chip of your own in full form", Chip),
    "A system": ("`hardware/systems/*.yaml`", System.table),
    "Kernel efficiencies": ("`hardware/efficiency/*.yaml`, `--efficiency-file FILE`", Efficiency),
    "A serving backend": ("`hardware/backends/*.yaml`", Backend),
    "Training software": ("`hardware/training/*.yaml`", STACK),
    "A rack": ("`hardware/racks/*.yaml`", RACK),
    "Memory tiers": ("`hardware/tiers.yaml`", TierDefaults),
    "Energy": ("`hardware/energy.yaml`", EnergyConstants),
    "Reliability": ("`hardware/reliability.yaml`", Reliability),
    "A rediscovery case": ("`search_spaces/rediscovery/*.yaml`", Case.table),
}
LONG = 3  # words
_SAID: dict[type, str] = {Basis: "name", Text: "text", Flag: "true or false", Date: "date"}


def table_of(kind: object) -> Table | None:
    """The fields of a class or of a table; None of another kind."""
    if isinstance(kind, type) and issubclass(kind, Schema):
        return kind.table
    return kind if isinstance(kind, Table) else None


def takes(kind: Kind) -> str:
    """What a kind reads, in words."""
    if isinstance(kind, Then | WithText):
        return takes(kind.kind)
    if isinstance(kind, Listed):
        return f"{'one or ' * kind.one}list of: {takes(kind.kind)}"
    if isinstance(kind, ByName):
        return f"by {kind.noun if kind.known else 'name'}: {takes(kind.kind)}"
    if isinstance(kind, Figured):
        value = kind.value
        unit = ", ".join(value.words) or example(value.dimension)
        return f"figure: {unit}"
    if isinstance(kind, Quantity):
        return example(kind.dimension)
    if isinstance(kind, Number):
        return bounds(kind)
    if isinstance(kind, Share | Percent):
        return f"{kind.least:g} to {kind.most:g}, or in percent"
    if isinstance(kind, Word):
        return ", ".join(kind.names)
    return _SAID.get(type(kind), "fields" if table_of(kind) else "")


def example(dimension: str) -> str:
    """One way to write a quantity."""
    return units.example(dimension).split(" or ")[0]


def bounds(kind: Number) -> str:
    """`number above 0, at most 1`."""
    noun = "whole number" if isinstance(kind, Whole) else "number"
    if kind.least is not None and kind.most is not None:
        return f"{noun}, {kind.least:,g} to {kind.most:,g}"
    said = [
        f"{word} {bound:,g}"
        for word, bound in (
            ("above", kind.above),
            ("from", kind.least),
            ("below", kind.below),
            ("at most", kind.most),
        )
        if bound is not None
    ]
    return f"{noun} {', '.join(said)}".strip()


def rows(
    table: Table, before: str = "", seen: dict[tuple[str, ...], str] | None = None
) -> Iterator[tuple[str, ...]]:
    """The cells of a field, and those of the fields in it; `seen` are the tables that the page has,
    by their names."""
    seen = {} if seen is None else seen
    for one in table.fields:
        name, kind = f"{before}{one.name}", one.kind
        suffix = "."
        while isinstance(kind, Then | Listed | ByName):
            outer = {Then: "", ByName: ".*"}.get(type(kind), "[]")
            suffix = outer + suffix
            kind = kind.kind
        inner = table_of(kind)
        known = next((names for names in seen if inner and set(names) <= set(inner.names)), ())
        said = f"the fields of `{seen[known]}`" if known else takes(one.kind)
        more = Table(*(f for f in inner.fields if f.name not in known)) if inner else None
        said += ", and:" if known and more and more.fields else ""
        example = "" if one.example and one.example in said else one.example
        meaning = ", such as ".join(filter(None, [one.meaning, example]))
        yield f"`{name}`", "; ".join(filter(None, [said, default(one)])), meaning
        if inner and more:
            seen.setdefault(inner.names, name)
            yield from rows(more, f"{name}{suffix}", seen)


def lines(table: Table) -> Iterator[str]:
    """The rows, those in one that differ in their name alone; what a field takes in words is
    written once where it stands several times in a row."""
    above = ""
    for (said, meaning), alike in groupby(rows(table), lambda row: row[1:]):
        names = ", ".join(row[0] for row in alike)
        cells = ("as above" if said == above and len(said.split()) > LONG else said, meaning)
        above = said
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in (names, *cells))


def default(one: Field) -> str:
    """What is said of a field that is left out."""
    if one.default is REQUIRED:
        return "required"
    plain = one.default is OPTIONAL or one.default in (None, "", (), {}, inf)
    if plain or not isinstance(one.default, str | int | float):
        return ""
    return f"default {brief(one.default)}"


def page() -> str:
    parts = [INTRO]
    for title, (where, kind) in PAGES.items():
        table = table_of(kind)
        assert table is not None, title
        head = "| field | takes | meaning |\n|---|---|---|"
        parts.append(f"## {title}\n\n{where}\n\n{head}\n" + "\n".join(lines(table)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
