"""Joules by level: `hardware/energy.yaml`, what moving a byte and one operation take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, Field

from dse.schema.chip import Chip, Figure, FigureSpec, SourcedSpec, quantity, read_figure
from dse.schema.loader import STRICT, Document, load_yaml, validate

FILE = "energy.yaml"
# The levels that are one figure, with its dimension.
_SINGLE = {
    "other_memory": "J/byte", "on_chip": "J/byte", "links": "J/byte", "network": "J/byte",
    "arithmetic": "J", "idle_share": "count", "lowest_clock": "count",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """A published energy of one operation or access of `bits` bits at a node."""

    node: str
    name: str
    bits: int
    figure: Figure

    @property
    def j_per_bit(self) -> float:
        return self.figure.value / self.bits


@dataclass(frozen=True, slots=True)
class EnergyConstants:
    """`memories` by the memory kind of a chip and the other figures by name: joules per byte,
    joules per operation (`arithmetic`), or shares (`idle_share` of the rated power, `lowest_clock`
    of the rated clock)."""

    memories: Mapping[str, Figure]
    figures: Mapping[str, Figure]
    operations: tuple[Operation, ...]

    def value(self, name: str) -> float:
        return self.figures[name].value if name in self.figures else math.nan

    def memory(self, kind: str) -> Figure | None:
        """Of a byte read from, or written to, a memory of that kind."""
        return self.memories.get(kind, self.figures.get("other_memory"))

    def idle_w(self, chip: Chip) -> float:
        """Watts of a chip with weights loaded and nothing to do: its own figure, else a share of
        its rated power; NaN without either."""
        if chip.idle_w is not None:
            return chip.idle_w
        return math.nan if chip.tdp_w is None else self.value("idle_share") * chip.tdp_w

    def assumed(self, chip: Chip) -> list[str]:
        """What of a chip's energy rests on an assumption, a sentence each."""
        if chip.tdp_w is None:
            return []
        sentences = []
        if chip.idle_w is None:
            share = self.figures.get("idle_share")
            if share is not None:
                sentences.append(
                    f"{chip.id}: idle power {self.idle_w(chip):.0f} W, {share.value:.0%} of its "
                    f"rated power ({share.note})"
                )
        memory = self.memory(chip.memories[0].kind)
        if memory is not None and memory.kind == "assumed":
            sentences.append(f"{chip.id}: energy per byte of its memory: {memory.note}")
        return sentences


NONE = EnergyConstants(MappingProxyType({}), MappingProxyType({}), ())


class _Memory(FigureSpec):
    kinds: tuple[str, ...] = Field(min_length=1)


class _Operation(SourcedSpec):
    node: str
    name: str
    bits: int = Field(gt=0)


class _EnergyFile(BaseModel):
    model_config = STRICT

    memories: tuple[_Memory, ...]
    other_memory: FigureSpec
    on_chip: FigureSpec
    links: FigureSpec
    network: FigureSpec
    arithmetic: FigureSpec
    idle_share: FigureSpec
    lowest_clock: FigureSpec
    operations: tuple[_Operation, ...] = ()


def load_energy(path: Path | str) -> EnergyConstants:
    """Raises InputError with the line and field of a mistake: an unknown unit, a share beyond 1, a
    kind of memory that stands twice."""
    document = load_yaml(path)
    spec = validate(_EnergyFile, document)
    memories: dict[str, Figure] = {}
    for index, row in enumerate(spec.memories):
        figure = read_figure(document, ("memories", index), "memory", row, "J/byte")
        for kind in row.kinds:
            if kind in memories:
                raise document.error(("memories", index, "kinds"), f"{kind} stands twice", "once")
            memories[kind] = figure
    figures = {
        name: read_figure(document, (name,), name, getattr(spec, name), dimension)
        for name, dimension in _SINGLE.items()
    }
    for name in ("idle_share", "lowest_clock"):
        if figures[name].value >= 1.0:
            text = f"read {figures[name].text!r}: a share of the rated one"
            raise document.error((name, "value"), text, "above 0 and below 1")
    return EnergyConstants(
        MappingProxyType(memories),
        MappingProxyType(figures),
        tuple(_operation(document, index, row) for index, row in enumerate(spec.operations)),
    )


def _operation(document: Document, index: int, row: _Operation) -> Operation:
    path = ("operations", index)
    quantity(document, (*path, "value"), row.value, "J")
    return Operation(row.node, row.name, row.bits, read_figure(document, path, row.name, row, "J"))
