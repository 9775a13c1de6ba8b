"""Racks: `hardware/racks/*.yaml`, what bounds the scale-up domain that stands in one or in several.

A figure is written in full (value, kind, source, date), as in the files of chips and systems. In a
file of the user's own it may be its value alone: it is then `assumed`, and the file is its source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.chip import UNDATED, Figure, FigureSpec, quantity, read_figure, reasons, together
from dse.schema.loader import STRICT, Document, KeyPath, did_you_mean, load_yaml, validate
from dse.schema.system import System

HEIGHT_UNIT_M = 0.04445  # EIA-310: one rack unit
OWN_SOURCE = "the user's own file"
CableKind = Literal["passive_copper", "active_copper", "optical"]
MOST_RACKS = 64


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable of the scale-up fabric.

    `bytes_per_s` is what it carries, both directions added; `power_w` that of both its ends.
    """

    kind: CableKind
    bytes_per_s: float
    diameter_m: float
    bend_multiple: float
    reach_m: float
    power_w: float
    mass_kg: float


@dataclass(frozen=True, slots=True)
class CableSpace:
    """`area_m2` is the cross-section for cables that run up and down one rack, of which they can
    fill the share `fill`; a tray's cables turn into it within `bend_depth_m`, side by side over
    `tray_width_m`."""

    area_m2: float
    fill: float
    bend_depth_m: float
    tray_width_m: float


@dataclass(frozen=True, slots=True)
class Cooling:
    """Heat that one medium can carry out of one rack, and the share of all heat that it takes."""

    kind: Literal["air", "liquid"]
    share: float
    capacity_w: float


@dataclass(frozen=True, slots=True)
class Rack:
    """One rack, full of one kind of chip.

    `domain` is the scale-up domain of the product and `racks` how many racks one domain may take.
    `other_w` comes with every chip (host, network, fans, losses of conversion). A stage of
    switches joins up to `stage_chips` chips (inf: any number); `stage_w, stage_units, stage_kg`
    are those of its switches, per chip. `cables_per_chip` counts those to the first stage. Heights
    are in rack units, `frame_kg` is the rack without trays. `cables[0]` is the one that is used;
    the others are alternatives. Without cables (a printed backplane) none of their bounds exists.
    """

    id: str
    name: str
    hypothetical: bool
    chip: str
    domain: int
    racks: int
    tray_chips: int
    chip_w: float
    other_w: float
    chip_units: float
    chip_kg: float
    cables_per_chip: float
    stage_chips: float
    stage_w: float
    stage_units: float
    stage_kg: float
    frame_units: float
    frame_kg: float
    allowed_kg: float
    footprint_m2: float
    floor_kg_per_m2: float
    feed_w: float
    cooling: tuple[Cooling, ...]
    cables: tuple[Cable, ...]
    space: CableSpace | None
    lead_m: float
    between_racks_m: float
    figures: tuple[Figure, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    file: str

    @property
    def cable(self) -> Cable | None:
        return self.cables[0] if self.cables else None

    def with_cable(self, kind: str) -> Rack:
        """The same rack with the cable of that kind. Raises InputError where it has none."""
        chosen = next((cable for cable in self.cables if cable.kind == kind), None)
        if chosen is None:
            known = [cable.kind for cable in self.cables]
            raise InputError(
                f"{self.id} has no {kind} cable",
                file=self.file, field="cables", accepted=", ".join(known) or "no cable",
            )  # fmt: skip
        return replace(self, cables=(chosen, *(c for c in self.cables if c is not chosen)))

    def with_racks(self, racks: int) -> Rack:
        """The same with domains of up to so many racks."""
        return replace(self, racks=racks)


def _in_full(written: Any) -> Any:
    """A value alone as an assumed figure of the user's own."""
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        return written
    return {
        "value": str(written), "kind": "assumed", "source": OWN_SOURCE, "date": UNDATED,
        "note": "given by the user's own file, which names no source",
    }  # fmt: skip


Written = Annotated[FigureSpec, BeforeValidator(_in_full)]


class _PerChip(BaseModel):
    model_config = STRICT

    power: Written
    other_power: Written | None = None
    height_units: Written
    mass: Written
    cables: Written | None = None


class _Switches(BaseModel):
    model_config = STRICT

    chips_per_stage: Written | None = None
    power: Written | None = None
    height_units: Written | None = None
    mass: Written | None = None


class _Frame(BaseModel):
    model_config = STRICT

    height_units: Written
    mass: Written
    allowed_mass: Written
    width: Written
    depth: Written


class _Cooling(BaseModel):
    model_config = STRICT

    kind: Literal["air", "liquid"]
    share: Written
    capacity: Written


class _Cable(BaseModel):
    model_config = STRICT

    kind: CableKind
    rate: Written
    diameter: Written
    bend_multiple: Written
    reach: Written
    power: Written | None = None
    mass: Written | None = None


class _CableSpace(BaseModel):
    model_config = STRICT

    area: Written
    fill: Written
    bend_depth: Written
    tray_width: Written


class _CablePath(BaseModel):
    model_config = STRICT

    lead: Written
    between_racks: Written


class _RackFile(BaseModel):
    model_config = STRICT

    id: str = Field(min_length=1)
    name: str
    hypothetical: bool = False
    chip: str
    domain: Written
    racks_per_domain: Written
    chips_per_tray: Written
    per_chip: _PerChip
    switches: _Switches | None = None
    frame: _Frame
    power_feed: Written
    floor_load: Written
    cooling: tuple[_Cooling, ...]
    cables: tuple[_Cable, ...] = ()
    cable_space: _CableSpace | None = None
    cable_path: _CablePath | None = None
    notes: tuple[str, ...] = ()


# Dimension of every figure by its field; all others are counts.
_DIMENSION = {
    "power": "W", "other_power": "W", "power_feed": "W", "capacity": "W", "mass": "kg",
    "allowed_mass": "kg", "width": "m", "depth": "m", "floor_load": "kg/m2", "rate": "bytes/s",
    "diameter": "m", "reach": "m", "area": "m2", "bend_depth": "m", "tray_width": "m",
    "lead": "m", "between_racks": "m",
}  # fmt: skip
_WHOLE = ("domain", "racks_per_domain", "chips_per_tray")
_SHARES = ("share", "fill")


def shipped_racks() -> dict[str, Path]:
    """The rack files that come with the project, by id."""
    return {path.stem: path for path in sorted((hardware_dir() / "racks").glob("*.yaml"))}


def resolve_rack(text: str, beside: Path | None = None) -> Path:
    """The file of a rack that is named by its id or by a path (as seen from the folder `beside`).

    Raises InputError with near spellings.
    """
    shipped = shipped_racks()
    if text in shipped:
        return shipped[text]
    if text.endswith((".yaml", ".yml")):
        return (beside or Path()) / text
    raise InputError(
        f"unknown rack {text!r}{did_you_mean(text, shipped)}",
        field="rack",
        accepted=f"{', '.join(shipped)}, or the path of a rack file",
    )


def refusal(chip: str, system: System) -> str | None:
    """Why a chip's scale-up domain cannot be varied; None where it can. Only behind switches is a
    domain of another size the same fabric."""
    inner, outer = system.levels[0], system.levels[-1]
    if inner.topology != "switched":
        return f"{chip} has {inner.topology} scale-up links: only switched ones take another domain"
    for level in (inner, outer):
        if math.isnan(level.bytes_per_s_per_direction):
            return f"{chip} has no bandwidth_per_direction of {level.name}"
    return None


def load_rack(path: Path | str) -> Rack:
    """Reads one rack file. Raises InputError with the line and field of every mistake."""
    document = load_yaml(path)
    spec = validate(_RackFile, document)
    reader = _Reader(document)
    value = reader.value
    chip, frame, switches = spec.per_chip, spec.frame, spec.switches or _Switches()
    top = {
        name: value((name,), getattr(spec, name))
        for name in (*_WHOLE, "power_feed", "floor_load")
    }  # fmt: skip
    per = {name: value(("per_chip", name), getattr(chip, name)) for name in _fields(chip)}
    stage = {name: value(("switches", name), getattr(switches, name)) for name in _fields(switches)}
    box = {name: value(("frame", name), getattr(frame, name)) for name in _fields(frame)}
    cooling = tuple(
        Cooling(
            medium.kind,
            value(("cooling", k, "share"), medium.share, f"{medium.kind} cooling"),
            value(("cooling", k, "capacity"), medium.capacity, f"{medium.kind} cooling"),
        )
        for k, medium in enumerate(spec.cooling)
    )
    cables = tuple(_cable(reader, k, cable) for k, cable in enumerate(spec.cables))
    space, lead_m, between_m = _cabling(reader, spec)
    if reader.errors:
        raise together(reader.errors)
    if abs(math.fsum(medium.share for medium in cooling) - 1.0) > 1e-6:
        shares = " + ".join(f"{medium.share:g}" for medium in cooling) or "nothing"
        raise document.error(("cooling",), f"shares of {shares}", "shares that add up to 1")
    if box["allowed_mass"] <= box["mass"]:
        raise document.error(
            ("frame", "allowed_mass"), "not above the empty rack", f"more than {box['mass']:g} kg"
        )
    figures = tuple(reader.figures)
    return Rack(
        id=spec.id,
        name=spec.name,
        hypothetical=spec.hypothetical,
        chip=spec.chip,
        domain=int(top["domain"]),
        racks=int(top["racks_per_domain"]),
        tray_chips=int(top["chips_per_tray"]),
        chip_w=per["power"],
        other_w=per["other_power"],
        chip_units=per["height_units"],
        chip_kg=per["mass"],
        cables_per_chip=per["cables"] if cables else 0.0,
        stage_chips=stage["chips_per_stage"] or math.inf,
        stage_w=stage["power"],
        stage_units=stage["height_units"],
        stage_kg=stage["mass"],
        frame_units=box["height_units"],
        frame_kg=box["mass"],
        allowed_kg=box["allowed_mass"],
        footprint_m2=box["width"] * box["depth"],
        floor_kg_per_m2=top["floor_load"],
        feed_w=top["power_feed"],
        cooling=cooling,
        cables=cables,
        space=space,
        lead_m=lead_m,
        between_racks_m=between_m,
        figures=figures,
        assumed=reasons(figures),
        notes=spec.notes,
        file=document.file,
    )


def _fields(spec: BaseModel) -> list[str]:
    return list(type(spec).model_fields)


class _Reader:
    """Figures as they are read, in SI, with what each is called."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.figures: list[Figure] = []
        self.errors: list[InputError] = []

    def value(self, path: KeyPath, written: FigureSpec | None, owner: str = "") -> float:
        """SI value at `path`; 0 for what is left out, 1 for what is wrong and in `errors`."""
        if written is None:
            return 0.0
        try:
            figure = self._figure(path, written, owner)
        except InputError as error:
            self.errors.append(error)
            return 1.0
        self.figures.append(figure)
        return figure.value

    def _figure(self, path: KeyPath, written: FigureSpec, owner: str) -> Figure:
        """Raises InputError: another dimension, not a whole number, a share above 1."""
        field = str(path[-1])
        dimension = _DIMENSION.get(field, "count")
        own = written.source == OWN_SOURCE
        if own:  # the value stands at the field itself, and so does its mistake
            quantity(self.document, path, written.value, dimension)
        name = " ".join((owner or " ".join(map(str, path[:-1])), field)).strip().replace("_", " ")
        figure = read_figure(self.document, path, name, written, dimension)
        place = path if own else (*path, "value")
        if field in _WHOLE and figure.value != int(figure.value):
            raise self.document.error(place, f"read {written.value!r}", "a whole number")
        if field in _SHARES and figure.value > 1.0:
            raise self.document.error(place, f"read {written.value!r}", "above 0, at most 1")
        if field == "racks_per_domain" and figure.value > MOST_RACKS:
            raise self.document.error(place, f"read {written.value!r}", f"at most {MOST_RACKS}")
        return figure


def _cable(reader: _Reader, k: int, spec: _Cable) -> Cable:
    found: Mapping[str, float] = {
        name: reader.value(("cables", k, name), getattr(spec, name), f"{spec.kind} cable")
        for name in _fields(spec)
        if name != "kind"
    }
    return Cable(
        kind=spec.kind,
        bytes_per_s=found["rate"],
        diameter_m=found["diameter"],
        bend_multiple=found["bend_multiple"],
        reach_m=found["reach"],
        power_w=found["power"],
        mass_kg=found["mass"],
    )


def _cabling(reader: _Reader, spec: _RackFile) -> tuple[CableSpace | None, float, float]:
    """(space, lead, metres between racks); with cables, all of it must be there."""
    for section, there in (
        ("cable_space", spec.cable_space), ("cable_path", spec.cable_path),
        ("per_chip.cables", spec.per_chip.cables),
    ):  # fmt: skip
        if bool(there) != bool(spec.cables):
            path = tuple(section.split("."))
            said = "missing beside cables" if spec.cables else "given without cables"
            raise reader.document.error(path, said, "both or neither")
    if spec.cable_space is None or spec.cable_path is None:
        return None, 0.0, 0.0
    room = {
        name: reader.value(("cable_space", name), getattr(spec.cable_space, name))
        for name in _fields(spec.cable_space)
    }
    path = {
        name: reader.value(("cable_path", name), getattr(spec.cable_path, name))
        for name in _fields(spec.cable_path)
    }
    space = CableSpace(room["area"], room["fill"], room["bend_depth"], room["tray_width"])
    return space, path["lead"], path["between_racks"]
