"""Systems: `hardware/systems/*.yaml`, the fabric around a chip as levels, innermost first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, Field

from dse.errors import InputError
from dse.schema.chip import Figure, FigureSpec, each, quantity, read_figure, reasons, together
from dse.schema.loader import STRICT, Document, KeyPath, did_you_mean, load_yaml, validate

Topology = Literal["switched", "full_mesh", "ring", "torus_2d", "torus_3d", "dragonfly", "pcie"]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
Distribution = Literal["exponential", "normal", "pareto"]  # of delays: `dse.physics.jitter`
DISTRIBUTIONS: tuple[str, ...] = get_args(Distribution)
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


@dataclass(frozen=True, slots=True)
class FabricLevel:
    """One level of the fabric.

    `size` is the number of chips of one domain (None: unbounded); `bytes_per_s_per_direction` is
    what one chip sends, over all its links (NaN: not known); `bytes_per_s_per_pair` is one link
    between two neighbours of a mesh, torus or dragonfly; `latency_s` is one hop.

    `in_network_reduction`: its switches add what passes through them (NVLink SHARP). Delays of mean
    `jitter_s` follow `jitter_distribution`. Between domains `software_s` comes on top of each hop,
    collectives reach the share `reached` of the bandwidth, and `ramp` is what messages cost that
    are too long for the latency alone and too short for the bandwidth (`dse.schema.efficiency`);
    inside the first level all three are in the chip's efficiency file.
    """

    name: str
    topology: Topology
    size: int | None
    bytes_per_s_per_direction: float
    bytes_per_s_per_pair: float | None
    latency_s: float
    jitter_s: float
    jitter_distribution: Distribution = "exponential"
    in_network_reduction: bool = False
    software_s: float = SCALE_OUT_SOFTWARE_S
    reached: float = SCALE_OUT_FRACTION
    ramp: float = SCALE_OUT_RAMP


@dataclass(frozen=True, slots=True)
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


class _LevelSpec(BaseModel):
    """`size` is left out on the last level, which joins any number of chips."""

    model_config = STRICT

    name: str
    topology: FigureSpec
    size: FigureSpec | None = None
    bandwidth_per_direction: FigureSpec | None = None
    bandwidth_per_pair: FigureSpec | None = None
    latency: FigureSpec
    jitter: FigureSpec
    jitter_distribution: FigureSpec | None = None
    in_network_reduction: FigureSpec | None = None
    software: FigureSpec | None = None
    reached: FigureSpec | None = None
    ramp: FigureSpec | None = None


class _SystemFile(BaseModel):
    model_config = STRICT

    id: str = Field(min_length=1)
    name: str
    levels: tuple[_LevelSpec, ...] = Field(min_length=1)


def load_system(path: Path | str) -> System:
    """Reads one system file. Raises InputError with the line and field of every mistake."""
    return read_system(load_yaml(path))


def read_system(document: Document) -> System:
    """The system of a document. Raises InputError, or InputErrors for several mistakes."""
    wrong = _wrong_figures(document)
    try:
        spec = validate(_SystemFile, document)
    except InputError as error:
        raise together([*each(error), *wrong]) from None
    if wrong:
        raise together(wrong)
    levels: list[FabricLevel] = []
    figures: list[Figure] = []
    for index, written in enumerate(spec.levels):
        level, own = _level(document, ("levels", index), written)
        if levels and (level.size or math.inf) <= (levels[-1].size or math.inf):
            inner = levels[-1].size
            raise document.error(
                ("levels", index, "size"),
                f"read {level.size or 'no size'}: not larger than the level inside it",
                f"more than {inner}" if inner else "a size on every level but the last",
            )
        levels.append(level)
        figures.extend(own)
    listed = tuple(figures)
    missing = tuple(
        f"{level.name} bandwidth_per_direction"
        for level in levels
        if math.isnan(level.bytes_per_s_per_direction)
    )
    return System(
        spec.id, spec.name, tuple(levels), listed, reasons(listed), missing, document.file
    )


_DIMENSION = {
    "topology": "text", "size": "count", "bandwidth_per_direction": "bytes/s",
    "bandwidth_per_pair": "bytes/s", "latency": "s", "jitter": "s", "jitter_distribution": "text",
    "in_network_reduction": "text", "software": "s", "reached": "count", "ramp": "count",
}  # fmt: skip
_WORDS = {
    "topology": TOPOLOGIES, "jitter_distribution": DISTRIBUTIONS,
    "in_network_reduction": ("none", "supported"),
}  # fmt: skip


def _wrong_figures(document: Document) -> list[InputError]:
    """Every figure of a level whose value cannot be read."""
    errors: list[InputError] = []
    written: Any = document.data.get("levels")
    levels: list[Any] = written if isinstance(written, list) else []
    for index, level in enumerate(levels):
        for field, figure in level.items() if isinstance(level, dict) else ():
            value = figure.get("value") if isinstance(figure, dict) else None
            if not isinstance(value, str | int | float):
                continue
            path: KeyPath = ("levels", index, field, "value")
            try:
                if field in _WORDS:
                    _check_word(document, path, str(value), _WORDS[field])
                elif field in _DIMENSION:
                    number = quantity(document, path, str(value), _DIMENSION[field])
                    if field == "size" and number != int(number):
                        errors.append(document.error(path, f"read {value!r}", "a whole number"))
            except InputError as error:
                errors.append(error)
    return errors


def _check_word(document: Document, path: KeyPath, text: str, words: tuple[str, ...]) -> None:
    if text not in words:
        raise document.error(path, f"read {text!r}{did_you_mean(text, words)}", ", ".join(words))


def _level(document: Document, path: KeyPath, spec: _LevelSpec) -> tuple[FabricLevel, list[Figure]]:
    def figure(field: str, dimension: str) -> Figure | None:
        written: FigureSpec | None = getattr(spec, field)
        if written is None:
            return None
        return read_figure(document, (*path, field), f"{spec.name} {field}", written, dimension)

    def number(field: str, default: float, most: float = math.inf) -> float:
        if field not in found:
            return default
        value = found[field].value
        if not 0 <= value <= most or (field == "reached" and value == 0):
            accepted = f"above 0, at most {most:g}" if most < math.inf else "0 or more"
            raise document.error((*path, field, "value"), f"read {found[field].text!r}", accepted)
        return value

    def word(field: str) -> str:
        return found[field].text if field in found else _WORDS[field][0]

    written = {field: figure(field, dimension) for field, dimension in _DIMENSION.items()}
    found = {field: one for field, one in written.items() if one is not None}
    size = found.get("size")
    level = FabricLevel(
        name=spec.name,
        topology=cast(Topology, word("topology")),
        size=int(size.value) if size else None,
        bytes_per_s_per_direction=number("bandwidth_per_direction", math.nan),
        bytes_per_s_per_pair=found["bandwidth_per_pair"].value
        if "bandwidth_per_pair" in found
        else None,
        latency_s=number("latency", 0.0),
        jitter_s=number("jitter", 0.0),
        jitter_distribution=cast(Distribution, word("jitter_distribution")),
        in_network_reduction=word("in_network_reduction") != "none",
        software_s=number("software", SCALE_OUT_SOFTWARE_S),
        reached=number("reached", SCALE_OUT_FRACTION, 1.0),
        ramp=number("ramp", SCALE_OUT_RAMP),
    )
    return level, list(found.values())
