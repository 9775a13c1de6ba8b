"""Families of chips, and what the rules of matrix products need to know of each."""

from __future__ import annotations

from dse.physics import alignment
from dse.physics.alignment import Grain
from dse.record import record
from dse.rules.kinds import MEGATRON, SGLANG, STACKS, VLLM, Rule, rule_of


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
_UNCHECKED = "whether vLLM's {} backend takes a degree was not checked: its rules are those of GPUs"
# NVIDIA GPUs: tensor cores on streaming multiprocessors.
_NVIDIA = Family(
    "nvidia",
    "NVIDIA GPU",
    alignment.NVIDIA,
    "NVIDIA, Matrix Multiplication Background User's Guide; github:stas00/ml-engineering "
    "training/performance/README.md, 2026-08-22",
    # The most efficient output tiles of the guide, usual on all generations since (assumed).
    tiles=((256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="SMs",
)
# AMD Instinct: matrix cores on compute units, grouped into dies (XCDs).
_AMD = Family(
    "amd",
    "AMD Instinct",
    alignment.AMD,
    "ROCm documentation, AMD Instinct MI300X workload optimization, 2026",
    stacks=(VLLM, SGLANG, MEGATRON),
    # Macro-tiles as on other GPUs, and one larger (assumed).
    tiles=((256.0, 256.0), (256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="compute units",
    stride_bytes=512.0,
    stride_chips=("cdna3",),
    stride_rule=rule_of("stride_hotspot"),
    notes=(
        "8 dies (XCDs): the vendor says to group tiles in multiples of 8, which libraries do; no "
        "figure is published and none is charged",
    ),
)
# Google TPUs: systolic matrix units of 128 x 128, from v6e on 256 x 256.
_TPU = Family(
    "tpu",
    "Google TPU",
    alignment.TPU,
    "github:jax-ml/scaling-book tpus.md, 2025; Cloud TPU performance guide",
    stacks=(VLLM,),
    notes=(
        "vector registers are 8 x 128: rows (tokens) in eights; a chip with several matrix units "
        "wants weights wider than one of them",
        _UNCHECKED.format("TPU"),
    ),
)
# AWS Trainium and Inferentia: systolic arrays of 128 x 128.
_TRAINIUM = Family(
    "trainium",
    "AWS Trainium",
    alignment.TRAINIUM,
    "AWS Neuron documentation, NeuronCore architecture, 2026",
    stacks=(VLLM,),
    notes=(
        "MX formats come in groups of 32 (8 partitions x 4)",
        _UNCHECKED.format("Neuron"),
    ),
)
# Intel Gaudi: a few matrix engines of 256 x 256.
_GAUDI = Family(
    "gaudi",
    "Intel Gaudi",
    alignment.GAUDI,
    "github:stas00/ml-engineering compute/accelerator/README.md, 2026-08-22",
    stacks=(VLLM,),
    notes=(
        "several engines can join into one of another form (not modelled): the loss is an upper "
        "bound",
        _UNCHECKED.format("Gaudi"),
    ),
)
FAMILIES = (_NVIDIA, _AMD, _TPU, _TRAINIUM, _GAUDI)


def family_of(name: str) -> Family:
    """The rules of a family by the name in its chips' files, `UNKNOWN` where it has none."""
    return next((family for family in FAMILIES if name in family.grain.chips), UNKNOWN)
