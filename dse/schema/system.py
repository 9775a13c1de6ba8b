"""Systems: `hardware/systems/*.yaml`, the fabric around a chip as levels, innermost first; and
racks: `hardware/racks/*.yaml`, what ends a scale-up domain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from dse import units
from dse.data import hardware_dir, is_shipped, rows_beside
from dse.record import record
from dse.schema.figure import OWN_SOURCE, Figure, Figured, Value, reasons
from dse.schema.loader import Document, did_you_mean, load_yaml, unknown
from dse.schema.plausible import doubts, near, unusual
from dse.schema.reader import (
    ID,
    REQUIRED,
    Field,
    Flag,
    Listed,
    Mistakes,
    Place,
    Refused,
    Schema,
    Table,
    Text,
    Then,
    Word,
    field,
    read,
)

Topology = Literal[
    "switched", "full_mesh", "ring", "torus_2d", "torus_3d", "dragonfly", "pcie", "through_host"
]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
# Chips on the host's PCIe lanes, with peer-to-peer (`pcie`) and without it, where what they send
# each other passes through the host's memory.
THROUGH_HOST = "through_host"
ON_PCIE = ("pcie", THROUGH_HOST)
# What software adds to a hop of a network between domains, where its level gives no `software`:
# claimed, "based on observations" (github:ai-dynamo/aiconfigurator systems/*.yaml@095f58a,
# p2p_latency). With 5 us a hop it gives 30 us for an all-reduce between two boxes of one chip,
# where 30 to 35 us were measured for 8 KiB (github:NVIDIA/dgx-spark-playbooks pull 103), and what
# DeepEP adds from 1 node to 2 to 8: 9 to 17.
SCALE_OUT_SOFTWARE_S = 10e-6
# Links between domains in use by a collective reach this share of their label, where their level
# gives no `reached`: measured 0.74 of the NIC at 16 GiB over 4 nodes, 0.97 for raw RDMA
# (github:stas00/ml-engineering network/README.md).
SCALE_OUT_FRACTION = 0.74
# The rise of messages between latency and bandwidth, where their level gives no `ramp`: fitted to
# the all-reduce of 32 KiB to 16 GiB over 4 nodes (the same source; docs/fabrics.md).
SCALE_OUT_RAMP = 0.36


@record
class FabricLevel:
    """One level of the fabric.

    `size` is the number of chips of one domain (None: unbounded); `bytes_per_s_per_direction` is
    what one chip sends, over all its links (NaN: not known); `bytes_per_s_per_pair` is one link
    between two neighbours of a mesh, torus or dragonfly; `latency_s` is one hop.

    `in_network_reduction`: its switches add what passes through them (NVLink SHARP). Delays of mean
    `jitter_s` are exponential (`dse.physics.collectives`). Between domains `software_s` comes on
    top of each hop, collectives reach the share `reached` of the bandwidth, and `ramp` is what
    messages cost that are too long for the latency alone and too short for the bandwidth
    (`dse.schema.efficiency`); inside the first level all three are in the chip's efficiency file.
    """

    name: str
    topology: Topology
    size: int | None = None
    bytes_per_s_per_direction: float = math.nan
    bytes_per_s_per_pair: float | None = None
    latency_s: float = 0.0
    jitter_s: float = 0.0
    in_network_reduction: bool = False
    software_s: float = SCALE_OUT_SOFTWARE_S
    reached: float = SCALE_OUT_FRACTION
    ramp: float = SCALE_OUT_RAMP


_ROWS = rows_beside(__file__, "system_figures.csv")
_WORDS = {"topology": TOPOLOGIES, "in_network_reduction": ("none", "supported")}


def _figures(part: str) -> list[Field]:
    """The figures of a part of a system or a rack: rows of system_figures.csv. In a rack file of
    the user's own each may be its value alone."""
    found = []
    for row in _ROWS:
        if row["part"] == part:
            whole, most = row["dimension"] == "whole", float(row["most"] or math.inf)
            value = Value(
                "count" if whole else row["dimension"],
                _WORDS.get(row["field"], ()),
                whole=whole,
                most=most,
                accepted="above 0, at most 1" if most == 1.0 else "",
            )
            kind = Figured(value, bare=None if part == "level" else OWN_SOURCE)
            default = None if row["optional"] else REQUIRED
            found.append(Field(row["field"], kind, default, row["to"], row["meaning"]))
    return found


def _level(name: str, **found: Figure | None) -> tuple[FabricLevel, list[Figure]]:
    """A level and its figures as "NVLink latency"."""
    own = {field: one for field, one in found.items() if one is not None}
    values: dict[str, Any] = {n: f.text if f.unit == "text" else f.value for n, f in own.items()}
    if "size" in values:
        values["size"] = int(values["size"])
    values["in_network_reduction"] = values.get("in_network_reduction", "none") != "none"
    return FabricLevel(name, **values), [one.named(f"{name} {one.name}") for one in own.values()]


def _grow(levels: tuple[tuple[FabricLevel, list[Figure]], ...]) -> Any:
    """The same levels. Raises Refused where one is not larger than the one inside it."""
    sizes = [level.size for level, _ in levels]
    for index, (inner, size) in enumerate(pairwise(sizes), start=1):
        if (size or math.inf) <= (inner or math.inf):
            raise Refused(
                f"read {size or 'no size'}: not larger than the level inside it",
                f"more than {inner}" if inner else "a size on every level but the last",
                index,
                "size",
            )
    return levels


class System(Schema, kw_only=True):
    """Levels from the inside out; the last is the scale-out network."""

    id: str = field(ID)
    name: str = field(Text())
    levels: tuple[FabricLevel, ...] = field(
        Then(Listed(Table(Field("name", Text()), *_figures("level"), make=_level), 1), _grow)
    )
    figures: tuple[Figure, ...] = ()
    assumed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    file: str = ""

    def check(self) -> System:
        """With the figures of the levels as those of the system."""
        given: Any = self.levels
        levels = tuple(level for level, _ in given)
        figures = tuple(figure for _, own in given for figure in own)
        unknown = [one.name for one in levels if math.isnan(one.bytes_per_s_per_direction)]
        return replace(
            self,
            levels=levels,
            figures=figures,
            assumed=(*doubts(figures), *reasons(figures)),
            missing=tuple(f"{name} bandwidth_per_direction" for name in unknown),
        )

    def unknown_link(self, chips: float) -> str | None:
        """The name of the level that `chips` chips of one instance need and whose bandwidth is not
        known; None where they have what they need."""
        joined = 1.0  # chips that the levels inside join
        for level in self.levels:
            size = math.inf if level is self.levels[-1] else level.size or math.inf
            if min(chips, size) > joined and math.isnan(level.bytes_per_s_per_direction):
                return level.name
            joined = size
        return None


def load_system(path: Path | str) -> System:
    """Reads one system file. Raises InputError with the line and field of every mistake."""
    return read_system(load_yaml(path))


def read_system(document: Document) -> System:
    """The system of a document. Raises InputError, or InputErrors for several mistakes."""
    return replace(read(System, document), file=document.file)


# Racks: `hardware/racks/*.yaml`, what bounds the scale-up domain that stands in one or in several.
#
# A figure is written in full (value, kind, source, date), as in the files of chips and systems. In
# a file of the user's own it may be its value alone: it is then `assumed`, and the file is its
# source.

HEIGHT_UNIT_M = 0.04445  # EIA-310: one rack unit


@record
class Cables:
    """The cables of the scale-up fabric, and the space for them.

    A chip has `per_chip` to the first stage of switches. One carries `bytes_per_s`, both directions
    added; `power_w` is that of both its ends. They run up and down one rack in a cross-section of
    `area_m2`, of which they can fill the share `fill`; a tray's cables turn into it within
    `bend_depth_m`, side by side over `tray_width_m`. Beside its way along the rack the longest has
    `lead_m`, and `between_racks_m` for each further rack.
    """

    kind: str
    per_chip: float
    bytes_per_s: float
    diameter_m: float
    bend_multiple: float
    reach_m: float
    area_m2: float
    fill: float
    bend_depth_m: float
    tray_width_m: float
    lead_m: float
    between_racks_m: float
    power_w: float = 0.0
    mass_kg: float = 0.0


@record
class Rack:
    """One rack, full of one kind of chip.

    `domain` is the scale-up domain of the product and `racks` how many racks one domain may take.
    `other_w` comes with every chip (host, network, fans, losses of conversion). A stage of
    switches joins up to `stage_chips` chips (inf: any number); `stage_w, stage_units, stage_kg`
    are those of its switches, per chip. Heights are in rack units, `frame_kg` is the rack without
    trays. Of all heat, the medium that is at its limit first takes the share `cooling_share` and
    can carry `cooling_w` out of one rack. Without `cables` (a printed backplane) none of their
    bounds exists.
    """

    id: str
    name: str
    hypothetical: bool
    chip: str
    domain: int
    racks: int
    tray_chips: int
    chip_w: float
    chip_units: float
    chip_kg: float
    frame_units: float
    frame_kg: float
    allowed_kg: float
    width_m: float
    depth_m: float
    floor_kg_per_m2: float
    feed_w: float
    cooling_share: float
    cooling_w: float
    cables: Cables | None
    figures: tuple[Figure, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    other_w: float = 0.0
    stage_chips: float = math.inf
    stage_w: float = 0.0
    stage_units: float = 0.0
    stage_kg: float = 0.0
    file: str = ""


def _rack(
    per_chip: Mapping[str, Any],
    switches: Mapping[str, Any] | None,
    frame: Mapping[str, Any],
    cooling: Sequence[Mapping[str, Any]],
    cables: Mapping[str, Any] | None,
    **top: Any,
) -> Rack:
    figures: list[Figure] = []

    def values(part: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
        """SI values in place of the figures, which are noted as those of `owner`."""
        own = {name: one for name, one in part.items() if isinstance(one, Figure)}
        figures.extend(f.named(f"{owner} {f.name}".strip().replace("_", " ")) for f in own.values())
        rest = {name: one for name, one in part.items() if name not in own and one is not None}
        return rest | {name: one.value for name, one in own.items()}

    found = values(top) | values(per_chip, "per_chip") | values(switches or {}, "switches")
    found |= values(frame, "frame")
    media = [values(one, f"{one['kind']} cooling") for one in cooling]
    shares = [medium["cooling_share"] for medium in media]
    if abs(math.fsum(shares) - 1.0) > 1e-6:
        said = " + ".join(f"{share:g}" for share in shares) or "nothing"
        raise Refused(f"shares of {said}", "shares that add up to 1", "cooling")
    if found["allowed_kg"] <= found["frame_kg"]:
        accepted = f"more than {found['frame_kg']:g} kg"
        raise Refused("not above the empty rack", accepted, "frame", "allowed_mass")
    worst = max(media, key=lambda medium: medium["cooling_share"] / medium["cooling_w"])
    found |= {name: worst[name] for name in ("cooling_share", "cooling_w")}
    found |= {name: int(found[name]) for name in ("domain", "racks", "tray_chips")}
    wired = Cables(**values(cables, f"{cables['kind']} cables")) if cables else None
    return Rack(**found, cables=wired, figures=tuple(figures), assumed=reasons(tuple(figures)))


_MEDIUM = Table(Field("kind", Word(("air", "liquid"))), *_figures("cooling"))
_KINDS = Word(("passive_copper", "active_copper", "optical"))
RACK = Table(
    Field("id", ID, meaning="what commands call the rack"),
    Field("name", Text()),
    Field("hypothetical", Flag(), False, meaning="nobody sells it"),
    Field("chip", ID, meaning="that it is full of"),
    *_figures("rack"),
    Field("per_chip", Table(*_figures("per_chip"))),
    Field("switches", Table(*_figures("switches")), None),
    Field("frame", Table(*_figures("frame"))),
    Field("cooling", Listed(_MEDIUM)),
    Field(
        "cables",
        Table(Field("kind", _KINDS), *_figures("cables")),
        None,
        meaning="of the scale-up fabric, and the space for them",
    ),
    Field("notes", Listed(Text()), ()),
    make=_rack,
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
    accepted = f"{', '.join(shipped)}, or the path of a rack file"
    raise unknown("unknown rack", text, shipped, accepted, field="rack")


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
    rack = replace(read(RACK, document), file=document.file)
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
