"""Racks: `hardware/racks/*.yaml`, what bounds the scale-up domain that stands in one or in several.

A figure is written in full (value, kind, source, date), as in the files of chips and systems. In a
file of the user's own it may be its value alone: it is then `assumed`, and the file is its source.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from dse import units
from dse.data import hardware_dir, is_shipped
from dse.errors import InputError
from dse.record import record
from dse.schema.figure import OWN_SOURCE, Figure, Figured, Value, reasons
from dse.schema.loader import Document, did_you_mean, load_yaml
from dse.schema.plausible import near, unusual
from dse.schema.reader import (
    ID,
    Field,
    Flag,
    Listed,
    Mistakes,
    Place,
    Refused,
    Table,
    Text,
    Word,
    read,
)
from dse.schema.system import System

HEIGHT_UNIT_M = 0.04445  # EIA-310: one rack unit
CableKind = Literal["passive_copper", "active_copper", "optical"]
MOST_RACKS = 64


@record
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


@record
class CableSpace:
    """`area_m2` is the cross-section for cables that run up and down one rack, of which they can
    fill the share `fill`; a tray's cables turn into it within `bend_depth_m`, side by side over
    `tray_width_m`."""

    area_m2: float
    fill: float
    bend_depth_m: float
    tray_width_m: float


@record
class Cooling:
    """Heat that one medium can carry out of one rack, and the share of all heat that it takes."""

    kind: Literal["air", "liquid"]
    share: float
    capacity_w: float


@record
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
                file=self.file,
                field="cables",
                accepted=", ".join(known) or "no cable",
            )
        return replace(self, cables=(chosen, *(c for c in self.cables if c is not chosen)))

    def with_racks(self, racks: int) -> Rack:
        """The same with domains of up to so many racks."""
        return replace(self, racks=racks)


def _figure(value: Value | str = "count") -> Figured:
    return Figured(value, bare=OWN_SOURCE)


_WHOLE = _figure(Value("count", whole=True))
_SHARE = _figure(Value("count", most=1.0, accepted="above 0, at most 1"))
_RACKS = _figure(Value("count", whole=True, most=MOST_RACKS))
RACK = Table(
    Field("id", ID, meaning="what commands call the rack"),
    Field("name", Text()),
    Field("hypothetical", Flag(), False, meaning="nobody sells it"),
    Field("chip", ID, meaning="that it is full of"),
    Field("domain", _WHOLE, meaning="chips of the scale-up domain of the product"),
    Field("racks_per_domain", _RACKS, meaning="that one domain may take"),
    Field("chips_per_tray", _WHOLE),
    Field(
        "per_chip",
        Table(
            Field("power", _figure("W")),
            Field("other_power", _figure("W"), None, meaning="host, network, fans, conversion"),
            Field("height_units", _figure()),
            Field("mass", _figure("kg")),
            Field("cables", _figure(), None, meaning="to the first stage of switches"),
        ),
    ),
    Field(
        "switches",
        Table(
            Field("chips_per_stage", _figure(), None, meaning="any number where left out"),
            Field("power", _figure("W"), None, meaning="of a stage, per chip"),
            Field("height_units", _figure(), None, meaning="of a stage, per chip"),
            Field("mass", _figure("kg"), None, meaning="of a stage, per chip"),
        ),
        None,
    ),
    Field(
        "frame",
        Table(
            Field("height_units", _figure()),
            Field("mass", _figure("kg"), meaning="of the rack without trays"),
            Field("allowed_mass", _figure("kg")),
            Field("width", _figure("m")),
            Field("depth", _figure("m")),
        ),
    ),
    Field("power_feed", _figure("W")),
    Field("floor_load", _figure("kg/m2")),
    Field(
        "cooling",
        Listed(
            Table(
                Field("kind", Word(("air", "liquid"))),
                Field("share", _SHARE, meaning="of all heat"),
                Field("capacity", _figure("W"), meaning="that it can carry out of the rack"),
            )
        ),
    ),
    Field(
        "cables",
        Listed(
            Table(
                Field("kind", Word(get_args(CableKind))),
                Field("rate", _figure("bytes/s"), meaning="both directions added"),
                Field("diameter", _figure("m")),
                Field("bend_multiple", _figure()),
                Field("reach", _figure("m")),
                Field("power", _figure("W"), None, meaning="of both ends"),
                Field("mass", _figure("kg"), None),
            )
        ),
        (),
        meaning="the first is used, the others are alternatives",
    ),
    Field(
        "cable_space",
        Table(
            Field("area", _figure("m2"), meaning="cross-section for cables along the rack"),
            Field("fill", _SHARE, meaning="of the area that cables can take"),
            Field("bend_depth", _figure("m")),
            Field("tray_width", _figure("m")),
        ),
        None,
    ),
    Field(
        "cable_path",
        Table(Field("lead", _figure("m")), Field("between_racks", _figure("m"))),
        None,
    ),
    Field("notes", Listed(Text()), ()),
)


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
    found = read(RACK, document)
    try:
        rack = _rack(found, document)
    except Refused as error:
        raise document.error(error.path, error.message, error.accepted) from None
    if not is_shipped(document.file):
        _doubt(rack, document)
    return rack


def _doubt(rack: Rack, document: Document) -> None:
    """Warns of figures that are far from those of every shipped rack, and of a chip that is none of
    the catalog: it may be one of the user's own."""
    chips = [path.stem for path in (hardware_dir() / "chips").glob("*.yaml")]
    if rack.chip not in chips:
        said = f"read {rack.chip!r}: no chip of the catalog{did_you_mean(rack.chip, chips)}"
        Place(Mistakes(document), ("chip",)).doubt(said)
    shipped = [one for path in shipped_racks().values() for one in load_rack(path).figures]
    for figure in rack.figures:
        usual = near([one.value for one in shipped if one.name == figure.name])
        said = unusual(figure.value, usual, lambda value, of=figure.unit: units.format(value, of))
        if said:
            Place(Mistakes(document)).doubt(f"{figure.name}: read {figure.text!r}{said}")


def _rack(found: dict[str, Any], document: Document) -> Rack:
    values = _Values()
    top = values.of(
        {name: one for name, one in found.items() if one is None or isinstance(one, Figure)}
    )
    per = values.of(found["per_chip"], "per_chip")
    stage = values.of(found["switches"] or {}, "switches")
    box = values.of(found["frame"], "frame")
    cooling = tuple(
        Cooling(one.pop("kind"), **{_COOLING[name]: v for name, v in values.of(one, kind).items()})
        for one in found["cooling"]
        for kind in [f"{one['kind']} cooling"]
    )
    cables = tuple(
        Cable(one.pop("kind"), **{_CABLE[name]: v for name, v in values.of(one, kind).items()})
        for one in found["cables"]
        for kind in [f"{one['kind']} cable"]
    )
    _all_of_the_cabling(found)
    room = values.of(found["cable_space"] or {}, "cable_space")
    path = values.of(found["cable_path"] or {}, "cable_path")
    if abs(math.fsum(medium.share for medium in cooling) - 1.0) > 1e-6:
        shares = " + ".join(f"{medium.share:g}" for medium in cooling) or "nothing"
        raise Refused(f"shares of {shares}", "shares that add up to 1", "cooling")
    if box["allowed_mass"] <= box["mass"]:
        accepted = f"more than {box['mass']:g} kg"
        raise Refused("not above the empty rack", accepted, "frame", "allowed_mass")
    figures = tuple(values.figures)
    return Rack(
        **{name: found[name] for name in ("id", "name", "hypothetical", "chip", "notes")},
        domain=int(top["domain"]),
        racks=int(top["racks_per_domain"]),
        tray_chips=int(top["chips_per_tray"]),
        chip_w=per["power"],
        other_w=per["other_power"],
        chip_units=per["height_units"],
        chip_kg=per["mass"],
        cables_per_chip=per["cables"],
        stage_chips=stage.get("chips_per_stage") or math.inf,
        stage_w=stage.get("power", 0.0),
        stage_units=stage.get("height_units", 0.0),
        stage_kg=stage.get("mass", 0.0),
        frame_units=box["height_units"],
        frame_kg=box["mass"],
        allowed_kg=box["allowed_mass"],
        footprint_m2=box["width"] * box["depth"],
        floor_kg_per_m2=top["floor_load"],
        feed_w=top["power_feed"],
        cooling=cooling,
        cables=cables,
        space=CableSpace(room["area"], room["fill"], room["bend_depth"], room["tray_width"])
        if room
        else None,
        lead_m=path.get("lead", 0.0),
        between_racks_m=path.get("between_racks", 0.0),
        figures=figures,
        assumed=reasons(figures),
        file=document.file,
    )


_COOLING = {"share": "share", "capacity": "capacity_w"}
_CABLE = {
    "rate": "bytes_per_s",
    "diameter": "diameter_m",
    "bend_multiple": "bend_multiple",
    "reach": "reach_m",
    "power": "power_w",
    "mass": "mass_kg",
}


class _Values:
    """The figures in the order in which they are asked for, with what each is called."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def of(self, part: dict[str, Figure | None], owner: str = "") -> dict[str, float]:
        """SI values by name; 0 for what is left out."""
        for name, figure in part.items():
            if figure is not None:
                self.figures.append(figure.named(f"{owner} {name}".strip().replace("_", " ")))
        return {name: one.value if one is not None else 0.0 for name, one in part.items()}


def _all_of_the_cabling(found: dict[str, Any]) -> None:
    """Raises Refused where cables stand without what they need, or that without cables."""
    for path, there in (
        (("cable_space",), found["cable_space"]),
        (("cable_path",), found["cable_path"]),
        (("per_chip", "cables"), found["per_chip"]["cables"]),
    ):
        if (there is not None) != bool(found["cables"]):
            said = "missing beside cables" if found["cables"] else "given without cables"
            raise Refused(said, "both or neither", *path)
