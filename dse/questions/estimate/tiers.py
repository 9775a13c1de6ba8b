"""Memory tiers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.catalog import Catalog
from dse.schema.tiers import tiers_of

OVERLAP = (
    "offloaded weights are fetched while the layer before computes, routed experts and cache on "
    "demand, while the device waits (docs/tiers.md)"
)
ENERGY = "joules leave out what the tier and the link to it draw for these bytes"


def offload_assumptions(catalog: Catalog, deployment: Mapping[str, Any]) -> list[str]:
    """What an answer with offloaded weights or cache rests on, a sentence each."""
    name = deployment.get("offload_tier")
    if name is None:
        return []
    chip = deployment["chip"]
    tier = tiers_of(catalog.chip(chip), catalog.tiers).get(name)
    if tier is None:
        return []
    return [f"{chip}: {text}" for text in tier.assumed] + [catalog.tiers.reason, OVERLAP, ENERGY]
