"""Intel Gaudi: a few matrix engines of 256 x 256."""

from dse.physics import alignment
from dse.rules.families.family import Family
from dse.rules.kinds import VLLM

FAMILY = Family(
    "gaudi",
    "Intel Gaudi",
    alignment.GAUDI,
    "github:stas00/ml-engineering compute/accelerator/README.md, 2026-08-22",
    stacks=(VLLM,),
    notes=(
        "several engines can join into one of another form (not modelled): the loss is an upper "
        "bound",
        "whether vLLM's Gaudi backend takes a degree was not checked: its rules are those of GPUs",
    ),
)
