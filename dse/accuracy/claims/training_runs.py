"""Training runs of the catalog, for the claims about training."""

from __future__ import annotations

from functools import cache
from typing import Any

from dse.catalog import load_catalog
from dse.questions.train.answer import Training, train
from dse.schema.model_catalog import resolve_model
from dse.schema.training_run import training_terms

TOKENS = 15e12
# Models on clusters of the size that such models were trained on.
RUNS = (
    ("llama-3.1-405b", "h100_sxm", 16_384),
    ("llama-3-70b", "h100_sxm", 2048),
    ("llama-3-8b", "h100_sxm", 1024),
    ("deepseek-v3", "h800_sxm", 2048),
    ("llama-3-70b", "a100_80_sxm", 1024),
    ("llama-3-70b", "tpu_v5p", 2048),
    ("gpt-oss-120b", "b200_sxm", 1024),
)


@cache
def run(model: str, chip: str, chips: int, tokens: float = TOKENS, **terms: Any) -> Training:
    """The best plan; `terms` as a `training:` section writes them."""
    asked = training_terms(chip=chip, chips=chips, **terms)
    return train(load_catalog(), resolve_model(model), asked, tokens, "rental_3yr")
