"""What the rules of matrix products need to know of a family of chips."""

from __future__ import annotations

from collections.abc import Iterable

from dse.physics import alignment
from dse.physics.alignment import Grain
from dse.record import record
from dse.rules.kinds import STACKS, VLLM, Rule


@record
class Family:
    """`grain`: the chips that it is for, and what their kernels come in. Of GPUs, `tiles` (rows,
    columns) that libraries use on `units`. `stride_bytes`: strides to avoid."""

    name: str
    title: str
    grain: Grain
    source: str
    stacks: tuple[str, ...] = STACKS
    tiles: tuple[tuple[float, float], ...] = ()
    units: str = "compute units"
    stride_bytes: float | None = None
    stride_chips: tuple[str, ...] = ()
    stride_rule: Rule | None = None
    notes: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether anything is known of its matrix products."""
        return bool(self.tiles) or self.grain.is_unit


UNKNOWN = Family(
    "unknown",
    "a family without published shape rules",
    alignment.UNKNOWN,
    "none",
    stacks=(VLLM,),
    notes=(
        "degrees are judged by the rules of vLLM; whether it runs on this chip was not checked",
        "no shape rules of matrix products are published for this chip: none are applied",
    ),
)


def family_of_name(families: Iterable[Family], name: str) -> Family:
    return next((family for family in families if name in family.grain.chips), UNKNOWN)
