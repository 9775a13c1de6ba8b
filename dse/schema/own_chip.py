"""A chip of the user's own: one small YAML file, read in full form or in short form.

In the short form the figures stand at the top, each as its value alone. What is left out has a
default: a figure is `assumed` with the file as its source, and the chip stands by itself.

    id: my_chip
    name: My chip
    efficiency: class_gpu
    memory_capacity: 96 GB
    memory_bandwidth: 4 TB/s
    peak_bf16: 1000 TFLOP/s
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.data import hardware_dir
from dse.errors import Doubt
from dse.files import full_path
from dse.record import record
from dse.schema.chip import DIMENSION, FIGURES, HYPOTHETICAL, Chip, load_chip
from dse.schema.figure import OWN_SOURCE, REASON, Figure, Figured, Value
from dse.schema.loader import Document, did_you_mean, load_yaml
from dse.schema.plausible import FAR, USD_PER_HOUR
from dse.schema.prices import Basis, PriceRow, PurchaseRow, rows_of_file
from dse.schema.reader import (
    OPTIONAL,
    UNDATED,
    ByName,
    Field,
    Kind,
    Listed,
    Mistakes,
    Place,
    Quantity,
    Raw,
    Table,
    Text,
    Whole,
    Word,
    field,
    read,
)
from dse.schema.system import TOPOLOGIES, System, read_system

ALONE = "single_chip"  # the system of a chip whose file says nothing of links


@record
class AsWritten:
    """The text of a value that a kind can read."""

    kind: Kind

    def read(self, written: Any, at: Place) -> Any:
        self.kind.read(written, at)
        return str(written)


_RATE, _TIME = AsWritten(Quantity("bytes/s", "more than zero")), AsWritten(Quantity("s"))
# The links of the chip: `chips` of them in one domain, and a network beyond.
LINKS = Table(
    Field("chips", Whole(1), 1, meaning="of one domain"),
    Field("topology", Word(TOPOLOGIES), "switched"),
    Field("bandwidth_per_direction", _RATE, None, meaning="of a chip, over all its links"),
    Field("bandwidth_per_pair", _RATE, None, meaning="one link between two neighbours"),
    Field("latency", _TIME, "1 us", meaning="of one hop"),
    Field("scale_out_bandwidth", _RATE, None, meaning="of a chip, between domains"),
    Field("scale_out_latency", _TIME, "5 us", meaning="of one hop between domains"),
)


@record
class _System:
    """An id, or the links of the chip."""

    def read(self, written: Any, at: Place) -> Any:
        return LINKS.read(written, at) if isinstance(written, Mapping) else written


_OWN = {"vendor": "own", "family": "own", "availability": "own", "memory_kind": "memory"}
_FULL_ALONE = (
    "system",
    "figures",
    "not_chosen",
    "formats_without_peak",
    "extra_memories",
    "prices",
)
# The fields of a chip file, each figure among them; most may be left out.
SHORT = Table(
    *(
        replace(one, default=_OWN.get(one.name, one.default))
        for one in Chip.table.fields
        if one.name not in _FULL_ALONE
    ),
    *(Field(name, Figured(unit, bare="the file"), OPTIONAL) for name, unit in DIMENSION.items()),
    Field("system", _System(), None, meaning="id of a system, or the links of the chip"),
    Field(
        "extra_memories",
        Listed(
            Table(
                Field("kind", Text()),
                Field("capacity", AsWritten(Quantity("bytes", "more than zero"))),
                Field("bandwidth", _RATE),
            )
        ),
        (),
    ),
    Field("prices", Raw(), {}, meaning="price per hour by basis, or rows"),
)


def _doubt(own: OwnChip) -> OwnChip:
    """The same; figures that are far from any chip's are warned of."""
    for text in (*own.chip.assumed, *(own.system.assumed if own.system else ())):
        if FAR in text:
            warnings.warn(f"{own.document.file}: {text}", Doubt, stacklevel=3)
    return own


def read_own_chip(
    path: Path | str, folder: Path | None = None, efficiency: Sequence[str] = ()
) -> OwnChip:
    """Reads a chip file that is not of the hardware folder (the shipped one by default), in either
    form; one of that folder is read as it is. `efficiency` are files of kernel laws, which the chip
    may name beside those of the folder.

    Raises InputError with the line and field of every mistake, all at once.
    """
    folder = folder or hardware_dir()
    document = load_yaml(path)
    if os.path.dirname(full_path(path)) == full_path(folder / "chips"):
        return OwnChip(load_chip(path), None, (), (), document)
    if "figures" not in document.data:
        document = _from_short_form(document, folder, efficiency)
    return _doubt(read_full_form(document, folder, efficiency))


def _from_short_form(document: Document, folder: Path, efficiency: Sequence[str]) -> Document:
    """The same file in full form, each part with its line in the short form. Raises InputError with
    every mistake at once."""
    data, mistakes = document.data, Mistakes(document)
    found = SHORT.read(data, Place(mistakes))
    read_prices(document, mistakes)
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert found is not None
    written = {name: data[name] for name in DIMENSION if name in data}
    full = {name: found[name] for name in _FRAME}
    links = found["system"]
    full["system"] = _system(found, links, document) if isinstance(links, dict) else links or ALONE
    full["efficiency"] = found["efficiency"]
    full["figures"] = {
        name: figure if isinstance(figure, Mapping) else _assumed(str(figure), document)
        for name, figure in written.items()
    }
    full["notes"] = list(found["notes"])
    full["extra_memories"] = [
        {"kind": memory["kind"]}
        | {name: _assumed(memory[name], document) for name in ("capacity", "bandwidth")}
        for memory in found["extra_memories"]
    ]
    full |= {name: data[name] for name in ("prices", "purchases") if name in data}
    lines = dict(document.lines or {})
    lines |= {("figures", *path): n for path, n in [*lines.items()] if path[0] in written}
    return Document(document.file, full, lines)


_FRAME = (
    "id",
    "name",
    "vendor",
    "family",
    "year",
    "availability",
    "memory_kind",
    "backend",
)


def _assumed(value: str, document: Document) -> dict[str, str]:
    return {
        "value": value,
        "kind": "assumed",
        "source": document.file,
        "date": UNDATED,
        "note": REASON,
    }


def _system(found: dict[str, Any], links: dict[str, Any], document: Document) -> dict[str, Any]:
    """The system that the file describes, as a file of its own would say it."""

    def level(name: str, **written: str | None) -> dict[str, Any]:
        given = {field: text for field, text in written.items() if text is not None}
        return {"name": name} | {field: _assumed(text, document) for field, text in given.items()}

    inner = level(
        "links",
        topology=links["topology"],
        size=str(links["chips"]),
        latency=links["latency"],
        bandwidth_per_direction=links["bandwidth_per_direction"],
        jitter="0 s",
        bandwidth_per_pair=links["bandwidth_per_pair"],
    )
    outer = level(
        "scale-out network",
        topology="switched",
        latency=links["scale_out_latency"],
        jitter="0 s",
        bandwidth_per_direction=links["scale_out_bandwidth"],
    )
    return {
        "id": f"{found['id']}_system",
        "name": f"the links of {found['name']}",
        "levels": [inner, outer],
    }


_TEMPLATE = """\
# A chip of your own. `dse catalog chips check FILE` explains what is missing or wrong in it. Every
# command takes its path for a chip: dse estimate --model llama-3-8b --chip ./FILE
#
# A figure is a number with its unit. Its kind is `assumed` and its source this file, unless you say
# more: {{value: 989 TFLOP/s, kind: spec, source: data sheet, date: 2026-11, note: boost clock}}
id: {id}
name:  # what people call it
efficiency:  # whose kernels: {classes}, or the id of a measured chip

# Every estimate needs these.
{needed}

# Take away the # where you know the figure; what is left out is listed as missing.
{optional}

# Without `system` the chip stands by itself. Bandwidth is per chip, in one direction, over all its
# links; topology: {topologies}.
# system: {{chips: 8, topology: switched, bandwidth_per_direction: 450 GB/s, latency: 1 us,
#          scale_out_bandwidth: 50 GB/s, scale_out_latency: 5 us}}

# Without a price on the basis of a study the chip is left out of it.
# prices: {{rental_3yr: 2.5 USD/h, on_demand: 4 USD/h}}

# vendor: own
# family: own
# year: 2026
# memory_kind: HBM3e
# backend: generic  # serving software, where a command names none
# Memories behind the device memory, in place of the defaults (docs/tiers.md).
# extra_memories: [{{kind: host, capacity: 256 GB, bandwidth: 64 GB/s}}]
# notes: [a remark]
"""


def template(name: str, classes: Sequence[str]) -> str:
    """The short form with a comment on every field, for a new chip `name`."""
    lines = {one.name: f"{one.name}:  # {one.meaning}" for one in FIGURES.fields}
    needed = [lines.pop(figure) for figure in ("memory_capacity", "memory_bandwidth", "peak_bf16")]
    return _TEMPLATE.format(
        id=name,
        classes=", ".join(classes),
        needed="\n".join(needed),
        optional="\n".join(f"# {line}" for line in lines.values()),
        topologies=", ".join(TOPOLOGIES),
    )


# A chip of the user's own in full form: a file of `hardware/chips/` and, in the same file, its own
# system, its prices, and what it was derived from.


@record
class OwnChip:
    """What one file gives: the chip, its system where the file describes one, its prices, and its
    full form."""

    chip: Chip
    system: System | None
    prices: tuple[PriceRow, ...]
    purchases: tuple[PurchaseRow, ...]
    document: Document


class _FullForm(Chip, kw_only=True):
    """A chip file whose `system` is an id, or the content of a file of `hardware/systems/`, which
    is read by itself, as prices are."""

    system: Any = field(Raw(), meaning="id of a system, or its content")
    prices: Any = field(
        Raw(), default={}, meaning="price per hour by basis, or one with its source; or rows"
    )
    origin: Mapping[str, Any] | None = field(
        Table(Field("chip", Text(1)), Field("changes", Listed(Text(), 1))),
        default=None,
        written="derived_from",
        meaning="what a hypothetical chip was made from",
    )

    def check(self) -> _FullForm:
        chip = super().check()
        if self.origin is None:
            return chip
        parent, changes = self.origin["chip"], self.origin["changes"]
        said = f"hypothetical, {parent} with {'; '.join(changes)}"
        made = {"derived_from": parent, "changes": changes, "assumed": (said, *chip.assumed)}
        return replace(chip, **made)


BY_BASIS = ByName(
    Figured(Value("usd/h", usual=USD_PER_HOUR), alone=True, bare=OWN_SOURCE),
    names=Basis(computed=True),
)


def read_full_form(document: Document, folder: Path, efficiency: Sequence[str] = ()) -> OwnChip:
    """The chip of a document in full form, as `dse.schema.own_chip.read_own_chip` gives it. Raises
    InputError with every mistake at once."""
    mistakes = Mistakes(document)
    chip = mistakes.attempt(lambda: read(_FullForm, document))
    written = document.data.get("system")
    system = None
    if isinstance(written, Mapping):
        system = mistakes.attempt(lambda: read_system(document, "system"))
    prices, purchases = read_prices(document, mistakes)
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert chip is not None
    named = chip.system if system is None else system.id
    chip = replace(chip, system=named, file=document.file)
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
    for part, place in (("efficiency", "efficiency"), ("system", "systems")):
        text = data.get(part)
        known = sorted(path.stem for path in (folder / place).glob("*.yaml"))
        if part == "efficiency":
            known += [str(load_yaml(path).data.get("id")) for path in efficiency]
        if isinstance(text, str) and text not in known:
            message = f"read {text!r}: no such {part}{did_you_mean(text, known)}"
            mistakes.add((part,), message, ", ".join(known))
        elif part == "system" and not isinstance(text, str | Mapping | None):
            message, accepted = f"read {text!r}", "the id of a system, or a mapping"
            mistakes.add((part,), message, accepted)


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
        said = "" if bare else f"{price.kind}: {price.note}"
        rows.append(
            PriceRow(
                chip=document.data.get("id", ""),
                basis=basis,
                usd_per_chip_hour=price.value,
                provider=OWN_SOURCE if bare else said,
                date=price.date,
                source=document.file if bare else price.source,
                note=said,
                line=line,
            )
        )
    alone = Document(document.file, {**document.data, "prices": ()}, document.lines)
    return tuple(rows), rows_of_file(alone, mistakes)[1]
