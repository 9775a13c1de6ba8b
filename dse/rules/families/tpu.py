"""Google TPUs: systolic matrix units of 128 x 128, from v6e on 256 x 256."""

from dse.physics import alignment
from dse.rules.families.family import Family
from dse.rules.kinds import VLLM

FAMILY = Family(
    "tpu",
    "Google TPU",
    alignment.TPU,
    "github:jax-ml/scaling-book tpus.md, 2025; Cloud TPU performance guide",
    stacks=(VLLM,),
    notes=(
        "vector registers are 8 x 128: rows (tokens) in eights; a chip with several matrix units "
        "wants weights wider than one of them",
        "whether vLLM's TPU backend takes a degree was not checked: its rules are those of GPUs",
    ),
)
