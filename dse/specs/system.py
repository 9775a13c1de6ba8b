"""Systems: `hardware/systems/*.yaml`, the fabric around a chip as levels, innermost first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, Field

from dse.errors import InputError
from dse.specs.chip import Figure, FigureSpec, each, quantity, read_figure, reasons, together
from dse.specs.loader import STRICT, Document, KeyPath, did_you_mean, load_yaml, validate

Topology = Literal["switched", "full_mesh", "ring", "torus_2d", "torus_3d", "pcie"]
TOPOLOGIES: tuple[str, ...] = get_args(Topology)


@dataclass(frozen=True, slots=True)
class FabricLevel:
    """One level of the fabric.

    `size` is the number of chips of one domain (None: unbounded); `bytes_per_s_per_direction` is
    what one chip sends, over all its links (NaN: not known); `bytes_per_s_per_pair` is one link
    between two neighbours of a mesh or torus; `latency_s` is one hop.
    """

    name: str
    topology: Topology
    size: int | None
    bytes_per_s_per_direction: float
    bytes_per_s_per_pair: float | None
    latency_s: float
    jitter_s: float


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
        inner, outer = self.levels[0], self.levels[-1]
        domain = inner.size or math.inf
        if min(chips, domain) > 1 and math.isnan(inner.bytes_per_s_per_direction):
            return inner.name
        if chips > domain and math.isnan(outer.bytes_per_s_per_direction):
            return outer.name
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


# Figures of a level that are quantities.
_DIMENSION = {
    "size": "count", "bandwidth_per_direction": "bytes/s", "bandwidth_per_pair": "bytes/s",
    "latency": "s", "jitter": "s",
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
                if field in _DIMENSION:
                    number = quantity(document, path, str(value), _DIMENSION[field])
                    if field == "size" and number != int(number):
                        errors.append(document.error(path, f"read {value!r}", "a whole number"))
                elif field == "topology":
                    _check_topology(document, path, str(value))
            except InputError as error:
                errors.append(error)
    return errors


def _check_topology(document: Document, path: KeyPath, text: str) -> None:
    if text not in TOPOLOGIES:
        message = f"read {text!r}{did_you_mean(text, TOPOLOGIES)}"
        raise document.error(path, message, ", ".join(TOPOLOGIES))


def _level(document: Document, path: KeyPath, spec: _LevelSpec) -> tuple[FabricLevel, list[Figure]]:
    def figure(field: str, dimension: str) -> Figure | None:
        written: FigureSpec | None = getattr(spec, field)
        if written is None:
            return None
        return read_figure(document, (*path, field), f"{spec.name} {field}", written, dimension)

    latency, jitter = (cast(Figure, figure(field, "s")) for field in ("latency", "jitter"))
    bandwidth = figure("bandwidth_per_direction", "bytes/s")
    pair = figure("bandwidth_per_pair", "bytes/s")
    topology = cast(Figure, figure("topology", "text"))
    size = figure("size", "count")
    level = FabricLevel(
        name=spec.name,
        topology=cast(Topology, topology.text),
        size=int(size.value) if size else None,
        bytes_per_s_per_direction=bandwidth.value if bandwidth else math.nan,
        bytes_per_s_per_pair=pair.value if pair else None,
        latency_s=latency.value,
        jitter_s=jitter.value,
    )
    return level, [f for f in (topology, size, bandwidth, pair, latency, jitter) if f]
