"""Systems: `hardware/systems/*.yaml`, the fabric around a chip as levels, innermost first."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from dse.record import record
from dse.schema.figure import Figure, Figured, Value, reasons
from dse.schema.loader import Document, load_yaml
from dse.schema.plausible import doubts
from dse.schema.reader import ID, Field, Listed, Refused, Table, Text, Then, read

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


@record
class System:
    """Levels from the inside out; the last is the scale-out network."""

    id: str
    name: str
    levels: tuple[FabricLevel, ...]
    figures: tuple[Figure, ...]
    assumed: tuple[str, ...]
    missing: tuple[str, ...]
    file: str

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


_SHARE = Value("count", most=1.0, accepted="above 0, at most 1")


def _level(name: str, **found: Figure | None) -> tuple[FabricLevel, list[Figure]]:
    """A level and its figures as "NVLink latency"."""
    own = {field: one for field, one in found.items() if one is not None}
    values: dict[str, Any] = {n: f.text if f.unit == "text" else f.value for n, f in own.items()}
    if "size" in values:
        values["size"] = int(values["size"])
    values["in_network_reduction"] = values.get("in_network_reduction", "none") != "none"
    return FabricLevel(name, **values), [one.named(f"{name} {one.name}") for one in own.values()]


_LEVEL = Table(
    Field("name", Text()),
    Field("topology", Figured(Value("text", TOPOLOGIES)), meaning="how the chips are joined"),
    Field(
        "size",
        Figured(Value("count", whole=True)),
        None,
        meaning="chips of one domain; the last level joins any number and has none",
    ),
    Field(
        "bandwidth_per_direction",
        Figured("bytes/s"),
        None,
        to="bytes_per_s_per_direction",
        meaning="what one chip sends, over all its links",
    ),
    Field(
        "bandwidth_per_pair",
        Figured("bytes/s"),
        None,
        to="bytes_per_s_per_pair",
        meaning="one link between two neighbours of a mesh, torus or dragonfly",
    ),
    Field("latency", Figured("s"), to="latency_s", meaning="of one hop"),
    Field("jitter", Figured("s"), to="jitter_s", meaning="mean delay of a hop"),
    Field(
        "in_network_reduction",
        Figured(Value("text", ("none", "supported"))),
        None,
        meaning="whether the switches add what passes through them",
    ),
    Field("software", Figured("s"), None, to="software_s", meaning="what software adds to a hop"),
    Field("reached", Figured(_SHARE), None, meaning="share of the bandwidth in a collective"),
    Field("ramp", Figured("count"), None, meaning="cost of messages between latency and bandwidth"),
    make=_level,
)


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


SYSTEM = Table(
    Field("id", ID),
    Field("name", Text()),
    Field("levels", Then(Listed(_LEVEL, 1), _grow), meaning="innermost first"),
)


def load_system(path: Path | str) -> System:
    """Reads one system file. Raises InputError with the line and field of every mistake."""
    return read_system(load_yaml(path))


def read_system(document: Document, part: str = "") -> System:
    """The system of a document, or of its field `part`. Raises InputError, or InputErrors for
    several mistakes."""
    written = document.data[part] if part else document.data
    found = read(SYSTEM, document, (part,) if part else (), written)
    levels = tuple(level for level, _ in found["levels"])
    figures = tuple(figure for _, own in found["levels"] for figure in own)
    missing = tuple(
        f"{level.name} bandwidth_per_direction"
        for level in levels
        if math.isnan(level.bytes_per_s_per_direction)
    )
    return System(
        found["id"],
        found["name"],
        levels,
        figures,
        (*doubts(figures), *reasons(figures)),
        missing,
        document.file,
    )
