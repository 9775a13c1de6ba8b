"""Claims 16 to 19, 23 and 26: training."""

from __future__ import annotations

from dse.validation.claims.frame import Claim

NEEDS = "the training model"

CLAIMS = (
    Claim(
        16,
        "Training a 70B model in BF16 needs at least 840 GB: weights 140, gradients 140, FP32 Adam "
        "states 560.",
        needs=NEEDS,
    ),
    Claim(17, "The backward pass costs about twice the forward pass.", needs=NEEDS),
    Claim(
        18,
        "Training clusters reach 11% (poor) to 40% (a practical target) of their FLOP/s.",
        needs=NEEDS,
    ),
    Claim(19, "A slow input pipeline starves the accelerator.", needs=NEEDS),
    Claim(
        23,
        "Training wants centralised compute; inference can be spread out, and older or consumer "
        "GPUs hold useful capacity for it.",
        needs=NEEDS,
    ),
    Claim(
        26,
        "Inference recurs for every token, so serving rivals training in its demand for compute.",
        needs=NEEDS,
    ),
)
