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
from dse.schema.chip import DIMENSION, FIGURES, GENERIC, HYPOTHETICAL, ROOFLINE, Chip, load_chip
from dse.schema.figure import OWN_SOURCE, REASON, Figured, Value
from dse.schema.loader import Document, did_you_mean, load_yaml
from dse.schema.plausible import FAR, USD_PER_HOUR
from dse.schema.prices import PRICES, Basis, PriceRow
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
    Table,
    Text,
    Whole,
    Word,
    field,
    read,
)
from dse.schema.system import TOPOLOGIES, System

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
class _Named:
    """An id, or what a kind reads of a mapping."""

    kind: Kind

    def read(self, written: Any, at: Place) -> Any:
        return self.kind.read(written, at) if isinstance(written, Mapping) else written


_BY_BASIS = ByName(
    Figured(Value("usd/h", usual=USD_PER_HOUR), alone=True, bare=OWN_SOURCE),
    names=Basis(computed=True),
)


class OwnPrices:
    """Prices per hour as rows, or by basis, each a text or a mapping with its source."""

    def read(self, written: Any, at: Place) -> tuple[PriceRow, ...] | None:
        if not isinstance(written, Mapping):
            return PRICES.read(written, at)
        rows, document = [], at.mistakes.document
        for basis, price in (_BY_BASIS.read(written, at) or {}).items():
            bare = not isinstance(written[basis], Mapping)
            line = document.line((*at.path, basis, *([] if bare else ["value"]))) or 0
            if price is not None:
                message = "" if bare else f"{price.kind}: {price.note}"
                rows.append(
                    PriceRow(
                        chip=document.data.get("id", ""),
                        basis=basis,
                        usd_per_chip_hour=price.value,
                        provider=OWN_SOURCE if bare else message,
                        date=price.date,
                        source=document.file if bare else price.source,
                        note=message,
                        line=line,
                    )
                )
        return tuple(rows)


_OWN = {"vendor": "own", "family": "own", "availability": "own", "memory_kind": "memory"}
# Fields that the short form says in another way, or not.
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
    *(
        replace(one, kind=Figured(DIMENSION[one.name], bare="the file"), default=OPTIONAL)
        for one in FIGURES.fields
    ),
    Field("system", _Named(LINKS), None, meaning="id of a system, or the links of the chip"),
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
        meaning="memories behind the device memory, in place of the defaults (docs/tiers.md)",
    ),
    Field("prices", OwnPrices(), (), meaning="price per hour by basis, or rows"),
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
        return OwnChip(load_chip(path), None, document)
    if "figures" not in document.data:
        document = _from_short_form(document, folder, efficiency)
    return _doubt(read_full_form(document, folder, efficiency))


def _from_short_form(document: Document, folder: Path, efficiency: Sequence[str]) -> Document:
    """The same file in full form, each part with its line in the short form. Raises InputError with
    every mistake at once."""
    data, mistakes = document.data, Mistakes(document)
    found = SHORT.read(data, Place(mistakes))
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert found is not None
    links = found["system"]
    given = {name: data[name] for name in DIMENSION if name in data}
    full = {name: value for name, value in found.items() if name not in given}
    full["system"] = _system(found, links, document) if isinstance(links, dict) else links or ALONE
    full["figures"] = {
        name: figure if isinstance(figure, Mapping) else _assumed(str(figure), document)
        for name, figure in given.items()
    }
    full["extra_memories"] = [
        {n: text if n == "kind" else _assumed(text, document) for n, text in memory.items()}
        for memory in found["extra_memories"]
    ]
    full |= {name: data.get(name, ()) for name in ("prices", "purchases")}
    lines = dict(document.lines or {})
    lines |= {("figures", *path): n for path, n in [*lines.items()] if path[0] in given}
    return Document(document.file, full, lines)


def _assumed(value: str, document: Document) -> dict[str, str]:
    about = {"kind": "assumed", "source": document.file, "date": UNDATED, "note": REASON}
    return {"value": value, **about}


def _system(found: dict[str, Any], links: dict[str, Any], document: Document) -> dict[str, Any]:
    """The system that the file describes, as a file of its own would say it."""

    def level(name: str, beyond: str, **written: str) -> dict[str, Any]:
        """A level whose latency and bandwidth are those of `links` that begin with `beyond`."""
        bandwidth = "scale_out_bandwidth" if beyond else "bandwidth_per_direction"
        given = {**written, "latency": links[f"{beyond}latency"], "jitter": "0 s"}
        given |= {"bandwidth_per_direction": links[bandwidth]}
        known = {line: text for line, text in given.items() if text is not None}
        return {"name": name} | {line: _assumed(text, document) for line, text in known.items()}

    size, pair = str(links["chips"]), links["bandwidth_per_pair"]
    inner = level("links", "", topology=links["topology"], size=size, bandwidth_per_pair=pair)
    outer = level("scale-out network", "scale_out_", topology="switched")
    return {
        "id": f"{found['id']}_system",
        "name": f"the links of {found['name']}",
        "levels": [inner, outer],
    }


_HEAD = """\
# A chip of your own. `dse catalog chips check FILE` explains what is missing or wrong in it. Every
# command takes its path for a chip: dse estimate --model llama-3-8b --chip ./FILE
#
# A figure is a number with its unit. Its kind is `assumed` and its source this file, unless you say
# more: {value: 989 TFLOP/s, kind: spec, source: data sheet, date: 2026-11, note: boost clock}
"""
_MORE = """
# Take away the # where you know the value. A figure that is left out is listed as missing. Without
# `system` the chip stands by itself. Without a price on the basis of a study it is left out of it.
"""
_NEEDED = ("id", "name", "efficiency", *ROOFLINE)
_EXAMPLES = {
    "year": "2026",
    "backend": GENERIC,
    "notes": "[a remark]",
    "extra_memories": "[{kind: host, capacity: 256 GB, bandwidth: 64 GB/s}]",
    "prices": "{rental_3yr: 2.5 USD/h, on_demand: 4 USD/h}",
    "system": "{chips: 8, bandwidth_per_direction: 450 GB/s, scale_out_bandwidth: 50 GB/s}",
    **_OWN,
}


def template(name: str, classes: Sequence[str]) -> str:
    """The short form with a comment on every field, for a new chip `name`."""
    given = {**_EXAMPLES, "id": name}
    says = {
        "efficiency": f"whose kernels: {', '.join(classes)}, or the id of a measured chip",
        "system": f"or the id of one; beside these latency and topology ({', '.join(TOPOLOGIES)})",
    }
    lines = {
        one.name: f"{one.name}: {given.get(one.name, '')}".strip()
        + f"  # {says.get(one.name, one.meaning)}"
        for one in SHORT.fields
        if one.name != "purchases"
    }
    needed = "\n".join(lines.pop(one) for one in _NEEDED)
    return f"{_HEAD}{needed}\n{_MORE}" + "".join(f"# {line}\n" for line in lines.values())


# A chip of the user's own in full form: a file of `hardware/chips/` and, in the same file, its own
# system, its prices, and what it was derived from.


@record
class OwnChip:
    """What one file gives: the chip, its system where the file describes one, and its full form."""

    chip: Chip
    system: System | None
    document: Document

    @property
    def prices(self) -> tuple[PriceRow, ...]:
        return self.chip.prices


class _FullForm(Chip, kw_only=True):
    """A chip file whose `system` is an id, or the content of a file of `hardware/systems/`."""

    system: Any = field(_Named(System))
    prices: tuple[PriceRow, ...] = field(OwnPrices(), default=())
    origin: Mapping[str, Any] | None = field(
        Table(Field("chip", Text(1)), Field("changes", Listed(Text(), 1))),
        default=None,
        written="derived_from",
    )

    def check(self) -> _FullForm:
        chip = super().check()
        if self.origin is None:
            return chip
        parent, changes = self.origin["chip"], self.origin["changes"]
        message = f"hypothetical, {parent} with {'; '.join(changes)}"
        made = {"derived_from": parent, "changes": changes, "assumed": (message, *chip.assumed)}
        return replace(chip, **made)


def read_full_form(document: Document, folder: Path, efficiency: Sequence[str] = ()) -> OwnChip:
    """The chip of a document in full form, as `dse.schema.own_chip.read_own_chip` gives it. Raises
    InputError with every mistake at once."""
    mistakes = Mistakes(document)
    chip = mistakes.attempt(lambda: read(_FullForm, document))
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert chip is not None
    system = None
    if isinstance(chip.system, System):
        system = replace(chip.system, file=document.file)
    named = system.id if system else chip.system
    return OwnChip(replace(chip, system=named, file=document.file), system, document)


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
