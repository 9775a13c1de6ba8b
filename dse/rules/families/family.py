"""What the rules of matrix products need to know of a family of chips."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dse.rules.kinds import STACKS, VLLM, Rule
from dse.schema.chip import Chip


@dataclass(frozen=True, slots=True)
class Family:
    """`chips`: the `family` of the chip files that it is for. Of GPUs, `tiles` (rows, columns) that
    libraries use on `units`; of systolic arrays, the side `matrix_unit` of one where the chip's
    file does not say it, and rows come in `row_unit`. `stride_bytes`: strides to avoid.
    `aligned`: whether misaligned widths are slow here, which was measured on `aligned_chips`."""

    name: str
    title: str
    chips: tuple[str, ...]
    source: str
    stacks: tuple[str, ...] = STACKS
    tiles: tuple[tuple[float, float], ...] = ()
    units: str = "compute units"
    matrix_unit: float | None = None
    row_unit: float = 1.0
    stride_bytes: float | None = None
    stride_chips: tuple[str, ...] = ()
    stride_rule: Rule | None = None
    aligned: bool = False
    aligned_chips: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether anything is known of its matrix products."""
        return bool(self.tiles) or self.matrix_unit is not None


UNKNOWN = Family(
    "unknown",
    "a family without published shape rules",
    (),
    "none",
    stacks=(VLLM,),
    notes=(
        "degrees are judged by the rules of vLLM; whether it runs on this chip was not checked",
        "no shape rules of matrix products are published for this chip: none are applied",
    ),
)


def family_of_name(families: Iterable[Family], name: str) -> Family:
    return next((family for family in families if name in family.chips), UNKNOWN)


def matrix_unit(family: Family, chip: Chip) -> tuple[float, str] | None:
    """(side, source) of the chip's matrix unit: what the note of its compute units says, else the
    family's; None for a chip without one."""
    if family.matrix_unit is None:
        return None
    figure = chip.figure("compute_units")
    found = re.search(r"(\d+)x\1\b", figure.note or "") if figure else None
    if figure is None or found is None:
        return family.matrix_unit, family.source
    return float(found[1]), figure.source
