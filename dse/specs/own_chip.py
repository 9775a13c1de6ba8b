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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from dse.data import hardware_dir
from dse.errors import InputError, InputErrors
from dse.specs.chip import (
    DIMENSION,
    GENERIC,
    UNDATED,
    Availability,
    Chip,
    quantity,
    read_chip,
    together,
)
from dse.specs.loader import STRICT, Document, KeyPath, load_yaml, validate
from dse.specs.prices import PriceRow
from dse.specs.system import TOPOLOGIES, System, Topology, read_system

SOURCE = "the user's own file"
REASON = "given by the user's own file, which names no source"
EXAMPLE = {
    "flop/s": "989 TFLOP/s", "bytes": "80 GB or 180 GiB", "bytes/s": "3.35 TB/s", "W": "700 W",
    "count": "132", "Hz": "1830 MHz",
}  # fmt: skip
ALONE = "single_chip"  # the system of a chip whose file says nothing of links
_LINKS = ("bandwidth_per_direction", "bandwidth_per_pair", "scale_out_bandwidth")
_TIMES = ("latency", "scale_out_latency")


@dataclass(frozen=True, slots=True)
class OwnChip:
    """What one file gives: the chip, its system where the file describes one, its prices."""

    chip: Chip
    system: System | None
    prices: tuple[PriceRow, ...]


class _OwnSystem(BaseModel):
    """The links of the chip: `chips` of them in one domain, and a network beyond."""

    model_config = STRICT

    chips: int = Field(default=1, ge=1)
    topology: Topology = "switched"
    bandwidth_per_direction: str | None = None
    bandwidth_per_pair: str | None = None
    latency: str = "1 us"
    scale_out_bandwidth: str | None = None
    scale_out_latency: str = "5 us"


class _OwnMemory(BaseModel):
    """A memory behind the device memory: `host`, `flash`, or any other kind."""

    model_config = STRICT

    kind: str
    capacity: str
    bandwidth: str


class _OwnChip(BaseModel):
    model_config = STRICT

    id: str = Field(min_length=1)
    name: str
    efficiency: str
    vendor: str = "own"
    family: str = "own"
    year: int | None = None
    availability: Availability = "own"
    memory_kind: str = "memory"
    backend: str = GENERIC
    extra_memories: tuple[_OwnMemory, ...] = ()
    system: Any = None
    prices: dict[str, str] = {}
    notes: tuple[str, ...] = ()


# Figures, and the system where it is a mapping, are read by hand: each may take two forms.
_FIGURES: dict[str, Any] = dict.fromkeys(DIMENSION, (Any, None))
_ShortForm = create_model("_ShortForm", __base__=_OwnChip, **_FIGURES)


class _Links(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    system: _OwnSystem


def read_own_chip(path: Path | str) -> OwnChip:
    """Reads a chip file that is not of the shipped folder, in either form.

    Raises InputError with the line and field of every mistake.
    """
    document = load_yaml(path)
    shipped = Path(path).resolve().parent == (hardware_dir() / "chips").resolve()
    if "figures" in document.data or shipped:
        return OwnChip(read_chip(document), None, ())
    written = {name: document.data[name] for name in DIMENSION if name in document.data}
    errors: list[InputError] = []

    def checked(place: KeyPath, text: str, dimension: str) -> float:
        try:
            return quantity(document, place, text, dimension)
        except InputError as error:
            errors.append(error)
            return 0.0

    for name, figure in written.items():
        if isinstance(figure, str | int | float):
            checked((name,), str(figure), DIMENSION[name])
        elif not isinstance(figure, Mapping):
            accepted = f"{EXAMPLE[DIMENSION[name]]}, or a mapping with value, kind, source and date"
            errors.append(document.error((name,), "nothing that can be read", accepted))
    try:
        spec: Any = validate(_ShortForm, document)
    except InputError as error:
        found = error.errors if isinstance(error, InputErrors) else [error]
        raise together([*found, *errors]) from None
    links = None
    if isinstance(spec.system, Mapping):
        links = validate(_Links, document).system
        for names, dimension in ((_LINKS, "bytes/s"), (_TIMES, "s")):
            for name in names:
                if (text := getattr(links, name)) is not None:
                    checked(("system", name), text, dimension)
    elif not isinstance(spec.system, str | None):
        accepted = "the id of a system, or a mapping of " + ", ".join(_OwnSystem.model_fields)
        errors.append(document.error(("system",), f"read {spec.system!r}", accepted))
    prices = tuple(
        PriceRow(spec.id, basis, checked(("prices", basis), text, "usd/h"), SOURCE, UNDATED,
                 document.file, "", document.line(("prices", basis)))
        for basis, text in spec.prices.items()
    )  # fmt: skip
    if errors:
        raise together(errors)
    system = None if links is None else _system(spec, links, document)
    chip = read_chip(_full_form(spec, written, system, document))
    return OwnChip(chip, system, prices)


def _full_form(
    spec: Any, written: Mapping[str, Any], system: System | None, document: Document
) -> Document:
    """The same file as a shipped one would say it, each part with its line in the short form."""
    figures = {
        name: figure if isinstance(figure, Mapping) else _assumed(str(figure), document)
        for name, figure in written.items()
    }
    frame = (
        "id", "name", "efficiency", "vendor", "family", "year", "availability", "memory_kind",
        "backend",
    )  # fmt: skip
    data = {name: getattr(spec, name) for name in frame}
    data |= {"system": system.id if system else spec.system or ALONE, "notes": list(spec.notes)}
    data["extra_memories"] = [
        {"kind": memory.kind}
        | {name: _assumed(getattr(memory, name), document) for name in ("capacity", "bandwidth")}
        for memory in spec.extra_memories
    ]
    lines = dict(document.lines)
    lines |= {("figures", *path): n for path, n in document.lines.items() if path[0] in figures}
    return Document(document.file, {**data, "figures": figures}, lines)


def _assumed(value: str, document: Document) -> dict[str, str]:
    return {
        "value": value, "kind": "assumed", "source": document.file, "date": UNDATED, "note": REASON,
    }  # fmt: skip


def _system(spec: Any, links: _OwnSystem, document: Document) -> System:
    """The system that the file describes."""

    def level(name: str, **written: str | None) -> dict[str, Any]:
        given = {field: text for field, text in written.items() if text is not None}
        return {"name": name} | {field: _assumed(text, document) for field, text in given.items()}

    inner = level(
        "links", topology=links.topology, size=str(links.chips), latency=links.latency,
        bandwidth_per_direction=links.bandwidth_per_direction, jitter="0 s",
        bandwidth_per_pair=links.bandwidth_per_pair,
    )  # fmt: skip
    outer = level(
        "scale-out network", topology="switched", latency=links.scale_out_latency, jitter="0 s",
        bandwidth_per_direction=links.scale_out_bandwidth,
    )  # fmt: skip
    data = {
        "id": f"{spec.id}_system", "name": f"the links of {spec.name}", "levels": [inner, outer],
    }  # fmt: skip
    return read_system(Document(document.file, data, {}))


_TEMPLATE = """\
# A chip of your own. `dse hardware check FILE` explains what is missing or wrong in it, and every
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
_HINT = {
    "peak_bf16": "dense, such as 989 TFLOP/s; half of a figure with sparsity",
    "memory_capacity": "what the vendor prints, such as 80 GB or 180 GiB",
    "memory_capacity_driver_reported": "what the driver reports, such as 81559 MiB; used if given",
    "memory_bandwidth": "such as 3.35 TB/s",
    "system_power": "per chip, with its share of host, network and cooling, such as 1275 W",
    "compute_units": "such as 132",
    "idle_power": "with weights loaded and nothing to do, such as 140 W",
    "matmul_power": "at the measured rate of large matrix products, where that is not tdp",
}


def template(name: str, classes: Sequence[str]) -> str:
    """The short form with a comment on every field, for a new chip `name`."""
    needed = ("memory_capacity", "memory_bandwidth", "peak_bf16")
    optional = [
        f"# {figure}:  # {_HINT.get(figure, f'such as {EXAMPLE[dimension]}')}"
        for figure, dimension in DIMENSION.items()
        if figure not in needed
    ]
    return _TEMPLATE.format(
        id=name,
        classes=", ".join(classes),
        needed="\n".join(f"{figure}:  # {_HINT[figure]}" for figure in needed),
        optional="\n".join(optional),
        topologies=", ".join(TOPOLOGIES),
    )
