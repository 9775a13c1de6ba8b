"""AWS Trainium and Inferentia: systolic arrays of 128 x 128."""

from dse.physics import alignment
from dse.rules.families.family import Family
from dse.rules.kinds import VLLM

FAMILY = Family(
    "trainium",
    "AWS Trainium",
    alignment.TRAINIUM,
    "AWS Neuron documentation, NeuronCore architecture, 2026",
    stacks=(VLLM,),
    notes=(
        "MX formats come in groups of 32 (8 partitions x 4)",
        "whether vLLM's Neuron backend takes a degree was not checked: its rules are those of GPUs",
    ),
)
