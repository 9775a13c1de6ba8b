"""Rules of chip families, one small file each; `family_of` finds a chip's."""

from dse.rules.families import amd, gaudi, nvidia, tpu, trainium
from dse.rules.families.family import UNKNOWN, Family, family_of_name
from dse.schema.chip import Chip

FAMILIES: tuple[Family, ...] = (
    nvidia.FAMILY,
    amd.FAMILY,
    tpu.FAMILY,
    trainium.FAMILY,
    gaudi.FAMILY,
)


def family_of(chip: Chip) -> Family:
    """The rules of the chip's family, `UNKNOWN` where it has none."""
    return family_of_name(FAMILIES, chip.family)


__all__ = ["FAMILIES", "UNKNOWN", "Family", "family_of"]
