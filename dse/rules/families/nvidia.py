"""NVIDIA GPUs: tensor cores on streaming multiprocessors."""

from dse.physics import alignment
from dse.rules.families.family import Family

FAMILY = Family(
    "nvidia",
    "NVIDIA GPU",
    alignment.NVIDIA,
    "NVIDIA, Matrix Multiplication Background User's Guide; github:stas00/ml-engineering "
    "training/performance/README.md, 2026-08-22",
    # The most efficient output tiles of the guide, usual on all generations since (assumed).
    tiles=((256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="SMs",
)
