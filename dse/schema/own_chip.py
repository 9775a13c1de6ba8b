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
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from dse.data import hardware_dir
from dse.schema.chip import (
    DIMENSION,
    GENERIC,
    UNDATED,
    Availability,
    ChipFigures,
    quantity,
    read_chip,
    wrong_quantities,
)
from dse.schema.loader import STRICT, Document, load_yaml, validate
from dse.schema.own_full import Mistakes, OwnChip, check_names, read_full_form, read_prices
from dse.schema.system import TOPOLOGIES, Topology

REASON = "given by the user's own file, which names no source"
EXAMPLE = {
    "flop/s": "989 TFLOP/s", "bytes": "80 GB or 180 GiB", "bytes/s": "3.35 TB/s", "W": "700 W",
    "count": "132", "Hz": "1830 MHz",
}  # fmt: skip
ALONE = "single_chip"  # the system of a chip whose file says nothing of links
_LINKS = ("bandwidth_per_direction", "bandwidth_per_pair", "scale_out_bandwidth")
_TIMES = ("latency", "scale_out_latency")


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
    prices: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


# Figures, and the system where it is a mapping, are read by hand: each may take two forms.
_FIGURES: dict[str, Any] = dict.fromkeys(DIMENSION, (Any, None))
_ShortForm = create_model("_ShortForm", __base__=_OwnChip, **_FIGURES)


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="ignore", defer_build=True, frozen=True, coerce_numbers_to_str=True
    )


class _Links(_Part):
    system: _OwnSystem


class _Sourced(_Part):
    figures: ChipFigures


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
    if Path(path).resolve().parent == (folder / "chips").resolve():
        return OwnChip(read_chip(document), None, (), document)
    if "figures" not in document.data:
        document = _from_short_form(document, folder, efficiency)
    return read_full_form(document, folder, efficiency)


def _from_short_form(document: Document, folder: Path, efficiency: Sequence[str]) -> Document:
    """The same file in full form, each part with its line in the short form. Raises InputError with
    every mistake at once."""
    data, mistakes = document.data, Mistakes()
    written = {name: data[name] for name in DIMENSION if name in data}
    for name, figure in written.items():
        if isinstance(figure, str | int | float):
            text, dimension = str(figure), DIMENSION[name]
            mistakes.attempt(
                lambda at=(name,), text=text, unit=dimension: quantity(document, at, text, unit)
            )
        elif not isinstance(figure, Mapping):
            accepted = f"{EXAMPLE[DIMENSION[name]]}, or a mapping with value, kind, source and date"
            mistakes.errors.append(document.error((name,), "nothing that can be read", accepted))
    sourced = {name: figure for name, figure in written.items() if isinstance(figure, Mapping)}
    lines = dict(document.lines or {})
    lines |= {("figures", *path): n for path, n in [*lines.items()] if path[0] in written}
    mapped = Document(document.file, {"figures": sourced}, lines)
    mistakes.errors += wrong_quantities(mapped)
    mistakes.attempt(lambda: validate(_Sourced, mapped))
    spec: Any = mistakes.attempt(lambda: validate(_ShortForm, document))
    links = None
    if isinstance(data.get("system"), Mapping):
        found = mistakes.attempt(lambda: validate(_Links, document))
        links = found.system if found else None
        for names, dimension in ((_LINKS, "bytes/s"), (_TIMES, "s")):
            for name in names:
                if isinstance(text := data["system"].get(name), str | int | float):
                    at, text = ("system", name), str(text)
                    mistakes.attempt(
                        lambda at=at, text=text, unit=dimension: quantity(document, at, text, unit)
                    )
    read_prices(document, mistakes)
    check_names(document, folder, efficiency, mistakes)
    mistakes.finish()
    assert spec is not None
    figures = {
        name: figure if isinstance(figure, Mapping) else _assumed(str(figure), document)
        for name, figure in written.items()
    }
    frame = (
        "id", "name", "vendor", "family", "year", "availability", "memory_kind", "backend",
    )  # fmt: skip
    full = {name: getattr(spec, name) for name in frame}
    full["system"] = spec.system or ALONE if links is None else _system(spec, links, document)
    full |= {"efficiency": spec.efficiency, "figures": figures, "notes": list(spec.notes)}
    full["extra_memories"] = [
        {"kind": memory.kind}
        | {name: _assumed(getattr(memory, name), document) for name in ("capacity", "bandwidth")}
        for memory in spec.extra_memories
    ]
    if spec.prices:
        full["prices"] = spec.prices
    return Document(document.file, full, lines)


def _assumed(value: str, document: Document) -> dict[str, str]:
    return {
        "value": value, "kind": "assumed", "source": document.file, "date": UNDATED, "note": REASON,
    }  # fmt: skip


def _system(spec: Any, links: _OwnSystem, document: Document) -> dict[str, Any]:
    """The system that the file describes, as a file of its own would say it."""

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
    return {
        "id": f"{spec.id}_system", "name": f"the links of {spec.name}", "levels": [inner, outer],
    }  # fmt: skip


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
